//! A request to another server, as the program makes it.

use std::borrow::Cow;
use std::time::Duration;

/// How many bytes of a response's body are taken, unless the program says otherwise.
const BODY: usize = 2 << 20;

/// A request to another server.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub(crate) method: Cow<'static, str>,
    pub(crate) url: String,
    pub(crate) fields: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) timeout: Duration,
    pub(crate) body_limit: usize,
}

impl Fetch {
    /// A request with this method.
    pub fn new(method: impl Into<Cow<'static, str>>, url: impl Into<String>) -> Fetch {
        Fetch {
            method: method.into(),
            url: url.into(),
            fields: Vec::new(),
            body: Vec::new(),
            timeout: Duration::from_secs(30),
            body_limit: BODY,
        }
    }

    /// A `GET`.
    pub fn get(url: impl Into<String>) -> Fetch {
        Fetch::new("GET", url)
    }

    /// A `POST`.
    pub fn post(url: impl Into<String>) -> Fetch {
        Fetch::new("POST", url)
    }

    /// Adds a field.
    pub fn header(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Fetch {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Fetch {
        self.body = bytes.into();
        self
    }

    /// Sets how long it may take in all. Default 30 s.
    pub fn timeout(mut self, span: Duration) -> Fetch {
        self.timeout = span;
        self
    }

    /// Sets how many bytes the body of the response may have. Default 2 MiB.
    pub fn body_limit(mut self, bytes: usize) -> Fetch {
        self.body_limit = bytes;
        self
    }
}
