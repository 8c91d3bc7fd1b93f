//! Calls of other threads while a queue is full: that of the watcher, by which they wake the loop,
//! or the memory of the server, which bounds their own. None is lost without an error.
//!
//! Of the promises on the page of the crate: P9.

use crate::common::Harness;
use crate::common::engine::Loop;
use crate::common::turns::Turns;
use windlass::driver::Driver;
use windlass::net::{ConnectOptions, DatagramOptions};
use windlass::{Address, Handle, Op, Source, Watcher};
use windlass_serve::{Config, Id, Limits, Refusal, Remote};

crate::every_driver! {
    a_full_queue_of_the_watcher_loses_no_call
    a_server_without_memory_hands_back_what_it_does_not_take
}

/// What the calls are about.
struct Subjects {
    id: Id,
    client: Source,
    /// An address at which a listener is that accepts nothing.
    somewhere: Address,
    listener: Option<Handle>,
    stream: Option<Handle>,
    datagram: Option<Handle>,
}

fn subjects<D: Driver>(l: &mut Loop<D>) -> Subjects {
    let (client, id) = l.pair();
    let bare = l.watcher.listen(([127, 0, 0, 1], 0)).expect("a listener");
    let somewhere = l.watcher.local_address(bare).expect("its address");
    let listener = l.watcher.listen(([127, 0, 0, 1], 0)).expect("a listener");
    let listener = l.watcher.detach(listener).ok();
    let options = ConnectOptions::default().token(1);
    let (stream, _) = l.watcher.connect([somewhere.clone()], options).expect("a source");
    l.until("it is connected", |l| l.foreign.iter().any(|c| c.source == stream));
    let stream = l.watcher.detach(stream).ok();
    let local = ([127, 0, 0, 1], 0);
    let datagram = l.watcher.bind_datagram(local, DatagramOptions::default()).expect("a socket");
    l.watcher.connect_datagram(datagram, somewhere.clone()).expect("a peer");
    let datagram = l.watcher.detach(datagram).ok();
    Subjects { id, client, somewhere, listener, stream, datagram }
}

fn told<D: Driver>(l: &Loop<D>, what: &str) -> usize {
    l.told.iter().filter(|told| **told == what).count()
}

/// A call, whether it was taken, and whether it has had its effect.
struct Call<D: Driver> {
    name: &'static str,
    make: fn(&Remote, &mut Subjects) -> bool,
    effect: fn(&Loop<D>, &Subjects) -> bool,
    /// Whether it needs memory of the server.
    is_charged: bool,
}

/// Every call of a `Remote` that asks something of a loop.
fn calls<D: Driver>() -> [Call<D>; 12] {
    let opens = |l: &Loop<D>, _: &Subjects| told(l, "opened") == 2;
    let is_told = |l: &Loop<D>, _: &Subjects| told(l, "other") == 1;
    let ends = |l: &Loop<D>, _: &Subjects| told(l, "closed") == 1;
    let call = |name, make, effect| Call { name, make, effect, is_charged: false };
    let charged = |name, make, effect| Call { name, make, effect, is_charged: true };
    [
        call("wake", |r, s| r.wake(s.id), is_told),
        call("close", |r, s| r.close(s.id), ends),
        call("shutdown", |r, _| (r.shutdown(), true).1, ends),
        call("add_listener", |r, s| r.add_listener(s.listener.take().unwrap()).is_ok(), is_told),
        call(
            "close_listener",
            |r, _| (r.close_listener(0), true).1,
            |l, _| l.engine.listeners()[0].is_none(),
        ),
        charged(
            "write",
            |r, s| match r.write(s.id, "hello") {
                Ok(()) => true,
                Err(refused) => {
                    assert_eq!((refused.reason, &*refused.value), (Refusal::Memory, &b"hello"[..]));
                    false
                }
            },
            |l, s| {
                let of_client = l.foreign.iter().filter(|c| c.source == s.client);
                of_client.map(|c| c.bytes()).sum::<usize>() == 5
            },
        ),
        charged(
            "post",
            |r, _| match r.post(0, 7_u64) {
                Ok(()) => true,
                Err(refused) => {
                    assert_eq!((refused.reason, refused.value), (Refusal::Memory, 7));
                    false
                }
            },
            is_told,
        ),
        charged(
            "connect",
            |r, s| r.connect([s.somewhere.clone()], ConnectOptions::default(), ()).is_ok(),
            opens,
        ),
        charged(
            "cancel",
            |r, s| {
                let dial = r.connect([s.somewhere.clone()], ConnectOptions::default(), ());
                dial.map(|dial| dial.cancel()).is_ok()
            },
            ends,
        ),
        charged(
            "connect_datagram",
            |r, s| r.connect_datagram(s.somewhere.clone(), ()).is_ok(),
            opens,
        ),
        charged(
            "attach",
            |r, s| match r.attach(s.stream.take().unwrap(), ()) {
                Ok(_) => true,
                Err((handle, ())) => (s.stream = Some(handle), false).1,
            },
            opens,
        ),
        charged(
            "attach_datagram",
            |r, s| match r.attach_datagram(s.datagram.take().unwrap(), ()) {
                Ok(_) => true,
                Err((handle, ())) => (s.datagram = Some(handle), false).1,
            },
            opens,
        ),
    ]
}

/// The wake of the loop found no room.
fn a_full_queue_of_the_watcher_loses_no_call<T: Harness>() {
    for call in calls::<T::Driver>() {
        let watcher = T::watcher(Watcher::builder().remote_queue(1));
        let mut l = Loop::on(watcher, Config::new());
        let mut subjects = subjects(&mut l);
        let remote = l.engine.remote(&mut l.watcher);
        let submitter = l.watcher.submitter();
        l.run_for(T::span(1.0));
        let read = Op::read(subjects.client).multishot().token(1);
        submitter.submit(read).map_err(|refused| refused.reason).unwrap();
        assert!(submitter.wake(9).is_err(), "the queue is full");
        for _ in 0..3 {
            // What can be asked once only is asked once.
            let asks = (call.make)(&remote, &mut subjects);
            assert!(asks, "{}", call.name);
            if call.is_charged || call.name == "add_listener" {
                break;
            }
        }
        l.until(call.name, |l| (call.effect)(l, &subjects));
    }
}

/// All memory is in use. What needs some is handed back, and what needs none is done.
fn a_server_without_memory_hands_back_what_it_does_not_take<T: Harness>() {
    const MEMORY: usize = 1 << 20;
    for call in calls::<T::Driver>() {
        let mut l = Loop::new::<T>(Config::new().limits(Limits::new().memory(MEMORY)));
        let mut subjects = subjects(&mut l);
        let remote = l.engine.remote(&mut l.watcher);
        l.watcher.submit(Op::read(subjects.client).multishot().token(1)).unwrap();
        assert!(l.engine.charge(subjects.id, MEMORY));
        let asks = (call.make)(&remote, &mut subjects);
        assert_eq!(asks, !call.is_charged, "{}", call.name);
        assert_eq!(remote.waiting(subjects.id), Some(0), "{}: its charge is given back", call.name);
        assert!(l.engine.charge(subjects.id, 0));
        assert_eq!(l.engine.budget().used(), 0, "{}", call.name);
        if call.is_charged {
            assert!((call.make)(&remote, &mut subjects), "{}: there is memory again", call.name);
        }
        l.until(call.name, |l| (call.effect)(l, &subjects));
    }
}
