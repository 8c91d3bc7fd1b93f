//! The words of the protocol.

/// Which side of a connection this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The side that has accepted the connection. It sends frames without a mask, and gets masked
    /// ones.
    Server,
    /// The side that has made the connection. It sends masked frames, and gets ones without a mask.
    Client,
}

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Text in UTF-8.
    Text,
    /// Bytes.
    Binary,
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// A part of a message that is not its first.
    Continuation = 0,
    /// The first part of a text.
    Text = 1,
    /// The first part of a message of bytes.
    Binary = 2,
    /// No frame follows this one.
    Close = 8,
    /// It asks for a pong.
    Ping = 9,
    /// The answer to a ping, or a sign of life.
    Pong = 10,
}

impl Opcode {
    pub(crate) fn new(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    pub(crate) const fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

impl From<Kind> for Opcode {
    fn from(kind: Kind) -> Opcode {
        match kind {
            Kind::Text => Opcode::Text,
            Kind::Binary => Opcode::Binary,
        }
    }
}
