//! Which fields go on, and which the proxy writes.

use std::borrow::Cow;
use std::io::Write as _;
use std::net::IpAddr;

use windlass_http1::{
    Asked, BodyEncoder, EncodeError, Framing, RequestEncoder, RequestHead, ResponseHead,
};

use super::plan::Forward;
use super::servers::UpstreamServer;

/// The client of a request that is passed on.
#[derive(Clone, Copy)]
pub(crate) struct ClientSide {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) is_tls: bool,
    /// Whether its fields about the clients in front of it count.
    pub(crate) is_trusted: bool,
}

/// The body of a request that is passed on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestBody {
    Empty,
    /// It is there, with so many bytes.
    Whole(usize),
    /// It is there, and has trailers.
    WithTrailers,
    /// It comes as the client frames it.
    Coming,
}

/// What a proxy does with a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Each connection has its own.
    Own,
    Expect,
    /// It tells of the client: in a list of addresses, or in another way.
    For,
    OfClient,
    Forwarded,
    EndToEnd,
}

fn role(name: &str) -> Role {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    match name.len() {
        2 if is("te") => Role::Own,
        4 if is("host") => Role::Own,
        6 if is("expect") => Role::Expect,
        7 if is("upgrade") => Role::Own,
        9 if is("forwarded") => Role::Forwarded,
        10 if is("connection") || is("keep-alive") => Role::Own,
        14 if is("content-length") => Role::Own,
        15 if is("x-forwarded-for") => Role::For,
        16 if is("proxy-connection") => Role::Own,
        17 if is("transfer-encoding") => Role::Own,
        18 if is("proxy-authenticate") => Role::Own,
        19 if is("proxy-authorization") => Role::Own,
        13.. if name.as_bytes()[..12].eq_ignore_ascii_case(b"x-forwarded-") => Role::OfClient,
        _ => Role::EndToEnd,
    }
}

/// What `Connection` names, which is for one connection only.
struct Named<'a>(Option<&'a [u8]>, bool);

impl<'a> Named<'a> {
    fn new(mut values: impl Iterator<Item = &'a [u8]>) -> Named<'a> {
        let first = values.next();
        // One that says only what most of them say names nothing.
        let plain: [&[u8]; 3] = [b"keep-alive", b"close", b"upgrade"];
        let is_plain = |value: &&[u8]| plain.iter().any(|one| value.eq_ignore_ascii_case(one));
        Named(first.filter(|value| !is_plain(value)), values.next().is_some())
    }

    fn has(&self, name: &str, further: impl FnOnce() -> bool) -> bool {
        let is = |one: &[u8]| one.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
        self.0.is_some_and(|list| list.split(|byte| *byte == b',').any(is)) || self.1 && further()
    }
}

/// Writes the head of a request for a server.
pub(crate) fn encode_request(
    out: &mut Vec<u8>,
    (plan, server): (&Forward, &UpstreamServer),
    (head, bytes): (&RequestHead, &[u8]),
    client: ClientSide,
    body: RequestBody,
    upgrade: Option<&str>,
) -> Result<(Asked, BodyEncoder), EncodeError> {
    let settings = plan.upstream.settings();
    let own = &server.url;
    let theirs = head.authority(bytes).filter(|host| !host.is_empty());
    let host = theirs.filter(|_| settings.keeps_host).unwrap_or(&own.authority);
    let target = target(plan, &own.target, head, bytes);
    let mut request = RequestEncoder::new(out, head.method(bytes), &target, host)?;
    let named = Named::new(head.get_all(bytes, "connection"));
    let changes = plan.changes.as_deref();
    let replaces = |name: &str| changes.is_some_and(|changes| changes.replaces(name));
    let (mut has_for, mut has_forwarded) = (false, false);
    let (mut has_proto, mut has_host) = (false, false);
    for (name, value) in head.fields(bytes) {
        let role = role(name);
        let goes_on = match role {
            Role::EndToEnd => true,
            Role::Expect => body == RequestBody::Coming,
            Role::OfClient => client.is_trusted,
            Role::For if client.is_trusted => {
                has_for = true;
                false
            }
            Role::Forwarded if client.is_trusted => {
                has_forwarded = true;
                false
            }
            _ => false,
        };
        if !goes_on || named.has(name, || head.is_hop_by_hop(bytes, name)) || replaces(name) {
            continue;
        }
        if role == Role::OfClient {
            has_proto |= name.eq_ignore_ascii_case("x-forwarded-proto");
            has_host |= name.eq_ignore_ascii_case("x-forwarded-host");
        }
        request.field(name, value)?;
    }
    let mut own_field = |name: &str, value: &[u8]| match replaces(name) {
        true => Ok(()),
        false => request.field(name, value),
    };
    let mut buffer = [0; 64];
    let mut ip = &b""[..];
    if let Some(address) = client.ip {
        let mut free = &mut buffer[..];
        let _ = write!(free, "{address}"); // at most 45 bytes
        let left = free.len();
        ip = &buffer[..buffer.len() - left];
    }
    if has_for {
        let list = appended(head.get_all(bytes, "x-forwarded-for"), ip);
        own_field("X-Forwarded-For", &list)?;
    } else if !ip.is_empty() {
        own_field("X-Forwarded-For", ip)?;
    }
    let scheme = if client.is_tls { "https" } else { "http" };
    if !has_proto {
        own_field("X-Forwarded-Proto", scheme.as_bytes())?;
    }
    if let Some(host) = theirs.filter(|_| !has_host) {
        own_field("X-Forwarded-Host", host.as_bytes())?;
    }
    if has_forwarded {
        let element = match client.ip {
            Some(IpAddr::V6(ip)) => format!("for=\"[{ip}]\";proto={scheme}"),
            Some(ip) => format!("for={ip};proto={scheme}"),
            None => format!("for=unknown;proto={scheme}"),
        };
        let list = appended(head.get_all(bytes, "forwarded"), element.as_bytes());
        own_field("Forwarded", &list)?;
    }
    own_field("Via", settings.via.as_bytes())?;
    for (name, value) in changes.map_or(&[][..], |changes| &changes.fields) {
        request.field(name, &**value)?;
    }
    if head.accepts_trailers() {
        request.field("TE", "trailers")?;
    }
    if let Some(protocol) = upgrade {
        request.upgrade(protocol)?;
    }
    let asked = request.asked();
    let body = match body {
        RequestBody::Empty => request.empty(),
        RequestBody::Whole(len) => request.length(len as u64)?,
        RequestBody::WithTrailers => request.chunked()?,
        RequestBody::Coming => match head.framing() {
            Framing::Length(len) => request.length(len)?,
            Framing::Chunked => request.chunked()?,
            _ => request.empty(),
        },
    };
    Ok((asked, body))
}

/// A list of several fields as one value, with one more element if that has bytes.
fn appended<'a>(values: impl Iterator<Item = &'a [u8]>, last: &'a [u8]) -> Vec<u8> {
    let all = values.chain([last]).filter(|value| !value.is_empty());
    all.collect::<Vec<&[u8]>>().join(&b", "[..])
}

/// The target that a server gets: always in the form of a path, but `*`.
fn target<'a>(plan: &'a Forward, base: &str, head: &RequestHead, bytes: &'a [u8]) -> Cow<'a, str> {
    let changes = plan.changes.as_deref();
    let prefix = changes.map_or("", |changes| &changes.prefix);
    let theirs = match changes.and_then(|changes| changes.target.as_ref()) {
        Some(target) => Cow::Borrowed(&**target),
        None => {
            let (path, whole) = (head.path(bytes), head.target(bytes));
            match whole.starts_with('/') || whole == "*" {
                true => Cow::Borrowed(without_prefix(whole, prefix)),
                false => {
                    let query = head.query(bytes).map(|query| format!("?{query}"));
                    let all = format!("{path}{}", query.unwrap_or_default());
                    Cow::Owned(without_prefix(&all, prefix).to_owned())
                }
            }
        }
    };
    match (base, theirs.starts_with('/')) {
        ("", true) => theirs,
        (_, true) => format!("{base}{theirs}").into(),
        (_, false) if theirs == "*" => theirs,
        _ => format!("{base}/{theirs}").into(),
    }
}

/// A target without the beginning of its path.
fn without_prefix<'a>(target: &'a str, prefix: &str) -> &'a str {
    match target.strip_prefix(prefix) {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '?']) => rest,
        _ => target,
    }
}

/// Whether a trailer of a request goes on. Servers may read trailers as fields, so none tells of a
/// client.
pub(crate) fn is_trailer_passed(name: &str) -> bool {
    role(name) == Role::EndToEnd
}

/// Whether a field of trailers or of an interim response goes on: it is no one connection's.
pub(crate) fn is_end_to_end(head: &ResponseHead, bytes: &[u8], name: &str) -> bool {
    role(name) != Role::Own && !head.is_hop_by_hop(bytes, name)
}

/// The fields of a response that go on.
pub(crate) struct ResponseFields<'a> {
    head: &'a ResponseHead,
    bytes: &'a [u8],
    named: Named<'a>,
}

impl<'a> ResponseFields<'a> {
    pub(crate) fn new(head: &'a ResponseHead, bytes: &'a [u8]) -> ResponseFields<'a> {
        let named = Named::new(head.get_all(bytes, "connection"));
        ResponseFields { head, bytes, named }
    }

    /// Calls `each` with names and values.
    pub(crate) fn each(
        &self,
        mut each: impl FnMut(&'a str, &'a [u8]) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let ResponseFields { head, bytes, named } = self;
        for (name, value) in head.fields(bytes) {
            let is_own = role(name) == Role::Own;
            if !is_own && !named.has(name, || head.is_hop_by_hop(bytes, name)) {
                each(name, value)?;
            }
        }
        Ok(())
    }
}
