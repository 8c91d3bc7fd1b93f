//! Hosts, links and cuts: bytes arrive later, in their order, or wait. Also the faults of an
//! address.

use super::*;
use crate::sim::Link;
use crate::words::address::Address;

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const PORT: u16 = 80;
const MS: Duration = Duration::from_millis(1);

/// A server and a client, each on a host of its own.
struct Two {
    sim: Sim,
    server: Watcher,
    client: Watcher,
}

impl Two {
    fn new(seed: u64, faults: Faults) -> Two {
        let sim = Sim::with_faults(seed, faults);
        let (server, client) = (watcher(&sim.at(SERVER)), watcher(&sim.at(CLIENT)));
        Two { sim, server, client }
    }

    /// A connection: the client's end and the server's.
    fn connect(&mut self) -> (Source, Source) {
        let listener = self.server.listen((SERVER, PORT)).unwrap();
        self.server.submit(Op::accept(listener)).unwrap();
        let to = [(SERVER, PORT)];
        let (client, _) = self.client.connect(to, ConnectOptions::default()).unwrap();
        let (mut server, mut connected) = (None, false);
        let all = &mut [&mut self.server, &mut self.client];
        let server = self.sim.run(all, |_, watcher, c| {
            match c.result? {
                Done::Accepted(socket) => server = Some(watcher.attach(socket)?),
                Done::Connected(_) => connected = true,
                other => panic!("{other:?}"),
            }
            Ok(server.filter(|_| connected))
        });
        self.server.abort(listener);
        (client, server.unwrap())
    }

    /// Runs until `count` bytes were read, at either end. Returns the time that this took, and the
    /// bytes.
    fn read(&mut self, count: usize) -> (Duration, Vec<u8>) {
        let start = self.sim.now();
        let mut heard = Vec::new();
        let all = &mut [&mut self.server, &mut self.client];
        let heard = self.sim.run(all, |_, watcher, c| {
            if let Done::Read(data) = c.result? {
                heard.extend_from_slice(&data);
                if heard.len() < count {
                    watcher.submit(Op::read(c.source))?;
                }
            }
            Ok((heard.len() >= count).then(|| std::mem::take(&mut heard)))
        });
        (self.sim.now() - start, heard.unwrap())
    }

    /// Runs until no event is left. Returns the completions.
    fn settle(&mut self) -> Vec<Completion> {
        let mut ended = Vec::new();
        let all = &mut [&mut self.server, &mut self.client];
        let error = self.sim.run::<()>(all, |_, _, c| {
            ended.push(c);
            Ok(None)
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::Deadlock);
        ended
    }
}

fn near(span: Duration, least: Duration) {
    assert!(span >= least && span < least + MS, "{span:?} for {least:?}");
}

#[test]
fn hosts_have_their_addresses() {
    let mut two = Two::new(1, Faults::none());
    let any = two.server.listen(([0, 0, 0, 0], 0)).unwrap();
    let local = two.server.listen(([127, 0, 0, 1], 9)).unwrap();
    assert_eq!(two.server.local_address(local).unwrap(), Address::from((SERVER, 9)));
    let ip = two.server.local_address(any).unwrap().ip().unwrap();
    assert_eq!((ip.ip().to_string().as_str(), ip.port() > 0), ("10.0.0.1", true));
    let error = two.server.listen((CLIENT, 9)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    assert!(two.sim.at(SERVER).datagram((CLIENT, 9)).is_err());
    // The other host has the port free, and its loopback leads to itself.
    let theirs = two.client.listen(([0, 0, 0, 0], 9)).unwrap();
    assert_eq!(two.client.local_address(theirs).unwrap(), Address::from((CLIENT, 9)));
    let (client, server) = two.connect();
    let from = two.client.local_address(client).unwrap();
    assert_eq!(from.ip().unwrap().ip().to_string(), "10.0.0.2");
    assert_eq!(two.server.peer_address(server).unwrap(), from);
    two.client.submit(Op::connect(([127, 0, 0, 1], 9))).unwrap();
    let Ok(Done::Socket(socket)) = wait_one(&mut two.client).result else { panic!() };
    assert_eq!(socket.peer(), Some((CLIENT, 9).into()));
    let socket = two.client.attach(socket).unwrap();
    assert_eq!(two.client.peer_address(socket).unwrap(), Address::from((CLIENT, 9)));
}

#[test]
fn bytes_travel_for_the_latency_of_their_link() {
    let mut two = Two::new(1, Faults::none());
    let link = Link::default().latency(MS * 50);
    two.sim.set_link(CLIENT, SERVER, link);
    let start = two.sim.now();
    let (client, server) = two.connect();
    near(two.sim.now() - start, MS * 100);
    for (from, to) in [(client, server), (server, client)] {
        let to_server = from == client;
        let (sender, reader) = match to_server {
            true => (&mut two.client, &mut two.server),
            false => (&mut two.server, &mut two.client),
        };
        sender.submit(Op::write(from, "ping")).unwrap();
        reader.submit(Op::read(to)).unwrap();
        let (span, heard) = two.read(4);
        near(span, MS * 50);
        assert_eq!(heard, b"ping");
    }
    // The end travels, too; what is written to a closed peer breaks after a round trip.
    two.server.abort(server);
    let start = two.sim.now();
    two.client.submit(Op::read(client)).unwrap();
    let c = wait_one(&mut two.client);
    assert!(matches!(c.result, Ok(Done::Read(data)) if data.is_eof()));
    near(two.sim.now() - start, MS * 50);
    let start = two.sim.now();
    two.client.submit(Op::write(client, "into the void")).unwrap();
    assert!(matches!(wait_one(&mut two.client).result, Ok(Done::Written { bytes: 13, .. })));
    two.client.submit(Op::write(client, "more")).unwrap();
    let c = wait_one(&mut two.client);
    assert_eq!(c.error_kind(), Some(ErrorKind::Os(libc::EPIPE)));
    near(two.sim.now() - start, MS * 100);
    // A refusal takes a round trip.
    let start = two.sim.now();
    two.client.submit(Op::connect((SERVER, 81))).unwrap();
    let c = wait_one(&mut two.client);
    assert_eq!(c.error_kind(), Some(ErrorKind::Os(libc::ECONNREFUSED)));
    near(two.sim.now() - start, MS * 100);
    assert!(two.sim.traffic().delayed >= 8);
    assert_eq!((two.sim.traffic().stalled, two.sim.traffic().lost), (0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "half a megabyte: too slow")]
fn a_link_carries_so_many_bytes_a_second() {
    let mut two = Two::new(1, Faults::none());
    two.sim.set_buffer(1 << 20);
    let (client, server) = two.connect();
    two.sim.set_link(SERVER, CLIENT, Link::default().bandwidth(1_000_000).latency(MS * 10));
    let bytes = pattern(500_000);
    two.client.submit(Op::write(client, bytes.clone())).unwrap();
    two.server.submit(Op::read(server)).unwrap();
    let (span, heard) = two.read(bytes.len());
    near(span, MS * 510);
    assert_eq!(heard, bytes);
}

/// A change of the link does not affect bytes in flight, not even those that are due already.
#[test]
fn a_slower_link_does_not_delay_what_is_on_its_way() {
    for late in [false, true] {
        let mut two = Two::new(1, Faults::none());
        let (client, server) = two.connect();
        two.sim.set_link(SERVER, CLIENT, Link::default().latency(MS * 50));
        two.client.submit(Op::write(client, "first")).unwrap();
        two.sim.advance(if late { MS * 60 } else { MS });
        two.sim.set_link(SERVER, CLIENT, Link::default().latency(MS * 500));
        two.sim.heal(SERVER, CLIENT); // nothing was cut
        two.server.submit(Op::read(server)).unwrap();
        two.client.submit(Op::write(client, "second")).unwrap();
        let (span, heard) = two.read(5);
        assert!(span < if late { MS } else { MS * 50 }, "{span:?}");
        assert_eq!(heard, b"first");
        two.server.submit(Op::read(server)).unwrap();
        assert_eq!(two.read(6).1, b"second");
    }
}

/// Bytes of a connection keep their order on a link with jitter, under faults, whatever is cut.
#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn a_stream_survives_jitter_cuts_and_faults() {
    let bytes = pattern(60_000);
    let (mut stalled, mut delayed, mut faults) = (0, 0, 0);
    let mut hashes = BTreeSet::new();
    for seed in (0..10).chain(0..3) {
        let mut two = Two::new(seed, Faults::transient(0.2));
        two.sim.set_buffer(3000);
        two.sim.set_link(SERVER, CLIENT, Link::default().latency(MS).jitter(MS * 20));
        let (client, server) = two.connect();
        two.client.submit(Op::write(client, bytes.clone()).token(1)).unwrap();
        two.client.submit(Op::shutdown(client)).unwrap();
        two.client.submit(Op::timer(MS * 7).token(2)).unwrap();
        two.server.submit(Op::read(server).multishot()).unwrap();
        let (mut heard, mut is_cut) = (Vec::new(), false);
        let sim = two.sim.clone();
        let heard = two.sim.run(&mut [&mut two.server, &mut two.client], |_, watcher, c| {
            match c.result? {
                Done::Timer => {
                    is_cut = !is_cut;
                    if is_cut {
                        sim.cut(SERVER, CLIENT)
                    } else {
                        sim.heal(CLIENT, SERVER)
                    }
                    watcher.submit(Op::timer(MS * (1 + sim.random_below(60) as u32)))?;
                }
                Done::Read(data) if data.is_eof() => return Ok(Some(std::mem::take(&mut heard))),
                Done::Read(data) => heard.extend_from_slice(&data),
                _ => {}
            }
            Ok(None)
        });
        assert!(heard.unwrap() == bytes, "seed {seed}");
        let traffic = two.sim.traffic();
        stalled += traffic.stalled;
        delayed += traffic.delayed;
        faults += two.sim.injected().total();
        hashes.insert(two.sim.trace_hash());
    }
    assert!(stalled > 20 && delayed > 500 && faults > 500, "{stalled} {delayed} {faults}");
    assert_eq!(hashes.len(), 10, "the same seed is the same run");
}

/// Each direction, a connect, the end and a reset stall; nothing breaks.
#[test]
fn a_cut_stalls_what_is_sent_and_what_is_on_its_way() {
    for on_way in [false, true] {
        let mut two = Two::new(1, Faults::none());
        two.sim.set_link(SERVER, CLIENT, Link::default().latency(MS));
        let (client, server) = two.connect();
        if !on_way {
            two.sim.cut(SERVER, CLIENT);
        }
        two.client.submit(Op::write(client, "there")).unwrap();
        two.server.submit(Op::write(server, "back")).unwrap();
        two.server.submit(Op::close(server)).unwrap();
        two.client.connect([(SERVER, PORT)], ConnectOptions::default()).unwrap();
        two.client.submit(Op::read_exact(client, Vec::with_capacity(4), 4)).unwrap();
        two.client.submit(Op::read(client).token(5)).unwrap();
        if on_way {
            two.sim.cut(SERVER, CLIENT);
        }
        assert_eq!(two.settle().len(), 3, "two writes and a close are done");
        assert!(two.sim.traffic().stalled >= 3, "{:?}", two.sim.traffic());
        let report = two.sim.report();
        assert!(report.contains("10.0.0.1 and 10.0.0.2: cut off"), "{report}");
        assert!(report.contains("4 bytes"), "{report}");
        two.sim.advance(HOUR);
        two.sim.heal(CLIENT, SERVER);
        let start = two.sim.now();
        let ended = two.settle();
        near(two.sim.now() - start, MS * 2);
        // The bytes, then the reset, since the server has closed with bytes unread; and a refusal.
        let kinds: Vec<_> = ended.iter().map(Completion::error_kind).collect();
        let (reset, refused) = (ErrorKind::Os(libc::ECONNRESET), ErrorKind::Os(libc::ECONNREFUSED));
        assert_eq!(kinds, [None, Some(reset), Some(refused)], "{ended:?}");
    }
}

#[test]
fn datagrams_are_delayed_reordered_and_lost() {
    let mut two = Two::new(1, Faults::none());
    two.sim.set_link(SERVER, CLIENT, Link::default().latency(MS).jitter(MS * 50));
    let server = two.sim.at(SERVER).datagram((SERVER, 53)).unwrap();
    let client = two.sim.at(CLIENT).datagram((CLIENT, 0)).unwrap();
    let (server, client) = (two.server.attach(server).unwrap(), two.client.attach(client).unwrap());
    for i in 0..20u8 {
        two.server.submit(Op::recv_from(server)).unwrap();
        two.client.submit(Op::send_to(client, vec![i], (SERVER, 53))).unwrap();
    }
    let start = two.sim.now();
    let received = |ended: Vec<Completion>| -> Vec<u8> {
        let data = ended.into_iter().filter_map(|c| match c.result.unwrap() {
            Done::Received { data, from, .. } => {
                assert_eq!(from.ip().unwrap().ip().to_string(), "10.0.0.2");
                Some(data[0])
            }
            _ => None,
        });
        data.collect()
    };
    let mut numbers = received(two.settle());
    assert!(two.sim.now() - start > MS * 10);
    assert!(!numbers.is_sorted(), "{numbers:?}");
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<u8>>());
    // Half of them are on their way when the link is cut, half are sent after that.
    for i in 0..20u8 {
        two.server.submit(Op::recv_from(server)).unwrap();
        if i == 10 {
            two.sim.cut(SERVER, CLIENT);
        }
        two.client.submit(Op::send_to(client, vec![i], (SERVER, 53))).unwrap();
    }
    assert_eq!(received(two.settle()), []);
    assert_eq!(two.sim.traffic().lost, 20);
    two.sim.heal(SERVER, CLIENT);
    two.client.submit(Op::send_to(client, vec![7], (SERVER, 53))).unwrap();
    assert_eq!(received(two.settle()), [7]);
}

#[test]
#[cfg_attr(miri, ignore = "many bytes: too slow")]
fn faults_happen_at_their_address() {
    let mut two = Two::new(1, Faults::none());
    let at = (SERVER, PORT);
    two.sim.set_faults_at(at, Faults::transient(0.3));
    two.sim.set_faults_at((SERVER, 0), Faults { connect_refused: 1.0, ..Faults::none() });
    let (client, server) = two.connect();
    let bytes = pattern(20_000);
    two.client.submit(Op::write(client, bytes.clone())).unwrap();
    two.server.submit(Op::read(server)).unwrap();
    assert!(two.read(bytes.len()).1 == bytes);
    assert!(two.sim.injected_at(at).total() > 0);
    assert_eq!(two.sim.injected(), two.sim.injected_at(at));
    // Another port of the host has the faults of every port, and a pair of sockets has none.
    two.server.listen((SERVER, 81)).unwrap();
    two.client.submit(Op::connect((SERVER, 81))).unwrap();
    let refused = wait_one(&mut two.client).error_kind();
    assert_eq!(refused, Some(ErrorKind::Os(libc::ECONNREFUSED)));
    let others = two.sim.injected_at((SERVER, 0));
    assert_eq!((others.connect_refused, others.total()), (1, 1));
    let before = two.sim.injected();
    assert_eq!(before.total(), two.sim.injected_at(at).total() + 1);
    let (a, b) = attach_pair(&mut two.client, &two.sim);
    write(&mut two.client, a, "undisturbed");
    assert_eq!(read(&mut two.client, b).unwrap(), b"undisturbed");
    assert_eq!(two.sim.injected(), before);
    // The faults of an address also happen to existing connections.
    two.sim.set_faults_at(at, Faults { reset: 1.0, ..Faults::none() });
    two.client.submit(Op::write(client, "lost")).unwrap();
    let reset = wait_one(&mut two.client).error_kind();
    assert_eq!(reset, Some(ErrorKind::Os(libc::ECONNRESET)));
    assert_eq!(two.sim.injected_at(at).reset, 1);
}
