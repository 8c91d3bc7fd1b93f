//! Random servers in each mode: whatever callbacks, jobs, streams and other threads do, each
//! connection ends once, each job that must run has run, and the budget comes back whole.
//!
//! Of the promises on the page of the crate: P2 and P7.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::System;
use windlass::driver::Deadline;
use windlass::net::ConnectOptions;
use windlass::{Address, Buf};
use windlass_serve::{
    Action, Closed, Config, Conn, Context, Detached, Handler, Id, Limits, Origin, Remote, Server,
    Stream, memory::Budget, modes::IoMode,
};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all handlers of a server have in common.
#[derive(Default)]
struct Seen {
    open: Mutex<HashSet<Id>>,
    /// Connections that have begun, by any way, and that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Jobs that must run, and that have run.
    musts: AtomicU64,
    ran: AtomicU64,
    budget: Mutex<Option<Budget>>,
}

struct Wild {
    seen: Arc<Seen>,
    random: fastrand::Rng,
    serving: Sender<(Remote, SocketAddr)>,
    streams: Sender<Stream>,
    address: Option<SocketAddr>,
    dials: usize,
}

/// Panics without a message on the terminal.
fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("as the test wants"))
}

impl Wild {
    fn may_panic(&mut self, one_of: u32) {
        if self.random.u32(..one_of) == 0 {
            panic_quietly();
        }
    }

    fn end(&mut self, id: Id) {
        assert!(self.seen.open.lock().unwrap().remove(&id), "{id} ends once");
        self.seen.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn begin(&mut self, id: Id) {
        assert!(self.seen.open.lock().unwrap().insert(id), "{id} begins once");
    }
}

impl Handler for Wild {
    /// Whether the connection has begun.
    type State = Option<Id>;

    fn serving(&mut self, server: &mut Context<'_, Option<Id>>, addresses: &[Address]) -> Action {
        self.address = addresses[0].ip();
        *self.seen.budget.lock().unwrap() = Some(server.engine().budget().clone());
        let _ = self.serving.send((server.remote().clone(), addresses[0].ip().unwrap()));
        Action::None
    }

    fn opened(&mut self, c: &mut Conn<'_, Option<Id>>, origin: Origin) -> Action {
        if origin.listener.is_some() {
            self.seen.begun.fetch_add(1, Ordering::Relaxed);
            let id = c.id();
            self.begin(id);
            *c.state() = Some(id);
        }
        c.let_move();
        self.may_panic(50);
        c.write(vec![1; self.random.usize(1..100_000)]);
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Option<Id>>, data: Buf) -> Action {
        c.write(data);
        match self.random.u32(..40) {
            0 => panic_quietly(),
            1 => return Action::Close,
            2 => return Action::Detach,
            3 => c.abort(),
            4 => c.pause(),
            5 => c.set_read_deadline(Deadline::After(Duration::from_millis(5))),
            6 => c.set_write_deadline(Deadline::After(Duration::from_millis(5))),
            7 | 8 => _ = c.move_to_loop(),
            9..12 => {
                let panics = self.random.u32(..4) == 0;
                let job = move || if panics { panic_quietly() } else { vec![2; 1000] };
                let then_panics = self.random.u32(..10) == 0;
                let _ = c.execute(job, move |c, bytes| {
                    if then_panics {
                        panic_quietly();
                    }
                    c.write(bytes);
                    Action::None
                });
            }
            12 | 13 => {
                self.seen.musts.fetch_add(1, Ordering::Relaxed);
                let seen = Arc::clone(&self.seen);
                c.must_execute(move || _ = seen.ran.fetch_add(1, Ordering::Relaxed));
            }
            14..17 => {
                if let Some(stream) = c.into_std() {
                    let _ = self.streams.send(stream);
                }
            }
            17 if self.dials < 20 => {
                self.dials += 1;
                let to = self.address.unwrap();
                if let Ok(id) = c.engine().connect([to], ConnectOptions::default(), None) {
                    self.seen.begun.fetch_add(1, Ordering::Relaxed);
                    self.begin(id);
                    *c.engine().state_mut(id).unwrap() = Some(id);
                    let _ = c.engine().write(id, vec![3; 5000]);
                }
            }
            18 => c.shutdown(),
            _ => {}
        }
        Action::None
    }

    fn wake(&mut self, c: &mut Conn<'_, Option<Id>>) -> Action {
        c.resume();
        self.may_panic(200);
        Action::None
    }

    fn moved(&mut self, c: &mut Conn<'_, Option<Id>>, from: Id) -> Action {
        assert!(self.seen.open.lock().unwrap().remove(&from), "{from} was open");
        let id = c.id();
        self.begin(id);
        *c.state() = Some(id);
        self.may_panic(10);
        Action::None
    }

    fn prewrite(&mut self, _: &mut Conn<'_, Option<Id>>, _: usize) -> Action {
        self.may_panic(500);
        Action::None
    }

    fn postwrite(&mut self, _: &mut Conn<'_, Option<Id>>, _: usize, _: usize) -> Action {
        self.may_panic(500);
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Option<Id>>, closed: Closed<Option<Id>>) -> Action {
        assert_eq!(closed.state, Some(closed.id));
        self.end(closed.id);
        self.may_panic(20);
        Action::None
    }

    fn detached(
        &mut self,
        _: &mut Context<'_, Option<Id>>,
        detached: Detached<Option<Id>>,
    ) -> Action {
        assert_eq!(detached.state, Some(detached.id));
        self.end(detached.id);
        self.may_panic(20);
        Action::None
    }
}

/// Reads and writes each stream for a while, and drops it.
fn use_streams(streams: &Receiver<Stream>) {
    let mut random = fastrand::Rng::with_seed(3);
    let mut all: Vec<Stream> = Vec::new();
    loop {
        match streams.recv_timeout(Duration::from_millis(1)) {
            Ok(stream) => all.push(stream),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            Err(_) => {}
        }
        all.retain(|mut stream| {
            let _ = stream.read(&mut [0; 5000]);
            let _ = stream.write(&[4; 3000]);
            match random.u8(..10) {
                0 => stream.close(),
                1 => _ = stream.shutdown(Shutdown::Both),
                2 => _ = stream.set_deadline(Deadline::After(Duration::from_millis(20))),
                _ => {}
            }
            stream.cause().is_none() && random.u8(..50) > 0
        });
    }
}

fn visit(address: SocketAddr, random: &mut fastrand::Rng) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    for _ in 0..random.usize(1..20) {
        if stream.write_all(&vec![7; random.usize(1..20_000)]).is_err() {
            return;
        }
        if random.bool() && !matches!(stream.read(&mut [0; 50_000]), Ok(1..)) {
            return;
        }
    }
}

fn everything_comes_back<T: System>() {
    let modes =
        [IoMode::NonBlocking, IoMode::Blocking { threads: 6 }, IoMode::Mixed { threads: 3 }];
    let counters = modes.into_iter().zip(0..).map(|(mode, seed)| one::<T>(mode, seed));
    let sums =
        counters.fold([0; 3], |sums, counts| std::array::from_fn(|at| sums[at] + counts[at]));
    assert!(sums.iter().all(|sum| *sum > 0), "panics, jobs, and jobs that must run: {sums:?}");
}

/// One server. How many panics there were, jobs that were done, and jobs that had to run.
fn one<T: System>(mode: IoMode, seed: u64) -> [u64; 3] {
    let seen = Arc::new(Seen::default());
    let (serving, served) = channel();
    let (streams, given) = channel();
    let (over, is_over) = channel();
    let for_handlers = Arc::clone(&seen);
    let server = thread::spawn(move || {
        let make = move |index: usize| Wild {
            seen: Arc::clone(&for_handlers),
            random: fastrand::Rng::with_seed(seed << 16 | index as u64),
            serving: serving.clone(),
            streams: streams.clone(),
            address: None,
            dials: 0,
        };
        let limits = Limits::new().linger(Duration::from_millis(5)).close(Duration::from_secs(2));
        let limits = limits.memory(2 << 20).write_stall(Duration::from_millis(200));
        let server = Server::new(make).watcher(T::builder()).config(Config::new().limits(limits));
        let server = server.io_mode(mode).loops(2).listen("tcp://127.0.0.1:0").unwrap();
        over.send(server.run()).unwrap();
    });
    let (remote, address) = served.recv_timeout(PATIENCE).expect("it serves");
    let streamer = thread::spawn(move || use_streams(&given));
    let stops = AtomicBool::new(false);
    thread::scope(|scope| {
        let (remote, seen, stops) = (&remote, &seen, &stops);
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed);
            while !stops.load(Ordering::Relaxed) {
                let ids: Vec<Id> = seen.open.lock().unwrap().iter().copied().collect();
                for id in ids {
                    match random.u16(..500) {
                        0 => _ = remote.close(id),
                        1..50 => _ = remote.write(id, vec![5; random.usize(..10_000)]),
                        _ => _ = remote.wake(id),
                    }
                }
                if random.u8(..32) == 0 {
                    remote.set_threads(random.usize(1..4));
                }
                thread::yield_now();
            }
        });
        let visitors: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed * 10 + number);
                    (0..25).for_each(|_| visit(address, &mut random));
                })
            })
            .collect();
        // The shutdown comes while the last ones still visit.
        for visitor in visitors.into_iter().take(2) {
            visitor.join().unwrap();
        }
        remote.shutdown();
        stops.store(true, Ordering::Relaxed);
    });
    let report = is_over.recv_timeout(PATIENCE).expect("it shuts down").unwrap();
    server.join().unwrap();
    streamer.join().unwrap();
    assert!(seen.open.lock().unwrap().is_empty(), "all have ended: {report:?}");
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert_eq!(load(&seen.begun), load(&seen.ended), "{report:?}");
    assert_eq!(load(&seen.musts), load(&seen.ran), "{report:?}");
    let budget = seen.budget.lock().unwrap().take().unwrap();
    assert_eq!(budget.used(), 0, "{report:?}");
    [report.panics, report.counters.jobs.done, load(&seen.musts)]
}

crate::systems_drivers! {
    everything_comes_back
}
