//! How the connections of a simulated server with several loops are distributed.

use crate::common::seeds;
use windlass::net::ConnectOptions;
use windlass::sim::Sim;
use windlass::{Address, Buf, Completions, Op, Source, Watcher};
use windlass_serve::{Action, Conn, Handler, Id, Server, ServerLoop, modes::Balance};

struct Echo;

impl Handler for Echo {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }
}

const LOOPS: usize = 4;

/// A server of several loops, and clients on a watcher of their own.
struct Several {
    watchers: Vec<Watcher>,
    loops: Vec<ServerLoop<Echo>>,
    clients: Watcher,
    address: Address,
}

impl Several {
    fn new(balance: Balance) -> Several {
        let sim = Sim::new(seeds::draw());
        let mut watchers: Vec<Watcher> = (0..LOOPS).map(|_| Watcher::simulated(&sim)).collect();
        let server = Server::new(|_| Echo).balance(balance).listen("tcp://127.0.0.1:0").unwrap();
        let mut loops = server.start_on_each(&mut watchers).unwrap();
        let address = watchers[0].local_address(loops[0].engine().listeners()[0]).unwrap();
        let mut several = Several { watchers, loops, clients: Watcher::simulated(&sim), address };
        several.settle();
        several
    }

    /// Runs all loops until none has anything to do; how many completions each of them had.
    fn settle(&mut self) -> [usize; LOOPS] {
        let mut counts = [0; LOOPS];
        let mut done = Completions::new();
        let mut quiet = 0;
        while quiet < 3 {
            let mut found = self.clients.try_wait(&mut done).unwrap();
            done.clear();
            for (at, (one, watcher)) in self.loops.iter_mut().zip(&mut self.watchers).enumerate() {
                let count = watcher.try_wait(&mut done).unwrap();
                for c in done.drain(..) {
                    assert!(one.complete(watcher, c).is_none());
                }
                one.turn(watcher);
                counts[at] += count;
                found += count;
            }
            quiet = if found == 0 { quiet + 1 } else { 0 };
        }
        counts
    }

    /// How many connections each loop has.
    fn shares(&mut self) -> Vec<usize> {
        self.loops.iter_mut().map(|one| one.engine().len()).collect()
    }

    /// One more client: its socket, the loop that serves it, and how many completions each loop
    /// had for it.
    fn connect(&mut self) -> (Source, usize, [usize; LOOPS]) {
        let before = self.shares();
        let options = ConnectOptions::default();
        let (client, _) = self.clients.connect([self.address.clone()], options).unwrap();
        let counts = self.settle();
        let after = self.shares();
        let served: Vec<usize> = (0..LOOPS).filter(|&at| after[at] > before[at]).collect();
        assert_eq!(served.len(), 1, "{before:?} and then {after:?}");
        (client, served[0], counts)
    }
}

/// evio wakes every loop for every connection (its issues 25 and 73), and all but one wake up in
/// vain. Here one loop accepts, and one more hears of it.
#[test]
fn a_connection_wakes_no_loop_in_vain() {
    for balance in [Balance::RoundRobin, Balance::Random, Balance::LeastConnections] {
        let mut several = Several::new(balance);
        for _ in 0..12 {
            let (client, served, counts) = several.connect();
            assert!(counts[0] > 0 && counts[served] > 0);
            for (at, &count) in counts.iter().enumerate() {
                assert!(at == 0 || at == served || count == 0, "{balance:?}, loop {at}: {count}");
            }
            several.clients.submit(Op::write(client, "hello")).unwrap();
            let counts = several.settle();
            for (at, &count) in counts.iter().enumerate() {
                assert_eq!(count > 0, at == served, "{balance:?}, loop {at}: {count}");
            }
        }
        assert_eq!(several.shares().iter().sum::<usize>(), 12);
    }
}

#[test]
fn the_next_connection_goes_where_the_fewest_are() {
    let mut several = Several::new(Balance::LeastConnections);
    (0..2 * LOOPS).for_each(|_| _ = several.connect());
    assert_eq!(several.shares(), [2; LOOPS]);
    for at in [2, 0] {
        let ids: Vec<Id> = several.loops[at].engine().ids().collect();
        for id in ids {
            several.loops[at].engine().abort(id);
        }
        several.settle();
        assert_eq!(several.shares()[at], 0);
        for _ in 0..2 {
            assert_eq!(several.connect().1, at);
        }
    }
    // A client that leaves counts no more, either.
    let (client, served, _) = several.connect();
    several.clients.abort(client);
    several.settle();
    assert_eq!(several.shares(), [2; LOOPS]);
    let others: Vec<usize> = (0..LOOPS).map(|_| several.connect().1).collect();
    assert!(others.contains(&served));
    assert_eq!(several.shares(), [3; LOOPS]);
}

#[test]
fn a_random_loop_is_every_loop_sometimes() {
    let mut several = Several::new(Balance::Random);
    (0..64).for_each(|_| _ = several.connect());
    let shares = several.shares();
    assert!(shares.iter().all(|share| (4..40).contains(share)), "{shares:?}");
}
