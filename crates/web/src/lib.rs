//! HTTP/1.x servers on [windlass]: routes, bodies, limits and events, in a loop that is yours.
//!
//! A handler is a closure that returns what converts into a [`Response`]:
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
//!         if let Ok(answer) = client.post("http://notes.test/notes").json(&note).send() {
//!             kept.push((answer.json::<usize>()?, note.text));
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
//! The [`guide`] has a page for each task: routes, errors, a database, limits, tests, deployment,
//! and why a connection ended. [`coming_from`] is for those who know nbhttp, hyper, axum or actix.
//!
//! | task | item |
//! |---|---|
//! | routes, hooks and state | [`App`] |
//! | what a handler gets, and what it returns | [`Request`], [`Response`], [`Error`] |
//! | code that blocks | [`Request::blocking`] |
//! | a body in parts, or behind a look at the head | [`body`], [`Request::collect`] |
//! | an answer of another thread, or parts of it | [`Response::later`], [`Response::writer`] |
//! | a body that comes in parts | [`body`] |
//! | a loop of the program | [`Engine`] |
//! | a response that is made while it is sent | [`Response::stream`] |
//! | how long a phase may take, and how large a part may be | [`Limits`] |
//! | another protocol on the same connection | [`upgrade`] |
//! | HTTP in a loop of the program, beside other operations | [`Engine`] |
//! | a server beside other code of `main` | [`App::start`] |
//! | tests | [`App::call`], [`mod@test`] |
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod answers;
mod app;
pub mod body;
#[doc = include_str!("../docs/coming-from.md")]
pub mod coming_from {}
pub mod engine;
pub mod events;
mod exchange;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
mod message;
mod remote;
pub mod report;
pub mod test;
mod topics;
pub mod upgrade;
mod words;

pub use app::{App, Finished, Listen, Running, ServerLoop};
pub use engine::Engine;
pub use message::head::Head;
pub use message::query::Pairs;
pub use message::request::Request;
pub use message::response::Response;
pub use message::source::{Flow, Part, Source};
pub use remote::Remote;
pub use windlass;
pub use windlass_http1 as http1;
pub use windlass_serve as serve;
#[cfg(feature = "tls")]
pub use windlass_serve::tls;
pub use words::error::Error;
pub use words::limits::Limits;
pub use words::status::Status;
