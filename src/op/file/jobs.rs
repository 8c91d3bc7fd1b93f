//! Look-ups of names and addresses, and jobs of the program.

use std::any::Any;
use std::net::SocketAddr;

use crate::file::{Closure, Job};
use crate::op::Op;
use crate::words::source::Source;
#[cfg(doc)]
use crate::{Builder, Completion, Done, ErrorKind, Refusal};

/// Look-ups of names and addresses, and jobs of the program.
impl Op {
    /// Looks up the addresses of a host, from its name or its number: getaddrinfo(3).
    ///
    /// Completes with [`Done::Addresses`]: at least one, each with `port`, in the order in which
    /// the system would try them. It runs on a thread for as long as the name servers take. Give it
    /// a [`timeout`](Op::timeout).
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::lookup_host("192.0.2.7", 443))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Addresses(found)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(found, ["192.0.2.7:443".parse().unwrap()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with:
    ///
    /// - `ENOENT`: the name is not known, or has no address.
    /// - `EAGAIN`: no name server answers now; try again later.
    /// - `EIO`: a name server has failed for good.
    /// - `EINVAL`: the name contains a NUL.
    /// - `ENAMETOOLONG`, `ENOMEM`, `EAFNOSUPPORT`, and the errnos of the files and sockets that a
    ///   look-up uses (`EMFILE` …).
    ///
    /// # Platforms
    ///
    /// getaddrinfo(3) on every system, with its configuration (`/etc/hosts`, `/etc/resolv.conf`).
    /// Look-ups and jobs run on half of the threads at most. The simulation answers from
    /// [the test's table](crate::sim::Sim::host).
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work): no system can end a look-up that has
    /// begun. It keeps its thread, and its completion is marked as late.
    pub fn lookup_host(host: impl Into<String>, port: u16) -> Op {
        Op::job(Source::NONE, Job::LookupHost { host: host.into(), port })
    }

    /// Looks up the names of a host and a port: getnameinfo(3).
    ///
    /// Completes with [`Done::HostName`]. A host or port without a name is given as its number. It
    /// runs on a thread for as long as the name servers take.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::lookup_addr(([127, 0, 0, 1], 80).into()))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::HostName(name)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert!(!name.host.is_empty() && !name.service.is_empty()); // "localhost", "http"
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::lookup_host`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::lookup_host`].
    ///
    /// # Cancellation
    ///
    /// As for [`Op::lookup_host`].
    pub fn lookup_addr(address: SocketAddr) -> Op {
        Op::job(Source::NONE, Job::LookupAddr { address })
    }

    /// Runs `job` on a worker thread.
    ///
    /// Completes with [`Done::Returned`], which has the value that the job returns. Jobs and name
    /// look-ups run on half of the threads at most ([`Builder::threads`]), so that they do not keep
    /// file work waiting.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::run(|| (1..=20u64).product::<u64>()))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Returned(value)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(value.downcast::<u64>().unwrap(), 2_432_902_008_176_640_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work): a refused operation still
    /// holds the closure. An accepted one can end with:
    ///
    /// - [`ErrorKind::Panicked`]: the job panicked. The error's buffer holds the panic's message.
    ///
    /// # Platforms
    ///
    /// The same everywhere. In the simulation the job runs on the loop's thread, at a virtual time
    /// that the seed draws, so it must not wait for another thread or for the watcher.
    ///
    /// # Cancellation
    ///
    /// The loop's thread drops a job that has not begun. One that has begun runs to its end: its
    /// completion is marked as [late](Completion::is_late) and has the value. To end a job early,
    /// let its closure look at a flag of yours.
    pub fn run<T: Any + Send>(job: impl FnOnce() -> T + Send + 'static) -> Op {
        Op::job(Source::NONE, Job::Run(Closure::new(job)))
    }
}
