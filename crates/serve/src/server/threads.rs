//! Several loops, each on a thread of its own.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use windlass::{Address, Builder, Submitter};

use super::address::{Listen, Place};
use super::handler::Handler;
use super::modes::{Common, Keeper};
use super::report::Report;
use super::signals::{OWN, SignalPlan};
use super::{Prepared, Server, invalid};
use crate::sys;

use crate::handles::job::Executor;
use crate::handles::remote::Remote;
use crate::memory::Budget;
use crate::parts::cipher::Tls;
use crate::words::balance::Balance;
use crate::words::config::Config;
use crate::words::proxy::Versions;

/// The channels between `run` and a loop that starts: the loop reports that it is ready, and then
/// waits for a go. If the channel closes instead, another loop could not start.
type Told = io::Result<(Heard, Submitter)>;
type Heard = (Remote, Vec<Address>);

/// Runs a server of several loops. Calls `ready` when all of them listen.
pub(super) fn run<H: Handler, F: Fn(usize) -> H + Sync>(
    mut server: Server<F>,
    count: usize,
    pins: bool,
    ready: impl FnOnce(&Remote, &[Address]),
) -> io::Result<Report> {
    let mut listens = mem::take(&mut server.listens);
    if listens.is_empty() {
        return Err(invalid("nothing to serve"));
    }
    let mut keeper = Keeper::new(server.mode, count)?;
    let shares = server.balance == Balance::ReusePort;
    if shares {
        for listen in &mut listens {
            listen.reuse_port |= matches!(listen.place, Place::Tcp(_) | Place::Udp(_));
        }
    }
    let config = server.configuration();
    let budget = Budget::new(config.limits.memory);
    let shared: Vec<Sharing> = listens.iter().map(|listen| Sharing::of(listen, shares)).collect();
    let processors = if pins { sys::processors() } else { Vec::new() };
    let mut plan = Some(mem::take(&mut server.signals));
    let others_are_over = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let mut loops = Vec::new();
        let mut begin = |index: usize, listens: Vec<Listen>| -> io::Result<(Heard, Submitter)> {
            let one = Loop {
                index,
                builder: server.builder.clone(),
                config,
                budget: budget.clone(),
                balance: server.balance,
                grace: server.grace,
                executor: server.executor.clone(),
                processor: processors.get(index % processors.len().max(1)).copied(),
                listens,
                first: plan.take().map(|signals| (signals, Arc::clone(&others_are_over))),
                make: &server.make,
            };
            let (tell, told) = channel();
            let (go, wait) = channel();
            let name = named(&format!("loop {index}"), config.name);
            let builder = thread::Builder::new().name(name);
            let thread = builder.spawn_scoped(scope, move || one.run(tell, wait))?;
            let heard = told.recv().unwrap_or_else(|_| Err(io::Error::other("a loop panicked")));
            loops.push((go, thread));
            heard
        };
        // The first one has the listeners. At its ports the others listen, too, if they share them.
        let ((first, addresses), submitter) = begin(0, listens)?;
        let mut remotes = vec![first];
        for index in 1..count {
            let listens = again(&addresses, &shared);
            remotes.push(begin(index, listens)?.0.0);
        }
        let mut remote = Remote::of_loops(remotes);
        remote.threads = keeper.as_ref().map(|keeper| Arc::clone(&keeper.threads));
        // All loops get their `go` before a channel is dropped, which would mean a failed start.
        for (go, _) in &loops {
            let _ = go.send((remote.clone(), addresses.clone()));
        }
        let others = Others { are_over: &others_are_over, submitter };
        ready(&remote, &addresses);
        let mut report = Report::default();
        if let Some(keeper) = keeper.take() {
            let common = Common {
                builder: &server.builder,
                config,
                budget,
                grace: server.grace,
                make: &server.make,
                remote,
                addresses,
                executor: server.executor.clone(),
            };
            report.add(common.keep(keeper));
        }
        let mut failed = None;
        let mut threads = loops.into_iter().map(|(_, thread)| thread);
        let first = threads.next();
        let mut ended: Vec<_> = threads.map(|thread| thread.join()).collect();
        drop(others);
        ended.extend(first.map(|thread| thread.join()));
        for ended in ended {
            match ended {
                Ok(Ok(one)) => report.add(one),
                Ok(Err(error)) => failed = failed.or(Some(error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        failed.map_or(Ok(report), Err)
    })
}

/// The name of a thread.
pub(super) fn named(thread: &str, server: &str) -> String {
    // A null byte would be a panic.
    let name = if server.is_empty() { thread.to_owned() } else { format!("{thread} {server}") };
    name.replace('\0', "")
}

/// Tells the first loop, which has the signals, that the other loops and the threads are over: when
/// it is dropped, also by a panic.
struct Others<'a> {
    are_over: &'a AtomicBool,
    submitter: Submitter,
}

impl Drop for Others<'_> {
    fn drop(&mut self) {
        self.are_over.store(true, Ordering::Release);
        // Refused if the loop is over by an error, or if its queue is full, and so it is awake.
        let _ = self.submitter.wake(OWN);
    }
}

/// Whether every loop has a listener of its own at an address.
enum Sharing {
    /// With this setting for proxies, and this TLS.
    Tcp(Option<Versions>, Option<Tls>),
    /// With this setting for sessions.
    Udp(Option<bool>),
    /// The first loop has a listener, and the others have this.
    No(Listen),
    /// No loop has one, and it has no address.
    Nowhere,
}

impl Sharing {
    fn of(listen: &Listen, shares: bool) -> Sharing {
        match listen.place {
            Place::Tcp(_) if shares => Sharing::Tcp(listen.proxy, listen.tls.clone()),
            Place::Udp(_) if listen.reuse_port => Sharing::Udp(listen.sessions),
            Place::Nowhere => Sharing::Nowhere,
            _ => Sharing::No(listen.again()),
        }
    }
}

/// The listeners of a further loop, at the same ports.
fn again(addresses: &[Address], shared: &[Sharing]) -> Vec<Listen> {
    let mut addresses = addresses.iter();
    let listen = |shared: &Sharing| {
        if let Sharing::Nowhere = shared {
            return Listen::at(Place::Nowhere);
        }
        let address = addresses.next().and_then(Address::ip);
        let (place, sessions, proxy, tls) = match (address, shared) {
            (Some(ip), Sharing::Tcp(proxy, tls)) => {
                (Place::Tcp(vec![ip]), None, *proxy, tls.clone())
            }
            (Some(ip), Sharing::Udp(sessions)) => (Place::Udp(vec![ip]), *sessions, None, None),
            (_, Sharing::No(listen)) => return listen.again(),
            _ => return Listen::at(Place::Nowhere),
        };
        Listen { reuse_port: true, sessions, proxy, tls, ..Listen::at(place) }
    };
    shared.iter().map(listen).collect()
}

struct Loop<'a, F> {
    index: usize,
    builder: Builder,
    config: Config,
    budget: Budget,
    balance: Balance,
    grace: Duration,
    executor: Option<Executor>,
    processor: Option<usize>,
    listens: Vec<Listen>,
    /// Of the first loop: the signals, and whether the other loops and the threads are over.
    first: Option<(SignalPlan, Arc<AtomicBool>)>,
    make: &'a F,
}

/// Shuts the other loops down when this one ends, even by an error or a panic.
struct EndsAll(Remote);

impl Drop for EndsAll {
    fn drop(&mut self) {
        self.0.shutdown();
        if let Some(threads) = &self.0.threads {
            threads.note_loop_over();
        }
    }
}

impl<H: Handler, F: Fn(usize) -> H> Loop<'_, F> {
    fn run(self, tell: Sender<Told>, wait: Receiver<Heard>) -> io::Result<Report> {
        let (plan, others_are_over) = self.first.unzip();
        let prepared = self.builder.build().and_then(|mut watcher| {
            if let Some(cpu) = self.processor {
                // The processor may have gone offline meanwhile: then any other one serves.
                let _ = watcher.set_affinity(cpu);
            }
            // Before the first accept: later, connections could have used up the descriptors.
            let signals = plan.map(|plan| plan.take(&mut watcher, true)).transpose()?;
            let (config, budget) = (self.config, self.budget);
            let mut made = Prepared::new(self.index, &mut watcher, config, budget, self.listens)?;
            made.grace = self.grace;
            made.signals = signals.unwrap_or_default();
            made.signals.outlives = true;
            Ok((watcher, made))
        });
        let (mut watcher, mut prepared) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                // `run` waits for it.
                let _ = tell.send(Err(error));
                return Ok(Report::default());
            }
        };
        let heard = (prepared.remote.clone(), prepared.addresses.clone());
        let _ = tell.send(Ok((heard, watcher.submitter())));
        let Ok((remote, addresses)) = wait.recv() else { return Ok(Report::default()) };
        let ends_all = EndsAll(remote.clone());
        if let Some(executor) = self.executor {
            prepared.engine.share_executor(executor);
        }
        let handler = (self.make)(self.index);
        let mut running = prepared.start(&mut watcher, handler, &remote, self.balance, &addresses);
        running.run(&mut watcher)?;
        drop(ends_all);
        if let Some(others_are_over) = others_are_over {
            running.take_signals_until(&mut watcher, &others_are_over)?;
        }
        Ok(running.report())
    }
}
