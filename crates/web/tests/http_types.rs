//! Requests and responses as types of the crate `http`, both ways.
#![allow(missing_docs)] // a test binary has no users
#![cfg(feature = "http")]

use http::{StatusCode, Version};
use windlass_web::test::{Caller, get, post};
use windlass_web::{App, Error, Flow, Part, Response, Status};

fn app() -> App {
    App::new()
        .post("/echo", |_, q| {
            let request = http::Request::<Vec<u8>>::try_from(&*q)?;
            assert_eq!((request.method().as_str(), request.version()), ("POST", Version::HTTP_11));
            assert_eq!(request.uri().query(), Some("a=b"));
            let given = request.headers()["x-given"].clone();
            let made = http::Response::builder()
                .status(StatusCode::CREATED)
                .header("Content-Type", "text/x-given")
                .header("X-Given", given)
                .header("Set-Cookie", "a=1")
                .header("Set-Cookie", "b=2")
                .header("Content-Length", "7000") // not the program's
                .header("Connection", "close")
                .body(request.into_body());
            made.map_err(|error| Error::new(Status::INTERNAL_SERVER_ERROR).because(error))
        })
        .get("/beyond", |_, _| http::Response::builder().status(700).body("").expect("a response"))
        .get("/no-text", |_, _| {
            http::Response::builder().header("X-A", &b"\xff"[..]).body("").expect("a response")
        })
}

#[test]
fn a_request_and_its_response() {
    let reply = app().call(post("/echo?a=b").header("X-Given", "some").body("the body"));
    assert_eq!((reply.status(), reply.text()), (Status::CREATED, "the body"));
    assert_eq!(reply.header("Content-Type"), Some("text/x-given"));
    assert_eq!(reply.header("X-Given"), Some("some"));
    let cookies = reply.headers().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    assert_eq!(cookies.map(|(_, value)| value).collect::<Vec<_>>(), [b"a=1", b"b=2"]);
    assert_eq!(reply.header("Content-Length"), Some("8"));
    assert!(!reply.keeps_alive());
}

#[test]
fn a_request_of_a_test() {
    let request =
        http::Request::post("/echo?a=b").header("X-Given", "x").header("Content-Length", "9");
    let request = request.body("text").expect("a request");
    assert_eq!(app().call(request.into()).text(), "text");
}

#[test]
fn what_no_response_has_is_an_error() {
    let mut caller = Caller::of(app());
    for path in ["/beyond", "/no-text"] {
        assert_eq!(caller.call(get(path)).status(), Status::INTERNAL_SERVER_ERROR, "{path}");
    }
}

#[test]
fn a_response_that_is_there() {
    let response = Response::text("text").status(Status::CONFLICT).header("X-A", "b");
    let made = http::Response::try_from(response).expect("it is there");
    assert_eq!((made.status(), &made.body()[..]), (StatusCode::CONFLICT, &b"text"[..]));
    assert_eq!(made.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(made.headers()["x-a"], "b");
    let stream = Response::stream(|_: &mut Part<'_>| Flow::End).header("X-A", "b");
    let stream = http::Response::<Vec<u8>>::try_from(stream).expect_err("it is not there");
    assert_eq!(stream.head().get("x-a"), Some("b"));
    let wrong = Response::text("").header("a b", "c");
    assert!(http::Response::<Vec<u8>>::try_from(wrong).is_err());
}

#[test]
fn every_status_has_one() {
    for code in 100..600 {
        let status = Status::new(code).expect("a status");
        assert_eq!(Status::try_from(StatusCode::from(status)), Ok(status));
    }
    let beyond = StatusCode::from_u16(600).expect("a status");
    assert_eq!(Status::try_from(beyond), Err(beyond));
}
