//! Messages that are compressed (permessage-deflate, RFC 7692).

mod mixes;
mod peer;
#[path = "../../../websocket/tests/deflate/peer.rs"]
#[allow(dead_code)] // another crate's tests use more of it
mod zlib;

use crate::common::seeds;
use windlass_serve::Limits;
use windlass_web::websocket::{
    CloseCode, Deflate, Kind, Message, Peer, Socket, SocketEnd, WebSocketSettings,
};
use windlass_web::{App, Status};

use crate::bench::serve;
use crate::client::{BINARY, Got, LAST, PART, PING, TEXT, frame, request, said};
use crate::common::Harness;
use crate::messages::bytes;
use crate::program::{self, web_with};
use peer::{COMPRESSED, Terms, ZlibPeer, field};

crate::every_kernel! {
    an_offer_gets_its_answer
    a_malformed_offer_is_refused
    a_client_of_ours_agrees_with_a_server_of_ours
    what_does_not_compress_goes_as_it_is
    a_message_that_is_refused_changes_no_context
    a_lost_publication_changes_no_context
    payloads_that_are_none
    a_loop_has_few_deflaters_for_parts
    a_part_that_is_refused_changes_no_context
    a_first_part_decides
}

const OFFER: &str = "permessage-deflate; client_max_window_bits";

pub(crate) fn an_offer_gets_its_answer<T: Harness>() {
    const NONE: &str = "";
    const WITHOUT: &str =
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    let own = Some(Deflate::default());
    let takeover = Some(Deflate::TAKEOVER);
    let largest = Some(Deflate { server_window: 15, client_window: 15, ..Deflate::TAKEOVER });
    let both = "permessage-deflate; server_max_window_bits=12; client_max_window_bits=12";
    let cases = [
        // What the server wants, the offer, the answer.
        (None, OFFER, NONE),
        (own, NONE, NONE),
        (own, "x-webkit-deflate-frame", NONE),
        (own, "permessage-deflate", WITHOUT),
        (own, OFFER, WITHOUT),
        (own, "foo; a=\"b\", permessage-deflate", WITHOUT),
        (own, "permessage-deflate; unknown, permessage-deflate", WITHOUT),
        (own, "permessage-deflate; server_max_window_bits=7", NONE),
        (own, "permessage-deflate; server_max_window_bits=8", NONE),
        (own, "permessage-deflate; server_max_window_bits=16", NONE),
        (own, "permessage-deflate; server_max_window_bits=015", NONE),
        (own, "permessage-deflate; server_max_window_bits", NONE),
        (own, "permessage-deflate; client_max_window_bits=7", NONE),
        (own, "permessage-deflate; client_max_window_bits=16", NONE),
        (own, "permessage-deflate; server_no_context_takeover=1", NONE),
        (own, "permessage-deflate; client_max_window_bits; client_max_window_bits", NONE),
        (takeover, OFFER, both),
        (takeover, "permessage-deflate; client_max_window_bits=15", both),
        (
            takeover,
            "permessage-deflate",
            "permessage-deflate; client_no_context_takeover; server_max_window_bits=12",
        ),
        (
            takeover,
            "permessage-deflate; client_max_window_bits=9; server_max_window_bits=10",
            "permessage-deflate; server_max_window_bits=10; client_max_window_bits=9",
        ),
        (
            takeover,
            "permessage-deflate; server_no_context_takeover; client_max_window_bits",
            "permessage-deflate; server_no_context_takeover; client_max_window_bits=12",
        ),
        (
            takeover,
            "permessage-deflate; client_no_context_takeover",
            "permessage-deflate; client_no_context_takeover; server_max_window_bits=12",
        ),
        (takeover, "permessage-deflate; server_max_window_bits=8, permessage-deflate; a", NONE),
        (largest, OFFER, "permessage-deflate"),
        (largest, "permessage-deflate", "permessage-deflate"),
    ];
    for (want, offer, answer) in cases {
        let settings = WebSocketSettings::new();
        let mut web = web_with::<T>(match want {
            Some(want) => settings.deflate(want),
            None => settings,
        });
        let mut peer = ZlibPeer::open(&mut web, "/ws", offer, 6);
        let got = field(&peer.head, "Sec-WebSocket-Extensions").unwrap_or("");
        assert_eq!(got, answer, "{want:?} {offer}");
        for len in [1000, 1001, 30] {
            let what = Got::Text("abc ".repeat(len)[..len].to_owned());
            peer.tell(&mut web, &what, true);
            let is_compressed = !answer.is_empty() && len > 100;
            assert_eq!(peer.next(&mut web), (what, is_compressed), "{offer}");
        }
    }
    // Each window, of both sides.
    for (server, client) in (9..=15).map(|bits| (bits, 24 - bits)) {
        let want = Deflate { server_window: 15, client_window: 15, ..Deflate::TAKEOVER };
        let mut web = web_with::<T>(WebSocketSettings::new().deflate(want));
        let offer = format!(
            "permessage-deflate; server_max_window_bits={server}; client_max_window_bits={client}"
        );
        let mut peer = ZlibPeer::open(&mut web, "/ws", &offer, 6);
        let terms = Terms { server: (server, true), client: (client, true) };
        assert_eq!(peer.terms, Some(terms));
        for at in 0..4 {
            let what = Got::Text(format!("{at}{}", "one of these ".repeat(900)));
            peer.tell(&mut web, &what, true);
            assert_eq!(peer.next(&mut web), (what, true), "{server} {client}");
        }
    }
}

fn a_malformed_offer_is_refused<T: Harness>() {
    let mut web = web_with::<T>(WebSocketSettings::new().deflate(Deflate::default()));
    for offer in ["permessage-deflate; ", "a=b", ";", "permessage deflate", "a; b=\"c", "é"] {
        let client = web.ask(request("/ws", &format!("Sec-WebSocket-Extensions: {offer}\r\n")));
        web.finish(client);
        let heard = web.until_over(client);
        assert!(heard.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{offer}: {heard}");
        web.close(client);
    }
}

/// What a client of ours has heard.
#[derive(Default)]
struct Heard {
    told: Vec<String>,
    ends: Vec<SocketEnd>,
}

struct Echo;

impl Peer<Heard> for Echo {
    fn message(&mut self, _: &mut Heard, c: &mut Socket<'_>, message: Message) {
        let bytes = message.as_bytes().to_vec();
        if bytes.len().is_multiple_of(2) {
            assert!(c.send(message));
        } else {
            say_in_parts(c, &bytes);
        }
    }
}

/// Sends a text in parts, some of them empty, with pings between them.
fn say_in_parts(c: &mut Socket<'_>, text: &[u8]) {
    for part in text.chunks(text.len() / 3 + 1).chain([&[][..]]) {
        assert!(c.send_part(Kind::Text, part.to_vec(), false) && c.ping(b"between"));
    }
    assert!(c.send_part(Kind::Text, "", true));
}

/// Says texts, and closes when it has heard all.
struct Says(Vec<String>, usize);

impl Peer<Heard> for Says {
    fn open(&mut self, _: &mut Heard, c: &mut Socket<'_>) {
        for (at, text) in self.0.iter().enumerate() {
            match at % 3 {
                0 => say_in_parts(c, text.as_bytes()),
                _ => assert!(c.send(text.clone())),
            }
            assert!(c.ping(b"between"));
        }
    }

    fn message(&mut self, heard: &mut Heard, c: &mut Socket<'_>, message: Message) {
        assert_eq!(message.as_text(), Some(&*self.0[self.1]), "message {}", self.1);
        self.1 += 1;
        if self.1 == self.0.len() {
            heard.told.append(&mut self.0);
            c.close(CloseCode::NORMAL, "");
        }
    }

    fn closed(&mut self, heard: &mut Heard, end: &SocketEnd) {
        heard.ends.push(end.clone());
    }
}

fn a_client_of_ours_agrees_with_a_server_of_ours<T: Harness>() {
    let with = |server_window, client_window, server_takeover, client_takeover| {
        Some(Deflate { server_window, client_window, server_takeover, client_takeover })
    };
    let wishes = [
        None,
        Some(Deflate::default()),
        Some(Deflate::TAKEOVER),
        with(9, 15, true, false),
        with(15, 10, false, true),
        with(15, 15, true, true),
    ];
    let set = |want: Option<Deflate>| match want {
        Some(want) => WebSocketSettings::new().deflate(want).compress(6, 0),
        None => WebSocketSettings::new(),
    };
    let texts: Vec<String> = (0..9).map(|at| format!("{at} is said; ").repeat(at * 90)).collect();
    for own in wishes {
        let app = App::with(|_| Heard::default());
        let app = app.websocket_with(set(own), "/ws", |_, _| Ok::<_, Status>(Echo));
        let mut web = serve::<T, _>(app);
        let url = format!("ws://{}/ws", web.address.ip().expect("an address"));
        let remote = web.server.remote();
        for (at, other) in wishes.into_iter().enumerate() {
            let says = Says(texts.clone(), 0);
            assert!(remote.open_websocket(0, &*url, &set(other), says));
            web.until("its end", |web| web.server.state().ends.len() == at + 1);
            let heard = web.server.state();
            assert!(heard.ends[at].is_clean, "{own:?} {other:?}: {:?}", heard.ends[at]);
            assert_eq!(heard.told.len(), (at + 1) * texts.len());
        }
    }
}

pub(crate) fn what_does_not_compress_goes_as_it_is<T: Harness>() {
    // zlib makes such bytes more; the limit is that of the message.
    let limit = 100_000;
    let settings = WebSocketSettings::new().deflate(Deflate::TAKEOVER).message_limit(limit);
    let mut web = web_with::<T>(settings);
    let mut peer = ZlibPeer::open(&mut web, "/ws", OFFER, 1);
    let mut random = fastrand::Rng::with_seed(3);
    let mut noise = |len| Got::Binary((0..len).map(|_| random.u8(..)).collect());
    for len in [64, 5000, limit as usize] {
        let what = noise(len);
        peer.tell(&mut web, &what, true);
        assert!(peer.next(&mut web) == (what, false), "{len}");
        let text = said(&"with a context ".repeat(20));
        peer.tell(&mut web, &text, true);
        assert_eq!(peer.next(&mut web), (text, true));
    }
    let what = noise(limit as usize + 1);
    peer.tell(&mut web, &what, true);
    assert!(matches!(peer.next(&mut web), (Got::Close(Some(1009), _), _)));
}

/// A text of so many bytes, of which each part comes once.
fn once(len: usize) -> String {
    let mut random = fastrand::Rng::with_seed(len as u64);
    (0..len).map(|_| char::from(b'a' + random.u8(..16))).collect()
}

/// Parts of a text, from the end of it on.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    (1..10).map(|at| &text[text.len() - at * 3000..][..3000])
}

/// Tries to send a text beyond the cap, which is handed back, and then sends what was refused in
/// parts.
struct Tries;

impl Peer<usize> for Tries {
    fn message(&mut self, refused: &mut usize, c: &mut Socket<'_>, message: Message) {
        let long = message.as_text().expect("a text").to_owned();
        match c.try_send(long.clone()) {
            Ok(()) => {}
            Err(back) => {
                assert_eq!(back.value.as_text(), Some(&*long));
                *refused += 1;
                for part in parts(&long) {
                    assert!(c.send(part.to_owned()));
                }
            }
        }
    }
}

fn a_message_that_is_refused_changes_no_context<T: Harness>() {
    for want in [Deflate::default(), Deflate::TAKEOVER] {
        let limits = Limits::new().marks(8 << 10, 16 << 10).cap(64 << 10);
        let settings = WebSocketSettings::new().deflate(want).compress(6, 0);
        let app = App::with(|_| 0).serve_limits(limits);
        let app = app.websocket_with(settings, "/ws", |_, _| Ok::<_, Status>(Tries));
        let mut web = serve::<T, _>(app);
        let mut peer = ZlibPeer::open(&mut web, "/ws", OFFER, 6);
        for round in 1..4 {
            let long = once(180_000 + round);
            peer.tell(&mut web, &said(&long), true);
            for part in parts(&long) {
                assert_eq!(peer.next(&mut web), (said(part), true), "{round}");
            }
            assert_eq!(*web.server.state(), round);
        }
    }
}

fn a_lost_publication_changes_no_context<T: Harness>() {
    let limits = Limits::new().marks(8 << 10, 16 << 10).cap(64 << 10);
    let settings = WebSocketSettings::new().deflate(Deflate::TAKEOVER).compress(6, 0).lossy();
    let mut web = serve::<T, _>(program::app(settings).serve_limits(limits));
    let mut peer = ZlibPeer::open(&mut web, "/ws?open=!subscribe_all", OFFER, 6);
    for round in 1..4 {
        // No output waits, and there is no room for it.
        let lost = once(180_000 + round);
        peer.tell(&mut web, &said(&format!("!publish all {lost}")), true);
        // These refer to what the peer has not got, if the server thinks that it has.
        for len in [3000, 300] {
            let end = said(&lost[lost.len() - len..]);
            peer.tell(&mut web, &end, true);
            assert_eq!(peer.next(&mut web), (end, true), "{round}");
        }
        peer.tell(&mut web, &said("!publish all this is for all, for all"), false);
        assert_eq!(peer.next(&mut web).0, said("this is for all, for all"));
        assert_eq!(web.server.remote().totals().lost_events, round as u64);
    }
}

fn payloads_that_are_none<T: Harness>() {
    const LIMIT: usize = 64 << 10;
    let compressed = |first: u8| first | COMPRESSED;
    let payload = |what: &[u8]| zlib::Sender::new(9, 15, false).send(what);
    let in_parts = |payload: &[u8], parts: usize| {
        let mut frames = Vec::new();
        let size = payload.len().div_ceil(parts);
        for (at, part) in payload.chunks(size).enumerate() {
            let is_last = (at + 1) * size >= payload.len();
            let first = if at == 0 { compressed(TEXT & !LAST) } else { PART };
            frames.extend_from_slice(&frame(if is_last { first | LAST } else { first }, part));
        }
        frames
    };
    let bomb = payload(&vec![b'a'; 8 << 20]);
    let far = {
        let (mut sender, text) = (zlib::Sender::new(9, 15, true), once(9000));
        sender.send(text.as_bytes());
        sender.send(&text.as_bytes()[..1000])
    };
    let whole = payload(&"text ".repeat(100).into_bytes());
    let agreed = [
        // A reserved kind of block, a length that lies, a distance to what is not there, a cut.
        (frame(compressed(BINARY), b"\x07"), 1007),
        (frame(compressed(BINARY), b"\x00\x05\x00\xff\xff"), 1007),
        (frame(compressed(BINARY), &far), 1007),
        (frame(compressed(BINARY), &whole[..whole.len() - 2]), 1007),
        (frame(compressed(BINARY), &bytes(3000)), 1007),
        // Text that is none: whole, and in parts.
        (frame(compressed(TEXT), &payload(b"valid, and then \xff")), 1007),
        (frame(compressed(TEXT), &payload(b"a cut letter: \xc3")), 1007),
        (in_parts(&payload(b"a surrogate: \xed\xa0\x80"), 3), 1007),
        // More than there may be: by one byte, and by very many.
        (frame(compressed(BINARY), &payload(&vec![b'a'; LIMIT + 1])), 1009),
        (frame(compressed(BINARY), &bomb), 1009),
        (in_parts(&bomb, 7), 1009),
        // The bit where it does not belong.
        (frame(compressed(PING), b""), 1002),
        ([frame(TEXT & !LAST, b"a"), frame(compressed(PART), b"b")].concat(), 1002),
        ([frame(TEXT & !LAST, b"a"), frame(compressed(PART | LAST), b"b")].concat(), 1002),
    ];
    for want in [Deflate::default(), Deflate::TAKEOVER] {
        let settings = WebSocketSettings::new().deflate(want).message_limit(LIMIT as u64);
        let mut web = web_with::<T>(settings);
        for (at, (frames, code)) in agreed.iter().enumerate() {
            let mut peer = ZlibPeer::open(&mut web, "/ws", OFFER, 6);
            let most = Got::Binary(vec![b'a'; LIMIT]);
            peer.tell(&mut web, &most, true);
            assert!(peer.next(&mut web) == (most, true), "{at}");
            peer.say(&mut web, frames.clone());
            match peer.next(&mut web) {
                (Got::Close(Some(got), why), _) => assert_eq!(got, *code, "{at}: {why}"),
                (other, _) => panic!("{at}: {other:?}"),
            }
            assert!(web.until_over(peer.source).len() > 100 && web.client(peer.source).eof);
            web.close(peer.source);
        }
        web.until("all have ended", |web| web.server.state().ends.len() == agreed.len());
        assert_eq!(web.server.state().heard.len(), agreed.len(), "no program has heard of them");
    }
    // Nothing was agreed to.
    let mut web = web_with::<T>(WebSocketSettings::new().deflate(Deflate::default()));
    let mut peer = ZlibPeer::open(&mut web, "/ws", "", 6);
    peer.say(&mut web, frame(compressed(TEXT), &whole));
    assert!(matches!(peer.next(&mut web), (Got::Close(Some(1002), _), _)));
}

/// A text that has come in parts, and whether they were compressed.
fn told(parts: &[&str], is_compressed: bool) -> (Got, bool) {
    (said(&parts.concat()), is_compressed)
}

pub(crate) fn a_loop_has_few_deflaters_for_parts<T: Harness>() {
    let long = &*"a part of it, ".repeat(20);
    for want in [Deflate::default(), Deflate::TAKEOVER] {
        let mut web = web_with::<T>(WebSocketSettings::new().deflate(want));
        let mut peers: Vec<ZlibPeer> =
            (0..6).map(|_| ZlibPeer::open(&mut web, "/ws", OFFER, 6)).collect();
        let begin = |web: &mut _, peer: &mut ZlibPeer| {
            peer.tell(web, &said(&format!("!part {long}")), true);
            peer.say(web, frame(PING, b"begun"));
            assert_eq!(peer.next(web), (Got::Pong(b"begun".to_vec()), false));
        };
        let end = |web: &mut _, peer: &mut ZlibPeer| {
            peer.tell(web, &said("!last end"), true);
            peer.next(web)
        };
        for _ in 0..3 {
            peers[..5].iter_mut().for_each(|peer| begin(&mut web, peer));
            // Others go on meanwhile, with their contexts.
            peers[5].tell(&mut web, &said(long), true);
            assert_eq!(peers[5].next(&mut web), told(&[long], true));
            // One that has ended leaves its deflater to the next one.
            assert_eq!(end(&mut web, &mut peers[0]), told(&[long, "end"], true));
            begin(&mut web, &mut peers[5]);
            assert_eq!(end(&mut web, &mut peers[4]), told(&[long, "end"], false));
            for at in [5, 3, 2, 1] {
                assert_eq!(end(&mut web, &mut peers[at]), told(&[long, "end"], true));
            }
        }
        // Whatever its end is: a close of either side, a reset, a panic.
        for end in ["close", "asks", "reset", "panic", "shut"] {
            peers[..5].iter_mut().for_each(|peer| begin(&mut web, peer));
            let gone = peers.remove(0);
            let ends = web.server.state().ends.len();
            match end {
                "close" => gone.say(&mut web, crate::client::close(1000, "")),
                "asks" => gone.say(&mut web, crate::client::text("!close 1000 ")),
                "panic" => gone.say(&mut web, crate::client::text("!panic")),
                "shut" => web.finish(gone.source),
                _ => web.close(gone.source),
            }
            if end == "asks" {
                // The deflater is free before the peer has answered.
                web.until_heard(gone.source, "\u{3}");
            } else {
                web.until("its end", |web| web.server.state().ends.len() > ends);
            }
            begin(&mut web, &mut peers[4]);
            for (at, is_compressed) in [(4, true), (3, false), (2, true), (1, true), (0, true)] {
                peers[at].tell(&mut web, &said("!last end"), true);
                assert_eq!(peers[at].next(&mut web), told(&[long, "end"], is_compressed), "{end}");
            }
            web.close(gone.source);
            web.until("its end", |web| web.server.state().ends.len() > ends);
            peers.push(ZlibPeer::open(&mut web, "/ws", OFFER, 6));
        }
        web.until("nothing is held", |web| web.server.budget().used() == 0);
    }
}

/// Sends what it gets in parts, each as soon as there is room, and then what is said to be short.
#[derive(Default)]
struct TriesParts {
    left: String,
    refused: usize,
}

impl TriesParts {
    fn go_on(&mut self, refused: &mut usize, c: &mut Socket<'_>) {
        while !self.left.is_empty() {
            let rest = self.left.split_off(9000.min(self.left.len()));
            let part = std::mem::replace(&mut self.left, rest);
            if let Err(back) = c.try_send_part(Kind::Text, part.clone(), self.left.is_empty()) {
                assert!(*back.value == *part.as_bytes());
                self.left.insert_str(0, &part);
                *refused += 1;
                return;
            }
        }
        if self.refused < *refused {
            self.refused = *refused;
            assert!(c.send(once(5000)));
        }
    }
}

impl Peer<usize> for TriesParts {
    fn message(&mut self, refused: &mut usize, c: &mut Socket<'_>, message: Message) {
        self.left = message.as_text().expect("a text").to_owned();
        self.go_on(refused, c);
    }

    fn drained(&mut self, refused: &mut usize, c: &mut Socket<'_>) {
        self.go_on(refused, c);
    }
}

pub(crate) fn a_part_that_is_refused_changes_no_context<T: Harness>() {
    for want in [Deflate::default(), Deflate::TAKEOVER] {
        let limits = Limits::new().marks(8 << 10, 16 << 10).cap(40 << 10);
        let settings = WebSocketSettings::new().deflate(want).compress(6, 0);
        let app = App::with(|_| 0).serve_limits(limits);
        let app =
            app.websocket_with(settings, "/ws", |_, _| Ok::<_, Status>(TriesParts::default()));
        let mut web = serve::<T, _>(app);
        let mut peer = ZlibPeer::open(&mut web, "/ws", OFFER, 6);
        for round in 1..4 {
            let long = once(180_000 + round);
            let before = *web.server.state();
            peer.tell(&mut web, &said(&long), true);
            assert!(peer.next(&mut web) == (said(&long), true), "{round}");
            assert!(*web.server.state() > before, "nothing was refused");
            assert!(peer.next(&mut web) == (said(&once(5000)), true), "{round}");
        }
    }
}

fn a_first_part_decides<T: Harness>() {
    let noise = once(200);
    let settings = WebSocketSettings::new().deflate(Deflate::TAKEOVER).compress(1, 100);
    let mut web = web_with::<T>(settings);
    let mut peer = ZlibPeer::open(&mut web, "/ws", OFFER, 6);
    let long = &*"a part of it, ".repeat(20);
    let mut random = fastrand::Rng::with_seed(5);
    let noise_of = |random: &mut fastrand::Rng| -> String {
        (0..150).map(|_| char::from_u32(random.u32(0x4e00..0x9f00)).expect("a letter")).collect()
    };
    for (first, next, is_compressed) in [
        (long, "", true),
        (long, &*noise, true),
        ("short", long, false),
        ("", long, false),
        (&*noise_of(&mut random), long, false),
        (long, "", true),
    ] {
        peer.tell(&mut web, &said(&format!("!part {first}")), false);
        peer.tell(&mut web, &said(&format!("!part {next}")), false);
        peer.tell(&mut web, &said("!last "), false);
        assert_eq!(peer.next(&mut web), told(&[first, next], is_compressed));
    }
}
