//! Where a request goes.

use super::error::FetchError;

/// A scheme, a host and a port: requests to one origin share its connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) is_tls: bool,
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The parts of a URL.
#[derive(Clone, Debug)]
pub(crate) struct FetchUrl {
    pub(crate) origin: Origin,
    /// The host and the port, as the field Host has them.
    pub(crate) authority: String,
    /// The path and the query.
    pub(crate) target: String,
}

impl FetchUrl {
    pub(crate) fn parse(text: &str) -> Result<FetchUrl, FetchError> {
        let wrong = |why| FetchError::Url { url: text.to_owned(), why };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let is_tls = match scheme {
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ => return Err(wrong("its scheme is neither http nor https")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.contains('@') {
            return Err(wrong("it has a user: set the field Authorization"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, Some(port).filter(|port| !port.is_empty()))
            }
            _ => (authority, None),
        };
        let port = match port {
            Some(port) => port.parse().map_err(|_| wrong("its port is no number below 65536"))?,
            None if is_tls => 443,
            None => 80,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        let target = rest.split('#').next().unwrap_or("");
        let target = if target.starts_with('/') { target.into() } else { format!("/{target}") };
        let origin = Origin { is_tls, host, port };
        Ok(FetchUrl { origin, authority: authority.to_owned(), target })
    }
}
