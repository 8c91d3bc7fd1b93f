//! The changes, receipts and events of a kqueue. No system call is made here, so that every system
//! can test all of it; [`kqueue`](super) makes the calls.
//!
//! A registration is one or two *filters* of a descriptor:
//!
//! ```text
//!                   the filter is there already, with these flags: later, in the next wait
//!   add, modify ──▶ it is not, or with others:                     now, with a receipt
//!                   it is there and no longer wanted:              now, with a receipt
//! ```
//!
//! A change may wait only if no error of it has to be reported at once (kqueue(2): an error of a
//! change is an event with `EV_ERROR`, or is lost where the events have no room for it). The filter
//! for reads is always there: it reports the peer's end in any case.

#![allow(unsafe_code)]
//! # Safety
//!
//! Only a structure of integers is zeroed.

use crate::sys::fd::RawFd;
use crate::sys::interest::{Mode, Ready};

/// The system's structure and names, and the two calls; on Linux, those of a library named `kqueue`
/// with the layout of macOS.
pub(super) mod raw {
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    mod names {
        pub(crate) use libc::{
            EV_ADD, EV_CLEAR, EV_DELETE, EV_EOF, EV_ERROR, EV_ONESHOT, EV_RECEIPT, EVFILT_PROC,
            EVFILT_READ, EVFILT_USER, EVFILT_WRITE, NOTE_EXIT, NOTE_TRIGGER, kevent, kqueue,
        };

        /// Urgent data, which only macOS reports.
        #[cfg(target_vendor = "apple")]
        pub(crate) const OOBAND: Option<u16> = Some(libc::EV_OOBAND);
        #[cfg(not(target_vendor = "apple"))]
        pub(crate) const OOBAND: Option<u16> = None;
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[allow(non_camel_case_types)]
    mod names {
        /// `struct kevent` of macOS.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct kevent {
            pub(crate) ident: usize,
            pub(crate) filter: i16,
            pub(crate) flags: u16,
            pub(crate) fflags: u32,
            pub(crate) data: isize,
            pub(crate) udata: *mut libc::c_void,
        }
        #[cfg(target_pointer_width = "64")]
        const _: () = assert!(size_of::<kevent>() == 32);

        pub(crate) const EVFILT_READ: i16 = -1;
        pub(crate) const EVFILT_WRITE: i16 = -2;
        #[cfg(windlass_kqueue)]
        pub(crate) const EVFILT_PROC: i16 = -5;
        #[cfg(windlass_kqueue)]
        pub(crate) const EVFILT_USER: i16 = -10;
        pub(crate) const EV_ADD: u16 = 0x1;
        pub(crate) const EV_DELETE: u16 = 0x2;
        pub(crate) const EV_ONESHOT: u16 = 0x10;
        pub(crate) const EV_CLEAR: u16 = 0x20;
        pub(crate) const EV_RECEIPT: u16 = 0x40;
        pub(crate) const OOBAND: Option<u16> = Some(0x2000);
        pub(crate) const EV_ERROR: u16 = 0x4000;
        pub(crate) const EV_EOF: u16 = 0x8000;
        #[cfg(windlass_kqueue)]
        pub(crate) const NOTE_EXIT: u32 = 0x8000_0000;
        #[cfg(windlass_kqueue)]
        pub(crate) const NOTE_TRIGGER: u32 = 0x0100_0000;

        #[cfg(windlass_kqueue)]
        #[link(name = "kqueue")]
        unsafe extern "C" {
            pub(crate) fn kqueue() -> libc::c_int;
            pub(crate) fn kevent(
                kq: libc::c_int,
                changes: *const kevent,
                change_count: libc::c_int,
                events: *mut kevent,
                event_count: libc::c_int,
                timeout: *const libc::timespec,
            ) -> libc::c_int;
        }
    }

    pub(crate) use names::*;
}

/// A change or an event.
pub(super) type Kevent = raw::kevent;

/// Builds a change.
pub(super) fn change(ident: usize, filter: i16, flags: u16, fflags: u32, key: u64) -> Kevent {
    // Keys are handed through where a pointer could stand, and have 64 bits.
    const { assert!(size_of::<*mut libc::c_void>() == 8) };
    // SAFETY: a struct of integers and a pointer that is never followed; all zeroes is one. (It has
    // more members on FreeBSD.)
    let mut event: Kevent = unsafe { std::mem::zeroed() };
    event.ident = ident;
    event.filter = filter;
    event.flags = flags;
    event.fflags = fflags;
    event.udata = std::ptr::without_provenance_mut(key as usize);
    event
}

/// Reported for a pipe's write end without readers.
pub(super) const GONE: Ready = Ready::from_bits(Ready::WRITABLE.bits() | Ready::ERROR.bits());

/// The filters of one descriptor, by the flags that they were added with; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    read: u16,
    write: u16,
    /// The conditions that were asked for. Events may report more.
    on: Ready,
    /// A socket, whose directions end one by one.
    pub(super) is_socket: bool,
    /// The directions whose end was reported.
    ended: Ready,
}

impl Known {
    /// The filters for this interest, on a socket or another file.
    pub(super) fn wanted(on: Ready, mode: Mode, is_socket: bool) -> Known {
        let flags = raw::EV_ADD
            | match mode {
                Mode::Level => 0,
                Mode::Edge => raw::EV_CLEAR,
                Mode::Oneshot => raw::EV_ONESHOT,
            };
        // If reads are not asked for, waiting data must not be reported again and again, nor use up
        // the filter before the peer's end comes.
        let reads = on.intersects(Ready::READABLE | Ready::PRIORITY);
        let read = if reads { flags } else { raw::EV_ADD | raw::EV_CLEAR };
        let write = if on.contains(Ready::WRITABLE) { flags } else { 0 };
        Known { read, write, on, is_socket, ended: Ready::NONE }
    }

    pub(super) fn is_registered(&self) -> bool {
        self.read | self.write != 0
    }

    /// Removes a filter that the descriptor does not have.
    pub(super) fn drop_filter(&mut self, filter: i16) {
        if filter == raw::EVFILT_READ {
            self.read = 0;
        } else {
            self.write = 0;
        }
    }
}

/// The changes from one registration to another: those to make now, and those that may wait.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) now: Vec<Kevent>,
    pub(super) later: Vec<Kevent>,
}

pub(super) fn plan(fd: RawFd, key: u64, from: Known, to: Known) -> Plan {
    let mut plan = Plan::default();
    let receipt = raw::EV_RECEIPT;
    for (filter, from, to) in
        [(raw::EVFILT_READ, from.read, to.read), (raw::EVFILT_WRITE, from.write, to.write)]
    {
        let change = |flags| change(fd as usize, filter, flags, 0, key);
        if from != 0 && from == to {
            plan.later.push(change(to));
            continue;
        }
        // Adding a filter that exists would leave its flags as they are.
        if from != 0 {
            plan.now.push(change(raw::EV_DELETE | receipt));
        }
        if to != 0 {
            plan.now.push(change(to | receipt));
        }
    }
    plan
}

/// The outcome of one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    Done,
    /// The pipe to be written has no reader any more (macOS, FreeBSD): that is an event.
    Gone,
    /// The descriptor has no such direction.
    Absent,
    Failed(i32),
}

/// Reads the receipt of a change.
pub(super) fn receipt(change: &Kevent, answer: &Kevent) -> Receipt {
    let errno = answer.data as i32;
    if answer.flags & raw::EV_ERROR == 0 || errno == 0 {
        return Receipt::Done;
    }
    let deletes = change.flags & raw::EV_DELETE != 0;
    match errno {
        // The filter was used up (EV_ONESHOT), or went with its descriptor.
        libc::ENOENT | libc::EBADF if deletes => Receipt::Done,
        libc::EPIPE if change.filter == raw::EVFILT_WRITE => Receipt::Gone,
        libc::EINVAL => Receipt::Absent,
        _ => Receipt::Failed(errno),
    }
}

impl Known {
    /// The conditions that an event reports for this descriptor, or `None`. A file's end is not
    /// among them: a read finds it, after the remaining bytes.
    pub(super) fn conditions(&mut self, event: &Kevent) -> Option<Ready> {
        let flags = event.flags;
        let told = if flags & raw::EV_ERROR != 0 {
            // A deferred change has failed: the waiting operation tries, and gets the error.
            match event.data as i32 {
                0 => Ready::NONE,
                libc::EPIPE if event.filter == raw::EVFILT_WRITE => GONE,
                _ => Ready::ERROR,
            }
        } else {
            let reads = event.filter == raw::EVFILT_READ;
            let own = if reads { Ready::READABLE } else { Ready::WRITABLE };
            let mut told = own;
            if flags & raw::EV_EOF != 0 {
                self.ended |= own;
                told |= self.end(reads);
                // The end carries the socket's error.
                told |= if event.fflags != 0 { Ready::ERROR } else { Ready::NONE };
            }
            if raw::OOBAND.is_some_and(|bit| flags & bit != 0) {
                told |= Ready::PRIORITY;
            }
            told
        };
        let told = told.intersection(self.on | Ready::ALWAYS | Ready::READ_CLOSED);
        (!told.is_empty()).then_some(told)
    }

    /// The conditions at the end of a direction. The write direction also ends with the socket's
    /// own shutdown, so the socket is hung up only when the read direction has ended, too.
    fn end(&self, reads: bool) -> Ready {
        let both = Ready::READABLE | Ready::WRITABLE;
        let hung_up = !self.is_socket || self.ended.contains(both);
        let half = if reads { Ready::READ_CLOSED } else { Ready::NONE };
        if hung_up { half | Ready::HANGUP } else { half }
    }
}

/// The key that an event carries.
pub(super) fn key_of(event: &Kevent) -> u64 {
    event.udata.addr() as u64
}

/// Makes one event of all events with the same key: each filter reports its own.
pub(super) fn merge(found: &mut Vec<(u64, Ready)>) {
    found.sort_by_key(|(key, _)| *key);
    found.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 |= next.1;
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn modes() -> impl Strategy<Value = Mode> {
        prop_oneof![Just(Mode::Level), Just(Mode::Edge), Just(Mode::Oneshot)]
    }

    fn interests() -> impl Strategy<Value = Ready> {
        any::<u16>().prop_map(Ready::from_bits)
    }

    /// The filters of one kqueue, as the kernel keeps them: adding a filter that exists changes
    /// only its key, deleting one that does not is ENOENT.
    #[derive(Default)]
    struct FilterTable(HashMap<(usize, i16), (u16, u64)>);

    impl FilterTable {
        fn take(&mut self, change: &Kevent) -> Kevent {
            let name = (change.ident, change.filter);
            let mut answer = *change;
            answer.flags = raw::EV_ERROR;
            answer.data = 0;
            if change.flags & raw::EV_DELETE != 0 {
                if self.0.remove(&name).is_none() {
                    answer.data = libc::ENOENT as _;
                }
            } else {
                let flags = change.flags & !(raw::EV_RECEIPT);
                self.0.entry(name).or_insert((flags, 0)).1 = key_of(change);
            }
            answer
        }
    }

    proptest! {
        /// After any registrations, also after the kernel has used up filters, the kernel has the
        /// filters that the last registration wants, and each new filter has a receipt.
        #[test]
        fn the_kernel_ends_with_what_is_wanted(
            steps in prop::collection::vec(
                (0..4i32, interests(), modes(), any::<u64>(), any::<bool>()),
                1..40,
            ),
        ) {
            let mut kernel = FilterTable::default();
            let mut known: HashMap<i32, Known> = HashMap::new();
            for (fd, on, mode, key, used_up) in steps {
                let from = known.get(&fd).copied().unwrap_or_default();
                if used_up {
                    kernel.0.retain(|(ident, _), (flags, _)| {
                        *ident != fd as usize || *flags & raw::EV_ONESHOT == 0
                    });
                }
                let to = match on.is_empty() {
                    true => Known::default(),
                    false => Known::wanted(on, mode, true),
                };
                let Plan { now, later } = plan(fd, key, from, to);
                for change in &now {
                    prop_assert!(change.flags & raw::EV_RECEIPT != 0);
                    let answer = kernel.take(change);
                    prop_assert_eq!(receipt(change, &answer), Receipt::Done);
                }
                for change in &later {
                    prop_assert!(change.flags & (raw::EV_RECEIPT | raw::EV_DELETE) == 0);
                    prop_assert!(from.is_registered(), "what is new cannot wait");
                    prop_assert_eq!(kernel.take(change).data, 0);
                }
                known.insert(fd, to);
                let has = |filter| kernel.0.get(&(fd as usize, filter)).copied();
                let wants = |flags: u16| (flags != 0).then_some((flags, key));
                prop_assert_eq!(has(raw::EVFILT_READ), wants(to.read));
                prop_assert_eq!(has(raw::EVFILT_WRITE), wants(to.write));
            }
        }

        /// An event reports the conditions that were asked for, and those that are always reported,
        /// under its key.
        #[test]
        fn events_tell_what_was_asked_for(
            on in interests(),
            writes in any::<bool>(),
            flags in any::<u16>(),
            fflags in any::<u32>(),
            data in prop_oneof![any::<i32>(), Just(0), Just(libc::EPIPE)],
            key in any::<u64>(),
            is_socket in any::<bool>(),
            before in prop::sample::select(vec![Ready::NONE, Ready::READABLE, Ready::WRITABLE]),
        ) {
            let filter = if writes { raw::EVFILT_WRITE } else { raw::EVFILT_READ };
            let mut event = change(3, filter, flags, fflags, key);
            event.data = data as _;
            prop_assert_eq!(key_of(&event), key);
            let mut known = Known::wanted(on, Mode::Edge, is_socket);
            known.ended = before;
            let told = known.conditions(&event).unwrap_or(Ready::NONE);
            let ended = flags & raw::EV_EOF != 0;
            if flags & raw::EV_ERROR != 0 {
                let failed = if writes && data == libc::EPIPE {
                    GONE.intersection(on | Ready::ERROR)
                } else {
                    Ready::ERROR
                };
                prop_assert_eq!(told, if data == 0 { Ready::NONE } else { failed });
            } else {
                let own = if writes { Ready::WRITABLE } else { Ready::READABLE };
                let other = if writes { Ready::READABLE } else { Ready::WRITABLE };
                prop_assert_eq!(told.contains(own), on.contains(own));
                prop_assert!(!told.intersects(other));
                prop_assert_eq!(told.contains(Ready::READ_CLOSED), ended && !writes);
                // On a socket whose other direction has already ended.
                let hung_up = !is_socket || before == other;
                prop_assert_eq!(told.contains(Ready::HANGUP), ended && hung_up);
                prop_assert_eq!(told.contains(Ready::ERROR), ended && fflags != 0);
            }
        }

        /// Merging loses and invents nothing, and leaves each key once.
        #[test]
        fn a_key_has_one_event(events in prop::collection::vec((0..9u64, interests()), 0..30)) {
            let mut wanted: HashMap<u64, Ready> = HashMap::new();
            for (key, ready) in &events {
                *wanted.entry(*key).or_default() |= *ready;
            }
            let mut found = events;
            merge(&mut found);
            prop_assert_eq!(found.len(), wanted.len());
            prop_assert_eq!(found.into_iter().collect::<HashMap<_, _>>(), wanted);
        }
    }

    /// A direction that the descriptor does not have is not registered.
    #[test]
    fn filters_can_be_absent() {
        let mut known = Known::wanted(Ready::READABLE | Ready::WRITABLE, Mode::Edge, true);
        assert_eq!(plan(3, 1, Known::default(), known).now.len(), 2);
        known.drop_filter(raw::EVFILT_READ);
        assert!(known.is_registered());
        let left = plan(3, 1, known, Known::default()).now;
        assert!(matches!(left[..], [change] if change.filter == raw::EVFILT_WRITE));
        known.drop_filter(raw::EVFILT_WRITE);
        assert!(!known.is_registered());
    }

    /// Each error of a change is its own.
    #[test]
    fn receipts_are_told_apart() {
        let answered = |filter, flags, errno: i32| {
            let asked = change(3, filter, flags | raw::EV_RECEIPT, 0, 1);
            let mut answer = asked;
            answer.flags |= raw::EV_ERROR;
            answer.data = errno as _;
            receipt(&asked, &answer)
        };
        let (read, write) = (raw::EVFILT_READ, raw::EVFILT_WRITE);
        assert_eq!(answered(read, raw::EV_ADD, 0), Receipt::Done);
        for errno in [libc::ENOENT, libc::EBADF] {
            assert_eq!(answered(write, raw::EV_DELETE, errno), Receipt::Done);
            assert_eq!(answered(write, raw::EV_ADD, errno), Receipt::Failed(errno));
        }
        assert_eq!(answered(write, raw::EV_ADD, libc::EPIPE), Receipt::Gone);
        assert_eq!(answered(read, raw::EV_ADD, libc::EPIPE), Receipt::Failed(libc::EPIPE));
        assert_eq!(answered(read, raw::EV_ADD, libc::EINVAL), Receipt::Absent);
        assert_eq!(answered(read, raw::EV_ADD, libc::ENOMEM), Receipt::Failed(libc::ENOMEM));
    }
}
