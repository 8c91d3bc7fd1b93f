//! Servers that a reverse proxy passes requests on to.

use std::rc::Rc;

use crate::client::error::FetchError;
use crate::client::url::{FetchUrl, Origin};

/// A server that requests are passed on to: see [`Request::forward`](crate::Request::forward).
#[derive(Clone, Debug)]
pub struct Upstream(Rc<FetchUrl>);

impl Upstream {
    /// The server at a URL, as `http://127.0.0.1:9000`.
    ///
    /// # Errors
    ///
    /// It is no URL of `http` or `https`.
    pub fn new(url: &str) -> Result<Upstream, FetchError> {
        Ok(Upstream(Rc::new(FetchUrl::parse(url)?)))
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.0.origin
    }

    pub(crate) fn authority(&self) -> &str {
        &self.0.authority
    }
}
