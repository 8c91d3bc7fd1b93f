//! The example `json_api` with random clients and crashes: what it has taken is there, until its
//! machine loses power.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use windlass_web::Status;
use windlass_web::test::{self, ClientError, Simulation, TestClient};

use json_api::{Note, api};

#[path = "../../examples/json_api.rs"]
mod json_api;

/// What a client knows of the server.
struct Known {
    base: &'static str,
    client: TestClient,
    /// The notes that it has an answer for.
    notes: BTreeMap<u64, String>,
    /// The texts of those that may be there.
    maybe: BTreeSet<String>,
    number: u64,
}

impl Known {
    fn add(&mut self) -> Result<(), ClientError> {
        self.number += 1;
        let note = Note { text: format!("note {}", self.number) };
        let post = self.client.post(&format!("{}/notes", self.base));
        match post.header("Authorization", "me").json(&note).send() {
            Ok(response) => {
                assert_eq!(response.status(), Status::CREATED);
                let id = response.json()?;
                assert_eq!(self.notes.insert(id, note.text), None, "an id of another note");
            }
            Err(ClientError::Connect(_)) => {}
            Err(error) => {
                assert!(!matches!(error, ClientError::Malformed(_)), "{error}");
                self.maybe.insert(note.text);
            }
        }
        Ok(())
    }

    /// A note that cannot be taken.
    fn add_wrong(&mut self, which: u64) {
        let post = self.client.post(&format!("{}/notes", self.base));
        let (post, status) = match which {
            0 => (post.body(r#"{"text":"x"}"#), Status::UNAUTHORIZED),
            1 => (post.header("Authorization", "me").body("{"), Status::BAD_REQUEST),
            2 => {
                let post = post.header("Content-Type", "text/plain").header("Authorization", "me");
                (post.body("x"), Status::UNSUPPORTED_MEDIA_TYPE)
            }
            _ => {
                let post = post.header("Authorization", "me");
                (post.chunks([vec![b' '; 600_000], vec![b' '; 600_000]]), Status::CONTENT_TOO_LARGE)
            }
        };
        if let Ok(response) = post.send() {
            assert_eq!(response.status(), status);
        }
    }

    fn look(&mut self, id: u64) -> Result<(), ClientError> {
        let response = self.client.get(&format!("{}/notes/{id}", self.base)).retry()?;
        match self.notes.get(&id) {
            Some(text) => assert_eq!(response.json::<Note>()?.text, *text),
            None if response.status() == Status::NOT_FOUND => {}
            None => assert!(self.maybe.contains(&response.json::<Note>()?.text)),
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), ClientError> {
        let response = self.client.get(&format!("{}/report", self.base)).retry()?;
        let (count, _) = response.json::<(usize, usize)>()?;
        let most = self.notes.len() + self.maybe.len();
        assert!((self.notes.len()..=most).contains(&count), "{count}, at most {most}");
        Ok(())
    }
}

fn program(sim: &Simulation, is_tls: bool, crashes: &Cell<u64>) -> Result<(), ClientError> {
    let strength = sim.random_below(3) as f64 * 0.05;
    #[cfg(feature = "ring")]
    let host = if is_tls { crate::model::secure(sim, api) } else { sim.serve("a.test:80", api) };
    #[cfg(not(feature = "ring"))]
    let host = sim.serve("a.test:80", api);
    sim.faults(strength);
    let base = if is_tls { "https://a.test:80" } else { "http://a.test" };
    let (notes, maybe) = (BTreeMap::new(), BTreeSet::new());
    let mut known = Known { base, client: sim.client(), notes, maybe, number: 0 };
    for _ in 0..60 {
        match sim.random_below(20) {
            0..8 => known.add()?,
            8..10 => known.add_wrong(sim.random_below(3)),
            10 if sim.random_below(10) == 0 => known.add_wrong(3),
            11 => known.count()?,
            12 if sim.random_below(3) == 0 => {
                sim.crash(&host);
                crashes.set(crashes.get() + 1);
                known.notes.clear();
                known.maybe.clear();
            }
            13 => {
                let response = known.client.get(&format!("{base}/notes/x")).retry()?;
                assert_eq!(response.status(), Status::NOT_FOUND);
            }
            _ => {
                let most = known.notes.keys().last().map_or(1, |id| id + 2);
                known.look(sim.random_below(most))?;
            }
        }
    }
    Ok(())
}

fn run(is_tls: bool) {
    let (crashes, faults, seeds) = (Cell::new(0), Cell::new(0), Cell::new(0));
    test::seeds(0..200, |sim| {
        program(sim, is_tls, &crashes)?;
        faults.set(faults.get() + sim.network().injected().total());
        seeds.set(seeds.get() + 1);
        Ok(())
    });
    if seeds.get() >= 100 {
        assert!(crashes.get() > 0 && faults.get() > 0, "{crashes:?} crashes, {faults:?} faults");
    }
}

#[test]
fn notes_are_there_until_a_crash() {
    run(false);
}

#[cfg(feature = "ring")]
#[test]
fn notes_are_there_until_a_crash_with_tls() {
    run(true);
}
