//! Where a request goes.

use std::borrow::Cow;

use iri_string::types::{UriReferenceStr, UriStr};

use super::error::FetchError;

const NO_URL: &str = "it is no absolute URL";

/// A scheme, a host and a port: requests to one origin share its connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) is_tls: bool,
    /// In lower case, and without brackets.
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
        let uri = UriStr::new(text).map_err(|_| wrong(NO_URL))?;
        let is_tls = match uri.scheme_str() {
            scheme if scheme.eq_ignore_ascii_case("http") => false,
            scheme if scheme.eq_ignore_ascii_case("https") => true,
            _ => return Err(wrong("its scheme is neither http nor https")),
        };
        let parts = uri.authority_components().ok_or_else(|| wrong("it has no host"))?;
        if parts.userinfo().is_some() {
            return Err(wrong("it has a user: set the field Authorization"));
        }
        let port = match parts.port().filter(|port| !port.is_empty()) {
            Some(port) => port.parse().map_err(|_| wrong("its port is no number below 65536"))?,
            None if is_tls => 443,
            None => 80,
        };
        let host = parts.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        let origin = Origin { is_tls, host: host.to_ascii_lowercase(), port };
        let authority = uri.authority_str().unwrap_or_default().to_owned();
        let rest = cut(text).ok_or_else(|| wrong("it has no host"))?.rest;
        Ok(FetchUrl { origin, authority, target: target_of(rest).into_owned() })
    }
}

/// The parts of a URL, as far as its delimiters tell. Nothing is checked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cut<'a> {
    /// The scheme and the authority.
    pub(crate) prefix: &'a str,
    pub(crate) authority: &'a str,
    /// The path, the query and the fragment.
    pub(crate) rest: &'a str,
}

/// Cuts a URL at its delimiters: each request does so, and only those to new servers are parsed.
pub(crate) fn cut(url: &str) -> Option<Cut<'_>> {
    let bytes = url.as_bytes();
    let start = bytes.iter().position(|byte| *byte == b':')? + 3;
    if bytes.get(start - 2..start) != Some(b"//") {
        return None;
    }
    let is_end = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
    let end = bytes[start..].iter().position(is_end).map_or(url.len(), |at| start + at);
    Some(Cut { prefix: &url[..end], authority: &url[start..end], rest: &url[end..] })
}

/// Bytes that need no look at what is around them, behind the authority of a URL.
static PLAIN: [bool; 256] = {
    let (mut plain, mut at) = ([false; 256], 0);
    while at < 256 {
        plain[at] = matches!(at as u8, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_'
            | b'~' | b'!' | b'$' | b'&'..=b'/' | b':' | b';' | b'=' | b'?' | b'@');
        at += 1;
    }
    plain
};

/// Checks a URL whose scheme and authority are known to be right, and behind which this stands.
pub(crate) fn check(text: &str, rest: &str) -> Result<(), FetchError> {
    let is_plain = rest.bytes().all(|byte| PLAIN[byte as usize]);
    match is_plain || UriStr::new(text).is_ok() {
        true => Ok(()),
        false => Err(FetchError::Url { url: text.to_owned(), why: NO_URL }),
    }
}

/// The target of a request: the path and the query of what is behind the authority of a URL.
pub(crate) fn target_of(rest: &str) -> Cow<'_, str> {
    let target = rest.split_once('#').map_or(rest, |(target, _)| target);
    if target.starts_with('/') { target.into() } else { format!("/{target}").into() }
}

/// The URL that a reference at a URL means (RFC 3986, section 5), without a fragment.
pub(crate) fn join(base: &str, reference: &str) -> Result<String, &'static str> {
    let base = UriStr::new(base).map_err(|_| "its base is no URL")?;
    let reference = UriReferenceStr::new(reference).map_err(|_| "it is no reference of a URL")?;
    let resolved = reference.resolve_against(base.to_absolute());
    let mut url = resolved.to_string();
    if let Some(at) = url.find('#') {
        url.truncate(at);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_urls() {
        let url = FetchUrl::parse("HTTP://Example.COM:8080/a?b#c").unwrap();
        let origin = Origin { is_tls: false, host: "example.com".into(), port: 8080 };
        assert_eq!((url.origin, &*url.target), (origin, "/a?b"));
        assert_eq!(url.authority, "Example.COM:8080");
        let url = FetchUrl::parse("https://[::1]?q").unwrap();
        assert_eq!((&*url.origin.host, url.origin.port, &*url.target), ("::1", 443, "/?q"));
        assert_eq!(url.authority, "[::1]");
        assert_eq!(FetchUrl::parse("http://h:/").unwrap().origin.port, 80);
    }

    #[test]
    fn what_is_no_url_of_http() {
        let why = |text| match FetchUrl::parse(text) {
            Err(FetchError::Url { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        for text in ["", "example.com", "/path", "http://a b/", "http://a/\u{e9}", "http://a/%2"] {
            assert_eq!(why(text), "it is no absolute URL", "{text}");
        }
        for text in ["ftp://a/", "file:///etc/passwd", "mailto:a@b"] {
            assert_eq!(why(text), "its scheme is neither http nor https", "{text}");
        }
        for text in ["http:///a", "http:a", "http://:80/"] {
            assert_eq!(why(text), "it has no host", "{text}");
        }
        assert_eq!(why("http://u:p@a/"), "it has a user: set the field Authorization");
        assert_eq!(why("http://a:65536/"), "its port is no number below 65536");
    }

    #[test]
    fn what_is_cut_is_checked_as_what_is_parsed() {
        for byte in 0..=127_u8 {
            for at in ["/a", "?", "/#", "/%", "/%4", "#a#"] {
                for end in ["", "b", "0/"] {
                    let text = format!("http://a.test{at}{}{end}", byte as char);
                    let cut = cut(&text).expect("a URL");
                    if cut.prefix == "http://a.test" {
                        let is_right = check(&text, cut.rest).is_ok();
                        assert_eq!(is_right, FetchUrl::parse(&text).is_ok(), "{text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn references_are_resolved() {
        let base = "http://a.test/b/c?d";
        for (reference, url) in [
            ("e", "http://a.test/b/e"),
            ("/e#f", "http://a.test/e"),
            ("?e", "http://a.test/b/c?e"),
            ("../../../e", "http://a.test/e"),
            ("//e.test/f", "http://e.test/f"),
            ("https://e.test", "https://e.test"),
            ("", "http://a.test/b/c?d"),
            ("mailto:a@b", "mailto:a@b"),
        ] {
            assert_eq!(join(base, reference).as_deref(), Ok(url), "{reference}");
        }
        assert!(join(base, "a b").is_err());
    }
}
