//! The selector on Linux: epoll(7). Its contract stands in [`crate::sys`].

#![allow(unsafe_code)]
//! # Safety
//!
//! The kernel writes at most as many events as the vector has capacity for, and says how many.
//!
//! Without epoll_pwait2 a timerfd in the wait gives timeouts their nanoseconds. We remove its event
//! from the list and refill its place, so that a full list still means that there may be more
//! events.

use std::io;
use std::sync::Arc;

use crate::sys::descriptor;
use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use crate::sys::interest::{Mode, Ready};
use crate::sys::monotonic::ms_up;
use crate::sys::waker::{SharedWake, WakeFd};
use crate::sys::{Select, cvt, os_errno, os_error, step};

/// An epoll instance and the events of its last `select`.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    timeouts: Timeouts,
}

/// The key of the timer's event: not the name of any source or watch.
const TIMER: u64 = u64::MAX - 2;

/// How a wait times out.
enum Timeouts {
    /// epoll_pwait2.
    Nanoseconds,
    /// A timerfd, where the kernel lacks epoll_pwait2 (before 5.11) or a filter denies it, and
    /// whether it is set. Each expiry is an edge, so it is never read.
    Timer(OwnedFd, bool),
    /// Milliseconds, without a timerfd, too.
    Milliseconds,
}

fn bits(interest: Ready, mode: Mode) -> u32 {
    let mode = match mode {
        Mode::Level => 0,
        Mode::Edge => libc::EPOLLET as u32,
        Mode::Oneshot => libc::EPOLLONESHOT as u32,
    };
    // A watch without reads cannot end a half-close, which a level would report for ever.
    let half_close =
        if interest.intersects(Ready::READABLE) { Ready::READ_CLOSED } else { Ready::NONE };
    // epoll's conditions have poll(2)'s values.
    u32::from((interest | half_close).bits()) | mode
}

impl Select for Epoll {
    const NAME: &'static str = "epoll";
    const REGISTRATION: &'static str =
        "once per descriptor, at its first EAGAIN or before it: edge-triggered, for life";
    const EDGES: bool = true;
    const FORGETS_CLOSED: bool = true;

    fn new(capacity: usize) -> io::Result<Epoll> {
        // SAFETY: no memory is passed.
        let made = cvt!(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
        let fd = made.map_err(|error| step::at("epoll_create1(2)", error))?;
        // SAFETY: a fresh descriptor without another owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let capacity = capacity.clamp(1, 1 << 16);
        let timeouts = if cfg!(miri) { Timeouts::Milliseconds } else { Timeouts::Nanoseconds };
        Ok(Epoll { fd, events: Vec::with_capacity(capacity), timeouts })
    }

    /// Every write to it is an edge, so it is never read.
    fn waker(&mut self, key: u64) -> io::Result<SharedWake> {
        let fd = WakeFd::new()?;
        self.add(fd.raw(), key, Ready::READABLE, Mode::Edge)
            .map_err(|error| step::at("epoll_ctl(2)", error))?;
        Ok(Arc::new(fd))
    }

    fn add(&mut self, fd: RawFd, key: u64, on: Ready, mode: Mode) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, key, bits(on, mode))
    }

    fn modify(&mut self, fd: RawFd, key: u64, on: Ready, mode: Mode) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, key, bits(on, mode))
    }

    fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.events.clear();
        let mut count = match (timeout_ns, &self.timeouts) {
            (None, Timeouts::Timer(_, true)) => self.set_timer(0).map_or(-1, |()| self.wait_ms(-1)),
            (None, _) => self.wait_ms(-1),
            (Some(0), _) => self.wait_ms(0),
            (Some(ns), Timeouts::Nanoseconds) => self.wait_ns(ns),
            (Some(ns), Timeouts::Timer(..)) => self.set_timer(ns).map_or(-1, |()| self.wait_ms(-1)),
            (Some(ns), Timeouts::Milliseconds) => self.wait_ms(ms_up(ns)),
        };
        let errno = |count| if count < 0 { os_errno(&io::Error::last_os_error()) } else { None };
        // EPERM is what seccomp filters answer that do not know the call.
        if matches!(errno(count), Some(libc::ENOSYS | libc::EPERM))
            && matches!(self.timeouts, Timeouts::Nanoseconds)
        {
            if let Some(timeouts) = self.make_timer() {
                self.timeouts = timeouts;
                return self.select(timeout_ns);
            }
            // There is no descriptor for a timer now: milliseconds do for this wait.
            count = self.wait_ms(timeout_ns.map_or(-1, ms_up));
        }
        if let Some(errno) = errno(count) {
            return if errno == libc::EINTR { Ok(0) } else { Err(os_error(errno)) };
        }
        let count = count as usize;
        // SAFETY: the kernel has written the first `count` events, at most the capacity.
        unsafe { self.events.set_len(count) };
        if matches!(self.timeouts, Timeouts::Timer(_, true)) {
            self.leave_timer_out();
        }
        Ok(self.events.len())
    }

    #[inline]
    fn event(&self, i: usize) -> (u64, Ready) {
        let event = self.events[i];
        (event.u64, Ready::from_bits(event.events as u16))
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn explain(&self) -> (&'static str, &'static str) {
        match self.timeouts {
            Timeouts::Nanoseconds => {
                ("epoll_pwait2", "timeouts have nanosecond precision (Linux 5.11)")
            }
            Timeouts::Timer(..) => (
                "epoll_wait, timerfd",
                "epoll_pwait2 is missing or denied: a timer gives timeouts nanosecond precision",
            ),
            Timeouts::Milliseconds => (
                "epoll_wait",
                "epoll_pwait2 and timerfd are missing or denied: timeouts round up to milliseconds",
            ),
        }
    }
}

impl Epoll {
    fn control(&self, what: i32, fd: RawFd, key: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: `event` lives across the call.
        cvt!(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), what, fd, &mut event) })?;
        Ok(())
    }

    /// A timer in the wait, or milliseconds if the system has no timerfd. `None` if it is short of
    /// something.
    #[cold]
    fn make_timer(&self) -> Option<Timeouts> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        let edge = (libc::EPOLLIN | libc::EPOLLET) as u32;
        // SAFETY: no memory is passed.
        let timer = cvt!(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) });
        let made = timer.and_then(|fd| {
            // SAFETY: a fresh descriptor without another owner.
            let timer = unsafe { OwnedFd::from_raw_fd(fd) };
            self.control(libc::EPOLL_CTL_ADD, timer.as_raw_fd(), TIMER, edge)?;
            Ok(Timeouts::Timer(timer, false))
        });
        match made.map_err(|error| os_errno(&error)) {
            Ok(timer) => Some(timer),
            Err(Some(libc::ENOSYS | libc::EPERM | libc::EINVAL)) => Some(Timeouts::Milliseconds),
            Err(_) => None,
        }
    }

    /// Sets the timer to expire in `ns` nanoseconds; 0 is never.
    fn set_timer(&mut self, ns: u64) -> Option<()> {
        let Timeouts::Timer(timer, is_set) = &mut self.timeouts else { return None };
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // Clamped to the range of the kernel's clock.
        let value = descriptor::timespec(ns.min(i64::MAX as u64));
        let spec = libc::itimerspec { it_interval: never, it_value: value };
        let (fd, old) = (timer.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: `spec` lives across the call.
        let answer = unsafe { libc::timerfd_settime(fd, 0, &raw const spec, old) };
        *is_set = ns != 0;
        (answer == 0).then_some(())
    }

    /// Removes the timer's event, and looks for another event if the list was full.
    #[cold]
    fn leave_timer_out(&mut self) {
        let Some(at) = self.events.iter().position(|event| event.u64 == TIMER) else { return };
        let was_full = self.events.len() == self.events.capacity();
        self.events.remove(at);
        if let Timeouts::Timer(_, is_set) = &mut self.timeouts {
            *is_set = false;
        }
        if was_full {
            let len = self.events.len();
            let room = self.events.spare_capacity_mut();
            let start = room.as_mut_ptr().cast::<libc::epoll_event>();
            // SAFETY: room for one event.
            let more = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), start, 1, 0) };
            // SAFETY: the kernel has written the event, if there was one.
            unsafe { self.events.set_len(len + usize::from(more == 1)) };
        }
    }

    #[inline]
    fn wait_ms(&mut self, ms: i32) -> i32 {
        let (events, most) = (self.events.as_mut_ptr(), self.events.capacity() as i32);
        // SAFETY: room for `most` events.
        unsafe { libc::epoll_wait(self.fd.as_raw_fd(), events, most, ms) }
    }

    fn wait_ns(&mut self, ns: u64) -> i32 {
        let timeout = descriptor::timespec(ns);
        let (events, most) = (self.events.as_mut_ptr(), self.events.capacity() as i32);
        // SAFETY: room for `most` events; the timeout lives across the call; no signal mask.
        unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                events,
                most,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            ) as i32
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    fn timer(epoll: &Epoll) -> Timeouts {
        epoll.make_timer().expect("descriptors are left")
    }

    fn falls_back(to: fn(&Epoll) -> Timeouts, capacity: usize) -> Epoll {
        let mut epoll = Epoll::new(capacity).unwrap();
        epoll.timeouts = to(&epoll);
        epoll
    }

    /// Waits for `ns` without any event.
    fn wait(epoll: &mut Epoll, ns: u64) -> Duration {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if epoll.select(Some(ns)).unwrap() == 0 {
                return start.elapsed();
            }
        }
        panic!("no end of a wait of {ns} ns");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no such timers")]
    fn no_fallback_ends_a_wait_early() {
        type Fallback = (fn(&Epoll) -> Timeouts, &'static str);
        let fallbacks: [Fallback; 2] =
            [(timer, "timer"), (|_| Timeouts::Milliseconds, "milliseconds")];
        for (to, name) in fallbacks {
            let mut epoll = falls_back(to, 4);
            for ns in [1, 999_999, 1_000_001, 1_500_000, 1_999_999, 2_000_000] {
                for _ in 0..5 {
                    let took = wait(&mut epoll, ns);
                    assert!(took >= Duration::from_nanos(ns), "{name}: {took:?} of {ns} ns");
                }
            }
        }
    }

    /// Why there is no mode of edge and oneshot together: random programs cannot tell it from
    /// oneshot, because arming reports what holds, and a report disarms both.
    #[test]
    #[cfg_attr(miri, ignore = "Miri's epoll knows edges only")]
    fn edge_and_oneshot_together_are_oneshot() {
        let on = Ready::READABLE | Ready::WRITABLE;
        let flags = [bits(on, Mode::Oneshot), bits(on, Mode::Oneshot) | bits(on, Mode::Edge)];
        assert_ne!(flags[0], flags[1]);
        let (mut reports, mut silences) = (0, 0);
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            let mut peer = Some(theirs.try_clone().unwrap());
            ours.set_nonblocking(true).unwrap();
            theirs.set_nonblocking(true).unwrap();
            let mut both = [0, 1].map(|_| Epoll::new(4).unwrap());
            for (epoll, flags) in both.iter_mut().zip(flags) {
                epoll.control(libc::EPOLL_CTL_ADD, ours.as_raw_fd(), 7, flags).unwrap();
            }
            for step in 0..100 {
                match random.u8(..100) {
                    0..30 => drop(theirs.write(&vec![1; random.usize(1..100)])),
                    30..50 => drop(ours.read(&mut vec![0; random.usize(1..200)])),
                    50..55 => drop(ours.write(&[1; 100_000])),
                    55..60 => drop(theirs.read(&mut [0; 200_000])),
                    60 => drop(peer.take().map(|peer| peer.shutdown(Shutdown::Write))),
                    61..80 => {
                        for (epoll, flags) in both.iter().zip(flags) {
                            epoll.control(libc::EPOLL_CTL_MOD, ours.as_raw_fd(), 7, flags).unwrap();
                        }
                    }
                    _ => {
                        let told = both.each_mut().map(|epoll| {
                            let count = epoll.select(Some(0)).unwrap();
                            (0..count).map(|i| epoll.event(i)).collect::<Vec<_>>()
                        });
                        assert_eq!(told[0], told[1], "seed {seed}, step {step}");
                        reports += told[0].len();
                        silences += usize::from(told[0].is_empty());
                    }
                }
            }
        }
        assert!(reports > 1000 && silences > 200, "{reports} reports, {silences} silences");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no such timers")]
    fn the_timer_waits_for_parts_of_a_millisecond() {
        let mut epoll = falls_back(timer, 4);
        for _ in 0..100 {
            let took = wait(&mut epoll, 100_000);
            assert!(took >= Duration::from_micros(100), "{took:?}");
        }
    }

    /// A full list still means that there may be more events when it contained the timer's event.
    #[test]
    #[cfg_attr(miri, ignore = "it has no such timers")]
    fn the_timers_event_is_hidden_and_takes_no_room() {
        let mut epoll = falls_back(timer, 2);
        let bells: Vec<WakeFd> = (0..3).map(|_| WakeFd::new().unwrap()).collect();
        epoll.set_timer(1).unwrap();
        let Timeouts::Timer(timer, _) = &epoll.timeouts else { panic!("no timerfd here") };
        let mut entry = libc::pollfd { fd: timer.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry on the stack.
        assert_eq!(unsafe { libc::poll(&mut entry, 1, 60_000) }, 1, "the timer goes off");
        // These become ready after the timer, which stands first in the kernel's list.
        for (key, bell) in bells.iter().enumerate() {
            epoll.add(bell.raw(), key as u64, Ready::WRITABLE, Mode::Level).unwrap();
        }
        assert_eq!(epoll.select(Some(0)).unwrap(), 2, "a full list");
        assert!((0..2).all(|i| epoll.event(i).0 < 3));
        // A timer that has not expired ends no wait without a timeout.
        epoll.set_timer(3_600_000_000_000).unwrap();
        assert_eq!(epoll.select(None).unwrap(), 2);
        assert!(matches!(epoll.timeouts, Timeouts::Timer(_, false)));
    }

    #[test]
    fn our_conditions_are_epolls() {
        assert_eq!(u32::from(Ready::READABLE.bits()), libc::EPOLLIN as u32);
        assert_eq!(u32::from(Ready::PRIORITY.bits()), libc::EPOLLPRI as u32);
        assert_eq!(u32::from(Ready::WRITABLE.bits()), libc::EPOLLOUT as u32);
        assert_eq!(u32::from(Ready::ERROR.bits()), libc::EPOLLERR as u32);
        assert_eq!(u32::from(Ready::HANGUP.bits()), libc::EPOLLHUP as u32);
        assert_eq!(u32::from(Ready::READ_CLOSED.bits()), libc::EPOLLRDHUP as u32);
    }
}
