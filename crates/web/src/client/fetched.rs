//! A response of another server, with its whole body.

use crate::words::status::Status;

/// A response of another server, with its whole body.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub(crate) status: Status,
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Fetched {
    /// The status.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The value of the first field with this name, in any case; `None`, too, if it is no UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|field| field.0.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(&found.1).ok()
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}
