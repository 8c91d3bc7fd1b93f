//! Two servers that share one listener by the number of connections, on every driver: nbio's
//! listener mux.

use std::cell::RefCell;
use std::io::Read;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{Bench, Harness, PATIENCE, System, bench};
use windlass::driver::Driver;
use windlass::{Address, Completions, Source};
use windlass_serve::{
    Action, Cause, Config, Conn, Context, Engine, Event, Handler, Limits, Origin, Remote, Server,
    ServerLoop, modes::IoMode,
};

crate::every_driver! {
    the_first_takes_so_many_and_the_rest_go_on
    servers_that_overflow_to_each_other_refuse_what_neither_takes
    a_rest_that_is_over_gets_nothing
    an_engine_can_take_the_rest
}

/// Threads are the system's: a simulation has none.
mod threads {
    use super::threads_that_are_all_busy_pass_connections_on;
    crate::systems_drivers! { threads_that_are_all_busy_pass_connections_on }
}

/// Greets with its name, of one byte, and notes the numbers of the listeners.
struct Named {
    name: &'static str,
    rest: Option<Remote>,
    listeners: Rc<RefCell<Vec<Option<usize>>>>,
}

impl Handler for Named {
    type State = ();
    fn serving(&mut self, server: &mut Context<'_, ()>, _: &[Address]) -> Action {
        if let Some(rest) = self.rest.take() {
            server.engine().overflow_to(rest);
        }
        Action::None
    }
    fn opened(&mut self, c: &mut Conn<'_, ()>, origin: Origin) -> Action {
        self.listeners.borrow_mut().push(origin.listener);
        c.write(self.name);
        Action::None
    }
}

fn config(most: usize) -> Config {
    Config::new().limits(Limits::new().connections(most).idle(None)).farewell(b"-")
}

/// Two servers on one watcher: `bench` has the listener, and gives what is beyond `most` to `rest`.
struct Two<D: Driver> {
    bench: Bench<D, Named>,
    rest: ServerLoop<Named>,
    listeners: Rc<RefCell<Vec<Option<usize>>>>,
}

impl<D: Driver> Two<D> {
    fn new<T: Harness<Driver = D>>(most: usize, most_of_rest: usize) -> Two<D> {
        let listeners = Rc::default();
        let named = |name, rest: Option<Remote>, listeners: &Rc<_>| {
            let listeners = Rc::clone(listeners);
            move |_: usize| Named { name, rest: rest.clone(), listeners: Rc::clone(&listeners) }
        };
        // The other server is there first, on the watcher that both share in the end.
        let first = Server::new(named("a", None, &Rc::default())).config(config(most));
        let first = first.listen("tcp://127.0.0.1:0").unwrap();
        let mut bench = bench::<T, _, _>(first.listen("tcp://127.0.0.1:0").unwrap());
        let rest = Server::new(named("b", None, &listeners)).config(config(most_of_rest));
        let rest = rest.without_listener().start_on(&mut bench.watcher).unwrap();
        bench.running.engine().overflow_to(rest.remote());
        Two { bench, rest, listeners }
    }

    /// A client, and the name of the server that has greeted it.
    fn greeted(&mut self) -> (Source, String) {
        self.greeted_at(0)
    }

    /// A client of one of the two listeners.
    fn greeted_at(&mut self, listener: usize) -> (Source, String) {
        let address = self.bench.addresses[listener].clone();
        let client = self.bench.connect_to(address);
        let name = self.hears(client);
        (client, name)
    }

    fn hears(&mut self, client: Source) -> String {
        self.until("it is greeted", |two| !two.bench.client(client).heard.is_empty());
        String::from_utf8(self.bench.client(client).heard.clone()).unwrap()
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.bench.watcher.update_now();
        let mut turns = 0;
        while !ready(self) {
            // Two servers that pass a connection to and fro would take turns for ever.
            turns += 1;
            let waited = self.bench.watcher.now() - start;
            let is_late = turns > 100_000 || waited > 50 * PATIENCE;
            assert!(!is_late, "still waits until {what}");
            self.turn();
        }
    }

    fn turn(&mut self) {
        let mut done = Completions::new();
        let span = Duration::from_secs(1000);
        self.bench.watcher.wait_timeout(&mut done, span).expect("a wait");
        for c in done.drain(..) {
            let watcher = &mut self.bench.watcher;
            let Some(c) = self.bench.running.complete(watcher, c) else { continue };
            let Some(c) = self.rest.complete(watcher, c) else { continue };
            self.bench.clients.take(watcher, c);
        }
        self.bench.running.turn(&mut self.bench.watcher);
        self.rest.turn(&mut self.bench.watcher);
    }

    fn lens(&mut self) -> (usize, usize) {
        (self.bench.running.engine().len(), self.rest.engine().len())
    }
}

/// nbio's TestListenerMux: the limit is one for both listeners.
fn the_first_takes_so_many_and_the_rest_go_on<T: Harness>() {
    let mut two = Two::new::<T>(3, 1000);
    let mut firsts = Vec::new();
    for number in 0..10_usize {
        let (client, name) = two.greeted_at(number % 2);
        assert_eq!(name, if number < 3 { "a" } else { "b" }, "connection {number}");
        if number < 3 {
            firsts.push(client);
        }
        assert_eq!(two.lens(), (3.min(number + 1), (number + 1).saturating_sub(3)));
    }
    // A connection of the first that ends frees its place, one of the rest does not.
    for client in firsts {
        two.bench.finish(client);
        two.until("it is closed", |two| two.lens().0 < 3);
        assert_eq!(two.greeted().1, "a");
        assert_eq!(two.greeted().1, "b");
    }
    assert_eq!(two.lens(), (3, 10));
    let counters = two.bench.running.report().counters;
    assert_eq!((counters.accepted, counters.passed_on, counters.refused), (6, 10, 0));
    let counters = two.rest.report().counters;
    assert_eq!((counters.accepted, counters.passed_on, counters.refused), (10, 0, 0));
    // The rest knows which listener has accepted each.
    let listeners = (3..10).map(|number| Some(number % 2)).chain([Some(0); 3]);
    assert!(two.listeners.borrow().iter().copied().eq(listeners));
}

fn servers_that_overflow_to_each_other_refuse_what_neither_takes<T: Harness>() {
    let mut two = Two::new::<T>(1, 1);
    let remote = two.bench.running.remote();
    two.rest.engine().overflow_to(remote);
    let names: Vec<String> = (0..4).map(|_| two.greeted().1).collect();
    assert_eq!(names, ["a", "b", "-", "-"]);
    assert_eq!(two.bench.running.report().counters.passed_on, 3);
    let counters = two.rest.report().counters;
    assert_eq!((counters.accepted, counters.passed_on, counters.refused), (1, 0, 2));
}

fn a_rest_that_is_over_gets_nothing<T: Harness>() {
    let mut two = Two::new::<T>(1, 1000);
    assert_eq!(two.greeted().1, "a");
    two.rest.remote().shutdown();
    two.until("it is over", |two| two.rest.is_over());
    assert_eq!(two.greeted().1, "-");
    let counters = two.bench.running.report().counters;
    assert_eq!((counters.accepted, counters.passed_on, counters.refused), (1, 0, 1));
}

/// The engine has no loop of its own: both are the program's.
fn an_engine_can_take_the_rest<T: Harness>() {
    let mut watcher = T::watcher(windlass::Watcher::builder());
    let mut rest = Engine::<()>::new(config(1000));
    let make = |rest: &Remote| {
        let rest = rest.clone();
        move |_: usize| Named { name: "a", rest: Some(rest.clone()), listeners: Rc::default() }
    };
    let server = Server::new(make(&rest.remote(&mut watcher))).config(config(0));
    let mut first = server.listen("tcp://127.0.0.1:0").unwrap().start_on(&mut watcher).unwrap();
    let address = watcher.local_address(first.engine().listeners()[0]).unwrap();
    let options = windlass::net::ConnectOptions::default().token(1);
    let (client, _) = watcher.connect([address], options).unwrap();
    let (mut opened, mut ended) = (None, false);
    let start = watcher.update_now();
    while !ended {
        assert!(watcher.now() - start < Duration::from_secs(1000), "waits in vain: {opened:?}");
        let mut done = Completions::new();
        watcher.wait_timeout(&mut done, Duration::from_secs(1000)).unwrap();
        for c in done.drain(..) {
            if let Some(c) = first.complete(&mut watcher, c) {
                let _of_the_client = rest.complete(&mut watcher, c);
            }
        }
        first.turn(&mut watcher);
        while let Some(event) = rest.next_event(&mut watcher) {
            match event {
                Event::Opened { id, origin } => {
                    assert_eq!(origin.listener, Some(0));
                    opened = Some(id);
                    watcher.abort(client);
                }
                Event::Closed { id, cause, .. } => {
                    assert_eq!(opened, Some(id));
                    assert!(matches!(cause, Cause::Eof | Cause::Os(_)), "{cause:?}");
                    ended = true;
                }
                other => panic!("{other:?}"),
            }
        }
        rest.flush(&mut watcher);
    }
    assert_eq!(first.report().counters.passed_on, 1);
    assert_eq!(rest.counters().accepted, 1);
}

fn threads_that_are_all_busy_pass_connections_on<T: System>() {
    /// Greets with its name, tells of its address and its remote, and overflows.
    struct Threaded(u8, Option<Remote>, mpsc::Sender<(Remote, Vec<Address>)>);
    impl Handler for Threaded {
        type State = ();
        fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
            if let Some(rest) = self.1.take() {
                server.engine().overflow_to(rest);
            }
            // Only the first loop is heard.
            let _ = self.2.send((server.remote().clone(), addresses.to_vec()));
            Action::None
        }
        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            c.write_slice(&[self.0]);
            Action::None
        }
    }
    let start = |name: u8, rest: Option<Remote>| {
        let (tell, told) = mpsc::channel();
        let (done, report) = mpsc::channel();
        let is_first = rest.is_some();
        thread::spawn(move || {
            let tell = Mutex::new(tell);
            let make = |_| Threaded(name, rest.clone(), tell.lock().unwrap().clone());
            let server = Server::new(make).watcher(T::builder()).config(config(1000));
            let server = match is_first {
                true => server.io_mode(IoMode::Blocking { threads: 1 }).listen("tcp://127.0.0.1:0"),
                false => Ok(server.without_listener()),
            };
            done.send(server.unwrap().run().unwrap()).unwrap();
        });
        (told.recv_timeout(PATIENCE).expect("it serves"), report)
    };
    let ((rest, none), report_of_rest) = start(b'b', None);
    assert!(none.is_empty());
    let ((first, addresses), report_of_first) = start(b'a', Some(rest.clone()));
    let mut clients = Vec::new();
    for expected in [b'a', b'b', b'b'] {
        let mut client = TcpStream::connect(addresses[0].ip().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut name = [0];
        client.read_exact(&mut name).unwrap();
        assert_eq!(name, [expected]);
        clients.push(client);
    }
    first.shutdown();
    rest.shutdown();
    drop(clients);
    let first = report_of_first.recv_timeout(PATIENCE).expect("it ends");
    let rest = report_of_rest.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!((first.counters.accepted, first.counters.passed_on), (1, 2));
    assert_eq!((rest.counters.accepted, rest.counters.refused), (2, 0));
}
