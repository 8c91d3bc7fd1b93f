//! Random requests for files that are replaced meanwhile: each response is a version that the file
//! has had, whole or the part that was asked for, and not older than the cache may keep it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use windlass_web::App;
use windlass_web::files::FilesOptions;
use windlass_web::test::{self, Simulation, TestResponse};
use windlass_web::windlass::fs::OpenOptions;
use windlass_web::windlass::sim::Faults;
use windlass_web::windlass::{Completions, Done, Op, Watcher};

const PATHS: [&str; 4] = ["a.html", "b.bin", "sub/c.txt", "sub/index.html"];

/// The versions of a file, and from when on each was there.
type Versions = BTreeMap<&'static str, Vec<(Duration, Vec<u8>)>>;

struct Scene<'a> {
    sim: &'a Simulation,
    versions: Versions,
    /// For how long the server need not look again.
    fresh: Duration,
    /// Tags that were told, with their bytes.
    tags: RefCell<BTreeMap<String, Vec<u8>>>,
}

impl Scene<'_> {
    fn draw(&self, below: u64) -> u64 {
        self.sim.random_below(below)
    }

    /// Replaces a file, as programs should: by a new one, which gets its name. The name is on the
    /// disk.
    fn replace(&mut self, path: &'static str) {
        let bytes = self.bytes();
        let disk = self.sim.network().at([10, 0, 0, 2]);
        disk.write_file("www/new", &bytes);
        let name = format!("www/{path}");
        let mut watcher = Watcher::simulated(&disk);
        run(&mut watcher, Op::rename("www/new", &name));
        let directory = name.rsplit_once('/').expect("a directory").0;
        let Done::Opened(directory) =
            run(&mut watcher, Op::open(directory, OpenOptions::new().read(true)))
        else {
            panic!("no directory")
        };
        let directory = watcher.attach(directory).expect("room");
        run(&mut watcher, Op::sync_all(directory));
        self.versions.entry(path).or_default().push((self.sim.elapsed(), bytes));
    }

    /// Writes a file in its place.
    fn write(&mut self, path: &'static str) {
        let bytes = self.bytes();
        self.sim.network().at([10, 0, 0, 2]).write_file(format!("www/{path}"), &bytes);
        self.versions.entry(path).or_default().push((self.sim.elapsed(), bytes));
    }

    fn bytes(&self) -> Vec<u8> {
        let most = [10, 5000, 40_000, 200_000][self.draw(4) as usize];
        let (len, number) = (self.draw(most), self.draw(1 << 32) as u32);
        (0..len as u32).map(|at| (at ^ number).wrapping_mul(31) as u8).collect()
    }

    /// The versions that a response to a request of this time may have.
    fn allowed(&self, path: &str, asked: Duration) -> Vec<&[u8]> {
        let all = self.versions.get(path).map_or(&[][..], |all| all);
        let oldest = asked.saturating_sub(self.fresh);
        let ends = all.iter().skip(1).map(|(start, _)| *start).chain([Duration::MAX]);
        let lives = all.iter().zip(ends).filter(|(_, end)| *end >= oldest);
        lives.map(|((_, bytes), _)| &bytes[..]).collect()
    }

    fn check(&self, path: &str, asked: Duration, range: Option<(u64, u64)>, reply: &TestResponse) {
        let allowed = self.allowed(path, asked);
        let (code, body) = (reply.status().code(), reply.body());
        let tag = reply.header("ETag").map(str::to_owned);
        match (code, range) {
            (200, _) => {
                assert!(allowed.contains(&body), "{path}: {} bytes of no version", body.len());
                let mut tags = self.tags.borrow_mut();
                let known = tags.entry(tag.expect("a tag")).or_insert_with(|| body.to_vec());
                assert_eq!(known, body, "one tag for two versions");
            }
            (206, Some((first, last))) => {
                let part = |bytes: &&&[u8]| {
                    let end = (last + 1).min(bytes.len() as u64);
                    first < end && bytes[first as usize..end as usize] == *body
                };
                let found = allowed.iter().find(part).expect("a part of a version");
                let end = (last + 1).min(found.len() as u64) - 1;
                let is_told = |bytes: &&[u8]| {
                    let told = format!("bytes {first}-{end}/{}", bytes.len());
                    reply.header("Content-Range") == Some(&told)
                };
                assert!(allowed.iter().any(is_told), "{:?}", reply.header("Content-Range"));
            }
            (304, _) => {
                let tags = self.tags.borrow();
                let bytes = tags.get(&tag.expect("a tag")).expect("it was told");
                assert!(allowed.contains(&&bytes[..]), "{path}: it is modified");
            }
            (416, Some((first, _))) => {
                assert!(allowed.iter().any(|bytes| first >= bytes.len() as u64), "{path}: {first}");
            }
            // A disk that fails, and a server without descriptors.
            (500 | 503, _) => {}
            other => panic!("{path}: {other:?}"),
        }
    }
}

/// Does an operation on the disk of a server. It fails again and again until it does not.
fn run(watcher: &mut Watcher, op: Op) -> Done {
    watcher.submit(op).expect("it is taken");
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done).expect("a wait");
        if let Some(completion) = done.drain(..).next() {
            return completion.result.expect("it is done");
        }
    }
}

#[test]
fn files_are_what_they_were() {
    let seen = RefCell::new(BTreeMap::<u16, u32>::new());
    test::seeds(0..200, |sim| {
        if sim.random_below(2) == 0 {
            sim.faults(0.05);
            let faults = sim.network();
            faults.set_faults(Faults { file_error: 0.05, ..Faults::transient(0.05) });
        }
        let fresh = Duration::from_millis([0, 20, 1000][sim.random_below(3) as usize]);
        let count = [0, 1, 2, 100][sim.random_below(4) as usize];
        let small = [0, 100, 16 << 10][sim.random_below(3) as usize];
        let is_direct = sim.random_below(3) == 0;
        let options = FilesOptions::new()
            .cache(count, fresh)
            .small(small, [0, 8000, 1 << 20][sim.random_below(3) as usize])
            .precompressed(sim.random_below(4) == 0)
            .direct(is_direct);
        let host =
            sim.serve("files.test:80", move || App::new().files("/f", "www", options.clone()));
        let (versions, tags) = (Versions::new(), RefCell::default());
        let mut scene = Scene { sim, versions, fresh, tags };
        PATHS.iter().for_each(|path| scene.write(path));
        let mut clients = [sim.client(), sim.client()];
        for _ in 0..30 {
            let path = PATHS[scene.draw(4) as usize];
            match scene.draw(12) {
                0 | 1 => scene.replace(path),
                2 if scene.draw(4) == 0 => {
                    sim.crash(&host);
                    while !sim.is_running(&host) {
                        sim.sleep(Duration::from_millis(100));
                    }
                }
                2 => sim.sleep(Duration::from_millis(scene.draw(1500))),
                _ => {
                    let client = &mut clients[scene.draw(2) as usize];
                    let url = match path {
                        "sub/index.html" => "http://files.test/f/sub/".to_owned(),
                        path => format!("http://files.test/f/{path}"),
                    };
                    let asked = sim.elapsed();
                    let mut call = client.get(&url);
                    let range = (scene.draw(3) == 0).then(|| {
                        let first = scene.draw(50_000);
                        (first, first + scene.draw(10_000))
                    });
                    if let Some((first, last)) = range {
                        call = call.header("Range", &format!("bytes={first}-{last}"));
                    }
                    let told = scene.tags.borrow().keys().next_back().cloned();
                    if let Some(tag) = told.filter(|_| scene.draw(3) == 0) {
                        call = call.header("If-None-Match", &tag);
                    }
                    if let Ok(reply) = call.send() {
                        scene.check(path, asked, range, &reply);
                        *seen.borrow_mut().entry(reply.status().code()).or_default() += 1;
                    }
                }
            }
        }
        Ok(())
    });
    let seen = seen.into_inner();
    let is_one_seed = std::env::var_os("WINDLASS_SEED").is_some();
    for code in [200, 206, 304, 416, 500] {
        assert!(is_one_seed || seen.contains_key(&code), "no {code} has happened: {seen:?}");
    }
}

/// Files that are replaced while they are sent, in the middle of pipelines: a response has the
/// length that it has said, or its connection breaks.
#[test]
fn a_length_is_never_wrong() {
    test::seeds(0..100, |sim| {
        let is_direct = sim.random_below(2) == 0;
        let options = FilesOptions::new().direct(is_direct).cache(10, Duration::from_millis(5));
        sim.serve("files.test:80", move || {
            App::new().files("/f", "www", options.clone()).get("/", |_, _| "between")
        });
        let (versions, tags, fresh) = (Versions::new(), RefCell::default(), Duration::ZERO);
        let mut scene = Scene { sim, versions, fresh, tags };
        PATHS.iter().for_each(|path| scene.write(path));
        let mut connection = sim.connect("files.test:80");
        let targets: Vec<String> = (0..1 + scene.draw(8))
            .map(|_| match scene.draw(4) {
                0 => "/".to_owned(),
                at => format!("/f/{}", PATHS[at as usize - 1]),
            })
            .collect();
        let request = |target: &String| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let all: String = targets.iter().map(request).collect();
        connection.write(all.as_bytes());
        for target in &targets {
            sim.sleep(Duration::from_micros(scene.draw(2000)));
            let path = PATHS[scene.draw(4) as usize];
            scene.write(path);
            let Ok(reply) = connection.response("GET") else { break };
            // One becomes shorter before anything of it is sent.
            let code = reply.status().code();
            assert!(code == 200 || code == 503 && is_direct, "{target}: {code}");
            if target == "/" {
                assert_eq!(reply.text(), "between");
            }
        }
        Ok(())
    });
}
