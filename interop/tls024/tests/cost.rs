//! What a session takes on each version of rustls: memory while it is idle, and allocations for a
//! message that it reads and writes back. `README.md` has the figures:
//! `cargo test --manifest-path interop/tls024/Cargo.toml --test cost -- --nocapture`.
#![allow(missing_docs)] // a test binary has no users

use alloc::{allocations, live_bytes};

#[path = "../../../tests/common/alloc.rs"]
mod alloc;

/// How many bytes an idle session takes, itself and on the heap, at a server and at a client; and
/// how many allocations a server makes for a handshake.
struct Idle {
    own: isize,
    heap: [isize; 2],
    handshake: u64,
}

/// The measurements, of one version.
macro_rules! measurements {
    ($name:ident, $tls:path) => {
        mod $name {
            use $tls as tls;

            use tls::{Pem, Session, Tls, TlsClient, Version};

            use super::{Idle, allocations, live_bytes};

            pub(super) fn settings(is_new: bool) -> (Tls, TlsClient) {
                let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
                let certificate = Pem::bytes(made.cert.pem());
                let key = Pem::bytes(made.signing_key.serialize_pem());
                let version = if is_new { Version::Tls13 } else { Version::Tls12 };
                let server = Tls::builder().versions([version]);
                let server = server.certificate(certificate.clone(), key).build().unwrap();
                let client = TlsClient::builder().versions([version]).session_cache(0);
                (server, client.roots(certificate).build().unwrap())
            }

            /// A step of one end, and how it changes the live bytes.
            fn step<T>(live: &mut isize, act: impl FnOnce() -> T) -> T {
                let before = live_bytes();
                let result = act();
                *live += live_bytes() - before;
                result
            }

            /// A pair after the handshake and a message each way.
            pub(super) fn pair(both: &(Tls, TlsClient)) -> ([Session; 2], Idle) {
                let (mut at_server, mut at_client, mut handshake) = (0, 0, 0);
                let mut server = step(&mut at_server, || Session::server(&both.0).unwrap());
                let new = || Session::client(&both.1, "localhost").unwrap();
                let mut client = step(&mut at_client, new);
                let (mut to_server, mut to_client) =
                    (Vec::with_capacity(1 << 14), Vec::with_capacity(1 << 14));
                let mut plain = Vec::with_capacity(64);
                for round in 0..6 {
                    step(&mut at_client, || {
                        if round == 3 {
                            client.write_all(b"hello", &mut to_server).unwrap();
                        }
                        client.take_output(&mut to_server);
                    });
                    let before = allocations();
                    step(&mut at_server, || {
                        server.feed_into(&to_server, &mut plain).unwrap();
                        if round == 3 {
                            server.write_all(b"hello", &mut to_client).unwrap();
                        }
                        server.take_output(&mut to_client);
                    });
                    handshake += if round < 3 { allocations() - before } else { 0 };
                    step(&mut at_client, || client.feed_into(&to_client, &mut plain).unwrap());
                    to_server.clear();
                    to_client.clear();
                }
                assert_eq!(plain, b"hellohello");
                let own = size_of::<Session>() as isize;
                ([server, client], Idle { own, heap: [at_server, at_client], handshake })
            }

            /// The allocations of a server for a message of this length.
            pub(super) fn echo([server, client]: &mut [Session; 2], len: usize) -> u64 {
                let message = vec![3; len];
                let (mut there, mut back) = (Vec::new(), Vec::with_capacity(1 << 17));
                let mut count = 0;
                for _ in 0..10 {
                    there.clear();
                    back.clear();
                    client.write_all(&message, &mut there).unwrap();
                    let before = allocations();
                    let fed = server.feed(&mut there);
                    fed.result.unwrap();
                    server.write_all(&there[..fed.plain], &mut back).unwrap();
                    count = allocations() - before;
                    let mut heard = Vec::new();
                    client.feed_into(&back, &mut heard).unwrap();
                    assert!(heard == message);
                }
                count
            }
        }
    };
}

measurements!(next, windlass_serve::tls);
measurements!(now, windlass_serve_now::tls);

#[test]
fn the_next_version_takes_less() {
    for is_new in [false, true] {
        let version = if is_new { "TLS 1.3" } else { "TLS 1.2" };
        let (on_next, on_now) = (next::settings(is_new), now::settings(is_new));
        // What is made once does not count.
        drop((next::pair(&on_next), now::pair(&on_now)));
        let (mut next_pair, next) = next::pair(&on_next);
        let (mut now_pair, now) = now::pair(&on_now);
        for (name, idle) in [("0.23", &now), ("0.24", &next)] {
            let Idle { own, heap: [server, client], handshake } = idle;
            println!(
                "{version}, {name}: {own} bytes + {server} at a server, {client} at a client; \
                 {handshake} allocations for a handshake"
            );
        }
        assert!(next.handshake < now.handshake);
        for (next_heap, now_heap) in next.heap.into_iter().zip(now.heap) {
            assert!(next.own + next_heap < now.own + now_heap);
        }
        for len in [64, 1024, 16_384, 65_536] {
            let counts = (next::echo(&mut next_pair, len), now::echo(&mut now_pair, len));
            println!("{version}, {len} bytes: {1} allocations, {0} on 0.24", counts.0, counts.1);
            assert!(counts.0 < counts.1, "{counts:?}");
        }
    }
}
