//! What is wrong with the bytes of a peer, and the code that closes the connection.

use std::fmt;

use crate::close::CloseCode;

/// Bytes that the codec refuses. A close frame with [`Error::close_code`] answers them, and the
/// connection ends. A decoder that has refused bytes returns the same error for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error(Rule);

impl Error {
    /// The rule or the limit that is broken.
    pub fn rule(self) -> Rule {
        self.0
    }

    /// The code of the close frame that answers it.
    pub fn close_code(self) -> CloseCode {
        self.0.close_code()
    }
}

impl From<Rule> for Error {
    fn from(rule: Rule) -> Error {
        Error(rule)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.text())
    }
}

impl std::error::Error for Error {}

/// Makes the list of rules: a name, its close code, a text.
macro_rules! rules {
    ($($(#[$doc:meta])+ $name:ident $code:ident $text:literal,)+) => {
        /// A rule of the protocol, or a limit.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum Rule { $($(#[$doc])+ $name,)+ }

        impl Rule {
            fn close_code(self) -> CloseCode {
                match self { $(Rule::$name => CloseCode::$code,)+ }
            }

            fn text(self) -> &'static str {
                match self { $(Rule::$name => $text,)+ }
            }
        }
    };
}

rules! {
    /// A reserved bit is set, and no extension gives it a meaning.
    ReservedBit PROTOCOL "a reserved bit is set",
    /// An opcode that RFC 6455 does not define.
    ReservedOpcode PROTOCOL "the opcode is reserved",
    /// A frame of a client without a mask.
    NoMask PROTOCOL "a frame of a client has no mask",
    /// A frame of a server with a mask.
    Masked PROTOCOL "a frame of a server has a mask",
    /// A length that is written in more bytes than it needs, or that has more than 63 bits.
    Length PROTOCOL "a length is not written as it must be",
    /// A control frame that is fragmented.
    ControlFragment PROTOCOL "a control frame is in parts",
    /// A control frame of more than 125 bytes.
    ControlLength PROTOCOL "a control frame has more than 125 bytes",
    /// A part of a message that has not begun.
    NoMessage PROTOCOL "a part of a message comes without its beginning",
    /// A message begins within another one.
    Interrupted PROTOCOL "a message begins before the last one has ended",
    /// A close frame with one byte, or with a code that must not be sent.
    CloseCode PROTOCOL "a close frame has no valid code",
    /// Text, or the reason of a close frame, that is not UTF-8.
    Utf8 INVALID "text is not UTF-8",
    /// A compressed message whose payload is no DEFLATE.
    Deflate INVALID "a message is not compressed as it says",
    /// A message with more bytes than [`Limits::message`](crate::Limits::message), or one that
    /// inflates to more than is allowed.
    MessageLength TOO_BIG "a message is too long",
    /// A message of more frames than [`Limits::fragments`](crate::Limits::fragments).
    Fragments TOO_BIG "a message has too many parts",
}
