//! The behaviour common to all modes, and a oneshot between its item and `rearm`.

use std::io::ErrorKind::WouldBlock;
use std::sync::mpsc;

use super::*;

/// More bytes than the buffers of two sockets hold.
const BYTES: usize = if cfg!(windows) { 16 << 20 } else { 1 << 20 };

/// In both directions, whatever arrives: each of kqueue's filters would report once.
pub(super) fn a_disarmed_oneshot_reports_nothing<S: Select + Fresh>() {
    let both = Ready::READABLE | Ready::WRITABLE;
    let (mut socket, mut peer) = streams();
    let mut reactor = S::fresh();
    let ticket = reactor.submit(Watch::dup(&socket, both).unwrap().mode(Mode::Oneshot)).unwrap();
    assert_eq!(only(now(&mut reactor)).ready, Ready::WRITABLE);
    peer.write_all(b"xy").unwrap();
    assert!(now(&mut reactor).is_empty(), "it rests");
    reactor.rearm(ticket, both).unwrap();
    let item = only(now(&mut reactor));
    assert_eq!((item.ticket, item.ready, item.more), (ticket, both, true));
    // With another interest; unread bytes are reported again.
    socket.read_exact(&mut [0]).unwrap();
    reactor.rearm(ticket, Ready::READABLE).unwrap();
    assert_eq!(only(now(&mut reactor)).ready, Ready::READABLE);
    socket.read_exact(&mut [0]).unwrap();
    reactor.rearm(ticket, Ready::READABLE).unwrap();
    assert!(now(&mut reactor).is_empty(), "armed, and nothing has come");
    peer.write_all(b"z").unwrap();
    assert_eq!(only(now(&mut reactor)).ready, Ready::READABLE);
    // Nor the end, before it is armed. Windows tells it when everything has been read.
    socket.read_exact(&mut [0]).unwrap();
    drop(peer);
    assert!(now(&mut reactor).is_empty(), "it rests");
    reactor.rearm(ticket, Ready::READABLE).unwrap();
    let end = only(now(&mut reactor)).ready;
    assert!(end.contains(Ready::READABLE | Ready::READ_CLOSED), "{end:?}");
    assert_eq!((reactor.len(), reactor.stale_events()), (1, 0));
}

/// Many bytes through an echo that waits for one direction at a time. The peer does not read before
/// the echo had to wait for it. The edge mode drains the socket; the other modes may leave bytes
/// for later.
pub(super) fn an_echo_runs_in_every_mode<S: Select + Fresh>() {
    for mode in [Mode::Level, Mode::Edge, Mode::Oneshot] {
        let (mut socket, peer) = streams();
        socket.set_nonblocking(true).unwrap();
        let sent: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
        let (go, may_read) = mpsc::channel();
        let client = {
            let sent = sent.clone();
            let (mut writer, mut reader) = (peer.try_clone().unwrap(), peer);
            reader.set_read_timeout(Some(BOUND)).unwrap();
            let writing = thread::spawn(move || {
                writer.write_all(&sent).unwrap();
                writer.shutdown(std::net::Shutdown::Write).unwrap();
            });
            thread::spawn(move || {
                let _ = may_read.recv_timeout(BOUND);
                let mut heard = Vec::new();
                reader.read_to_end(&mut heard).expect("the echo within its limit");
                writing.join().unwrap();
                heard
            })
        };

        // Not a `fresh` one: on poll(2) its imitated edges would be held back for an hour. Here the
        // peer writes at any time, and the selector's patience is what finds bytes that come
        // between the last read and the next wait.
        let mut reactor: Reactor<S> = Reactor::on_selector(&Config::default()).unwrap();
        let mut interest = Ready::READABLE;
        let watch = Watch::dup(&socket, interest).unwrap().mode(mode);
        let ticket = reactor.submit(watch).unwrap();
        let (mut armed, mut told, mut blocked) = (1, 0, 0);
        let (mut chunk, mut queue) = (vec![0; 5000], Vec::new());
        let until = Instant::now() + BOUND;
        let mut items = Completions::new();
        'echo: loop {
            assert!(Instant::now() < until, "{mode:?}: {BOUND:?} without an end");
            reactor.complete(Wait::Until(until), &mut items).unwrap();
            for item in items.drain(..) {
                assert!(item.ticket == ticket && item.more, "{mode:?}: {item:?}");
                told += 1;
                let mut attempts = if mode == Mode::Edge { usize::MAX } else { 3 };
                let wanted = loop {
                    if attempts == 0 {
                        break interest;
                    }
                    attempts -= 1;
                    let (moved, wanted) = if queue.is_empty() {
                        (socket.read(&mut chunk), Ready::READABLE)
                    } else {
                        (socket.write(&queue), Ready::WRITABLE)
                    };
                    match moved {
                        Ok(0) => break 'echo,
                        Ok(count) if wanted == Ready::READABLE => queue.extend(&chunk[..count]),
                        Ok(count) => drop(queue.drain(..count)),
                        Err(error) if error.kind() == WouldBlock => {
                            if wanted == Ready::WRITABLE {
                                blocked += 1;
                                let _ = go.send(());
                            }
                            break wanted;
                        }
                        Err(error) => panic!("{mode:?}: {error}"),
                    }
                };
                if mode == Mode::Oneshot || wanted != interest {
                    interest = wanted;
                    reactor.rearm(ticket, interest).unwrap();
                    armed += 1;
                }
            }
        }
        assert!(told > 1 && (mode != Mode::Oneshot || told <= armed), "{told} of {armed}");
        assert!(blocked > 0, "{mode:?}: the peer has read all the time");
        reactor.cancel(ticket);
        assert_eq!(now(&mut reactor).len(), 1);
        drop((reactor, socket));
        assert!(client.join().unwrap() == sent, "{mode:?}: not what was sent");
    }
}
