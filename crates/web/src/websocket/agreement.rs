//! The handshake of a server.

use std::borrow::Cow;
use std::sync::Arc;

use windlass_http1::Method;
use windlass_websocket::Role;
#[cfg(feature = "deflate")]
use windlass_websocket::handshake::Deflate;
use windlass_websocket::handshake::{self, RequestError};

use super::session::Session;
use super::settings::{Origins, SocketSettings};
use crate::message::arrived::Arrived;
use crate::words::error::Error;
use crate::words::status::Status;

/// What both sides have agreed to.
pub(crate) struct AgreedSocket {
    /// The answer to the key.
    accept: String,
    /// The index of the sub-protocol in the settings, and one.
    protocol: u16,
    /// How messages are compressed, and the text that says so.
    #[cfg(feature = "deflate")]
    deflate: Option<(Deflate, String)>,
}

impl AgreedSocket {
    /// What a request and the settings agree to; or the response that refuses it.
    pub(crate) fn of(
        request: Arrived<'_>,
        has_unread_body: bool,
        settings: &SocketSettings,
    ) -> Result<AgreedSocket, Error> {
        if request.head.kind() != Method::Get {
            let error = Error::new(Status::METHOD_NOT_ALLOWED).text("a WebSocket needs a GET");
            return Err(error.header("Allow", "GET"));
        }
        let accept = match handshake::check_request(|name| values(request, name)) {
            Ok(accept) if request.offers("websocket") => accept,
            Ok(_) => return Err(refused(RequestError::NoUpgrade)), // it speaks HTTP/1.0
            Err(error) => return Err(refused(error)),
        };
        if !may_connect(request, &settings.origins) {
            return Err(Error::new(Status::FORBIDDEN).text("this origin may not connect"));
        }
        let protocol = protocol(request, &settings.protocols)?;
        if has_unread_body {
            return Err(Error::new(Status::BAD_REQUEST).text("a WebSocket begins without a body"));
        }
        Ok(AgreedSocket {
            accept,
            protocol,
            #[cfg(feature = "deflate")]
            deflate: match settings.deflate {
                Some(want) => {
                    want.accept(values(request, "Sec-WebSocket-Extensions")).map_err(refused)?
                }
                None => None,
            },
        })
    }

    /// The connection, and the fields of the 101.
    pub(crate) fn into_session(
        self,
        settings: &Arc<SocketSettings>,
    ) -> (Session, Vec<(&'static str, Cow<'static, str>)>) {
        let session = Session::new(Role::Server, Arc::clone(settings), self.protocol);
        let mut fields = vec![("Sec-WebSocket-Accept", self.accept.into())];
        #[cfg(feature = "deflate")]
        let session = match self.deflate {
            Some((agreed, text)) => {
                fields.push(("Sec-WebSocket-Extensions", text.into()));
                session.deflate(agreed)
            }
            None => session,
        };
        if let Some(at) = usize::from(self.protocol).checked_sub(1) {
            fields.push(("Sec-WebSocket-Protocol", settings.protocols[at].clone()));
        }
        (session, fields)
    }
}

/// The values of a field, one for each of its lines.
fn values<'a>(request: Arrived<'a>, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    let is_it = move |(other, _): &(&str, _)| name.eq_ignore_ascii_case(other);
    request.head.fields(request.bytes).filter(is_it).map(|(_, value)| value)
}

fn may_connect(request: Arrived<'_>, origins: &Origins) -> bool {
    let mut values = values(request, "Origin");
    let (origin, other) = (values.next(), values.next());
    let Some(origin) = origin.filter(|_| other.is_none()) else { return other.is_none() };
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    match origins {
        Origins::Any => true,
        Origins::These(these) => these.iter().any(|one| one.eq_ignore_ascii_case(origin)),
        Origins::Same => {
            request.head.authority(request.bytes).is_some_and(|host| is_of(origin, host))
        }
    }
}

/// The number of the sub-protocol.
fn protocol(request: Arrived<'_>, own: &[Cow<'static, str>]) -> Result<u16, Error> {
    let offered = || handshake::protocols(values(request, "Sec-WebSocket-Protocol"));
    if own.is_empty() || offered().next().is_none() {
        return Ok(0);
    }
    let chosen = own.iter().position(|name| offered().any(|one| one == name));
    let none = || Error::new(Status::BAD_REQUEST).text("no protocol of the offered ones");
    chosen.map(|at| at as u16 + 1).ok_or_else(none)
}

/// The response to a request that is none for a WebSocket.
fn refused(error: RequestError) -> Error {
    let status = Status::new(error.status()).unwrap_or(Status::BAD_REQUEST);
    let response = Error::new(status).text(error.to_string());
    if status != Status::UPGRADE_REQUIRED {
        return response;
    }
    response.header("Upgrade", "websocket").header("Sec-WebSocket-Version", handshake::VERSION)
}

/// Whether an origin is a page of this host.
fn is_of(origin: &str, host: &str) -> bool {
    let Some((scheme, from)) = origin.split_once("://") else { return false };
    let port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    let plain = |host: &str| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    plain(from) == plain(host)
}
