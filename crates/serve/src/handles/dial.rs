//! Requests for connections, from other threads.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use windlass::net::ConnectOptions;
use windlass::{Address, Handle};

use crate::handles::remote::Remote;
use crate::inbox::{Asked, Command, Shared, Target};
use crate::words::id::Id;
#[cfg(doc)]
use crate::{Cause, Engine};

/// A connection that another thread has asked for: [`Remote::connect`],
/// [`Remote::connect_datagram`], [`Remote::attach`] and their like return it. A drop changes
/// nothing.
pub struct Dial {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: Arc<OnceLock<Id>>,
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
    /// if more than three quarters of [`Limits::memory`](crate::Limits::memory) would be in use.
    /// Until its loop takes it, the request counts with its addresses and its state.
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
        self.ask(Target::Stream(addresses, options, None), state).map_err(|(_, state)| state)
    }

    /// Connects as [`connect`](Remote::connect), with TLS: see [`Engine::connect_tls`].
    ///
    /// # Errors
    /// As for [`connect`](Remote::connect).
    #[cfg(feature = "tls")]
    pub fn connect_tls<A: Into<Address>, S: Send + 'static>(
        &self,
        addresses: impl IntoIterator<Item = A>,
        options: ConnectOptions,
        to: &crate::tls::Destination,
        state: S,
    ) -> Result<Dial, S> {
        let addresses = addresses.into_iter().map(Into::into).collect();
        let target = Target::Stream(addresses, options, Some(to.clone()));
        self.ask(target, state).map_err(|(_, state)| state)
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
        self.ask(Target::StreamSocket(handle.into(), None), state).map_err(given_back)
    }

    /// Makes a connection with TLS of a stream socket that the program has, on the loop with the
    /// fewest connections: see [`Engine::attach_tls`].
    ///
    /// # Errors
    /// The handle and the state come back as for [`connect`](Remote::connect).
    #[cfg(feature = "tls")]
    pub fn attach_tls<S: Send + 'static>(
        &self,
        handle: impl Into<Handle>,
        to: &crate::tls::Destination,
        state: S,
    ) -> Result<Dial, (Handle, S)> {
        let target = Target::StreamSocket(handle.into(), Some(to.clone()));
        self.ask(target, state).map_err(given_back)
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

    pub(crate) fn ask<S: Send + 'static>(
        &self,
        target: Target,
        state: S,
    ) -> Result<Dial, (Target, S)> {
        let loops = self.loops.iter();
        let to = loops.min_by_key(|shared| shared.load.load(Ordering::Relaxed));
        let addresses = match &target {
            Target::Stream(addresses, ..) => addresses.len() * size_of::<Address>(),
            _ => 0,
        };
        let charged = size_of::<(Command, Asked, S)>() + addresses;
        let charged = u32::try_from(charged).unwrap_or(u32::MAX);
        let Some(shared) = to.filter(|to| to.state_type.get() == Some(&TypeId::of::<S>())) else {
            return Err((target, state));
        };
        if !shared.budget.try_charge(charged, usize::MAX) {
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

pub(crate) fn given_back<S>((target, state): (Target, S)) -> (Handle, S) {
    match target {
        Target::StreamSocket(handle, _) | Target::DatagramSocket(handle) => (handle, state),
        _ => unreachable!("it is what was asked for"),
    }
}
