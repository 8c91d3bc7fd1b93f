//! A reverse proxy: requests that are passed on to other servers, and their responses.
//!
//! ```no_run
//! use windlass_web::App;
//! use windlass_web::proxy::Upstream;
//!
//! App::with(|_loop| Upstream::new("http://127.0.0.1:9000").expect("a URL").connections(64))
//!     .fallback(|up, q| q.forward(up)) // all paths without a route
//!     .at_head() // bodies go on as they come
//!     .listen("127.0.0.1:8080")?
//!     .run()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! On a route that is [`at_head`](crate::App::at_head) the body of a request goes on part by part,
//! whatever its length is, and the client has to wait while the server does not read. On other
//! routes the body is collected first, as for any handler. The body of a response always goes on
//! part by part, and the server has to wait while the client does not read.
//!
//! # What goes on
//!
//! The method, the target, the fields, the body and its trailers go on. The status and its reason,
//! interim responses, fields, body and trailers come back, with the server's own `Date` and
//! `Server`. Hooks see the response: [`App::after`](crate::App::after) can change its head.
//!
//! These fields are different:
//!
//! - `Connection`, the fields that it names, `Keep-Alive`, `Proxy-Connection`, `Transfer-Encoding`
//!   and `Content-Length`: each side has its own.
//! - `Proxy-Authorization` and `Proxy-Authenticate` do not go on.
//! - `TE` is `trailers` if the client takes trailers. Otherwise it is left out.
//! - `Upgrade` goes on if the request has no body, for the [`protocols`](Upstream::protocols) that
//!   are allowed.
//! - `Host` stays as it is, unless [`keeps_host`](Upstream::keeps_host) is off.
//! - `Expect: 100-continue` goes on if the body goes on part by part. If the body is collected
//!   first, the proxy answers it.
//! - `Via: 1.1 windlass` is added, both ways.
//! - `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` are what the proxy sees. Other
//!   `X-Forwarded-` fields and `Forwarded` are left out. If the client is a proxy that
//!   [`Limits::trust`](crate::Limits::trust) names, its fields stay, and its address is appended to
//!   `X-Forwarded-For` and to `Forwarded`.
//! - A response without a `Date` gets one.
//!
//! # How it ends
//!
//! | what happens | what the client gets |
//! |---|---|
//! | no server takes the connection, or each ends it before the head of its response | 502 |
//! | what comes is no response | 502 |
//! | no connection, or no head, in time | 504 |
//! | each server has all [connections](Upstream::connections) in use | 503 |
//! | the response breaks off in its body | a reset: never an end that looks whole |
//! | the client goes | the connection to the server ends |
//! | one side of a tunnel ends | what that side has sent, and its end; the other side goes on |
//! | a tunnel is idle for too long, or the proxy shuts down | a reset, and so does the server |
//! | the server answers before the request is whole | its response, and a close if much is left |
//! | the server sends more than one response | the first. That connection is not used again |
//!
//! A request is sent to another server only if the first one has not seen it: its connection did
//! not open. One on a kept connection that the server has closed meanwhile is sent again if its
//! method is idempotent, and no part of its body has gone.
//!
//! Each loop has its own `Upstream` in its state, with its own limits and its own view of which
//! servers are out. Four loops have up to four times [`connections`](Upstream::connections).
//!
//! There is no cache, and no HTTP/2 to servers.

mod fields;
mod plan;
mod servers;

pub(crate) use fields::{
    ClientSide, RequestBody, ResponseFields, encode_request, is_end_to_end, is_trailer_passed,
};
pub use plan::Forward;
pub(crate) use servers::Passage;
pub use servers::{Upstream, UpstreamCounters};
