//! Accepted connections for which there is no room, and another server that takes them.

use crate::engine::Engine;
use crate::handles::remote::Remote;
use crate::parts::transport::Accepted;

impl<S> Engine<S> {
    /// Passes the accepted connections for which this engine has no room to another server or
    /// engine. So two servers share one listener: this engine serves at most
    /// [`Limits::connections`](crate::Limits::connections) of its connections, and `other` serves
    /// all beyond. A connection that ends makes room again. A later call replaces `other`.
    ///
    /// In a server, call it in [`Handler::serving`](crate::Handler::serving) of each loop, because
    /// each loop has this limit for itself. A server with
    /// [`IoMode::Blocking`](crate::modes::IoMode::Blocking) passes on what exceeds its threads.
    /// `other` may be a server without a listener of its own:
    /// [`Server::without_listener`](crate::Server::without_listener).
    ///
    /// In `other`, the loop with the fewest connections gets the connection. Its
    /// [origin](crate::Origin) names the listener of this engine. A connection is passed on once:
    /// if `other` has no room, or begins to shut down meanwhile, `other` refuses the connection. If
    /// `other` is over already, this engine refuses it.
    /// [`passed_on`](crate::report::Counters::passed_on) counts the connections that were passed
    /// on.
    ///
    /// Of a server:
    ///
    /// ```
    /// use windlass::Address;
    /// use windlass_serve::{Action, Context, Handler, Remote};
    ///
    /// /// The handler of the server that has the listener. `other` comes from the handler of the
    /// /// other server, by a channel: see `guide`.
    /// struct First {
    ///     other: Remote,
    /// }
    /// impl Handler for First {
    ///     type State = ();
    ///     fn serving(&mut self, server: &mut Context<'_, ()>, _: &[Address]) -> Action {
    ///         server.engine().overflow_to(self.other.clone());
    ///         Action::None
    ///     }
    /// }
    /// ```
    ///
    /// Of two engines on one loop:
    ///
    /// ```
    /// use windlass::{Watcher, net::ListenOptions};
    /// use windlass_serve::{Config, Engine, Limits};
    ///
    /// let mut watcher = Watcher::new()?;
    /// let limits = Limits::new().connections(1000);
    /// let mut first = Engine::<()>::new(Config::new().limits(limits));
    /// let mut other = Engine::<()>::new(Config::new());
    /// first.listen(&mut watcher, ([127, 0, 0, 1], 0), ListenOptions::default())?;
    /// first.overflow_to(other.remote(&mut watcher));
    /// // The program takes the events of both: see `Engine`.
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn overflow_to(&mut self, other: Remote) {
        self.entrance.overflow = Some(other);
    }

    /// Passes an accepted and counted connection on. It comes back if there is no other server, or
    /// if that server has no room or is over.
    #[cold]
    pub(crate) fn pass_on(&mut self, accepted: Accepted) -> Result<(), Accepted> {
        let Some(other) = &self.entrance.overflow else { return Err(accepted) };
        other.pass_to(accepted)?;
        self.counters.passed_on += 1;
        self.count_load(-1);
        Ok(())
    }
}
