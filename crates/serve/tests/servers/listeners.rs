//! Listeners that a running server gets and loses; on every driver.

use std::io;

use crate::common::{Bench, Harness, bench};
use windlass::driver::Driver;
use windlass::{Address, Buf, Handle};
use windlass_serve::{Action, Conn, Context, Handler, Origin, Server};

crate::every_driver! {
    a_listener_comes_and_goes_while_the_server_runs
    what_is_no_listener_is_told
    a_listener_that_closes_in_a_storm_leaves_no_peer_waiting
    a_server_that_shuts_down_takes_no_listener
    a_listener_is_closed_once
    a_server_that_has_stopped_listening_says_so
}

#[cfg(unix)]
mod of_paths {
    use super::a_path_goes_with_its_listener;
    crate::systems_drivers! {
        a_path_goes_with_its_listener
    }
}

#[derive(Default)]
struct Book {
    added: Vec<Result<usize, io::ErrorKind>>,
    origins: Vec<Option<usize>>,
}

impl Handler for Book {
    type State = ();
    fn opened(&mut self, _: &mut Conn<'_, ()>, origin: Origin) -> Action {
        self.origins.push(origin.listener);
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }
    fn listener_added(&mut self, _: &mut Context<'_, ()>, added: io::Result<usize>) -> Action {
        self.added.push(added.map_err(|error| error.kind()));
        Action::None
    }
}

fn served<T: Harness>() -> Bench<T::Driver, Book> {
    let server = Server::new(|_| Book::default());
    bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap())
}

/// A listener of the program, and its address.
fn listener<D: Driver>(bench: &mut Bench<D, Book>) -> (Handle, Address) {
    let source = bench.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let address = bench.watcher.local_address(source).unwrap();
    (bench.watcher.detach(source).unwrap(), address)
}

fn a_listener_comes_and_goes_while_the_server_runs<T: Harness>() {
    let mut bench = served::<T>();
    let (handle, address) = listener(&mut bench);
    let remote = bench.running.remote();
    assert!(remote.add_listener(handle).is_ok());
    bench.until("it is added", |bench| bench.running.handler().added == [Ok(1)]);
    let client = bench.connect_to(address.clone());
    bench.say(client, "hello");
    bench.until("it is served", |bench| bench.client(client).heard == b"hello");
    assert_eq!(bench.running.handler().origins, [Some(1)]);
    remote.close_listener(1);
    bench.until("it is closed", |bench| bench.running.engine().listeners()[1].is_none());
    // Its connection goes on, and so does the other listener.
    bench.say(client, " again");
    bench.until("it is served", |bench| bench.client(client).heard == b"hello again");
    let late = bench.connect_to(address);
    bench.until("it is refused", |bench| bench.client(late).error.is_some());
    let other = bench.connect();
    bench.say(other, "hello");
    bench.until("it is served", |bench| bench.client(other).heard == b"hello");
    assert_eq!(bench.running.handler().origins, [Some(1), Some(0)]);
}

fn what_is_no_listener_is_told<T: Harness>() {
    let mut bench = served::<T>();
    let client = bench.connect();
    bench.until("it is open", |bench| bench.running.handler().origins.len() == 1);
    // A connected socket.
    let (handle, address) = listener(&mut bench);
    let remote = bench.running.remote();
    assert!(remote.add_listener(handle).is_ok());
    bench.until("it is added", |bench| bench.running.handler().added.len() == 1);
    let second = bench.connect_to(address);
    bench.until("it is open", |bench| {
        bench.running.handler().origins.len() == 2 && bench.client(second).is_open
    });
    bench.watcher.cancel_all(second);
    bench.run_for(T::span(1.0));
    let handle = bench.watcher.detach(second).unwrap();
    assert!(remote.add_listener(handle).is_ok());
    bench.until("it is told", |bench| bench.running.handler().added.len() == 2);
    assert!(bench.running.handler().added[1].is_err(), "{:?}", bench.running.handler().added);
    bench.say(client, "hello");
    bench.until("the server lives", |bench| bench.client(client).heard == b"hello");
}

fn a_listener_that_closes_in_a_storm_leaves_no_peer_waiting<T: Harness>() {
    let mut bench = served::<T>();
    let (handle, address) = listener(&mut bench);
    let remote = bench.running.remote();
    assert!(remote.add_listener(handle).is_ok());
    bench.until("it is added", |bench| bench.running.handler().added.len() == 1);
    let clients: Vec<_> = (0..60).map(|_| bench.connect_to(address.clone())).collect();
    bench.until("some are open", |bench| !bench.running.handler().origins.is_empty());
    remote.close_listener(1);
    for &client in &clients {
        bench.say(client, "hello");
    }
    // Each one is served, or refused, or reset while it waited for an accept.
    bench.until("each has an answer", |bench| {
        clients.iter().all(|&one| {
            let client = bench.client(one);
            client.heard == b"hello" || client.is_over() || client.is_broken
        })
    });
    let served = clients.iter().filter(|&&one| bench.client(one).heard == b"hello").count();
    assert_eq!(bench.running.report().counters.accepted as usize, served);
}

fn a_server_that_shuts_down_takes_no_listener<T: Harness>() {
    let mut bench = served::<T>();
    let (handle, _) = listener(&mut bench);
    let remote = bench.running.remote();
    remote.shutdown();
    assert!(remote.add_listener(handle).is_err());
    bench.until("it is over", |bench| bench.running.is_over());
    assert!(bench.running.handler().added.is_empty());
}

/// The listener was dropped without a word.
fn a_server_that_has_stopped_listening_says_so<T: Harness>() {
    let mut bench = served::<T>();
    let (handle, _) = listener(&mut bench);
    bench.running.engine().stop_listening(&mut bench.watcher);
    assert!(bench.running.remote().add_listener(handle).is_ok());
    let refused = [Err(io::ErrorKind::Other)];
    bench.until("it is told", |bench| bench.running.handler().added == refused);
}

fn a_listener_is_closed_once<T: Harness>() {
    let mut bench = served::<T>();
    let engine = bench.running.engine();
    assert!(engine.close_listener(0) && !engine.close_listener(1) && !engine.close_listener(9));
    bench.running.turn(&mut bench.watcher);
    assert!(!bench.running.engine().close_listener(0));
    // A number that is closed twice in one turn, and one that does not exist.
    let remote = bench.running.remote();
    remote.close_listener(0);
    remote.close_listener(70_000);
    bench.run_for(T::span(1.0));
    let late = bench.connect();
    bench.until("it is refused", |bench| bench.client(late).error.is_some());
}

/// It stayed until the server ended. So a name was there under which nobody listened.
#[cfg(unix)]
fn a_path_goes_with_its_listener<T: Harness>() {
    let name = format!("windlass-listeners-{}-{}", T::NAME, std::process::id());
    let path = std::env::temp_dir().join(name);
    let server = Server::new(|_| Book::default()).listen("tcp://127.0.0.1:0").unwrap();
    let server = server.listen(&format!("unix://{}", path.display())).unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect_to(bench.addresses[1].clone());
    bench.say(client, "hello");
    bench.until("it is served", |bench| bench.client(client).heard == b"hello");
    assert!(path.exists());
    bench.running.remote().close_listener(1);
    bench.until("it is closed", |bench| bench.running.engine().listeners()[1].is_none());
    assert!(!path.exists(), "the path goes, and not at the end of the server");
    bench.say(client, " again");
    bench.until("its connection goes on", |bench| bench.client(client).heard == b"hello again");
    // What has the name next is not the server's.
    let next = std::os::unix::net::UnixListener::bind(&path).unwrap();
    bench.running.remote().shutdown();
    bench.until("it is over", |bench| bench.running.is_over());
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
    drop(next);
    std::fs::remove_file(&path).unwrap();
}
