//! Settings of a server as nbio has them: a name, listeners of the program, bound threads, and the
//! callback for accepts that fail.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::common::refusing::{Orders, Refusing};
use crate::common::{Bench, Clients, Harness, PATIENCE, System};
use windlass::driver::Driver;
use windlass::sim::Sim;
use windlass::{Address, Buf, Builder, Completions, Done, ErrorKind, Op, Watcher};
use windlass_serve::log::{Log, Record};
use windlass_serve::{
    Action, Config, Conn, Context, Datagram, Handler, Origin, Remote, Server,
    modes::{Balance, IoMode, Loops},
    report::Report,
};

crate::every_driver! {
    an_accept_that_fails_calls_the_handler
}

/// What needs threads.
mod threads {
    use super::*;
    crate::systems_drivers! {
        each_loop_serves_its_own_listener
        a_listener_that_cannot_be_made_is_the_error
        a_server_without_listener_beside_shared_ports
        threads_and_records_have_the_name_of_the_server
        loops_are_bound_to_the_processors_of_their_process
    }
}

fn an_accept_that_fails_calls_the_handler<T: Harness>() {
    #[derive(Default)]
    struct Hears(Vec<(usize, ErrorKind)>);
    impl Handler for Hears {
        type State = ();
        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            c.write("hello");
            Action::None
        }
        fn accept_failed(
            &mut self,
            server: &mut Context<'_, ()>,
            listener: usize,
            error: ErrorKind,
        ) -> Action {
            assert!(server.engine().is_empty());
            self.0.push((listener, error));
            // The panic is counted, and the server goes on.
            assert!(self.0.len() < 2, "the second one fails, as it is to");
            Action::None
        }
    }
    let orders = Orders::default();
    let driver = T::watcher(Watcher::builder()).into_driver();
    let mut watcher = Watcher::with_driver(Refusing::new(driver, orders.clone()));
    let server = Server::new(|_| Hears::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut running = server.start_on(&mut watcher).unwrap();
    let address = watcher.local_address(running.engine().listeners()[0]).unwrap();
    let clients = Clients::default();
    let mut bench = Bench { watcher, running, clients, addresses: vec![address] };
    for count in 1..=2 {
        orders.end_accept(100); // ENETDOWN
        // This connection is lost with its accept.
        bench.connect();
        until(&mut bench, "the handler hears of it", |b| b.running.handler().0.len() == count);
    }
    assert_eq!(bench.running.handler().0, [(0, ErrorKind::Os(100)); 2]);
    assert_eq!(
        (bench.running.report().panics, bench.running.report().counters.accept_errors),
        (1, 2)
    );
    let client = bench.connect();
    until(&mut bench, "it accepts again", |b| b.client(client).heard == b"hello");
}

/// As `Bench::until`, for a driver whose wait can return nothing: what an ended accept still makes.
fn until<D: Driver, H: Handler>(
    bench: &mut Bench<D, H>,
    what: &str,
    ready: impl Fn(&mut Bench<D, H>) -> bool,
) {
    let start = bench.watcher.update_now();
    while !ready(bench) {
        assert!(bench.watcher.update_now() - start < PATIENCE, "still waits until {what}");
        bench.turn(PATIENCE);
    }
}

/// What a test hears of a loop or a thread: its name, the processors it may use, and how to end it.
struct Served {
    name: Option<String>,
    processors: String,
    remote: Remote,
}

/// Answers with the number of its loop.
struct Numbered {
    number: usize,
    tell: Sender<Served>,
}

impl Handler for Numbered {
    type State = ();
    fn serving(&mut self, server: &mut Context<'_, ()>, _: &[Address]) -> Action {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let _ = self.tell.send(Served {
            name: thread::current().name().map(str::to_owned),
            processors: list.unwrap_or_default().trim().to_owned(),
            remote: server.remote().clone(),
        });
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        c.write(self.number.to_string());
        Action::None
    }
    fn datagram(&mut self, d: &mut Datagram<'_, ()>, _: Buf) -> Action {
        d.reply(self.number.to_string());
        Action::None
    }
}

fn numbered(builder: Builder) -> (Server<impl Fn(usize) -> Numbered + Sync>, Receiver<Served>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let make = move |number| Numbered { number, tell: tell.lock().unwrap().clone() };
    (Server::new(make).watcher(builder), told)
}

/// A server that runs on its threads, until it is told to end.
struct Run(Receiver<io::Result<Report>>);

impl Run {
    fn start<H: Handler, F: Fn(usize) -> H + Send + Sync + 'static>(server: Server<F>) -> Run {
        let (tell, reports) = channel();
        thread::spawn(move || {
            let _ = tell.send(server.run());
        });
        Run(reports)
    }

    fn end(&self) -> io::Result<Report> {
        self.0.recv_timeout(PATIENCE).expect("the server ends")
    }
}

fn served(told: &Receiver<Served>) -> Served {
    told.recv_timeout(PATIENCE).expect("it serves")
}

fn ask(address: SocketAddr) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"which loop?").unwrap();
    let mut answer = [0; 16];
    let count = client.read(&mut answer).unwrap();
    String::from_utf8(answer[..count].to_vec()).unwrap()
}

fn each_loop_serves_its_own_listener<T: System>() {
    for mode in [IoMode::NonBlocking, IoMode::Mixed { threads: 1 }] {
        let (server, told) = numbered(T::builder());
        let (bound, addresses) = channel();
        let bound = Mutex::new(bound);
        let server = server.io_mode(mode).loops(3).balance(Balance::LeastConnections);
        let server = server.listeners(move |index| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let _ = bound.lock().unwrap().send((index, listener.local_addr()?));
            Ok(listener)
        });
        let server = server.listeners(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
        let run = Run::start(server);
        let remote = served(&told).remote;
        let addresses: Vec<_> = (0..3).map(|_| addresses.recv_timeout(PATIENCE).unwrap()).collect();
        // The connection of a thread comes first.
        let kept = TcpStream::connect(addresses[0].1).unwrap();
        kept.set_read_timeout(Some(PATIENCE)).unwrap();
        (&kept).write_all(b"which loop?").unwrap();
        let count = (&kept).read(&mut [0; 16]).unwrap();
        assert!(count > 0);
        for (index, address) in addresses {
            for _ in 0..4 {
                assert_eq!(ask(address), index.to_string(), "{mode:?}");
            }
        }
        drop(kept);
        remote.shutdown();
        let report = run.end().unwrap();
        assert_eq!(report.counters.accepted, 13);
    }
}

fn a_listener_that_cannot_be_made_is_the_error<T: System>() {
    for fails in 0..2 {
        let (server, _told) = numbered(T::builder());
        let (bound, addresses) = channel();
        let bound = Mutex::new(bound);
        let server = server.loops(2).listeners(move |index| {
            if index == fails {
                return Err(io::Error::other("as it is to"));
            }
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let _ = bound.lock().unwrap().send(listener.local_addr()?);
            Ok(listener)
        });
        let error = Run::start(server).end().unwrap_err();
        assert_eq!(error.to_string(), "as it is to");
        // The listener of the other loop is closed.
        assert!(addresses.iter().all(|address| TcpStream::connect(address).is_err()));
        // A descriptor that is neither a listener nor a datagram socket.
        let (server, _told) = numbered(T::builder());
        let server = server.loops(2).listeners(|_| std::fs::File::open("/dev/null"));
        assert!(Run::start(server).end().is_err());
    }
    let (server, _told) = numbered(T::builder());
    let server = server.listeners(|_| Err::<TcpListener, _>(io::Error::other("as it is to")));
    let mut watcher = T::watcher(Watcher::builder());
    assert_eq!(server.start_on(&mut watcher).unwrap_err().to_string(), "as it is to");
}

/// The addresses of the first loop go to the listeners of the others, whatever stands before them.
fn a_server_without_listener_beside_shared_ports<T: System>() {
    let (server, told) = numbered(T::builder());
    let (tell, addresses) = channel();
    let tell = Mutex::new(tell);
    let server = server.loops(3).balance(Balance::ReusePort).without_listener();
    let server = server.listeners(move |index| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        tell.lock().unwrap().send((index, listener.local_addr()?)).unwrap();
        Ok(listener)
    });
    let holder = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let udp = holder.local_addr().unwrap();
    drop(holder);
    let run = Run::start(server.listen(&format!("udp://{udp}")).unwrap());
    let remote = served(&told).remote;
    for _ in 0..3 {
        let (index, address) = addresses.recv_timeout(PATIENCE).unwrap();
        assert_eq!(ask(address), index.to_string());
    }
    // Many senders: Linux distributes them over the sockets of the loops.
    let answers: std::collections::BTreeSet<u8> = (0..64)
        .map(|_| {
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send_to(b"which loop?", udp).unwrap();
            let mut answer = [0; 1];
            client.recv(&mut answer).unwrap();
            answer[0]
        })
        .collect();
    assert!(!cfg!(target_os = "linux") || answers.len() == 3, "{answers:?}");
    remote.shutdown();
    run.end().unwrap();
}

/// A simulated socket for each loop, which the program makes.
#[test]
fn each_simulated_loop_has_the_socket_that_the_program_made() {
    let sim = Sim::new(5);
    let address = |index: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, 7000 + index as u16));
    let mut watchers: Vec<Watcher> = (0..3).map(|_| Watcher::simulated(&sim)).collect();
    let (tell, _told) = channel();
    let make = move |number| Numbered { number, tell: tell.clone() };
    let sockets =
        Mutex::new((0..3).map(|index| sim.datagram(address(index)).ok()).collect::<Vec<_>>());
    let server = Server::new(make).listeners(move |index| {
        sockets.lock().unwrap()[index].take().ok_or_else(|| io::Error::other("taken"))
    });
    let mut loops = server.start_on_each(&mut watchers).unwrap();
    let mut client = Watcher::simulated(&sim);
    let socket = client.attach(sim.datagram(address(9)).unwrap()).unwrap();
    client.submit(Op::recv_from(socket).multishot()).unwrap();
    let (mut answers, mut done) = (Vec::new(), Completions::new());
    for index in 0..3 {
        client.submit(Op::send_to(socket, "which loop?", address(index))).unwrap();
    }
    for _ in 0..100 {
        client.try_wait(&mut done).unwrap();
        for c in done.drain(..) {
            if let Ok(Done::Received { from, data, .. }) = c.result {
                answers.push((from.ip().unwrap(), data.to_vec()));
            }
        }
        for (one, watcher) in loops.iter_mut().zip(&mut watchers) {
            watcher.try_wait(&mut done).unwrap();
            for c in done.drain(..) {
                assert!(one.complete(watcher, c).is_none());
            }
            one.turn(watcher);
        }
    }
    answers.sort();
    let expected = [0, 1, 2].map(|index| (address(index), index.to_string().into_bytes()));
    assert_eq!(answers, expected);
}

fn threads_and_records_have_the_name_of_the_server<T: System>() {
    struct Keeps(Mutex<Vec<String>>);
    impl Log for Keeps {
        fn log(&self, record: &Record<'_>) {
            let mut first = None;
            record.fields(|name, field| _ = first.get_or_insert(format!("{name} {field}")));
            let line = format!("{} {} {}", record.server, record.loop_index, first.unwrap());
            self.0.lock().unwrap().push(line);
        }
    }
    for name in ["api", ""] {
        let kept: &Keeps = Box::leak(Box::new(Keeps(Mutex::default())));
        let (server, told) = numbered(T::builder());
        let config = Config::new().name(name).log(kept);
        let server = server.config(config).loops(2).io_mode(IoMode::Mixed { threads: 1 });
        let (tell, addresses) = channel();
        let tell = Mutex::new(tell);
        let run = Run::start(server.listeners(move |_| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let _ = tell.lock().unwrap().send(listener.local_addr()?);
            Ok(listener)
        }));
        let (first, second) = (served(&told), served(&told));
        ask(addresses.recv_timeout(PATIENCE).unwrap());
        let third = served(&told);
        let mut names = [first.name, second.name, third.name].map(Option::unwrap);
        names.sort();
        let suffix = if name.is_empty() { String::new() } else { format!(" {name}") };
        assert_eq!(names, ["connection 0", "loop 0", "loop 1"].map(|n| format!("{n}{suffix}")));
        first.remote.shutdown();
        run.end().unwrap();
        let lines = kept.0.lock().unwrap();
        assert!(lines.len() > 4, "{lines:?}");
        for line in &*lines {
            let first = if name.is_empty() { "loop" } else { "server \"api\"" };
            assert!(line.starts_with(&format!("{name} ")) && line.contains(first), "{line}");
        }
    }
}

fn loops_are_bound_to_the_processors_of_their_process<T: System>() {
    /// The processors of the loops of a server, in the order of the loops.
    fn of_loops<T: System>(count: Loops, pins: bool) -> Vec<String> {
        let (server, told) = numbered(T::builder());
        // A loop that serves has begun, and all have begun before the first one ends.
        let run = server.loops(count).pin_loops(pins).listen("tcp://127.0.0.1:0").unwrap();
        let count = match count {
            Loops::Count(count) => count,
            _ => thread::available_parallelism().unwrap().get(),
        };
        thread::scope(|scope| {
            let run = scope.spawn(|| run.run().unwrap());
            let mut all: Vec<Served> = (0..count).map(|_| served(&told)).collect();
            all[0].remote.shutdown();
            run.join().unwrap();
            all.sort_by(|one, other| one.name.cmp(&other.name));
            all.into_iter().map(|one| one.processors).collect()
        })
    }
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        assert_eq!(of_loops::<T>(Loops::Count(2), true), ["", ""]);
        return;
    }
    let all = of_loops::<T>(Loops::Count(2), false);
    assert_eq!(all[0], all[1], "without the setting they are not bound");
    let bound = of_loops::<T>(Loops::Count(3), true);
    let is_one = |list: &String| list.parse::<usize>().is_ok();
    assert!(bound.iter().all(is_one), "{bound:?}");
    let per_cpu = of_loops::<T>(Loops::PerCpu, false);
    if per_cpu.len() > 1 {
        assert!(per_cpu.iter().all(is_one), "{per_cpu:?}");
        assert_eq!(bound[..2], per_cpu[..2]);
        assert_ne!(bound[0], bound[1]);
    }
    if per_cpu.len() == 2 {
        assert_eq!(bound[2], bound[0], "they begin again with the first");
    }
    // A process that may use the last processor only.
    let last = per_cpu.last().unwrap().clone();
    thread::scope(|scope| {
        let only = scope.spawn(|| {
            let mut watcher = T::watcher(Watcher::builder());
            watcher.set_affinity(last.parse().unwrap_or(0)).unwrap();
            of_loops::<T>(Loops::Count(2), true)
        });
        assert_eq!(only.join().unwrap(), [last.clone(), last.clone()]);
    });
}
