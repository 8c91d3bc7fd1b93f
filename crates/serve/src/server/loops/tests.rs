//! A loop whose turns have more events than a turn looks for.

use windlass::sim::Sim;
use windlass::{Done, Op};

use super::*;
use crate::Server;

/// Makes an event in each flush, and writes as another thread does in each event.
#[derive(Default)]
struct Busy {
    rounds: usize,
    announced: usize,
    written: usize,
}

impl Handler for Busy {
    type State = ();

    fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
        self.rounds += 1;
        let id = c.id();
        c.write("own ");
        c.remote().write(id, "another's ").unwrap();
        Action::None
    }

    fn prewrite(&mut self, _: &mut Conn<'_, ()>, amount: usize) -> Action {
        self.announced += amount;
        Action::None
    }

    fn postwrite(&mut self, c: &mut Conn<'_, ()>, amount: usize, _: usize) -> Action {
        self.written += amount;
        if self.rounds < 5 * ROUNDS {
            let id = c.id();
            c.engine().wake(id);
        }
        Action::None
    }
}

/// A turn that looks for events for as long as it may leaves out no callback of a write.
#[test]
fn every_write_has_its_callbacks_in_a_busy_turn() {
    let sim = Sim::new(1);
    let mut watcher = Watcher::simulated(&sim);
    let server = Server::new(|_| Busy::default()).without_listener();
    let mut running = server.start_on(&mut watcher).unwrap();
    let (handle, peer) = sim.pair();
    let id = running.engine().attach(handle, ()).unwrap();
    let peer = watcher.attach(peer).unwrap();
    watcher.submit(Op::read(peer).multishot()).unwrap();
    running.engine().wake(id);
    let mut done = Completions::new();
    let mut heard = 0;
    for _ in 0..200 {
        running.turn(&mut watcher);
        watcher.wait_timeout(&mut done, Duration::from_millis(1)).unwrap();
        for completion in done.drain(..) {
            if let Some(own) = running.complete(&mut watcher, completion)
                && let Ok(Done::Read(data)) = own.result
            {
                heard += data.len();
            }
        }
    }
    let Busy { rounds, announced, written } = *running.handler();
    assert_eq!(rounds, 5 * ROUNDS);
    assert_eq!(heard, rounds * "own another's ".len());
    assert_eq!((announced, written), (heard, heard));
}
