//! Requests to other servers.
//!
//! ```text
//! url.rs     where a request goes
//! fetch.rs   a request, as the program makes it
//! error.rs   why there is no response
//! fetched.rs a response, with its whole body
//! input.rs   bytes of a connection that are not decoded
//! hub.rs     the connections and calls of a loop
//! ```

pub(crate) mod error;
pub(crate) mod fetch;
pub(crate) mod fetched;
pub(crate) mod hub;
pub(crate) mod input;
pub(crate) mod url;

pub use error::FetchError;
pub use fetch::Fetch;
pub use fetched::Fetched;
