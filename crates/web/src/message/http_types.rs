//! Requests and responses as types of the crate `http`.

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use windlass_http1::Version;

use crate::message::request::Request;
use crate::message::response::{Body, Response};
use crate::words::error::Error;
use crate::words::status::Status;

/// A status from 600 on is none of HTTP, and comes back.
impl TryFrom<StatusCode> for Status {
    type Error = StatusCode;

    fn try_from(status: StatusCode) -> Result<Status, StatusCode> {
        Status::new(status.as_u16()).ok_or(status)
    }
}

impl From<Status> for StatusCode {
    fn from(status: Status) -> StatusCode {
        StatusCode::from_u16(status.code()).expect("both have 100 to 599")
    }
}

/// A request with its body, for code that takes types of the crate `http`. All bytes are copied.
///
/// ```
/// use windlass_web::{App, Error, test};
///
/// let app = App::new().post("/", |_, q| {
///     let request = http::Request::<Vec<u8>>::try_from(&*q)?;
///     Ok::<_, Error>(http::Response::new(request.into_body()))
/// });
/// assert_eq!(app.call(test::post("/").body("text")).body(), b"text");
/// ```
///
/// # Errors
///
/// - 400: the target is no `http::Uri`, or a part is longer than the types can be.
/// - Those of [`Request::body`].
impl<S: 'static> TryFrom<&Request<'_, S>> for http::Request<Vec<u8>> {
    type Error = Error;

    fn try_from(request: &Request<'_, S>) -> Result<http::Request<Vec<u8>>, Error> {
        let body = request.body()?.to_vec();
        let mut made = http::Request::builder()
            .method(request.method())
            .uri(request.target())
            .version(match request.version() {
                Version::Http10 => http::Version::HTTP_10,
                Version::Http11 => http::Version::HTTP_11,
            });
        for (name, value) in request.headers() {
            made = made.header(name, value);
        }
        let refused = |error| Error::new(Status::BAD_REQUEST).because(error);
        made.body(body).map_err(refused)
    }
}

/// The response of code that makes types of the crate `http`.
///
/// The server writes `Content-Length`, `Transfer-Encoding` and `Date` itself, so that those of the
/// response do not count. `Connection: close` closes the connection. A status from 600 on, and a
/// value that is no UTF-8, make a 500.
impl<B: Into<Vec<u8>>> From<http::Response<B>> for Response {
    fn from(response: http::Response<B>) -> Response {
        let (parts, body) = response.into_parts();
        let failed = |cause| Error::new(Status::INTERNAL_SERVER_ERROR).because(cause).into();
        let Ok(status) = Status::try_from(parts.status) else {
            return failed(format!("the status {} is none of HTTP", parts.status));
        };
        let body: Vec<u8> = body.into();
        let body = if body.is_empty() { Body::Empty } else { Body::Bytes(body) };
        let mut made = Response::of(status, None, body);
        for (name, value) in &parts.headers {
            let Ok(text) = std::str::from_utf8(value.as_bytes()) else {
                return failed(format!("the value of {name} is no UTF-8"));
            };
            match name {
                &CONNECTION if text.eq_ignore_ascii_case("close") => made.head_mut().close(),
                &CONNECTION | &CONTENT_LENGTH | &TRANSFER_ENCODING | &DATE | &UPGRADE => {}
                _ => made.head_mut().add(name.as_str().to_owned(), text.to_owned()),
            }
        }
        made
    }
}

/// A response that is there. One that is made while it is sent, or that comes later, comes back;
/// also one with a field that the types cannot have.
impl TryFrom<Response> for http::Response<Vec<u8>> {
    type Error = Response;

    fn try_from(response: Response) -> Result<http::Response<Vec<u8>>, Response> {
        let Some(headers) = headers(&response) else { return Err(response) };
        let body = match response.body() {
            Body::Empty => Vec::new(),
            Body::Static(bytes) => bytes.to_vec(),
            Body::Bytes(bytes) => bytes.clone(),
            Body::Shared(bytes) => bytes.to_vec(),
            _ => return Err(response),
        };
        let mut made = http::Response::new(body);
        *made.status_mut() = response.head().status().into();
        *made.headers_mut() = headers;
        Ok(made)
    }
}

/// The fields of a response that the program has set.
fn headers(response: &Response) -> Option<HeaderMap> {
    let head = response.head();
    let kind = head.kind().map(|kind| ("content-type", kind));
    let mut headers = HeaderMap::new();
    for (name, value) in kind.into_iter().chain(head.fields()) {
        let name = HeaderName::try_from(name).ok()?;
        headers.append(name, HeaderValue::try_from(value).ok()?);
    }
    Some(headers)
}
