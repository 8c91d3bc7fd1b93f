//! Notes over JSON: a state for each loop, errors as values, a hook that asks who it is, and a
//! report that another thread makes. Its test runs the same program in a simulation.
//!
//! ```text
//! cargo run --release -p windlass-web --example json_api -- --port 8080
//! curl -H 'Authorization: me' -d '{"text":"milk"}' http://127.0.0.1:8080/notes
//! curl http://127.0.0.1:8080/notes/1
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_web::{App, Error, Request, Response, Status};

#[path = "common/mod.rs"]
mod common;

type Q<'a> = Request<'a, Store>;

/// What a loop keeps. The notes of this program belong to its only loop; several loops would share
/// an `Arc` of them.
#[derive(Default)]
pub(crate) struct Store {
    notes: BTreeMap<u64, Note>,
    last: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) text: String,
}

fn add(store: &mut Store, q: &mut Q<'_>) -> Result<Response, Error> {
    let note: Note = q.json()?; // 400, 413 and 415 by itself
    store.last += 1;
    store.notes.insert(store.last, note);
    Ok(Response::json(&store.last).status(Status::CREATED))
}

fn one(store: &mut Store, q: &mut Q<'_>) -> Result<Response, Error> {
    Ok(Response::json(store.notes.get(&q.parse("id")?).ok_or(Status::NOT_FOUND)?))
}

/// How many notes there are, and how long they are: counted off the loop.
fn report(store: &mut Store, q: &mut Q<'_>) -> Response {
    let notes: Vec<Note> = store.notes.values().cloned().collect();
    let count = move || (notes.len(), notes.iter().map(|note| note.text.len()).sum::<usize>());
    q.blocking(count, |_, counted| Response::json(&counted))
}

/// A request that changes notes must have an `Authorization`.
fn ask(_: &mut Store, q: &mut Q<'_>) -> Option<Response> {
    let may = q.method() == "GET" || q.header("Authorization").is_some();
    (!may).then(|| Status::UNAUTHORIZED.into())
}

pub(crate) fn api() -> App<Store> {
    App::with(|_loop| Store::default())
        .post("/notes", add)
        .get("/notes/{id}", one)
        .get("/report", report)
        .before(ask)
}

#[allow(dead_code)] // a test uses the application
fn main() -> std::io::Result<()> {
    let mut options = common::Options::new("json_api [--port N]");
    let port: u16 = options.take("--port").unwrap_or(8080);
    options.end();
    common::serve(api().listen(format!("127.0.0.1:{port}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_web::test;

    #[test]
    fn notes_that_were_taken_are_there() {
        test::seeds(0..100, |sim| {
            sim.faults(0.1);
            sim.serve("api.test:80", api);
            let (mut client, mut kept) = (sim.client(), Vec::new());
            for n in 0..20 {
                let note = Note { text: n.to_string() };
                let post = client.post("http://api.test/notes").header("Authorization", "me");
                if let Ok(response) = post.json(&note).send() {
                    kept.push((response.json::<u64>()?, note));
                }
            }
            for (id, note) in kept {
                let url = format!("http://api.test/notes/{id}");
                assert_eq!(client.get(&url).retry()?.json::<Note>()?, note);
            }
            Ok(())
        });
    }

    #[test]
    fn a_report_counts_notes() {
        let mut caller = test::Caller::of(api());
        let note = test::post("/notes").json(&Note { text: "milk".into() });
        assert_eq!(caller.call(note.clone()).status(), Status::UNAUTHORIZED);
        assert_eq!(caller.call(note.header("Authorization", "me")).status(), Status::CREATED);
        assert_eq!(caller.call(test::get("/report")).json::<(usize, usize)>().unwrap(), (1, 4));
        assert_eq!(caller.call(test::get("/notes/2")).status(), Status::NOT_FOUND);
    }
}
