//! Notes on a log: a note is acknowledged when it is on the disk, and is there after every crash.
//! The log is the one of windlass' example, on the loop of the server.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use journal::{Care, Journal, Step};
use windlass::{Completion, Watcher};
use windlass_web::answers::Later;
use windlass_web::test::{self, ClientError, LoopWork, Simulation};
use windlass_web::{App, Error, Response, Status, windlass};

#[allow(dead_code, unreachable_pub)] // it has more than this needs
#[path = "../../../../examples/log/journal.rs"]
mod journal;

/// What the handlers and the log of a loop share.
struct Shared {
    notes: BTreeMap<u64, String>,
    last: u64,
    journal: Journal<(Later, u64, String)>,
    is_ready: bool,
}

/// The state of the application: its threads are those of the test.
type Store = Arc<Mutex<Shared>>;

fn app(store: Store) -> App<Store> {
    App::with(move |_loop| store.clone())
        .post("/notes", |store, q| {
            let text = q.text()?.to_owned();
            let mut shared = store.lock().expect("one thread");
            if !shared.is_ready {
                return Err(Error::new(Status::SERVICE_UNAVAILABLE).header("Retry-After", "1"));
            }
            shared.last += 1;
            let (id, (later, response)) = (shared.last, Response::later());
            shared.journal.append((later, id, text.clone()), format!("{id} {text}").as_bytes());
            Ok::<_, Error>(response)
        })
        .get("/notes/{id}", |store, q| {
            let shared = store.lock().expect("one thread");
            if !shared.is_ready {
                return Err(Error::from(Status::SERVICE_UNAVAILABLE));
            }
            Ok::<_, Error>(shared.notes.get(&q.parse("id")?).ok_or(Status::NOT_FOUND)?.clone())
        })
}

/// The log, on the loop of the server.
struct Log(Store);

impl LoopWork for Log {
    fn complete(&mut self, watcher: &mut Watcher, completion: Completion) {
        let shared = &mut *self.0.lock().expect("one thread");
        match shared.journal.handle(watcher, completion).expect("a disk without errors") {
            Step::Nothing => {}
            Step::Found(records) => {
                for record in records {
                    let text = String::from_utf8(record).expect("a note");
                    let (id, text) = text.split_once(' ').expect("its id");
                    let id = id.parse().expect("a number");
                    shared.last = shared.last.max(id);
                    shared.notes.insert(id, text.to_owned());
                }
            }
            Step::Ready(_) => shared.is_ready = true,
            Step::Acknowledged(notes) => {
                for (later, id, text) in notes {
                    shared.notes.insert(id, text);
                    let response = Response::text(id.to_string()).status(Status::CREATED);
                    // Its client may have gone.
                    let _ = later.respond(response);
                }
            }
        }
    }

    fn turn(&mut self, watcher: &mut Watcher) {
        let shared = &mut *self.0.lock().expect("one thread");
        if shared.is_ready && !shared.journal.is_busy() {
            shared.journal.commit(watcher).expect("a commit");
        }
    }
}

/// What some programs have met.
#[derive(Default)]
struct Met {
    kept: Cell<u64>,
    lost: Cell<u64>,
    crashes: Cell<u64>,
    faults: Cell<u64>,
}

fn add(cell: &Cell<u64>, count: u64) {
    cell.set(cell.get() + count);
}

/// One program: clients that post at once, crashes at any step, and then all that was acknowledged.
fn program(sim: &Simulation, care: Care, met: &Met) -> Result<(), ClientError> {
    let strength = sim.random_below(3) as f64 * 0.05;
    sim.faults(strength);
    let host = sim.serve_beside("log.test:80", move |watcher| {
        let journal = Journal::open(watcher, "notes.log", care).expect("a log");
        let (notes, last, is_ready) = (BTreeMap::new(), 0, false);
        let store = Arc::new(Mutex::new(Shared { notes, last, journal, is_ready }));
        (app(store.clone()), Log(store))
    });
    let mut kept: BTreeMap<u64, String> = BTreeMap::new();
    for round in 0..8 {
        // Only who meets a log that is ready gets an answer at all.
        sim.start(&host);
        sim.client().get("http://log.test/notes/0").retry()?;
        // Their notes share commits. A crash takes what is not on the disk.
        let texts: Vec<String> = (0..1 + sim.random_below(5))
            .map(|n| format!("{round}.{n} {}", "x".repeat(sim.random_below(600) as usize)))
            .collect();
        let mut clients: Vec<_> = texts.iter().map(|_| sim.connect("log.test:80")).collect();
        for (client, text) in clients.iter_mut().zip(&texts) {
            let head = "POST /notes HTTP/1.1\r\nHost: log.test\r\n";
            let bytes = format!("{head}Content-Length: {}\r\n\r\n{text}", text.len());
            client.set_reading(true);
            client.write(bytes.as_bytes());
        }
        // From a turn to some commits: a crash has to meet each step of one.
        sim.sleep(Duration::from_micros(sim.random_below(1 << sim.random_below(14)) + 1));
        if sim.random_below(2) == 0 {
            sim.crash(&host);
            add(&met.crashes, 1);
        }
        for (mut client, text) in clients.into_iter().zip(texts) {
            // A connection that breaks leaves the note unknown.
            if let Ok(response) = client.response("POST")
                && response.status() == Status::CREATED
            {
                let id = response.text().parse().expect("a number");
                let other = kept.insert(id, text);
                if other.is_some() {
                    add(&met.lost, 1);
                }
            }
        }
    }
    sim.crash(&host);
    let mut client = sim.client();
    for (id, text) in kept {
        let response = client.get(&format!("http://log.test/notes/{id}")).retry()?;
        let is_there = response.status() == Status::OK && response.text() == text;
        add(if is_there { &met.kept } else { &met.lost }, 1);
    }
    add(&met.faults, sim.network().injected().total());
    Ok(())
}

fn run(seeds: u64, care: Care) -> Met {
    let met = Met::default();
    test::seeds(0..seeds, |sim| {
        let before = met.lost.get();
        program(sim, care, &met)?;
        let lost = met.lost.get() - before;
        assert!(lost == 0 || !care.acknowledges_after_sync, "{lost} notes are lost");
        Ok(())
    });
    let Met { kept, lost, crashes, faults } = &met;
    println!("{kept:?} kept, {lost:?} lost, {crashes:?} crashes, {faults:?} faults");
    met
}

/// Whether so many seeds run that they meet everything.
fn meets_all() -> bool {
    let programs = std::env::var("WINDLASS_PROGRAMS").ok().and_then(|text| text.parse().ok());
    match std::env::var("WINDLASS_SEED") {
        Ok(_) => programs.unwrap_or(1_u64) >= 100,
        Err(_) => programs.unwrap_or(200) >= 100,
    }
}

#[test]
fn an_acknowledged_note_is_there_after_every_crash() {
    let met = run(200, Care::default());
    if meets_all() {
        assert!(met.kept.get() > 0 && met.crashes.get() > 0 && met.faults.get() > 0);
    }
}

/// The test above would find a log that is not careful.
#[test]
fn a_note_that_is_acknowledged_too_early_is_lost() {
    let met = run(40, Care { acknowledges_after_sync: false, ..Care::default() });
    assert!(met.lost.get() > 0 || !meets_all(), "the test finds nothing");
}
