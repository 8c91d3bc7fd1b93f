//! Messages in parts.

use windlass_web::App;
use windlass_web::Status;
use windlass_web::websocket::{
    CloseCode, Kind, Message, MessagePart, Peer, Socket, SocketEnd, WebSocketSettings,
};

use crate::bench::{Web, serve};
use crate::client::{BINARY, LAST, PART, TEXT, TEXT_PART, Ws, frame, said};
use crate::common::Harness;
use crate::messages::bytes;

crate::every_kernel! {
    parts_come_as_they_are_read
    a_pause_in_the_middle_loses_nothing
    a_text_is_checked_over_its_parts
}

/// Collects parts, and answers a message by its length.
#[derive(Default)]
struct Collects {
    kind: Option<Kind>,
    all: Vec<u8>,
    parts: usize,
    /// Pauses behind each part, until it is woken.
    pauses: bool,
    /// Publishes behind each part.
    publishes: bool,
}

#[derive(Default)]
struct Log {
    whole: Vec<(Kind, Vec<u8>, usize)>,
    ids: Vec<windlass_serve::Id>,
    begun: usize,
    ended: usize,
    clean: usize,
}

impl Peer<Log> for Collects {
    fn open(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        log.ids.push(c.id());
    }

    fn message(&mut self, _: &mut Log, _: &mut Socket<'_>, _: Message) {
        panic!("a message comes in parts");
    }

    fn part(&mut self, log: &mut Log, c: &mut Socket<'_>, part: MessagePart) {
        assert_eq!(part.is_first, self.kind.is_none());
        if part.is_first {
            (self.kind, self.parts) = (Some(part.kind), 0);
            log.begun += 1;
        }
        assert_eq!(self.kind, Some(part.kind));
        self.all.extend_from_slice(&part.data);
        self.parts += 1;
        if part.is_last {
            let all = std::mem::take(&mut self.all);
            c.send(format!("{} bytes", all.len()));
            log.whole.push((part.kind, all, self.parts));
            self.kind = None;
        }
        if self.pauses {
            c.pause();
        }
        if self.publishes {
            c.publish("a topic without subscribers", "a part");
        }
    }

    fn wake(&mut self, _: &mut Log, c: &mut Socket<'_>) {
        c.resume();
    }

    fn told(&mut self, _: &mut Log, c: &mut Socket<'_>, _: Box<dyn std::any::Any + Send>) {
        c.close(CloseCode::NORMAL, "");
    }

    fn closed(&mut self, log: &mut Log, end: &SocketEnd) {
        log.ended += 1;
        log.clean += usize::from(end.is_clean);
    }
}

fn app(settings: WebSocketSettings) -> App<Log> {
    App::with(|_| Log::default()).websocket_with(settings.in_parts(), "/ws", |_, q| {
        let (pauses, publishes) = (q.query("pauses").is_some(), q.query("publishes").is_some());
        Ok::<_, Status>(Collects { pauses, publishes, ..Collects::default() })
    })
}

fn settings() -> WebSocketSettings {
    WebSocketSettings::new().message_limit(4 << 20)
}

pub(crate) fn parts_come_as_they_are_read<T: Harness>() {
    let mut web = serve::<T, _>(app(settings()));
    let mut ws = Ws::open(&mut web, "/ws");
    let large = bytes(1 << 20);
    for (at, len) in [(0, 0), (1, 1), (2, 70_000), (3, 1 << 20)] {
        ws.say(&mut web, frame(BINARY, &large[..len]));
        assert_eq!(ws.next(&mut web), said(&format!("{len} bytes")));
        let (kind, all, parts) = &web.server.state().whole[at];
        assert!(*kind == Kind::Binary && *all == large[..len]);
        assert!(len < 1 << 20 || *parts > 4, "{parts} parts");
    }
    let pieces = [frame(TEXT_PART, b"a"), frame(PART, b""), frame(LAST, b"b")].concat();
    ws.say(&mut web, pieces);
    assert_eq!(ws.next(&mut web), said("2 bytes"));
}

/// Wakes the first connection again and again, until a message is whole.
fn until_whole<T: Harness>(web: &mut Web<T::Driver, Log>, count: usize) {
    let (remote, id) = (web.server.remote(), web.server.state().ids[0]);
    web.until("a message is whole", |web| {
        assert!(remote.wake(id));
        web.server.state().whole.len() == count
    });
}

pub(crate) fn a_pause_in_the_middle_loses_nothing<T: Harness>() {
    let mut web = serve::<T, _>(app(settings()));
    let mut ws = Ws::open(&mut web, "/ws?pauses=1");
    let large = bytes(300_000);
    let both = [frame(BINARY, &large), frame(TEXT, b"next")].concat();
    ws.say(&mut web, both);
    until_whole::<T>(&mut web, 2);
    let whole = &web.server.state().whole;
    assert!(whole[0].1 == large && whole[1].1 == b"next");
    assert_eq!(ws.next(&mut web), said("300000 bytes"));
    assert_eq!(ws.next(&mut web), said("4 bytes"));
}

fn a_text_is_checked_over_its_parts<T: Harness>() {
    let mut web = serve::<T, _>(app(settings()));
    let mut ws = Ws::open(&mut web, "/ws");
    let two = [frame(TEXT_PART, b"\xc3"), frame(LAST, b"\xbc")].concat();
    ws.say(&mut web, two);
    assert_eq!(ws.next(&mut web), said("2 bytes"));
    ws.say(&mut web, [frame(TEXT_PART, b"\xc3"), frame(LAST, b"\xff")].concat());
    assert!(matches!(ws.next(&mut web), crate::client::Got::Close(Some(1007), _)));
}

#[cfg(feature = "deflate")]
mod compressed {
    use std::time::Duration;

    use super::*;
    use crate::client::{Got, close, closed, request};
    use windlass_web::websocket::Deflate;
    use windlass_websocket::deflate::{Context, DeflaterSettings, Deflaters, History, Window};

    crate::every_kernel! {
        compressed_parts_are_inflated_as_they_come
        a_bomb_ends_at_the_limit
        one_that_has_waited_may_publish
        one_that_waits_closes_in_order
    }

    const EXTENSIONS: &str =
        "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    /// The first byte of a whole compressed message, and of its first part.
    const COMPRESSED: u8 = 0xc2;
    const COMPRESSED_PART: u8 = 0x42;

    fn open<T: Harness>(web: &mut Web<T::Driver, Log>, path: &str) -> Ws {
        let source = web.ask(request(path, EXTENSIONS));
        let mut ws = Ws::of(source);
        web.until("the 101", |web| ws.look(web).head.is_some());
        ws
    }

    /// Text that compresses somewhat.
    fn text(len: usize, seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..len).map(|_| b"abcdefgh"[random.usize(..8) & random.usize(..8)]).collect()
    }

    fn compressed_parts_are_inflated_as_they_come<T: Harness>() {
        for agreed in [Deflate::default(), Deflate::TAKEOVER] {
            let mut web = serve::<T, _>(app(settings().deflate(agreed)));
            let mut deflaters = Deflaters::new(DeflaterSettings::default());
            let mut history = History::new(Window::new(12).expect("a window"));
            let mut ws = open::<T>(&mut web, "/ws?pauses=1");
            let lens = [0, 1, 1000, 200_000, 1_000_000, 10];
            for (at, len) in lens.into_iter().enumerate() {
                let (plain, mut payload) = (text(len, 7), Vec::new());
                let context = match agreed.client_takeover {
                    true => Context::Kept(&mut history),
                    false => Context::Fresh(Window::MAX),
                };
                deflaters.compress(context, &plain, &mut payload);
                let cut = payload.len() / 3;
                let first = frame(COMPRESSED_PART, &payload[..cut]);
                let both = [first, frame(LAST, &payload[cut..])].concat();
                ws.say(&mut web, both);
                until_whole::<T>(&mut web, at + 1);
                let (kind, all, parts) = &web.server.state().whole[at];
                assert!(*kind == Kind::Binary && *all == plain, "{len}");
                assert!(len < 1_000_000 || *parts > 10, "{parts} parts");
                assert_eq!(ws.next(&mut web), said(&format!("{len} bytes")));
            }
        }
    }

    fn a_bomb_ends_at_the_limit<T: Harness>() {
        let mut web = serve::<T, _>(app(settings().deflate(Deflate::default())));
        let mut deflaters = Deflaters::new(DeflaterSettings::default());
        let mut payload = Vec::new();
        deflaters.compress(Context::Fresh(Window::MAX), &vec![0; 8 << 20], &mut payload);
        assert!(payload.len() < 100_000);
        let mut ws = open::<T>(&mut web, "/ws");
        ws.say(&mut web, frame(COMPRESSED, &payload));
        assert!(matches!(ws.next(&mut web), Got::Close(Some(1009), _)));
        web.until("it has ended", |web| web.server.state().ended == 1);
        assert!(web.server.state().whole.is_empty());
    }

    /// Opens four connections that hold the inflaters of the loop, and returns what is left of
    /// their messages.
    fn hold_all<T: Harness>(web: &mut Web<T::Driver, Log>, whole: &[u8]) -> Vec<(Ws, Vec<u8>)> {
        let cut = whole.len() / 2;
        let holders: Vec<_> = (0..4)
            .map(|_| {
                let ws = open::<T>(web, "/ws?publishes=1");
                ws.say(web, whole[..cut].to_vec());
                (ws, whole[cut..].to_vec())
            })
            .collect();
        web.until("four have begun", |web| web.server.state().begun == 4);
        holders
    }

    fn whole_message() -> (Vec<u8>, Vec<u8>) {
        let mut deflaters = Deflaters::new(DeflaterSettings::default());
        let (plain, mut payload) = (text(200_000, 5), Vec::new());
        deflaters.compress(Context::Fresh(Window::MAX), &plain, &mut payload);
        (plain, frame(COMPRESSED, &payload))
    }

    fn one_that_has_waited_may_publish<T: Harness>() {
        let mut web = serve::<T, _>(app(settings().deflate(Deflate::default())));
        let (plain, whole) = whole_message();
        let mut holders = hold_all::<T>(&mut web, &whole);
        let mut waiting: Vec<Ws> = (0..3)
            .map(|_| {
                let ws = open::<T>(&mut web, "/ws?publishes=1");
                ws.say(&mut web, [&whole[..], &frame(TEXT, b"behind")].concat());
                ws
            })
            .collect();
        let mut other = open::<T>(&mut web, "/ws");
        (0..20).for_each(|_| _ = web.turn(Duration::from_millis(1)));
        let (holder, rest) = &mut holders[0];
        holder.say(&mut web, std::mem::take(rest));
        assert_eq!(holder.next(&mut web), said("200000 bytes"));
        other.say(&mut web, frame(TEXT, b"other"));
        assert_eq!(other.next(&mut web), said("5 bytes"));
        for ws in &mut waiting {
            assert_eq!(ws.next(&mut web), said("200000 bytes"));
            assert_eq!(ws.next(&mut web), said("6 bytes"));
        }
        let whole = &web.server.state().whole;
        assert_eq!(whole.iter().filter(|(_, all, _)| *all == plain).count(), 4);
    }

    fn one_that_waits_closes_in_order<T: Harness>() {
        let mut web = serve::<T, _>(app(settings().deflate(Deflate::default())));
        let (_, whole) = whole_message();
        let _holders = hold_all::<T>(&mut web, &whole);
        let mut ws = open::<T>(&mut web, "/ws");
        ws.say(&mut web, whole.clone());
        (0..20).for_each(|_| _ = web.turn(Duration::from_millis(1)));
        let id = *web.server.state().ids.last().expect("it has opened");
        assert!(web.server.remote().tell(id, ()));
        assert_eq!(ws.next(&mut web), closed(1000));
        ws.say(&mut web, close(1000, ""));
        assert!(ws.rest(&mut web).is_empty());
        web.until("it has ended", |web| web.server.state().ended == 1);
        assert_eq!(web.server.state().clean, 1);
        assert_eq!(web.server.state().begun, 4, "the program does not get what was on its way");
    }

    /// A loop has four inflaters for messages in parts.
    #[test]
    fn peers_that_stop_in_the_middle_hold_up_only_those_that_want_an_inflater() {
        use crate::common::Simulated;
        const MORE: usize = 1000;
        let settings = settings().deflate(Deflate::default());
        let settings = settings.message_time(Duration::from_secs(5), 1 << 20);
        let settings = settings.ping_every(Duration::from_secs(86_400));
        let mut web = serve::<Simulated, _>(app(settings));
        let mut deflaters = Deflaters::new(DeflaterSettings::default());
        let (plain, mut payload) = (text(20_000, 3), Vec::new());
        deflaters.compress(Context::Fresh(Window::MAX), &plain, &mut payload);
        let whole = frame(COMPRESSED, &payload);
        let stops: Vec<Ws> = (0..4 + MORE)
            .map(|_| {
                let ws = open::<Simulated>(&mut web, "/ws");
                ws.say(&mut web, whole[..whole.len() / 2].to_vec());
                ws
            })
            .collect();
        web.until("four have begun", |web| web.server.state().begun == 4);
        // One that needs no inflater is served.
        let mut ws = open::<Simulated>(&mut web, "/ws");
        ws.say(&mut web, frame(TEXT, b"plain"));
        assert_eq!(ws.next(&mut web), said("5 bytes"));
        assert_eq!(web.server.state().begun, 5);
        // The time of a message ends those that stop, four by four, and the rest has its turn. Half
        // of the others send the rest of their message before.
        for ws in stops.iter().skip(4).step_by(2) {
            ws.say(&mut web, whole[whole.len() / 2..].to_vec());
        }
        web.until("all have had their turn", |web| web.server.state().whole.len() == 1 + MORE / 2);
        assert!(web.server.state().whole[1..].iter().all(|(_, all, _)| *all == plain));
        web.until("those that stop have ended", |web| web.server.state().ended == 4 + MORE / 2);
    }
}
