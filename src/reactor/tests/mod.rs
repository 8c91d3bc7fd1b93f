//! The reactor against the system's selector, and against poll(2).

use std::fs::File;
use std::io::{Read, Write};
#[cfg(windows)]
use std::net::{TcpListener, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::sys::fd::OwnedFd;
use crate::sys::{Poll, os_errno};
#[cfg(unix)]
use crate::sys::{
    descriptor,
    waker::{Wake, WakeFd},
};

mod echo;
mod modes;
mod wakes;

#[cfg(unix)]
mod ends;

#[cfg(unix)]
use ends::{a_pipe_without_its_other_end_is_hung_up, own_shutdown_is_no_hang_up};
use modes::{a_disarmed_oneshot_reports_nothing, an_echo_runs_in_every_mode};
use wakes::no_signal_of_two_threads_is_lost;

/// The longest time for a wait that must end.
const BOUND: Duration = Duration::from_secs(20);

/// A reactor for tests: one that takes its time may not see an imitated edge twice.
trait Fresh: Sized {
    fn fresh() -> Reactor<Self>
    where
        Self: Select;
}

#[cfg(unix)] // elsewhere it is the other
impl Fresh for Selector {
    fn fresh() -> Reactor {
        Reactor::new().unwrap()
    }
}

impl Fresh for Poll {
    fn fresh() -> Reactor<Poll> {
        let mut reactor: Reactor<Poll> = Reactor::on_selector(&Config::default()).unwrap();
        reactor.selector.set_patience(Duration::from_secs(3600));
        reactor
    }
}

/// A reactor on poll(2).
fn poll() -> Reactor<Poll> {
    Poll::fresh()
}

/// Something that can be made readable and be drained again.
struct Subject {
    name: &'static str,
    reader: End,
    write: Box<dyn FnMut()>,
}

#[cfg(unix)]
fn subjects() -> Vec<Subject> {
    let file = |fd: OwnedFd| File::from(fd);
    let (pipe_out, mut pipe_in) = std::io::pipe().unwrap();
    let (socket, mut peer) = pair();
    let event = WakeFd::new().unwrap();
    let event_out = descriptor::duplicate(descriptor::borrow(event.raw())).unwrap();
    vec![
        Subject {
            name: "pipe",
            reader: file(pipe_out.into()),
            write: Box::new(move || pipe_in.write_all(&[1; 8]).unwrap()),
        },
        Subject {
            name: "socketpair",
            reader: socket,
            write: Box::new(move || peer.write_all(&[1; 8]).unwrap()),
        },
        Subject { name: "eventfd", reader: file(event_out), write: Box::new(move || event.wake()) },
    ]
}

#[cfg(windows)]
fn subjects() -> Vec<Subject> {
    let (reader, mut peer) = pair();
    let write = Box::new(move || peer.write_all(&[1; 8]).unwrap());
    vec![Subject { name: "TCP", reader, write }]
}

/// An end of a socketpair. As files, because Miri knows their read(2) and write(2) but not send(2).
#[cfg(unix)]
type End = File;
#[cfg(windows)]
type End = TcpStream;

#[cfg(unix)]
fn pair() -> (File, File) {
    let (a, b) = streams();
    (File::from(OwnedFd::from(a)), File::from(OwnedFd::from(b)))
}

#[cfg(windows)]
use streams as pair;

/// Two connected streams.
#[cfg(unix)]
fn streams() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

#[cfg(windows)]
fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    for end in [&a, &b] {
        end.set_nodelay(true).unwrap();
    }
    (a, b)
}

/// The end that a watch has given back.
#[allow(clippy::unnecessary_fallible_conversions)] // not everywhere is a descriptor a file
fn end(fd: OwnedFd) -> End {
    End::try_from(fd).unwrap()
}

/// A watch for readability that every selector can serve.
fn edge(descriptor: impl Into<OwnedFd>) -> Watch {
    Watch::new(descriptor, Ready::READABLE).mode(Mode::Edge)
}

/// The items of a wait without blocking.
fn now<S: Select>(reactor: &mut Reactor<S>) -> Vec<Readiness> {
    let mut items = Completions::new();
    let count = reactor.complete(Wait::Now, &mut items).unwrap();
    assert_eq!(count, items.len());
    items.into_iter().collect()
}

/// Waits for up to `BOUND`; returns the number of items, or `None` after a timeout.
fn ended<S: Select>(reactor: &mut Reactor<S>, items: &mut Completions<Readiness>) -> Option<usize> {
    let until = Instant::now() + BOUND;
    let count = reactor.complete(Wait::Until(until), items).ok()?;
    (Instant::now() < until).then_some(count)
}

/// As `ended`, but a timeout fails the test and names `what`.
#[track_caller]
fn wait_for<S: Select>(
    reactor: &mut Reactor<S>,
    items: &mut Completions<Readiness>,
    what: &str,
) -> usize {
    ended(reactor, items).unwrap_or_else(|| panic!("{BOUND:?} without {what}"))
}

fn only(items: Vec<Readiness>) -> Readiness {
    let [item] = <[Readiness; 1]>::try_from(items).unwrap();
    item
}

/// One watch through its whole life.
fn life_of_a_watch<S: Select + Fresh>(mode: Mode) {
    for Subject { name, mut reader, mut write } in subjects() {
        let mut reactor = S::fresh();
        let watch = Watch::dup(&reader, Ready::READABLE).unwrap();
        let ticket = reactor.submit(watch.mode(mode).token(9)).unwrap();
        assert!(now(&mut reactor).is_empty(), "{name}: nothing has come yet");

        write();
        let item = only(now(&mut reactor));
        assert_eq!((item.ticket, item.token), (ticket, 9), "{name}");
        assert!(item.ready.contains(Ready::READABLE), "{name}: {item:?}");
        assert!(item.more && item.fd.is_none(), "{name}: {item:?}");

        // The condition lasts: only a level tells it again.
        let again = now(&mut reactor);
        assert_eq!(again.len(), usize::from(mode == Mode::Level), "{name}");
        reader.read_exact(&mut [0; 8]).unwrap();
        assert!(now(&mut reactor).is_empty(), "{name}: drained");

        // A new edge: only a disarmed oneshot stays silent.
        write();
        if mode == Mode::Oneshot {
            assert!(now(&mut reactor).is_empty(), "{name}: it rests");
            reactor.rearm(ticket, Ready::READABLE).unwrap();
        }
        let anew = only(now(&mut reactor));
        assert_eq!((anew.ticket, anew.token, anew.more), (ticket, 9, true), "{name}");
        assert!(anew.ready.contains(Ready::READABLE), "{name}: {anew:?}");

        // The end gives the descriptor back, once, and is the last of it.
        assert!(reactor.cancel(ticket), "{name}");
        assert!(!reactor.cancel(ticket), "{name}: stale");
        assert_eq!(reactor.rearm(ticket, Ready::READABLE), Err(Refusal::Stale), "{name}");
        let last = only(now(&mut reactor));
        assert!(!last.more && last.ready.is_empty(), "{name}: {last:?}");
        end(last.fd.expect("the descriptor comes back")).read_exact(&mut [0; 8]).unwrap();
        write();
        assert!(now(&mut reactor).is_empty(), "{name}: after its end");
        assert!(reactor.is_empty());
        assert_eq!(reactor.stale_events(), 0, "{name}");
    }
}

macro_rules! per_mode {
    ($($(#[$attribute:meta])* $name:ident: $mode:expr;)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                life_of_a_watch::<Selector>($mode);
            }
        )*
        #[cfg(unix)] // elsewhere it is the system's
        mod on_poll {
            use super::*;
            $(
                #[test]
                #[cfg_attr(miri, ignore = "Miri has no ppoll(2)")]
                fn $name() {
                    life_of_a_watch::<Poll>($mode);
                }
            )*
        }
    };
}

per_mode! {
    #[cfg_attr(miri, ignore = "Miri's epoll knows edges only")]
    a_level_reports_for_as_long_as_the_condition_lasts: Mode::Level;
    an_edge_reports_when_the_condition_arises: Mode::Edge;
    #[cfg_attr(miri, ignore = "Miri's epoll knows edges only")]
    a_oneshot_reports_once_until_it_is_armed_again: Mode::Oneshot;
}

fn what_holds_already_is_reported_at_submission_and_modification<S: Select + Fresh>() {
    for mode in [Mode::Level, Mode::Edge, Mode::Oneshot] {
        let (socket, _peer) = pair();
        let mut reactor = S::fresh();
        let watch = Watch::new(socket, Ready::READABLE).mode(Mode::Edge).token(3);
        let ticket = reactor.submit(watch).unwrap();
        assert!(now(&mut reactor).is_empty());
        reactor.modify(ticket, Ready::WRITABLE, mode).unwrap();
        let item = only(now(&mut reactor));
        assert_eq!((item.ticket, item.token), (ticket, 3));
        assert_eq!(item.ready, Ready::WRITABLE);
        let again = now(&mut reactor).len();
        assert_eq!(again, usize::from(mode == Mode::Level), "{mode:?}: the new mode rules");
        assert!(reactor.fd(ticket).is_ok());
        reactor.modify(ticket, Ready::WRITABLE, Mode::Edge).unwrap();
        assert_eq!(only(now(&mut reactor)).ready, Ready::WRITABLE, "{mode:?}: it is armed");
    }
}

fn a_number_that_is_used_again_gets_none_of_its_predecessors_events<S: Select + Fresh>() {
    let (first, mut first_peer) = pair();
    // Keeps the open file description, and with it a registration that is not removed, alive.
    let kept = first.try_clone().unwrap();
    let mut reactor = S::fresh();
    let old = reactor.submit(edge(first)).unwrap();
    first_peer.write_all(b"x").unwrap();
    let held = only(now(&mut reactor));
    assert!(reactor.cancel(old));
    drop(now(&mut reactor)); // closes the number, with bytes unread

    // Gets the number, unless another test has been quicker, and in any case the place.
    let (second, mut second_peer) = pair();
    let new = reactor.submit(edge(second)).unwrap();
    assert_eq!(new.index(), old.index(), "the same place");
    first_peer.write_all(b"y").unwrap();
    assert!(now(&mut reactor).is_empty(), "an event of the old watch");
    assert_eq!(reactor.stale_events(), 0, "its registration was removed");
    // An item of the old watch reaches no watch any more.
    assert_eq!(reactor.fd(held.ticket).unwrap_err(), Refusal::Stale);
    assert!(!reactor.cancel(held.ticket));
    second_peer.write_all(b"z").unwrap();
    assert_eq!(only(now(&mut reactor)).ticket, new);
    drop(kept);
}

fn an_event_whose_watch_has_ended_finds_no_watch<S: Select + Fresh>() {
    let (socket, mut peer) = pair();
    let mut reactor = S::fresh();
    let ticket = reactor.submit(edge(socket)).unwrap();
    peer.write_all(b"x").unwrap();
    // What no caller can do: the selector has the event, then the place changes hands.
    assert_eq!(reactor.selector.select(Some(0)).unwrap(), 1);
    reactor.cancel(ticket);
    let (other, _other_peer) = pair();
    let other = reactor.submit(edge(other)).unwrap();
    assert_eq!(other.index(), ticket.index());
    reactor.apply(1);
    assert_eq!(reactor.stale_events(), 1);
    let last = only(now(&mut reactor));
    assert_eq!((last.ticket, last.more), (ticket, false));
}

fn a_file_may_be_watched_twice<S: Select + Fresh>() {
    let (socket, _peer) = pair();
    let mut reactor = S::fresh();
    let watches = [1, 2]
        .map(|token| Watch::dup(&socket, Ready::WRITABLE).unwrap().mode(Mode::Edge).token(token));
    let tickets = watches.map(|watch| reactor.submit(watch).unwrap());
    assert_ne!(tickets[0], tickets[1]);
    let mut tokens: Vec<u64> = now(&mut reactor).iter().map(|item| item.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 2]);
}

#[test]
#[cfg_attr(miri, ignore = "Miri's epoll does not know regular files")]
fn what_cannot_be_watched_comes_back() {
    let mut reactor =
        Reactor::with_config(&Config { max_operations: 1, ..Config::default() }).unwrap();
    let file = File::open(std::env::current_exe().unwrap()).unwrap();
    let refused = reactor.submit(edge(file)).unwrap_err();
    assert_eq!(refused.reason, Refusal::Unsupported);
    #[allow(clippy::unnecessary_fallible_conversions)] // not everywhere is a descriptor a file
    File::try_from(refused.value.into_fd()).unwrap().read_exact(&mut [0; 4]).unwrap();

    let (a, b) = pair();
    reactor.submit(edge(a)).unwrap();
    let refused = reactor.submit(edge(b)).unwrap_err();
    let (limit, count) = (Limit::Operations, 1);
    assert_eq!(refused.reason, Refusal::Full { limit, count });
}

fn a_half_close_is_reported_to_who_reads_or_asks_for_it<S: Select + Fresh>() {
    for mode in [Mode::Level, Mode::Edge, Mode::Oneshot] {
        for interest in [Ready::READABLE, Ready::READ_CLOSED] {
            let (socket, peer) = streams();
            let mut reactor = S::fresh();
            reactor.submit(Watch::new(socket, interest).mode(mode)).unwrap();
            assert!(now(&mut reactor).is_empty());
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            let item = only(now(&mut reactor));
            assert_eq!(item.ready, interest | Ready::READ_CLOSED, "{mode:?}");
        }
    }
}

/// A level would report it in every wait, and a watch without reads could not end that.
fn a_half_close_is_not_reported_to_a_watch_that_does_not_read<S: Select + Fresh>() {
    if S::NAME == "kqueue" {
        // Its filters tell of it unasked.
        return;
    }
    for mode in [Mode::Level, Mode::Edge, Mode::Oneshot] {
        for interest in [Ready::NONE, Ready::PRIORITY] {
            let (socket, peer) = streams();
            let mut reactor = S::fresh();
            reactor.submit(Watch::new(socket, interest).mode(mode)).unwrap();
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(now(&mut reactor).is_empty(), "{mode:?}, {interest:?}");
            // A hang-up is reported to every watch. On TCP the half-close has reported it.
            drop(peer);
            #[cfg(unix)]
            assert!(only(now(&mut reactor)).ready.contains(Ready::HANGUP), "{mode:?}");
        }
    }
}

fn another_thread_ends_the_wait<S: Select + Fresh>() {
    let mut reactor = S::fresh();
    let mut items = Completions::new();
    let waker = reactor.waker();
    waker.wake();
    waker.clone().wake();
    assert_eq!(wait_for(&mut reactor, &mut items, "a wake that came before"), 0);
    for _ in 0..50 {
        let waker = waker.clone();
        let thread = thread::spawn(move || waker.wake());
        assert_eq!(wait_for(&mut reactor, &mut items, "a wake of another thread"), 0);
        thread.join().unwrap();
    }
    waker.wake();
    assert_eq!(reactor.complete(Wait::Forever, &mut items).unwrap(), 0);
    assert_eq!(reactor.stale_events(), 0, "a wake is not an event");
}

#[cfg(unix)] // selectors have a descriptor there
#[test]
#[cfg_attr(miri, ignore = "Miri's selectors cannot watch each other")]
fn a_wake_reaches_the_loop_that_the_reactor_is_embedded_in() {
    let mut inner = Reactor::new().unwrap();
    let mut outer = Reactor::new().unwrap();
    outer.submit(Watch::dup(&inner, Ready::READABLE).unwrap()).unwrap();
    let waker = inner.waker();
    for _ in 0..3 {
        waker.wake(); // while it is awake: this costs no system call …
        assert!(now(&mut inner).is_empty());
        assert!(now(&mut outer).is_empty());
        waker.wake(); // … but now the outer loop sleeps
        assert_eq!(now(&mut outer).len(), 1);
        assert!(now(&mut inner).is_empty());
    }
}

fn timeouts_are_never_early<S: Select + Fresh>() {
    let mut reactor = S::fresh();
    let mut items = Completions::new();
    for span_us in [0, 1, 300, 1_500, 10_000] {
        let until = Instant::now() + Duration::from_micros(span_us);
        reactor.wake.wake_without_a_reason(); // the wait goes on
        assert_eq!(reactor.complete(Wait::Until(until), &mut items).unwrap(), 0);
        assert!(Instant::now() >= until, "{span_us} µs");
    }
    let past = Instant::now();
    assert_eq!(reactor.complete(Wait::Until(past), &mut items).unwrap(), 0);
}

fn readiness_ends_a_long_wait<S: Select + Fresh>() {
    let (socket, mut peer) = pair();
    let mut reactor = S::fresh();
    reactor.submit(edge(socket)).unwrap();
    let thread = thread::spawn(move || peer.write_all(b"x").map(|()| peer).unwrap());
    let mut items = Completions::new();
    assert_eq!(wait_for(&mut reactor, &mut items, "a byte of another thread"), 1);
    thread.join().unwrap();
}

#[cfg(unix)] // selectors have a descriptor there
#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn dropping_the_reactor_ends_its_registrations() {
    let (socket, mut peer) = pair();
    let kept = socket.try_clone().unwrap();
    let mut reactor = Reactor::new().unwrap();
    reactor.submit(edge(socket)).unwrap();
    // Another loop holds the selector, other code the file.
    let selector = reactor.as_fd().try_clone_to_owned().unwrap();
    drop(reactor);
    peer.write_all(b"x").unwrap();
    assert!(descriptor::poll_now(selector.as_raw_fd(), Ready::READABLE).unwrap().is_empty());
    drop(kept);
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_forked_child_leaves_its_parents_registrations_alone() {
    let (socket, mut peer) = pair();
    let mut reactor = Reactor::new().unwrap();
    let ticket = reactor.submit(edge(socket)).unwrap();
    let mut reactor = Some(reactor);
    let said = fork::said_by_a_child(|| {
        let mut reactor = reactor.take().expect("it is there");
        let refused = reactor.complete(Wait::Now, &mut Completions::new());
        let forked = refused.is_err_and(|error| Refusal::of(&error) == Some(Refusal::Forked));
        forked
            && !reactor.cancel(ticket)
            && reactor.modify(ticket, Ready::NONE, Mode::Edge) == Err(Refusal::Forked)
    });
    assert_ne!(said, Some(false), "what the child saw");
    let mut reactor = reactor.expect("it is the child's that is gone");
    peer.write_all(b"x").unwrap();
    assert_eq!(only(now(&mut reactor)).ticket, ticket);
}

/// A child that asks for it has a selector of its own, with the same watches; the parent's stays.
#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_forked_child_watches_for_itself() {
    let (socket, mut peer) = pair();
    let (other, _other_peer) = pair();
    let mut reactor = Reactor::new().unwrap();
    let ticket = reactor.submit(edge(socket)).unwrap();
    let quiet = reactor.submit(edge(other)).unwrap();
    let (oneshot, _oneshot_peer) = pair();
    let oneshot = Watch::new(oneshot, Ready::WRITABLE).mode(Mode::Oneshot);
    let resting = reactor.submit(oneshot).unwrap();
    assert_eq!(only(now(&mut reactor)).ticket, resting);
    peer.write_all(b"x").unwrap();
    let mut reactor = Some(reactor);
    let said = fork::said_by_a_child(|| {
        let mut reactor = reactor.take().expect("it is there");
        let mut items = Completions::new();
        let begun = reactor.reinit_after_fork().is_ok() && reactor.reinit_after_fork().is_ok();
        let waited = ended(&mut reactor, &mut items) == Some(1);
        let same = items.drain(..).all(|item| item.ticket == ticket && item.more);
        let waker = reactor.waker();
        waker.wake();
        let woken = ended(&mut reactor, &mut items) == Some(0);
        // A disarmed oneshot stays disarmed; this arms it.
        let armed = reactor.rearm(resting, Ready::WRITABLE).is_ok()
            && ended(&mut reactor, &mut items) == Some(1)
            && items.drain(..).all(|item| item.ticket == resting);
        begun && waited && same && woken && armed && reactor.cancel(quiet)
    });
    assert_ne!(said, Some(false), "what the child saw");
    let mut reactor = reactor.expect("it is the child's that is gone");
    assert_eq!(only(now(&mut reactor)).ticket, ticket);
    assert!(reactor.cancel(quiet), "the child has cancelled its own");
}

#[test]
fn its_types_cross_threads() {
    fn crosses<T: Send>() {}
    fn is_shared<T: Send + Sync + Clone>() {}
    crosses::<Reactor>();
    crosses::<Watch>();
    crosses::<Readiness>();
    is_shared::<Waker>();
}

macro_rules! per_selector {
    ($($(#[$attribute:meta])* $name:ident;)*) => {
        mod on_the_systems {
            $(
                #[test]
                $(#[$attribute])*
                fn $name() {
                    super::$name::<super::Selector>();
                }
            )*
        }
        #[cfg(unix)] // elsewhere it is the system's
        mod on_poll_too {
            $(
                #[test]
                #[cfg_attr(miri, ignore = "Miri has no ppoll(2)")]
                fn $name() {
                    super::$name::<super::Poll>();
                }
            )*
        }
    };
}

per_selector! {
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "Miri has no shutdown(2) for these")]
    own_shutdown_is_no_hang_up;
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "Miri's epoll does not know pipes without a reader")]
    a_pipe_without_its_other_end_is_hung_up;
    #[cfg_attr(miri, ignore = "Miri's epoll knows edges only")]
    a_disarmed_oneshot_reports_nothing;
    #[cfg_attr(miri, ignore = "Miri's epoll knows edges only")]
    an_echo_runs_in_every_mode;
    #[cfg_attr(miri, ignore = "Miri's epoll knows edges only")]
    what_holds_already_is_reported_at_submission_and_modification;
    a_number_that_is_used_again_gets_none_of_its_predecessors_events;
    an_event_whose_watch_has_ended_finds_no_watch;
    a_file_may_be_watched_twice;
    #[cfg_attr(miri, ignore = "Miri has no shutdown(2) for these")]
    a_half_close_is_reported_to_who_reads_or_asks_for_it;
    #[cfg_attr(miri, ignore = "Miri has no shutdown(2) for these")]
    a_half_close_is_not_reported_to_a_watch_that_does_not_read;
    another_thread_ends_the_wait;
    #[cfg_attr(miri, ignore = "a race of 2,000 rounds: too slow")]
    no_signal_of_two_threads_is_lost;
    timeouts_are_never_early;
    readiness_ends_a_long_wait;
}

/// What poll(2) cannot see: bytes were read, and others came before the next wait.
#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll(2)")]
fn an_imitated_edge_is_late_but_not_lost() {
    let (socket, mut peer) = pair();
    let mut ours = socket.try_clone().unwrap();
    let mut reactor = poll();
    reactor.selector.set_patience(Duration::from_millis(1));
    let ticket = reactor.submit(edge(socket)).unwrap();
    let mut items = Completions::new();
    for _ in 0..20 {
        peer.write_all(b"x").unwrap();
        assert!(wait_for(&mut reactor, &mut items, "an edge that may be late") > 0);
        assert!(items.drain(..).all(|item| item.ticket == ticket));
        ours.read_exact(&mut [0]).unwrap();
    }
}

/// As the proactor uses it: a report disarms, `arm` says what is waited for next.
#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll(2)")]
fn what_is_not_armed_is_not_reported() {
    let mut selector = Poll::new(8).unwrap();
    let (a, mut peer) = pair();
    let fd = a.as_raw_fd();
    let select = |selector: &mut Poll| {
        let count = selector.select(Some(0)).unwrap();
        (0..count).map(|i| selector.event(i)).collect::<Vec<_>>()
    };
    selector.arm(fd, 7, None);
    assert_eq!(select(&mut selector), []);
    selector.arm(fd, 7, Some(Ready::READABLE));
    assert_eq!(select(&mut selector), []);
    peer.write_all(b"x").unwrap();
    assert_eq!(select(&mut selector), [(7, Ready::READABLE)]);
    assert_eq!(select(&mut selector), [], "disarmed");
    selector.arm(fd, 8, Some(Ready::READABLE | Ready::WRITABLE));
    assert_eq!(select(&mut selector), [(8, Ready::READABLE | Ready::WRITABLE)]);
    drop(peer);
    assert_eq!(select(&mut selector), [], "not even a hang-up");
    selector.arm(fd, 9, Some(Ready::NONE));
    #[cfg(unix)] // TCP has no hang-up before both sides are shut
    {
        let end = select(&mut selector);
        assert!(matches!(end[..], [(9, ready)] if ready.contains(Ready::HANGUP)), "{end:?}");
    }
    selector.remove(fd).unwrap();
    assert_eq!(os_errno(&selector.remove(fd).unwrap_err()), Some(libc::ENOENT));
}

/// More are ready than one wait takes: the next goes on where it stopped.
#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll(2)")]
fn a_small_batch_starves_no_watch() {
    let mut selector = Poll::new(2).unwrap();
    let sockets: Vec<_> = (0..5).map(|_| pair()).collect();
    for (key, (socket, _)) in sockets.iter().enumerate() {
        selector.add(socket.as_raw_fd(), key as u64, Ready::WRITABLE, Mode::Level).unwrap();
    }
    let mut keys = Vec::new();
    for _ in 0..5 {
        assert_eq!(selector.select(Some(0)).unwrap(), 2);
        keys.extend([0, 1].map(|i| selector.event(i).0));
    }
    assert_eq!(keys, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
}

/// The descriptor that poll(2) does not have.
#[cfg(unix)] // selectors have a descriptor there
#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll(2)")]
fn a_lent_descriptor_follows_what_is_armed() {
    let mut selector = Poll::new(8).unwrap();
    let (a, mut a_peer) = pair();
    let (b, mut b_peer) = pair();
    selector.add(a.as_raw_fd(), 1, Ready::READABLE, Mode::Oneshot).unwrap();
    let lent = selector.pollable().unwrap().try_clone_to_owned().unwrap();
    let tells = || !descriptor::poll_now(lent.as_raw_fd(), Ready::READABLE).unwrap().is_empty();
    assert!(!tells());
    a_peer.write_all(b"x").unwrap();
    assert!(tells());
    assert_eq!(selector.select(Some(0)).unwrap(), 1);
    assert!(!tells(), "a oneshot is disarmed there, too");
    selector.add(b.as_raw_fd(), 2, Ready::READABLE, Mode::Level).unwrap();
    assert!(!tells());
    b_peer.write_all(b"x").unwrap();
    assert!(tells());
    selector.remove(b.as_raw_fd()).unwrap();
    assert!(!tells());
    selector.modify(a.as_raw_fd(), 1, Ready::READABLE, Mode::Level).unwrap();
    assert!(tells());
}
