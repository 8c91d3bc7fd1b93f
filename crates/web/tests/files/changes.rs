//! Files that change while they are sent, and what hooks hear of files.

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Served, Tree, options, pattern};
use crate::systems_drivers;
use windlass_serve::Cause;
use windlass_web::App;

systems_drivers! {
    a_file_that_shrinks_ends_with_a_reset
    a_file_that_grows_or_vanishes_is_sent_as_it_was
    hooks_hear_of_files
    a_shutdown_sends_files_to_their_end
    a_file_that_nobody_asks_for_is_closed
    many_ask_for_a_file_at_once
}

const LEN: usize = 16 << 20;

const REQUEST: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

/// Serves a file, by `sendfile` or block by block, and sees how its requests end.
fn serve<N: Served>(tree: &Tree, is_direct: bool) -> (N, Ends) {
    let ends = Ends::default();
    let heard = Arc::clone(&ends);
    let app =
        App::new().files("/", tree.www(), options().direct(is_direct)).finished(move |_, f| {
            let end = (f.status().map(|status| status.code()), f.sent(), f.cause());
            heard.lock().expect("no panic").push(end);
        });
    (N::start(app), ends)
}

type Ends = Arc<Mutex<Vec<(Option<u16>, u64, Option<Cause>)>>>;

fn wait_for(ends: &Ends, count: usize) -> Vec<(Option<u16>, u64, Option<Cause>)> {
    let start = std::time::Instant::now();
    loop {
        let heard = ends.lock().expect("no panic").clone();
        if heard.len() >= count {
            return heard;
        }
        assert!(start.elapsed() < super::common::PATIENCE, "{count} ends: {heard:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Begins to read a response, and returns what has come.
fn begin(stream: &mut std::net::TcpStream) -> Vec<u8> {
    let mut heard = vec![0; 1000];
    stream.read_exact(&mut heard).expect("a beginning");
    heard
}

fn a_file_that_shrinks_ends_with_a_reset<N: Served>() {
    for is_direct in [false, true] {
        let tree = Tree::new();
        let path = tree.write("www/a", pattern(LEN));
        let (net, ends) = serve::<N>(&tree, is_direct);
        let mut client = net.client();
        client.say(REQUEST.repeat(2));
        let mut heard = begin(&mut client.stream().try_clone().expect("a socket"));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
        let rest = client.rest();
        heard.extend(rest.unwrap_or_default());
        assert!(heard.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(heard.len() < LEN, "no byte takes the place of a missing one");
        let heard = wait_for(&ends, 1);
        assert_eq!((heard[0].0, heard[0].2), (Some(200), Some(Cause::FileEnded)), "{heard:?}");
        assert!(heard[0].1 < LEN as u64);
        // The next one is what the file is now.
        let reply = net.client().get("/a");
        assert_eq!((reply.status, reply.body.len()), (200, 100));
    }
}

fn a_file_that_grows_or_vanishes_is_sent_as_it_was<N: Served>() {
    for is_direct in [false, true] {
        let tree = Tree::new();
        let bytes = pattern(LEN);
        let path = tree.write("www/a", &bytes);
        let (net, ends) = serve::<N>(&tree, is_direct);
        let mut client = net.client();
        client.say(REQUEST);
        let mut heard = begin(&mut client.stream().try_clone().expect("a socket"));
        let mut longer = std::fs::File::options().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut longer, b"more").unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut stream = client.stream().try_clone().expect("a socket");
        let head = heard.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let mut rest = vec![0; head + LEN - heard.len()];
        stream.read_exact(&mut rest).expect("the rest");
        heard.extend(rest);
        assert!(heard[head..] == bytes, "as it was");
        assert_eq!(wait_for(&ends, 1), [(Some(200), LEN as u64, None)]);
    }
}

fn hooks_hear_of_files<N: Served>() {
    for is_direct in [false, true] {
        let tree = Tree::new();
        tree.write("www/a", pattern(100_000));
        tree.write("www/b", "small");
        let (net, ends) = serve::<N>(&tree, is_direct);
        let mut client = net.client();
        for (method, path, fields) in [
            ("GET", "/a", ""),
            ("GET", "/b", ""),
            ("HEAD", "/a", ""),
            ("GET", "/a", "Range: bytes=5000-70000\r\n"),
            ("GET", "/none", ""),
            ("GET", "/a", "If-None-Match: *\r\n"),
            ("GET", "/a", "Range: bytes=100000-\r\n"),
        ] {
            client.send(method, path, fields, "");
        }
        let wanted = [
            (200, 100_000),
            (200, 5),
            (200, 0),
            (206, 65_001),
            (404, 9),
            (304, 0),
            (416, "Range Not Satisfiable".len() as u64),
        ];
        let wanted = wanted.map(|(status, sent)| (Some(status), sent, None));
        assert_eq!(wait_for(&ends, wanted.len()), wanted);
    }
}

fn a_shutdown_sends_files_to_their_end<N: Served>() {
    for is_direct in [false, true] {
        let tree = Tree::new();
        let bytes = pattern(LEN);
        tree.write("www/a", &bytes);
        let (net, _) = serve::<N>(&tree, is_direct);
        let client = {
            let mut client = net.client();
            client.say(REQUEST);
            client
        };
        let mut stream = client.stream().try_clone().expect("a socket");
        let mut heard = begin(&mut stream);
        net.stop();
        // The connection closes behind the file.
        heard.extend(client.rest().expect("no reset"));
        assert!(heard.ends_with(&bytes), "{} bytes", heard.len());
    }
}

/// How often the process has a file open.
#[cfg(target_os = "linux")]
fn opens(path: &std::path::Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("proc").flatten();
    all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|of| of == path)).count()
}

#[cfg(target_os = "linux")]
fn a_file_that_nobody_asks_for_is_closed<N: Served>() {
    let tree = Tree::new();
    let path = tree.write("www/a", pattern(100_000));
    let path = path.canonicalize().expect("it is there");
    let app = App::new().files("/", tree.www(), options().cache(9, Duration::from_millis(200)));
    let net = N::start(app);
    let mut client = net.client();
    for _ in 0..3 {
        assert_eq!(client.get("/a").body.len(), 100_000);
    }
    assert!(opens(&path) <= 1, "it is opened once");
    let start = std::time::Instant::now();
    while opens(&path) > 0 {
        assert!(start.elapsed() < super::common::PATIENCE, "it stays open");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.get("/a").body.len(), 100_000);
}

#[cfg(not(target_os = "linux"))]
fn a_file_that_nobody_asks_for_is_closed<N: Served>() {}

fn many_ask_for_a_file_at_once<N: Served>() {
    for (count, fresh) in [(10, 1000), (1, 1), (0, 0)] {
        let tree = Tree::new();
        let bytes = [pattern(100), pattern(70_000), pattern(300_000)];
        for (number, bytes) in bytes.iter().enumerate() {
            tree.write(&format!("www/{number}"), bytes);
        }
        let options = options().cache(count, Duration::from_millis(fresh));
        let net = N::start(App::new().files("/", tree.www(), options));
        let mut clients: Vec<_> = (0..20).map(|_| net.client()).collect();
        for round in 0..3 {
            for (at, client) in clients.iter_mut().enumerate() {
                let number = (at + round) % 3;
                client.say(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
            }
            for (at, client) in clients.iter_mut().enumerate() {
                let reply = client.reply();
                assert!(reply.status == 200 && reply.body == bytes[(at + round) % 3]);
            }
        }
    }
}
