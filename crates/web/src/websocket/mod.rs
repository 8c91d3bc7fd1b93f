//! WebSockets: messages both ways on one connection.
//!
//! [`App::websocket`] serves them beside HTTP, on the same port. A [`Peer`] is the program's part
//! of one connection: its state and its callbacks. A [`Socket`] is the connection in a callback.
//! The [guide](crate::guide#talk-over-websockets) has origins, limits, slow clients, compression,
//! proxies, tests, and why a connection ended.
//!
//! ```no_run
//! use windlass_web::websocket::{Message, Peer, Socket};
//! use windlass_web::{App, Status};
//!
//! struct Echo;
//! impl Peer<()> for Echo {
//!     fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
//!         c.send(message);
//!     }
//! }
//!
//! let app = App::new().websocket("/echo", |_, _| Ok::<_, Status>(Echo));
//! app.listen("127.0.0.1:8080")?.run()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A connection is the same on either side, and in each kind of program:
//!
//! | program | accepts | opens to another server | hears by |
//! |---|---|---|---|
//! | [`App`] | [`App::websocket`] | [`Remote::open_websocket`] | a [`Peer`] |
//! | [`Engine`] | [`Engine::accept_websocket`] | [`Engine::open_websocket`] | [`Event`] |
//! | [`Client`] | | [`Client::open_websocket`] | [`FetchEvent`] |
//!
//! A program with events gets the [`Socket`] by the id of the connection, anywhere in the loop:
//! from [`Engine::socket`] or [`Client::socket`]. A [`SocketSender`] sends from other threads.
//!
//! [`App`]: crate::App
//! [`App::websocket`]: crate::App::websocket
//! [`Client`]: crate::Client
//! [`Client::open_websocket`]: crate::Client::open_websocket
//! [`Client::socket`]: crate::Client::socket
//! [`Engine`]: crate::Engine
//! [`Engine::accept_websocket`]: crate::Engine::accept_websocket
//! [`Engine::open_websocket`]: crate::Engine::open_websocket
//! [`Engine::socket`]: crate::Engine::socket
//! [`Event`]: crate::engine::Event
//! [`FetchEvent`]: crate::client::FetchEvent
//! [`Remote::open_websocket`]: crate::Remote::open_websocket

mod agreement;
mod carrier;
#[cfg(feature = "deflate")]
mod compression;
mod ends;
mod frames;
mod incoming;
mod inflate_parts;
mod loop_sockets;
mod mask_keys;
mod message;
mod opening;
mod own_carrier;
mod parts;
mod peer;
mod sender;
mod sending;
mod session;
mod settings;
mod socket;
mod unfinished;
mod unfinished_output;

pub(crate) use agreement::AgreedSocket;
pub(crate) use carrier::Carrier;
pub use ends::SocketEnd;
pub(crate) use loop_sockets::LoopSockets;
pub use message::{Message, Payload, Text};
pub(crate) use opening::{ClientHandshake, refusal};
pub(crate) use own_carrier::{OwnCarrier, OwnSockets};
pub use parts::MessagePart;
pub use peer::Peer;
pub use sender::SocketSender;
pub(crate) use session::{PeerNews, Session};
pub(crate) use settings::SocketSettings;
pub use settings::WebSocketSettings;
pub use socket::Socket;
pub(crate) use unfinished::Intake;
#[cfg(feature = "deflate")]
pub use windlass_websocket::handshake::Deflate;
pub use windlass_websocket::{CloseCode, Kind};
