//! Handlers that ask other servers: on every driver and in the simulation.

use crate::bench::{Web, body, serve};
use crate::common::Harness;
use windlass::driver::Driver;
use windlass_web::client::Fetch;
use windlass_web::proxy::Upstream;
use windlass_web::{App, Error, Response};

crate::every_driver! {
    the_response_of_another_server_is_handed_over
    a_request_is_passed_on
}

/// Asks the server that the query names.
fn app() -> App {
    App::new()
        .get("/inner", |_, _| Response::text("from the inner server").header("X-Inner", "1"))
        .any("/pass", |_, q| match (q.header("via"), q.query("at")) {
            (None, Some(at)) => match Upstream::new(&format!("http://{at}")) {
                Ok(upstream) => q.forward(&upstream),
                Err(error) => Error::from(error).into(),
            },
            _ => format!("{} {:?} {:?}", q.method(), q.header("x-own"), q.text()).into(),
        })
        .get("/outer", |_, q| {
            let url = format!("http://{}/inner", q.query("at").unwrap_or(""));
            q.fetch(Fetch::get(url), |_, fetched| {
                let fetched = fetched?;
                let text = String::from_utf8_lossy(fetched.body()).into_owned();
                Ok::<_, Error>(format!(
                    "{} {:?} {text}",
                    fetched.status(),
                    fetched.header("x-inner")
                ))
            })
        })
}

fn ask<D: Driver, S>(web: &Web<D, S>, path: &str) -> String {
    let at = web.address.ip().expect("an address");
    format!("GET {path}?at={at} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn the_response_of_another_server_is_handed_over<T: Harness>() {
    let mut web = serve::<T, _>(app());
    let outer = ask(&web, "/outer");
    let client = web.ask(outer.clone());
    for count in 1..=3 {
        let is_there = |heard: &str| heard.matches("from the inner server").count() == count;
        web.until("a response", |web| is_there(&web.heard(client)));
        if count < 3 {
            web.say(client, outer.clone());
        }
    }
    let heard = web.heard(client);
    assert!(body(&heard).starts_with("200 OK Some(\"1\") from the inner server"), "{heard}");
}

fn a_request_is_passed_on<T: Harness>() {
    let mut web = serve::<T, _>(app());
    let at = web.address.ip().expect("an address");
    let head = format!("POST /pass?at={at} HTTP/1.1\r\nHost: a\r\nX-Own: 7\r\n");
    let client = web.ask(format!("{head}Content-Length: 5\r\n\r\nhello"));
    web.until_heard(client, "POST Some(\"7\") Ok(\"hello\")");
    web.say(client, format!("{head}Content-Length: 3\r\n\r\nyou"));
    web.until_heard(client, "POST Some(\"7\") Ok(\"you\")");
}
