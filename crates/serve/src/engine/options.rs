//! Options of sockets: those of the configuration, and those of one connection.

use windlass::driver::Driver;
use windlass::net::SocketOption;
use windlass::{Refusal as Reason, Source, Watcher};

use crate::engine::Engine;
use crate::engine::requests::Request;
use crate::log::LogEvent;
use crate::sys;
use crate::words::config::Config;
use crate::words::id::Id;

impl Config {
    /// The options of the configuration, each with a flag: whether only TCP has the option.
    fn options(&self) -> impl Iterator<Item = (SocketOption, bool)> + use<> {
        let keepalive = self.keepalive.map(|probes| SocketOption::Keepalive(Some(probes)));
        let recv = self.recv_buffer.map(SocketOption::RecvBuffer);
        let send = self.send_buffer.map(SocketOption::SendBuffer);
        let of_all = [recv, send].into_iter().flatten().map(|option| (option, false));
        keepalive.into_iter().map(|option| (option, true)).chain(of_all)
    }
}

impl<S> Engine<S> {
    /// Sets an option of a connection's socket in the next [`flush`](Engine::flush), and before an
    /// [`abort`](Engine::abort), a [`close`](Engine::close) or a [`detach`](Engine::detach) of that
    /// turn; false for a stale id.
    /// So `SocketOption::Linger` of zero makes an abort a reset.
    ///
    /// If the option is refused, the connection goes on, and
    /// [`option_errors`](crate::report::Counters::option_errors) counts the refusal. The reasons
    /// are those of [`Watcher::set_option`]. A connection that still connects refuses every option:
    /// wait for [`Event::Opened`](crate::Event::Opened).
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::net::{Keepalive, SocketOption};
    /// use windlass_serve::{Action, Conn, Handler, Origin};
    ///
    /// /// Finds out when a silent peer has lost its network.
    /// struct Quiet;
    /// impl Handler for Quiet {
    ///     type State = ();
    ///     fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
    ///         let probes = Keepalive::new(Duration::from_secs(60));
    ///         c.set_option(SocketOption::Keepalive(Some(probes)));
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn set_option(&mut self, id: Id, option: SocketOption) -> bool {
        let lives = self.table.get(id).is_some();
        if lives {
            self.request(Request::Option(id, option));
            self.work.options = true;
        }
        lives
    }

    /// Sets the options that the program has asked for in this turn: a connection leaves before the
    /// other requests are carried out. One look serves all that leave.
    pub(crate) fn set_asked_options<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        if !std::mem::take(&mut self.work.options) {
            return;
        }
        for request in std::mem::take(&mut self.work.wanted) {
            match request {
                Request::Option(id, option) => self.set_option_of(watcher, id, option),
                other => self.work.wanted.push(other),
            }
        }
    }

    pub(crate) fn set_option_of<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        option: SocketOption,
    ) {
        let Some(source) = self.source(id) else { return };
        if let Err(reason) = watcher.set_option(source, option) {
            self.counters.option_errors += 1;
            self.log(LogEvent::OptionRefused { id, option, reason });
        }
    }

    /// Sets the options of the configuration on a listener. Its connections have them, too.
    pub(crate) fn set_options_of_listener<D: Driver>(
        &self,
        watcher: &mut Watcher<D>,
        source: Source,
    ) -> Result<(), Reason> {
        for (option, is_of_tcp) in self.config.options() {
            if !is_of_tcp || watcher.local_address(source)?.ip().is_some() {
                watcher.set_option(source, option)?;
            }
        }
        Ok(())
    }

    /// Sets them on a connection. An accepted connection has them from its listener, except the
    /// times of keep-alive probes on Apple's systems.
    pub(crate) fn set_options_of_connection<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        is_accepted: bool,
    ) {
        for (option, is_of_tcp) in self.config.options() {
            if is_accepted && !(is_of_tcp && sys::ACCEPTED_LACK_KEEPALIVE) {
                continue;
            }
            let address = self.source(id).map(|source| watcher.local_address(source));
            let is_tcp = matches!(address, Some(Ok(address)) if address.ip().is_some());
            if is_tcp || !is_of_tcp {
                self.set_option_of(watcher, id, option);
            }
        }
    }
}
