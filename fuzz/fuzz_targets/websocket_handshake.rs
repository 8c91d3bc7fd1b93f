//! Fields of handshakes: two lines mean what one means, and no answer is one that is refused.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use windlass_websocket::handshake::{
    Deflate, check_extensions, check_request, check_response, choose_protocol, protocols,
};

const WORDS: [&str; 24] = [
    "permessage-deflate",
    "permessage-deflate; ",
    "server_no_context_takeover",
    "client_no_context_takeover",
    "server_max_window_bits",
    "client_max_window_bits",
    "server_max_window_bits=8",
    "client_max_window_bits=8",
    "server_max_window_bits=10",
    "client_max_window_bits=\"15\"",
    "=",
    "; ",
    ";",
    ", ",
    ",",
    "\"",
    "\\",
    " ",
    "1",
    "09",
    "16",
    "chat",
    "websocket",
    "upgrade",
];

#[derive(Debug, Arbitrary)]
enum Piece {
    Word(u8),
    Byte(u8),
}

type Line = Vec<Piece>;

fn bytes(line: &Line) -> Vec<u8> {
    line.iter().fold(Vec::new(), |mut bytes, piece| {
        match piece {
            Piece::Word(number) => bytes.extend(WORDS[usize::from(*number) % 24].as_bytes()),
            Piece::Byte(byte) => bytes.push(*byte),
        }
        bytes
    })
}

fuzz_target!(|program: ([Line; 2], [u8; 2], [bool; 2])| {
    let (lines, windows, takeovers) = program;
    let [one, two] = lines.each_ref().map(bytes);
    let both = [&one[..], b",", &two].concat();
    let want = Deflate {
        server_window: windows[0],
        client_window: windows[1],
        server_takeover: takeovers[0],
        client_takeover: takeovers[1],
    };
    let accepted = want.accept([&one, &two]);
    assert_eq!(want.accept([&both]), accepted);
    if let Ok(Some((agreed, answer))) = accepted {
        assert!(
            (9..=15).contains(&agreed.server_window) && (9..=15).contains(&agreed.client_window)
        );
        assert!(agreed.server_window <= want.server_window.max(9));
        assert!(agreed.client_window <= want.client_window.max(9) || !agreed.client_takeover);
        let all = Deflate {
            server_window: 15,
            client_window: 15,
            server_takeover: true,
            client_takeover: true,
        };
        let seen = check_extensions(Some(all), [&answer]).unwrap().unwrap();
        assert!(seen.server_window >= agreed.server_window);
        assert_eq!(seen.server_takeover, agreed.server_takeover);
        assert_eq!(seen.client_takeover, agreed.client_takeover);
    }
    if let Ok(Some(agreed)) = check_extensions(Some(want), [&one]) {
        assert!(
            (9..=15).contains(&agreed.server_window) && (9..=15).contains(&agreed.client_window)
        );
        assert!(agreed.server_window <= want.server_window.clamp(9, 15));
        assert!(agreed.client_window <= want.client_window.clamp(9, 15));
        assert!(want.server_takeover || !agreed.server_takeover);
        assert!(want.client_takeover || !agreed.client_takeover);
    }
    for name in protocols([&one, &two]) {
        assert_eq!(choose_protocol([&one, &two], &[name]), Some(name));
        assert!(!name.is_empty() && !name.contains([' ', ',', ';', '"', '\r', '\n']));
    }
    let _ = check_request(|name| if name.len() > 12 { [&one] } else { [&two] });
    let _ = check_response("dGhlIHNhbXBsZSBub25jZQ==", |_| [&one, &two]);
});
