//! Requests to other servers.
//!
//! A handler returns [`Request::fetch`](crate::Request::fetch): its request waits for the response
//! of the other server, and the loop goes on. A program with a loop of its own has a
//! [`Client`](crate::Client). Both have the same connections, limits and rules.
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
//! | names | looked up off the loop, kept for [30 s](FetchSettings::names) |
//! | several addresses | tried as RFC 8305 says; the first that connects is taken |
//! | connections | kept, at most [64](FetchSettings::connections) to a server and loop |
//! | calls that find none | wait in their order, at most [1024](FetchSettings::waiting) |
//! | clocks | one [for each phase](FetchSettings), and [one for all](Fetch::timeout) |
//! | redirects | at most [10](Fetch::redirects); credentials stay with their origin |
//! | bodies | at most [2 MiB](Fetch::body_limit), decoded with the feature `deflate` |
//! | `https` | with the feature `tls`, and [somebody to trust](FetchSettings::trust) |
//! | errors | [`FetchError`] tells what has failed, and becomes a 502, 503 or 504 |
//!
//! # Requests that are sent again
//!
//! A server may close a connection that is kept at the moment when a request is sent on it. Then
//! the client sends the request once more, on a new connection: if no byte of a response has come,
//! if the method is idempotent (`GET`, `HEAD`, `PUT`, `DELETE`, `OPTIONS`, `TRACE`), and if its
//! body is no [source](Fetch::stream). All else is the program's to repeat.
//!
//! # Redirects
//!
//! 301 and 302 make a `GET` of a `POST`, 303 makes one of all but `HEAD`, 307 and 308 keep method
//! and body. `Authorization`, `Cookie` and `Proxy-Authorization` go to no other origin (scheme,
//! host and port). `https` does not lead to `http`, unless
//! [allowed](Fetch::redirect_to_plain), nor to other schemes.
//!
//! # Work that is no request
//!
//! [`App::every`](crate::App::every) and [jobs](crate::Request::blocking) have no connection that
//! could wait. A thread beside the server has a [`Client`](crate::Client) and a watcher of its own,
//! and publishes what it has fetched in what the handlers share.

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
mod steps;
pub(crate) mod url;

pub use error::{FetchError, FetchPhase};
pub use fetch::Fetch;
pub use fetched::Fetched;
pub use own::{FetchEvent, FetchId};
pub use settings::FetchSettings;
