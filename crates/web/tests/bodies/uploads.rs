//! Random uploads on a simulated disk: clients that stop, faults of the network and of the disk,
//! and hosts that lose their power. After each end a file is whole, and nothing else is left.
//!
//! `WINDLASS_SEED=5 WINDLASS_PROGRAMS=1` repeats a program, `WINDLASS_PROGRAMS=10000` runs more.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use windlass_web::upload::Save;
use windlass_web::windlass::sim::{Faults, Sim};
use windlass_web::windlass::{Source, Watcher};
use windlass_web::{App, Error, Limits, Response, Status};

use crate::bench::Bench;

/// The most bytes of an upload.
const MOST: u64 = 300_000;

fn app() -> App {
    let limits = Limits::new().body_rate(500, Duration::from_secs(3));
    let app = App::new().limits(limits).grace(Duration::from_millis(200)).put("/{name}", |_, q| {
        let path = format!("files/{}", q.param("name"));
        let sync = !q.param("name").starts_with("loose");
        let save = Save::new().limit(MOST).sync(sync).replace(q.query("keep").is_none());
        q.save(path, save.time(Duration::from_secs(5)), |_, saved| {
            let text = format!("{} bytes.", saved?.bytes);
            Ok::<_, Error>(Response::text(text).status(Status::CREATED))
        })
    });
    app.at_head()
}

/// How a client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Whole,
    Resets,
    Finishes,
    Stalls,
}

struct Upload {
    client: Source,
    name: &'static str,
    request: Vec<u8>,
    body: Vec<u8>,
    sent: usize,
    /// Where it stops.
    stop: usize,
    ends: Ends,
    /// The steps at which it began, and at which its 201 came.
    begun: u64,
    saved: Option<u64>,
    is_over: bool,
}

impl Upload {
    fn new(rng: &mut Rng, client: Source, number: u64, step: u64) -> Upload {
        let name = ["a", "b", "c", "loose"][rng.usize(..4)];
        let len = match rng.u8(..6) {
            0 => rng.usize(..10),
            1..4 => rng.usize(..20_000),
            4 => rng.usize(..MOST as usize),
            _ => MOST as usize + rng.usize(1..1000),
        };
        let mut body = format!("{number}:").into_bytes();
        body.resize_with(body.len() + len, || rng.u8(..));
        let keep = if rng.u8(..5) == 0 { "?keep" } else { "" };
        let mut request = format!("PUT /{name}{keep} HTTP/1.1\r\nHost: h\r\n").into_bytes();
        if rng.bool() {
            request.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
            request.extend_from_slice(&body);
        } else {
            request.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(rng.usize(1000..100_000)) {
                request.extend(format!("{:x}\r\n", chunk.len()).bytes());
                request.extend_from_slice(chunk);
                request.extend_from_slice(b"\r\n");
            }
            request.extend_from_slice(b"0\r\n\r\n");
        }
        let ends = match rng.u8(..8) {
            0 => Ends::Resets,
            1 => Ends::Finishes,
            2 => Ends::Stalls,
            _ => Ends::Whole,
        };
        let stop = if ends == Ends::Whole { request.len() } else { rng.usize(..request.len()) };
        let (sent, begun, saved, is_over) = (0, step, None, false);
        Upload { client, name, request, body, sent, stop, ends, begun, saved, is_over }
    }

    /// Whether all of it was sent, so that it can be there.
    fn is_sent(&self) -> bool {
        self.sent == self.request.len()
    }

    fn step(&mut self, bench: &mut Bench, rng: &mut Rng, step: u64, met: &mut Met) {
        if self.is_over {
            return;
        }
        let heard = bench.heard(self.client);
        if let Some(status) = heard.get(9..12).filter(|_| heard.contains("\r\n\r\n")) {
            if status == "201" && heard.ends_with("bytes.") {
                self.saved = Some(step);
            }
            if status != "201" || self.saved.is_some() {
                *met.entry(status.to_owned()).or_default() += 1;
                self.is_over = true;
                return bench.reset(self.client);
            }
        }
        if bench.is_over(self.client) {
            *met.entry("without an answer".into()).or_default() += 1;
            self.is_over = true;
            return;
        }
        if self.sent < self.stop {
            let most = [100, 5000, 80_000][rng.usize(..3)];
            let end = (self.sent + rng.usize(1..=most)).min(self.stop);
            bench.say(self.client, self.request[self.sent..end].to_vec());
            self.sent = end;
            return;
        }
        match self.ends {
            Ends::Resets => {
                bench.reset(self.client);
                self.is_over = true;
            }
            Ends::Finishes if rng.u8(..3) == 0 => bench.finish(self.client),
            _ => {}
        }
    }
}

/// How often each thing has happened.
type Met = BTreeMap<String, u64>;

fn temporaries(sim: &Sim) -> usize {
    let name = |number: &u64| sim.read_file(format!("files/.upload-{number:016x}")).is_some();
    (1..300).filter(name).count()
}

/// What a file is, if it is an upload.
fn check(uploads: &[Upload], name: &str, content: Option<&[u8]>, is_after_crash: bool) {
    let Some(content) = content else {
        let lost = uploads.iter().any(|one| one.name == name && one.saved.is_some());
        assert!(!lost, "{name} was saved, and is not there");
        return;
    };
    if content == b"old" {
        let lost = uploads.iter().any(|one| one.name == name && one.saved.is_some());
        assert!(!lost, "{name} was saved, and is the old one (a crash: {is_after_crash})");
        return;
    }
    let found = uploads.iter().find(|one| one.name == name && one.body == content);
    let found = found.unwrap_or_else(|| panic!("{name} is no upload: {} bytes", content.len()));
    assert!(found.is_sent(), "an upload that has not come is there");
    // One that was answered before a later one began has been replaced.
    let end = found.saved.unwrap_or(u64::MAX);
    let newer =
        uploads.iter().any(|one| one.name == name && one.saved.is_some() && one.begun > end);
    assert!(!newer, "{name} is an older upload than the last one that was saved");
}

fn run(seed: u64, met: &mut Met) {
    let mut rng = Rng::with_seed(seed);
    let rate = |rng: &mut Rng| if rng.bool() { 0.0 } else { 0.05 };
    let faults = Faults {
        reset: rate(&mut rng) / 20.0,
        file_error: rate(&mut rng),
        sync_error: rate(&mut rng),
        disk_full: rate(&mut rng),
        ..Faults::transient(rate(&mut rng))
    };
    let sim = Sim::with_faults(seed, faults);
    for name in ["a", "b", "loose"] {
        sim.write_file(format!("files/{name}"), "old");
    }
    let mut uploads: Vec<Upload> = Vec::new();
    let (mut number, mut step) = (0, 0);
    for _ in 0..rng.usize(1..4) {
        let most = [1_000, 1_000_000, 100_000_000, 3_000_000_000][rng.usize(..4)];
        sim.set_job_time(Duration::from_nanos(most));
        sim.set_file_time(Duration::from_nanos(most));
        let before = temporaries(&sim);
        let mut bench = Bench::on(Watcher::simulated(&sim), None, app());
        let (first, count) = (uploads.len(), rng.usize(1..7));
        let crash_at = if rng.bool() { rng.u64(1..400) } else { u64::MAX };
        let end = step + 2000;
        let mut is_crashed = false;
        let life = step;
        while step < end {
            step += 1;
            if uploads.len() < first + count && rng.u8(..10) == 0 {
                number += 1;
                let client = bench.connect();
                uploads.push(Upload::new(&mut rng, client, number, step));
            }
            for upload in &mut uploads[first..] {
                upload.step(&mut bench, &mut rng, step, met);
            }
            bench.turn(Duration::from_millis(rng.u64(1..20)));
            if step - life == crash_at {
                is_crashed = true;
                break;
            }
            let is_done = uploads.len() == first + count;
            if is_done && uploads[first..].iter().all(|one| one.is_over || one.sent == one.stop) {
                break;
            }
        }
        if is_crashed {
            let crash = sim.crash();
            *met.entry("crashes".into()).or_default() += 1;
            *met.entry("names lost".into()).or_default() += crash.lost_names;
            drop(bench);
            // What no sync has covered may be anything.
            uploads.retain(|one| one.name != "loose");
            sim.write_file("files/loose", "old");
        } else {
            if rng.bool() {
                // What still waits has its answer, or its limit.
                bench.run_for(Duration::from_secs(30));
                for upload in &mut uploads[first..] {
                    upload.step(&mut bench, &mut rng, step, met);
                }
            } else {
                *met.entry("shutdowns".into()).or_default() += 1;
            }
            bench.server.stop(&mut bench.watcher);
            bench.until("the server has ended", |b| b.server.is_over());
            let unfinished = bench.server.report().unfinished_operations;
            let left = temporaries(&sim).saturating_sub(before);
            // The shutdown gives up what takes longer than `Limits::close`.
            assert!(left <= unfinished, "{left} temporary files are left");
            assert!(unfinished == 0 || most > 100_000_000, "{unfinished} operations are left");
        }
        for name in ["a", "b", "c", "loose"] {
            let content = sim.read_file(format!("files/{name}"));
            check(&uploads, name, content.as_deref(), is_crashed);
        }
        for (name, times) in sim.injected().named() {
            *met.entry(name.into()).or_default() += times;
        }
    }
}

#[test]
fn uploads_are_whole_whatever_happens() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("WINDLASS_PROGRAMS").unwrap_or(200);
    let first = number("WINDLASS_SEED").unwrap_or(1);
    let mut met = Met::new();
    for seed in first..first + count {
        println!("WINDLASS_SEED={seed} WINDLASS_PROGRAMS=1");
        run(seed, &mut met);
    }
    println!("{count} programs: {met:?}");
    if count < 200 {
        return; // a failure is repeated
    }
    let kinds = ["201", "409", "413", "500", "507", "504", "408", "crashes", "shutdowns"];
    for kind in kinds.iter().chain(&["names lost", "file_error", "sync_error", "disk_full"]) {
        assert!(met.get(*kind).is_some_and(|times| *times > 0), "{kind} never happens: {met:?}");
    }
}
