//! Targets and hosts of requests.
//!
//! # Why
//!
//! httparse takes every visible byte as a target. Which form it has depends on the method, and
//! servers that disagree about that send one request to two places (RFC 9112, 3.2).

use std::net::Ipv6Addr;

use crate::bytes::{HOST, PATH, QUERY};
use crate::words::Method;

/// The form of a target (RFC 9112, 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetForm {
    /// `/path?query`
    Origin,
    /// `http://host:port/path?query`, as proxies get it. Its host counts, and not that of Host.
    Absolute,
    /// `host:port`, of a CONNECT.
    Authority,
    /// `*`, of an OPTIONS that asks for the server itself.
    Asterisk,
}

/// The form of a target, if it is valid for the method.
#[inline]
pub(crate) fn form_of(method: Method, target: &[u8]) -> Option<TargetForm> {
    match (method, target) {
        (Method::Connect, _) => is_authority(target, true).then_some(TargetForm::Authority),
        (_, [b'/', ..]) => is_path_and_query(target).then_some(TargetForm::Origin),
        (Method::Options, b"*") => Some(TargetForm::Asterisk),
        _ => {
            let authority = authority_len(target)?;
            let (authority, rest) = behind_scheme(target)?.split_at(authority);
            let is_path = rest.is_empty() || is_path_and_query(rest);
            (is_path && is_authority(authority, false)).then_some(TargetForm::Absolute)
        }
    }
}

/// What stands behind `http://` or `https://`.
fn behind_scheme(target: &[u8]) -> Option<&[u8]> {
    let is = |scheme: &[u8]| {
        target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let schemes = [&b"http://"[..], b"https://"];
    let scheme = schemes.into_iter().find(|scheme| is(scheme))?;
    target.get(scheme.len()..)
}

/// How long the authority of an absolute target is.
pub(crate) fn authority_len(target: &[u8]) -> Option<usize> {
    let rest = behind_scheme(target)?;
    Some(rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len()))
}

/// Where the authority of an absolute target begins.
pub(crate) fn authority_start(target: &[u8]) -> usize {
    behind_scheme(target).map_or(0, |rest| target.len() - rest.len())
}

#[inline]
fn is_path_and_query(bytes: &[u8]) -> bool {
    // A path may have all bytes of a query but a backslash.
    PATH.has_all(bytes) || has_query(bytes)
}

fn has_query(bytes: &[u8]) -> bool {
    let path = memchr::memchr(b'?', bytes).unwrap_or(bytes.len());
    PATH.has_all(&bytes[..path]) && QUERY.has_all(&bytes[path..])
}

/// Whether it is `host` or `host:port`. There is no user name (RFC 9110, 4.2.4) and no empty host
/// (RFC 9110, 4.2.1).
#[inline]
pub(crate) fn is_authority(bytes: &[u8], needs_port: bool) -> bool {
    let host = match bytes {
        [b'[', ..] => ipv6_len(bytes),
        _ => bytes.iter().position(|byte| !HOST.has(*byte)).unwrap_or(bytes.len()),
    };
    match &bytes[host..] {
        _ if host == 0 => false,
        [] => !needs_port,
        [b':', port @ ..] => is_port(port),
        _ => false,
    }
}

/// How long the IPv6 address in brackets is that the bytes begin with.
fn ipv6_len(bytes: &[u8]) -> usize {
    match bytes.iter().position(|byte| *byte == b']') {
        Some(at) if is_ipv6(&bytes[1..at]) => at + 1,
        _ => 0,
    }
}

fn is_ipv6(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// Whether it is a number below 65,536 of one to five digits. RFC 3986 also has empty ports, which
/// nobody sends.
#[inline]
fn is_port(digits: &[u8]) -> bool {
    let is_number = digits.iter().fold(true, |all, digit| all & digit.is_ascii_digit());
    // Digits of the same number are ordered as their numbers.
    is_number && matches!(digits.len(), 1..=4)
        || is_number && digits.len() == 5 && digits <= b"65535"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_four_forms() {
        use Method::{Connect, Get, Options};
        use TargetForm::{Absolute, Asterisk, Authority, Origin};
        for (method, target, form) in [
            (Get, "/", Some(Origin)),
            (Get, "/a/b;c=1?d=e&f", Some(Origin)),
            (Get, "/?", Some(Origin)),
            (Get, "//a", Some(Origin)),
            (Get, "/a|b{c}^`%zz?\\", Some(Origin)),
            (Get, "/a\\b", None),
            (Get, "/a#b", None),
            (Get, "/?a#b", None),
            (Get, "/\"", None),
            (Get, "/<a>", None),
            (Get, "/\u{e9}", None),
            (Get, "*", None),
            (Get, "", None),
            (Get, "a", None),
            (Get, "example.com:80", None),
            (Get, "http://a", Some(Absolute)),
            (Get, "HTTPS://a:1/b?c", Some(Absolute)),
            (Get, "http://a?b", Some(Absolute)),
            (Get, "http://[::1]:80/", Some(Absolute)),
            (Get, "http://", None),
            (Get, "http:///a", None),
            (Get, "http://:80/", None),
            (Get, "http://u@a/", None),
            (Get, "http://a:b/", None),
            (Get, "http://a:65536/", None),
            (Get, "http://a:000080/", None),
            (Get, "http://a:/", None),
            (Get, "http://[::1]", Some(Absolute)),
            (Get, "http://[1::2:3]", Some(Absolute)),
            (Get, "http://[1::2:3", None),
            (Get, "http://[1::2]3]:4", None),
            (Get, "http://[::1", None),
            (Get, "http://[g::1]/", None),
            (Get, "http://a#b", None),
            (Get, "ftp://a/", None),
            (Get, "http:/a", None),
            (Options, "*", Some(Asterisk)),
            (Options, "/", Some(Origin)),
            (Options, "**", None),
            (Connect, "a:443", Some(Authority)),
            (Connect, "[::1]:443", Some(Authority)),
            (Connect, "[::1]", None),
            (Connect, "a:0", Some(Authority)),
            (Connect, "a:65535", Some(Authority)),
            (Connect, "a", None),
            (Connect, "a:", None),
            (Connect, ":443", None),
            (Connect, "a:99999", None),
            (Connect, "/", None),
            (Connect, "*", None),
            (Connect, "http://a:443", None),
            (Connect, "u@a:443", None),
        ] {
            assert_eq!(form_of(method, target.as_bytes()), form, "{method:?} {target}");
        }
    }
}
