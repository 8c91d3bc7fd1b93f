//! A loop that listens, and does not serve yet: the others may still fail.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use windlass::driver::Driver;
use windlass::net::{DatagramOptions, ListenOptions};
use windlass::{Address, Handle, Watcher};

use super::address::{Listen, Place};
use super::handler::Handler;
use super::invalid;
use super::loops::ServerLoop;
use super::signals::LoopSignals;
use crate::engine::Engine;
use crate::engine::balance::Balancer;
use crate::engine::listener::NO_TLS;
use crate::handles::remote::Remote;
use crate::memory::Budget;
use crate::parts::cipher::Tls;
use crate::sys::{self, BoundPath};
use crate::words::balance::Balance;
use crate::words::config::Config;

/// A loop that listens, and does not serve yet.
pub(super) struct Prepared<S> {
    pub(super) engine: Engine<S>,
    pub(super) remote: Remote,
    pub(super) addresses: Vec<Address>,
    /// Which listeners leave their connections to this loop.
    keeps: Vec<Keeps>,
    pub(super) grace: Duration,
    pub(super) signals: LoopSignals,
}

/// When a loop serves all connections that its listener accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Never,
    /// With [`Balance::ReusePort`]: other loops share the port.
    IfShared,
    Always,
}

impl<S: Default + 'static> Prepared<S> {
    pub(super) fn new<D: Driver>(
        index: usize,
        watcher: &mut Watcher<D>,
        config: Config,
        budget: Budget,
        listens: Vec<Listen>,
    ) -> io::Result<Prepared<S>> {
        // The callback's default ends the connection.
        let config = config.limit_events(true);
        let mut engine = Engine::of_loop(config, index, budget);
        let remote = engine.remote(watcher);
        let mut prepared = Prepared {
            engine,
            remote,
            addresses: Vec::new(),
            keeps: Vec::new(),
            grace: Duration::ZERO,
            signals: LoopSignals::default(),
        };
        match prepared.listen_at_all(index, watcher, listens) {
            Ok(()) => Ok(prepared),
            Err(error) => {
                // The program keeps its watcher, which would keep the other listeners open.
                prepared.engine.stop_listening(watcher);
                Err(error)
            }
        }
    }

    fn listen_at_all<D: Driver>(
        &mut self,
        index: usize,
        watcher: &mut Watcher<D>,
        listens: Vec<Listen>,
    ) -> io::Result<()> {
        for listen in listens {
            self.listen(index, watcher, listen)?;
        }
        for source in self.engine.listeners().iter().filter(|source| !source.is_none()) {
            self.addresses.push(watcher.local_address(*source)?);
        }
        Ok(())
    }

    /// Listens at one address.
    fn listen<D: Driver>(
        &mut self,
        index: usize,
        watcher: &mut Watcher<D>,
        listen: Listen,
    ) -> io::Result<()> {
        if let (Some(address), None) = (&listen.wants_tls, &listen.tls) {
            return Err(invalid(&format!(
                "{address}: Server::tls has to follow, with a certificate"
            )));
        }
        let options = ListenOptions::default().reuse_port(listen.reuse_port);
        self.keeps.push(match listen.place {
            Place::Made(_) => Keeps::Always,
            _ if listen.reuse_port => Keeps::IfShared,
            _ => Keeps::Never,
        });
        match listen.place {
            Place::Tcp(addresses) => {
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                for address in addresses {
                    match self.engine.listen_as(
                        watcher,
                        address,
                        options,
                        listen.proxy,
                        listen.tls.clone(),
                    ) {
                        Ok(_) => return Ok(()),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            Place::Udp(_) if listen.tls.is_some() => Err(invalid(NO_TLS)),
            Place::Udp(addresses) => {
                let options = DatagramOptions::default().reuse_port(listen.reuse_port);
                let sessions = listen.sessions.unwrap_or(self.engine.has_udp_sessions());
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                for address in addresses {
                    let address = address.into();
                    match self.engine.bind_datagram_as(watcher, address, options, sessions) {
                        Ok(_) => return Ok(()),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            Place::Unix(path) => {
                let address = Address::unix(&path)?;
                let number =
                    self.engine.listen_as(watcher, address, options, listen.proxy, listen.tls)?;
                self.engine.keep_path(number, BoundPath::new(path));
                Ok(())
            }
            Place::Inherited(handle, name) => {
                self.add_listener(watcher, handle, listen.tls).map_err(|error| {
                    let is_other = error.kind() == io::ErrorKind::Unsupported;
                    let why = "it is neither a listener nor a datagram socket";
                    if is_other { invalid(&format!("{name}: {why}")) } else { error }
                })
            }
            Place::Listener(handle) => self.add_listener(watcher, handle, listen.tls),
            Place::Made(make) => self.add_listener(watcher, (make.0)(index)?, listen.tls),
            Place::Nowhere => {
                self.engine.skip_listener();
                Ok(())
            }
        }
    }

    /// Listens at a descriptor of the program.
    fn add_listener<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        handle: Handle,
        tls: Option<Tls>,
    ) -> io::Result<()> {
        // A watcher that makes it non-blocking itself takes that back at its end. Then another
        // process that has the listener, too, would block in its accepts.
        let handle = match handle.into_fd() {
            Ok(fd) => sys::nonblocking(fd)?.into(),
            Err(simulated) => simulated,
        };
        self.engine.add_handle(watcher, handle, tls).map(|_| ())
    }

    pub(super) fn start<D: Driver, H: Handler<State = S>>(
        mut self,
        watcher: &mut Watcher<D>,
        handler: H,
        remote: &Remote,
        policy: Balance,
        addresses: &[Address],
    ) -> ServerLoop<H> {
        let own = remote.loops.iter().position(|one| Arc::ptr_eq(one, &self.remote.loops[0]));
        // A thread of an `IoMode` is none of the loops, and has no listeners.
        if let Some(own) = own
            && (remote.loops() > 1 || remote.threads.is_some())
        {
            let is_kept = |keeps: &Keeps| match keeps {
                Keeps::Never => false,
                Keeps::IfShared => policy == Balance::ReusePort,
                Keeps::Always => true,
            };
            let kept = self.keeps.iter().map(is_kept).collect();
            let loops = Arc::clone(&remote.loops);
            let threads = remote.threads.clone();
            self.engine.set_balancer(Balancer { loops, policy, own, kept, next: SEED, threads });
        }
        self.engine.set_server();
        let mut running =
            ServerLoop::new(self.engine, handler, remote.clone(), self.grace, self.signals);
        running.begin(watcher, addresses);
        running
    }
}

/// Where the balancer begins. It needs no secret: a peer does not gain by its choice of a loop.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
