//! Files as responses: through sockets of the system on every driver, and in the simulation.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/wire.rs"]
mod wire;

#[cfg(feature = "ring")]
#[path = "../common/secure.rs"]
mod secure;

mod changes;
mod elsewhere;
mod escapes;
mod tree;

use std::time::Duration;

use common::Net;
use common::real::{Epoll, Mixed, Poll, Threads, Uring};
use tree::{Tree, age, pattern};
use windlass_web::files::FilesOptions;
use windlass_web::{App, Response};
use wire::Client;

/// A server on a driver of the system.
trait Served: Net {
    fn client(&self) -> Client;
    /// Begins the shutdown, and does not wait for its end.
    fn stop(&self);
}

macro_rules! served {
    ($($name:ident)*) => {$(
        impl Served for $name {
            fn client(&self) -> Client {
                Client::new(self.0.address())
            }
            fn stop(&self) {
                self.0.server.remote().shutdown();
            }
        }
    )*};
}

served! { Epoll Uring Poll Threads Mixed }

systems_drivers! {
    a_file_has_its_type_and_its_validators
    files_are_read_past_the_page_cache
    parts_are_sent_as_they_are_asked_for
    conditions_have_their_status
    a_file_goes_out_in_its_place
    a_directory_has_an_index
    what_is_no_file_is_not_served
    a_file_that_is_replaced_is_noticed
    a_handler_sends_a_file
    a_neighbour_in_gzip_is_sent_to_who_takes_it
    a_hook_that_wants_nothing_compressed_hides_no_coding
}

fn options() -> FilesOptions {
    FilesOptions::new().cache(100, Duration::from_millis(50))
}

fn a_file_has_its_type_and_its_validators<N: Served>() {
    let tree = Tree::new();
    let large = pattern(300_000);
    tree.write("www/a.html", "<p>a");
    tree.write("www/sub/b.bin", &large);
    tree.write("www/empty", "");
    let net = N::start(App::new().files("/s", tree.www(), options().cache_control("no-cache")));
    let mut client = net.client();
    for _ in 0..3 {
        let reply = client.get("/s/a.html");
        assert_eq!((reply.status, reply.text()), (200, "<p>a"));
        assert_eq!(reply.get("Content-Type"), Some("text/html; charset=utf-8"));
        assert_eq!(reply.get("Accept-Ranges"), Some("bytes"));
        assert_eq!(reply.get("Cache-Control"), Some("no-cache"));
        let tag = reply.get("ETag").expect("a tag");
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        let date = reply.get("Last-Modified").expect("a date");
        assert!(date.ends_with("GMT") && date.len() == 29, "{date}");

        let reply = client.get("/s/sub/b.bin?query");
        assert_eq!((reply.status, reply.body.len()), (200, large.len()));
        assert!(reply.body == large, "the bytes of the file");
        assert_eq!(reply.get("Content-Type"), Some("application/octet-stream"));
        let head = client.send("HEAD", "/s/sub/b.bin", "", "");
        assert_eq!((head.status, head.get("Content-Length")), (200, Some("300000")));
        assert_eq!(head.get("ETag"), reply.get("ETag"));
        let reply = client.get("/s/empty");
        assert_eq!((reply.status, reply.get("Content-Length")), (200, Some("0")));
    }
    let reply = client.send("POST", "/s/a.html", "", "x");
    assert_eq!((reply.status, reply.get("Allow")), (405, Some("GET, HEAD, OPTIONS")));
    // A file that was just written could be written again within one tick of the clock.
    age(&tree.write("www/new", "1"), Duration::ZERO);
    let tag = client.get("/s/new");
    assert!(tag.get("ETag").expect("a tag").starts_with("W/\""), "{tag:?}");
}

/// Whether the system has direct reads or not, the responses are the same.
fn files_are_read_past_the_page_cache<N: Served>() {
    send_parts::<N>(options().direct(true));
}

fn parts_are_sent_as_they_are_asked_for<N: Served>() {
    send_parts::<N>(options());
}

fn send_parts<N: Served>(options: FilesOptions) {
    let tree = Tree::new();
    let (large, small) = (pattern(1_000_000), pattern(1000));
    tree.write("www/large", &large);
    tree.write("www/small", &small);
    let net = N::start(App::new().files("/", tree.www(), options));
    let mut client = net.client();
    for (path, bytes) in [("/large", &large), ("/small", &small)] {
        let len = bytes.len();
        for (range, part) in [
            ("bytes=0-0", 0..1),
            ("bytes=10-19", 10..20),
            ("bytes=500-99999999", 500..len),
            ("bytes=990-", 990..len),
            ("bytes=-7", len - 7..len),
            ("bytes=5-99999999", 5..len),
        ] {
            let reply = client.send("GET", path, &format!("Range: {range}\r\n"), "");
            assert_eq!(reply.status, 206, "{range}");
            let wanted = format!("bytes {}-{}/{len}", part.start, part.end - 1);
            assert_eq!(reply.get("Content-Range"), Some(&*wanted), "{range}");
            assert!(reply.body == bytes[part], "{range}");
        }
        let reply = client.send("GET", path, "Range: bytes=9999999-\r\n", "");
        assert_eq!((reply.status, reply.get("ETag")), (416, None));
        assert_eq!(reply.get("Content-Range"), Some(&*format!("bytes */{len}")));
        for range in ["bytes=0-1,3-4", "lines=1-2", "bytes=2-1"] {
            let reply = client.send("GET", path, &format!("Range: {range}\r\n"), "");
            assert!(reply.status == 200 && reply.body == **bytes, "{range}");
        }
        let tag = client.get(path).get("ETag").expect("a tag").to_owned();
        for (tag, status) in [(&*tag, 206), ("\"other\"", 200)] {
            let fields = format!("Range: bytes=1-2\r\nIf-Range: {tag}\r\n");
            assert_eq!(client.send("GET", path, &fields, "").status, status);
        }
        let reply = client.send("HEAD", path, "Range: bytes=1-2\r\n", "");
        assert_eq!((reply.status, reply.get("Content-Range")), (200, None));
    }
}

fn conditions_have_their_status<N: Served>() {
    let tree = Tree::new();
    tree.write("www/a", "text");
    let net = N::start(App::new().files("/", tree.www(), options().cache_control("max-age=9")));
    let mut client = net.client();
    let reply = client.get("/a");
    let tag = reply.get("ETag").expect("a tag").to_owned();
    let date = reply.get("Last-Modified").expect("a date").to_owned();
    for (fields, status) in [
        (format!("If-None-Match: {tag}\r\n"), 304),
        (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n"), 200),
        (format!("If-Modified-Since: {date}\r\n"), 304),
        (format!("If-Match: {tag}\r\n"), 200),
        ("If-Match: \"x\"\r\n".to_owned(), 412),
        ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned(), 412),
    ] {
        for method in ["GET", "HEAD"] {
            let reply = client.send(method, "/a", &fields, "");
            assert_eq!(reply.status, status, "{method} {fields}");
            if status == 304 {
                assert_eq!(reply.get("ETag"), Some(&*tag));
                assert_eq!(reply.get("Cache-Control"), Some("max-age=9"));
                assert_eq!(reply.get("Content-Type"), None);
                assert_eq!(reply.get("Content-Length"), None);
            }
        }
    }
    assert_eq!(client.get("/a").text(), "text", "the connection goes on");
}

/// What comes before a file and behind it has its place.
fn a_file_goes_out_in_its_place<N: Served>() {
    let tree = Tree::new();
    let large = pattern(1 << 20);
    tree.write("www/large", &large);
    tree.write("www/small", "small");
    let app = App::new().files("/f", tree.www(), options()).get("/", |_, _| "text");
    let net = N::start(app);
    let mut client = net.client();
    let paths = ["/", "/f/large", "/f/small", "/", "/f/none", "/f/large", "/f/large", "/f/small"];
    let all: String =
        paths.iter().map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    for _ in 0..2 {
        client.say(&all);
        for path in paths {
            let reply = client.reply();
            let wanted: (u16, &[u8]) = match path {
                "/f/large" => (200, &large),
                "/f/small" => (200, b"small"),
                "/f/none" => (404, b"Not Found"),
                _ => (200, b"text"),
            };
            assert_eq!((reply.status, reply.body.len()), (wanted.0, wanted.1.len()), "{path}");
            assert!(reply.body == wanted.1, "{path}");
        }
    }
    // It is sent to its end behind the end of the client.
    client.say("GET /f/large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.stream().shutdown(std::net::Shutdown::Write).expect("a half-close");
    let rest = client.rest().expect("an end of file");
    assert!(rest.ends_with(&large) && rest.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

fn a_directory_has_an_index<N: Served>() {
    let tree = Tree::new();
    tree.write("www/index.htm", "root");
    tree.write("www/sub/index.html", "sub");
    tree.write("www/none/a", "a");
    let options = options().index(["index.html", "index.htm"]);
    let net = N::start(App::new().files("/d", tree.www(), options));
    let mut client = net.client();
    let reply = client.get("/d/");
    assert_eq!((reply.status, reply.text()), (200, "root"));
    assert_eq!(reply.get("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(client.get("/d/sub/").text(), "sub");
    for (path, location) in [("/d", "./d/"), ("/d/sub", "./sub/"), ("/d/sub?a=b", "./sub/?a=b")] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.get("Location")), (308, Some(location)), "{path}");
    }
    for path in ["/d/none/", "/d/sub/index.html/", "/d/missing/", "/d//"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
}

fn what_is_no_file_is_not_served<N: Served>() {
    let tree = Tree::new();
    tree.write("www/a", "a");
    let fifo = std::process::Command::new("mkfifo").arg(tree.at("www/fifo")).status();
    assert!(fifo.expect("mkfifo").success());
    let _socket = std::os::unix::net::UnixListener::bind(tree.at("www/socket")).expect("a socket");
    std::os::unix::fs::symlink("/dev/zero", tree.at("www/zero")).expect("a link");
    std::os::unix::fs::symlink("loop", tree.at("www/loop")).expect("a link");
    let net = N::start(App::new().files("/", tree.www(), options().links_out(true)));
    let mut client = net.client();
    for path in ["/fifo", "/socket", "/zero", "/loop", "/a/b", "/none"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    assert_eq!(client.get("/a").text(), "a");
}

fn a_file_that_is_replaced_is_noticed<N: Served>() {
    let tree = Tree::new();
    let contents = [pattern(100_000), b"short".to_vec(), pattern(100_001), Vec::new()];
    let net = N::start(App::new().files("/", tree.www(), options()));
    let mut client = net.client();
    for bytes in contents {
        tree.replace("www/a", &bytes);
        let reply = loop {
            let reply = client.get("/a");
            if reply.body == bytes && reply.status == 200 {
                break reply;
            }
        };
        let len = bytes.len().to_string();
        assert_eq!(reply.get("Content-Length"), Some(&*len));
    }
    std::fs::remove_file(tree.at("www/a")).expect("it is there");
    while client.get("/a").status != 404 {}
}

fn a_handler_sends_a_file<N: Served>() {
    let tree = Tree::new();
    let path = tree.write("www/report.pdf", "%PDF");
    let page = tree.write("missing.html", "<p>no");
    let app = App::new()
        .get("/report", move |_, _| Response::file(&path).attachment("Bericht für Mai.pdf"))
        .get("/none", |_, _| Response::file("/no/such/file"))
        .on_error(move |_, _, _| Response::file(&page));
    let net = N::start(app);
    let mut client = net.client();
    let reply = client.get("/report");
    assert_eq!((reply.status, reply.text()), (200, "%PDF"));
    assert_eq!(reply.get("Content-Type"), Some("application/pdf"));
    let wanted = "attachment; filename=\"Bericht f_r Mai.pdf\"; \
                  filename*=UTF-8''Bericht%20f%C3%BCr%20Mai.pdf";
    assert_eq!(reply.get("Content-Disposition"), Some(wanted));
    for path in ["/none", "/no-route"] {
        for fields in ["", "Range: bytes=0-1\r\nIf-None-Match: *\r\n"] {
            let reply = client.send("GET", path, fields, "");
            assert_eq!((reply.status, reply.text()), (404, "<p>no"), "{path}");
            assert_eq!(reply.get("Content-Type"), Some("text/html; charset=utf-8"));
        }
    }
    // What is no request has the page, too; and a body that nobody reads does not hold it up.
    for bytes in [
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!(
            "POST /report HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n{}",
            "x".repeat(1000)
        ),
    ] {
        let mut client = net.client();
        client.say(bytes);
        let reply = client.reply();
        assert!(matches!(reply.status, 400 | 405), "{reply:?}");
        assert_eq!(reply.text(), "<p>no");
    }
}

fn a_neighbour_in_gzip_is_sent_to_who_takes_it<N: Served>() {
    let tree = Tree::new();
    let (plain, small, large) = (pattern(5000), b"small gzip".to_vec(), pattern(100_000));
    tree.write("www/a.css", &plain);
    tree.write("www/a.css.gz", &small);
    tree.write("www/b.css", &plain);
    tree.write("www/b.css.gz", &large);
    tree.write("www/alone.css", &plain);
    tree.write("www/sub/index.html", &plain);
    tree.write("www/sub/index.html.gz", &small);
    age(&tree.write("www/old.css.gz", &small), Duration::from_secs(1 << 30));
    tree.write("www/old.css", &plain);
    let net = N::start(App::new().files("/", tree.www(), options().precompressed(true)));
    let mut client = net.client();
    for _ in 0..2 {
        for (path, kind, gzip) in [
            ("/a.css", "text/css; charset=utf-8", Some(&small)),
            ("/b.css", "text/css; charset=utf-8", Some(&large)),
            ("/sub/", "text/html; charset=utf-8", Some(&small)),
            ("/alone.css", "text/css; charset=utf-8", None),
            ("/old.css", "text/css; charset=utf-8", None),
        ] {
            let taken = client.send("GET", path, "Accept-Encoding: br, gzip\r\n", "");
            assert_eq!((taken.status, taken.get("Content-Type")), (200, Some(kind)), "{path}");
            assert_eq!(taken.get("Vary"), Some("Accept-Encoding"));
            assert_eq!(taken.get("Content-Encoding"), gzip.map(|_| "gzip"), "{path}");
            assert!(taken.body == *gzip.unwrap_or(&plain), "{path}");
            let other = client.send("GET", path, "Accept-Encoding: gzip;q=0\r\n", "");
            assert_eq!((other.status, other.get("Content-Type")), (200, Some(kind)), "{path}");
            assert_eq!(other.get("Content-Encoding"), None, "{path}");
            assert!(other.body == plain && other.get("Vary") == Some("Accept-Encoding"));
            assert_eq!(gzip.is_some(), taken.get("ETag") != other.get("ETag"), "{path}");
        }
    }
    // The neighbour may come and go.
    std::fs::remove_file(tree.at("www/a.css.gz")).expect("it is there");
    tree.write("www/alone.css.gz", &small);
    let mut fetch = |path| client.send("GET", path, "Accept-Encoding: gzip\r\n", "").body;
    while fetch("/a.css") != plain || fetch("/alone.css") != small {}
}

fn a_hook_that_wants_nothing_compressed_hides_no_coding<N: Served>() {
    let tree = Tree::new();
    tree.write("www/a.css", "plain");
    tree.write("www/a.css.gz", "in gzip");
    let app = |direct| {
        App::new()
            .files("/", tree.www(), options().precompressed(true).direct(direct))
            .after(|_, _, head| head.set("Content-Encoding", "identity"))
    };
    for direct in [false, true] {
        let net = N::start(app(direct));
        let mut client = net.client();
        let taken = client.send("GET", "/a.css", "Accept-Encoding: gzip\r\n", "");
        assert_eq!((taken.text(), taken.get("Content-Encoding")), ("in gzip", Some("gzip")));
        let plain = client.get("/a.css");
        assert_eq!((plain.text(), plain.get("Content-Encoding")), ("plain", None));
    }
}
