//! Servers of WebSockets.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Peer, built, example, go, run, sources};

/// Servers that send each message back; the first is the base of the ratios.
pub fn websockets() -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let inside = |name: &str, is_there: bool| {
        let words = [&ours, "serve", name, "{port}"].map(String::from).to_vec();
        let missing = || format!("it was built without the feature that has {name}");
        Peer { name: name.into(), command: is_there.then_some(words).ok_or_else(missing) }
    };
    let words = |program: PathBuf| {
        let program = program.to_string_lossy().into_owned();
        ["env", "GOMAXPROCS=1", &program, "{port}"].map(String::from).to_vec()
    };
    let peer = |name: &str, built: Result<PathBuf, String>| Peer {
        name: name.into(),
        command: built.map(words),
    };
    Ok(vec![
        inside("websocket-floor", true),
        inside("windlass-websocket", true),
        inside("windlass-websocket-uring", true),
        peer("uWebSockets", uwebsockets("websocket")),
        inside("fastwebsockets", cfg!(feature = "websocket")),
        inside("sockudo-ws", cfg!(feature = "websocket")),
        inside("yawc", cfg!(feature = "websocket")),
        inside("wtx", cfg!(feature = "websocket")),
        peer("nbio", go("nbio-websocket")),
    ])
}

/// Servers that send each message back, compressed, with windows of so many bits that are taken
/// over; 0: without takeover. All compress with level 6, as uWebSockets does; the last one has the
/// default of windlass-web.
#[cfg(feature = "deflate")]
pub fn websocket_deflaters(window: u8) -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let bits = window.to_string();
    let inside = |name: &str, server: &str, level: &str| {
        let words = [&ours, "serve", server, "{port}", &bits, level].map(String::from);
        Peer { name: name.into(), command: Ok(words.to_vec()) }
    };
    let command = uwebsockets("deflate")
        .map(|program| [&program.to_string_lossy(), "{port}", &bits].map(String::from).to_vec());
    Ok(vec![
        Peer { name: "uWebSockets".into(), command },
        inside("yawc", "yawc-deflate", "6"),
        inside("windlass-web", "windlass-deflate", "6"),
        inside("windlass-web, level 1", "windlass-deflate", "1"),
    ])
}

/// Servers for as many WebSockets as fit; the others are compared with the first.
pub fn million_websockets() -> io::Result<Vec<Peer>> {
    let all = websockets()?;
    let skipped = ["websocket-floor", "windlass-websocket-uring"];
    Ok(all.into_iter().filter(|peer| !skipped.contains(&&*peer.name)).collect())
}

/// Builds a program of `peers/uwebsockets` against the sources of that library, with those of
/// uSockets inside, in the directory that `UWEBSOCKETS_SOURCE` names.
fn uwebsockets(name: &str) -> Result<PathBuf, String> {
    let from = std::env::var("UWEBSOCKETS_SOURCE");
    let from = from.map_err(|_| "UWEBSOCKETS_SOURCE names no directory".to_owned())?;
    let from = Path::new(&from).canonicalize().map_err(|error| format!("{from}: {error}"))?;
    let program = built()?.join(format!("uwebsockets-{name}"));
    if !program.exists() {
        let objects = built()?.join("uwebsockets-objects");
        std::fs::create_dir_all(&objects).map_err(|error| error.to_string())?;
        let source = sources().join("uwebsockets").join(format!("{name}.cpp"));
        let mut build = Command::new("sh");
        build.args(["-c", BUILD, "sh"]).args([&from, &source, &program]).current_dir(objects);
        run(&mut build)?;
    }
    Ok(program)
}

/// As the makefiles of both libraries have it, without TLS. Only the program `deflate` has zlib.
const BUILD: &str = r#"set -e
case $3 in *deflate) zlib=-lz ;; *) zlib=-DUWS_NO_ZLIB ;; esac
cc -c -g1 -O3 -flto -DLIBUS_NO_SSL -I"$1/uSockets/src" \
    "$1"/uSockets/src/*.c "$1"/uSockets/src/eventing/*.c
c++ -std=c++20 -g1 -O3 -flto=auto -DLIBUS_NO_SSL \
    -I"$1/src" -I"$1/uSockets/src" -o "$3" "$2" *.o $zlib"#;

/// Servers that send a message of `size` bytes to all WebSockets every `interval` milliseconds; the
/// first is the base of the ratios.
pub fn websocket_broadcasters(size: usize, interval: usize) -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let (size, interval) = (size.to_string(), interval.to_string());
    let serve = |program: PathBuf| {
        let program = program.to_string_lossy().into_owned();
        [&program, "--port", "{port}", "--size", &size, "--interval", &interval, "--lossy"]
            .map(String::from)
            .to_vec()
    };
    let bare = [&ours, "serve", "websocket-broadcast", "{port}", &size, &interval];
    Ok(vec![
        Peer { name: "windlass".into(), command: Ok(bare.map(String::from).to_vec()) },
        Peer {
            name: "windlass-web".into(),
            command: example("windlass-web", "ws_broadcast").map(serve),
        },
    ])
}
