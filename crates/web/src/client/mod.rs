//! Requests to other servers.
//!
//! A handler returns [`Request::fetch`](crate::Request::fetch): its connection waits for the
//! response of the other server, and the loop goes on. A program with a loop of its own has a
//! [`Client`](crate::Client). Both follow the same rules, with the same limits.
//!
//! ```no_run
//! use windlass_web::client::Fetch;
//! use windlass_web::{App, Error};
//!
//! let app = App::new().get("/size/{name}", |_, q| {
//!     let url = format!("http://pages.example/{}", q.param("name"));
//!     q.fetch(Fetch::get(url), |_, page| {
//!         let page = page?; // a 502, 503 or 504 by itself
//!         Ok::<_, Error>(page.body().len().to_string())
//!     })
//! });
//! app.listen("127.0.0.1:8080")?.run()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | subject | rule |
//! |---|---|
//! | host names | looked up off the loop, kept for [30 s](FetchSettings::dns_cache) |
//! | several addresses | tried as RFC 8305 says; the first that connects is taken |
//! | connections | kept, at most [64](FetchSettings::connections) to a server and loop |
//! | requests that find none free | wait in order, at most [1024](FetchSettings::waiting) |
//! | clocks | one [for each phase](FetchSettings), and [one for all](Fetch::timeout) |
//! | redirects | at most [10](Fetch::redirects); credentials stay with their origin |
//! | bodies of responses | at most [2 MiB](Fetch::body_limit), decoded with the feature `deflate` |
//! | `https` | with the feature `tls`, and `FetchSettings::trust` |
//! | WebSockets (feature `websocket`) | `Client::open_websocket`, `Remote::open_websocket` |
//! | errors | [`FetchError`] tells what has failed, and becomes a 502, 503 or 504 |
//!
//! # Requests that are sent again
//!
//! A server may close a kept connection at the moment when a request is sent on it. Then the client
//! sends the request once more, on a new connection, if all of this is true:
//!
//! - no byte of a response has come,
//! - the method is idempotent (`GET`, `HEAD`, `PUT`, `DELETE`, `OPTIONS`, `TRACE`),
//! - the body is no [source](Fetch::stream).
//!
//! No other request is sent twice, unless the program does so.
//!
//! # Redirects
//!
//! 301 and 302 turn a `POST` into a `GET`. 303 turns every method but `HEAD` into a `GET`. 307 and
//! 308 keep the method and the body. `Authorization`, `Cookie` and `Proxy-Authorization` go to no
//! other origin (scheme, host and port). `https` does not lead to `http`, unless
//! [allowed](Fetch::redirect_to_plain), nor to other schemes.
//!
//! # Work outside a request
//!
//! [`App::every`](crate::App::every) and [jobs](crate::Request::blocking) cannot wait for a
//! response. Give the work to a thread beside the server, with a [`Client`](crate::Client) and a
//! watcher of its own. It stores what it has fetched in an `Arc` that the handlers share.

/*
url.rs      where a request goes        fetch.rs    a request, as the program makes it
error.rs    why there is no response    fetched.rs  a response, with its whole body
settings.rs the settings                redirect.rs the rules of redirects
input.rs    bytes that are not decoded  link.rs     a connection
pool.rs     servers                     call.rs     a request, and what has come of its response
hub.rs      the type `Hub`: what callers do
pump.rs     calls onto links            steps.rs    bytes into responses
news.rs     what the engine tells       clocks.rs   limits of time
own.rs      a client in a loop that the program owns
sockets.rs  its WebSockets
*/

pub(crate) mod call;
mod clocks;
pub(crate) mod error;
pub(crate) mod fetch;
pub(crate) mod fetched;
pub(crate) mod hub;
pub(crate) mod input;
pub(crate) mod link;
pub(crate) mod news;
pub(crate) mod own;
mod pool;
mod pump;
mod redirect;
pub(crate) mod settings;
#[cfg(feature = "websocket")]
mod sockets;
mod steps;
pub(crate) mod url;

pub use error::{FetchError, FetchPhase};
pub use fetch::Fetch;
pub use fetched::Fetched;
pub use own::{FetchEvent, FetchId};
pub use settings::FetchSettings;
