//! The framing allocates nothing while frames arrive whole, nor does the `Write` of a connection.

use std::io::{Read, Write};

use crate::alloc;
use windlass::net::ListenOptions;
use windlass::{Completions, Watcher};
use windlass_serve::framing::{Decoder, Delimited, Ending, Error, Input, Lines, Prefix, Prefixed};

use windlass_serve::{Config, Engine, Event};

/// How many allocations `work` makes.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = alloc::allocations();
    work();
    alloc::allocations() - before
}

/// Leases of `bytes`, which have frames in them, decoded again and again, by an input that charges
/// a connection.
fn whole(bytes: &[u8], frames: usize, mut decoder: impl Decoder<Error = Error>) -> u64 {
    let mut watcher = Watcher::new().expect("a watcher");
    let mut engine = Engine::<()>::new(Config::new());
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
    let id = engine.connect([address], Default::default(), ()).expect("room");
    let mut input = Input::new();
    let count = allocations(|| input.charge_to(engine.hold(id, 0)));
    assert_eq!(count, 0, "an idle connection has only a reference");
    let mut round = || {
        let fill = |space: &mut [u8]| {
            space[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        };
        input.push(watcher.lease(fill).expect("a lease"));
        let mut found = 0;
        while let Some(frame) = input.next(&mut decoder).expect("frames") {
            found += 1;
            // One by its bytes, one as a part of the lease.
            if found % 2 == 0 {
                assert!(frame.into_buf().is_lease());
            }
        }
        assert_eq!(found, frames);
        assert_eq!(engine.budget().used(), 0);
    };
    round(); // the first lease allocates its swap buffer
    allocations(|| (0..100).for_each(|_| round()))
}

#[test]
fn frames_that_arrive_whole_allocate_nothing() {
    assert_eq!(whole(b"GET a\r\nGET b\r\n\r\n", 3, Lines::with_ending(Ending::CrLf, 100)), 0);
    assert_eq!(whole(b"a: b\r\n\r\n\r\n\r\n", 2, Delimited::new(b"\r\n\r\n", 100)), 0);
    assert_eq!(whole(b"\0\0\0\x02ab\0\0\0\0", 2, Prefixed::new(Prefix::U32Be, 100)), 0);
    assert_eq!(whole(b"\x81\0a\x02bc", 2, Prefixed::new(Prefix::Varint, 100)), 0);
    // The count counts.
    assert_eq!(allocations(|| drop(Vec::<u8>::with_capacity(1))), 1);
}

#[test]
fn encoding_into_memory_that_is_there_allocates_nothing() {
    let mut out = Vec::with_capacity(100);
    let count = allocations(|| {
        Lines::new(10).encode(b"line", &mut out).expect("a line");
        Delimited::new(b"--", 10).encode(b"part", &mut out).expect("a part");
        Prefixed::new(Prefix::Varint, 10).encode(b"frame", &mut out).expect("a frame");
    });
    assert_eq!((count, &*out), (0, &b"line\npart--\x05frame"[..]));
}

/// The memory of the first turn serves all others.
#[test]
fn the_write_of_a_connection_allocates_nothing() {
    let mut watcher = Watcher::new().expect("a watcher");
    let mut engine = Engine::<()>::new(Config::new());
    let at = ([127, 0, 0, 1], 0);
    let listener = engine.listen(&mut watcher, at, ListenOptions::default()).expect("a listener");
    let address = watcher.local_address(engine.listeners()[listener]).expect("its address");
    let mut client = std::net::TcpStream::connect(address.ip().expect("an address")).unwrap();
    let mut done = Completions::new();
    let id = loop {
        watcher.wait(&mut done).expect("a wait");
        let mut batch = done.visit();
        if let Some(Event::Opened { id, .. }) = engine.next_event_in(&mut watcher, &mut batch) {
            break id;
        }
    };
    let text = "length 12\r\n<>".repeat(20);
    let mut round = || {
        let count = allocations(|| {
            for _ in 0..20 {
                let mut writer = engine.writer(id);
                write!(writer, "length {}\r\n", 12).expect("room");
                let parts = [b"<".as_slice(), b">"].map(std::io::IoSlice::new);
                assert_eq!(writer.write_vectored(&parts).expect("room"), 2);
            }
        });
        engine.flush(&mut watcher);
        let mut heard = vec![0; text.len()];
        client.read_exact(&mut heard).expect("an answer");
        assert_eq!(heard, text.as_bytes());
        count
    };
    round();
    assert_eq!((0..100).map(|_| round()).sum::<u64>(), 0);
}
