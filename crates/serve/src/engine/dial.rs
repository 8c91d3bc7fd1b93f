//! Connections that other threads ask for, and sockets that the program gives.

use std::io;
use std::time::Duration;

use windlass::driver::Driver;
use windlass::{Handle, Refusal as Reason, SourceKind, Watcher};

use crate::engine::Engine;
use crate::engine::events::{Gone, Pending};
use crate::inbox::{Asked, Target};
use crate::log::LogEvent;
use crate::parts::table::{CODED, CONNECTING};
use crate::words::cause::{Cause, Phase};
use crate::words::id::Id;

impl<S> Engine<S> {
    /// Begins with a connection that another thread has asked for.
    #[cold]
    pub(crate) fn take_dial(&mut self, asked: Asked) {
        let Asked { target, state, id, charged } = asked;
        self.memory.budget.change(charged, 0);
        // The thread has counted it, and the calls below do.
        self.count_load(-1);
        let Some(unpack) = self.outside.unpack else { unreachable!("`remote` has set it") };
        let state = unpack(state);
        let begun = match target {
            Target::Stream(addresses, options, tls) => {
                self.connect_to(addresses, options, tls, state)
            }
            Target::Datagram(to) => self.connect_datagram(to, state),
            Target::StreamSocket(handle, tls) => {
                self.attach_to(handle, tls, state).map_err(|(_, state)| state)
            }
            Target::DatagramSocket(handle) => {
                self.attach_datagram(handle, state).map_err(|(_, state)| state)
            }
        };
        match begun {
            Ok(begun) => _ = id.set(begun),
            Err(state) => _ = id.set(self.refuse_dial(state)),
        }
    }

    /// Ends a connection that another thread has asked for, and that has no place.
    pub(crate) fn refuse_dial(&mut self, state: S) -> Id {
        let cause = if self.entrance.refuses { Cause::Shutdown } else { Cause::Rejected };
        let (unsent, phase, age) = (0, Phase::Connecting, Duration::ZERO);
        let id = self.table.skip();
        self.counters.closed(cause);
        if self.config.log.is_some() {
            self.log(LogEvent::Closed { id, cause, unsent, phase, age });
        }
        self.told.gone.push_back(Gone { id, cause, unsent, phase, age, state, failure: None });
        self.told.pending.push_back(Pending::Gone);
        id
    }

    /// Ends a connection that another thread has asked for, when the loop takes no more.
    pub(crate) fn drop_dial(&mut self, asked: Asked) {
        self.memory.budget.change(asked.charged, 0);
        self.count_load(-1);
        if let Some(unpack) = self.outside.unpack {
            let id = self.refuse_dial(unpack(asked.state));
            let _ = asked.id.set(id);
        }
    }

    /// Ends a connection that has not opened.
    #[cold]
    pub(crate) fn cancel_dial(&mut self, id: Option<Id>) {
        if let Some(id) = id
            && self.table.get(id).is_some_and(|place| place.flags & CONNECTING != 0)
        {
            self.abort(id);
        }
    }

    /// Opens a connection of a stream socket that the program has given.
    pub(crate) fn begin_attached<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        handle: Handle,
    ) {
        let mut peer = handle.peer();
        let Ok(source) = watcher.attach(handle) else {
            return self.end_connection(watcher, id.index(), Cause::Rejected, 0);
        };
        self.table.place_mut(id.index()).source = source;
        match watcher.kind(source) {
            // Datagrams have several senders, and borders that a connection does not keep.
            Ok(SourceKind::Datagram | SourceKind::Listener) => {
                return self.fail(watcher, id.index(), Cause::Rejected);
            }
            // One of std's: the handle does not know.
            Ok(SourceKind::Stream) if peer.is_none() => match watcher.peer_address(source) {
                Ok(address) => peer = address.ip(),
                // Its connect may still fail, and `Opened` would have told of a success.
                Err(Reason::Os(errno)) if is_unconnected(errno) => {
                    return self.fail(watcher, id.index(), Cause::Os(errno));
                }
                Err(_) => {}
            },
            // Its first operation tells.
            _ => {}
        }
        self.counters.attached += 1;
        if self.table.place(id.index()).flags & CODED != 0 {
            return self.greet(watcher, id.index(), peer);
        }
        self.told.pending.push_back(Pending::Opened(id, peer));
    }
}

/// Whether this is the errno of a socket without a connection.
fn is_unconnected(errno: i32) -> bool {
    io::Error::from_raw_os_error(errno).kind() == io::ErrorKind::NotConnected
}
