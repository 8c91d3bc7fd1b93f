//! Connections that an application opens to other servers.

use windlass::Buf;
use windlass_web::App;
use windlass_web::upgrade::{Protocol, RawConn};
use windlass_web::websocket::{Message, Peer, Socket, WebSocketSettings};
use windlass_websocket::{FrameHead, Opcode, handshake};

use crate::bench::serve;
use crate::common::Harness;

crate::every_kernel! {
    early_frames_may_ask_for_something_each
}

#[derive(Default)]
struct Log {
    heard: Vec<(char, String)>,
}

/// A server that says three texts with its response, and nothing more.
struct Early;

impl Protocol<Log> for Early {
    fn opened(&mut self, _: &mut Log, c: &mut RawConn<'_, Log>) {
        for text in ["one", "two", "three"] {
            let mut frame = Vec::new();
            FrameHead::new(Opcode::Text, text.len() as u64).put(&mut frame);
            frame.extend_from_slice(text.as_bytes());
            c.write(frame).expect("there is room");
        }
    }

    fn data(&mut self, _: &mut Log, _: &mut RawConn<'_, Log>, _: Buf) {}
}

/// Publishes each message that it hears.
struct Relay(char);

impl Peer<Log> for Relay {
    fn open(&mut self, _: &mut Log, c: &mut Socket<'_>) {
        c.subscribe("relayed");
    }

    fn message(&mut self, log: &mut Log, c: &mut Socket<'_>, message: Message) {
        let text = message.as_text().expect("a text").to_owned();
        c.publish("a topic without subscribers", text.clone());
        log.heard.push((self.0, text));
    }
}

fn early_frames_may_ask_for_something_each<T: Harness>() {
    let app = App::with(|_| Log::default()).get("/early", |_, q| {
        let accept = q.header("Sec-WebSocket-Key").and_then(handshake::accept);
        let response = q.upgrade("websocket", Early);
        response.header("Sec-WebSocket-Accept", accept.expect("a key"))
    });
    let mut web = serve::<T, _>(app);
    let url = format!("ws://{}/early", web.address.ip().expect("an address"));
    let remote = web.server.remote();
    for name in ['a', 'b', 'c'] {
        let peer = Relay(name);
        assert!(remote.open_websocket::<Log>(0, url.as_str(), &WebSocketSettings::new(), peer));
    }
    web.until("all is heard", |web| web.server.state().heard.len() == 9);
    for name in ['a', 'b', 'c'] {
        let heard = web.server.state().heard.iter().filter(|(of, _)| *of == name);
        assert!(heard.map(|(_, text)| &**text).eq(["one", "two", "three"]), "{name}");
    }
}
