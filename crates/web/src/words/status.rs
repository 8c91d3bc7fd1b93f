//! The status of a response.

use std::fmt;

/// The status of a response: 100 to 599.
///
/// ```
/// use windlass_web::Status;
///
/// assert_eq!(Status::NOT_FOUND.to_string(), "404 Not Found");
/// assert_eq!(Status::new(299).map(Status::code), Some(299));
/// assert_eq!(Status::new(600), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

impl Status {
    /// A status, if it is 100 to 599.
    pub const fn new(code: u16) -> Option<Status> {
        if 100 <= code && code < 600 { Some(Status(code)) } else { None }
    }

    /// The number.
    pub const fn code(self) -> u16 {
        self.0
    }

    /// The usual text, as `Not Found`; empty for a number without one.
    pub fn reason(self) -> &'static str {
        windlass_http1::reason(self.0)
    }

    /// Whether it says that the request failed: 400 and above.
    pub const fn is_error(self) -> bool {
        self.0 >= 400
    }
}

macro_rules! statuses {
    ($($name:ident $code:literal,)+) => {
        impl Status {
            $(#[doc = concat!("`", $code, "`")] pub const $name: Status = Status($code);)+
        }
    };
}

statuses! {
    SWITCHING_PROTOCOLS 101,
    OK 200,
    CREATED 201,
    ACCEPTED 202,
    NO_CONTENT 204,
    PARTIAL_CONTENT 206,
    MOVED_PERMANENTLY 301,
    FOUND 302,
    SEE_OTHER 303,
    NOT_MODIFIED 304,
    TEMPORARY_REDIRECT 307,
    PERMANENT_REDIRECT 308,
    BAD_REQUEST 400,
    UNAUTHORIZED 401,
    FORBIDDEN 403,
    NOT_FOUND 404,
    METHOD_NOT_ALLOWED 405,
    NOT_ACCEPTABLE 406,
    REQUEST_TIMEOUT 408,
    CONFLICT 409,
    GONE 410,
    LENGTH_REQUIRED 411,
    PRECONDITION_FAILED 412,
    CONTENT_TOO_LARGE 413,
    URI_TOO_LONG 414,
    UNSUPPORTED_MEDIA_TYPE 415,
    RANGE_NOT_SATISFIABLE 416,
    EXPECTATION_FAILED 417,
    MISDIRECTED_REQUEST 421,
    UNPROCESSABLE_CONTENT 422,
    UPGRADE_REQUIRED 426,
    PRECONDITION_REQUIRED 428,
    TOO_MANY_REQUESTS 429,
    FIELDS_TOO_LARGE 431,
    INTERNAL_SERVER_ERROR 500,
    NOT_IMPLEMENTED 501,
    BAD_GATEWAY 502,
    SERVICE_UNAVAILABLE 503,
    GATEWAY_TIMEOUT 504,
    VERSION_NOT_SUPPORTED 505,
    INSUFFICIENT_STORAGE 507,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            "" => self.0.fmt(f),
            reason => write!(f, "{} {reason}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({})", self.0)
    }
}
