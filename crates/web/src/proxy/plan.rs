//! How one request is passed on.

use std::borrow::Cow;

use super::servers::Upstream;

/// How a request is passed on: to which servers, and what changes on the way.
///
/// ```
/// use windlass_web::App;
/// use windlass_web::proxy::{Forward, Upstream};
///
/// let app = App::with(|_loop| Upstream::new("http://127.0.0.1:9000").expect("a URL"))
///     .any("/api/{*rest}", |up, q| {
///         q.forward(
///             Forward::to(up)
///                 .without_prefix("/api")
///                 .header("X-Request-Id", "7")
///                 .without_header("Cookie"),
///         )
///     })
///     .at_head();
/// # let _ = app;
/// ```
#[derive(Clone, Debug)]
pub struct Forward {
    pub(crate) upstream: Upstream,
    /// `None`: nothing changes, and nothing is allocated.
    pub(crate) changes: Option<Box<Changes>>,
}

/// What changes of a request on the way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) target: Option<String>,
    pub(crate) prefix: Cow<'static, str>,
    pub(crate) fields: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    pub(crate) without: Vec<Cow<'static, str>>,
}

impl Forward {
    /// To these servers, with nothing changed.
    pub fn to(upstream: &Upstream) -> Forward {
        Forward { upstream: upstream.clone(), changes: None }
    }

    fn change(mut self, change: impl FnOnce(&mut Changes)) -> Forward {
        change(self.changes.get_or_insert_default());
        self
    }

    /// Sets the target: a path, and a query behind a `?`, both percent-encoded already. The path of
    /// the server's URL still comes in front of it.
    pub fn target(self, target: impl Into<String>) -> Forward {
        self.change(|changes| changes.target = Some(target.into()))
    }

    /// Leaves this beginning of the path out, if a slash or the end of the path follows it: `/api`
    /// makes `/x` of `/api/x`, and `/` of `/api`.
    pub fn without_prefix(self, prefix: impl Into<Cow<'static, str>>) -> Forward {
        self.change(|changes| changes.prefix = prefix.into())
    }

    /// Sets a field of the request, in the place of those that the client has sent with this name.
    pub fn header(
        self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Forward {
        self.change(|changes| changes.fields.push((name.into(), value.into())))
    }

    /// Leaves the fields with this name out, in any case.
    pub fn without_header(self, name: impl Into<Cow<'static, str>>) -> Forward {
        self.change(|changes| changes.without.push(name.into()))
    }
}

impl Changes {
    /// Whether it has something in the place of a field.
    pub(crate) fn replaces(&self, name: &str) -> bool {
        let is = |other: &str| other.eq_ignore_ascii_case(name);
        self.without.iter().any(|other| is(other)) || self.fields.iter().any(|(other, _)| is(other))
    }
}

impl From<&Upstream> for Forward {
    fn from(upstream: &Upstream) -> Forward {
        Forward::to(upstream)
    }
}

impl From<&mut Upstream> for Forward {
    fn from(upstream: &mut Upstream) -> Forward {
        Forward::to(upstream)
    }
}
