//! Bodies that are saved to files.

use std::path::PathBuf;
use std::time::Duration;

use windlass_web::upload::{Save, file_name};
use windlass_web::windlass::sim::{Faults, Sim};
use windlass_web::windlass::{Source, Watcher};
use windlass_web::{App, Error, Limits, Response, Status, serve};

use crate::bench::{Bench, Harness};

crate::every_driver! {
    a_body_is_saved
    a_file_is_whole_or_as_it_was
    a_file_that_is_to_stay_stays
    errors_of_the_disk_have_a_status
    a_client_goes_on_when_the_file_is_open
    what_follows_a_save_may_panic
    a_shutdown_leaves_no_part
    a_file_system_that_is_full_is_a_507
}

/// Where files are.
pub enum Disk {
    System(PathBuf),
    Simulated(Box<Sim>),
}

impl Disk {
    /// A directory, or a simulated disk, and the watcher on it.
    pub fn bench<S: 'static, T: Harness>(app: impl FnOnce(PathBuf) -> App<S>) -> (Disk, Bench<S>) {
        if let Some(sim) = T::sim() {
            let bench = Bench::on(Watcher::simulated(&sim), None, app("files".into()));
            sim.write_file("files/old", "old");
            return (Disk::Simulated(sim.into()), bench);
        }
        let name = format!("windlass-save-{}-{:x}", std::process::id(), fastrand::u64(..));
        let root = std::env::temp_dir().join(name);
        std::fs::create_dir(&root).expect("a directory");
        std::fs::write(root.join("old"), "old").expect("a file");
        (Disk::System(root.clone()), Bench::new::<T>(app(root)))
    }

    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        match self {
            Disk::System(root) => std::fs::read(root.join(name)).ok(),
            Disk::Simulated(sim) => sim.read_file(format!("files/{name}")),
        }
    }

    /// How many temporary files there are.
    pub fn temporaries(&self) -> usize {
        match self {
            Disk::System(root) => {
                let entries = std::fs::read_dir(root).expect("a directory");
                let names = entries.map(|entry| entry.expect("an entry").file_name());
                names.filter(|name| name.to_string_lossy().starts_with(".upload-")).count()
            }
            Disk::Simulated(_) => {
                let name = |number: &u64| self.read(&format!(".upload-{number:016x}")).is_some();
                (1..200).filter(name).count()
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Disk::System(root) = self {
            let _ = std::fs::remove_dir_all(root);
        }
    }
}

fn app(root: PathBuf) -> App {
    let path = move |name: &str| Ok::<_, Error>(root.join(file_name(name)?));
    let (keep, low, panics) = (path.clone(), path.clone(), path.clone());
    fn answer(saved: Result<windlass_web::upload::Saved, Error>) -> Result<Response, Error> {
        let text = format!("{} bytes.", saved?.bytes);
        Ok(Response::text(text).status(Status::CREATED))
    }
    App::new()
        .put("/{name}", move |_, q| {
            let save = Save::new().limit(8 << 20).sync(q.query("sync").is_some());
            Ok::<_, Error>(q.save(path(q.param("name"))?, save, |_, saved| answer(saved)))
        })
        .at_head()
        .put("/keep/{name}", move |_, q| {
            let save = Save::new().replace(false).mode(0o600).sync(true);
            Ok::<_, Error>(q.save(keep(q.param("name"))?, save, |_, saved| answer(saved)))
        })
        .at_head()
        .put("/low/{name}", move |_, q| {
            let (path, save) = (low(q.param("name"))?, Save::new().limit(1000));
            Ok::<_, Error>(q.save(path, save, |_, saved| answer(saved)))
        })
        .at_head()
        .put("/panic/{name}", move |_, q| {
            let path = panics(q.param("name"))?;
            Ok::<_, Error>(q.save(path, Save::new(), |_, _| -> Response { panic!("a test") }))
        })
        .at_head()
        .get("/", |_, _| "next.")
}

const NEXT: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn body(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 3) as u8 ^ seed).collect()
}

/// A request: with its length, or in chunks of this size.
fn request(path: &str, body: &[u8], chunk: Option<usize>) -> Vec<u8> {
    let head = format!("PUT {path} HTTP/1.1\r\nHost: h\r\n");
    let Some(size) = chunk else {
        let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
        return [head.as_bytes(), body].concat();
    };
    let mut request = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for chunk in body.chunks(size) {
        request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    request
}

fn a_body_is_saved<T: Harness>() {
    let (disk, mut b) = Disk::bench::<_, T>(app);
    let client = b.connect();
    for (number, len) in [0, 1, 5000, 131_072, 131_073, 700_000].into_iter().enumerate() {
        for (chunk, query) in [(None, ""), (Some(10_000), "?sync"), (None, "?sync")] {
            let body = body(len, number as u8);
            let mut request = request(&format!("/a{query}"), &body, chunk);
            request.extend_from_slice(NEXT.as_bytes());
            let heard = b.ask(client, request, "next.");
            let expected = format!("\r\n\r\n{len} bytes.HTTP/1.1 200");
            assert!(heard.starts_with("HTTP/1.1 201") && heard.contains(&expected), "{heard}");
            assert!(disk.read("a") == Some(body), "{len} bytes");
            assert_eq!(disk.temporaries(), 0);
        }
    }
}

fn a_file_is_whole_or_as_it_was<T: Harness>() {
    let (disk, mut b) = Disk::bench::<_, T>(app);
    let long = body(300_000, 1);
    let whole = request("/old", &long, None);
    let answered = |b: &mut Bench, client: Source, status: &str| {
        let heard = b.answer(client);
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{heard}");
    };
    // The client resets, or ends its side, at some byte of the body.
    for (number, cut) in [60, 100, 4000, 140_000, 299_999].into_iter().enumerate() {
        let client = b.connect();
        b.say(client, whole[..cut].to_vec());
        b.until("the bytes are sent", |b| b.said(client) == cut);
        b.run_for(Duration::from_millis(if T::VIRTUAL { 5 } else { 1 }));
        if number % 2 == 0 {
            b.reset(client);
        } else {
            b.finish(client);
            answered(&mut b, client, "400");
        }
        b.until("no part is left", |_| disk.temporaries() == 0);
    }
    // The body is too long, or malformed.
    let chunked = request("/low/old", &body(1001, 2), Some(300));
    let short = request("/low/old", &body(500, 2), Some(300));
    for (request, status) in [
        (request("/low/old", &body(1001, 2), None), "413"),
        (chunked.clone(), "413"),
        ([&short[..short.len() - 5], b"x\r\n"].concat(), "400"),
    ] {
        let client = b.connect();
        b.say(client, request);
        answered(&mut b, client, status);
        b.until("no part is left", |_| disk.temporaries() == 0);
    }
    assert_eq!(disk.read("old").as_deref(), Some(&b"old"[..]));
    let client = b.connect();
    b.ask(client, whole, "300000 bytes.");
    assert!(disk.read("old") == Some(long));
}

fn a_file_that_is_to_stay_stays<T: Harness>() {
    let (disk, mut b) = Disk::bench::<_, T>(app);
    let client = b.connect();
    let new = body(200_000, 3);
    let heard = b.ask(client, [request("/keep/old", &new, None), NEXT.into()].concat(), "next.");
    assert!(heard.starts_with("HTTP/1.1 409 "), "{heard}");
    assert_eq!(disk.read("old").as_deref(), Some(&b"old"[..]));
    let heard = b.ask(client, request("/keep/new", &new, Some(9999)), "bytes.");
    assert!(heard.starts_with("HTTP/1.1 201 "), "{heard}");
    assert!(disk.read("new") == Some(new));
    assert_eq!(disk.temporaries(), 0);
    #[cfg(unix)]
    if let Disk::System(root) = &disk {
        use std::os::unix::fs::PermissionsExt;
        let metadata = std::fs::metadata(root.join("new")).expect("it is there");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
}

fn errors_of_the_disk_have_a_status<T: Harness>() {
    let (disk, mut b) = Disk::bench::<_, T>(app);
    let Disk::System(root) = &disk else { return }; // it has no directories
    std::fs::create_dir(root.join("dir")).expect("a directory");
    let client = b.connect();
    let ask = |b: &mut Bench, name: &str, status: &str| {
        let request = request(&format!("/{name}"), &body(5000, 1), None);
        let heard = b.ask(client, [request, NEXT.into()].concat(), "next.");
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {heard}");
    };
    ask(&mut b, "dir", "409");
    ask(&mut b, "..%2Fold", "400");
    assert_eq!(disk.temporaries(), 0);
    std::fs::remove_dir_all(root).expect("it is there");
    ask(&mut b, "a", "500");
}

fn a_client_goes_on_when_the_file_is_open<T: Harness>() {
    let (disk, mut b) = Disk::bench::<_, T>(app);
    let head = |path: &str, len: usize| {
        let fields = format!("Expect: 100-continue\r\nContent-Length: {len}");
        format!("PUT {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n")
    };
    let client = b.connect();
    let heard = b.ask(client, head("/a", 5), "\r\n\r\n");
    assert_eq!(heard, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(disk.temporaries(), 1);
    b.ask(client, "12345", "5 bytes.");
    assert_eq!(disk.read("a").as_deref(), Some(&b"12345"[..]));
    let client = b.connect();
    let heard = b.ask_last(client, head("/low/a", 1001));
    assert!(heard.starts_with("HTTP/1.1 413 "), "{heard}");
    if let Disk::System(root) = &disk {
        std::fs::remove_dir_all(root).expect("it is there");
        let client = b.connect();
        let heard = b.ask_last(client, head("/a", 5));
        assert!(heard.starts_with("HTTP/1.1 500 "), "{heard}");
    }
}

fn what_follows_a_save_may_panic<T: Harness>() {
    let (disk, mut b) = Disk::bench::<_, T>(app);
    let client = b.connect();
    let heard = b.ask_last(client, request("/panic/a", b"12345", None));
    assert!(heard.starts_with("HTTP/1.1 500 "), "{heard}");
    assert_eq!(disk.temporaries(), 0);
    assert_eq!(disk.read("a").as_deref(), Some(&b"12345"[..]), "it was saved before");
}

fn a_shutdown_leaves_no_part<T: Harness>() {
    let (disk, mut b) = Disk::bench::<_, T>(|root| app(root).grace(Duration::from_millis(50)));
    let whole = request("/old", &body(300_000, 1), None);
    for cut in [100, 140_000, 299_000] {
        let client = b.connect();
        b.say(client, whole[..cut].to_vec());
    }
    b.until("the files are open", |_| disk.temporaries() == 3);
    b.server.stop(&mut b.watcher);
    b.until("the server has ended", |b| b.server.is_over());
    assert_eq!(disk.temporaries(), 0);
    assert_eq!(disk.read("old").as_deref(), Some(&b"old"[..]));
    assert_eq!(b.server.report().unfinished_operations, 0);
}

/// A file system in memory, which has room for so much.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &std::path::Path, size: &str) -> Option<Mounted> {
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", size, "windlass-save"])
            .arg(at)
            .stderr(std::process::Stdio::null())
            .status();
        mount.is_ok_and(|status| status.success()).then(|| Mounted(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

fn a_file_system_that_is_full_is_a_507<T: Harness>() {
    if T::VIRTUAL {
        return; // `a_full_disk_is_a_507`
    }
    let root = std::env::temp_dir().join(format!("windlass-full-{:x}", fastrand::u64(..)));
    std::fs::create_dir(&root).expect("a directory");
    let Some(mounted) = Mounted::new(&root, "size=1m") else {
        eprintln!("SKIPPED: no file system can be mounted here: a full one was not tried");
        let _ = std::fs::remove_dir(&root);
        return;
    };
    std::fs::write(root.join("old"), "old").expect("a file");
    let disk = Disk::System(root.clone());
    let mut b = Bench::<()>::new::<T>(app(root));
    for sync in ["", "?sync"] {
        let client = b.connect();
        b.say(client, request(&format!("/old{sync}"), &body(3_000_000, 1), None));
        let heard = b.answer(client);
        assert!(heard.starts_with("HTTP/1.1 507 "), "{heard}");
        assert_eq!((disk.temporaries(), disk.read("old").as_deref()), (0, Some(&b"old"[..])));
        b.reset(client);
    }
    // There is room again for what fits.
    let client = b.connect();
    b.ask(client, request("/old", &body(500_000, 1), None), "500000 bytes.");
    drop(b);
    drop(mounted);
}

/// A disk that takes so long for each of its jobs.
fn slow(span: Duration, app: App) -> (Disk, Bench) {
    let sim = Sim::new(1);
    sim.write_file("files/old", "old");
    sim.set_job_time(span);
    sim.set_file_time(span);
    (Disk::Simulated(sim.clone().into()), Bench::on(Watcher::simulated(&sim), None, app))
}

#[test]
fn a_slow_disk_holds_a_bounded_part_of_a_body() {
    let (disk, mut b) = slow(Duration::from_secs(4), app("files".into()));
    let client = b.connect();
    let len = 6 << 20;
    let whole = request("/a", &body(len, 5), None);
    for piece in whole.chunks(16 << 10) {
        b.say(client, piece.to_vec());
    }
    let mut most = 0;
    b.until("it is saved", |b| {
        let written = disk.read(&format!(".upload-{:016x}", 1)).map_or(0, |file| file.len());
        if written > 0 {
            most = most.max(b.said(client) - written);
        }
        b.heard(client).ends_with("bytes.")
    });
    // Two blocks, what was read when the connection paused, and what the network holds.
    assert!((256 << 10..1 << 20).contains(&most), "{most} bytes");
    assert!(disk.read("a") == Some(body(len, 5)));
}

#[test]
fn a_slow_disk_is_not_the_clients_fault() {
    // Longer than the client may fall behind its rate.
    let limits = Limits::new().body_rate(500, Duration::from_secs(1));
    let (disk, mut b) = slow(Duration::from_secs(5), app("files".into()).limits(limits));
    let client = b.connect();
    let start = b.now();
    b.ask(client, request("/a", &body(600_000, 5), None), "bytes.");
    assert!(b.now() - start > Duration::from_secs(10));
    assert_eq!(disk.temporaries(), 0);
    // A client that stops is too slow, all the same.
    let client = b.connect();
    b.say(client, request("/old", &body(300_000, 5), None)[..200_000].to_vec());
    let heard = b.end(client);
    assert!(heard.starts_with("HTTP/1.1 408 "), "{heard}");
    b.until("no part is left", |_| disk.temporaries() == 0);
}

#[test]
fn a_disk_that_takes_too_long_is_a_504() {
    let app = || {
        let app = App::new().put("/{name}", |_, q| {
            let (path, save) = (format!("files/{}", q.param("name")), Save::new());
            let save = save.time(Duration::from_secs(10)).limit(1 << 20);
            q.save(path, save, |_, _| "never")
        });
        app.at_head()
    };
    for (seed, len) in [(1, 10), (2, 200_000), (3, 500_000)] {
        let sim = Sim::new(seed);
        sim.write_file("files/old", "old");
        sim.set_job_time(Duration::from_secs(1000));
        let mut b = Bench::on(Watcher::simulated(&sim), None, app());
        let client = b.connect();
        b.say(client, request("/old", &body(len, 1), None));
        let heard = b.end(client);
        assert!(heard.starts_with("HTTP/1.1 504 "), "{heard}");
        let disk = Disk::Simulated(sim.into());
        b.run_for(Duration::from_secs(100_000));
        assert_eq!(disk.temporaries(), 0);
        assert_eq!(disk.read("old").as_deref(), Some(&b"old"[..]));
    }
}

#[test]
fn a_full_disk_is_a_507() {
    let sim = Sim::new(4);
    sim.write_file("files/old", "old");
    let mut b = Bench::on(Watcher::simulated(&sim), None, app("files".into()));
    sim.set_faults(Faults { disk_full: 1.0, ..Faults::none() });
    let disk = Disk::Simulated(sim.into());
    for len in [10, 200_000, 500_000] {
        let client = b.connect();
        b.say(client, request("/old", &body(len, 1), None));
        let heard = b.answer(client);
        assert!(heard.starts_with("HTTP/1.1 507 "), "{heard}");
        assert_eq!(disk.temporaries(), 0);
        assert_eq!(disk.read("old").as_deref(), Some(&b"old"[..]));
    }
}

/// More uploads than there is memory for their blocks.
#[test]
fn uploads_share_the_memory() {
    let sim = Sim::new(9);
    sim.write_file("files/old", "old");
    let limits = serve::Limits::new().memory(8 << 20);
    let app = app("files".into()).serve_limits(limits);
    let mut b = Bench::on(Watcher::simulated(&sim), None, app);
    let disk = Disk::Simulated(sim.into());
    let all: Vec<_> = (0..40_u8).map(|number| (number, b.connect())).collect();
    let requests: Vec<_> =
        all.iter().map(|(n, _)| request(&format!("/{n}"), &body(600_000, *n), None)).collect();
    for at in (0..requests[0].len()).step_by(10_000) {
        for ((_, client), request) in all.iter().zip(&requests) {
            b.say(*client, request[at..request.len().min(at + 10_000)].to_vec());
        }
        b.run_for(Duration::from_micros(100));
    }
    for (number, client) in all {
        b.until("it is saved", |b| b.heard(client).ends_with("bytes."));
        assert!(disk.read(&number.to_string()) == Some(body(600_000, number)));
    }
}
