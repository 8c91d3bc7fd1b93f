//! Responses of other threads, and events, over TLS: with a client that leaves in the middle.
#![cfg(feature = "ring")]
#![allow(missing_docs)] // a test binary has no users

#[path = "upgrades/net.rs"]
mod net;

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use net::{Harness, Net};
use windlass_web::answers::{Later, Writer};
use windlass_web::tls::{Pem, Tls, TlsClient};
use windlass_web::{App, Response};

every_driver! {
    another_thread_responds
    another_thread_writes
    events_are_told
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn serve<T: Harness>(app: App) -> Net<()> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("one");
    let certificate = Pem::bytes(made.cert.pem());
    let key = Pem::bytes(made.signing_key.serialize_pem());
    let server = Tls::builder().certificate(certificate.clone(), key).build().expect("one");
    let client = TlsClient::builder().roots(certificate).build().expect("a client");
    Net::with_tls::<T>(app, server, client.to("localhost").expect("a name"))
}

/// An application that hands what its handler makes to the test.
fn app<V: Send + 'static>(make: fn() -> (V, Response)) -> (App, Receiver<V>) {
    let (tell, told) = channel();
    let app = App::new().get("/", move |_, _| {
        let (made, response) = make();
        tell.send(made).expect("the test listens");
        response
    });
    (app, told)
}

/// Waits for what the next handler makes.
fn next<V>(net: &mut Net<()>, told: &Receiver<V>) -> V {
    let mut found = None;
    net.until("a request waits", |_| {
        found = found.take().or_else(|| told.try_recv().ok());
        found.is_some()
    });
    found.expect("right from above")
}

fn another_thread_responds<T: Harness>() {
    let (app, told) = app::<Later>(Response::later);
    let mut net = serve::<T>(app);
    let client = net.connect();
    net.say(client, get("/"));
    let later = next(&mut net, &told);
    let responds = thread::spawn(move || later.respond("from there").is_ok());
    assert!(responds.join().expect("no panic"));
    net.until_heard(client, "from there");
    net.say(client, get("/"));
    let later = next(&mut net, &told);
    assert!(!later.is_gone());
    net.finish(client);
    net.until("it is gone", |_| later.is_gone());
}

fn another_thread_writes<T: Harness>() {
    let (app, told) = app::<Writer>(Response::writer);
    let mut net = serve::<T>(app);
    let client = net.connect();
    net.say(client, get("/"));
    let mut writer = next(&mut net, &told);
    writer.try_write(b"the begin").expect("there is room");
    net.until_heard(client, "9\r\nthe begin\r\n");
    let ends = thread::spawn(move || {
        writer.try_write(b"the end").expect("there is room");
        writer.end();
    });
    ends.join().expect("no panic");
    net.until_heard(client, "7\r\nthe end\r\n0\r\n\r\n");
    net.say(client, get("/"));
    let mut writer = next(&mut net, &told);
    writer.try_write(b"the begin").expect("there is room");
    net.until_heard(client, "9\r\nthe begin\r\n");
    assert!(!writer.is_gone());
    net.finish(client);
    net.until("it is gone", |_| writer.is_gone());
}

fn events_are_told<T: Harness>() {
    let app = App::new().get("/", |_, _| Response::events().subscribe("prices"));
    let mut net = serve::<T>(app);
    let remote = net.server.remote();
    let (one, two) = (net.connect(), net.connect());
    net.say(one, get("/"));
    net.say(two, get("/"));
    net.until("both hear", |_| remote.totals().subscriptions == 2);
    assert!(remote.publish("prices", "17"));
    net.until_heard(one, "data: 17\n\n\r\n");
    net.until_heard(two, "data: 17\n\n\r\n");
    net.finish(one);
    net.until("one has gone", |_| remote.totals().subscriptions == 1);
    assert!(remote.publish("prices", "18"));
    net.until_heard(two, "data: 18\n\n\r\n");
    assert!(!net.heard(one).contains("data: 18"));
}
