//! Answers of other threads: when they come, when they never come, and when nobody waits for them.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::bench::{Web, body, serve};
use crate::common::Harness;
use windlass::driver::Driver;
use windlass_web::answers::Later;
use windlass_web::{App, Error, Limits, Response, Status};

crate::every_driver! {
    an_answer_comes_from_another_thread
    an_answer_that_is_there_at_once_goes_out_at_once
    answers_come_in_the_order_of_the_requests
    a_later_that_is_dropped_is_a_500
    an_error_has_the_form_of_the_application
    an_answer_to_nobody_comes_back
    an_answer_behind_the_504_comes_back_and_is_counted
    an_answer_in_the_moment_of_the_504_goes_out
    a_response_that_is_not_returned_makes_its_later_gone
    an_answer_can_wait_for_another_answer
    a_client_that_has_ended_its_side_gets_its_answer
    the_end_of_a_client_is_noticed_where_its_connection_is_not_read
    requests_that_wait_are_bounded
    a_job_answers_by_a_later
    a_shutdown_waits_for_an_answer
}

const fn is_send<T: Send>() {}
const _: () = is_send::<Response>();
const _: () = is_send::<Later>();

/// Hands its `Later`s to the test.
fn app() -> (App, Receiver<Later>) {
    let (tell, told) = channel();
    (App::new().get("/later", move |_, _| hand_over(&tell)).get("/", |_, _| "now"), told)
}

fn hand_over(tell: &Sender<Later>) -> Response {
    let (later, response) = Response::later();
    tell.send(later).expect("the test listens");
    response
}

const LATER: &str = "GET /later HTTP/1.1\r\nHost: a\r\n\r\n";
const NOW: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Waits for the next `Later`.
fn next<D: Driver, S>(web: &mut Web<D, S>, told: &Receiver<Later>) -> Later {
    let mut found = None;
    web.until("a request waits", |_| {
        found = found.take().or_else(|| told.try_recv().ok());
        found.is_some()
    });
    found.expect("right from above")
}

fn an_answer_comes_from_another_thread<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(LATER);
    let later = next(&mut web, &told);
    assert!(!later.is_gone());
    let answers = thread::spawn(move || later.respond(Response::text("from there")).is_ok());
    assert!(answers.join().expect("no panic"), "its request waits");
    web.until_heard(client, "from there");
    assert!(web.heard(client).starts_with("HTTP/1.1 200 OK\r\n"));
    // The connection goes on.
    web.say(client, NOW);
    assert!(web.until_over(client).ends_with("now"));
    assert_eq!(web.server.remote().totals(), Default::default());
}

fn an_answer_that_is_there_at_once_goes_out_at_once<T: Harness>() {
    let app = App::new().get("/", |_, _| {
        let (later, response) = Response::later();
        let answers = thread::spawn(move || later.respond("at once").is_ok());
        assert!(answers.join().expect("no panic"));
        response
    });
    let mut web = serve::<T, _>(app);
    // Two wakes: the second one finds the second request.
    let client = web.ask(format!("{}{NOW}", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(web.until_over(client).matches("at once").count(), 2);
}

fn answers_come_in_the_order_of_the_requests<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(format!("{LATER}{LATER}{NOW}"));
    for text in ["first", "second"] {
        let later = next(&mut web, &told);
        assert!(told.try_recv().is_err(), "one request after the other");
        later.respond(text).expect("it waits");
    }
    let heard = web.until_over(client);
    let place = |text| heard.find(text).expect("an answer");
    assert!(place("first") < place("second") && place("second") < place("now"), "{heard}");
}

fn a_later_that_is_dropped_is_a_500<T: Harness>() {
    let (app, told) = app();
    let causes = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&causes);
    let app = app.finished(move |_, finished| {
        let cause = finished.error().and_then(Error::cause).map(ToString::to_string);
        noted.lock().unwrap().extend(cause);
    });
    let mut web = serve::<T, _>(app);
    let client = web.ask(LATER);
    let later = next(&mut web, &told);
    thread::spawn(move || drop(later)).join().expect("no panic");
    web.until_heard(client, "\r\n\r\nInternal Server Error");
    assert!(web.heard(client).starts_with("HTTP/1.1 500 "));
    // The connection goes on.
    web.say(client, NOW);
    assert!(web.until_over(client).ends_with("now"));
    assert_eq!(web.server.remote().totals().unanswered, 1);
    assert_eq!(*causes.lock().unwrap(), ["a `Later` was dropped without an answer"]);
}

fn an_error_has_the_form_of_the_application<T: Harness>() {
    let (app, told) = app();
    let app = app.on_error(|_, _, error| Response::text(format!("<{}>", error.status().code())));
    let mut web = serve::<T, _>(app);
    let client = web.ask(LATER);
    next(&mut web, &told).respond(Error::from(Status::CONFLICT)).expect("it waits");
    web.until_heard(client, "<409>");
    assert!(web.heard(client).starts_with("HTTP/1.1 409 "));
}

fn an_answer_to_nobody_comes_back<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(LATER);
    let later = next(&mut web, &told);
    web.close(client);
    web.until("it is gone", |_| later.is_gone());
    // The end of the side may have come alone: then the answer ends the connection.
    web.server.stop(&mut web.watcher);
    web.server.stop(&mut web.watcher);
    web.until("it is over", |web| web.server.is_over());
    let response = later.respond("too late").expect_err("nobody waits");
    assert_eq!(response.head().status(), Status::OK);
    assert_eq!(web.server.remote().totals().late, 1);
}

fn an_answer_behind_the_504_comes_back_and_is_counted<T: Harness>() {
    let (app, told) = app();
    let span = T::span(20.0);
    let mut web = serve::<T, _>(app.limits(Limits::new().answer(span)));
    let start = web.now();
    let client = web.ask(LATER);
    let later = next(&mut web, &told);
    assert!(web.until_over(client).starts_with("HTTP/1.1 504 "));
    assert!(web.now() - start >= span);
    assert!(later.is_gone());
    assert!(later.respond("too late").is_err());
    assert_eq!(web.server.remote().totals().late, 1);
    assert_eq!(web.server.remote().totals().unanswered, 0);
}

/// The answer is there when the limit is reached, and its wake comes behind.
fn an_answer_in_the_moment_of_the_504_goes_out<T: Harness>() {
    let (app, told) = app();
    let span = T::span(20.0);
    let mut web = serve::<T, _>(app.limits(Limits::new().answer(span)));
    let client = web.ask(LATER);
    let later = next(&mut web, &told);
    let start = web.now();
    // No turn of the server: so it finds both at once.
    while web.now() - start < span * 2 {
        let left = (span * 2).saturating_sub(web.now() - start);
        let timer = windlass::Op::timer(left).token(2);
        web.watcher.submit(timer).expect("a timer");
        let mut done = windlass::Completions::new();
        web.watcher.wait_timeout(&mut done, left).expect("a wait");
        for own in done.drain(..) {
            let _ = web.server.complete(&mut web.watcher, own).filter(|own| own.token != 2);
        }
    }
    later.respond("just in time").expect("it still waits");
    web.until_heard(client, "just in time");
}

fn a_response_that_is_not_returned_makes_its_later_gone<T: Harness>() {
    let (app, told) = {
        let (tell, told) = channel();
        let app = App::new().get("/", move |_, _| {
            drop(hand_over(&tell));
            "something else"
        });
        (app, told)
    };
    let mut web = serve::<T, _>(app);
    let client = web.ask(NOW);
    assert!(web.until_over(client).ends_with("something else"));
    let later = told.recv().expect("it was sent");
    assert!(later.is_gone() && later.respond("nowhere").is_err());
    assert_eq!(web.server.remote().totals(), Default::default());
}

fn an_answer_can_wait_for_another_answer<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(LATER);
    let first = next(&mut web, &told);
    let (second, response) = Response::later();
    first.respond(response).expect("it waits");
    web.run_for(T::span(1.0));
    assert_eq!(web.heard(client), "");
    second.respond("at last").expect("it waits");
    web.until_heard(client, "at last");
}

fn a_client_that_has_ended_its_side_gets_its_answer<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(LATER);
    web.finish(client);
    let later = next(&mut web, &told);
    web.until("its end is known", |_| later.is_gone());
    later.respond("all the same").expect("it may still read");
    assert_eq!(body(&web.until_over(client)), "all the same");
    assert!(web.heard(client).contains("Connection: close\r\n"));
}

/// So many requests came behind the one that waits that the server reads no more.
fn the_end_of_a_client_is_noticed_where_its_connection_is_not_read<T: Harness>() {
    const BEHIND: usize = 1000;
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(LATER);
    let later = next(&mut web, &told);
    let now = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(BEHIND);
    assert!(now.len() > 16 << 10);
    web.say(client, now);
    web.run_for(T::span(1.0));
    assert!(!later.is_gone());
    web.finish(client);
    web.until("its end is known", |_| later.is_gone());
    // It has ended its side only, and gets all of its answers.
    later.respond("at last").expect("it may still read");
    let heard = web.until_over(client);
    assert_eq!(heard.matches("HTTP/1.1 200 OK\r\n").count(), BEHIND + 1);
    assert!(heard.contains("at last") && heard.ends_with("now"));
}

fn requests_that_wait_are_bounded<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app.limits(Limits::new().running(1)));
    let one = web.ask(LATER);
    let later = next(&mut web, &told);
    let other = web.ask(LATER);
    web.until_heard(other, "\r\n\r\n");
    assert!(web.heard(other).starts_with("HTTP/1.1 503 "));
    assert!(web.has_heard(other, "Retry-After: 1\r\n"));
    assert!(next(&mut web, &told).respond("nobody").is_err());
    later.respond("done").expect("it waits");
    web.until_heard(one, "done");
    // There is room again.
    web.say(one, LATER);
    next(&mut web, &told).respond("again").expect("it waits");
    web.until_heard(one, "again");
}

fn a_job_answers_by_a_later<T: Harness>() {
    let (tell, told) = channel();
    let app = App::new().get("/", move |_, q| {
        let tell = tell.clone();
        q.blocking(Response::later, move |_, (later, response)| {
            tell.send(later).expect("the test listens");
            response
        })
    });
    let mut web = serve::<T, _>(app);
    let client = web.ask(NOW);
    next(&mut web, &told).respond("from a job").expect("it waits");
    assert_eq!(body(&web.until_over(client)), "from a job");
}

fn a_shutdown_waits_for_an_answer<T: Harness>() {
    let (app, told) = app();
    let mut web = serve::<T, _>(app.grace(Duration::from_secs(60)));
    let client = web.ask(LATER);
    let later = next(&mut web, &told);
    web.server.stop(&mut web.watcher);
    web.run_for(T::span(1.0));
    later.respond("the last one").expect("it waits");
    assert_eq!(body(&web.until_over(client)), "the last one");
    web.close(client);
    web.until("it is over", |web| web.server.is_over());
}
