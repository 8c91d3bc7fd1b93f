//! Work for a request: it learns that nobody waits for the answer any more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::bench::{Web, body, serve};
use crate::common::Harness;
use windlass::driver::Driver;
use windlass::net::SocketOption;
use windlass_serve::jobs::Job;
use windlass_web::answers::{GoneFlag, Later};
use windlass_web::{App, Flow, Limits, Part, Response};

crate::every_driver! {
    a_client_that_leaves_is_gone
    a_client_that_ends_its_side_is_gone_and_gets_its_answer
    the_end_of_a_client_is_noticed_where_its_connection_is_not_read
    a_reset_is_noticed_where_the_connection_is_not_read
    a_504_is_the_end
    an_answer_is_the_end
    a_stream_goes_on_until_its_end
    a_request_that_asks_for_its_body_keeps_what_it_tells
    what_is_refused_is_gone
    a_request_that_asks_is_answered_at_once
}

const fn is_shared<T: Send + Sync + Clone>() {}
const _: () = is_shared::<GoneFlag>();

/// What the test has of an application.
struct Told {
    gone: Receiver<GoneFlag>,
    laters: Receiver<Later>,
    /// Jobs wait until the test runs them.
    jobs: Receiver<Job>,
    /// How often the code behind a job was called.
    behind: Arc<AtomicUsize>,
}

fn app() -> (App, Told) {
    let (tell, gone) = channel();
    let (tell_later, laters) = channel();
    let (queue, jobs) = channel();
    let queue = Mutex::new(queue);
    let behind = Arc::new(AtomicUsize::new(0));
    let called = Arc::clone(&behind);
    let tell_stream = tell.clone();
    let tell_now = tell.clone();
    let tell_body = tell.clone();
    let tell_waits = tell.clone();
    let app = App::new()
        .executor(move |job| queue.lock().unwrap().send(job).expect("the test listens"))
        .get("/job", move |_, q| {
            let (gone, called) = (q.gone(), Arc::clone(&called));
            tell.send(gone.clone()).expect("the test listens");
            q.blocking(
                move || gone.is_gone(),
                move |_, is_gone| {
                    called.fetch_add(1, Ordering::Relaxed);
                    format!("is gone: {is_gone}")
                },
            )
        })
        .get("/later", move |_, q| {
            tell_waits.send(q.gone()).expect("the test listens");
            let (later, response) = Response::later();
            tell_later.send(later).expect("the test listens");
            response
        })
        .get("/stream", move |_, q| {
            tell_stream.send(q.gone()).expect("the test listens");
            Response::stream(|part: &mut Part<'_>| {
                part.write(b".");
                Flow::Wait
            })
        })
        .get("/now", move |_, q| {
            tell_now.send(q.gone()).expect("the test listens");
            "now"
        })
        .post("/body", move |_, q| {
            let (tell, gone) = (tell_body.clone(), q.gone());
            q.collect(100, move |_, q| {
                assert!(!gone.is_gone());
                tell.send(gone).expect("the test listens");
                tell.send(q.gone()).expect("the test listens");
                q.blocking(|| (), |_, ()| "all")
            })
        })
        .at_head()
        .get("/", |_, _| "end");
    (app, Told { gone, laters, jobs, behind })
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Waits for the next value that a handler tells.
fn next<D: Driver, V>(web: &mut Web<D>, told: &Receiver<V>) -> V {
    let mut found = None;
    web.until("a request waits", |_| {
        found = found.take().or_else(|| told.try_recv().ok());
        found.is_some()
    });
    found.expect("right from above")
}

fn a_client_that_leaves_is_gone<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(get("/job"));
    let (gone, job) = (next(&mut web, &told.gone), next(&mut web, &told.jobs));
    assert!(!gone.is_gone() && !gone.clone().is_gone());
    web.close(client);
    web.until("it is gone", |_| gone.is_gone());
    web.server.stop(&mut web.watcher);
    web.server.stop(&mut web.watcher);
    web.until("it is over", |web| web.server.is_over());
    // What is behind its job is dropped with the request.
    job.run();
    assert!(gone.is_gone());
    assert_eq!((Arc::strong_count(&told.behind), told.behind.load(Ordering::Relaxed)), (2, 0));
}

fn a_client_that_ends_its_side_is_gone_and_gets_its_answer<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(get("/job"));
    let (gone, job) = (next(&mut web, &told.gone), next(&mut web, &told.jobs));
    web.finish(client);
    web.until("its end is known", |_| gone.is_gone());
    job.run();
    assert_eq!(body(&web.until_over(client)), "is gone: true");
    assert_eq!(told.behind.load(Ordering::Relaxed), 1);
}

/// So many requests came behind the one that waits that the server reads no more.
fn the_end_of_a_client_is_noticed_where_its_connection_is_not_read<T: Harness>() {
    for path in ["/job", "/later"] {
        let (app, told) = app();
        // No 504 ends it.
        let mut web = serve::<T, _>(app.limits(Limits::new().answer(Duration::from_secs(1 << 20))));
        let client = web.ask(get(path) + &get("/").repeat(1000));
        let gone = next(&mut web, &told.gone);
        web.run_for(T::span(1.0));
        assert!(!gone.is_gone());
        web.finish(client);
        web.until("its end is known", |_| gone.is_gone());
    }
}

/// The client has sent all requests behind the one that waits, or still sends most of them.
fn a_reset_is_noticed_where_the_connection_is_not_read<T: Harness>() {
    for (path, behind) in [("/job", 1000), ("/later", 1000), ("/job", 500_000)] {
        let (app, told) = app();
        // No 504 ends it.
        let mut web = serve::<T, _>(app.limits(Limits::new().answer(Duration::from_secs(1 << 20))));
        let client = web.ask(get(path) + &get("/").repeat(behind));
        let gone = next(&mut web, &told.gone);
        web.run_for(T::span(1.0));
        assert!(!gone.is_gone());
        web.watcher.set_option(client, SocketOption::Linger(Some(Duration::ZERO))).unwrap();
        web.close(client);
        web.until("it is gone", |_| gone.is_gone());
        web.until("it has ended", |web| web.server.connections() == 0);
    }
}

fn a_504_is_the_end<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app.limits(Limits::new().answer(T::span(20.0))));
    let client = web.ask(get("/job"));
    let (gone, job) = (next(&mut web, &told.gone), next(&mut web, &told.jobs));
    assert!(web.until_over(client).starts_with("HTTP/1.1 504 "));
    assert!(gone.is_gone());
    job.run();
    web.close(client);
    web.server.stop(&mut web.watcher);
    web.until("it is over", |web| web.server.is_over());
    assert_eq!(told.behind.load(Ordering::Relaxed), 0);
}

fn an_answer_is_the_end<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(get("/job"));
    let (gone, job) = (next(&mut web, &told.gone), next(&mut web, &told.jobs));
    job.run();
    web.until_heard(client, "is gone: false");
    assert!(gone.is_gone());
    // The next request of the connection has its own.
    web.say(client, get("/later"));
    let (other, later) = (next(&mut web, &told.gone), next(&mut web, &told.laters));
    assert!(gone.is_gone() && !other.is_gone());
    later.respond("at last").expect("it waits");
    web.until_heard(client, "at last");
    assert!(other.is_gone());
}

fn a_stream_goes_on_until_its_end<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(get("/stream"));
    let gone = next(&mut web, &told.gone);
    web.until_heard(client, "\r\n.\r\n");
    assert!(!gone.is_gone());
    web.finish(client);
    web.until("its end is known", |_| gone.is_gone());
}

fn a_request_that_asks_for_its_body_keeps_what_it_tells<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    web.run_for(T::span(1.0));
    web.say(client, "abc");
    let both = [next(&mut web, &told.gone), next(&mut web, &told.gone)];
    next(&mut web, &told.jobs);
    assert!(both.iter().all(|gone| !gone.is_gone()));
    web.finish(client);
    web.until("its end is known", |_| both.iter().all(GoneFlag::is_gone));
}

fn what_is_refused_is_gone<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app.limits(Limits::new().running(1)));
    let one = web.ask(get("/job"));
    let (gone, job) = (next(&mut web, &told.gone), next(&mut web, &told.jobs));
    let other = web.ask(get("/job"));
    web.until_heard(other, "\r\n\r\n");
    assert!(web.heard(other).starts_with("HTTP/1.1 503 "));
    assert!(next(&mut web, &told.gone).is_gone() && !gone.is_gone());
    job.run();
    web.until_heard(one, "is gone: false");
}

fn a_request_that_asks_is_answered_at_once<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(get("/now") + &get("/now") + &get("/"));
    web.until_heard(client, "end");
    assert_eq!(web.heard(client).matches("now").count(), 2);
    assert!(told.gone.try_iter().all(|gone| gone.is_gone()));
}
