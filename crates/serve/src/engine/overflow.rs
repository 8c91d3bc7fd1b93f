//! Accepted connections for which there is no room, and another server that takes them.

use std::sync::atomic::Ordering;

use windlass::Handle;

use super::{Command, Engine, Remote};

impl<S> Engine<S> {
    /// Gives the accepted connections for which this engine has no room to another server or
    /// engine. So two servers share one listener by the number of their connections: this engine
    /// takes at most [`Limits::connections`](super::Limits::connections), and `rest` the others. A
    /// connection that ends makes room again. A later call replaces `rest`.
    ///
    /// In a server, call it in [`Handler::serving`](crate::Handler::serving) of each loop: the
    /// limit is one of a loop. A server with [`IoMode::Blocking`](crate::IoMode::Blocking) gives
    /// away what is beyond its threads. `rest` may be a server without a listener of its own:
    /// [`Server::without_listener`](crate::Server::without_listener).
    ///
    /// In `rest`, the loop with the fewest connections gets the connection. Its
    /// [origin](super::Origin) names the listener of this engine. A connection is given away once:
    /// if `rest` has no room, or begins to shut down meanwhile, `rest` refuses the connection. If
    /// `rest` is over already, this engine refuses it.
    /// [`passed_on`](super::Counts::passed_on) counts the connections that were given away.
    ///
    /// ```
    /// use windlass::{Watcher, net::ListenOptions};
    /// use windlass_serve::{Config, Engine, Limits};
    ///
    /// let mut watcher = Watcher::new()?;
    /// let limits = Limits::new().connections(1000);
    /// let mut first = Engine::<()>::new(Config::new().limits(limits));
    /// let mut rest = Engine::<()>::new(Config::new());
    /// first.listen(&mut watcher, ([127, 0, 0, 1], 0), ListenOptions::default())?;
    /// first.overflow_to(rest.remote(&mut watcher));
    /// // The program takes the events of both: see `Engine`.
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn overflow_to(&mut self, rest: Remote) {
        self.overflow = Some(rest);
    }

    /// Gives an accepted and counted connection away. It comes back if there is no other server, or
    /// if that server has no room or is over.
    #[cold]
    pub(crate) fn pass_on(&mut self, handle: Handle, listener: usize) -> Result<(), Handle> {
        let Some(rest) = &self.overflow else { return Err(handle) };
        rest.pass_to(handle, listener)?;
        self.counts.passed_on += 1;
        self.count_load(-1);
        Ok(())
    }
}

impl Remote {
    fn pass_to(&self, mut handle: Handle, listener: usize) -> Result<(), Handle> {
        if let Some(threads) = &self.threads {
            match threads.give((handle, listener)) {
                Ok(()) => return Ok(()),
                Err(given) if threads.is_mixed() => handle = given.0,
                Err(given) => return Err(given.0),
            }
        }
        let load = |shared: &usize| self.loops[*shared].load.load(Ordering::Relaxed);
        let Some(chosen) = (0..self.loops.len()).min_by_key(load) else { return Err(handle) };
        let shared = &self.loops[chosen];
        shared.load.fetch_add(1, Ordering::Relaxed);
        match shared.post(Command::PassedOn(handle, listener)) {
            Err(Command::PassedOn(handle, _)) => {
                shared.load.fetch_sub(1, Ordering::Relaxed);
                Err(handle)
            }
            _ => Ok(()),
        }
    }
}
