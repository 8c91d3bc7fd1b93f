//! The rules of redirects (RFC 9110, section 15.4).
//!
//! # Why
//! A redirect is another server's word. So it keeps the method only where the standard says so,
//! what identifies the user goes to no other origin, and nothing goes from `https` to `http` unless
//! the program allows it.

use super::error::FetchError;
use super::fetch::{Fetch, FetchBody};
use super::url::{FetchUrl, join};

/// Whether a response with this status leads elsewhere.
pub(super) fn leads_elsewhere(status: u16, fetch: &Fetch) -> bool {
    match status {
        301..=303 => true,
        // The body is gone.
        307 | 308 => !matches!(fetch.body, FetchBody::Source(..)),
        _ => false,
    }
}

/// Turns a request into that to which its response leads.
pub(super) fn follow(fetch: &mut Fetch, status: u16, location: &str) -> Result<(), FetchError> {
    let refused = |why| FetchError::Redirect { to: location.to_owned(), why };
    let url = join(&fetch.url, location).map_err(refused)?;
    let to = FetchUrl::parse(&url).map_err(|error| match error {
        FetchError::Url { why, .. } => refused(why),
        other => other,
    })?;
    let from = FetchUrl::parse(&fetch.url)?;
    if from.origin.is_tls && !to.origin.is_tls && !fetch.to_plain {
        return Err(refused("it leads from https to http"));
    }
    if from.origin != to.origin {
        let secret = ["authorization", "cookie", "proxy-authorization"];
        fetch.fields.retain(|(name, _)| !secret.iter().any(|own| name.eq_ignore_ascii_case(own)));
    }
    let becomes_get = match status {
        301 | 302 => fetch.method == "POST",
        303 => fetch.method != "GET" && fetch.method != "HEAD",
        _ => false,
    };
    if becomes_get {
        fetch.method = "GET".into();
        fetch.body = FetchBody::Nothing;
        let is_of_body =
            |name: &str| name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("content-"));
        fetch.fields.retain(|(name, _)| !is_of_body(name));
    }
    fetch.url = url;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(fetch: Fetch, status: u16, to: &str) -> Fetch {
        let mut fetch = fetch;
        assert!(leads_elsewhere(status, &fetch));
        follow(&mut fetch, status, to).expect("a redirect");
        fetch
    }

    #[test]
    fn methods() {
        let method = |method: &'static str, status| {
            let fetch = Fetch::new(method, "http://a.test/").body("1").header("Content-Type", "a");
            let fetch = followed(fetch, status, "/b");
            let has_body = matches!(fetch.body, FetchBody::Bytes(_));
            assert_eq!(has_body, fetch.has("content-type"));
            (fetch.method.into_owned(), has_body)
        };
        for status in [301, 302, 303] {
            assert_eq!(method("POST", status), ("GET".to_owned(), false));
        }
        for status in [307, 308] {
            assert_eq!(method("POST", status), ("POST".to_owned(), true));
        }
        for status in [301, 302, 307, 308] {
            assert_eq!(method("PUT", status), ("PUT".to_owned(), true));
            assert_eq!(method("HEAD", status).0, "HEAD");
        }
        assert_eq!(method("PUT", 303).0, "GET");
        assert_eq!(method("HEAD", 303).0, "HEAD");
        for status in [300, 304, 305, 306, 200, 404] {
            assert!(!leads_elsewhere(status, &Fetch::get("http://a.test/")));
        }
    }

    #[test]
    fn secrets_stay_with_their_origin() {
        let has_secrets = |to: &str| {
            let fetch = Fetch::get("http://a.test/").header("Cookie", "1").header("X", "1");
            let fetch = followed(fetch.header("AUTHORIZATION", "1"), 302, to);
            assert!(fetch.has("x"));
            assert_eq!(fetch.has("cookie"), fetch.has("authorization"));
            fetch.has("cookie")
        };
        assert!(has_secrets("/b") && has_secrets("http://A.test:80/b"));
        for to in ["http://b.test/", "http://a.test:81/", "https://a.test/", "//b.test/"] {
            assert!(!has_secrets(to), "{to}");
        }
    }

    #[test]
    fn what_is_not_followed() {
        let why = |from: &str, to: &str| match follow(&mut Fetch::get(from), 302, to) {
            Err(FetchError::Redirect { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why("https://a.test/", "http://a.test/"), "it leads from https to http");
        for to in ["file:///etc/passwd", "javascript:1", "ftp://a.test/"] {
            assert_eq!(why("http://a.test/", to), "its scheme is neither http nor https");
        }
        let user = "it has a user: set the field Authorization";
        assert_eq!(why("http://a.test/", "http://u:p@a.test/"), user);
        assert_eq!(why("http://a.test/", "/a b"), "it is no reference of a URL");
        let mut fetch = Fetch::get("https://a.test/").redirect_to_plain(true);
        assert!(follow(&mut fetch, 302, "http://a.test/").is_ok());
    }
}
