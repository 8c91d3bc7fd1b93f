//! HTTP/1.x servers on [windlass]: routes, bodies, limits and events in one loop.
//!
//! ```no_run
//! use windlass_web::App;
//!
//! App::new()
//!     .get("/", |_, _| "Hello, World!")
//!     .get("/hello/{name}", |_, q| format!("hi {}", q.param("name")))
//!     .listen("0.0.0.0:8080")?
//!     .run()?;
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod answers;
mod app;
mod exchange;
mod message;
mod remote;
pub mod report;
pub mod test;
pub mod upgrade;
mod words;

pub use app::{App, Finished, Listen, Running, ServerLoop};
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
