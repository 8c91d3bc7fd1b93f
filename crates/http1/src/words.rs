//! Methods and versions.

/// A version of HTTP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// HTTP/1.0: a connection ends behind each message if nobody asks for more.
    Http10,
    /// HTTP/1.1.
    Http11,
}

impl Version {
    /// As it is in a first line.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}

/// A method. Methods are case-sensitive (RFC 9110, 9.1).
///
/// ```
/// use windlass_http1::Method;
///
/// assert_eq!(Method::of(b"GET"), Method::Get);
/// assert_eq!(Method::of(b"get"), Method::Other);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`: the response has no body.
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `CONNECT`: a tunnel begins behind a 2xx response.
    Connect,
    /// `OPTIONS`
    Options,
    /// `TRACE`
    Trace,
    /// `PATCH`
    Patch,
    /// Any other token. The bytes of the head have it.
    Other,
}

impl Method {
    /// The method with this name.
    #[inline]
    pub fn of(name: &[u8]) -> Method {
        if name == b"GET" { Method::Get } else { Method::other_than_get(name) }
    }

    /// Its name, unless it is another token.
    #[inline]
    pub(crate) fn name(self) -> Option<&'static str> {
        Some(match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Connect => "CONNECT",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Other => return None,
        })
    }

    /// Whether a request can be sent twice, with the same effect as once (RFC 9110, section 9.2.2).
    /// A client may send such a request again when its connection has ended before the response.
    ///
    /// ```
    /// use windlass_http1::Method;
    ///
    /// assert!(Method::Put.is_idempotent());
    /// assert!(!Method::Post.is_idempotent());
    /// assert!(!Method::of(b"COPY").is_idempotent(), "what is not known may not be");
    /// ```
    pub fn is_idempotent(self) -> bool {
        use Method::{Delete, Get, Head, Options, Put, Trace};
        matches!(self, Get | Head | Put | Delete | Options | Trace)
    }

    fn other_than_get(name: &[u8]) -> Method {
        match name {
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }
}

/// What a response answers. It decides how the response is framed, so that the server that writes
/// it and the client that reads it both need it.
///
/// ```
/// use windlass_http1::{Asked, Method, Version};
///
/// let asked = Asked::new(Method::Head, Version::Http11);
/// assert!(asked.keep_alive && !asked.upgrade);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The method of the request.
    pub method: Method,
    /// The version of the request.
    pub version: Version,
    /// Whether the client can use the connection again behind the response.
    pub keep_alive: bool,
    /// Whether the request offers to switch to another protocol.
    pub upgrade: bool,
}

impl Asked {
    /// A request of this method, without fields that matter.
    pub fn new(method: Method, version: Version) -> Asked {
        Asked { method, version, keep_alive: version == Version::Http11, upgrade: false }
    }
}

/// Where the body of a message ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// There is no body.
    Empty,
    /// Behind so many bytes, at least one.
    Length(u64),
    /// Behind the last chunk.
    Chunked,
    /// With the connection: a response without a length.
    UntilClose,
    /// There is no body, and no further message: behind a CONNECT, its 2xx response, and a 101 the
    /// bytes belong to another protocol.
    Tunnel,
}
