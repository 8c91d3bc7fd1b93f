//! The memory of connections with TLS, counted by an allocator: what a handshake holds beside what
//! it is charged for, and what an open connection costs.

use std::time::Duration;

use crate::alloc::live_bytes;
#[cfg(unix)]
use crate::common::Poll;
use crate::common::{Bench, Harness, Simulated, bench};
use crate::peer::Peer;
use crate::tls;
use crate::tls::Pair;
use windlass::{Buf, Source};
use windlass_serve::tls::{Provider, Session, Tls, TlsClient};
use windlass_serve::{Action, Config, Conn, Handler, Limits, Server};

/// Takes what comes, and echoes it if it is short.
struct Taker;

impl Handler for Taker {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        if data.len() < 10 {
            c.write(data);
        }
        Action::None
    }
}

/// A server whose first address has TLS, and whose second one has none.
fn serve<T: Harness>(limits: Limits) -> (Bench<T::Driver, Taker>, Tls, TlsClient) {
    let (_, server, client) = tls::settings(Provider::Ring);
    let (tls, client) = (server.build().unwrap(), client.build().unwrap());
    let server = Server::new(|_| Taker).config(Config::new().limits(limits.idle(None)));
    let server = server.listen("tcp://127.0.0.1:0").unwrap().tls(tls.clone());
    (bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap()), tls, client)
}

fn hello(client: &TlsClient) -> Vec<u8> {
    let mut hello = Vec::new();
    Session::client(client, "localhost").unwrap().take_output(&mut hello);
    hello
}

/// How many bytes this many clients cost that say so, in this many pieces, and what the server
/// charges for them.
fn cost(
    b: &mut Bench<<Simulated as Harness>::Driver, Taker>,
    is_tls: bool,
    count: usize,
    pieces: &[&[u8]],
) -> (isize, usize) {
    let address = b.addresses[usize::from(!is_tls)].clone();
    let (before, charged) = (live_bytes(), b.running.engine().budget().used());
    let have = b.running.engine().len();
    let clients: Vec<Source> = (0..count).map(|_| b.connect_to(address.clone())).collect();
    b.until("they have come", |b| b.running.engine().len() == have + count);
    for piece in pieces {
        for client in &clients {
            b.say(*client, piece.to_vec());
        }
        b.run_for(Duration::from_millis(100));
    }
    drop(clients);
    (live_bytes() - before, b.running.engine().budget().used() - charged)
}

#[test]
fn a_handshake_is_charged_what_it_holds() {
    const COUNT: usize = 200;
    let limits = Limits::new().handshake(Duration::from_secs(3600));
    let (mut b, _, client) = serve::<Simulated>(limits);
    let hello = hello(&client);
    let long: Vec<u8> = [&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff][..], &[7; 16_000]].concat();
    let (half, rest) = hello.split_at(hello.len() / 2);
    let slow: Vec<&[u8]> = hello[..hello.len() - 1].chunks(1).take(20).collect();
    let parts: Vec<&[u8]> = long.chunks(1000).collect();
    let cases: [(&str, &[&[u8]]); 8] = [
        ("nothing", &[]),
        ("a byte", &[&hello[..1]]),
        ("half a hello", &[half]),
        ("half a hello, byte by byte", &slow),
        ("all but a byte", &[half, &rest[..rest.len() - 1]]),
        ("a hello that is answered", &[&hello]),
        ("a record of 5,000 bytes", &parts[..5]),
        ("a record of 16,000 bytes", &parts),
    ];
    // The lists of the bench and of the server have grown before.
    b.clients.all.reserve(4 * 8 * COUNT);
    cost(&mut b, false, 2 * 8 * COUNT, &[]);
    for client in b.clients.all.keys().copied().collect::<Vec<_>>() {
        b.watcher.abort(client);
    }
    b.until("they are gone", |b| b.running.engine().is_empty());
    for (what, pieces) in cases {
        let (plain, none) = cost(&mut b, false, COUNT, pieces);
        let (with_tls, charged) = cost(&mut b, true, COUNT, pieces);
        assert_eq!(none, 0);
        let holds = (with_tls - plain) / COUNT as isize;
        let charged = (charged / COUNT) as isize;
        println!("{what}: holds {holds} bytes, charged {charged}");
        // The list of all handshakes may double in this case, for this one and those before it.
        assert!(holds <= charged + 2000, "{what}: holds {holds} bytes, charged {charged}");
        if what.contains("hello") {
            assert!(charged <= holds * 2, "{what}: holds {holds} bytes, charged {charged}");
        }
    }
}

#[test]
fn ten_thousand_half_hellos_stay_within_the_budget() {
    let memory = 16 << 20;
    let limits = Limits::new().handshake(Duration::from_secs(3600)).memory(memory);
    let (mut b, _, client) = serve::<Simulated>(limits);
    let mut open = Peer::open(&mut b, &client);
    let half = &hello(&client)[..100];
    let before = live_bytes();
    let address = b.addresses[1].clone();
    let plain: Vec<Source> = (0..10_000).map(|_| b.connect_to(address.clone())).collect();
    for client in &plain {
        b.say(*client, half.to_vec());
    }
    b.run_for(Duration::from_secs(1));
    let of_plain = live_bytes() - before;
    let before = live_bytes();
    let clients: Vec<Source> = (0..10_000).map(|_| b.connect()).collect();
    for client in &clients {
        b.say(*client, half.to_vec());
    }
    b.run_for(Duration::from_secs(1));
    let grown = live_bytes() - before - of_plain;
    let used = b.running.engine().budget().used();
    println!("{grown} bytes more than plain connections; the budget has {used} of {memory}");
    assert!(used <= memory && grown <= memory as isize, "{grown}");
    let counters = b.running.report().counters;
    let (begun, refused) = (counters.handshakes.begun, counters.refused);
    assert!(
        begun <= memory as u64 / 4096 && refused > 8000,
        "{begun} have begun, {refused} are refused"
    );
    // Those that are open go on.
    open.say(&mut b, b"hello");
    open.until(&mut b, "it is echoed", |peer, _| peer.plain == b"hello");
}

/// What a session of a server costs by itself, after a message each way.
fn bare_session(tls: &Tls, client: &TlsClient) -> isize {
    let mut pair = Pair::open(tls, client);
    pair.client.write_all(b"hello", &mut pair.to_server).unwrap();
    pair.run().unwrap();
    pair.server.write_all(b"hello", &mut pair.to_client).unwrap();
    pair.run().unwrap();
    let before = live_bytes();
    let Pair { server, .. } = pair;
    drop(server);
    let heap = before - live_bytes();
    heap + size_of::<Session>() as isize
}

/// The sockets are the system's, so that only the server's own bytes count.
#[cfg(unix)]
#[test]
fn an_open_idle_connection_costs_its_session_and_a_pointer() {
    const COUNT: usize = 100;
    let (mut b, tls, client) = serve::<Poll>(Limits::new());
    bare_session(&tls, &client);
    let session = bare_session(&tls, &client);
    let mut all = [0, 0];
    for is_tls in [false, true, false, true] {
        b.clients.all.reserve(4 * COUNT);
        // The lists of the server have grown before.
        let before = live_bytes();
        let mut peers = Vec::new();
        for _ in 0..COUNT {
            if is_tls {
                let mut peer = Peer::open(&mut b, &client);
                peer.say(&mut b, b"hello");
                peer.until(&mut b, "it is echoed", |peer, _| peer.plain == b"hello");
                peers.push(peer.client);
            } else {
                let address = b.addresses[1].clone();
                let plain = b.connect_to(address);
                b.say(plain, "hello");
                b.until("it is echoed", |b| b.client(plain).heard == b"hello");
                peers.push(plain);
            }
        }
        b.until("nothing waits", |b| b.running.engine().budget().used() == 0);
        for client in &peers {
            b.clients.all.get_mut(client).unwrap().heard = Vec::new();
        }
        let connections = b.running.engine().len();
        let cost = (live_bytes() - before) / COUNT as isize;
        all[usize::from(is_tls)] = cost;
        println!("{cost} bytes, tls: {is_tls}");
        for client in peers {
            b.watcher.abort(client);
        }
        b.until("they are gone", |b| b.running.engine().len() + COUNT == connections);
    }
    let more = all[1] - all[0] - session;
    println!("a session {session} bytes; a connection {} and {more} more than a plain one", all[1]);
    // The session's own 56 bytes beyond the library's are part of the 300.
    assert!(more + 56 <= 300, "{more} bytes");
}
