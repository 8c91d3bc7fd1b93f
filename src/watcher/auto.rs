//! The built-in drivers behind one type, and the choice between them.

use std::io::{self, IoSlice, IoSliceMut};
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::completion::verbs::{Complete, Submit, Wait};
use crate::completion::{Completion, Completions};
use crate::driver::Driver;
use crate::driver::config::Config;
use crate::driver::endpoint::{ConnectOptions, DatagramOptions, ListenOptions};
use crate::file::{self, FileBackend, UnknownBackend};
use crate::kernel::Os;
use crate::memory::aligned::AlignedBuf;
use crate::memory::buf::Buf;
use crate::memory::buf::swap::Pool;
use crate::op::payload::Payload;
use crate::op::{Op, OpCode};
use crate::proactor::Proactor;
use crate::remote::Submitter;
use crate::sim::SimulatedDriver;
use crate::sys::fd::BorrowedFd;
use crate::sys::file_ring;
use crate::sys::socket_option::SocketOption;
use crate::sys::{CHOSEN, Poll, Select, Selector};
use crate::words::address::Address;
use crate::words::clock::{Clock, Deadline};
use crate::words::error::{Refusal, Refused};
use crate::words::explain::{Counters, Explain};
use crate::words::source::{Handle, Source, SourceKind, Ticket};
use crate::workers::{DEFAULT_THREADS, MOST_THREADS};

/// The environment variable that names the driver.
pub(crate) const VARIABLE: &str = "WINDLASS_DRIVER";

/// The start of a reason for a choice that neither the program nor the environment has made.
const BY_ITSELF: &str = "chosen automatically";

/// Which driver a watcher runs on.
///
/// ```
/// use windlass::DriverKind;
/// assert_eq!("epoll".parse(), Ok(DriverKind::Epoll));
/// assert!("select".parse::<DriverKind>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverKind {
    /// What `WINDLASS_DRIVER` names, or else the best that works here.
    #[default]
    Auto,
    /// The proactor on epoll (Linux, Android).
    Epoll,
    /// The proactor on io_uring (Linux).
    ///
    /// When a process is killed, the kernel ends the requests of its ring some milliseconds later,
    /// and only then the connections that they read or write. Listeners and datagram sockets are
    /// closed with the process.
    Uring,
    /// The proactor on kqueue (macOS and the BSDs).
    Kqueue,
    /// The proactor on poll(2), everywhere: for development. It looks at every descriptor in every
    /// wait, and is chosen automatically only where there is nothing else: on Windows (WSAPoll).
    Poll,
}

/// The name is not a driver's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDriver(String);

impl std::fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} is not a driver: there are auto, epoll, uring, kqueue and poll", self.0)
    }
}

impl std::error::Error for UnknownDriver {}

impl FromStr for DriverKind {
    type Err = UnknownDriver;
    fn from_str(name: &str) -> Result<DriverKind, UnknownDriver> {
        match name {
            "" | "auto" => Ok(DriverKind::Auto),
            "epoll" => Ok(DriverKind::Epoll),
            "uring" | "io_uring" => Ok(DriverKind::Uring),
            "kqueue" => Ok(DriverKind::Kqueue),
            "poll" => Ok(DriverKind::Poll),
            other => Err(UnknownDriver(other.to_owned())),
        }
    }
}

/// The built-in drivers behind one type, chosen when the watcher is built.
#[non_exhaustive]
#[allow(clippy::large_enum_variant)] // one for each watcher: no pointer to the usual driver
#[repr(u8)] // one comparison reads a separate tag, four instructions one in a niche
pub enum Auto {
    /// The proactor on the system's selector.
    Readiness(Proactor<Os>),
    /// The proactor on io_uring.
    #[cfg(all(target_os = "linux", not(windlass_kqueue)))]
    Completion(Proactor<crate::kernel::ring::Ring>),
    /// The proactor on poll(2), out of the way of the other.
    Poll(Box<Proactor<Os<Poll>>>),
    /// The proactor on a simulated network, for tests: [`Watcher::simulated`]. Only that function
    /// names its type, so a program that does not call it does not contain a simulation.
    ///
    /// [`Watcher::simulated`]: crate::Watcher::simulated
    Simulated(Box<dyn SimulatedDriver>),
}

impl Auto {
    /// Builds the driver of this kind. An explicit choice, here or in the environment, never falls
    /// back.
    pub(crate) fn new(kind: DriverKind, mut config: Config) -> io::Result<Auto> {
        config.file_backend = file_backend(config.file_backend)?;
        config.threads = Some(threads(config.threads)?);
        let files = config.file_backend;
        let (kind, reason) = match (kind, std::env::var(VARIABLE)) {
            (DriverKind::Auto, Ok(name)) => {
                let kind = name.parse().map_err(|unknown: UnknownDriver| {
                    let text = format!("{VARIABLE}: {unknown}");
                    io::Error::new(io::ErrorKind::InvalidInput, text)
                })?;
                (kind, format!("named by {VARIABLE}"))
            }
            (DriverKind::Auto, Err(_)) => (kind, format!("{BY_ITSELF}: {CHOSEN}")),
            (kind, _) => (kind, "named by the program".into()),
        };
        // The poll selector has no file engine beside it, even where it is the system's selector.
        let beside = Selector::EDGES && !matches!(kind, DriverKind::Uring | DriverKind::Poll);
        let has = match files {
            FileBackend::Auto | FileBackend::Pool => true,
            FileBackend::Aio => beside,
            FileBackend::Uring => beside || kind == DriverKind::Uring,
        };
        if !has {
            let text = format!("{files:?} does no work on files beside the driver {kind:?}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let name = match kind {
            DriverKind::Auto => Selector::NAME,
            DriverKind::Epoll => "epoll",
            DriverKind::Kqueue => "kqueue",
            #[cfg(all(target_os = "linux", not(windlass_kqueue)))]
            DriverKind::Uring => {
                let kernel = crate::kernel::ring::Ring::new(&config)?;
                return Ok(Auto::Completion(Proactor::with_kernel(kernel, config, reason)));
            }
            #[cfg(not(all(target_os = "linux", not(windlass_kqueue))))]
            DriverKind::Uring => "uring",
            DriverKind::Poll => {
                let kernel = Os::new(&config)?;
                let driver = Proactor::with_kernel(kernel, config, reason);
                return Ok(Auto::Poll(Box::new(driver)));
            }
        };
        if name != Selector::NAME {
            let text = format!("{name}: this system has {}", Selector::NAME);
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let kernel = Os::new(&config)?;
        Ok(Auto::Readiness(Proactor::with_kernel(kernel, config, reason)))
    }
}

/// The backend that was chosen, or that the environment names.
fn file_backend(chosen: FileBackend) -> io::Result<FileBackend> {
    match (chosen, std::env::var(file::VARIABLE)) {
        (FileBackend::Auto, Ok(name)) => name.parse().map_err(|unknown: UnknownBackend| {
            let text = format!("{}: {unknown}", file::VARIABLE);
            io::Error::new(io::ErrorKind::InvalidInput, text)
        }),
        (chosen, _) => Ok(chosen),
    }
}

/// How many threads were asked for, here or in the environment.
fn threads(chosen: Option<usize>) -> io::Result<usize> {
    const VARIABLE: &str = "WINDLASS_THREADS";
    let (count, asked) = match (chosen, std::env::var(VARIABLE)) {
        (None, Err(_)) => return Ok(DEFAULT_THREADS),
        (None, Ok(text)) => (text.trim().parse().ok(), format!("{VARIABLE}: {text:?}")),
        (Some(count), _) => (Some(count), format!("Builder::threads: {count}")),
    };
    count.filter(|count| (1..=MOST_THREADS).contains(count)).ok_or_else(|| {
        let text = format!("{asked} is not a number from 1 to {MOST_THREADS}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

/// Calls a method of the driver. One comparison selects the usual driver.
macro_rules! forward {
    ($self:ident.$name:ident($($argument:expr),*)) => {
        match $self {
            Auto::Readiness(driver) => driver.$name($($argument),*),
            #[cfg(all(target_os = "linux", not(windlass_kqueue)))]
            Auto::Completion(driver) => {
                unusual();
                driver.$name($($argument),*)
            }
            Auto::Poll(driver) => {
                unusual();
                driver.$name($($argument),*)
            }
            Auto::Simulated(driver) => {
                unusual();
                driver.$name($($argument),*)
            }
        }
    };
}

#[cold]
fn unusual() {}

/// Methods of `Driver` that forward their arguments as they are.
macro_rules! forwards {
    (&mut $self:ident: $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&mut $self, $($argument: $type),*) -> $answer {
            forward!($self.$name($($argument),*))
        }
    )*};
    (&$self:ident: $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&$self, $($argument: $type),*) -> $answer {
            forward!($self.$name($($argument),*))
        }
    )*};
}

impl Auto {
    /// Out of line, so that code which inlines `submit` contains one driver only. It takes the
    /// operation in parts, so that the usual driver's operation is not written to memory.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn submit_elsewhere(
        &mut self,
        source: Source,
        token: u64,
        deadline_ns: u64,
        buf: Buf,
        payload: Payload,
        count: u32,
        code: OpCode,
        flags: u8,
    ) -> Result<Ticket, Refused<Op>> {
        let op = Op { source, token, deadline_ns, buf, payload, count, code, flags };
        forward!(self.submit(op))
    }
}

impl Submit for Auto {
    type Op = Op;
    #[inline(always)]
    fn submit(&mut self, op: Op) -> Result<Ticket, Refused<Op>> {
        // One comparison selects the usual driver.
        match self {
            Auto::Readiness(driver) => driver.submit(op),
            _ => {
                let Op { source, token, deadline_ns, buf, payload, count, code, flags } = op;
                self.submit_elsewhere(source, token, deadline_ns, buf, payload, count, code, flags)
            }
        }
    }
    #[inline]
    fn cancel(&mut self, ticket: Ticket) -> bool {
        forward!(self.cancel(ticket))
    }
}

impl Complete for Auto {
    type Item = Completion;
    #[inline]
    fn complete(&mut self, wait: Wait, out: &mut Completions) -> io::Result<usize> {
        forward!(self.complete(wait, out))
    }
}

impl Driver for Auto {
    #[inline]
    fn attach(&mut self, handle: Handle) -> Result<Source, Refused<Handle>> {
        forward!(self.attach(handle))
    }
    #[inline]
    fn abort(&mut self, source: Source) -> bool {
        forward!(self.abort(source))
    }
    #[inline]
    fn queued_bytes(&self, source: Source) -> Result<usize, Refusal> {
        forward!(self.queued_bytes(source))
    }
    forwards! { &mut self:
        attach_shared(handle: Handle) -> Result<Source, Refused<Handle>>;
        detach(source: Source) -> Result<Handle, Refusal>;
        connect(addresses: Vec<Address>, options: ConnectOptions)
            -> Result<(Source, Ticket), Refusal>;
        listen(address: &Address, options: ListenOptions) -> io::Result<Source>;
        bind_datagram(address: &Address, options: DatagramOptions) -> io::Result<Source>;
        signals(signals: &[i32]) -> Result<Source, Refusal>;
        child(pid: u32) -> Result<Source, Refusal>;
        cancel_all(source: Source) -> usize;
        close() -> ();
        reinit_after_fork() -> io::Result<()>;
        recv(source: Source, to: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
        send(source: Source, parts: &[IoSlice<'_>]) -> io::Result<usize>;
        set_token(source: Source, token: u64) -> Result<(), Refusal>;
        fd(source: Source) -> Result<BorrowedFd<'_>, Refusal>;
        kind(source: Source) -> Result<SourceKind, Refusal>;
        connect_datagram(source: Source, peer: &Address) -> Result<(), Refusal>;
        set_option(source: Source, option: SocketOption) -> Result<(), Refusal>;
        take_error(source: Source) -> Result<Option<i32>, Refusal>;
        aligned_buf(len: usize) -> AlignedBuf;
        pool() -> Result<&mut Pool, Refusal>;
        update_now() -> Instant;
        reschedule(ticket: Ticket, due: Deadline) -> Result<(), Refusal>;
        set_idle_timeout(source: Source, timeout: Option<Duration>) -> Result<(), Refusal>;
        next_timeout() -> Option<Duration>;
        submitter() -> Submitter;
        complete_at_least(least: usize, wait: Wait, out: &mut Completions) -> io::Result<usize>;
        complete_one(ticket: Ticket) -> io::Result<Completion>;
    }

    forwards! { &self:
        local_address(source: Source) -> Result<Address, Refusal>;
        peer_address(source: Source) -> Result<Address, Refusal>;
        now() -> Instant;
        clock() -> Clock;
        is_in_flight(ticket: Ticket) -> Result<bool, Refusal>;
        idle_timeout(source: Source) -> Option<Duration>;
        pollable() -> Result<BorrowedFd<'_>, Refusal>;
        counters() -> Counters;
    }

    fn explain(&self) -> Explain {
        let mut explain = forward!(self.explain());
        if explain.reason.starts_with(BY_ITSELF)
            && let Some(why) = file_ring::WHY_NOT_FOR_SOCKETS
        {
            explain.row("sockets", "not io_uring", why, 0);
        }
        explain
    }
}
