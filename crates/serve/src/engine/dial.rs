//! Connections that other threads ask for, and sockets that the program gives.

use std::any::{Any, TypeId};
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use windlass::driver::Driver;
use windlass::net::ConnectOptions;
use windlass::{Address, Handle, Refusal as Reason, SourceKind, Watcher};

use super::conn::*;
use super::events::{Gone, Pending};
use super::{Cause, Command, Engine, Phase, Remote, Shared};
use crate::log::LogEvent;

/// A connection that another thread has asked for: [`Remote::connect`],
/// [`Remote::connect_datagram`], [`Remote::attach`] and [`Remote::attach_datagram`] return it. A
/// drop changes nothing.
pub struct Dial {
    shared: Arc<Shared>,
    id: Arc<OnceLock<Id>>,
}

impl Dial {
    /// The id of the connection; `None` until its loop has begun with it.
    pub fn id(&self) -> Option<Id> {
        self.id.get().copied()
    }

    /// Ends the connection with [`Cause::Aborted`] if it has not opened yet. If it has opened or
    /// ended, nothing happens. [`Remote::close`] closes a connection that is open.
    pub fn cancel(self) {
        // It comes back if the loop is over, and then the connection has ended.
        let _ = self.shared.post(Command::CancelDial(self.id));
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("id", &self.id()).finish()
    }
}

/// What becomes a connection.
enum Target {
    Stream(Vec<Address>, ConnectOptions),
    Datagram(Address),
    StreamSocket(Handle),
    DatagramSocket(Handle),
}

/// A request for a connection, on its way to a loop.
pub(crate) struct Asked {
    target: Target,
    /// Of the type of the loop's states.
    state: Box<dyn Any + Send>,
    id: Arc<OnceLock<Id>>,
    /// What the request has charged to the budget.
    charged: u32,
}

/// Makes a state of what a thread has sent. The type was compared before.
pub(crate) type Unpack<S> = fn(Box<dyn Any + Send>) -> S;

pub(crate) fn unpack<S: 'static>(state: Box<dyn Any + Send>) -> S {
    let Ok(state) = state.downcast() else { unreachable!("the request has this type") };
    *state
}

impl Remote {
    /// Connects to the first of `addresses` that answers, on the loop with the fewest connections:
    /// see [`Engine::connect`]. The time of `options` begins when the loop takes the request.
    ///
    /// `state` becomes the state of the connection, and tells the program which one it is.
    /// [`Handler::opened`] or [`Event::Opened`] follows when it is connected, and then
    /// [`Handler::closed`] or [`Event::Closed`]. If the connect fails, only the latter follows. It
    /// comes exactly once for each request that is accepted, until the server has shut down.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::net::ConnectOptions;
    /// use windlass_serve::{Dial, Remote};
    /// # type Job = String;
    /// /// The handler finds the job in the state of the connection.
    /// fn ask(remote: &Remote, at: std::net::SocketAddr, job: Job) -> Result<Dial, Job> {
    ///     remote.connect([at], ConnectOptions::default().timeout(Duration::from_secs(2)), job)
    /// }
    /// ```
    ///
    /// # Errors
    /// The state comes back if `S` is not the type of the server's states, if the server shuts down
    /// (an engine without a server takes connects again after a [shutdown](Remote::shutdown)), or
    /// if more than [`Limits::memory`](crate::Limits::memory) bytes would wait in it: the request
    /// counts with its addresses and its state, until its loop takes it.
    ///
    /// [`Handler::opened`]: crate::Handler::opened
    /// [`Handler::closed`]: crate::Handler::closed
    /// [`Event::Opened`]: crate::Event::Opened
    /// [`Event::Closed`]: crate::Event::Closed
    pub fn connect<A: Into<Address>, S: Send + 'static>(
        &self,
        addresses: impl IntoIterator<Item = A>,
        options: ConnectOptions,
        state: S,
    ) -> Result<Dial, S> {
        let addresses = addresses.into_iter().map(Into::into).collect();
        self.ask(Target::Stream(addresses, options), state).map_err(|(_, state)| state)
    }

    /// Makes a UDP client on the loop with the fewest connections: see
    /// [`Engine::connect_datagram`].
    ///
    /// # Errors
    /// As for [`connect`](Remote::connect).
    pub fn connect_datagram<S: Send + 'static>(
        &self,
        to: impl Into<Address>,
        state: S,
    ) -> Result<Dial, S> {
        self.ask(Target::Datagram(to.into()), state).map_err(|(_, state)| state)
    }

    /// Makes a connection of a stream socket that the program has, on the loop with the fewest
    /// connections: see [`Engine::attach`].
    ///
    /// # Errors
    /// The handle and the state come back as for [`connect`](Remote::connect).
    pub fn attach<S: Send + 'static>(
        &self,
        handle: impl Into<Handle>,
        state: S,
    ) -> Result<Dial, (Handle, S)> {
        self.ask(Target::StreamSocket(handle.into()), state).map_err(given_back)
    }

    /// Makes a UDP client of a connected datagram socket that the program has, on the loop with
    /// the fewest connections: see [`Engine::attach_datagram`].
    ///
    /// # Errors
    /// The handle and the state come back as for [`connect`](Remote::connect).
    pub fn attach_datagram<S: Send + 'static>(
        &self,
        handle: impl Into<Handle>,
        state: S,
    ) -> Result<Dial, (Handle, S)> {
        self.ask(Target::DatagramSocket(handle.into()), state).map_err(given_back)
    }

    fn ask<S: Send + 'static>(&self, target: Target, state: S) -> Result<Dial, (Target, S)> {
        let loops = self.loops.iter();
        let to = loops.min_by_key(|shared| shared.load.load(Ordering::Relaxed));
        let addresses = match &target {
            Target::Stream(addresses, _) => addresses.len() * size_of::<Address>(),
            _ => 0,
        };
        let charged = size_of::<(Command, Asked, S)>() + addresses;
        let charged = u32::try_from(charged).unwrap_or(u32::MAX);
        let Some(shared) = to.filter(|to| to.state_type.get() == Some(&TypeId::of::<S>())) else {
            return Err((target, state));
        };
        if !shared.budget.try_charge(charged) {
            return Err((target, state));
        }
        let id = Arc::new(OnceLock::new());
        let dial = Dial { shared: Arc::clone(shared), id: Arc::clone(&id) };
        let asked = Asked { target, state: Box::new(state), id, charged };
        shared.load.fetch_add(1, Ordering::Relaxed);
        let Err(refused) = shared.post(Command::Dial(Box::new(asked))) else { return Ok(dial) };
        shared.load.fetch_sub(1, Ordering::Relaxed);
        shared.budget.change(charged, 0);
        let Command::Dial(asked) = refused else { unreachable!("it comes back") };
        Err((asked.target, unpack(asked.state)))
    }
}

fn given_back<S>((target, state): (Target, S)) -> (Handle, S) {
    match target {
        Target::StreamSocket(handle) | Target::DatagramSocket(handle) => (handle, state),
        _ => unreachable!("it is what was asked for"),
    }
}

impl<S> Engine<S> {
    /// Begins with a connection that another thread has asked for.
    #[cold]
    pub(crate) fn take_dial(&mut self, asked: Asked) {
        let Asked { target, state, id, charged } = asked;
        self.budget.change(charged, 0);
        // The thread has counted it, and the calls below do.
        self.count_load(-1);
        let Some(unpack) = self.unpack else { unreachable!("`remote` has set it") };
        let state = unpack(state);
        let begun = match target {
            Target::Stream(addresses, options) => self.connect(addresses, options, state),
            Target::Datagram(to) => self.connect_datagram(to, state),
            Target::StreamSocket(handle) => self.attach(handle, state).map_err(|(_, state)| state),
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
        let cause = if self.refuses { Cause::Shutdown } else { Cause::Rejected };
        let (unsent, phase, age) = (0, Phase::Connecting, Duration::ZERO);
        let id = self.table.skip();
        self.counts.closed(cause);
        if self.config.log.is_some() {
            self.log(LogEvent::Closed { id, cause, unsent, phase, age });
        }
        self.gone.push_back(Gone { id, cause, unsent, phase, age, state });
        self.pending.push_back(Pending::Gone);
        id
    }

    /// Ends a connection that another thread has asked for, when the loop takes no more.
    pub(crate) fn drop_dial(&mut self, asked: Asked) {
        self.budget.change(asked.charged, 0);
        self.count_load(-1);
        if let Some(unpack) = self.unpack {
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
            return self.end(watcher, id.index(), Cause::Rejected, 0);
        };
        self.table.place_mut(id.index()).source = source;
        match watcher.kind(source) {
            // What arrives there has other senders, and borders.
            Ok(SourceKind::Datagram | SourceKind::Listener) => {
                return self.fail(watcher, id.index(), Cause::Rejected);
            }
            // One of std's: the handle does not know.
            Ok(SourceKind::Stream) if peer.is_none() => match watcher.peer_address(source) {
                Ok(address) => peer = address.ip(),
                // No success is told of a connect that may fail.
                Err(Reason::Os(errno)) if is_unconnected(errno) => {
                    return self.fail(watcher, id.index(), Cause::Os(errno));
                }
                Err(_) => {}
            },
            // Its first operation tells.
            _ => {}
        }
        self.counts.attached += 1;
        self.pending.push_back(Pending::Opened(id, peer));
    }

    /// Opens a UDP client of a datagram socket that the program has given.
    pub(crate) fn begin_attached_client<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        handle: Handle,
    ) {
        let index = id.index();
        let Ok(source) = watcher.attach(handle) else {
            return self.fail(watcher, index, Cause::Rejected);
        };
        self.table.place_mut(index).source = source;
        let peer = match watcher.kind(source) {
            Ok(SourceKind::Datagram) => watcher.peer_address(source),
            Ok(_) => Err(Reason::Unsupported),
            Err(reason) => Err(reason),
        };
        match peer {
            Ok(peer) => {
                self.counts.attached += 1;
                self.pending.push_back(Pending::Opened(id, peer.ip()));
            }
            Err(Reason::Os(errno)) => self.fail(watcher, index, Cause::Os(errno)),
            Err(_) => self.fail(watcher, index, Cause::Rejected),
        }
    }
}

/// Whether this is the errno of a socket without a connection.
fn is_unconnected(errno: i32) -> bool {
    io::Error::from_raw_os_error(errno).kind() == io::ErrorKind::NotConnected
}
