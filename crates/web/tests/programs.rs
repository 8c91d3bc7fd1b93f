//! The programs that this crate was designed by: they compile, are as short as they look, and run.
#![allow(missing_docs)] // a test binary has no users
#![cfg(feature = "json")]

#[path = "common/wire.rs"]
mod wire;

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use windlass_web::{App, Error, Request, Response, Status};
use wire::Client;

fn hello() -> App<()> {
    App::new()
        .get("/", |_, _| "Hello, World!")
        .get("/hello/{name}", |_, q| format!("hi {}", q.param("name")))
}

#[derive(Default)]
struct Store {
    notes: BTreeMap<u64, Note>,
    last: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Note {
    text: String,
}

fn closures() -> App<Store> {
    App::with(|_loop| Store::default())
        .post("/notes", |s, q| {
            let note: Note = q.json()?; // 400, 413, 415 by itself
            s.last += 1;
            s.notes.insert(s.last, note);
            Ok::<_, Error>(Response::json(&s.last).status(Status::CREATED))
        })
        .get("/notes/{id}", |s, q| {
            let note = s.notes.get(&q.parse("id")?).ok_or(Status::NOT_FOUND)?;
            Ok::<_, Error>(Response::json(note))
        })
        .get("/report", |_, q| q.blocking(|| 6 * 7, |s, n| Response::json(&(n, s.last))))
        .before(|_, q| q.header("authorization").is_none().then(|| Status::UNAUTHORIZED.into()))
        .finished(|_, f| println!("{} {:?} {:?}", f.route(), f.status(), f.took()))
}

type Q<'a> = Request<'a, Store>;

fn add(s: &mut Store, q: &mut Q<'_>) -> Result<Response, Error> {
    let note: Note = q.json()?;
    s.last += 1;
    s.notes.insert(s.last, note);
    Ok(Response::json(&s.last).status(Status::CREATED))
}

fn one(s: &mut Store, q: &mut Q<'_>) -> Result<Response, Error> {
    Ok(Response::json(s.notes.get(&q.parse("id")?).ok_or(Status::NOT_FOUND)?))
}

fn functions() -> App<Store> {
    App::with(|_| Store::default()).post("/notes", add).get("/notes/{id}", one)
}

#[test]
fn hello_greets() -> io::Result<()> {
    let server = hello().listen("127.0.0.1:0")?.start()?;
    let mut client = Client::new(server.address());
    assert_eq!(client.get("/").text(), "Hello, World!");
    assert_eq!(client.get("/hello/J%C3%B6rg").text(), "hi Jörg");
    assert_eq!(client.get("/bye").status, 404);
    server.shutdown()?;
    Ok(())
}

fn notes<S: 'static>(app: App<S>) -> io::Result<()> {
    const TYPE: &str = "Authorization: Basic YTpi\r\nContent-Type: application/json\r\n";
    let server = app.listen("127.0.0.1:0")?.start()?;
    let mut client = Client::new(server.address());
    let made = client.send("POST", "/notes", TYPE, r#"{"text":"one"}"#);
    assert_eq!((made.status, made.text()), (201, "1"));
    let note = client.send("GET", "/notes/1", TYPE, "");
    assert_eq!((note.status, note.text()), (200, r#"{"text":"one"}"#));
    for (target, status) in [("/notes/2", 404), ("/notes/x", 404), ("/notes", 405)] {
        assert_eq!(client.send("GET", target, TYPE, "").status, status, "{target}");
    }
    assert_eq!(client.send("POST", "/notes", TYPE, "{").status, 400);
    let plain = "Authorization: Basic YTpi\r\nContent-Type: text/plain\r\n";
    assert_eq!(client.send("POST", "/notes", plain, "x").status, 415);
    server.shutdown()?;
    Ok(())
}

#[test]
fn notes_with_closures() -> io::Result<()> {
    notes(closures())?;
    let server = closures().listen("127.0.0.1:0")?.start()?;
    let mut client = Client::new(server.address());
    assert_eq!(client.get("/report").status, 401);
    assert_eq!(client.send("GET", "/report", "Authorization: x\r\n", "").text(), "[42,0]");
    server.shutdown()?;
    Ok(())
}

#[test]
fn notes_with_functions() -> io::Result<()> {
    notes(functions())
}

#[cfg(all(unix, feature = "ring"))]
#[test]
fn a_certificate_that_is_read_again() -> io::Result<()> {
    use windlass_web::tls::{Pem, Tls};
    use windlass_web::windlass::process::signal::SIGHUP;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = Pem::bytes(made.signing_key.serialize_pem());
    let tls = Tls::pem(Pem::bytes(made.cert.pem()), key)?;
    let again = tls.clone();
    let server = closures()
        .listen(("127.0.0.1:0", tls))?
        .on_signal(SIGHUP, move |_| {
            if let Err(error) = again.reload() {
                eprintln!("{error}");
            }
        })
        .start()?;
    assert_ne!(server.address().port(), 0);
    server.shutdown()?;
    Ok(())
}
