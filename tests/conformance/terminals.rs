//! Linux: terminals and devices whose description blocks and is shared with other code.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use windlass::driver::Driver;
use windlass::{Op, Ready, Refusal};

use crate::common::*;

/// A terminal: what reads its output, and the end that programs have. Both block, and change no
/// byte.
fn terminal() -> (File, File) {
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: all zeros are a struct of integers.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: a struct that lives across the call.
    unsafe { libc::cfmakeraw(&raw mut modes) };
    let (name, size) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: two numbers and the modes, which live across the call.
    let answer = unsafe { libc::openpty(&mut master, &mut slave, name, &modes, size) };
    assert_eq!(answer, 0, "openpty(3): {}", std::io::Error::last_os_error());
    let owned = |fd| {
        // SAFETY: a fresh descriptor without another owner.
        unsafe { File::from_raw_fd(fd) }
    };
    (owned(master), owned(slave))
}

/// A terminal that nobody reads stopped the loop: poll(2) called it writable, and write(2) then
/// waited until all bytes were in it.
pub fn a_terminal_that_nobody_reads_stops_no_other<H: Harness + 'static>() {
    for shared in [true, false] {
        aside("a write to a terminal that nobody reads", move || {
            let mut b = H::bench();
            let (a, z) = b.pair();
            let (mut master, slave) = terminal();
            let keeper = slave.try_clone().unwrap();
            let source = match shared {
                true => b.watcher.attach_dup(&slave).unwrap(),
                false => b.watcher.attach(OwnedFd::from(slave)).unwrap(),
            };
            let bytes = pattern(100_000, 1);
            let write = b.submit(Op::write(source, bytes.clone()));
            let parts = vec!["and ".into(), vec![b'a'; 5000].into(), " list".into()];
            let list = b.submit(Op::write_vectored(source, parts));
            b.look();
            b.expect_alive(a, z);
            assert!(b.is_open(write) && b.is_open(list), "nobody has read it");
            let reader = std::thread::spawn(move || {
                let mut got = vec![0; 105_009];
                master.read_exact(&mut got).unwrap();
                (master, got)
            });
            expect_written(b.end(write));
            expect_written(b.end(list));
            let (_master, got) = join(reader, "the terminal is read");
            expect_same(&got[..100_000], &bytes);
            assert_eq!(&got[105_004..], b" list");
            if shared {
                assert!(system::is_blocking(&keeper), "the flags of others have changed");
            }
            b.expect_all_ended();
        });
    }
}

/// The rest of a line that somebody else has read: a read after poll(2) waited for the next one.
pub fn a_shared_terminal_is_read_without_waiting<H: Harness + 'static>() {
    aside("a read of a shared terminal", || {
        let mut b = H::bench();
        let (mut master, slave) = terminal();
        let source = b.watcher.attach_dup(&slave).unwrap();
        let read = b.submit(Op::read(source));
        b.look();
        assert!(b.is_open(read));
        let number = system::number(&mut b, source);
        // SAFETY: the source has it open.
        let own = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        assert!(!system::is_blocking(own), "a call on it can wait");
        assert!(system::closes_on_exec(number));
        assert!(system::is_blocking(&slave), "the flags of others have changed");
        master.write_all(b"x").unwrap();
        assert_eq!(&*expect_read(b.end(read)), b"x");
        // It blocks again when it is given back.
        let fd = b.watcher.detach(source).unwrap().into_fd().unwrap();
        assert!(system::is_blocking(&fd));
    });
}

/// Two loops and one terminal: each line is read once, and neither loop waits for the other's.
pub fn two_loops_share_a_terminal<H: Harness + 'static>() {
    const LINES: usize = 2000;
    aside("two loops on one terminal", || {
        let (mut master, slave) = terminal();
        let (says, got) = std::sync::mpsc::channel();
        let loops: Vec<_> = (0..2)
            .map(|_| {
                let (slave, says) = (slave.try_clone().unwrap(), says.clone());
                let (wakes, wakeup) = std::sync::mpsc::channel();
                let thread = std::thread::spawn(move || {
                    let mut b = H::bench();
                    wakes.send(b.submitter()).unwrap();
                    let source = b.watcher.attach_dup(&slave).unwrap();
                    loop {
                        let read = b.submit(Op::read(source));
                        // The other loop may have read what made this one readable.
                        let c = b.next();
                        if c.ticket() != read {
                            return b.watcher.close();
                        }
                        let data = expect_read(c);
                        says.send(data.len()).unwrap();
                    }
                });
                (thread, receive(&wakeup, "the loop runs"))
            })
            .collect();
        for _ in 0..LINES {
            // One byte, and then until somebody has it.
            master.write_all(b"x").unwrap();
            assert_eq!(receive(&got, "the byte is read"), 1);
        }
        for (thread, submitter) in loops {
            submitter.wake(1).unwrap();
            join(thread, "the loop ends");
        }
    });
}

/// What cannot be opened anew is not read or written as long as a call could wait: the other end
/// of a terminal, whose name makes a new terminal.
pub fn the_master_of_a_shared_terminal_is_refused<H: Harness + 'static>() {
    aside("a write to a shared master", || {
        let mut b = H::bench();
        let (a, z) = b.pair();
        let (master, mut slave) = terminal();
        let source = b.watcher.attach_dup(&master).unwrap();
        let write = b.submit(Op::write(source, vec![b'x'; 100_000]));
        expect_errno(b.end(write), &[libc::EOPNOTSUPP]);
        let read = b.submit(Op::read(source));
        expect_errno(b.end(read), &[libc::EOPNOTSUPP]);
        b.expect_alive(a, z);
        // It can be polled, and it is still this terminal.
        let poll = b.submit(Op::poll(source, Ready::READABLE));
        b.look();
        assert!(b.is_open(poll));
        slave.write_all(b"x").unwrap();
        assert!(b.end(poll).result.is_ok());
        assert!(system::is_blocking(&master));
        // A program that owns the description lets the watcher change it.
        b.watcher.abort(source);
        let source = b.watcher.attach(OwnedFd::from(master)).unwrap();
        assert_eq!(b.read(source), b"x");
        b.write(source, "y");
        let mut got = [0];
        slave.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"y");
    });
}

/// An eventfd whose counter has no room for a number polls writable: its write waited.
pub fn a_full_shared_eventfd_stops_no_other<H: Harness + 'static>() {
    aside("a write to a full eventfd", || {
        let mut b = H::bench();
        let (a, z) = b.pair();
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: a fresh descriptor without another owner.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        let file = File::from(event.try_clone().unwrap());
        (&file).write_all(&(u64::MAX - 3).to_ne_bytes()).unwrap();
        let source = b.watcher.attach_dup(&event).unwrap();
        let write = b.submit(Op::write(source, 5u64.to_ne_bytes().to_vec()));
        expect_errno(b.end(write), &[libc::EOPNOTSUPP]);
        b.expect_alive(a, z);
        // A call of the program could wait, too. Nobody can open an eventfd anew.
        let calls = [b.watcher.send(source, &[0; 8]), b.watcher.recv(source, &mut [0; 8])];
        for error in calls.map(Result::unwrap_err) {
            assert_eq!(Refusal::of(&error), Some(Refusal::Unsupported));
        }
        let (read, buf) =
            (b.submit(Op::read_into(source, vec![0; 8])), (u64::MAX - 3).to_ne_bytes());
        assert_eq!(&*expect_read(b.end(read)), &buf);
        let read = b.submit(Op::read_into(source, vec![0; 8]));
        b.look();
        assert!(b.is_open(read), "an empty eventfd does not block the loop");
        (&file).write_all(&1u64.to_ne_bytes()).unwrap();
        assert_eq!(&*expect_read(b.end(read)), &1u64.to_ne_bytes());
    });
}

/// A pipe that polls writable has room for one page and not for more; a shared one is written
/// without waiting, to its last byte.
pub fn a_shared_pipe_takes_what_it_has_room_for<H: Harness + 'static>() {
    aside("a write to a shared pipe", || {
        let mut b = H::bench();
        let (a, z) = b.pair();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        // SAFETY: no memory is passed.
        let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
        assert_eq!(size, 4096);
        let source = b.watcher.attach_dup(&writer).unwrap();
        // Room for less than PIPE_BUF bytes.
        writer.write_all(&[1; 4000]).unwrap();
        let small = b.submit(Op::write(source, vec![2; 90]));
        let large = b.submit(Op::write(source, vec![3; 20_000]));
        b.look();
        b.expect_alive(a, z);
        assert!(b.is_open(large));
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; 24_090];
            reader.read_exact(&mut got).unwrap();
            (reader, got)
        });
        expect_written(b.end(small));
        expect_written(b.end(large));
        let (_reader, got) = join(reader, "the pipe is read");
        assert!(got[..4000].iter().all(|&byte| byte == 1));
        assert!(got[4000..4090].iter().all(|&byte| byte == 2));
        assert!(got[4090..].iter().all(|&byte| byte == 3));
        assert!(system::is_blocking(&writer));
    });
}

/// No call on a blocking socket that is shared waits.
pub fn shared_blocking_sockets_stop_no_other<H: Harness + 'static>() {
    aside("a call on a shared socket", || {
        let mut b = H::bench();
        let (a, z) = b.pair();
        let (tcp, _peer) = system::tcp_pair();
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (near, _far) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let streams = [b.watcher.attach_dup(&tcp).unwrap(), b.watcher.attach_dup(&unix).unwrap()];
        let messages = [b.watcher.attach_dup(&udp).unwrap(), b.watcher.attach_dup(&near).unwrap()];
        let mut open = Vec::new();
        for source in streams {
            open.push(b.submit(Op::read(source)));
            open.push(b.submit(Op::read_vectored(source, vec![room(9), room(9)])));
            open.push(b.submit(Op::write(source, pattern(8 << 20, 1))));
            open.push(b.submit(Op::write_vectored(source, vec!["a".into(), "list".into()])));
        }
        open.push(b.submit(Op::recv_descriptors(streams[1])));
        for source in messages {
            open.push(b.submit(Op::recv_from(source)));
            open.push(b.submit(Op::recv_from(source).multishot()));
        }
        // Until the peer's buffer is full.
        for _ in 0..2000 {
            let send = b.submit(Op::write(messages[1], vec![1; 1000]));
            b.look();
            if b.is_open(send) {
                open.push(send);
                break;
            }
            expect_written(b.end(send));
        }
        fill_check(&mut b, &open);
        b.expect_alive(a, z);
        for flag in [&tcp as &dyn std::os::fd::AsFd, &unix, &udp, &near] {
            assert!(system::is_blocking(flag.as_fd()));
        }
    });
}

#[track_caller]
fn fill_check<D: Driver>(b: &mut Bench<D>, open: &[windlass::Ticket]) {
    b.look();
    for &ticket in open {
        assert!(b.is_open(ticket), "{ticket:?} has ended");
    }
}
