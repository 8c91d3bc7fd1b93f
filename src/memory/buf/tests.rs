//! Buffers: bytes that go in come out, whole or in parts.

use std::cell::RefCell;

use super::*;

#[test]
fn a_read_fills_the_whole_capacity_of_a_vec_and_can_be_repeated() {
    let mut buf = Buf::from(vec![9; 4]);
    for text in ["abcd", "xy", "1234"] {
        let n = buf.target(0, usize::MAX).write(text.as_bytes());
        // SAFETY: `n` bytes were written right above.
        unsafe { buf.set_filled(n) };
        assert_eq!(&*buf, text.as_bytes());
        assert_eq!(buf.capacity(), 4);
    }
}

#[test]
fn lists_are_filled_in_order() {
    let mut buf = Buf::list([vec![0; 3], vec![0; 2]]);
    let mut targets = Target::nones(8);
    let count = buf.targets(1, usize::MAX, &mut targets);
    assert_eq!(targets[..count].iter().map(Target::len).collect::<Vec<_>>(), [2, 2]);
    targets[0].write(b"bc");
    targets[1].write(b"d");
    buf.target(0, 1);
    // SAFETY: byte 0 was initialised by `vec!`, the others right above.
    unsafe { buf.set_filled(4) };
    assert_eq!(buf.parts()[0].len(), 3);
    assert_eq!(&*buf.parts()[1], b"d");
    assert_eq!(buf.into_vec(), b"\0bcd");
}

#[test]
fn a_read_fills_the_whole_capacity_of_an_aligned_buffer_alone_or_in_a_list() {
    let mut buf = Buf::from(AlignedBuf::with_capacity(1, 512));
    let n = buf.target(510, usize::MAX).write(b"abc");
    assert_eq!(n, 2);
    // SAFETY: the buffer was zeroed when made.
    unsafe { buf.set_filled(512) };
    assert_eq!(&buf[510..], b"ab");
    let mut list = Buf::list([Buf::from(vec![0; 3]), buf]);
    assert_eq!(list.capacity(), 515);
    let mut targets = Target::nones(8);
    let count = list.targets(0, usize::MAX, &mut targets);
    assert_eq!(targets[..count].iter().map(Target::len).collect::<Vec<_>>(), [3, 512]);
    // SAFETY: all bytes are initialised, see above.
    unsafe { list.set_filled(4) };
    let mut parts = list.into_parts();
    assert_eq!(parts.len(), 2);
    assert!(parts.next().unwrap().into_aligned().is_err());
    assert_eq!(parts.next().unwrap().into_aligned().unwrap().len(), 1);
    assert!(parts.next().is_none());
}

#[test]
fn owners_are_borrowed_once_and_dropped_once() {
    struct Counted(#[allow(dead_code)] Arc<()>, [u8; 3]);
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }
    let alive = Arc::new(());
    let buf = Buf::from_owner(Counted(alive.clone(), *b"own"));
    assert_eq!(&*buf, b"own");
    drop(buf);
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// The bytes that a lease keeps unique stay so on their way through a buffer, and no others.
#[test]
fn a_unique_lease_goes_through_a_buffer() {
    let mut pool = Pool::new(1 << 10, 256, std::sync::Arc::new(|| {}));
    let mut lease = pool.copy(b"0123456789").expect("room");
    let tail = lease.split_off(6);
    let mut part = Buf::from(lease).slice(2..).into_lease_mut().expect("unique");
    part.make_ascii_uppercase();
    part[0] = b'x';
    assert_eq!((&*part, &*tail), (&b"x345"[..], &b"6789"[..]));
    let whole = part.try_join(tail).expect("they touch");
    let shared = Buf::from(whole).into_lease().expect("a lease");
    assert_eq!(&*shared, b"x3456789");
    let shared = Buf::from(shared);
    assert!(shared.is_lease() && !shared.is_unique_lease());
    assert_eq!(&*shared.into_lease_mut().expect_err("it was shared"), b"x3456789");
    assert!(Buf::from("static").into_lease_mut().is_err() && Buf::NONE.into_lease_mut().is_err());
}

/// Parts of every owner, and parts of those: the owner goes once.
#[test]
fn parts_keep_their_owners() {
    let shared: Arc<[u8]> = Arc::from(&b"0123456789"[..]);
    let bufs = [
        Buf::from(shared.to_vec()),
        Buf::from(Arc::clone(&shared)),
        Buf::from(AlignedBuf::from_slice(&shared, 512)),
        Buf::from_owner(Arc::clone(&shared)),
        Buf::from("0123456789"),
    ];
    for buf in bufs {
        let part = buf.slice(1..9).slice(2..).slice(..3);
        assert_eq!((&*part, part.capacity()), (&b"345"[..], 0));
        assert!(part.slice(1..1).is_empty());
    }
    assert_eq!(Arc::strong_count(&shared), 1);
    let whole = Buf::from(vec![7; 3]).slice(..);
    assert_eq!(whole.capacity(), 3, "the whole is the vector");
}

/// A list of lists is a list of their parts. The parts that were not taken out are dropped.
#[test]
fn lists_are_flat_and_their_parts_come_out() {
    let alive: Arc<[u8]> = Arc::from(&b"alive"[..]);
    let shared = || Buf::from(Arc::clone(&alive));
    let inner = Buf::list([shared(), Buf::from("b"), shared()]);
    let list = Buf::list([Buf::from("a"), inner, Buf::list::<Buf>([]), shared()]);
    assert_eq!((list.parts().len(), list.len()), (5, 17));
    let mut parts = list.into_parts();
    assert_eq!(&*parts.next().unwrap(), b"a");
    assert_eq!(&*parts.next().unwrap(), b"alive");
    assert_eq!(parts.len(), 3);
    drop(parts);
    assert_eq!(Arc::strong_count(&alive), 1);
    let mut single = shared().into_parts();
    assert_eq!((&*single.next().unwrap(), single.len()), (&b"alive"[..], 0));
    assert_eq!(Buf::list::<Buf>([]).into_parts().len(), 0);
}

/// A list may outlive the vectors that its thread has kept: it is dropped while the thread ends.
#[test]
fn a_list_can_go_with_its_thread() {
    struct Last(Option<Buf>);
    impl Drop for Last {
        fn drop(&mut self) {
            drop(self.0.take());
            drop(Buf::list(["made", "late"]));
        }
    }
    thread_local! {
        static LAST: RefCell<Last> = const { RefCell::new(Last(None)) };
    }
    let alive: Arc<[u8]> = Arc::from(&b"alive"[..]);
    let buf = Buf::from(Arc::clone(&alive));
    let thread = std::thread::spawn(move || {
        // Whichever of the two is made first goes last.
        LAST.with_borrow_mut(|last| last.0 = Some(Buf::list([buf, Buf::from("b")])));
        drop(Buf::list(["a", "b"]));
    });
    thread.join().unwrap();
    assert_eq!(Arc::strong_count(&alive), 1);
}
