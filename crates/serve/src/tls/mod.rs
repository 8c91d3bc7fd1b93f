//! TLS without I/O: sessions, certificates, and whom to trust.
//!
//! [`Tls`] has the certificates of a server, and [`TlsClient`] says whom a client trusts. Servers
//! and engines take both, and do the rest: see the [guide](crate::guide#use-tls).
//!
//! A [`Session`] is one end of a connection: the bytes of the peer go in, plain text and bytes for
//! the peer come out. So it works with any loop, any stream, and in a simulation.
//!
//! The TLS library is rustls 0.23. None of its types is part of this interface.
//!
//! | feature | what it adds |
//! |---|---|
//! | `tls` | this module; it needs at least one of the next two |
//! | `ring` | cryptography by ring: `Provider::Ring` |
//! | `aws-lc-rs` | cryptography by aws-lc-rs: `Provider::AwsLcRs`. It has a key exchange that a quantum computer does not break |
//! | `webpki-roots` | clients trust the authorities of Mozilla's programme |
//! | `platform-verifier` | clients trust whom the system trusts |
//!
//! Both providers work side by side. The program chooses for each server and each client, and
//! nothing depends on a default of the process.
//!
//! # A server and a client
//!
//! Here each end is a thread with a socket:
//!
//! ```
//! # fn pair() -> (String, String) {
//! #     let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
//! #     (made.cert.pem(), made.signing_key.serialize_pem())
//! # }
//! use std::io::{Read, Result, Write};
//! use std::net::{TcpListener, TcpStream};
//! use windlass_serve::tls::{Pem, Session, SessionState, Tls, TlsClient};
//!
//! /// Sends what waits, then reads once.
//! fn turn(session: &mut Session, tcp: &mut TcpStream, plain: &mut Vec<u8>) -> Result<()> {
//!     let mut out = Vec::new();
//!     session.take_output(&mut out);
//!     tcp.write_all(&out)?;
//!     let mut input = [0; 4096];
//!     let result = match tcp.read(&mut input)? {
//!         0 => session.end_of_input(),
//!         count => session.feed_into(&input[..count], plain).map(|_| ()),
//!     };
//!     out.clear();
//!     session.take_output(&mut out);
//!     tcp.write_all(&out)?; // before an error ends it: the peer gets an alert
//!     Ok(result?)
//! }
//!
//! # let (certificate, key) = pair();
//! let tls = Tls::pem(Pem::bytes(&certificate), Pem::bytes(&key))?;
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let server = std::thread::spawn(move || -> Result<()> {
//!     let (mut tcp, _) = listener.accept()?;
//!     let (mut session, mut request) = (Session::server(&tls)?, Vec::new());
//!     while request.is_empty() {
//!         turn(&mut session, &mut tcp, &mut request)?;
//!     }
//!     let mut answer = Vec::new();
//!     session.write_all(&request, &mut answer)?;
//!     session.close(); // close_notify
//!     session.take_output(&mut answer);
//!     tcp.write_all(&answer)
//! });
//!
//! let trust = TlsClient::builder().roots(Pem::bytes(&certificate)).build()?;
//! let mut tcp = TcpStream::connect(address)?;
//! let (mut session, mut heard) = (Session::client(&trust, "localhost")?, Vec::new());
//! while !session.is_open() {
//!     turn(&mut session, &mut tcp, &mut heard)?;
//! }
//! let mut request = Vec::new();
//! session.write_all(b"hello", &mut request)?;
//! tcp.write_all(&request)?;
//! while session.state() != SessionState::PeerClosed {
//!     turn(&mut session, &mut tcp, &mut heard)?;
//! }
//! assert_eq!(heard, b"hello");
//! # server.join().expect("no panic")?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What is checked, and what is not
//!
//! - A client checks the certificate of the server against its authorities, its name, its time, and
//!   lists of revoked certificates if it has any. Each way to fail is a [`CertificateProblem`], and
//!   the error names the certificate. A server does the same with clients if it
//!   [asks](TlsBuilder::request_client_certificates) them.
//! - TLS 1.0 and 1.1, renegotiation, compression and early data do not exist here.
//! - The input may end only behind `close_notify`. Another end is an error, because an attacker
//!   may have cut the connection: see [`Session::end_of_input`].
//! - Until the handshake is done, a session takes at most 16 KiB of the peer, or as much as
//!   [`TlsBuilder::handshake_limit`] says.
//! - After 2²⁴ records, TLS 1.2 with AES-GCM ends with [`Error::KeysExhausted`]. TLS 1.3 changes
//!   its keys.
//!
//! # Memory
//!
//! An idle session costs this, after the handshake and a message each way. The test `tls_memory.rs`
//! counts the bytes with an allocator, here on a 64-bit system, with rustls 0.23.46, ring and a
//! P-256 certificate:
//!
//! | | TLS 1.2 | TLS 1.3 |
//! |---|---|---|
//! | server | 1224 bytes + 6.4 KB on the heap | 1224 bytes + 6.3 KB on the heap |
//! | client | 1224 bytes + 6.6 KB on the heap | 1224 bytes + 7.0 KB on the heap |
//!
//! All but 56 bytes of it at a server, and 168 at a client, are rustls' own. A connection of a
//! [`Server`](crate::Server) has 62 bytes more than a plain one, besides its session
//! (`tls_bounds.rs`).
//!
//! 4 KiB of the heap are the buffer for a record that has begun. It grows to 18 KiB for a long
//! record, and shrinks when that is over.
//!
//! A peer that sends half a hello costs 6.1 KB. A peer that sends as much as the limit of the
//! handshake allows costs 34 KB, because the buffer doubles. A server charges each handshake to
//! [`Limits::memory`](crate::Limits::memory): 4 KiB at its begin, 10 KiB from the first bytes of
//! the peer on, and more if they are more than 4 KiB. So a flood of half hellos stays within that.
//!
//! | a message that is read and written back, of | allocations, all of them by rustls |
//! |---|---|
//! | up to 4 KB | 2 |
//! | 16 KiB | 6 |
//! | 64 KiB | 12 |
//!
//! [`Session::feed`] and [`Session::write`] add none if `out` has room. A connection of a
//! [`Server`](crate::Server) adds none: its records leave in swap buffers. Several parts in one
//! `write` are one allocation more.

mod adapter;
mod certificate;
mod client;
mod error;
mod hello;
mod names;
mod pem;
mod provider;
mod reasons;
mod records;
mod role;
mod server;
mod session;
mod settings;
mod verifier;

pub use certificate::{CertificateInfo, CertificateProblem};
pub use client::{Destination, TlsClient, TlsClientBuilder};
pub use error::{Alert, TlsError as Error};
pub use hello::Hello;
pub use pem::{Pem, PemProblem};
pub use provider::{Provider, Version};
pub use role::TlsRole as Role;
pub use server::{Tls, TlsBuilder};
pub use session::{Fed, Session, SessionState};
pub use settings::Handshakes;
