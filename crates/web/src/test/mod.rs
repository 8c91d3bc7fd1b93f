//! Tests of applications in a simulation: a server, its clients, the network between them and the
//! time, all in one thread and decided by a seed.
//!
//! The application is the real one: its routes, hooks and limits, the codec and the connections.
//! Only the kernel and the clock are simulated, as [`windlass::sim`] says. So a test meets what a
//! network does (bytes that come one by one, connections that break at any of them, a server whose
//! machine loses power), needs no port, and takes no real time to wait.
//!
//! ```
//! use windlass_web::{App, Error, Response, Status, test};
//!
//! fn counter() -> App<u64> {
//!     App::with(|_loop| 0)
//!         .post("/add/{n}", |sum, q| {
//!             *sum += q.parse::<u64>("n")?;
//!             Ok::<_, Error>(sum.to_string())
//!         })
//!         .get("/sum", |sum, _| sum.to_string())
//! }
//!
//! // One request, without a network:
//! assert_eq!(counter().call(test::get("/missing")).status(), Status::NOT_FOUND);
//!
//! // Many, on a network with faults, for each of twenty seeds:
//! test::seeds(0..20, |sim| {
//!     sim.faults(0.1);
//!     sim.serve("sums.test:80", counter);
//!     let mut client = sim.client();
//!     let (mut least, mut most) = (0, 0);
//!     for n in 1..10 {
//!         most += n;
//!         // If the connection breaks, the sum may have grown or not: a POST is not repeated.
//!         if client.post(&format!("http://sums.test/add/{n}")).send().is_ok() {
//!             least += n;
//!         }
//!     }
//!     let sum: u64 = client.get("http://sums.test/sum").retry()?.text().parse()?;
//!     assert!((least..=most).contains(&sum), "{least} <= {sum} <= {most}");
//!     Ok(())
//! });
//! ```
//!
//! # What it does not show
//!
//! - Code on other threads: a [job](crate::Request::blocking) runs on the thread of the test, at a
//!   time that the seed draws, and the time passes between its call and its end. It must not wait
//!   for a request of the same test.
//! - What a handler does with the system directly, as files of `std::fs` and the time of day: that
//!   is real, and no crash takes it back.
//! - The speed: turns of a loop take a microsecond each.

mod call;
mod client;
mod connection;
mod error;
mod loop_work;
mod net;
mod receive;
mod request;
mod response;
mod seeds;
mod simulation;

pub use call::Caller;
pub use client::{Call, TestClient};
pub use connection::Connection;
pub use error::ClientError;
pub use loop_work::LoopWork;
pub use request::{TestRequest, delete, get, head, patch, post, put, request};
pub use response::TestResponse;
pub use seeds::seeds;
pub use simulation::{Host, Simulation};
