//! Bodies of requests that a program takes in parts, as they come.
//!
//! A route that is [`at_head`](crate::App::at_head) is called with the head of a request. It can
//! answer at once, [collect](crate::Request::collect) the body, or
//! [receive](crate::Request::receive) it in parts:
//!
//! ```
//! use windlass_web::body::{Demand, Receive};
//! use windlass_web::windlass::Buf;
//! use windlass_web::{App, Error, Request, Response, Status};
//!
//! /// Adds up the bytes of a body, of any size.
//! struct Sum(u64);
//!
//! impl Receive<()> for Sum {
//!     fn data(&mut self, _: &mut (), part: Buf) -> Result<Demand, Error> {
//!         self.0 += part.iter().map(|byte| u64::from(*byte)).sum::<u64>();
//!         Ok(Demand::More)
//!     }
//!     fn end(self: Box<Self>, _: &mut (), _: &mut Request<'_>) -> Result<Response, Error> {
//!         Ok(Response::text(self.0.to_string()))
//!     }
//! }
//!
//! let app = App::new()
//!     .post("/sum", |_, q| match q.header("x-key") {
//!         Some("secret") => q.receive(Sum(0)),
//!         _ => Status::UNAUTHORIZED.into(), // the body is not read
//!     })
//!     .at_head()
//!     .body_limit(1 << 30);
//! # let _ = app;
//! ```

pub use crate::message::request::receive::{Demand, Receive, Resume};
