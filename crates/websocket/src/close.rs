//! Why a connection closes.

use std::fmt;

/// The code of a close frame: 1000 to 4999, as far as one may be sent.
///
/// ```
/// use windlass_websocket::CloseCode;
///
/// assert_eq!(CloseCode::new(1006), None); // it stands for a connection that broke
/// assert_eq!(CloseCode::new(4000).map(CloseCode::number), Some(4000));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The connection has done what it was for.
    pub const NORMAL: CloseCode = CloseCode(1000);
    /// The server shuts down, or the page is left.
    pub const GOING_AWAY: CloseCode = CloseCode(1001);
    /// The peer breaks the protocol.
    pub const PROTOCOL: CloseCode = CloseCode(1002);
    /// The peer has sent a kind of message that is not taken.
    pub const UNSUPPORTED: CloseCode = CloseCode(1003);
    /// A message is not what it says: text that is no UTF-8, or compressed bytes that are none.
    pub const INVALID: CloseCode = CloseCode(1007);
    /// A message breaks a rule of the program.
    pub const POLICY: CloseCode = CloseCode(1008);
    /// A message is too large.
    pub const TOO_BIG: CloseCode = CloseCode(1009);
    /// The client needs an extension that the server has not agreed to.
    pub const EXTENSION: CloseCode = CloseCode(1010);
    /// The server has failed.
    pub const INTERNAL: CloseCode = CloseCode(1011);
    /// The server starts again.
    pub const RESTART: CloseCode = CloseCode(1012);
    /// The server has too much to do.
    pub const TRY_LATER: CloseCode = CloseCode(1013);
    /// A gateway has got an invalid response.
    pub const BAD_GATEWAY: CloseCode = CloseCode(1014);

    /// A code that a close frame may have: 1000 to 1003, 1007 to 1014, and 3000 to 4999.
    pub const fn new(number: u16) -> Option<CloseCode> {
        match number {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(CloseCode(number)),
            _ => None,
        }
    }

    /// The number of the code.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
