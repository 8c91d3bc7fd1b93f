//! Dials of handlers and of other threads, in every mode and in the simulation.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::common::scene::{News, Scene, Setting};
use crate::common::{Harness, PATIENCE};
use windlass::net::{ConnectOptions, ListenOptions};
use windlass::{Address, Buf};
use windlass_serve::{Action, Cause, Closed, Conn, Context, Handler, Limits, Origin, Server};

crate::every_mode! {
    handlers_and_other_threads_dial
    a_dial_of_another_thread_is_cancelled
    what_a_server_does_not_take_comes_back
    dials_during_a_shutdown_end_once
}

const ECONNREFUSED: i32 = if cfg!(target_os = "linux") { 111 } else { 61 };

fn options() -> ConnectOptions {
    ConnectOptions::default()
}

/// What the handlers of a server tell the test.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Opened(String),
    Heard(String, Vec<u8>),
    Closed(String, Cause),
}

/// Echoes to connections without a name. On "dial NAME" it begins a connection with this name to
/// its first address.
struct Named(News<Told>);

impl Handler for Named {
    type State = String;

    fn serving(&mut self, server: &mut Context<'_, String>, addresses: &[Address]) -> Action {
        self.0.serving(server, addresses)
    }

    fn opened(&mut self, c: &mut Conn<'_, String>, _: Origin) -> Action {
        let name = c.state().clone();
        if !name.is_empty() {
            c.write(format!("I am {name}"));
            self.0.tell(Told::Opened(name));
        }
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, String>, data: Buf) -> Action {
        let name = c.state().clone();
        if !name.is_empty() {
            self.0.tell(Told::Heard(name, data.to_vec()));
            return Action::Close;
        }
        let said = String::from_utf8_lossy(&data).into_owned();
        let Some(dial) = said.strip_prefix("dial ") else {
            c.write(data);
            return Action::None;
        };
        let (to, name) = dial.split_once(' ').expect("an address and a name");
        let to: std::net::SocketAddr = to.parse().expect("an address");
        let options = options().timeout(Duration::from_secs(100));
        c.engine().connect([to], options, name.to_owned()).expect("it takes it");
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, String>, closed: Closed<String>) -> Action {
        if !closed.state.is_empty() {
            self.0.tell(Told::Closed(closed.state, closed.cause));
        }
        Action::None
    }
}

type Served<T> = Scene<<T as Harness>::Driver, Named, Told>;

fn served<T: Setting>(limits: Limits) -> Served<T> {
    Scene::start::<T>(Named, move |server: Server<_>| {
        let server = server.limits(limits).listen("tcp://127.0.0.1:0").unwrap();
        server.listen("udp://127.0.0.1:0?sessions=true").unwrap()
    })
}

fn closed(told: &Told) -> bool {
    matches!(told, Told::Closed(..))
}

/// The port of a listener that is gone.
fn nowhere<T: Setting>(scene: &mut Served<T>) -> Address {
    let gone = scene.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let at = scene.watcher.local_address(gone).unwrap();
    scene.watcher.abort(gone);
    at
}

fn handlers_and_other_threads_dial<T: Setting>() {
    let mut scene = served::<T>(Limits::new());
    let (tcp, udp) = (scene.addresses[0].clone(), scene.addresses[1].clone());
    let nowhere = nowhere::<T>(&mut scene);
    let client = scene.connect();
    scene.say(client, format!("dial {} handler", tcp.ip().unwrap()));
    let (remote, to) = (scene.remote.clone(), tcp.clone());
    let thread = std::thread::spawn(move || {
        let options = options().timeout(Duration::from_secs(100));
        vec![
            remote.connect([to], options, "tcp".to_owned()).expect("it serves"),
            remote.connect_datagram(udp, "udp".to_owned()).expect("it serves"),
            remote.connect([nowhere], options, "refused".to_owned()).expect("it serves"),
            remote.connect(Vec::<Address>::new(), options, "none".to_owned()).expect("it serves"),
        ]
    });
    let dials = thread.join().expect("no panic");
    let mut names = vec!["handler", "none", "refused", "tcp", "udp"];
    if !T::VIRTUAL {
        let stream = TcpStream::connect(tcp.ip().unwrap()).unwrap();
        scene.remote.attach(stream, "std".to_owned()).expect("it serves");
        names.insert(3, "std");
    }
    scene.until("all have ended", |scene| scene.news.count(closed) == names.len());
    assert!(dials.iter().all(|dial| dial.id().is_some()));
    let told = scene.news.notes().clone();
    for name in names {
        let mine = |told: &&Told| {
            let (Told::Opened(of) | Told::Heard(of, _) | Told::Closed(of, _)) = told;
            of == name
        };
        let mine: Vec<Told> = told.iter().filter(mine).cloned().collect();
        let end = |cause| Told::Closed(name.to_owned(), cause);
        match name {
            "none" => assert_eq!(mine, [end(Cause::Rejected)]),
            "refused" => assert_eq!(mine, [end(Cause::Os(ECONNREFUSED))]),
            _ => {
                let heard = Told::Heard(name.to_owned(), format!("I am {name}").into_bytes());
                assert_eq!(mine, [Told::Opened(name.to_owned()), heard, end(Cause::Closed)]);
            }
        }
    }
    scene.end();
}

fn a_dial_of_another_thread_is_cancelled<T: Setting>() {
    let mut scene = served::<T>(Limits::new().connect(None));
    // Its listener accepts nothing: the next connect hangs.
    let full = ListenOptions::default().backlog(0);
    let full = scene.watcher.listen_with(([127, 0, 0, 1], 0), full).unwrap();
    let silent = scene.watcher.local_address(full).unwrap();
    for _ in 0..4 {
        scene.connect_to(silent.clone());
    }
    scene.run_for(T::span(5.0));
    let dial = |scene: &Served<T>, to: &Address, name: &str| {
        scene.remote.connect([to.clone()], options(), name.to_owned()).expect("it serves")
    };
    let (first, waits) = (dial(&scene, &silent, "at once"), dial(&scene, &silent, "later"));
    first.cancel();
    scene.until("it has ended", |scene| scene.news.count(closed) == 1);
    assert_eq!(*scene.news.notes(), [Told::Closed("at once".to_owned(), Cause::Aborted)]);
    scene.until("the other one has begun", |_| waits.id().is_some());
    waits.cancel();
    scene.until("it has ended", |scene| scene.news.count(closed) == 2);
    assert_eq!(scene.news.notes()[1], Told::Closed("later".to_owned(), Cause::Aborted));
    // After its end, nothing happens.
    let tcp = scene.addresses[0].clone();
    let done = dial(&scene, &tcp, "done");
    scene.until("it has ended", |scene| scene.news.count(closed) == 3);
    done.cancel();
    scene.run_for(T::span(1.0));
    assert_eq!(scene.news.count(closed), 3);
    scene.end();
}

fn what_a_server_does_not_take_comes_back<T: Setting>() {
    let mut scene = served::<T>(Limits::new().memory(4096));
    let (tcp, udp) = (scene.addresses[0].clone(), scene.addresses[1].clone());
    let remote = scene.remote.clone();
    // Not the type of the states.
    assert_eq!(remote.connect([tcp.clone()], options(), 7_u32).unwrap_err(), 7);
    assert_eq!(remote.connect_datagram(udp.clone(), "a str").unwrap_err(), "a str");
    // More addresses than fit into its memory.
    let many = vec![tcp.clone(); 1000];
    assert_eq!(remote.connect(many, options(), "many".to_owned()).unwrap_err(), "many");
    remote.connect([tcp.clone()], options(), "fits".to_owned()).unwrap();
    scene.until("it has ended", |scene| scene.news.count(closed) == 1);
    scene.end();
    assert_eq!(remote.connect([tcp], options(), "late".to_owned()).unwrap_err(), "late");
    assert_eq!(remote.connect_datagram(udp, "late".to_owned()).unwrap_err(), "late");
    if !T::VIRTUAL {
        let (here, _there) = UnixStream::pair().unwrap();
        let (handle, state) = remote.attach(here, "late".to_owned()).unwrap_err();
        assert_eq!(state, "late");
        UnixStream::from(handle.into_fd().unwrap()).shutdown(std::net::Shutdown::Both).unwrap();
    }
    assert_eq!(
        *scene.news.notes(),
        [
            Told::Opened("fits".to_owned()),
            Told::Heard("fits".to_owned(), b"I am fits".to_vec()),
            Told::Closed("fits".to_owned(), Cause::Closed),
        ]
    );
}

/// Threads dial until the server takes no more: each accepted dial has one end.
fn dials_during_a_shutdown_end_once<T: Setting>() {
    let mut scene = served::<T>(Limits::new().linger(T::span(1.0)));
    let tcp = scene.addresses[0].clone();
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let (remote, tcp) = (scene.remote.clone(), tcp.clone());
            let most = if T::VIRTUAL { 20 } else { 300 };
            std::thread::spawn(move || {
                let start = Instant::now();
                let name = |count| format!("{thread} {count}");
                let accepts = |count: &usize| {
                    assert!(start.elapsed() < PATIENCE, "the shutdown does not begin");
                    remote.connect([tcp.clone()], options(), name(*count)).is_ok()
                };
                (0..most).take_while(accepts).count()
            })
        })
        .collect();
    // In the simulation the requests wait for the shutdown, too.
    if !T::VIRTUAL {
        scene.until("some have opened", |scene| scene.news.notes().len() > 20);
        scene.remote.shutdown();
    }
    let dialed: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    scene.end();
    let told = scene.news.notes().clone();
    let mut ended: Vec<String> = Vec::new();
    for told in told {
        match told {
            Told::Closed(name, _) => ended.push(name),
            Told::Opened(name) | Told::Heard(name, _) => assert!(!ended.contains(&name)),
        }
    }
    assert_eq!(ended.len(), dialed);
    ended.sort();
    ended.dedup();
    assert_eq!(ended.len(), dialed, "each once");
}
