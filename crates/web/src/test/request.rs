//! A request of a test.

use windlass_http1::{Asked, EncodeError, Method, RequestEncoder};

/// A request of a test: made by [`get`], [`post`] and the like.
///
/// ```
/// use windlass_web::{App, test};
///
/// let app = App::new().post("/echo", |_, q| q.body().map(<[u8]>::to_vec));
/// let request = test::post("/echo").header("Content-Type", "text/plain").body("hello");
/// assert_eq!(app.call(request).text(), "hello");
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is not sent yet"]
pub struct TestRequest {
    pub(super) method: String,
    pub(super) url: String,
    fields: Vec<(String, String)>,
    body: Sent,
    closes: bool,
}

/// The body of a request.
#[derive(Clone, Debug)]
enum Sent {
    Nothing,
    Length(Vec<u8>),
    Chunks(Vec<Vec<u8>>),
}

/// A request with a method: a token such as `PURGE`. The URL is one of `http` or `https`, or only a
/// path where there is no network.
pub fn request(method: &str, url: &str) -> TestRequest {
    TestRequest {
        method: method.to_owned(),
        url: url.to_owned(),
        fields: Vec::new(),
        body: Sent::Nothing,
        closes: false,
    }
}

/// Functions with a method's name.
macro_rules! methods {
    ($($name:ident $method:literal,)+) => {
        $(
            #[doc = concat!("A `", $method, "`: see [`request`].")]
            pub fn $name(url: &str) -> TestRequest {
                request($method, url)
            }
        )+
    };
}

methods! {
    get "GET",
    head "HEAD",
    post "POST",
    put "PUT",
    delete "DELETE",
    patch "PATCH",
}

/// The client writes `Content-Length` itself. A value that is no UTF-8 has U+FFFD.
#[cfg(feature = "http")]
impl<B: Into<Vec<u8>>> From<http::Request<B>> for TestRequest {
    fn from(from: http::Request<B>) -> TestRequest {
        let (parts, body) = from.into_parts();
        let mut made = request(parts.method.as_str(), &parts.uri.to_string());
        let framing = [http::header::CONTENT_LENGTH, http::header::TRANSFER_ENCODING];
        for (name, value) in parts.headers.iter().filter(|(name, _)| !framing.contains(name)) {
            made = made.header(name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
        }
        let body: Vec<u8> = body.into();
        if body.is_empty() { made } else { made.body(body) }
    }
}

impl TestRequest {
    /// Adds a field.
    pub fn header(mut self, name: &str, value: &str) -> TestRequest {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body. It has a `Content-Length`.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> TestRequest {
        self.body = Sent::Length(body.into());
        self
    }

    /// Sets the body, in chunks of HTTP. Empty ones are left out.
    pub fn chunks<T: Into<Vec<u8>>>(mut self, parts: impl IntoIterator<Item = T>) -> TestRequest {
        self.body = Sent::Chunks(parts.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the body to a value as JSON.
    ///
    /// # Panics
    ///
    /// If it cannot be serialized.
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize + ?Sized>(self, value: &T) -> TestRequest {
        let body = serde_json::to_vec(value).expect("a value that is JSON");
        self.header("Content-Type", "application/json").body(body)
    }

    /// Asks the server to close the connection behind the response.
    pub fn close(mut self) -> TestRequest {
        self.closes = true;
        self
    }

    /// Whether it can be repeated when nobody knows whether the server has seen it (RFC 9110,
    /// 9.2.2).
    pub(super) fn is_idempotent(&self) -> bool {
        Method::of(self.method.as_bytes()).is_idempotent()
    }

    /// The bytes, and what the response answers.
    pub(super) fn encode(&self, host: &str, target: &str) -> (Vec<u8>, Asked) {
        self.try_encode(host, target).unwrap_or_else(|error| {
            panic!("{} {} is no request ({error}): send bytes instead", self.method, self.url)
        })
    }

    fn try_encode(&self, host: &str, target: &str) -> Result<(Vec<u8>, Asked), EncodeError> {
        let mut out = Vec::new();
        let mut head = RequestEncoder::new(&mut out, &self.method, target, host)?;
        for (name, value) in &self.fields {
            head.field(name, value)?;
        }
        if self.closes {
            head.close();
        }
        let asked = head.asked();
        match &self.body {
            Sent::Nothing => {
                head.empty();
            }
            Sent::Length(body) => head.length(body.len() as u64)?.data(&mut out, body)?,
            Sent::Chunks(parts) => {
                let mut body = head.chunked()?;
                for part in parts {
                    body.data(&mut out, part)?;
                }
                body.end(&mut out)?;
            }
        }
        Ok((out, asked))
    }
}

/// The parts of a URL that a client needs.
pub(super) struct Url<'a> {
    pub(super) is_tls: bool,
    /// The host and the port, as they stand in the URL.
    pub(super) authority: &'a str,
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) target: &'a str,
}

impl<'a> Url<'a> {
    /// # Panics
    ///
    /// If it is none of `http` or `https`.
    pub(super) fn parse(url: &'a str) -> Url<'a> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let is_tls = match scheme {
            "http" => false,
            "https" => true,
            _ => panic!("{url} has to begin with http:// or https://"),
        };
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(at);
        assert!(target.is_empty() || target.starts_with('/'), "{url} needs a path");
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().expect("a port")),
            None => (authority, if is_tls { 443 } else { 80 }),
        };
        let target = target.split('#').next().filter(|path| !path.is_empty()).unwrap_or("/");
        Url { is_tls, authority, host, port, target }
    }
}
