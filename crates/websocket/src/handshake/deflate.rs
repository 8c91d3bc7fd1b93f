//! What two sides agree to about permessage-deflate (RFC 7692, section 7).

use std::fmt::Write;

use super::errors::{RequestError, ResponseError};
use super::list::{Extension, extensions};

const NAME: &str = "permessage-deflate";

/// The windows that a side can have, in bits. DEFLATE has one of 8 too, and zlib has none for raw
/// DEFLATE: it takes one of 9 bits instead or fails.
const LEAST: u8 = 9;
const MOST: u8 = 15;

/// How messages are compressed: what a side wants, or what both have agreed to.
///
/// The default keeps nothing between messages: no context takeover either way, and windows of 15
/// bits. [`Deflate::TAKEOVER`] compresses better, and keeps up to 4 KiB of each direction for each
/// connection.
///
/// ```
/// use windlass_websocket::handshake::Deflate;
///
/// let want = Deflate::default();
/// let offer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
///              client_max_window_bits";
/// assert_eq!(want.offer(), offer);
///
/// let answer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
/// assert_eq!(want.accept([offer]), Ok(Some((want, answer.to_owned()))));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Deflate {
    /// The most bits of the window by which the server compresses: 9 to 15. As a wish, less than 9
    /// is 9, and more than 15 is 15.
    pub server_window: u8,
    /// The most bits of the window by which the client compresses: 9 to 15, likewise. The window of
    /// a client that cannot be told so has 15 bits, and its context is not taken over then.
    pub client_window: u8,
    /// Whether the server's messages may refer to those before. The client keeps 2 to the power of
    /// `server_window` bytes then.
    pub server_takeover: bool,
    /// Whether the client's messages may refer to those before. The server keeps 2 to the power of
    /// `client_window` bytes then.
    pub client_takeover: bool,
}

impl Default for Deflate {
    fn default() -> Deflate {
        Deflate::NO_TAKEOVER
    }
}

impl Deflate {
    /// No context takeover, windows of 15 bits.
    pub const NO_TAKEOVER: Deflate = Deflate {
        server_window: MOST,
        client_window: MOST,
        server_takeover: false,
        client_takeover: false,
    };

    /// Context takeover both ways, windows of 12 bits.
    pub const TAKEOVER: Deflate = Deflate {
        server_window: 12,
        client_window: 12,
        server_takeover: true,
        client_takeover: true,
    };

    /// The windows are those that a side can have.
    fn clamped(mut self) -> Deflate {
        self.server_window = self.server_window.clamp(LEAST, MOST);
        self.client_window = self.client_window.clamp(LEAST, MOST);
        self
    }

    /// The offer of a client that wants this: the value of `Sec-WebSocket-Extensions`.
    pub fn offer(self) -> String {
        let want = self.clamped();
        let client_window = match want.client_window {
            MOST => Some(Bits::Any),
            bits => Some(Bits::Most(bits)),
        };
        let server_window = (want.server_window < MOST).then_some(want.server_window);
        Terms {
            server_without: !want.server_takeover,
            client_without: !want.client_takeover,
            server_window,
            client_window,
        }
        .text()
    }

    /// What a server that wants this agrees to, and the value of `Sec-WebSocket-Extensions` that
    /// says so: the answer to the first offer that can be agreed to. `None`: to none, and the
    /// response has no such field. The values are those of the request.
    ///
    /// What is agreed to is never more than what this side wants, but for the window of a client
    /// that cannot be told: see [`client_window`](Deflate::client_window). An offer is left out if
    /// it has an unknown parameter, one twice, a value that is none, or asks for a server's window
    /// of 8 bits. A client that promises a window of 8 bits gets what holds for 9.
    ///
    /// # Errors
    ///
    /// The values are no list of extensions. [`RequestError::status`] answers the request.
    pub fn accept<'a, V: AsRef<[u8]> + ?Sized + 'a>(
        self,
        values: impl IntoIterator<Item = &'a V>,
    ) -> Result<Option<(Deflate, String)>, RequestError> {
        let mut agreed = None;
        for extension in values.into_iter().flat_map(extensions) {
            let extension = extension.map_err(|_| RequestError::Extensions)?;
            if agreed.is_none() && extension.name == NAME.as_bytes() {
                agreed = Terms::read(extension).and_then(|offer| self.clamped().answer(offer));
            }
        }
        Ok(agreed)
    }

    /// The answer to an offer, if there is one.
    fn answer(self, offer: Terms) -> Option<(Deflate, String)> {
        let asked = offer.server_window.unwrap_or(MOST);
        if asked < LEAST {
            return None;
        }
        let server_window = self.server_window.min(asked);
        // An answer must not name a window that is larger than the one of the offer: a client that
        // promises 8 bits is told none.
        let (client_window, told) = match offer.client_window {
            None => (MOST, None),
            Some(Bits::Most(bits)) if bits < LEAST => (LEAST, None),
            Some(bits) => {
                let window = bits.most().min(self.client_window);
                (window, (window < MOST).then_some(Bits::Most(window)))
            }
        };
        let agreed = Deflate {
            server_window,
            client_window,
            server_takeover: self.server_takeover && !offer.server_without,
            client_takeover: self.client_takeover
                && !offer.client_without
                && client_window <= self.client_window,
        };
        // Without takeover, a smaller window saves a client next to nothing.
        let is_told =
            offer.server_window.is_some() || agreed.server_takeover && server_window < MOST;
        let answer = Terms {
            server_without: !agreed.server_takeover,
            client_without: !agreed.client_takeover,
            server_window: is_told.then_some(server_window),
            client_window: told,
        };
        Some((agreed, answer.text()))
    }

    /// What a server has agreed to, after this offer.
    fn agreed(self, answer: Terms) -> Option<Deflate> {
        let server_window = answer.server_window.unwrap_or(MOST);
        let client_window = match answer.client_window {
            None => self.client_window,
            Some(Bits::Most(bits)) => bits.min(self.client_window),
            Some(Bits::Any) => return None,
        };
        let breaks_server = server_window > self.server_window
            || !self.server_takeover && !answer.server_without
            || client_window < LEAST;
        (!breaks_server).then(|| Deflate {
            server_window: server_window.max(LEAST),
            client_window,
            server_takeover: !answer.server_without,
            client_takeover: self.client_takeover && !answer.client_without,
        })
    }
}

/// What the response of a server to a client's [`Deflate::offer`] agrees to. `None`: to nothing,
/// and messages are not compressed. Without an offer, every extension is an error. The values are
/// those of `Sec-WebSocket-Extensions`.
///
/// # Errors
///
/// The values are no list of extensions, or have one that was not offered, one twice, an unknown
/// parameter, one twice, or a value that is none or beyond what was offered. A client's window of 8
/// bits is one too: nothing that zlib compresses fits it for sure.
///
/// ```
/// use windlass_websocket::handshake::{Deflate, ResponseError, check_extensions};
///
/// let offered = Some(Deflate::TAKEOVER);
/// assert_eq!(check_extensions(offered, [""; 0]), Ok(None));
/// let answer = "permessage-deflate; server_max_window_bits=10; client_no_context_takeover";
/// let agreed = check_extensions(offered, [answer])?.expect("it is agreed to");
/// assert_eq!((agreed.server_window, agreed.client_takeover), (10, false));
/// assert!(check_extensions(None, [answer]).is_err());
/// # Ok::<(), ResponseError>(())
/// ```
pub fn check_extensions<'a, V: AsRef<[u8]> + ?Sized + 'a>(
    offered: Option<Deflate>,
    values: impl IntoIterator<Item = &'a V>,
) -> Result<Option<Deflate>, ResponseError> {
    let mut agreed = None;
    for extension in values.into_iter().flat_map(extensions) {
        let extension = extension.map_err(|_| ResponseError::Extensions)?;
        if agreed.is_some() || extension.name != NAME.as_bytes() {
            return Err(ResponseError::Extensions);
        }
        let answer = Terms::read(extension);
        let both = offered.zip(answer).and_then(|(offer, answer)| offer.clamped().agreed(answer));
        agreed = Some(both.ok_or(ResponseError::Extensions)?);
    }
    Ok(agreed)
}

/// The bits of a client's window.
#[derive(Clone, Copy)]
enum Bits {
    /// As many as the server says.
    Any,
    /// At most so many: 8 to 15.
    Most(u8),
}

impl Bits {
    fn most(self) -> u8 {
        match self {
            Bits::Any => MOST,
            Bits::Most(bits) => bits,
        }
    }
}

/// What the parameters of an offer or of an answer say.
#[derive(Clone, Copy, Default)]
struct Terms {
    server_without: bool,
    client_without: bool,
    server_window: Option<u8>,
    client_window: Option<Bits>,
}

impl Terms {
    /// `None` if one is unknown, comes twice, or has a value that is none.
    fn read(extension: Extension<'_>) -> Option<Terms> {
        let mut read = Terms::default();
        for (name, value) in extension.params() {
            let is_twice = match name {
                b"server_no_context_takeover" if value.is_none() => {
                    std::mem::replace(&mut read.server_without, true)
                }
                b"client_no_context_takeover" if value.is_none() => {
                    std::mem::replace(&mut read.client_without, true)
                }
                b"server_max_window_bits" => read.server_window.replace(bits(value?)?).is_some(),
                b"client_max_window_bits" => {
                    let bits = value.map_or(Some(Bits::Any), |value| bits(value).map(Bits::Most));
                    read.client_window.replace(bits?).is_some()
                }
                _ => return None,
            };
            if is_twice {
                return None;
            }
        }
        Some(read)
    }

    fn text(self) -> String {
        let mut text = NAME.to_owned();
        if self.server_without {
            text.push_str("; server_no_context_takeover");
        }
        if self.client_without {
            text.push_str("; client_no_context_takeover");
        }
        if let Some(bits) = self.server_window {
            write!(text, "; server_max_window_bits={bits}").expect("it is in memory");
        }
        match self.client_window {
            None => {}
            Some(Bits::Any) => text.push_str("; client_max_window_bits"),
            Some(Bits::Most(bits)) => {
                write!(text, "; client_max_window_bits={bits}").expect("it is in memory");
            }
        }
        text
    }
}

/// A number of 8 to 15 without a sign and without zeros in front. It may have escapes.
fn bits(value: &[u8]) -> Option<u8> {
    let mut digits = value.iter().filter(|byte| **byte != b'\\');
    match (digits.next()?, digits.next(), digits.next()) {
        (digit @ b'8'..=b'9', None, _) => Some(digit - b'0'),
        (b'1', Some(digit @ b'0'..=b'5'), None) => Some(10 + digit - b'0'),
        _ => None,
    }
}
