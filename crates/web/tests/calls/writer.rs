//! Bodies that another thread writes: in chunks and without, for clients that are slow, that end
//! their side, and that go.

use std::io::{ErrorKind, Write};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::bench::{Web, body, serve};
use crate::common::Harness;
use windlass::driver::Driver;
use windlass_web::answers::Writer;
use windlass_web::serve::{Limits, Refusal};
use windlass_web::{App, Flow, Part, Response};

crate::every_driver! {
    a_thread_writes_a_body
    a_client_of_http_1_0_gets_a_body_up_to_the_end
    a_request_with_head_gets_the_head_alone
    a_writer_that_is_dropped_resets_the_connection
    a_writer_that_fails_resets_the_connection
    a_writer_learns_how_much_waits
    a_writer_on_its_own_loop_never_waits
    memory_bounds_what_waits
    a_client_that_closes_is_gone
    a_client_that_ends_its_side_gets_the_body
    what_was_written_before_the_head_comes_behind_it
    a_source_waits_until_it_is_woken
    a_source_that_waits_learns_the_end_of_the_peer
    the_next_request_waits_for_the_end_of_the_body
    a_writer_learns_the_end_of_a_client_that_does_not_read
    a_source_learns_the_end_of_a_client_that_does_not_read
    a_client_that_goes_without_reading_is_gone
}

/// A thread that waits does so in real time.
mod threads {
    use super::{
        a_thread_that_waits_learns_that_its_client_has_gone, a_thread_waits_for_a_slow_client,
    };

    crate::systems_drivers! {
        a_thread_waits_for_a_slow_client
        a_thread_that_waits_learns_that_its_client_has_gone
    }
}

const fn is_send<T: Send>() {}
const _: () = is_send::<Writer>();

fn app() -> (App, Receiver<Writer>) {
    let (tell, told) = channel();
    let app = App::new().get("/", |_, _| "now").get("/body", move |_, _| {
        let (writer, response) = Response::writer();
        tell.send(writer).expect("the test listens");
        response
    });
    (app, told)
}

const BODY: &str = "GET /body HTTP/1.1\r\nHost: a\r\n\r\n";
const NOW: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Waits for the next writer.
fn next<D: Driver, S>(web: &mut Web<D, S>, told: &Receiver<Writer>) -> Writer {
    let mut found = None;
    web.until("a writer", |_| {
        found = found.take().or_else(|| told.try_recv().ok());
        found.is_some()
    });
    found.expect("right from above")
}

/// The content of a chunked body, and whether it is whole.
fn chunks(text: &str) -> (String, bool) {
    let (mut all, mut rest) = (String::new(), body(text));
    while let Some((len, behind)) = rest.split_once("\r\n") {
        let len = usize::from_str_radix(len, 16).expect("a length");
        if len == 0 {
            return (all, true);
        }
        let Some(chunk) = behind.get(..len) else { break };
        all.push_str(chunk);
        rest = behind[len..].strip_prefix("\r\n").unwrap_or("");
    }
    (all, false)
}

fn a_thread_writes_a_body<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(BODY);
    let mut writer = next(&mut web, &told);
    writer.try_write(b"one ").expect("there is room");
    web.until_heard(client, "one ");
    assert!(web.has_heard(client, "Transfer-Encoding: chunked\r\n"));
    let writes = thread::spawn(move || {
        write!(writer, "two ")?;
        writer.try_write(b"")?;
        write!(writer, "{}", 3)?;
        writer.end();
        Ok::<(), std::io::Error>(())
    });
    writes.join().expect("no panic").expect("there is room");
    web.until("the end", |web| chunks(&web.heard(client)).1);
    assert_eq!(chunks(&web.heard(client)).0, "one two 3");
    web.say(client, NOW);
    assert!(web.until_over(client).ends_with("now"));
}

fn a_client_of_http_1_0_gets_a_body_up_to_the_end<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask("GET /body HTTP/1.0\r\n\r\n");
    let mut writer = next(&mut web, &told);
    writer.try_write(b"one ").expect("there is room");
    writer.try_write(b"two").expect("there is room");
    writer.end();
    let heard = web.until_over(client);
    assert_eq!(body(&heard), "one two");
    assert!(!heard.contains("Transfer-Encoding"));
    assert!(web.client(client).eof, "an end, and no reset");
}

fn a_request_with_head_gets_the_head_alone<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(format!("HEAD /body HTTP/1.1\r\nHost: a\r\n\r\n{NOW}"));
    let heard = web.until_over(client);
    assert_eq!(heard.matches("HTTP/1.1 200 OK\r\n").count(), 2);
    assert!(body(&heard).starts_with("HTTP/1.1 200 OK\r\n") && heard.ends_with("now"));
    let mut writer = next(&mut web, &told);
    assert!(writer.is_gone());
    assert_eq!(writer.try_write(b"a"), Err(Refusal::Stale));
    assert_eq!(writer.write(b"a").expect_err("gone").kind(), ErrorKind::BrokenPipe);
}

fn a_writer_that_is_dropped_resets_the_connection<T: Harness>() {
    ends_in_the_middle::<T>(drop);
}

fn a_writer_that_fails_resets_the_connection<T: Harness>() {
    ends_in_the_middle::<T>(Writer::fail);
}

fn ends_in_the_middle<T: Harness>(end: fn(Writer)) {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(BODY);
    let mut writer = next(&mut web, &told);
    writer.try_write(b"one ").expect("there is room");
    web.until_heard(client, "one ");
    end(writer);
    let heard = web.until_over(client);
    assert_eq!(chunks(&heard), ("one ".to_owned(), false));
    assert!(web.client(client).error.is_some(), "a reset");
}

fn a_writer_learns_how_much_waits<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.connect_deaf();
    web.say(client, BODY);
    let mut writer = next(&mut web, &told);
    let (mut written, mut refused) = (0, 0);
    // What the connection and the system take is bounded, so refusals come, and stay.
    while refused < 20 {
        match writer.try_write(&[b'x'; 10_000]) {
            Ok(()) => written += 10_000,
            Err(reason) => {
                assert_eq!(reason, Refusal::Cap);
                assert!((64 << 10..80 << 10).contains(&writer.waiting()));
                refused += 1;
            }
        }
        web.run_for(T::span(0.1));
    }
    assert!(written < 8 << 20, "{written} bytes in buffers");
    web.hear(client);
    web.until("there is room", |_| writer.waiting() == 0);
    writer.try_write(b"the end").expect("there is room");
    writer.end();
    web.until("all", |web| web.client(client).heard.ends_with(b"0\r\n\r\n"));
    let (content, is_whole) = chunks(&web.heard(client));
    assert_eq!((content.len(), is_whole), (written + 7, true));
}

fn a_writer_on_its_own_loop_never_waits<T: Harness>() {
    let app = App::new().get("/", |_, _| {
        let (mut writer, response) = Response::writer();
        assert_eq!(writer.write(&[b'x'; 100_000]).expect("there is room"), 64 << 10);
        let failed = writer.write(b"x").expect_err("it would wait for itself");
        assert_eq!(failed.kind(), ErrorKind::WouldBlock);
        writer.end();
        response
    });
    let mut web = serve::<T, _>(app);
    let client = web.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    web.until("the end", |web| web.client(client).heard.ends_with(b"0\r\n\r\n"));
    assert_eq!(chunks(&web.heard(client)).0.len(), 64 << 10);
}

fn memory_bounds_what_waits<T: Harness>() {
    let (app, told) = app();
    // Three quarters of it are fewer bytes than may wait.
    let mut web = serve::<T, _>(app.serve_limits(Limits::new().memory(80_000).marks(0, 1000)));
    let client = web.connect_deaf();
    web.say(client, BODY);
    let mut writer = next(&mut web, &told);
    let (mut written, mut refused) = (0, 0);
    while refused < 20 {
        match writer.try_write(&[b'x'; 10_000]) {
            Ok(()) => written += 10_000,
            Err(reason) => {
                assert_eq!(reason, Refusal::Memory);
                assert!(writer.waiting() < 64 << 10);
                refused += 1;
            }
        }
        web.run_for(T::span(0.1));
    }
    web.hear(client);
    web.until("there is room", |_| writer.try_write(b"the end").is_ok());
    writer.end();
    web.until("all", |web| web.client(client).heard.ends_with(b"0\r\n\r\n"));
    assert_eq!(chunks(&web.heard(client)).0.len(), written + 7);
}

fn a_client_that_closes_is_gone<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(BODY);
    let mut writer = next(&mut web, &told);
    writer.try_write(b"one").expect("there is room");
    web.until_heard(client, "one");
    web.close(client);
    web.until("it is gone", |_| writer.is_gone());
    // It may have ended its side only: so writes tell.
    web.until("a write finds nobody", |_| writer.try_write(b"x") == Err(Refusal::Stale));
}

fn a_client_that_ends_its_side_gets_the_body<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(BODY);
    web.finish(client);
    let mut writer = next(&mut web, &told);
    web.until("its end is known", |_| writer.is_gone());
    writer.try_write(b"all the same").expect("it may still read");
    writer.end();
    assert_eq!(chunks(&web.until_over(client)), ("all the same".to_owned(), true));
    assert!(web.client(client).eof, "the connection ends behind it");
}

fn what_was_written_before_the_head_comes_behind_it<T: Harness>() {
    let app = App::new().get("/", |_, q| {
        q.blocking(Response::writer, |_, (mut writer, response)| {
            writer.try_write(b"first ").expect("there is room");
            let (later, answer) = Response::later();
            later.respond(response).expect("it is to wait");
            writer.try_write(b"second").expect("there is room");
            writer.end();
            answer
        })
    });
    let mut web = serve::<T, _>(app);
    let client = web.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    web.until("the end", |web| web.client(client).heard.ends_with(b"0\r\n\r\n"));
    assert_eq!(chunks(&web.heard(client)).0, "first second");
}

fn a_source_waits_until_it_is_woken<T: Harness>() {
    let (tell, told) = channel();
    let app = App::new().get("/", move |_, _| {
        let (tell, mut parts) = (tell.clone(), 0);
        Response::stream(move |part: &mut Part<'_>| {
            part.write(format!("part {parts}\n").as_bytes());
            parts += 1;
            tell.send(part.waker()).expect("the test listens");
            if parts < 3 { Flow::Wait } else { Flow::End }
        })
    });
    let mut web = serve::<T, _>(app);
    let client = web.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    web.until_heard(client, "part 0");
    for number in 1..3 {
        web.run_for(T::span(1.0));
        assert!(!web.has_heard(client, &format!("part {number}")));
        assert!(told.recv().expect("it was asked").wake());
        web.until_heard(client, &format!("part {number}"));
    }
    web.until("the end", |web| chunks(&web.heard(client)).1);
}

fn a_source_that_waits_learns_the_end_of_the_peer<T: Harness>() {
    let app = App::new().get("/", |_, _| {
        Response::stream(|part: &mut Part<'_>| {
            if part.has_peer_ended() {
                part.write(b"goodbye");
                return Flow::End;
            }
            Flow::Wait
        })
    });
    let mut web = serve::<T, _>(app);
    let client = web.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    web.until_heard(client, "\r\n\r\n");
    web.finish(client);
    assert_eq!(chunks(&web.until_over(client)), ("goodbye".to_owned(), true));
}

fn the_next_request_waits_for_the_end_of_the_body<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(format!("{BODY}{BODY}{NOW}"));
    for text in ["first", "second"] {
        let mut writer = next(&mut web, &told);
        assert!(told.try_recv().is_err(), "one body after the other");
        writer.try_write(text.as_bytes()).expect("there is room");
        writer.end();
    }
    let heard = web.until_over(client);
    let place = |text| heard.find(text).expect("a body");
    assert!(place("first") < place("second") && place("second") < place("now"), "{heard}");
}

/// No time ends a client that does not read.
fn patient() -> Limits {
    Limits::new().write_stall(None).idle(None)
}

/// Writes until so much waits that the connection takes nothing more.
fn fill<T: Harness, S>(web: &mut Web<T::Driver, S>, writer: &mut Writer) -> usize {
    let (mut written, mut refused) = (0, 0);
    while refused < 20 {
        match writer.try_write(&[b'x'; 10_000]) {
            Ok(()) => written += 10_000,
            Err(reason) => {
                assert_eq!(reason, Refusal::Cap);
                refused += 1;
            }
        }
        web.run_for(T::span(0.1));
    }
    written
}

fn a_writer_learns_the_end_of_a_client_that_does_not_read<T: Harness>() {
    // With the bytes behind the request, the server's read ends before that of the end.
    for behind in ["", NOW] {
        let (app, told) = app();
        let mut web = serve::<T, _>(app.serve_limits(patient()));
        let client = web.connect_deaf();
        web.say(client, BODY);
        let mut writer = next(&mut web, &told);
        let written = fill::<T, _>(&mut web, &mut writer);
        if !behind.is_empty() {
            web.say(client, behind);
        }
        web.run_for(T::span(1.0));
        let waiting = writer.waiting();
        assert!(!writer.is_gone());
        web.finish(client);
        web.until("its end is known", |_| writer.is_gone());
        assert_eq!(writer.waiting(), waiting, "there is no room for more");
        // It has ended its side only, and gets the body.
        writer.end();
        web.hear(client);
        let heard = web.until_over(client);
        let (content, is_whole) = chunks(&heard);
        assert_eq!((content.len(), is_whole), (written, true));
        assert_eq!(heard.ends_with("now"), !behind.is_empty());
        assert!(web.client(client).eof);
    }
}

fn a_source_learns_the_end_of_a_client_that_does_not_read<T: Harness>() {
    let (tell, told) = channel();
    let app = App::new().get("/", move |_, _| {
        let tell = tell.clone();
        Response::stream(move |part: &mut Part<'_>| {
            tell.send(part.has_peer_ended()).expect("the test listens");
            part.write(&[b'x'; 10_000]);
            Flow::More
        })
    });
    let mut web = serve::<T, _>(app.serve_limits(patient()));
    let client = web.connect_deaf();
    web.say(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    web.until("it is asked", |_| told.try_recv().is_ok());
    while told.try_iter().count() > 0 {
        web.run_for(T::span(2.0));
    }
    web.finish(client);
    web.until("its end is told", |_| told.try_recv().is_ok_and(|has_ended| has_ended));
    web.run_for(T::span(2.0));
    assert_eq!(told.try_iter().count(), 0, "there is no room for more");
}

fn a_client_that_goes_without_reading_is_gone<T: Harness>() {
    for behind in ["", NOW] {
        let (app, told) = app();
        let mut web = serve::<T, _>(app.serve_limits(patient()));
        let client = web.connect_deaf();
        web.say(client, BODY);
        let mut writer = next(&mut web, &told);
        fill::<T, _>(&mut web, &mut writer);
        if !behind.is_empty() {
            web.say(client, behind);
        }
        web.run_for(T::span(1.0));
        // With bytes that it has not read, this resets the connection.
        web.close(client);
        web.until("it is gone", |_| writer.is_gone());
        web.until("nobody takes bytes", |_| writer.try_write(b"x") == Err(Refusal::Stale));
    }
}

fn a_thread_waits_for_a_slow_client<T: Harness>() {
    const BYTES: usize = 4 << 20;
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.connect_deaf();
    web.say(client, BODY);
    let mut writer = next(&mut web, &told);
    let (tell, writes) = channel();
    let thread = thread::spawn(move || {
        for _ in 0..BYTES / 4096 {
            writer.write_all(&[b'x'; 4096]).expect("a client");
            tell.send(()).expect("the test listens");
        }
        writer.end();
    });
    // It cannot end: a deaf client and the buffers in between take less.
    let mut written = 0;
    for _ in 0..100 {
        web.run_for(T::span(0.5));
        written += writes.try_iter().count() * 4096;
    }
    assert!(0 < written && written < BYTES, "{written} bytes");
    web.hear(client);
    web.until("all", |web| web.client(client).heard.ends_with(b"0\r\n\r\n"));
    assert_eq!(chunks(&web.heard(client)).0.len(), BYTES);
    thread.join().expect("no panic");
}

fn a_thread_that_waits_learns_that_its_client_has_gone<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.connect_deaf();
    web.say(client, BODY);
    let mut writer = next(&mut web, &told);
    let (tell, ended) = channel();
    let thread = thread::spawn(move || {
        let failed = (0..).find_map(|_| writer.write(&[b'x'; 4096]).err()).expect("an error");
        tell.send(failed.kind()).expect("the test listens");
    });
    web.run_for(T::span(10.0));
    assert!(ended.try_recv().is_err(), "it waits");
    web.close(client);
    let mut kind = None;
    web.until("the thread ends", |_| {
        kind = ended.try_recv().ok();
        kind.is_some()
    });
    assert_eq!(kind, Some(ErrorKind::BrokenPipe));
    thread.join().expect("no panic");
}
