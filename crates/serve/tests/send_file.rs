//! Files among the writes of a connection, in every mode on every driver of the system. A
//! simulation has no files of the system, and refuses them.
//!
//! Of the promises on the page of the crate: P2 and P3.
#![allow(missing_docs)] // a test binary has no users
#![cfg(unix)]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task;
use std::thread::{self, Thread};
use std::time::Duration;

use common::Harness;
use common::engine::Loop;
use common::refusing::{Orders, Refusing};
use common::scene::{News, Scene, Setting, pattern};
use common::turns::Turns;
use windlass::driver::Deadline;
use windlass::driver::OpCode;
use windlass::{Address, Buf, Op, Source, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Id, Limits, Phase, Refusal, Refused,
    Stream,
};

systems_modes! {
    files_are_whole_between_writes
    a_slow_reader_gets_all_and_a_file_takes_little_memory
    a_peer_that_goes_away_frees_the_file
    a_close_waits_for_the_file
    a_close_takes_as_long_as_the_file_moves
    a_file_that_moves_does_not_stall
    a_half_close_waits_for_the_file
    an_abort_ends_the_file
    a_peer_that_does_not_read_ends_in_time
    a_file_that_shrinks_ends_the_connection
    a_file_that_shrinks_before_a_close_is_no_good_end
    a_file_without_bytes_is_told_in_its_place
    a_file_that_is_not_for_reading_ends_the_connection
    a_file_that_is_refused_comes_back
    too_many_files_stop_the_reads
    a_shutdown_sends_the_file
    a_connection_moves_behind_its_file
    a_stream_writes_behind_the_file
    a_session_sends_no_file
}

secure_modes! {
    files_are_whole_between_writes
    a_slow_reader_gets_all_and_a_file_takes_little_memory
    a_peer_that_goes_away_frees_the_file
    a_close_waits_for_the_file
    a_close_takes_as_long_as_the_file_moves
    a_file_that_moves_does_not_stall
    a_half_close_waits_for_the_file
    an_abort_ends_the_file
    a_peer_that_does_not_read_ends_in_time
    a_file_that_shrinks_ends_the_connection
    a_file_that_shrinks_before_a_close_is_no_good_end
    a_file_without_bytes_is_told_in_its_place
    a_file_that_is_not_for_reading_ends_the_connection
    a_file_that_is_refused_comes_back
    too_many_files_stop_the_reads
    a_shutdown_sends_the_file
    a_connection_moves_behind_its_file
    a_stream_writes_behind_the_file
}

mod engine {
    use super::{
        a_file_for_an_ended_connection_comes_back, a_file_that_is_not_all_sent_is_not_told,
        a_refused_operation_closes_the_file, a_sent_file_is_told_before_the_end,
    };

    crate::systems_drivers! {
        a_sent_file_is_told_before_the_end
        a_file_that_is_not_all_sent_is_not_told
        a_refused_operation_closes_the_file
        a_file_for_an_ended_connection_comes_back
    }
}

#[test]
fn a_simulation_refuses_files() {
    refuses_files::<common::Simulated>();
    refuses_files::<common::Faulty>();
}

const MIB: usize = 1 << 20;

/// A file that is removed at the end.
struct Temporary {
    path: PathBuf,
    identity: (u64, u64),
}

impl Temporary {
    fn new(bytes: &[u8]) -> Arc<Temporary> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-send-file-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, bytes).unwrap();
        let found = fs::metadata(&path).unwrap();
        Arc::new(Temporary { path, identity: (found.dev(), found.ino()) })
    }

    fn open(&self) -> File {
        File::open(&self.path).unwrap()
    }

    /// How many descriptors of this process are of the file.
    fn descriptors(&self) -> usize {
        let Ok(all) = fs::read_dir("/proc/self/fd") else { return 0 };
        let is_it = |path: PathBuf| {
            fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
        };
        all.filter(|one| one.as_ref().is_ok_and(|one| is_it(one.path()))).count()
    }

    /// The same, as soon as there are `count`: a thread closes what the engine gives up.
    fn left(&self, count: usize) -> usize {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while self.descriptors() != count && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        self.descriptors()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What a test hears of the server.
#[derive(Debug, PartialEq)]
enum Note {
    Refused(Refusal),
    /// How many bytes and how many files wait.
    Waits(usize, usize),
    Drained,
    /// A thread has written all to its stream.
    Written,
    Closed {
        cause: Cause,
        unsent: usize,
        sent: usize,
    },
}

type Does = dyn Fn(&mut Conn<'_, usize>, &News<Note>, u8) -> Action + Send + Sync;

/// Does for each byte what the test says; its state is the sum of `postwrite`.
struct Scripted {
    news: News<Note>,
    does: Arc<Does>,
    /// What a `postwrite` without bytes adds to the sum.
    for_none: usize,
}

impl Handler for Scripted {
    type State = usize;

    fn serving(&mut self, server: &mut Context<'_, usize>, addresses: &[Address]) -> Action {
        self.news.serving(server, addresses)
    }

    fn data(&mut self, c: &mut Conn<'_, usize>, data: Buf) -> Action {
        let mut last = Action::None;
        for byte in &*data {
            last = match byte {
                b'?' => {
                    tell_what_waits(c, &self.news);
                    Action::None
                }
                byte => (self.does)(c, &self.news, *byte),
            };
        }
        last
    }

    fn postwrite(&mut self, c: &mut Conn<'_, usize>, amount: usize, _: usize) -> Action {
        *c.state() += if amount == 0 { self.for_none } else { amount };
        Action::None
    }

    fn drained(&mut self, _: &mut Conn<'_, usize>) -> Action {
        self.news.tell(Note::Drained);
        Action::None
    }

    fn moved(&mut self, c: &mut Conn<'_, usize>, _: Id) -> Action {
        c.write("moved");
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, usize>, closed: Closed<usize>) -> Action {
        let Closed { cause, unsent, state, .. } = closed;
        self.news.tell(Note::Closed { cause, unsent, sent: state });
        Action::None
    }
}

type Stage<T> = Scene<<T as Harness>::Driver, Scripted, Note>;

fn scene<T: Setting>(
    limits: Limits,
    does: impl Fn(&mut Conn<'_, usize>, &News<Note>, u8) -> Action + Send + Sync + 'static,
) -> Stage<T> {
    scene_with::<T>(limits, 0, does)
}

fn scene_with<T: Setting>(
    limits: Limits,
    for_none: usize,
    does: impl Fn(&mut Conn<'_, usize>, &News<Note>, u8) -> Action + Send + Sync + 'static,
) -> Stage<T> {
    let does: Arc<Does> = Arc::new(does);
    let make = move |news| Scripted { news, does: Arc::clone(&does), for_none };
    Scene::start::<T>(make, |server| server.limits(limits).listen("tcp://127.0.0.1:0").unwrap())
}

/// Waits for the end of the only connection.
#[track_caller]
fn end_of<T: Setting>(scene: &mut Stage<T>) -> (Cause, usize, usize) {
    let is_end = |note: &Note| matches!(note, Note::Closed { .. });
    scene.until("it has ended", |s| s.news.count(is_end) > 0);
    let notes = scene.news.notes();
    let ends: Vec<_> = notes.iter().filter(|note| is_end(note)).collect();
    let [Note::Closed { cause, unsent, sent }] = ends[..] else { panic!("{notes:?}") };
    (*cause, *unsent, *sent)
}

/// nbio's TestSendfile, with writes before, between and behind the files.
fn files_are_whole_between_writes<T: Setting>() {
    let bytes = pattern(32 * MIB, 4);
    let file = Temporary::new(&bytes);
    let opened = Arc::clone(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, _, _| {
        c.write("before");
        c.send_file(opened.open(), ..).unwrap();
        c.write_slice(b"be");
        c.write("tween");
        c.send_file(opened.open(), 1000..=4999).unwrap();
        c.send_file(opened.open(), 7..7).unwrap();
        c.send_file(opened.open(), 32 * MIB as u64 - 5..).unwrap();
        c.write(vec![b'x'; 1000]);
        c.write_slice(b"behind");
        Action::None
    });
    let (xs, ends) = (vec![b'x'; 1000], &bytes[bytes.len() - 5..]);
    let expected =
        [b"before", &bytes[..], b"between", &bytes[1000..5000], ends, &xs, b"behind"].concat();
    let client = scene.connect();
    for _ in 0..3 {
        scene.say(client, "f");
        scene.until("all has come", |s| s.client(client).heard.len() >= expected.len());
        assert!(scene.client(client).heard == expected, "other bytes");
        scene.clients.all.get_mut(&client).unwrap().heard.clear();
    }
    scene.finish(client);
    assert_eq!(end_of::<T>(&mut scene), (Cause::Eof, 0, 3 * expected.len()));
    assert_eq!(file.left(0), 0);
    assert_eq!(scene.end().panics, 0);
}

fn tell_what_waits(c: &mut Conn<'_, usize>, news: &News<Note>) {
    let waiting = c.waiting();
    news.tell(Note::Waits(waiting, c.waiting_files()));
}

/// Sends the file and five more bytes, and tells what waits then.
fn send_all(
    file: &Arc<Temporary>,
) -> impl Fn(&mut Conn<'_, usize>, &News<Note>) + Send + Sync + 'static {
    let file = Arc::clone(file);
    move |c, news| {
        c.send_file(file.open(), ..).unwrap();
        c.write("after");
        tell_what_waits(c, news);
    }
}

/// A client that does not read asks for a file, which then waits.
fn begin_to_send<T: Setting>(scene: &mut Stage<T>, file: &Temporary) -> Source {
    let client = scene.connect_deaf();
    scene.say(client, "f");
    scene.until("it is told", |s| s.news.count(|note| matches!(note, Note::Waits(..))) > 0);
    assert!(!cfg!(target_os = "linux") || file.descriptors() > 0);
    client
}

fn a_slow_reader_gets_all_and_a_file_takes_little_memory<T: Setting>() {
    let bytes = pattern(32 * MIB, 1);
    let file = Temporary::new(&bytes);
    // The file alone exceeds each of these. With TLS a few pieces of it are in memory.
    let memory = if T::TLS { 1 << 20 } else { 100_000 };
    let limits = Limits::new().marks(1000, 2000).cap(10_000).memory(memory);
    let send = send_all(&file);
    let mut scene = scene::<T>(limits, move |c, news, _| {
        send(c, news);
        Action::None
    });
    let client = begin_to_send::<T>(&mut scene, &file);
    assert_eq!(*scene.news.notes(), [Note::Waits(5, 1)]);
    scene.say(client, "?");
    scene.until("it is told", |s| s.news.notes().len() == 2);
    assert_eq!(scene.news.notes()[1], Note::Waits(5, 1));
    scene.hear(client);
    scene.until("all has come", |s| s.client(client).heard.len() == bytes.len() + 5);
    assert!(scene.client(client).heard == [&bytes[..], b"after"].concat());
    scene.say(client, "?");
    scene.until("it is told", |s| s.news.notes().len() == 3);
    assert_eq!(scene.news.notes()[2], Note::Waits(0, 0));
    assert_eq!(file.left(0), 0);
    scene.finish(client);
    assert_eq!(end_of::<T>(&mut scene), (Cause::Eof, 0, bytes.len() + 5));
    scene.end();
}

fn a_peer_that_goes_away_frees_the_file<T: Setting>() {
    let file = Temporary::new(&pattern(32 * MIB, 1));
    let send = send_all(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, news, _| {
        send(c, news);
        Action::None
    });
    let client = begin_to_send::<T>(&mut scene, &file);
    scene.abort(client);
    let (cause, unsent, sent) = end_of::<T>(&mut scene);
    assert!(matches!(cause, Cause::Os(_) | Cause::Eof | Cause::Truncated), "{cause:?}");
    // With TLS it is read first, so perhaps nothing was sent.
    let most = 32 * MIB + if T::TLS { 5 } else { 4 };
    assert!(unsent > 5 && unsent <= most && sent == 0, "{unsent}, {sent}");
    assert_eq!(file.left(0), 0);
    scene.end();
}

fn a_close_waits_for_the_file<T: Setting>() {
    let bytes = pattern(32 * MIB, 3);
    let file = Temporary::new(&bytes);
    let send = send_all(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, news, _| {
        c.write("before");
        send(c, news);
        Action::Close
    });
    let client = begin_to_send::<T>(&mut scene, &file);
    scene.hear(client);
    scene.until("the end has come", |s| s.client(client).is_over());
    assert!(scene.client(client).heard == [b"before", &bytes[..], b"after"].concat());
    let (cause, unsent, sent) = end_of::<T>(&mut scene);
    assert_eq!((cause, unsent, file.left(0)), (Cause::Closed, 0, 0));
    assert_eq!(sent, "before".len() + bytes.len() + "after".len(), "each `postwrite` came");
    scene.end();
}

fn a_close_takes_as_long_as_the_file_moves<T: Setting>() {
    let limits = Limits::new().close(Duration::from_millis(800));
    a_peer_that_is_slow_gets_all::<T>(limits, || Action::Close);
}

fn a_file_that_moves_does_not_stall<T: Setting>() {
    let limits = Limits::new().write_stall(Duration::from_millis(800));
    a_peer_that_is_slow_gets_all::<T>(limits, || Action::None);
}

/// The peer takes far longer than the limit, and always goes on.
fn a_peer_that_is_slow_gets_all<T: Setting>(limits: Limits, then: fn() -> Action) {
    let bytes = pattern(24 * MIB, 3);
    let file = Temporary::new(&bytes);
    let send = send_all(&file);
    let mut scene = scene::<T>(limits, move |c, news, _| {
        send(c, news);
        then()
    });
    let connect = scene.blocking_client();
    let reader = thread::spawn(move || {
        let mut client = connect();
        client.write_all(b"f").unwrap();
        let (mut heard, mut piece) = (Vec::new(), vec![0; MIB]);
        for _ in 0..24 {
            client.read_exact(&mut piece).unwrap();
            heard.extend_from_slice(&piece);
            thread::sleep(Duration::from_millis(80)); // the pace is what the test is about
        }
        client.read_exact(&mut piece[..5]).unwrap();
        heard.extend_from_slice(&piece[..5]);
        heard
    });
    let (cause, unsent, _) = end_of::<T>(&mut scene);
    assert!(reader.join().unwrap() == [&bytes[..], b"after"].concat());
    assert!(matches!(cause, Cause::Closed | Cause::Eof), "{cause:?}");
    assert_eq!((unsent, file.left(0)), (0, 0));
    scene.end();
}

fn a_half_close_waits_for_the_file<T: Setting>() {
    let bytes = pattern(32 * MIB, 5);
    let file = Temporary::new(&bytes);
    let send = send_all(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, news, _| {
        send(c, news);
        c.shutdown();
        Action::None
    });
    let client = begin_to_send::<T>(&mut scene, &file);
    scene.hear(client);
    scene.until("the end has come", |s| s.client(client).is_over());
    assert!(scene.client(client).heard == [&bytes[..], b"after"].concat());
    let (cause, unsent, _) = end_of::<T>(&mut scene);
    assert_eq!((cause, unsent, file.left(0)), (Cause::Eof, 0, 0));
    scene.end();
}

fn an_abort_ends_the_file<T: Setting>() {
    let file = Temporary::new(&pattern(32 * MIB, 1));
    let send = send_all(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, news, byte| {
        match byte {
            b'f' => {
                send(c, news);
                send(c, news);
            }
            _ => c.abort(),
        }
        Action::None
    });
    let client = scene.connect_deaf();
    scene.say(client, "f");
    scene.until("both wait", |s| s.news.count(|note| *note == Note::Waits(10, 2)) == 1);
    scene.say(client, "a");
    let (cause, unsent, _) = end_of::<T>(&mut scene);
    assert_eq!(cause, Cause::Aborted);
    assert!(unsent > 32 * MIB + 10 && unsent < 64 * MIB + 10, "{unsent}");
    assert_eq!(file.left(0), 0);
    scene.end();
}

fn a_peer_that_does_not_read_ends_in_time<T: Setting>() {
    let file = Temporary::new(&pattern(32 * MIB, 1));
    let send = send_all(&file);
    let limits = Limits::new().write_stall(Duration::from_millis(200));
    let mut scene = scene::<T>(limits, move |c, news, byte| {
        if byte == b'w' {
            c.set_write_deadline(Deadline::After(Duration::from_millis(100)));
        }
        send(c, news);
        Action::None
    });
    begin_to_send::<T>(&mut scene, &file);
    let (cause, unsent, _) = end_of::<T>(&mut scene);
    assert!(cause == Cause::WriteStall && unsent > 5, "{cause:?}, {unsent}");
    assert_eq!(file.left(0), 0);
    let hasty = scene.connect_deaf();
    scene.say(hasty, "w");
    let timed = |note: &Note| matches!(note, Note::Closed { cause: Cause::WriteTimeout, .. });
    scene.until("its deadline has passed", |s| s.news.count(timed) == 1);
    assert_eq!(file.left(0), 0);
    scene.end();
}

fn a_file_that_shrinks_ends_the_connection<T: Setting>() {
    let bytes = pattern(32 * MIB, 7);
    let file = Temporary::new(&bytes);
    let send = send_all(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, news, _| {
        send(c, news);
        send(c, news);
        Action::None
    });
    let client = scene.connect_deaf();
    scene.say(client, "f");
    scene.until("both wait", |s| s.news.count(|note| *note == Note::Waits(10, 2)) == 1);
    let now = OpenOptions::new().write(true).open(&file.path).unwrap();
    now.set_len(20 * MIB as u64).unwrap();
    drop(now);
    scene.hear(client);
    scene.until("the end has come", |s| s.client(client).is_over());
    // A reset, so that the peer does not take the part for the whole.
    let client = scene.client(client);
    assert!(!client.eof && bytes[..20 * MIB].starts_with(&client.heard), "{:?}", client.error);
    let (cause, unsent, sent) = end_of::<T>(&mut scene);
    // With TLS the file is read ahead of what the socket takes.
    let ahead = if T::TLS { 128 << 10 } else { 0 };
    let behind = 44 * MIB + 10;
    assert!((behind..=behind + ahead).contains(&unsent), "{unsent}");
    assert_eq!((cause, sent), (Cause::FileEnded, 0));
    assert_eq!(file.left(0), 0);
    assert_eq!(scene.end().counters.ends.failed, 1);
}

/// A close that waited behind the file was told as the cause, so the end looked like a good one.
fn a_file_that_shrinks_before_a_close_is_no_good_end<T: Setting>() {
    let file = Temporary::new(&pattern(32 * MIB, 7));
    let send = send_all(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, news, _| {
        send(c, news);
        Action::Close
    });
    let client = begin_to_send::<T>(&mut scene, &file);
    let now = OpenOptions::new().write(true).open(&file.path).unwrap();
    now.set_len(20 * MIB as u64).unwrap();
    drop(now);
    scene.hear(client);
    let (cause, unsent, _) = end_of::<T>(&mut scene);
    assert!(cause == Cause::FileEnded && unsent > 5, "{cause:?}, {unsent}");
    assert_eq!(file.left(0), 0);
    scene.end();
}

/// A part of a file without bytes made no call of `postwrite`.
fn a_file_without_bytes_is_told_in_its_place<T: Setting>() {
    let file = Temporary::new(b"text");
    let open = Arc::clone(&file);
    let mut scene = scene_with::<T>(Limits::new(), 1000, move |c, _, byte| {
        match byte {
            b'f' => {
                c.write("before");
                c.send_file(open.open(), 2..2).unwrap();
                c.send_file(open.open(), ..).unwrap();
                c.send_file(open.open(), 4..).unwrap();
                c.write("after");
            }
            // 1000 for each call, beside the bytes.
            _ => {
                let sum = *c.state();
                c.write(format!(" {sum:04}"));
            }
        }
        Action::None
    });
    let client = scene.connect();
    scene.say(client, "f");
    scene.until("all is sent", |s| s.client(client).heard == b"beforetextafter");
    // The last event may come behind the first question.
    while scene.client(client).heard.iter().nth_back(3) != Some(&b'2') {
        let before = scene.client(client).heard.len();
        scene.say(client, "=");
        scene.until("it is answered", |s| s.client(client).heard.len() == before + 5);
    }
    assert_eq!(file.left(0), 0);
    scene.end();
}

fn a_file_that_is_not_for_reading_ends_the_connection<T: Setting>() {
    const EBADF: i32 = 9;
    let file = Temporary::new(b"secret");
    let path = file.path.clone();
    let mut scene = scene::<T>(Limits::new(), move |c, _, _| {
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        c.send_file(file, ..).unwrap();
        c.write("after");
        Action::None
    });
    let client = scene.connect();
    scene.say(client, "f");
    assert_eq!(end_of::<T>(&mut scene), (Cause::Os(EBADF), 11, 0));
    scene.until("the end has come", |s| s.client(client).is_over());
    assert_eq!((scene.client(client).heard.len(), file.left(0)), (0, 0));
    scene.end();
}

fn a_file_that_is_refused_comes_back<T: Setting>() {
    let file = Temporary::new(b"0123456789");
    let opened = Arc::clone(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, news, _| {
        let tell = |refused: Result<(), Refused<File>>| {
            let Refused { value: file, reason } = refused.unwrap_err();
            file.metadata().expect("it is open");
            news.tell(Note::Refused(reason));
        };
        tell(c.send_file(opened.open(), ..11));
        tell(c.send_file(opened.open(), 11..));
        tell(c.send_file(opened.open(), ..=u64::MAX));
        #[allow(clippy::reversed_empty_ranges)] // what a bug of a program makes
        tell(c.send_file(opened.open(), 5..4));
        tell(c.send_file(File::open(std::env::temp_dir()).unwrap(), ..0));
        tell(c.send_file(File::open("/dev/null").unwrap(), ..));
        c.send_file(opened.open(), 3..).unwrap();
        c.shutdown();
        tell(c.send_file(opened.open(), ..));
        Action::None
    });
    let client = scene.connect();
    scene.say(client, "f");
    scene.until("the end has come", |s| s.client(client).is_over());
    assert_eq!(scene.client(client).heard, b"3456789");
    let (cause, unsent, _) = end_of::<T>(&mut scene);
    assert_eq!((cause, unsent, file.left(0)), (Cause::Eof, 0, 0));
    let notes = scene.news.notes();
    for at in 0..6 {
        assert_eq!(notes[at], Note::Refused(Refusal::File), "{at}");
    }
    assert_eq!(notes[6], Note::Refused(Refusal::Stale));
    drop(notes);
    scene.end();
}

fn too_many_files_stop_the_reads<T: Setting>() {
    let bytes = pattern(16 * MIB, 2);
    let file = Temporary::new(&bytes);
    let opened = Arc::clone(&file);
    let mut scene = scene::<T>(Limits::new().files(2), move |c, news, _| {
        if let Err(refused) = c.send_file(opened.open(), ..) {
            news.tell(Note::Refused(refused.reason));
        }
        Action::None
    });
    let client = scene.connect_deaf();
    scene.say(client, "fff");
    scene.until("one is refused", |s| !s.news.notes().is_empty());
    assert_eq!(*scene.news.notes(), [Note::Refused(Refusal::Files)]);
    // The connection may read once before it stops.
    scene.say(client, "?");
    scene.hear(client);
    scene.until("both have come", |s| s.client(client).heard.len() == 2 * bytes.len());
    assert!(scene.client(client).heard == [&bytes[..], &bytes[..]].concat());
    scene.until("it is told", |s| s.news.count(|note| *note == Note::Drained) == 1);
    scene.say(client, "f");
    scene.until("it reads again", |s| s.client(client).heard.len() == 3 * bytes.len());
    scene.finish(client);
    assert_eq!(end_of::<T>(&mut scene), (Cause::Eof, 0, 3 * bytes.len()));
    assert_eq!((scene.news.count(|n| matches!(n, Note::Refused(_))), file.left(0)), (1, 0));
    scene.end();
}

fn a_shutdown_sends_the_file<T: Setting>() {
    let bytes = pattern(32 * MIB, 8);
    let file = Temporary::new(&bytes);
    let send = send_all(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, news, _| {
        send(c, news);
        Action::None
    });
    let client = begin_to_send::<T>(&mut scene, &file);
    scene.remote.shutdown();
    scene.hear(client);
    let report = scene.end();
    assert!(report.unfinished.is_empty(), "{:?}", report.unfinished);
    scene.until("the end has come", |s| s.client(client).is_over());
    assert!(scene.client(client).heard == [&bytes[..], b"after"].concat());
    let (cause, unsent, _) = end_of::<T>(&mut scene);
    assert_eq!((cause, unsent, file.left(0)), (Cause::Shutdown, 0, 0));
}

fn a_connection_moves_behind_its_file<T: Setting>() {
    let bytes = pattern(16 * MIB, 8);
    let file = Temporary::new(&bytes);
    let send = send_all(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, news, _| {
        send(c, news);
        if !c.move_to_loop() {
            c.write("moved"); // a loop serves it
        }
        Action::None
    });
    let client = begin_to_send::<T>(&mut scene, &file);
    scene.hear(client);
    scene.until("all has come", |s| s.client(client).heard.len() == bytes.len() + 10);
    assert!(scene.client(client).heard == [&bytes[..], b"aftermoved"].concat());
    assert_eq!(file.left(0), 0);
    scene.finish(client);
    let (cause, unsent, sent) = end_of::<T>(&mut scene);
    assert_eq!((cause, unsent), (Cause::Eof, 0));
    assert_eq!(sent, bytes.len() + "aftermoved".len(), "each `postwrite` came");
    scene.end();
}

struct Unpark(Thread);

impl task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Writes to a stream, and closes it.
fn write_all(mut stream: Stream, mut bytes: &[u8]) {
    stream.set_waker(task::Waker::from(Arc::new(Unpark(thread::current()))));
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn a_stream_writes_behind_the_file<T: Setting>() {
    let bytes = pattern(16 * MIB, 9);
    let file = Temporary::new(&bytes);
    let send = send_all(&file);
    let streamed = pattern(MIB, 1);
    let all = streamed.clone();
    // What waits behind the file makes the writer wait, and ends nothing.
    let mut scene = scene::<T>(Limits::new().cap(100_000), move |c, news, _| {
        send(c, news);
        let (stream, all, news) = (c.into_std().unwrap(), all.clone(), news.clone());
        thread::spawn(move || {
            write_all(stream, &all);
            news.tell(Note::Written);
        });
        Action::None
    });
    let client = begin_to_send::<T>(&mut scene, &file);
    scene.run_for(Duration::from_millis(100));
    assert_eq!(scene.news.count(|note| *note == Note::Written), 0, "more than the cap waits");
    scene.hear(client);
    scene.until("the end has come", |s| s.client(client).is_over());
    assert!(scene.client(client).heard == [&bytes[..], b"after", &streamed].concat());
    let (cause, unsent, _) = end_of::<T>(&mut scene);
    assert_eq!((cause, unsent, file.left(0)), (Cause::Closed, 0, 0));
    scene.end();
}

fn a_session_sends_no_file<T: Setting>() {
    let file = Temporary::new(b"0123456789");
    let opened = Arc::clone(&file);
    let does: Arc<Does> = Arc::new(move |c, news, _| {
        let Refused { value: file, reason } = c.send_file(opened.open(), ..).unwrap_err();
        file.metadata().expect("it is open");
        drop(file);
        news.tell(Note::Refused(reason));
        Action::None
    });
    let make = move |news| Scripted { news, does: Arc::clone(&does), for_none: 0 };
    let mut scene: Stage<T> =
        Scene::start::<T>(make, |server| server.listen("udp://127.0.0.1:0?sessions=true").unwrap());
    let local = Address::from(([127, 0, 0, 1], 0));
    let client = scene.watcher.bind_datagram(local, Default::default()).unwrap();
    let to = scene.addresses[0].clone();
    scene.watcher.submit(Op::send_to(client, "f", to)).unwrap();
    scene.until("it is refused", |s| !s.news.notes().is_empty());
    assert_eq!(*scene.news.notes(), [Note::Refused(Refusal::Unsupported)]);
    assert_eq!(file.left(0), 0);
    scene.end();
}

fn refuses_files<T: Setting>() {
    let file = Temporary::new(b"0123456789");
    let opened = Arc::clone(&file);
    let mut scene = scene::<T>(Limits::new(), move |c, news, _| {
        let refused = c.send_file(opened.open(), ..).unwrap_err();
        refused.value.metadata().expect("it is open");
        news.tell(Note::Refused(refused.reason));
        c.write("none");
        Action::None
    });
    let client = scene.connect();
    scene.say(client, "f");
    scene.until("it goes on", |s| s.client(client).heard == b"none");
    assert_eq!(*scene.news.notes(), [Note::Refused(Refusal::Unsupported)]);
    assert_eq!(file.left(0), 0);
    scene.end();
}

fn a_refused_operation_closes_the_file<T: Harness>() {
    let file = Temporary::new(b"0123456789");
    let orders = Orders::default();
    let driver = Refusing::new(T::watcher(Watcher::builder()).into_driver(), orders.clone());
    let mut on = Loop::on(Watcher::with_driver(driver), Config::new());
    let (_client, id) = on.pair();
    orders.refuse(OpCode::SendFile, 1);
    on.engine.write(id, "a").unwrap();
    on.engine.send_file(id, file.open(), ..).unwrap();
    on.engine.write(id, "bc").unwrap();
    on.engine.flush(&mut on.watcher);
    on.until("it has ended", |l| !l.ends.is_empty());
    assert_eq!((orders.refused(), file.left(0)), (1, 0));
    assert_eq!(on.ends, [(Cause::Rejected, 12, Phase::Open)]);
}

fn a_file_for_an_ended_connection_comes_back<T: Harness>() {
    let file = Temporary::new(b"0123456789");
    let mut on = Loop::new::<T>(Config::new());
    let (client, id) = on.pair();
    on.engine.send_file(id, file.open(), ..4).unwrap();
    assert_eq!((on.engine.waiting(id), on.engine.waiting_files(id)), (0, 1));
    on.engine.flush(&mut on.watcher);
    on.until("it is sent", |l| l.told.contains(&"file sent"));
    assert_eq!((on.engine.waiting_files(id), file.left(0)), (0, 0));
    on.engine.send_file(id, file.open(), ..).unwrap();
    on.engine.abort(id);
    let closing = on.engine.send_file(id, file.open(), ..).unwrap_err();
    assert_eq!(closing.reason, Refusal::Stale);
    on.engine.flush(&mut on.watcher);
    on.until("it has ended", |l| !l.ends.is_empty());
    assert_eq!(on.ends, [(Cause::Aborted, 10, Phase::Open)]);
    let one = usize::from(cfg!(target_os = "linux"));
    assert_eq!(file.left(one), one, "only that of above");
    let stale = on.engine.send_file(id, closing.value, ..).unwrap_err();
    assert_eq!((stale.reason, stale.value.metadata().unwrap().len()), (Refusal::Stale, 10));
    drop(stale);
    assert_eq!((on.engine.waiting_files(id), file.left(0)), (0, 0));
    on.watcher.abort(client);
}

/// However a connection ends, the files that the system has taken are told first, in their order.
fn a_sent_file_is_told_before_the_end<T: Harness>() {
    let file = Temporary::new(b"0123456789");
    type Ends<D> = fn(&mut Loop<D>, Id) -> bool;
    let ends: [(Ends<T::Driver>, &str); 5] = [
        (|l, id| l.engine.close(id), "closed"),
        (|l, id| l.engine.detach(id).is_ok(), "detached"),
        (|l, id| l.engine.shutdown(id) && l.engine.detach(id).is_ok(), "detached"),
        // The files go out in this flush, and their completions wait.
        (|l, id| send_now(l) && l.engine.abort(id), "closed"),
        (
            |l, id| {
                let now = Deadline::At(l.now());
                send_now(l) && l.engine.set_read_deadline(id, now)
            },
            "closed",
        ),
    ];
    for (at, (end, last)) in ends.into_iter().enumerate() {
        let mut on = Loop::new::<T>(Config::new());
        let (_client, id) = on.pair();
        for range in [0..10, 3..3, 4..10] {
            on.engine.send_file(id, file.open(), range).unwrap();
        }
        assert!(end(&mut on, id));
        on.engine.flush(&mut on.watcher);
        on.until("it has ended", |l| l.told.contains(&last));
        let told = if at < 3 { 3 } else { 1 };
        let mut expected = vec!["opened"];
        expected.resize(1 + told, "file sent");
        expected.push(last);
        assert_eq!(on.told, expected, "end {at}");
        assert_eq!((on.ends.iter().all(|end| end.1 == 6 * (at / 3)), file.left(0)), (true, 0));
    }
}

fn send_now<D: windlass::driver::Driver>(l: &mut Loop<D>) -> bool {
    l.engine.flush(&mut l.watcher);
    true
}

/// Nor one that the system has nearly taken.
fn a_file_that_is_not_all_sent_is_not_told<T: Harness>() {
    let file = Temporary::new(&pattern(3 * MIB, 4));
    let mut on = Loop::new::<T>(Config::new());
    let (_client, id) = on.pair();
    for range in [0..10, 0..3 * MIB as u64, 0..10] {
        on.engine.send_file(id, file.open(), range).unwrap();
    }
    on.engine.flush(&mut on.watcher);
    on.until("the first one is sent", |l| l.told.contains(&"file sent"));
    on.run_for(Duration::from_millis(50));
    assert!(on.engine.abort(id));
    on.engine.flush(&mut on.watcher);
    on.until("it has ended", |l| !l.ends.is_empty());
    assert_eq!((on.told, file.left(0)), (vec!["opened", "file sent", "closed"], 0));
    assert!(on.ends[0].1 > 10, "{:?}", on.ends);
}
