//! Bodies that are compressed while they are sent.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use windlass::driver::Driver;
use windlass_web::answers::Writer;
use windlass_web::serve::{Limits, Refusal};
use windlass_web::{App, Compress, Flow, Part, Response};

use super::bench::{Web, serve};
use super::common::Harness;
use super::{Heard, page};

crate::every_kernel! {
    a_stream_is_compressed_for_each_kind_of_client
    a_writer_is_heard_at_once
    a_long_body_comes_whole
    a_long_body_leaves_the_loop_to_others
    a_pipeline_leaves_the_loop_to_others
    a_source_of_one_huge_part_leaves_the_loop_to_others
    streams_beyond_the_bound_go_out_plain
    compressors_come_back_however_a_body_ends
    a_body_that_fails_is_reset
    a_source_of_small_parts_does_not_fail
    a_source_of_empty_parts_fails
    a_woken_source_is_asked_again
    a_slow_client_gets_all_of_a_body
    a_source_learns_the_end_of_a_client_that_does_not_read
    a_shutdown_ends_behind_the_body
}

const LEN: usize = 700_000;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n")
}

/// A stream of this body in parts of a size.
fn stream(body: String, size: usize) -> Response {
    let mut at = 0;
    let source = move |part: &mut Part<'_>| {
        let end = body.len().min(at + size);
        part.write(&body.as_bytes()[at..end]);
        at = end;
        if at == body.len() { Flow::End } else { Flow::More }
    };
    Response::stream(source).content_type("text/html")
}

fn app() -> App {
    App::new()
        .get("/", |_, _| "now")
        .get("/stream", |_, _| stream(page(LEN), 5000))
        .get("/long", |_, _| Response::html(page(LEN)))
        .get("/shared", |_, _| Response::shared(page(LEN).into_bytes()).content_type("text/html"))
        .compress(Compress::new().level(1))
}

/// Waits for the first response of a client, all of it.
#[track_caller]
fn whole<D: Driver, S>(web: &mut Web<D, S>, client: windlass::Source) -> Heard {
    web.until("a whole response", |web| Heard::of(&web.client(client).heard).is_whole);
    Heard::of(&web.client(client).heard)
}

fn a_stream_is_compressed_for_each_kind_of_client<T: Harness>() {
    let mut web = serve::<T, _>(app());
    for (request, coding) in [
        (get("/stream"), Some("gzip")),
        (get("/stream").replace("gzip", "deflate"), Some("deflate")),
        (get("/stream").replace("gzip", "br"), None),
    ] {
        let client = web.ask(request);
        let heard = whole(&mut web, client);
        assert_eq!(heard.get("Content-Encoding"), coding);
        assert_eq!(heard.get("Transfer-Encoding"), Some("chunked"));
        assert_eq!(heard.get("Vary"), Some("Accept-Encoding"));
        assert_eq!(heard.text(), page(LEN));
        assert_eq!(heard.body.len() < LEN / 2, coding.is_some());
        web.say(client, get("/"));
        web.until("the next one", |web| web.client(client).heard.ends_with(b"now"));
    }
    // It ends with the connection, and the end of the coding says that it is whole.
    for path in ["/stream", "/long", "/shared"] {
        let client = web.ask(format!("GET {path} HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n"));
        web.until_over(client);
        let heard = Heard::of(&web.client(client).heard);
        assert!(web.client(client).eof, "no reset");
        assert_eq!(heard.get("Transfer-Encoding"), None);
        let (body, is_whole) = heard.decode();
        assert!(is_whole && body == page(LEN).as_bytes(), "{path}");
    }
}

fn writers() -> (App, Receiver<Writer>) {
    let (tell, told) = channel();
    let app = App::new().get("/", |_, _| "now").get("/body", move |_, _| {
        let (writer, response) = Response::writer();
        tell.send(writer).expect("the test listens");
        response.content_type("text/plain")
    });
    (app.compress(Compress::new()), told)
}

fn next<D: Driver, S>(web: &mut Web<D, S>, told: &Receiver<Writer>) -> Writer {
    let mut found = None;
    web.until("a writer", |_| {
        found = found.take().or_else(|| told.try_recv().ok());
        found.is_some()
    });
    found.expect("right from above")
}

fn a_writer_is_heard_at_once<T: Harness>() {
    let (app, told) = writers();
    let mut web = serve::<T, _>(app);
    let client = web.ask(get("/body"));
    let (mut writer, mut said) = (next(&mut web, &told), String::new());
    for number in 0..20 {
        let text = page(10 + number * 777);
        writer.try_write(text.as_bytes()).expect("there is room");
        said.push_str(&text);
        web.until("it is heard", |web| Heard::of(&web.client(client).heard).text() == said);
    }
    writer.end();
    let heard = whole(&mut web, client);
    assert_eq!(heard.decode(), (said.into_bytes(), true));
    web.say(client, get("/"));
    web.until("the next one", |web| web.client(client).heard.ends_with(b"now"));
}

fn a_long_body_comes_whole<T: Harness>() {
    let mut web = serve::<T, _>(app());
    for path in ["/long", "/shared"] {
        let client = web.ask(get(path) + &get("/"));
        web.until("both", |web| web.client(client).heard.ends_with(b"now"));
        let heard = Heard::of(&web.client(client).heard);
        assert_eq!(heard.get("Content-Encoding"), Some("gzip"));
        assert_eq!(heard.decode(), (page(LEN).into_bytes(), true));
        assert!(heard.body.len() < LEN / 2);
    }
}

/// How many turns the server takes while it answers this. Another client that asks at the same time
/// is answered before the end. (A turn in a simulation takes a microsecond, and the delays of a
/// network with faults are longer than all.)
fn turns<T: Harness>(app: App, request: String, ready: impl Fn(&[u8]) -> bool) -> usize {
    let mut web = serve::<T, _>(app);
    let (client, other) = (web.connect(), web.ask(get("/")));
    web.until("it is there", |web| web.client(other).heard.ends_with(b"now"));
    web.say(client, request);
    web.say(other, get("/"));
    let (mut turns, mut is_answered) = (0, false);
    while !ready(&web.client(client).heard) {
        web.turn(std::time::Duration::from_secs(20));
        turns += 1;
        assert!(turns < 100_000, "it does not end");
        is_answered |= web.heard(other).matches("now").count() == 2;
    }
    assert!(is_answered || T::NAME == "faults", "it waits for the end of {turns} turns");
    turns
}

/// 20 MiB that become 90 KiB: the output would all fit into one turn.
fn zeros() -> Response {
    static ZEROS: [u8; 20 << 20] = [0; 20 << 20];
    Response::from(&ZEROS[..]).content_type("text/plain")
}

fn a_long_body_leaves_the_loop_to_others<T: Harness>() {
    let app = app().get("/zeros", |_, _| zeros());
    let ready = |heard: &[u8]| Heard::of(heard).is_whole;
    let turns = turns::<T>(app, get("/zeros"), ready);
    assert!(turns > 300, "{turns} turns");
}

fn a_pipeline_leaves_the_loop_to_others<T: Harness>() {
    let body = "0".repeat(128 << 10);
    let app = app().get("/zeros", move |_, _| Response::text(body.clone()));
    let ready = |heard: &[u8]| heard.ends_with(b"now");
    let turns = turns::<T>(app, get("/zeros").repeat(80) + &get("/"), ready);
    assert!(turns > 75, "{turns} turns");
}

fn a_source_of_one_huge_part_leaves_the_loop_to_others<T: Harness>() {
    let app = app().get("/zeros", |_, _| stream("0".repeat(10 << 20), usize::MAX >> 1));
    let ready = |heard: &[u8]| Heard::of(heard).is_whole;
    let turns = turns::<T>(app, get("/zeros"), ready);
    assert!(turns > 150, "{turns} turns");
}

fn streams_beyond_the_bound_go_out_plain<T: Harness>() {
    let (app, told) = writers();
    let app = app.get("/long", |_, _| Response::html(page(LEN)));
    let mut web = serve::<T, _>(app.compress(Compress::new().streams(2)));
    let mut open = Vec::new();
    let refuses = ["gzip", "gzip", "gzip", "gzip, identity;q=0"];
    for (number, accepted) in refuses.into_iter().enumerate() {
        let client = web.ask(get("/body").replace("gzip", accepted));
        let mut writer = next(&mut web, &told);
        writer.try_write(b"begun").expect("there is room");
        web.until("it begins", |web| Heard::of(&web.client(client).heard).text() == "begun");
        let heard = Heard::of(&web.client(client).heard);
        assert_eq!(heard.get("Content-Encoding"), (number < 2).then_some("gzip"));
        assert_eq!(heard.get("Vary"), Some("Accept-Encoding"));
        open.push((client, writer));
    }
    // A whole body that is too long to be compressed at once is plain, and a short one is not.
    for (path, coding) in [("/long", None), ("/none", None)] {
        let client = web.ask(get(path));
        assert_eq!(whole(&mut web, client).get("Content-Encoding"), coding);
    }
    let (client, writer) = open.remove(0);
    writer.end();
    assert_eq!(whole(&mut web, client).text(), "begun");
    let client = web.ask(get("/long"));
    let heard = whole(&mut web, client);
    assert_eq!((heard.get("Content-Encoding"), heard.text()), (Some("gzip"), page(LEN)));
}

/// However often and however bodies end, one compressor stays free.
fn compressors_come_back_however_a_body_ends<T: Harness>() {
    let (app, told) = writers();
    let app = app
        .get("/fail", |_, _| {
            Response::stream(|part: &mut Part<'_>| {
                part.write(b"begun");
                Flow::Fail
            })
            .content_type("text/plain")
        })
        .get("/panic", |_, _| {
            Response::stream(|_: &mut Part<'_>| panic!("a source")).content_type("text/plain")
        });
    let mut web = serve::<T, _>(app.compress(Compress::new().streams(1)));
    for round in 0..3 {
        // A reset may take the head with it.
        for path in ["/fail", "/panic"] {
            let client = web.ask(get(path));
            web.until_over(client);
        }
        // A head alone needs none.
        let client = web.ask(get("/body").replace("GET", "HEAD"));
        drop(next(&mut web, &told));
        web.until_heard(client, "Content-Encoding: gzip");
        for ends in [true, false] {
            let client = web.ask(get("/body"));
            let mut writer = next(&mut web, &told);
            writer.try_write(b"begun").expect("there is room");
            web.until("it begins", |web| Heard::of(&web.client(client).heard).text() == "begun");
            let heard = Heard::of(&web.client(client).heard);
            assert_eq!(heard.get("Content-Encoding"), Some("gzip"), "{round} {ends}");
            if ends {
                drop(writer);
                web.until_over(client);
            } else {
                web.close(client);
                web.until("nobody", |_| writer.try_write(b"x") == Err(Refusal::Stale));
            }
        }
    }
}

fn a_body_that_fails_is_reset<T: Harness>() {
    let (app, told) = writers();
    let mut web = serve::<T, _>(app);
    for version in ["1.1", "1.0"] {
        let client = web.ask(get("/body").replace("1.1", version));
        let mut writer = next(&mut web, &told);
        writer.try_write(b"begun").expect("there is room");
        web.until("it begins", |web| Heard::of(&web.client(client).heard).text() == "begun");
        writer.fail();
        web.until_over(client);
        assert!(web.client(client).error.is_some(), "a reset");
        assert_eq!(Heard::of(&web.client(client).heard).decode(), (b"begun".to_vec(), false));
    }
}

/// The compressor takes many of them until it makes a byte.
fn a_source_of_small_parts_does_not_fail<T: Harness>() {
    let app = App::new().get("/", |_, _| stream("a".repeat(20_000), 1));
    let mut web = serve::<T, _>(app.compress(Compress::new()));
    let client = web.ask(get("/"));
    assert_eq!(whole(&mut web, client).text(), "a".repeat(20_000));
}

fn a_source_of_empty_parts_fails<T: Harness>() {
    let app = App::new().get("/", |_, _| {
        Response::stream(|_: &mut Part<'_>| Flow::More).content_type("text/plain")
    });
    let mut web = serve::<T, _>(app.compress(Compress::new()));
    let client = web.ask(get("/"));
    web.until_over(client);
    assert!(web.client(client).error.is_some(), "a reset");
}

/// It is woken while what it has made is still compressed, in turns of their own.
fn a_woken_source_is_asked_again<T: Harness>() {
    let app = App::new().get("/", |_, _| {
        let mut asked = 0;
        Response::stream(move |part: &mut Part<'_>| {
            asked += 1;
            part.write(&vec![b'0' + asked; 300_000]);
            part.waker().wake();
            if asked < 5 { Flow::Wait } else { Flow::End }
        })
        .content_type("text/plain")
    });
    let mut web = serve::<T, _>(app.compress(Compress::new()));
    let client = web.ask(get("/"));
    let expected: String = ["1", "2", "3", "4", "5"].map(|digit| digit.repeat(300_000)).concat();
    assert_eq!(whole(&mut web, client).text(), expected);
}

fn a_slow_client_gets_all_of_a_body<T: Harness>() {
    let noise: String = {
        let mut random = fastrand::Rng::with_seed(3);
        (0..2_000_000).map(|_| random.alphanumeric()).collect()
    };
    let body = noise.clone();
    let app = App::new().get("/", move |_, _| stream(body.clone(), 200_000));
    let limits = Limits::new().write_stall(None).idle(None);
    let mut web = serve::<T, _>(app.compress(Compress::new().level(1)).serve_limits(limits));
    let client = web.connect_deaf();
    web.say(client, get("/"));
    web.run_for(T::span(5.0));
    web.hear(client);
    let heard = whole(&mut web, client);
    assert_eq!(heard.get("Content-Encoding"), Some("gzip"));
    assert!(heard.text() == noise);
}

/// Also while a part of it waits to be compressed.
fn a_source_learns_the_end_of_a_client_that_does_not_read<T: Harness>() {
    let told = Arc::new(Mutex::new((0, false)));
    let tell = Arc::clone(&told);
    let app = App::new().get("/", move |_, _| {
        let (tell, mut random) = (Arc::clone(&tell), fastrand::Rng::with_seed(3));
        let source = move |part: &mut Part<'_>| {
            let mut told = tell.lock().expect("no panic");
            *told = (told.0 + 1, part.has_peer_ended());
            let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(300_000).collect();
            part.write(&noise);
            Flow::More
        };
        Response::stream(source).content_type("text/plain")
    });
    let limits = Limits::new().write_stall(None).idle(None);
    let mut web = serve::<T, _>(app.compress(Compress::new().level(1)).serve_limits(limits));
    let client = web.connect_deaf();
    web.say(client, get("/"));
    let count = || told.lock().expect("no panic").0;
    web.until("it is asked", |_| count() > 0);
    loop {
        let before = count();
        web.run_for(T::span(5.0));
        if count() == before {
            break;
        }
    }
    web.finish(client);
    web.until("it hears", |_| told.lock().expect("no panic").1);
}

fn a_shutdown_ends_behind_the_body<T: Harness>() {
    let (app, told) = writers();
    let mut web = serve::<T, _>(app);
    let client = web.ask(get("/body"));
    let mut writer = next(&mut web, &told);
    writer.try_write(b"one ").expect("there is room");
    web.until("it begins", |web| Heard::of(&web.client(client).heard).text() == "one ");
    web.server.remote().drain();
    web.run_for(T::span(1.0));
    writer.try_write(b"two").expect("there is room");
    writer.end();
    web.until_over(client);
    let heard = Heard::of(&web.client(client).heard);
    assert_eq!(heard.decode(), (b"one two".to_vec(), true));
    assert!(heard.is_whole && web.client(client).eof);
}
