//! Server-Sent Events: plain, unless they are asked for.

use windlass::Source;
use windlass::driver::Driver;
use windlass_web::events::{Events, ServerEvent};
use windlass_web::serve::Limits;
use windlass_web::{App, Compress, Flow, Part, Response};

use super::bench::{Web, serve};
use super::common::Harness;
use super::{Heard, page};

crate::every_kernel! {
    events_are_plain_unless_asked_for
    each_event_is_decoded_at_once
    first_events_that_are_long_come_before_the_others
    a_comment_is_a_part_of_the_body
    a_client_that_loses_events_decodes_the_others
    a_slow_client_is_ended
    a_shutdown_ends_the_body
}

const EVENTS: &str = "GET /events HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";

fn app(events: impl Fn(Events) -> Events + Send + Sync + 'static) -> App {
    let app = App::new().get("/events", move |_, _| events(Response::events().subscribe("news")));
    app.compress(Compress::new().events(true))
}

fn hear<D: Driver>(web: &mut Web<D>, request: &str) -> Source {
    let before = web.server.remote().totals().subscriptions;
    let client = web.ask(request.to_owned());
    web.until("it hears", |web| web.server.remote().totals().subscriptions > before);
    client
}

fn heard<D: Driver>(web: &Web<D>, client: Source) -> Heard {
    Heard::of(&web.client(client).heard)
}

fn events_are_plain_unless_asked_for<T: Harness>() {
    let own = |_: &mut (), _: &mut windlass_web::Request<'_>| {
        let mut left = 2;
        let source = move |part: &mut Part<'_>| {
            part.write(b"data: own\n\n");
            left -= 1;
            if left > 0 { Flow::More } else { Flow::End }
        };
        Response::stream(source).content_type("Text/Event-Stream; charset=utf-8")
    };
    for is_asked in [false, true] {
        let app = app(|events| events.first(page(3000))).get("/own", own);
        let mut web = serve::<T, _>(app.compress(Compress::new().events(is_asked)));
        for path in ["/events", "/own"] {
            let client = web.ask(EVENTS.replace("/events", path));
            web.until("it begins", |web| heard(web, client).text().ends_with("\n\n"));
            let coding = heard(&web, client).get("Content-Encoding").is_some();
            assert_eq!(coding, is_asked, "{path}");
        }
    }
}

fn each_event_is_decoded_at_once<T: Harness>() {
    let mut web = serve::<T, _>(app(|events| events));
    let clients = [EVENTS, &EVENTS.replace("1.1", "1.0"), &EVENTS.replace("gzip", "br")]
        .map(|request| hear(&mut web, request));
    let mut said = String::new();
    for number in 0..20 {
        let event = ServerEvent::data(page(20 + 300 * number)).id(&number.to_string());
        said.push_str(&event.to_string());
        assert!(web.server.remote().publish("news", event));
        for client in clients {
            web.until("it is heard", |web| heard(web, client).text() == said);
        }
    }
    let lens = clients.map(|client| heard(&web, client).body.len());
    assert!(lens[0] < lens[2] / 2 && lens[1] < lens[2] / 2, "{lens:?}");
    web.finish(clients[0]);
    web.until_over(clients[0]);
    assert_eq!(heard(&web, clients[0]).decode(), (said.into_bytes(), true));
}

fn first_events_that_are_long_come_before_the_others<T: Harness>() {
    let app = app(|events| events.first(page(1_000_000).replace('\n', "")));
    let mut web = serve::<T, _>(app);
    let client = hear(&mut web, EVENTS);
    web.server.remote().publish("news", "second");
    web.until("the second", |web| heard(web, client).text().ends_with("data: second\n\n"));
    let text = heard(&web, client).text();
    let first = page(1_000_000).replace('\n', "");
    assert!(text.starts_with(&format!("data: {first}\n\n")));
}

fn a_comment_is_a_part_of_the_body<T: Harness>() {
    let span = T::span(60.0);
    let mut web = serve::<T, _>(app(move |events| events.keep_alive(span)));
    let client = hear(&mut web, EVENTS);
    for count in 1..4 {
        web.until("a comment", |web| heard(web, client).text() == ":\n\n".repeat(count));
    }
}

/// Text that hardly gets smaller.
fn noise(random: &mut fastrand::Rng) -> String {
    (0..20_000).map(|_| random.alphanumeric()).collect()
}

fn limits() -> Limits {
    Limits::new().marks(10_000, 50_000).write_stall(None).idle(None)
}

fn a_client_that_loses_events_decodes_the_others<T: Harness>() {
    let app = app(|events| events.lossy()).serve_limits(limits());
    let mut web = serve::<T, _>(app);
    let client = web.connect_deaf();
    web.say(client, EVENTS);
    web.until("it hears", |web| web.server.remote().totals().subscriptions == 1);
    let (mut random, mut count) = (fastrand::Rng::with_seed(1), 0);
    while web.server.remote().totals().lost_events < 5 {
        assert!(web.server.remote().publish("news", noise(&mut random)));
        count += 1;
        web.run_for(T::span(0.1));
        assert!(count < 10_000, "nothing is lost");
    }
    web.hear(client);
    let published = std::mem::take(&mut count);
    while !heard(&web, client).text().contains("the last one") {
        assert!(web.server.remote().publish("news", "the last one"));
        count += 1;
        web.run_for(T::span(0.1));
        assert!(count < 10_000, "nothing more comes");
    }
    let text = heard(&web, client).text();
    let events = text.split("\n\n").filter(|event| event.len() > 1000).count();
    assert!((1..published).contains(&events), "{events} of {published}");
}

fn a_slow_client_is_ended<T: Harness>() {
    let mut web = serve::<T, _>(app(|events| events).serve_limits(limits()));
    let client = web.connect_deaf();
    web.say(client, EVENTS);
    web.until("it hears", |web| web.server.remote().totals().subscriptions == 1);
    let mut random = fastrand::Rng::with_seed(1);
    let mut count = 0;
    while web.server.remote().totals().slow_subscribers == 0 {
        assert!(web.server.remote().publish("news", noise(&mut random)));
        count += 1;
        web.run_for(T::span(0.1));
        assert!(count < 10_000, "it is not ended");
    }
    web.until("it is over", |web| web.server.remote().totals().subscriptions == 0);
}

fn a_shutdown_ends_the_body<T: Harness>() {
    let mut web = serve::<T, _>(app(|events| events.first("now")));
    let client = hear(&mut web, EVENTS);
    web.until("it begins", |web| heard(web, client).text() == "data: now\n\n");
    web.server.remote().drain();
    web.until_over(client);
    assert_eq!(heard(&web, client).decode(), (b"data: now\n\n".to_vec(), true));
}
