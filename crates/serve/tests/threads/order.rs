//! The order of callbacks and the drain of a shutdown, in every mode on every driver.
//!
//! Of the promises on the page of the crate: P1, P3 and P10.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::PATIENCE;
use crate::common::scene::{News, Scene, Setting, pattern};
use windlass::{Address, Buf};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Id, Limits, Origin, Remote,
    modes::IoMode,
};

crate::every_mode! {
    a_shutdown_drains_and_gives_up_at_its_limit
}

mod system {
    use super::callbacks_of_a_connection_are_ordered_and_never_at_once;

    crate::systems_modes! {
        callbacks_of_a_connection_are_ordered_and_never_at_once
    }
}

/// More than the buffers of two sockets hold.
const LENGTH: usize = 4 << 20;

/// Writes much when it is asked to.
struct Pours(News<Note>);

#[derive(Debug)]
enum Note {
    Opened(Id),
    /// How much output waits.
    Waits(usize),
    Closed(Id, Cause, usize),
}

impl Handler for Pours {
    type State = ();

    fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        self.0.serving(server, addresses)
    }

    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.0.tell(Note::Opened(c.id()));
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        c.write(pattern(LENGTH, 5));
        Action::None
    }

    fn postwrite(&mut self, _: &mut Conn<'_, ()>, _: usize, remaining: usize) -> Action {
        self.0.tell(Note::Waits(remaining));
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.0.tell(Note::Closed(closed.id, closed.cause, closed.unsent));
        Action::None
    }
}

/// The server stops accepting, sends what waits, and closes what is left when its time is over.
fn a_shutdown_drains_and_gives_up_at_its_limit<T: Setting>() {
    let close = T::span(300.0);
    let config = Config::new().send_buffer(100_000).limits(Limits::new().close(close));
    let mut scene = Scene::start::<T>(Pours, |server| {
        server.config(config).listen("tcp://127.0.0.1:0").unwrap()
    });
    let mut ids = Vec::new();
    let [idle, slow, deaf] = [0, 1, 2].map(|number| {
        let client = if number == 0 { scene.connect() } else { scene.connect_deaf() };
        let opened = |note: &Note| matches!(note, Note::Opened(_));
        scene.until("it is open", |s| s.news.count(opened) == number + 1);
        let notes = scene.news.notes();
        ids.extend(notes.iter().rev().find_map(|note| match note {
            Note::Opened(id) => Some(*id),
            _ => None,
        }));
        drop(notes);
        if number > 0 {
            scene.say(client, "x");
            let waits = |note: &Note| matches!(note, Note::Waits(1..));
            scene.until("output waits", |s| s.news.count(waits) == number);
        }
        client
    });
    let begin = scene.watcher.update_now();
    scene.remote.shutdown();
    scene.until("the idle connection closes", |s| s.client(idle).eof);
    scene.hear(slow);
    scene.until("all output comes, and its end", |s| s.client(slow).eof);
    assert!(scene.client(slow).heard == pattern(LENGTH, 5), "other bytes");
    let late = scene.connect();
    scene.until("a late client is not served", |s| s.client(late).is_over());
    assert!(!scene.is_over(), "the deaf client has its time");
    let report = scene.end();
    let took = scene.watcher.update_now() - begin;
    let most = if T::VIRTUAL { close + close / 4 } else { close + PATIENCE };
    assert!(took >= close && took <= most, "{took:?} for {close:?}");
    let [left] = &report.unfinished[..] else { panic!("{:?}", report.unfinished) };
    assert_eq!(left.id, ids[2]);
    assert!(left.unsent > 0 && left.unsent < LENGTH, "{left:?}");
    assert_eq!((report.counters.accepted, report.counters.ends.shutdown), (3, 3));
    for (id, number) in ids.iter().zip(0..) {
        let ends: Vec<_> = scene
            .news
            .notes()
            .iter()
            .filter_map(|note| match note {
                Note::Closed(which, cause, unsent) if which == id => Some((*cause, *unsent)),
                _ => None,
            })
            .collect();
        let unsent = if number == 2 { left.unsent } else { 0 };
        assert_eq!(ends, [(Cause::Shutdown, unsent)], "it closes once");
    }
    scene.watcher.abort(deaf);
}

/// The connections that are open, and whether a callback of each runs.
#[derive(Clone, Default)]
struct Callbacks(Arc<Mutex<HashMap<Id, bool>>>);

/// A callback that runs.
struct Call(Callbacks, Id);

impl Callbacks {
    fn ids(&self) -> Vec<Id> {
        self.0.lock().unwrap().keys().copied().collect()
    }

    /// A callback begins. `is_first` says whether it is the connection's first one.
    #[track_caller]
    fn begin(&self, id: Id, is_first: bool) -> Call {
        let before = self.0.lock().unwrap().insert(id, true);
        assert_eq!(before, if is_first { None } else { Some(false) }, "{id}");
        // Another callback of the connection would come now.
        thread::yield_now();
        Call(self.clone(), id)
    }

    /// The last callback.
    #[track_caller]
    fn end(&self, id: Id) {
        drop(self.begin(id, false));
        self.0.lock().unwrap().remove(&id);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().insert(self.1, false);
    }
}

/// Echoes, and looks at the order of its callbacks.
struct Ordered {
    news: News<()>,
    callbacks: Callbacks,
    data: Arc<AtomicU64>,
}

impl Handler for Ordered {
    type State = ();

    fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        self.news.serving(server, addresses)
    }

    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        let _call = self.callbacks.begin(c.id(), true);
        c.let_move();
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        let _call = self.callbacks.begin(c.id(), false);
        let count = self.data.fetch_add(1, Ordering::Relaxed);
        c.write(data);
        match count % 16 {
            0 => _ = c.move_to_loop(),
            1 => return Action::Close,
            2 => c.pause(),
            _ => {}
        }
        Action::None
    }

    fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
        let _call = self.callbacks.begin(c.id(), false);
        c.resume();
        Action::None
    }

    fn drained(&mut self, c: &mut Conn<'_, ()>) -> Action {
        let _call = self.callbacks.begin(c.id(), false);
        Action::None
    }

    fn prewrite(&mut self, c: &mut Conn<'_, ()>, _: usize) -> Action {
        let _call = self.callbacks.begin(c.id(), false);
        Action::None
    }

    fn postwrite(&mut self, c: &mut Conn<'_, ()>, _: usize, _: usize) -> Action {
        let _call = self.callbacks.begin(c.id(), false);
        Action::None
    }

    fn moved(&mut self, c: &mut Conn<'_, ()>, from: Id) -> Action {
        self.callbacks.end(from);
        let _call = self.callbacks.begin(c.id(), true);
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.callbacks.end(closed.id);
        self.news.tell(());
        Action::None
    }
}

/// Connects, says something, and leaves in one of three ways.
fn visit(address: SocketAddr, random: &mut fastrand::Rng) {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let pieces = random.usize(1..10);
    for _ in 0..pieces {
        // The server may have closed already.
        if writer.write_all(&vec![7; random.usize(1..5000)]).is_err() {
            return;
        }
        // So that the pieces come apart. Of a long echo this is only the beginning.
        if random.bool() && !matches!(stream.read(&mut [0; 5000]), Ok(1..)) {
            return;
        }
    }
    match random.u8(..3) {
        0 => {} // gone, with bytes that it has not read
        1 => _ = stream.read(&mut [0; 100]),
        _ => {
            let _ = writer.shutdown(Shutdown::Write);
            // A paused connection is woken, or closed, by another thread.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
}

/// Wakes, writes to and closes connections, and changes the number of threads.
fn disturb(remote: &Remote, callbacks: &Callbacks, is_over: &AtomicBool, least: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while !is_over.load(Ordering::Relaxed) {
        for id in callbacks.ids() {
            match random.u16(..1000) {
                0 => _ = remote.close(id),
                1..100 => _ = remote.write(id, "from afar"),
                _ => _ = remote.wake(id),
            }
        }
        if random.u8(..32) == 0 {
            remote.set_threads(random.usize(least..least + 3));
        }
        thread::yield_now();
    }
}

fn callbacks_of_a_connection_are_ordered_and_never_at_once<T: Setting>() {
    const CLIENTS: u64 = 4;
    const VISITS: u64 = 25;
    let callbacks = Callbacks::default();
    let data = Arc::new(AtomicU64::new(0));
    let (seen, counted) = (callbacks.clone(), Arc::clone(&data));
    let make = move |news| Ordered { news, callbacks: seen.clone(), data: Arc::clone(&counted) };
    let limits = Limits::new().linger(Duration::from_millis(10));
    let mut scene = Scene::start::<T>(make, |server| {
        server.limits(limits).listen("tcp://127.0.0.1:0").unwrap()
    });
    let address = scene.addresses[0].ip().unwrap();
    let is_over = AtomicBool::new(false);
    // With fewer threads than clients, the blocking mode refuses most connections.
    let is_blocking = matches!(T::MODE, Some(IoMode::Blocking { .. }));
    let least = if is_blocking { CLIENTS as usize + 1 } else { 0 };
    thread::scope(|scope| {
        for seed in 0..3 {
            let (remote, callbacks, is_over) = (&scene.remote, &callbacks, &is_over);
            scope.spawn(move || disturb(remote, callbacks, is_over, least, seed));
        }
        let visitors: Vec<_> = (0..CLIENTS)
            .map(|seed| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    (0..VISITS).for_each(|_| visit(address, &mut random));
                })
            })
            .collect();
        for visitor in visitors {
            visitor.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let report = scene.end();
    assert_eq!(report.panics, 0, "a callback has found another order");
    assert!(callbacks.ids().is_empty(), "all have closed");
    let counters = &report.counters;
    // In the blocking mode a lower number of threads refuses connections. The last connection of a
    // client can wait for its accept when the server ends.
    let known = counters.accepted + counters.refused;
    assert!((CLIENTS * (VISITS - 1)..=CLIENTS * VISITS).contains(&known), "{counters:?}");
    assert_eq!(scene.news.notes().len() as u64, counters.accepted, "each closes once");
    let data = data.load(Ordering::Relaxed);
    assert!(data > 0, "no data came");
    assert!(counters.moved > 0 || !matches!(T::MODE, Some(IoMode::Mixed { .. })), "{counters:?}");
}
