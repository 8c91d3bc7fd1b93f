//! What trusted proxies say of a client: `Forwarded` (RFC 7239), `X-Forwarded-For` and
//! `X-Forwarded-Proto`.
//!
//! # Why
//! Each proxy appends what it has seen to what its client has sent, and the first client can send
//! anything. So the lists are read from the right, for as long as the proxy that has written an
//! element is trusted. Most proxies write one family of fields, and pass the other on as the client
//! has sent it. So where both are there, only what they agree on counts.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use windlass_serve::net::Networks;

use super::arrived::Arrived;

/// A client, as far as its proxies are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) is_secure: bool,
}

/// What a proxy says of its client: the address and the scheme; `None` for what it does not say, or
/// what is malformed.
#[derive(Clone, Copy, Default)]
struct Hop {
    ip: Option<IpAddr>,
    is_secure: Option<bool>,
}

/// The client of a request.
pub(crate) fn client(arrived: Arrived<'_>) -> Sender {
    let from = arrived.from;
    let plain = Sender { ip: from.peer.map(|peer| peer.ip()), is_secure: from.is_tls };
    match from.trust {
        Some(trust) if trust.contains(from.peer) => behind_proxies(arrived, trust, plain),
        _ => plain,
    }
}

fn behind_proxies(arrived: Arrived<'_>, trust: &Networks, plain: Sender) -> Sender {
    let values = |name| arrived.head.get_all(arrived.bytes, name);
    let (mut forwarded, mut addresses) = (Vec::new(), Vec::new());
    values("forwarded").for_each(|value| elements(value, &mut forwarded));
    for value in values("x-forwarded-for") {
        let all = value.split(|byte| *byte == b',');
        addresses.extend(all.map(|one| Hop { ip: address(one.trim_ascii()), is_secure: None }));
    }
    let by_forwarded = walk(&forwarded, trust);
    let by_addresses = walk(&addresses, trust);
    let ip = match (by_forwarded, by_addresses) {
        (Some((one, _)), Some((other, _))) if one != other => None,
        (Some((ip, _)), _) | (None, Some((ip, _))) => ip,
        (None, None) => None,
    };
    let schemes: Vec<Option<bool>> = values("x-forwarded-proto")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|value| scheme(value.trim_ascii()))
        .collect();
    // One that stands for each hop, or one that the last proxy has written.
    let hops = by_addresses.or(by_forwarded).map_or(1, |(_, hops)| hops.max(1));
    let by_scheme =
        schemes.len().checked_sub(1).and_then(|last| schemes[last - (hops - 1).min(last)]);
    let hop = by_forwarded.and_then(|(_, hops)| forwarded.get(forwarded.len() - hops.max(1)));
    let is_secure = match (hop.and_then(|hop| hop.is_secure), by_scheme) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => one.or(other),
    };
    Sender { ip: ip.or(plain.ip), is_secure: is_secure.unwrap_or(plain.is_secure) }
}

/// The client of the outermost trusted proxy, and how many elements that took; `None` without an
/// element.
fn walk(hops: &[Hop], trust: &Networks) -> Option<(Option<IpAddr>, usize)> {
    let mut found = None;
    for (count, hop) in hops.iter().rev().enumerate() {
        let Some(ip) = hop.ip else { return Some((found, count)) };
        found = Some(ip);
        if !trust.contains(Some(SocketAddr::new(ip, 0))) {
            return Some((found, count + 1));
        }
    }
    (!hops.is_empty()).then_some((found, hops.len()))
}

/// An address, with or without a port.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

fn scheme(text: &[u8]) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case(b"https") => Some(true),
        _ if text.eq_ignore_ascii_case(b"http") => Some(false),
        _ => None,
    }
}

/// Reads the elements of a `Forwarded`. What is malformed is an element that says nothing, and what
/// stands behind it in the same field is lost with it.
fn elements(mut text: &[u8], hops: &mut Vec<Hop>) {
    let mut hop = Hop::default();
    loop {
        let Some((name, value, behind)) = pair(text.trim_ascii_start()) else {
            hops.push(Hop::default());
            return;
        };
        if name.eq_ignore_ascii_case(b"for") {
            hop.ip = address(&value);
        } else if name.eq_ignore_ascii_case(b"proto") {
            hop.is_secure = scheme(&value);
        }
        match behind.trim_ascii_start() {
            [] => return hops.push(hop),
            [b';', rest @ ..] => text = rest,
            [b',', rest @ ..] => {
                hops.push(std::mem::take(&mut hop));
                text = rest;
            }
            _ => return hops.push(Hop::default()),
        }
    }
}

/// A name and its value, and what stands behind it.
fn pair(text: &[u8]) -> Option<(&[u8], Vec<u8>, &[u8])> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&text[..at], &text[at + 1..]);
    let is_name = !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
    if !is_name {
        return None;
    }
    let Some(quoted) = value.strip_prefix(b"\"") else {
        let end = value.iter().position(|byte| b";, \t\"".contains(byte)).unwrap_or(value.len());
        return (end > 0).then(|| (name, value[..end].to_vec(), &value[end..]));
    };
    let (mut found, mut bytes) = (Vec::new(), quoted.iter().enumerate());
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((name, found, &quoted[at + 1..])),
            b'\\' => found.push(*bytes.next()?.1),
            _ => found.push(*byte),
        }
    }
    None
}
