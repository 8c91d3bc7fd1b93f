//! What a session of TLS takes: memory while it is idle, and allocations for a message. Each figure
//! stands beside that of the library alone. The documents of the module `tls` have them:
//! `cargo test -p windlass-serve --features ring --test memory tls_memory:: -- --nocapture`.

use std::io::{IoSlice, Read, Write};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::alloc::{allocations, live_bytes};
use crate::tls::{Authority, Made, Pair, noon};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig};
use windlass::Buf;
use windlass_serve::tls::{Pem, Provider, Session, Tls, TlsClient, Version};

const COUNT: usize = 64;

/// The certificate of all tests.
fn identity() -> (Authority, Made) {
    let authority = Authority::new("the root of a test");
    let made = authority.server(&["localhost"]);
    (authority, made)
}

fn both(version: Version) -> (Tls, TlsClient) {
    let provider = *Provider::ALL.last().expect("one");
    let (authority, made) = identity();
    let (certificate, key) = made.pems();
    let server = Tls::builder().provider(provider).clock(noon).versions([version]);
    let server = server.certificate(certificate, key).build().unwrap();
    let client = TlsClient::builder().provider(provider).clock(noon).session_cache(0);
    (server, client.roots(Pem::bytes(&authority.pem)).build().unwrap())
}

#[derive(Debug)]
struct Noon;

impl TimeProvider for Noon {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(noon().duration_since(UNIX_EPOCH).expect("it is later")))
    }
}

/// The same settings, of the library alone.
fn bare_configs(version: Version) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    #[cfg(not(feature = "ring"))]
    use rustls::crypto::aws_lc_rs as provider;
    #[cfg(feature = "ring")]
    use rustls::crypto::ring as provider;
    let version = match version {
        Version::Tls12 => &rustls::version::TLS12,
        _ => &rustls::version::TLS13,
    };
    let (authority, made) = identity();
    let chain = vec![CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let cryptography = Arc::new(provider::default_provider());
    let mut server = ServerConfig::builder_with_details(Arc::clone(&cryptography), Arc::new(Noon))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    server.ticketer = provider::Ticketer::new().unwrap();
    let mut client = ClientConfig::builder_with_details(cryptography, Arc::new(Noon))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.resumption = rustls::client::Resumption::disabled();
    (server.into(), client.into())
}

/// Gives a connection of the library all input, and returns its plain text.
fn bare_feed(connection: &mut Connection, mut input: &[u8], plain: &mut Vec<u8>) {
    while !input.is_empty() {
        connection.read_tls(&mut input).unwrap();
        let state = connection.process_new_packets().unwrap();
        let (before, count) = (plain.len(), state.plaintext_bytes_to_read());
        plain.resize(before + count, 0);
        connection.reader().read_exact(&mut plain[before..]).unwrap();
    }
}

/// Two connections of the library, and what each takes, after the handshake and a short message
/// each way.
fn bare_pair(configs: &(Arc<ServerConfig>, Arc<ClientConfig>)) -> [(Connection, isize); 2] {
    let start = live_bytes();
    let server = rustls::ServerConnection::new(Arc::clone(&configs.0)).unwrap();
    let mut server = (Connection::from(server), live_bytes() - start);
    let start = live_bytes();
    let name = "localhost".try_into().unwrap();
    let client = ClientConnection::new(Arc::clone(&configs.1), name).unwrap();
    let mut client = (Connection::from(client), live_bytes() - start);
    let (mut out, mut plain) = (Vec::with_capacity(8192), Vec::with_capacity(64));
    for round in 0..6 {
        for at_server in [false, true] {
            let (from, to) =
                if at_server { (&mut server, &mut client) } else { (&mut client, &mut server) };
            let start = live_bytes();
            if round == 3 {
                from.0.writer().write_all(b"hello").unwrap();
            }
            while from.0.wants_write() {
                from.0.write_tls(&mut out).unwrap();
            }
            from.1 += live_bytes() - start;
            let start = live_bytes();
            bare_feed(&mut to.0, &out, &mut plain);
            to.1 += live_bytes() - start;
            out.clear();
        }
    }
    assert_eq!(plain, b"hellohello");
    [server, client]
}

/// The same, of sessions. What is on its way does not count.
fn pair(server: &Tls, client: &TlsClient) -> (Pair, isize, isize) {
    let start = live_bytes();
    let mut pair = Pair::new(server, client);
    let begun = live_bytes() - start;
    // The parts of a new pair: the server has no more than its first buffer before the hello.
    let start = live_bytes();
    let lone = Session::server(server).unwrap();
    let mut of_server = live_bytes() - start;
    drop(lone);
    let mut of_client = begun - of_server;
    for buffer in [&mut pair.to_client, &mut pair.to_server] {
        buffer.reserve(8192);
    }
    pair.client_plain.reserve(64);
    pair.server_plain.reserve(64);
    for round in 0..6 {
        let start = live_bytes();
        if round == 3 {
            pair.client.write_all(b"hello", &mut pair.to_server).unwrap();
        }
        pair.client.take_output(&mut pair.to_server);
        of_client += live_bytes() - start;
        let start = live_bytes();
        pair.server.feed_into(&pair.to_server, &mut pair.server_plain).unwrap();
        pair.to_server.clear();
        if round == 3 {
            pair.server.write_all(b"hello", &mut pair.to_client).unwrap();
        }
        pair.server.take_output(&mut pair.to_client);
        of_server += live_bytes() - start;
        let start = live_bytes();
        pair.client.feed_into(&pair.to_client, &mut pair.client_plain).unwrap();
        pair.to_client.clear();
        of_client += live_bytes() - start;
    }
    assert_eq!((&pair.client_plain[..], &pair.server_plain[..]), (&b"hello"[..], &b"hello"[..]));
    (pair, of_server, of_client)
}

#[test]
fn an_idle_session_takes_few_bytes_more_than_the_library() {
    let own = size_of::<Session>() as isize;
    println!("a session: {own} bytes, and on the heap:");
    for version in Version::ALL {
        let (server, client) = both(*version);
        let configs = bare_configs(*version);
        drop((bare_pair(&configs), pair(&server, &client))); // what is made once
        let (mut bare, mut ours) = ([0, 0], [0, 0]);
        let mut kept = Vec::with_capacity(COUNT);
        for _ in 0..COUNT {
            let [(_server, at_server), (_client, at_client)] = bare_pair(&configs);
            bare = [bare[0] + at_server, bare[1] + at_client];
            let (pair, at_server, at_client) = pair(&server, &client);
            ours = [ours[0] + at_server, ours[1] + at_client];
            kept.push(pair);
        }
        let count = COUNT as isize;
        let sizes = [size_of::<rustls::ServerConnection>(), size_of::<ClientConnection>()];
        for (i, name) in ["server", "client"].into_iter().enumerate() {
            let (bare, ours) = (bare[i] / count, ours[i] / count);
            let library = sizes[i] as isize + bare;
            println!("{version}, {name}: {ours}; the library has {} + {bare}", sizes[i]);
            // A `Connection` of either side has the size of the larger one.
            assert!(own + ours <= library + 300, "{} more", own + ours - library);
        }
    }
    // What every session has beside the connection of the library.
    let more = own - size_of::<Connection>() as isize;
    assert!(more <= 100, "{more} bytes");
}

#[test]
fn long_records_leave_no_memory_behind() {
    for version in Version::ALL {
        let (server, client) = both(*version);
        let (mut pair, ..) = pair(&server, &client);
        let mut records = Vec::with_capacity(200_000);
        pair.client.write_all(&[7; 100_000], &mut records).unwrap();
        let before = live_bytes();
        // In place, in two parts: in the middle of a record, and at the end.
        let (first, second) = records.split_at_mut(20_000);
        let mut plain = 0;
        for part in [first, second] {
            let fed = pair.server.feed(part);
            fed.result.unwrap();
            plain += fed.plain;
        }
        let mut rest = Vec::new();
        plain += pair.server.take_plain(&mut rest);
        assert_eq!(plain, 100_000);
        drop(rest);
        let more = live_bytes() - before;
        println!("{version}: {more} bytes more after records of 16 KiB");
        assert!(more <= 0, "{more} bytes");
    }
}

/// The allocations of a session for a message that it reads and writes back.
fn allocations_of_echo(pair: &mut Pair, message: &[u8]) -> u64 {
    pair.to_server.clear();
    pair.client.write_all(message, &mut pair.to_server).unwrap();
    pair.to_client.clear();
    let before = allocations();
    let fed = pair.server.feed(&mut pair.to_server);
    fed.result.unwrap();
    assert_eq!(fed.plain, message.len());
    let parts = [IoSlice::new(&pair.to_server[..fed.plain])];
    let taken = pair.server.write(&parts, &mut pair.to_client).unwrap();
    let count = allocations() - before;
    assert_eq!(taken, message.len());
    pair.client.feed_into(&pair.to_client, &mut Vec::new()).unwrap();
    count
}

/// The same, of the library alone.
fn bare_allocations_of_echo(ends: &mut [(Connection, isize); 2], message: &[u8]) -> u64 {
    let [(server, _), (client, _)] = ends;
    let mut there = Vec::with_capacity(1 << 17);
    client.writer().write_all(message).unwrap();
    while client.wants_write() {
        client.write_tls(&mut there).unwrap();
    }
    let mut back = Vec::with_capacity(1 << 17);
    let mut plain = Vec::with_capacity(1 << 17);
    let before = allocations();
    bare_feed(server, &there, &mut plain);
    server.writer().write_all(&plain).unwrap();
    while server.wants_write() {
        server.write_tls(&mut back).unwrap();
    }
    let count = allocations() - before;
    bare_feed(client, &back, &mut Vec::new());
    count
}

#[test]
fn a_message_allocates_no_more_than_in_the_library() {
    for version in Version::ALL {
        let (server, client) = both(*version);
        let (mut pair, ..) = pair(&server, &client);
        let mut bare = bare_pair(&bare_configs(*version));
        pair.to_client.reserve(1 << 17);
        pair.to_server.reserve(1 << 17);
        for len in [1, 64, 1024, 4000, 8000, 16_000, 16_384, 65_536] {
            let message = vec![3; len];
            let mut counts = (0, 0);
            for _ in 0..10 {
                counts = (
                    allocations_of_echo(&mut pair, &message),
                    bare_allocations_of_echo(&mut bare, &message),
                );
            }
            println!(
                "{version}, {len} bytes: {} allocations, the library has {}",
                counts.0, counts.1
            );
            assert!(counts.0 <= counts.1, "{len} bytes: {counts:?}");
        }
    }
}

/// Echoes on the loop of this thread, and counts what has come.
#[cfg(unix)]
struct Echo(usize);

#[cfg(unix)]
impl windlass_serve::Handler for Echo {
    type State = ();
    fn data(&mut self, c: &mut windlass_serve::Conn<'_, ()>, data: Buf) -> windlass_serve::Action {
        self.0 += data.len();
        c.write(data);
        windlass_serve::Action::None
    }
}

/// A client on a thread of its own: says a message and hears it again, so many times.
#[cfg(unix)]
fn echo_client(address: std::net::SocketAddr, tls: &TlsClient, len: usize, rounds: usize) {
    let mut tcp = std::net::TcpStream::connect(address).unwrap();
    let mut session = Session::client(tls, "localhost").unwrap();
    let (mut out, mut plain, mut input) = (Vec::new(), Vec::new(), vec![0; 1 << 16]);
    let message = vec![3; len];
    let mut said = 0;
    while plain.len() < rounds * len {
        session.take_output(&mut out);
        if session.is_open() && said < rounds && plain.len() == said * len {
            session.write_all(&message, &mut out).unwrap();
            said += 1;
        }
        tcp.write_all(&out).unwrap();
        out.clear();
        let count = tcp.read(&mut input).unwrap();
        session.feed_into(&input[..count], &mut plain).unwrap();
    }
    session.close();
    session.take_output(&mut out);
    tcp.write_all(&out).unwrap();
}

/// The records come from the library into swap buffers, and the plain text lies where it came.
#[cfg(unix)]
#[test]
fn a_message_of_a_connection_allocates_no_more_than_in_the_library() {
    use windlass::{Completions, Watcher};
    use windlass_serve::Server;
    const BATCH: usize = 20;
    for version in Version::ALL {
        let (server, client) = both(*version);
        let mut bare = bare_pair(&bare_configs(*version));
        for len in [64, 16_384] {
            let message = vec![3; len];
            let bare = (0..10).map(|_| bare_allocations_of_echo(&mut bare, &message)).last();
            let listening = Server::new(|_| Echo(0)).listen("tcp://127.0.0.1:0").unwrap();
            let mut watcher = Watcher::new().expect("a watcher");
            let mut running = listening.tls(server.clone()).start_on(&mut watcher).unwrap();
            let listener = running.engine().listeners()[0];
            let address = watcher.local_address(listener).unwrap().ip().unwrap();
            let client = client.clone();
            let peer = std::thread::spawn(move || echo_client(address, &client, len, 6 * BATCH));
            let mut done = Completions::new();
            // The first messages make what the others use again. A record that comes in two reads
            // costs more in the library, too: so the best of the others counts.
            let mut best = u64::MAX;
            for batch in 1..=6 {
                let before = allocations();
                while running.handler().0 < batch * BATCH * len {
                    watcher.wait(&mut done).unwrap();
                    for c in done.drain(..) {
                        running.complete(&mut watcher, c);
                    }
                    running.turn(&mut watcher);
                }
                if batch > 1 {
                    best = best.min(allocations() - before);
                }
            }
            peer.join().unwrap();
            let (ours, bare) = (best as f64 / BATCH as f64, bare.unwrap());
            println!("{version}, {len} bytes: {ours} allocations, the library has {bare}");
            assert!(ours <= bare as f64, "{version}, {len} bytes: {ours}, {bare}");
        }
    }
}

/// The buffers of reads from a socket to which so many bytes are written at a time.
#[cfg(unix)]
fn read_leases(pieces: &[&[u8]]) -> (windlass::Watcher, Vec<Buf>) {
    use windlass::{Done, Op, Watcher};
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    let mut watcher = Watcher::new().expect("a watcher");
    let source = watcher.attach(ours).unwrap();
    watcher.submit(Op::read(source).multishot()).unwrap();
    let mut done = windlass::Completions::new();
    let mut bufs = Vec::new();
    for piece in pieces {
        theirs.write_all(piece).unwrap();
        let mut left = piece.len();
        while left > 0 {
            watcher.wait_timeout(&mut done, std::time::Duration::from_secs(20)).unwrap();
            for completion in done.drain(..) {
                let Ok(Done::Read(buf)) = completion.result else { panic!("a read") };
                left -= buf.len();
                bufs.push(buf);
            }
        }
    }
    (watcher, bufs)
}

/// The library copies the plain text of each record once. Nothing else is allocated.
#[cfg(unix)]
#[test]
fn a_lease_becomes_plain_text_in_place() {
    let (server, client) = both(Version::Tls13);
    let (mut pair, ..) = pair(&server, &client);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    pair.client.write_all(b"warm", &mut first).unwrap();
    pair.client.write_all(&[7; 3000], &mut second).unwrap();
    let (_watcher, bufs) = read_leases(&[&first, &second]);
    let mut heard: Vec<u8> = Vec::with_capacity(4000);
    for (i, buf) in bufs.into_iter().enumerate() {
        assert!(buf.is_lease());
        let at = buf.as_ptr();
        let before = allocations();
        let (plain, result) = pair.server.feed_buf(buf);
        assert_eq!(allocations() - before, 1, "buffer {i}");
        result.unwrap();
        assert!(plain.is_lease() && plain.as_ptr() == at);
        heard.extend(&*plain);
    }
    assert_eq!(heard, [&b"warm"[..], &[7; 3000]].concat());
}

#[test]
fn every_kind_of_buffer_becomes_plain_text() {
    let (server, client) = both(Version::Tls13);
    let (mut pair, ..) = pair(&server, &client);
    let mut records = Vec::new();
    pair.client.write_all(&[7; 40_000], &mut records).unwrap();
    let (first, rest) = records.split_at(16_390);
    let (second, third) = rest.split_at(10_000);
    let shared: Arc<[u8]> = second.into();
    let mut heard = Vec::new();
    for buf in [
        Buf::from(first.to_vec()),
        Buf::from(Arc::clone(&shared)),
        Buf::list([Buf::from(third.to_vec()), Buf::from("not TLS")]),
    ] {
        let (plain, result) = pair.server.feed_buf(buf);
        heard.extend(plain.into_vec());
        if heard.len() < 40_000 {
            result.unwrap();
        } else {
            // What is in front of an error is whole.
            assert!(matches!(result, Err(windlass_serve::tls::Error::BadMessage(_))), "{result:?}");
        }
    }
    assert!(heard == [7; 40_000]);
    assert_eq!(*shared, *second, "nobody has changed it");
}

#[test]
fn several_parts_are_one_allocation_more() {
    let (server, client) = both(Version::Tls13);
    let (mut pair, ..) = pair(&server, &client);
    let mut out = Vec::with_capacity(1 << 17);
    for (parts, expected) in [(&[&[1; 900][..]][..], 1), (&[b"head", b"body", &[1; 900]], 2)] {
        let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut count = 0;
        for _ in 0..4 {
            let before = allocations();
            pair.server.write(&parts, &mut out).unwrap();
            count = allocations() - before;
        }
        assert_eq!(count, expected);
    }
}

/// What comes in one read is often more than one message.
#[test]
fn messages_in_one_input_allocate_no_more_than_in_the_library() {
    for version in Version::ALL {
        let (server, client) = both(*version);
        let (mut pair, ..) = pair(&server, &client);
        let mut bare = bare_pair(&bare_configs(*version));
        for lens in [&[100; 30][..], &[9000, 1, 9000, 1, 100, 16_384, 3], &[16_384; 10]] {
            let mut counts = (0, 0);
            for _ in 0..4 {
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                let [(server, _), (client, _)] = &mut bare;
                for len in lens {
                    pair.client.write_all(&vec![3; *len], &mut ours).unwrap();
                    client.writer().write_all(&vec![3; *len]).unwrap();
                    while client.wants_write() {
                        client.write_tls(&mut theirs).unwrap();
                    }
                }
                let mut plain = Vec::with_capacity(1 << 18);
                let before = allocations();
                let fed = pair.server.feed(&mut ours);
                let middle = allocations();
                bare_feed(server, &theirs, &mut plain);
                counts = (middle - before, allocations() - middle);
                fed.result.unwrap();
                assert_eq!(fed.plain, lens.iter().sum::<usize>());
            }
            println!("{version}, {} messages: {counts:?} allocations", lens.len());
            // The buffer shrinks at the end of the input, and not at the begin of the next one.
            assert!(counts.0 <= counts.1 + 1, "{counts:?}");
        }
    }
}

/// A peer that sends bytes and no hello costs no more than the limit for them.
#[test]
fn half_a_hello_takes_what_was_sent() {
    let (server, client) = both(Version::Tls13);
    let mut hello = Vec::new();
    Session::client(&client, "localhost").unwrap().take_output(&mut hello);
    for later in [false, true] {
        let new = || match later {
            true => Session::server_later(16 << 10),
            false => Session::server(&server).unwrap(),
        };
        drop(new());
        let before = live_bytes();
        let mut session = new();
        let empty = live_bytes() - before;
        session.feed_into(&hello[..hello.len() - 1], &mut Vec::new()).unwrap();
        let half = live_bytes() - before;
        // The most that a message of the handshake can make it keep.
        let mut endless = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
        endless.resize(20_000, 0);
        let mut full = new();
        let before = live_bytes();
        let result = full.feed_into(&endless, &mut Vec::new());
        assert!(result.is_err());
        let most = live_bytes() - before;
        // In pieces the buffer doubles.
        let mut slow = new();
        let before = live_bytes();
        assert!(endless.chunks(999).any(|part| slow.feed_into(part, &mut Vec::new()).is_err()));
        let slow = live_bytes() - before;
        println!(
            "later: {later}; empty {empty}, half a hello {half}, most {most} or {slow} on the heap"
        );
        assert!(half <= 4096 + 1000 && most <= (16 << 10) + 1000 && slow <= (32 << 10) + 1000);
    }
}
