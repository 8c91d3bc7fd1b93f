//! Messages of other threads to the loops of a server, and what they learn of its connections.
//!
//! Of the promises on the page of the crate: P9 and P10.

use crate::common::engine::Loop;
use crate::common::turns::Turns;
use crate::common::{Bench, Harness, bench};
use windlass::driver::Driver;
use windlass::{Buf, Message, Op};
use windlass_serve::{
    Action, Closed, Config, Conn, Context, Engine, Event, Handler, Id, Limits, Origin, Refusal,
    Server,
};

crate::every_driver! {
    a_message_is_told_in_its_place_among_the_calls_of_its_thread
    a_full_queue_hands_a_message_back
    each_message_that_is_taken_is_told_in_a_shutdown
    a_message_behind_the_end_of_the_loop_is_handed_back
    a_panic_loses_no_message
    what_waits_behind_a_message_ends_with_its_engine
    other_threads_know_how_many_bytes_wait
}

/// Writes what it is told to its last connection.
#[derive(Default)]
struct Tells {
    id: Option<Id>,
    heard: Vec<u32>,
    /// What the callbacks of the end have posted, and what came back.
    posts_at_end: bool,
    refused: Vec<u32>,
}

impl Handler for Tells {
    type State = ();

    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.id = Some(c.id());
        Action::None
    }

    fn message(&mut self, server: &mut Context<'_, ()>, message: Message) -> Action {
        let message = match message.downcast::<&str>() {
            Ok(text) => {
                let id = self.id.expect("it is open");
                server.conn(id).expect("it is open").write(text);
                return Action::None;
            }
            Err(message) => message,
        };
        let number = message.downcast::<u32>().expect("a number");
        self.heard.push(number);
        assert_ne!(number, 13, "a panic");
        if self.posts_at_end
            && let Err(refused) = server.remote().post(0, number + 1)
        {
            assert_eq!(refused.reason, Refusal::Stale);
            self.refused.push(refused.value);
        }
        if number == 99 { Action::Shutdown } else { Action::None }
    }

    fn closed(&mut self, server: &mut Context<'_, ()>, _: Closed<()>) -> Action {
        if self.posts_at_end {
            // The loop looks into its inbox when its last connection has ended.
            server.remote().post(0, 20_u32).expect("the loop is not over");
        }
        Action::None
    }
}

fn tells<T: Harness>(config: Config) -> Bench<T::Driver, Tells> {
    let server = Server::new(|_| Tells::default()).config(config);
    bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap())
}

/// A client, and its connection.
fn opened<D: Driver>(bench: &mut Bench<D, Tells>) -> (windlass::Source, Id) {
    let client = bench.connect();
    bench.until("it is open", |bench| bench.running.handler().id.is_some());
    (client, bench.running.handler().id.unwrap())
}

fn a_message_is_told_in_its_place_among_the_calls_of_its_thread<T: Harness>() {
    let mut bench = tells::<T>(Config::new());
    let (client, id) = opened(&mut bench);
    let remote = bench.running.remote();
    for (message, write) in [("a", "b"), ("c", "d")] {
        remote.post(0, message).unwrap();
        remote.write(id, write).unwrap();
    }
    remote.post(0, "e").unwrap();
    assert!(remote.close(id));
    bench.until("it has ended", |bench| bench.client(client).eof);
    assert_eq!(String::from_utf8_lossy(&bench.client(client).heard), "abcde");
    assert_eq!(bench.running.report().counters.stale_writes, 0);
}

fn a_full_queue_hands_a_message_back<T: Harness>() {
    let mut bench = tells::<T>(Config::new().limits(Limits::new().memory(1000)));
    let remote = bench.running.remote();
    let mut expected = Vec::new();
    for round in 0..3 {
        let refused = (0..1000).find_map(|number| {
            let refused = remote.post(0, round * 1000 + number).err()?;
            Some((number, refused.value, refused.reason))
        });
        let (taken, value, reason) = refused.expect("the queue has a bound");
        assert_eq!((value, reason), (round * 1000 + taken, Refusal::Memory));
        assert!((4..100).contains(&taken), "{taken} messages of less than 150 bytes");
        expected.extend(round * 1000..value);
        let expected = expected.len();
        bench.until("all are told", |bench| bench.running.handler().heard.len() == expected);
        assert_eq!(bench.running.engine().budget().used(), 0);
    }
    assert_eq!(bench.running.handler().heard, expected);
    let refused = remote.post(1, "nowhere").unwrap_err();
    assert_eq!((refused.value, refused.reason), ("nowhere", Refusal::Stale));
}

fn each_message_that_is_taken_is_told_in_a_shutdown<T: Harness>() {
    let mut bench = tells::<T>(Config::new());
    opened(&mut bench);
    let remote = bench.running.remote();
    let mut expected = Vec::new();
    for number in 0.. {
        if number == 2 {
            remote.shutdown();
        }
        let Err(refused) = remote.post(0, number) else {
            expected.push(number);
            bench.turn(T::span(0.1));
            continue;
        };
        assert_eq!((refused.value, refused.reason), (number, Refusal::Stale));
        break;
    }
    assert!(bench.running.is_over() && expected.len() > 2);
    assert_eq!(bench.running.handler().heard, expected);
}

/// The last callback of the last connection posts a message, which is told behind the end. What
/// that one posts comes back.
fn a_message_behind_the_end_of_the_loop_is_handed_back<T: Harness>() {
    let mut bench = tells::<T>(Config::new());
    let (client, _) = opened(&mut bench);
    bench.running.handler().posts_at_end = true;
    bench.running.remote().shutdown();
    bench.until("the server is over", |bench| bench.running.is_over());
    assert_eq!(bench.running.handler().heard, [20]);
    assert_eq!(bench.running.handler().refused, [21]);
    assert!(bench.running.remote().post(0, ()).is_err());
    assert_eq!(bench.running.engine().budget().used(), 0);
    bench.watcher.abort(client);
}

fn a_panic_loses_no_message<T: Harness>() {
    let mut bench = tells::<T>(Config::new());
    let remote = bench.running.remote();
    for number in [12_u32, 13, 13, 14, 99, 15] {
        remote.post(0, number).unwrap();
    }
    bench.until("the server is over", |bench| bench.running.is_over());
    assert_eq!(bench.running.handler().heard, [12, 13, 13, 14, 99, 15]);
    assert_eq!(bench.running.report().panics, 2);
}

/// An engine that ends tells its messages, and drops the rest, with a count.
fn what_waits_behind_a_message_ends_with_its_engine<T: Harness>() {
    for ends in [true, false] {
        let mut l = Loop::new::<T>(Config::new());
        let (_, id) = l.pair();
        let remote = l.engine.remote(&mut l.watcher);
        let budget = l.engine.budget().clone();
        remote.post(0, 1).unwrap();
        remote.write(id, "behind it").unwrap();
        l.engine.flush(&mut l.watcher); // looks into the inbox
        remote.post(0, 2).unwrap();
        remote.write(id, "in the inbox").unwrap();
        assert!(budget.used() > 0);
        if !ends {
            drop(std::mem::replace(&mut l.engine, Engine::new(Config::new())));
            assert_eq!(budget.used(), 0);
            continue;
        }
        l.engine.end(&mut l.watcher);
        let (mut heard, mut closed) = (Vec::new(), 0);
        while let Some(event) = l.engine.next_event(&mut l.watcher) {
            match event {
                Event::Message { message } => heard.push(message.downcast::<i32>().unwrap()),
                Event::Closed { .. } => closed += 1,
                event => panic!("{event:?}"),
            }
        }
        assert_eq!((heard, closed), (vec![1, 2], 1));
        assert_eq!(l.engine.counters().stale_writes, 2);
        assert_eq!(budget.used(), 0);
    }
}

fn other_threads_know_how_many_bytes_wait<T: Harness>() {
    const LONG: usize = 4 << 20; // more than the buffers of the system take
    let mut l = Loop::new::<T>(Config::new());
    let (client, id) = l.pair();
    let remote = l.engine.remote(&mut l.watcher);
    assert_eq!(remote.waiting(id), Some(0));
    remote.write(id, vec![1; 1000]).unwrap();
    assert_eq!(remote.waiting(id), Some(1000), "the loop has not taken it");
    l.engine.write(id, Buf::from(vec![2; LONG])).unwrap();
    assert_eq!(remote.waiting(id), Some(1000), "that is in this turn's output");
    l.engine.flush(&mut l.watcher);
    l.run_for(T::span(1.0));
    let waiting = remote.waiting(id).unwrap();
    assert!(waiting > LONG / 2 && waiting <= LONG + 1000, "{waiting}");
    assert_eq!(waiting, l.engine.waiting(id));
    remote.write(id, vec![3; 500]).unwrap();
    assert_eq!(remote.waiting(id), Some(waiting + 500));
    l.watcher.submit(Op::read(client).multishot()).unwrap();
    l.until("all is sent", |l| l.queued(id) == 0);
    l.until("the loop has seen it", |_| remote.waiting(id) == Some(0));
    assert!(l.engine.abort(id));
    l.engine.flush(&mut l.watcher);
    l.until("it has ended", |l| l.ends.len() == 1);
    assert_eq!(remote.waiting(id), None);
    let (_, other) = l.pair();
    assert_eq!((remote.waiting(id), remote.waiting(other)), (None, Some(0)));
}

#[cfg(unix)]
mod system {
    use std::io::Read;
    use std::net::TcpStream;
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::common::{PATIENCE, System};
    use windlass_serve::modes::{IoMode, Loops};

    crate::systems_drivers! {
        no_message_of_several_threads_to_several_loops_is_lost
        the_thread_of_a_connection_has_messages_too
    }

    /// A number of a thread.
    type Numbered = (usize, u64);

    /// Counts what each thread has sent to its loop, and looks at the order.
    struct Counts {
        loop_index: usize,
        /// The next number of each thread. All that is told when it ends.
        next: Vec<u64>,
        all: Arc<Mutex<Vec<Vec<u64>>>>,
    }

    impl Handler for Counts {
        type State = ();

        fn message(&mut self, _: &mut Context<'_, ()>, message: Message) -> Action {
            let (thread, number) = message.downcast::<Numbered>().expect("a number");
            assert_eq!(number, self.next[thread], "the order of thread {thread}");
            self.next[thread] += 1;
            self.all.lock().unwrap()[self.loop_index] = self.next.clone();
            Action::None
        }
    }

    /// Threads post until the server is over. What was taken was told, in the order of each thread.
    fn no_message_of_several_threads_to_several_loops_is_lost<T: System>() {
        const THREADS: usize = 3;
        const LOOPS: usize = 2;
        let all = Arc::new(Mutex::new(vec![vec![0; THREADS]; LOOPS]));
        let told = Arc::clone(&all);
        let make = move |loop_index| {
            let all = Arc::clone(&told);
            Counts { loop_index, next: vec![0; THREADS], all }
        };
        // A budget that is full at times.
        let config = Config::new().limits(Limits::new().memory(64 << 10));
        let server = Server::new(make).config(config).watcher(T::builder());
        let server = server.loops(Loops::Count(LOOPS)).listen("tcp://127.0.0.1:0").unwrap();
        let server = server.signals(false).start().unwrap();
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let remote = server.remote().clone();
                std::thread::spawn(move || {
                    let mut next = vec![0; LOOPS];
                    let mut is_over = [false; LOOPS];
                    while is_over != [true; LOOPS] {
                        for (index, number) in next.iter_mut().enumerate() {
                            match remote.post(index, (thread, *number)) {
                                Ok(()) => *number += 1,
                                Err(refused) => {
                                    assert_eq!(refused.value, (thread, *number));
                                    is_over[index] = refused.reason == Refusal::Stale;
                                }
                            }
                            if thread == 0 && *number == 1000 {
                                remote.shutdown();
                            }
                        }
                    }
                    next
                })
            })
            .collect();
        let sent: Vec<Vec<u64>> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let report = server.wait().unwrap();
        assert_eq!(report.panics, 0);
        let all = all.lock().unwrap();
        for (thread, sent) in sent.iter().enumerate() {
            let told: Vec<u64> = all.iter().map(|of_loop| of_loop[thread]).collect();
            assert_eq!(&told, sent, "what thread {thread} has sent to each loop");
        }
    }

    /// Answers a message on the thread of the connection.
    struct Answers(Sender<Id>, Option<Id>);

    impl Handler for Answers {
        type State = ();

        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            self.1 = Some(c.id());
            self.0.send(c.id()).unwrap();
            Action::None
        }

        fn message(&mut self, server: &mut Context<'_, ()>, message: Message) -> Action {
            let Some(mut c) = self.1.and_then(|id| server.conn(id)) else { return Action::None };
            c.write(message.downcast::<&str>().expect("a text"));
            server.engine().close(self.1.expect("it is open"));
            Action::None
        }
    }

    fn the_thread_of_a_connection_has_messages_too<T: System>() {
        let (tell, opened) = channel();
        let tell = Mutex::new(tell);
        let server = Server::new(move |_| Answers(tell.lock().unwrap().clone(), None));
        let server = server.io_mode(IoMode::Blocking { threads: 2 }).watcher(T::builder());
        let server = server.listen("tcp://127.0.0.1:0").unwrap().signals(false).start().unwrap();
        let remote = server.remote();
        let refused = remote.post(remote.loops(), "early").unwrap_err();
        assert_eq!(refused.reason, Refusal::Stale, "no such thread");
        let address = server.addresses()[0].ip().unwrap();
        for text in ["hello", "world"] {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let id = opened.recv_timeout(PATIENCE).unwrap();
            assert!(id.loop_index() >= remote.loops());
            remote.post(id.loop_index(), text).unwrap();
            let mut heard = String::new();
            client.read_to_string(&mut heard).unwrap();
            assert_eq!(heard, text);
        }
        remote.shutdown();
        assert_eq!(server.wait().unwrap().panics, 0);
    }
}
