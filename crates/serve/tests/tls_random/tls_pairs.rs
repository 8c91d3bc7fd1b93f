//! Random programs: clients and a server with TLS on a simulated network with faults. Each seed is
//! another program.
//!
//! Of the promises on the page of the crate: P1, P2 and P5. With TLS, an end that looks orderly is
//! one for all bytes: neither a reset nor a fault may look like `close_notify`.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::seeds;
use crate::common::turns::Turns;
use crate::tls;
use crate::two::{Two, quiet};
use fastrand::Rng;
use windlass::driver::Auto;
use windlass::sim::{Faults, Sim};
use windlass::{Address, Watcher};
use windlass_serve::tls::{Provider, Tls, TlsClient, Version};
use windlass_serve::{Cause, Id};

/// One end of a connection.
#[derive(Default)]
struct Side {
    /// How many bytes it has written.
    written: usize,
    /// It has asked for an end.
    ends: bool,
}

/// What has happened in all programs.
#[derive(Debug, Default)]
struct Met {
    opened: usize,
    orderly: usize,
    failed: usize,
    in_handshake: usize,
    faults: u64,
}

/// One program.
struct Program {
    two: Two<Auto>,
    random: Rng,
    clients: HashMap<Id, Side>,
    servers: HashMap<Id, Side>,
    /// The id at the client, by that at the server.
    partners: HashMap<Id, Id>,
}

impl Program {
    fn new(seed: u64, (tls, trust): &(Tls, TlsClient)) -> (Sim, Program) {
        let mut random = Rng::with_seed(seed);
        let breaks = if random.bool() { random.f64() } else { 0.0 };
        let faults = Faults {
            reset: breaks * 0.005,
            connect_refused: breaks * 0.05,
            aborted: breaks * 0.05,
            ..Faults::transient(random.f64() * 0.3)
        };
        let sim = Sim::with_faults(seed, faults);
        sim.set_buffer(1 << random.usize(9..17));
        sim.set_completing(random.bool());
        let high = 1 << random.usize(10..18);
        let limits = quiet().limits.marks(high / 4, high);
        let config = quiet().limits(limits).close_on_eof(random.bool());
        let mut two = Two::on(Watcher::simulated(&sim), config, tls.clone(), trust);
        two.echoes = false;
        let (clients, servers, partners) = <(_, _, _)>::default();
        (sim, Program { two, random, clients, servers, partners })
    }

    /// Finds out which connection of the server belongs to which client.
    fn match_up(&mut self) {
        let two = &mut self.two;
        for &at_server in &two.server_opened {
            self.servers.entry(at_server).or_default();
            if self.partners.contains_key(&at_server) {
                continue;
            }
            let Some(source) = two.server.source(at_server) else { continue };
            let Ok(peer) = two.watcher.peer_address(source) else { continue };
            let is_partner = |id: &Id| {
                let source = two.client.source(*id)?;
                let local: Address = two.watcher.local_address(source).ok()?;
                (local == peer).then_some(*id)
            };
            if let Some(partner) = self.clients.keys().find_map(is_partner) {
                self.partners.insert(at_server, partner);
            }
        }
    }

    /// Does something with a client, and with a connection of the server.
    fn act(&mut self) {
        if self.clients.len() < 4 && self.random.u8(..4) == 0 {
            self.clients.insert(self.two.connect(), Side::default());
        }
        let Program { two, random, clients, servers, .. } = self;
        if let Some((&id, side)) = any(random, clients) {
            match random.u8(..40) {
                0 => side.ends |= two.client.close(id),
                1 => side.ends |= two.client.shutdown(id),
                2 => side.ends |= two.client.abort(id),
                3 => _ = two.client.pause(id),
                4..12 => _ = two.client.resume(id),
                _ => {
                    let some = some(random, side.written);
                    let len = some.len();
                    side.written += if two.client.write(id, some).is_ok() { len } else { 0 };
                }
            }
        }
        if let Some((&id, side)) = any(random, servers) {
            match random.u8(..40) {
                0 => side.ends |= two.server.close(id),
                1 => side.ends |= two.server.shutdown(id),
                2 => side.ends |= two.server.abort(id),
                3 => _ = two.server.pause(id),
                4..12 => _ = two.server.resume(id),
                _ => {
                    let some = some(random, side.written);
                    let len = some.len();
                    side.written += if two.server.write(id, some).is_ok() { len } else { 0 };
                }
            }
        }
        two.flush();
        for _ in 0..random.usize(..6) {
            two.turn(Duration::from_millis(random.u64(1..20)));
        }
        self.match_up();
    }

    /// Ends everything, and looks at what has come.
    fn finish(mut self, met: &mut Met) {
        let two = &mut self.two;
        for &id in self.clients.keys() {
            two.client.resume(id);
            two.client.close(id);
        }
        let ids: Vec<Id> = two.server.ids().collect();
        ids.into_iter().for_each(|id| _ = two.server.resume(id));
        let count = self.clients.len();
        two.go("the clients have ended", |two| two.ends.len() == count);
        // Those that were told of the end of their peer, and have not answered.
        let ids: Vec<Id> = two.server.ids().collect();
        ids.into_iter().for_each(|id| _ = two.server.close(id));
        let are_over = |two: &mut Two<_>| two.server_ends.len() == two.server_opened.len();
        two.go("all have ended", |two| two.server.is_empty() && are_over(two));
        self.match_up();
        let two = &self.two;
        assert_eq!((two.client.budget().used(), two.server.budget().used()), (0, 0));
        assert!(two.client.is_empty());
        met.opened += two.opened.len();
        for (id, end) in &two.ends {
            let heard = two.heard(*id);
            assert!(heard.iter().enumerate().all(|(at, byte)| *byte == pattern(at)), "its bytes");
            met.failed += usize::from(!matches!(end.cause, Cause::Eof | Cause::Closed));
            met.in_handshake += usize::from(!two.opened.contains(id));
        }
        for end in &two.server_ends {
            let Some(client) = self.partners.get(&end.id) else { continue };
            let (of_client, of_server) = (&self.clients[client], &self.servers[&end.id]);
            let at_client = &two.ends[client];
            let heard = two.heard(*client).len();
            let served = two.served_of.get(&end.id).copied().unwrap_or(0);
            assert!(heard <= of_server.written && served <= of_client.written);
            // An end of the peer is orderly: all that it has written has come.
            if at_client.cause == Cause::Eof {
                met.orderly += 1;
                assert_eq!((heard, end.unsent), (of_server.written, 0), "{at_client:?} {end:?}");
            }
            if end.cause == Cause::Eof {
                met.orderly += 1;
                let all = (of_client.written, 0);
                assert_eq!((served, at_client.unsent), all, "{at_client:?} {end:?}");
            }
        }
    }
}

fn pattern(at: usize) -> u8 {
    ((at * 7) >> 3) as u8
}

/// Bytes behind so many.
fn some(random: &mut Rng, written: usize) -> Vec<u8> {
    let most = if random.bool() { 200 } else { 70_000 };
    let len = random.usize(1..most);
    (written..written + len).map(pattern).collect()
}

/// One of them, in the order of their ids.
fn any<'a>(random: &mut Rng, sides: &'a mut HashMap<Id, Side>) -> Option<(&'a Id, &'a mut Side)> {
    let mut all: Vec<_> = sides.iter_mut().filter(|(_, side)| !side.ends).collect();
    all.sort_unstable_by_key(|(id, _)| **id);
    let count = all.len();
    (count > 0).then(|| all.swap_remove(random.usize(..count)))
}

#[test]
fn no_fault_looks_like_an_orderly_end() {
    // The keys are the costly part of a program.
    let made = [Version::Tls12, Version::Tls13].map(|version| {
        let (_, tls, client) = tls::settings(Provider::Ring);
        (tls.build().unwrap(), client.versions([version]).build().unwrap())
    });
    let mut met = Met::default();
    seeds::each("pairs", 100, 100, |seed| {
        let (sim, mut program) = Program::new(seed, &made[(seed % 2) as usize]);
        for _ in 0..program.random.usize(10..120) {
            program.act();
        }
        program.finish(&mut met);
        met.faults += sim.injected().total();
    });
    println!("{met:?}");
    if seeds::setting::<u32>("WINDLASS_PROGRAMS").is_none_or(|programs| programs >= 100) {
        assert!(met.orderly > 0 && met.failed > 0 && met.in_handshake > 0 && met.faults > 0);
    }
}
