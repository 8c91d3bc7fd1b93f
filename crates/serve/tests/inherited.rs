//! Listeners that a process has inherited: each server runs in a process of its own.
#![cfg(unix)]
#![allow(missing_docs)] // a test binary has no users

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::process::Command;

use children::{PATIENCE, Process};
use windlass::{Address, Buf};
use windlass_serve::{Action, Conn, Context, Datagram, Handler, Server};

#[allow(dead_code, unreachable_pub)]
#[path = "common/children.rs"]
mod children;

/// Sends back what comes, and shuts down.
struct Once;

impl Handler for Once {
    type State = ();

    fn serving(&mut self, _: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        println!("serves at {addresses:?}");
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::Shutdown
    }

    fn datagram(&mut self, d: &mut Datagram<'_, ()>, data: Buf) -> Action {
        d.reply(data);
        Action::Shutdown
    }
}

/// Serves at the addresses of the role, once.
fn serve(role: &str) {
    let mut server = Server::new(|_loop| Once);
    for address in role.split(' ') {
        server = match server.listen(address) {
            Ok(server) => server,
            Err(error) => return println!("refused: {:?}: {error}", error.kind()),
        };
    }
    match server.run() {
        Ok(report) => println!("panics: {}", report.panics),
        Err(error) => println!("failed: {:?}: {error}", error.kind()),
    }
}

/// What starts a server that has `descriptor` as its standard input.
fn with_input(test: &str, role: &str, descriptor: impl Into<OwnedFd>) -> Command {
    let mut command = children::command(test, role);
    command.stdin(descriptor.into());
    command
}

/// The same, from a shell that runs `prelude` first.
fn by_shell(prelude: &str, of: Command) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{prelude} exec \"$0\" \"$@\""));
    command.arg(of.get_program()).args(of.get_args());
    for (name, value) in of.get_envs() {
        command.env(name, value.expect("it is set"));
    }
    command
}

/// As a service manager starts a service: the listener is the descriptor 3.
fn by_manager(test: &str, role: &str, prelude: &str, descriptor: impl Into<OwnedFd>) -> Command {
    let prelude = format!("exec 3<&0 0</dev/null; {prelude}");
    let mut command = by_shell(&prelude, children::command(test, role));
    command.stdin(descriptor.into());
    command
}

#[track_caller]
fn answers(mut server: Process, mut client: impl Read + Write) {
    server.lines.find("serves at ");
    client.write_all(b"hello").expect("it is open");
    let mut heard = [0; 5];
    client.read_exact(&mut heard).expect("an answer");
    assert_eq!(&heard, b"hello");
    drop(client);
    let (status, lines) = server.end();
    assert!(status.success() && lines.iter().any(|line| line == "panics: 0"), "{lines:#?}");
}

fn listener() -> (TcpListener, impl FnOnce() -> TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let client = move || {
        let client = TcpStream::connect(at).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a time");
        client
    };
    (listener, client)
}

#[test]
fn a_listener_is_inherited_by_its_number() {
    let test = "a_listener_is_inherited_by_its_number";
    if let Some(role) = children::role() {
        return serve(&role);
    }
    // As inetd starts a service, and as a shell passes a descriptor.
    let (tcp, client) = listener();
    answers(Process::start(with_input(test, "fd://0", tcp)), client());
    let (tcp, client) = listener();
    answers(Process::start(by_manager(test, "fd://3", "", tcp)), client());
    // Beside an address of the server's own.
    let (tcp, client) = listener();
    let role = "tcp://127.0.0.1:0 fd://3";
    answers(Process::start(by_manager(test, role, "", tcp)), client());

    let path = std::env::temp_dir().join(format!("windlass-inherited-{}", std::process::id()));
    let unix = UnixListener::bind(&path).expect("a path");
    let client = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    answers(Process::start(with_input(test, "fd://0", unix)), client);
    // Its owner removes it.
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn a_datagram_socket_is_inherited() {
    let test = "a_datagram_socket_is_inherited";
    if let Some(role) = children::role() {
        return serve(&role);
    }
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.connect(socket.local_addr().expect("an address")).expect("an address");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    let server = Process::start(by_manager(test, "fd://3", "", socket));
    client.send(b"hello").expect("it is there");
    let mut heard = [0; 10];
    assert_eq!(client.recv(&mut heard).expect("an answer"), 5);
    let (status, lines) = server.end();
    assert!(status.success(), "{lines:#?}");
}

#[test]
fn a_service_manager_passes_listeners() {
    let test = "a_service_manager_passes_listeners";
    if let Some(role) = children::role() {
        return serve(&role);
    }
    let (tcp, client) = listener();
    let prelude = "LISTEN_PID=$$ LISTEN_FDS=1";
    answers(Process::start(by_manager(test, "fd://", prelude, tcp)), client());
    // Two of them: the same one twice.
    let (tcp, client) = listener();
    let prelude = "exec 4<&3; LISTEN_PID=$$ LISTEN_FDS=2";
    answers(Process::start(by_manager(test, "fd://", prelude, tcp)), client());
}

#[track_caller]
fn fails(command: Command, kind: &str, why: &str) {
    let (status, lines) = Process::start(command).end();
    let told = lines.iter().any(|line| line.contains(kind) && line.contains(why));
    assert!(status.success() && told, "{kind}, {why}: {lines:#?}");
}

#[test]
fn what_was_not_passed_is_refused() {
    let test = "what_was_not_passed_is_refused";
    if let Some(role) = children::role() {
        if role == "own" {
            let own = TcpListener::bind("127.0.0.1:0").expect("a port");
            return serve(&format!("fd://{}", own.as_raw_fd()));
        }
        return serve(&role);
    }
    let none = || File::open("/dev/null").expect("it is there");
    fails(with_input(test, "fd://", none()), "refused: NotFound", "are not set");
    let other = "LISTEN_PID=1 LISTEN_FDS=1";
    fails(by_manager(test, "fd://", other, none()), "refused: NotFound", "another process");
    let zero = "LISTEN_PID=$$ LISTEN_FDS=0";
    fails(by_manager(test, "fd://", zero, none()), "refused: NotFound", "no descriptor");
    fails(with_input(test, "fd://777", none()), "refused: ", "fd://777");
    // What a value of std has, and what the process has taken before.
    fails(with_input(test, "own", none()), "refused: InvalidInput", "closed on exec");
    fails(by_manager(test, "fd://3 fd://3", "", listener().0), "refused: InvalidInput", "taken");
    // Neither a listener nor a datagram socket.
    let why = "neither a listener nor a datagram socket";
    fails(with_input(test, "fd://0", none()), "failed: InvalidInput", why);
    let (stream, _peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
    fails(by_manager(test, "fd://3", "", stream), "failed: InvalidInput", why);
}
