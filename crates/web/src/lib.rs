//! HTTP/1.x servers and clients on [windlass]: routes, bodies, limits and events, in a loop that is
//! yours.
//!
//! A handler is a closure. What it returns converts into a [`Response`]:
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use windlass_web::{App, Error, Response, Status};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Note {
//!     text: String,
//! }
//!
//! fn notes() -> App<Vec<Note>> {
//!     App::with(|_loop| Vec::new()) // a state for each loop: no lock
//!         .post("/notes", |notes, q| {
//!             notes.push(q.json()?); // 400, 413 and 415 by itself
//!             Ok::<_, Error>(Response::json(&(notes.len() - 1)).status(Status::CREATED))
//!         })
//!         .get("/notes/{id}", |notes, q| {
//!             let note = notes.get(q.parse::<usize>("id")?).ok_or(Status::NOT_FOUND)?;
//!             Ok::<_, Error>(Response::json(note))
//!         })
//!         .get("/report", |_, q| q.blocking(|| 6 * 7, |_, n| n.to_string())) // off the loop
//! }
//!
//! notes().listen("127.0.0.1:8080")?.run()?; // until SIGTERM; requests that run are answered
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Its test runs the same server and its clients in a [simulation](mod@test), for a hundred seeds,
//! with connections that break at random bytes:
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! # use windlass_web::{App, Error, Response, Status};
//! # #[derive(Serialize, Deserialize)]
//! # struct Note {
//! #     text: String,
//! # }
//! # fn notes() -> App<Vec<Note>> {
//! #     App::with(|_loop| Vec::new())
//! #         .post("/notes", |notes, q| {
//! #             notes.push(q.json()?);
//! #             Ok::<_, Error>(Response::json(&(notes.len() - 1)).status(Status::CREATED))
//! #         })
//! #         .get("/notes/{id}", |notes, q| {
//! #             let note = notes.get(q.parse::<usize>("id")?).ok_or(Status::NOT_FOUND)?;
//! #             Ok::<_, Error>(Response::json(note))
//! #         })
//! # }
//! windlass_web::test::seeds(0..100, |sim| {
//!     sim.faults(0.1);
//!     sim.serve("notes.test:80", notes);
//!     let (mut client, mut kept) = (sim.client(), Vec::new());
//!     for n in 0..20 {
//!         let note = Note { text: n.to_string() };
//!         if let Ok(response) = client.post("http://notes.test/notes").json(&note).send() {
//!             kept.push((response.json::<usize>()?, note.text));
//!         }
//!     }
//!     for (id, text) in kept {
//!         let url = format!("http://notes.test/notes/{id}");
//!         assert_eq!(client.get(&url).retry()?.json::<Note>()?.text, text);
//!     }
//!     Ok(())
//! });
//! ```
//!
//! A WebSocket server stands beside HTTP, on the same port. This one sends every message back:
//!
//! ```no_run
//! use windlass_web::websocket::{Message, Peer, Socket};
//! use windlass_web::{App, Status};
//!
//! struct Echo;
//! impl Peer<()> for Echo {
//!     fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
//!         c.send(message);
//!     }
//! }
//!
//! App::new()
//!     .websocket("/echo", |_, _| Ok::<_, Status>(Echo))
//!     .listen("127.0.0.1:8080")?
//!     .run()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Its client sends one message, and prints what comes until the connection ends:
//!
//! ```no_run
//! use windlass_web::client::FetchEvent::{Message, Opened};
//! use windlass_web::{Client, websocket::WebSocketSettings, windlass::Watcher};
//!
//! # fn main() -> std::io::Result<()> {
//! let (mut watcher, mut client) = (Watcher::new()?, Client::new(Default::default()));
//! client.open_websocket("ws://127.0.0.1:8080/echo", &WebSocketSettings::new());
//! loop {
//!     match client.wait_event(&mut watcher)? {
//!         Opened { socket, .. } => _ = client.socket(socket).expect("it is open").send("hello"),
//!         Message { message, .. } => println!("{:?}", message.as_text()),
//!         end => return Ok(println!("{end:?}")), // `Closed`, or `Failed` with the error
//!     }
//! }
//! # }
//! ```
//!
//! The [`guide`] has a page for each task: routes, errors, a database, limits, tests, deployment,
//! and why a connection ended. [`coming_from`] is for those who know nbhttp, hyper, axum, actix,
//! nbio's websocket, tungstenite or ws.
//!
//! | task | item |
//! |---|---|
//! | routes, hooks and state | [`App`] |
//! | what a handler gets, and what it returns | [`Request`], [`Response`], [`Status`], [`Error`] |
//! | code that blocks | [`Request::blocking`] |
//! | a request's body in parts, or after a look at the head | [`body`] |
//! | uploads: a body that is saved to a file, a form with files | [`Request::save`], [`upload`] |
//! | the response of another server | [`Request::fetch`], [`Client`], [`client`] |
//! | a reverse proxy: requests that go on to another server | [`Request::forward`], [`proxy`] |
//! | a response of another thread | [`Response::later`] |
//! | a response's body that is made while it is sent | [`Response::stream`], [`Response::writer`] |
//! | files, and a directory of them | [`App::files`], [`Response::file`], [`mod@files`] |
//! | Server-Sent Events | [`Response::events`], [`Remote::publish`], [`App::every`] |
//! | WebSockets | `App::websocket`, `Client::open_websocket`, `websocket` |
//! | how long a phase may take, and how large a part may be | [`Limits`] |
//! | logs, metrics and counts | [`App::finished`], [`report`] |
//! | another protocol on the same connection | [`upgrade`] |
//! | compressed responses | `Compress`, with the feature `deflate` |
//! | a server beside other code of `main` | [`App::start`], [`Remote`] |
//! | HTTP in a loop of the program, beside other operations | [`Engine`] |
//! | tests | [`App::call`], [`mod@test`] |
//!
//! | feature | what it adds |
//! |---|---|
//! | `json` (on by default) | bodies as JSON: `Request::json`, `Response::json` |
//! | `websocket` (on by default) | WebSockets: see the [guide](guide#talk-over-websockets) |
//! | `deflate` | compressed responses (`App::compress`) and messages. [Clients](client) decode both |
//! | `http` | requests and responses as types of the crate `http` |
//! | `tracing` | a span of the crate `tracing` for each request: see the [guide](guide#deploy) |
//! | `multipart` | forms with files: `Request::multipart` |
//! | `webpki-roots` | clients of `https` trust Mozilla's certificate authorities |
//! | `ring`, `aws-lc-rs` | TLS by rustls, with this provider of cryptography |
//! | `tls` | TLS without a provider: for a library whose program chooses it |
//! | `full` | all of them, and those of windlass-serve |
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod answers;
mod app;
pub mod body;
pub mod client;
#[cfg_attr(not(feature = "deflate"), allow(dead_code))] // files need a part of it
mod coding;
#[doc = include_str!("../docs/coming-from.md")]
pub mod coming_from {}
pub mod engine;
pub mod events;
mod exchange;
pub mod files;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
mod message;
pub mod proxy;
mod remote;
pub mod report;
pub mod test;
mod topics;
pub mod upgrade;
pub mod upload;
#[cfg(feature = "websocket")]
pub mod websocket;
mod words;

pub use app::{App, Finished, Listen, Running, ServerLoop};
pub use client::own::Client;
pub use engine::Engine;
#[cfg(feature = "deflate")]
pub use message::compress::Compress;
pub use message::head::Head;
pub use message::query::Pairs;
pub use message::request::Request;
pub use message::response::Response;
pub use message::source::{BodySource, Flow, Part};
pub use remote::Remote;
pub use windlass;
pub use windlass_http1 as http1;
pub use windlass_serve as serve;
#[cfg(feature = "tls")]
pub use windlass_serve::tls;
pub use words::error::Error;
pub use words::limits::Limits;
pub use words::status::Status;
