//! Jobs and look-ups: they run on the loop's thread, at times that the seed draws.
//!
//! A job waits, begins, and ends. The wait and the work take virtual time. The closure runs when
//! the job begins. So a cancel before the beginning stops the job, and after a later cancel the job
//! ends late.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::completion::Done;
use crate::file::thread_job::ThreadJob;
use crate::file::{HostName, Job};
use crate::memory::buf::Buf;
use crate::memory::discard::discard;
use crate::sim::Sim;
use crate::sim::faults::{ANYWHERE, Fault};
use crate::sim::kernel::Call;
use crate::sim::schedule::SimEvent;
use crate::sim::world::World;
use crate::words::clock;
use crate::words::error::{Error, ErrorKind};

/// The longest wait and the longest run of a job, by default.
const JOB_NS: u64 = 1_000_000;

/// The jobs and look-ups of one watcher, by the time of their next step and their order.
#[derive(Default)]
pub(super) struct Jobs {
    queued: BTreeMap<(u64, u64), (u64, ThreadJob)>,
    begun: BTreeMap<(u64, u64), (u64, Result<Done, Error>)>,
    number: u64,
}

impl Jobs {
    /// How many jobs wait, and how many run.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.queued.len() as u64, self.begun.len() as u64)
    }

    /// Drops the closures and the results of the program.
    pub(super) fn discard(&mut self) {
        for (_, job) in std::mem::take(&mut self.queued).into_values() {
            discard(job);
        }
        for (_, result) in std::mem::take(&mut self.begun).into_values() {
            discard(result);
        }
    }
}

/// The hosts that look-ups know, and how long jobs take.
pub(super) struct Resolver {
    hosts: BTreeMap<String, Vec<IpAddr>>,
    job_ns: u64,
}

impl Default for Resolver {
    fn default() -> Resolver {
        let localhost = ("localhost".into(), vec![Ipv4Addr::LOCALHOST.into()]);
        Resolver { hosts: BTreeMap::from([localhost]), job_ns: JOB_NS }
    }
}

/// A host name in lower case and without the final dot: names that differ only in these are equal.
fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl World {
    fn addresses(&mut self, host: &str, port: u16) -> Result<Vec<SocketAddr>, i32> {
        if host.contains('\0') {
            return Err(libc::EINVAL);
        }
        if let Ok(ip) = host.parse::<IpAddr>() {
            // Text of an address needs no name server.
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        if self.dice.hits(ANYWHERE, Fault::LookupFailed) {
            return Err(libc::EAGAIN);
        }
        let found = self.resolver.hosts.get(&normal(host)).ok_or(libc::ENOENT)?;
        Ok(found.iter().map(|ip| SocketAddr::new(*ip, port)).collect())
    }

    fn names(&mut self, address: SocketAddr) -> Result<HostName, i32> {
        if self.dice.hits(ANYWHERE, Fault::LookupFailed) {
            return Err(libc::EAGAIN);
        }
        let mut hosts = self.resolver.hosts.iter();
        let known = hosts.find(|(_, addresses)| addresses.contains(&address.ip()));
        let host = known.map_or_else(|| address.ip().to_string(), |(name, _)| name.clone());
        Ok(HostName { host, service: address.port().to_string() })
    }

    /// Draws the time of a job's next step.
    fn job_step_ns(&mut self) -> u64 {
        let span_ns = 1 + self.dice.rng.below(self.resolver.job_ns.max(1));
        self.schedule.now_ns.saturating_add(span_ns)
    }
}

impl Sim {
    /// Gives a host its addresses, for [`Op::lookup_host`](crate::Op::lookup_host) and
    /// [`Op::lookup_addr`](crate::Op::lookup_addr). An empty list removes the name. At the start
    /// only `localhost` is known, as 127.0.0.1.
    ///
    /// A look-up of an unknown name ends with `ENOENT`, as on a system. Addresses as text need no
    /// entry. Ports have no names: `lookup_addr` returns the number of the port.
    ///
    /// ```
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Done, ErrorKind, Op, Watcher};
    /// let sim = Sim::new(1);
    /// sim.host("db.example", [[10, 0, 0, 2], [10, 0, 0, 3]]);
    /// let mut watcher = Watcher::simulated(&sim);
    /// let mut done = Completions::new();
    /// watcher.submit(Op::lookup_host("DB.example", 5432))?;
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Addresses(found)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(found, [([10, 0, 0, 2], 5432).into(), ([10, 0, 0, 3], 5432).into()]);
    /// watcher.submit(Op::lookup_host("other.example", 80))?;
    /// watcher.wait(&mut done)?;
    /// let unknown = done.drain(..).next().unwrap().error_kind();
    /// assert_eq!(unknown, Some(ErrorKind::Os(2))); // ENOENT
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn host(&self, name: &str, addresses: impl IntoIterator<Item = impl Into<IpAddr>>) {
        let hosts = &mut self.enter().resolver.hosts;
        let addresses: Vec<IpAddr> = addresses.into_iter().map(Into::into).collect();
        match addresses.is_empty() {
            true => hosts.remove(&normal(name)),
            false => hosts.insert(normal(name), addresses),
        };
    }

    /// Sets the most virtual time that a job or a look-up waits before it begins, and the most that
    /// it runs. The seed draws both times. Default 1 ms, at least 1 ns.
    ///
    /// A job runs on the loop's thread. Its priority does not count, and any number of jobs run at
    /// the same virtual time. Its closure is called when the job begins, and takes no virtual time.
    pub fn set_job_time(&self, most: Duration) {
        self.enter().resolver.job_ns = clock::ns_of_duration(most);
    }
}

impl<const C: bool> Sim<C> {
    pub(super) fn queue_job(&mut self, key: u64, job: ThreadJob) -> Result<(), ThreadJob> {
        let call = match &job {
            ThreadJob::Job { job: Job::LookupHost { .. } | Job::LookupAddr { .. }, .. } => {
                Call::LookUp
            }
            _ => Call::Job,
        };
        if let ThreadJob::WriteAt { fd, buf, offset } = &job {
            let bytes = buf.parts().iter().flat_map(|part| part.iter().copied());
            let bytes = bytes.take(buf.len()).collect();
            self.enter().begin_write((self.selector, key), *fd, *offset, bytes);
        }
        let begin_ns = self.plan(call, key);
        self.jobs.number += 1;
        self.jobs.queued.insert((begin_ns, self.jobs.number), (key, job));
        Ok(())
    }

    /// Draws the time of a job's next step, which will end the wait of its watcher.
    fn plan(&mut self, call: Call, key: u64) -> u64 {
        let selector = self.selector;
        let mut at_ns = 0;
        self.call(call, key as u32 as i32, |world| {
            at_ns = world.job_step_ns();
            world.schedule.add(at_ns, SimEvent::Job { selector });
            at_ns as isize
        });
        at_ns
    }

    pub(super) fn withdraw_job(&mut self, key: u64) -> Option<ThreadJob> {
        let mut queued = self.jobs.queued.iter();
        let at = queued.find(|(_, (other, _))| *other == key).map(|(at, _)| *at)?;
        self.enter().disks.end_write((self.selector, key));
        self.jobs.queued.remove(&at).map(|(_, job)| job)
    }

    /// Ends all jobs of a watcher whose machine has crashed. Returns whether there were any.
    pub(super) fn crash_jobs(&mut self) -> bool {
        let now_ns = self.enter().schedule.now_ns;
        let failed =
            |work: ThreadJob| Err(Error::new(ErrorKind::Os(libc::EIO), 0, work.into_buf()));
        let Jobs { queued, begun, .. } = &mut self.jobs;
        for ((_, number), (key, job)) in std::mem::take(queued) {
            begun.insert((now_ns, number), (key, failed(job)));
        }
        for ((_, number), job) in std::mem::take(begun) {
            begun.insert((now_ns, number), job);
        }
        !begun.is_empty()
    }

    /// Begins the jobs whose time has come, and takes one that has ended.
    pub(super) fn next_job_answer(&mut self) -> Option<(u64, Result<Done, Error>)> {
        let now_ns = self.enter().schedule.now_ns;
        while let Some(first) = self.jobs.queued.first_entry()
            && first.key().0 <= now_ns
        {
            let (key, job) = first.remove();
            self.enter().disks.end_write((self.selector, key));
            let (call, result) = self.perform(job);
            let end_ns = self.plan(call, key);
            self.jobs.number += 1;
            self.jobs.begun.insert((end_ns, self.jobs.number), (key, result));
        }
        let first = self.jobs.begun.first_entry()?;
        if first.key().0 <= now_ns { Some(first.remove()) } else { None }
    }

    fn perform(&mut self, work: ThreadJob) -> (Call, Result<Done, Error>) {
        let ThreadJob::Job { fd, job } = work else { return self.do_file_work(work) };
        let found = match job {
            Job::LookupHost { host, port } => {
                self.enter().addresses(&host, port).map(Done::Addresses)
            }
            Job::LookupAddr { address } => {
                let names = self.enter().names(address);
                names.map(|names| Done::HostName(Box::new(names)))
            }
            // The job runs while the world is not borrowed, because it may drop a handle.
            job @ Job::Run(_) => return (Call::Job, job.run(None)),
            job => return self.do_file_work(ThreadJob::Job { fd, job }),
        };
        let failed = |errno| Error::new(ErrorKind::Os(errno), 0, Buf::NONE);
        (Call::LookUp, found.map_err(failed))
    }
}
