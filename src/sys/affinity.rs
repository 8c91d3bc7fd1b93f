//! Binds the calling thread to a processor.

pub(crate) use system::{bind, unbind_of};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::cell::Cell;
    use std::io;
    use std::sync::OnceLock;

    use nix::errno::Errno;
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    /// The processors of the process before the first thread was bound here.
    static ALL: OnceLock<CpuSet> = OnceLock::new();

    thread_local! {
        /// Whether this thread was bound here.
        static BOUND: Cell<bool> = const { Cell::new(false) };
    }

    const THIS: Pid = Pid::from_raw(0);

    /// Binds the calling thread to processor `cpu`. Returns whether there is such a processor that
    /// the process may use.
    pub(crate) fn bind(cpu: usize) -> io::Result<bool> {
        if ALL.get().is_none() {
            let all = sched_getaffinity(THIS).map_err(io::Error::from)?;
            ALL.get_or_init(|| all);
        }
        let mut set = CpuSet::new();
        match set.set(cpu).and_then(|()| sched_setaffinity(THIS, &set)) {
            Err(Errno::EINVAL) => return Ok(false),
            bound => bound.map_err(io::Error::from)?,
        }
        BOUND.set(true);
        Ok(true)
    }

    /// The first step of a thread that the calling thread spawns. A thread inherits the affinity of
    /// its parent: without this step, the workers of a bound loop would share the loop's only
    /// processor.
    pub(crate) fn unbind_of() -> impl FnOnce() + Send + 'static {
        let all = if BOUND.get() { ALL.get().copied() } else { None };
        move || {
            if let Some(all) = all {
                // The process may have fewer processors by now: then the thread stays where it is.
                let _ = sched_setaffinity(THIS, &all);
            }
        }
    }
}

/// Other systems have no such binding.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::io;

    pub(crate) fn bind(cpu: usize) -> io::Result<bool> {
        let _ = cpu;
        let text = "this system does not bind threads to processors";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// Threads inherit no affinity here.
    pub(crate) fn unbind_of() -> impl FnOnce() + Send + 'static {
        || {}
    }
}
