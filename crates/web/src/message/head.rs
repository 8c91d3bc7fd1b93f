//! The head of a response, before it is written.

use std::borrow::Cow;

use crate::words::status::Status;

type FieldText = Cow<'static, str>;

/// The head of a response: its status and its header fields. [`App::after`](crate::App::after) can
/// change it.
///
/// The server writes `Date`, `Content-Length`, `Transfer-Encoding` and `Connection` itself. It
/// leaves a `Date` of the program out. Another one of these, and a name or a value with a byte that
/// no field may have, makes a 500 of the response, and ends the connection. An `Upgrade` offers a
/// protocol, as in a 426: the server names it in `Connection`.
#[derive(Debug)]
pub struct Head {
    status: Status,
    kind: Option<FieldText>,
    fields: Vec<(FieldText, FieldText)>,
    closes: bool,
}

impl Head {
    pub(crate) fn new(status: Status, kind: Option<&'static str>) -> Head {
        Head { status, kind: kind.map(Cow::Borrowed), fields: Vec::new(), closes: false }
    }

    /// The status.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Sets the status.
    pub fn set_status(&mut self, status: Status) {
        self.status = status;
    }

    /// The value of the first field with this name, in any case.
    pub fn get(&self, name: &str) -> Option<&str> {
        if is_content_type(name) {
            return self.kind.as_deref();
        }
        let is = |field: &&(FieldText, FieldText)| field.0.eq_ignore_ascii_case(name);
        self.fields.iter().find(is).map(|(_, value)| &**value)
    }

    /// Sets a field, in the place of all others with this name.
    pub fn set(&mut self, name: impl Into<FieldText>, value: impl Into<FieldText>) {
        let name = name.into();
        self.remove(&name);
        self.add(name, value);
    }

    /// Adds a field, beside others with this name: a further `Set-Cookie`, for example. There is
    /// one `Content-Type`, which it replaces.
    pub fn add(&mut self, name: impl Into<FieldText>, value: impl Into<FieldText>) {
        let name = name.into();
        if is_content_type(&name) {
            self.kind = Some(value.into());
        } else {
            self.fields.push((name, value.into()));
        }
    }

    /// Removes all fields with this name.
    pub fn remove(&mut self, name: &str) {
        if is_content_type(name) {
            self.kind = None;
        }
        self.fields.retain(|field| !field.0.eq_ignore_ascii_case(name));
    }

    /// Closes the connection behind this response, which says `Connection: close`.
    pub fn close(&mut self) {
        self.closes = true;
    }

    /// `Content-Encoding: identity` says that the server is to compress nothing. No client needs
    /// it.
    pub(crate) fn leave_identity_out(&mut self) {
        if self.get("Content-Encoding").is_some_and(is_identity) {
            self.remove("Content-Encoding");
        }
    }

    /// The coding that the body has already.
    pub(crate) fn coding(&self) -> Option<&str> {
        self.get("Content-Encoding").filter(|coding| !is_identity(coding))
    }

    pub(crate) fn closes(&self) -> bool {
        self.closes
    }

    pub(crate) fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
    }
}

fn is_identity(coding: &str) -> bool {
    coding.eq_ignore_ascii_case("identity")
}

fn is_content_type(name: &str) -> bool {
    name.len() == 12 && name.eq_ignore_ascii_case("content-type")
}
