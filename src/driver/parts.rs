//! Operations, opened for drivers and put together again; results of jobs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[cfg(doc)]
use crate::Refusal;
use crate::completion::Done;
use crate::file::thread_job::{JobEnd, Value};
use crate::file::{Arguments, Job};
use crate::memory::buf::Buf;
use crate::op::payload::Payload;
use crate::op::{self, DEFERRED, Family, MULTISHOT, Op, OpCode, QUIET, RELATIVE};
use crate::op::{HIGH, LOW, Priority};
use crate::sys::fd::{AsRawFd, BorrowedFd, OwnedFd};
use crate::words::address::Address;
use crate::words::clock::{self, Deadline};
use crate::words::error::{Error, ErrorKind};
use crate::words::source::Source;
use crate::workers::Panic;

/// An [`Op`], opened: everything that a driver needs of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpParts {
    /// The code.
    pub code: OpCode,
    /// With which source.
    pub source: Source,
    /// The user's number.
    pub token: u64,
    /// When a timer fires.
    pub timer: Option<Deadline>,
    /// The operation's deadline; a timer may have one in addition to its own time.
    pub deadline: Option<Deadline>,
    /// Whether it stays in flight after a completion.
    pub multishot: bool,
    /// Whether it makes no completion if it succeeds ([`Op::quiet`]). A driver that cannot do this
    /// refuses the operation with [`Refusal::Unsupported`].
    pub quiet: bool,
    /// Whether the driver may send it at the next wait ([`Op::deferred`]). It may as well send it
    /// at once.
    pub deferred: bool,
    /// How urgent it is, where threads do it.
    pub priority: Priority,
    /// Its buffer.
    pub buf: Buf,
    /// Of [`OpCode::Connect`] and [`OpCode::SendTo`]: the address.
    pub address: Option<Address>,
    /// Of [`OpCode::SendDescriptors`]: those that travel. Of [`OpCode::Connect`]: the socket, if
    /// the program has made it.
    pub descriptors: Vec<OwnedFd>,
    /// Of [`OpCode::Job`]: the job for a thread.
    pub job: Option<Job>,
    /// Of [`OpCode::SendFile`]: the attached file whose bytes go out over the source.
    pub file: Source,
    /// Where in the file it starts, in bytes.
    pub offset: u64,
    /// Bytes: those wanted by [`OpCode::ReadExact`], the most that [`OpCode::SendFile`] sends,
    /// those that [`OpCode::WaitDrained`] leaves. Of [`OpCode::Poll`] the
    /// [bits](crate::Ready::bits) of the conditions. Of [`OpCode::RecvFrom`] 1, if it has a buffer
    /// of its own. Of [`OpCode::Connect`] 1, if the program's socket is of another kernel.
    pub count: u32,
}

impl Op {
    /// Opens the operation (for authors of drivers). Nothing is lost: [`Op::from_parts`] is the way
    /// back.
    ///
    /// ```
    /// use windlass::driver::{OpCode, Job};
    /// use windlass::fs::OpenOptions;
    /// use windlass::Op;
    /// let parts = Op::open("/etc/hosts", OpenOptions::new().read(true)).token(7).into_parts();
    /// assert_eq!((parts.code, parts.token), (OpCode::Job, 7));
    /// assert!(matches!(parts.job, Some(Job::Open { path, .. }) if path.ends_with("hosts")));
    /// ```
    pub fn into_parts(mut self) -> OpParts {
        let due = |ns| match ns {
            0 => None,
            ns if ns & RELATIVE != 0 => Some(Deadline::After(Duration::from_nanos(ns ^ RELATIVE))),
            ns => Some(Deadline::At(clock::instant_of(ns))),
        };
        let (timer, deadline, offset) = match self.code.family() {
            Family::Timer => (due(self.deadline_ns), due(self.limit_ns()), 0),
            _ => (None, due(self.deadline_ns), self.payload.as_offset()),
        };
        let (job, file, offset) = match self.payload.take_arguments().map(|boxed| *boxed) {
            Some(Arguments::Job(job)) => (Some(job), Source::NONE, offset),
            Some(Arguments::Range { file, offset }) => (None, file, offset),
            None => (None, Source::NONE, offset),
        };
        let mut address = self.payload.take_address();
        let descriptors = address.as_mut().map_or_else(Vec::new, Address::take_descriptors);
        if !self.code.has_address() {
            // The address is only the memory in which descriptors travel.
            address = None;
        }
        OpParts {
            code: self.code,
            source: self.source,
            token: self.token,
            timer,
            deadline,
            multishot: self.flags & MULTISHOT != 0,
            quiet: self.flags & QUIET != 0,
            deferred: self.flags & DEFERRED != 0,
            priority: match self.flags & (HIGH | LOW) {
                HIGH => Priority::High,
                LOW => Priority::Low,
                _ => Priority::Normal,
            },
            buf: self.buf,
            address,
            descriptors,
            job,
            file,
            offset,
            count: self.count,
        }
    }

    /// Puts an operation together again (for authors of drivers): to hand back one that is refused
    /// after it was opened, or to pass a changed one on to another driver. Parts that operations of
    /// its code do not have are dropped. Drivers refuse one that lacks a part, as
    /// [`Refusal::Unsupported`].
    ///
    /// ```
    /// use windlass::{Op, Source};
    /// let mut parts = Op::write(Source::NONE, "hello").into_parts();
    /// parts.token = 8;
    /// let op = Op::from_parts(parts);
    /// assert_eq!(op.into_buf().into_vec(), b"hello");
    /// ```
    pub fn from_parts(parts: OpParts) -> Op {
        let OpParts { code, source, token, timer, deadline, .. } = parts;
        let mut op = Op::plain(code, source);
        // Drivers rely on it that an operation carries nothing else.
        // For a receive of a datagram, `count` says whether it has a buffer.
        let receives = code.family() == Family::Datagram && code.is_read();
        if code.has_buf() && (!receives || parts.count != 0) {
            op.buf = parts.buf;
        }
        let address = if code.has_address() { parts.address } else { None };
        op.payload = match (code.family(), address) {
            (Family::SendFile, _) => {
                let (file, offset) = (parts.file, parts.offset);
                Payload::from(Box::new(Arguments::Range { file, offset }))
            }
            (Family::Job, _) => {
                let boxed = |job| Payload::from(Box::new(Arguments::Job(job)));
                parts.job.map_or(Payload::NONE, boxed)
            }
            (_, Some(mut address)) => {
                if code.has_descriptors() {
                    address.set_descriptors(parts.descriptors);
                }
                Payload::from(address)
            }
            // Descriptors travel in the memory of an address.
            (_, None) if code.has_descriptors() && !code.has_address() => {
                let mut address = Address::unspecified();
                address.set_descriptors(parts.descriptors);
                Payload::from(address)
            }
            _ if code.has_offset() => Payload::offset(parts.offset),
            _ => Payload::NONE,
        };
        op.deadline_ns = timer.map_or(0, op::due_ns);
        op.count = parts.count;
        op = op.token(token).priority(parts.priority);
        if parts.multishot {
            op = op.multishot();
        }
        if parts.quiet {
            op = op.quiet();
        }
        if parts.deferred {
            op = op.deferred();
        }
        match deadline {
            Some(Deadline::At(at)) => op.deadline(at),
            Some(Deadline::After(span)) => op.timeout(span),
            None => op,
        }
    }
}

impl Job {
    /// Does the work on the calling thread, which it may block for as long as it takes; never call
    /// it on the loop's. `file` is the descriptor of the operation's source, if it has one.
    ///
    /// It is what the built-in drivers' threads run. A driver serves some jobs in a way of its
    /// own, and the rest by this.
    ///
    /// ```
    /// use windlass::{Done, Op};
    /// let job = Op::run(|| 6 * 7).into_parts().job.unwrap();
    /// let Ok(Done::Returned(value)) = job.run(None) else { panic!() };
    /// assert_eq!(value.downcast::<i32>().unwrap(), 42);
    /// ```
    ///
    /// # Errors
    /// What the system reports; `EBADF` if the job needs a file and `file` is `None`;
    /// [`ErrorKind::TooManyEntries`]; [`ErrorKind::Panicked`] for a job that panics, with what the
    /// panic said in the error's buffer.
    pub fn run(self, file: Option<BorrowedFd<'_>>) -> Result<Done, Error> {
        let fd = match file {
            Some(file) => file.as_raw_fd(),
            None if self.needs_file() => {
                return Err(Error::new(ErrorKind::Os(libc::EBADF), 0, Buf::NONE));
            }
            None => -1,
        };
        match catch_unwind(AssertUnwindSafe(|| self.perform(fd))) {
            Ok(end) => ended(end),
            Err(payload) => Err(panicked(&Panic::from_payload(payload))),
        }
    }
}

/// The result of an operation whose work a thread has done.
pub(crate) fn ended(JobEnd { result, buf, bytes }: JobEnd) -> Result<Done, Error> {
    let moved = u32::try_from(bytes).unwrap_or(u32::MAX);
    Ok(match result {
        Err(errno) => return Err(Error::new(ErrorKind::Os(errno), moved, buf)),
        Ok(Value::TooMany) => return Err(Error::new(ErrorKind::TooManyEntries, 0, buf)),
        Ok(Value::Unit) => Done::Finished,
        Ok(Value::Closed) => Done::Closed,
        Ok(Value::Copied) => Done::Copied(bytes),
        Ok(Value::File(file)) => Done::Opened(file),
        Ok(Value::Temp(path, file)) => Done::Temporary(Box::new((path, file))),
        Ok(Value::Metadata(stat)) => Done::Metadata(stat),
        Ok(Value::StatFs(stat)) => Done::StatFs(stat),
        Ok(Value::Path(path)) => Done::Path(path),
        Ok(Value::Entries(entries)) => Done::Entries(entries),
        Ok(Value::Part(part)) => Done::Part(part),
        Ok(Value::Addresses(addresses)) => Done::Addresses(addresses),
        Ok(Value::HostName(name)) => Done::HostName(Box::new(name)),
        Ok(Value::Job(value)) => Done::Returned(value),
    })
}

/// The error of an operation whose work has panicked.
pub(crate) fn panicked(panic: &Panic) -> Error {
    let text = panic.message().unwrap_or_default().to_owned();
    Error::new(ErrorKind::Panicked, 0, Buf::from(text))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::file::{CopyOptions, DirReader, FileRef, OpenOptions};
    use crate::sys::interest::Ready;

    /// Of every constructor one, with all that it can carry.
    fn all() -> Vec<Op> {
        let source = Source::from_parts(3, std::num::NonZeroU32::new(5).unwrap());
        let file = Source::from_parts(4, std::num::NonZeroU32::new(9).unwrap());
        let address = || Address::from(([127, 0, 0, 1], 7007));
        let (at, after) = (Instant::now(), Duration::from_millis(7));
        let reading = OpenOptions::new().read(true);
        vec![
            Op::nop().token(1),
            Op::timer(after),
            Op::timer(after).timeout(after / 2),
            Op::timer_at(at).deadline(at + after),
            Op::read(source).multishot().deadline(at),
            Op::read_into(source, vec![1; 8]).timeout(after),
            Op::read_exact(source, vec![1; 8], 5),
            Op::read_append(source, Vec::with_capacity(8)),
            Op::write(source, "bytes"),
            Op::write(source, "bytes").quiet().deadline(at),
            Op::write_vectored(source, vec![Buf::from("a"), Buf::from("b")]),
            Op::accept(source).multishot(),
            Op::connect(address()),
            Op::shutdown(source),
            Op::recv_from(source),
            Op::recv_from(source).multishot(),
            Op::recv_from_into(source, vec![0; 9]),
            Op::send_to(source, "bytes", address()),
            Op::send_to(source, "bytes", address()).deferred(),
            Op::recv_descriptors(source),
            Op::poll(source, Ready::READABLE),
            Op::signal(source).multishot(),
            Op::child_exit(source).deadline(at),
            Op::wait_drained(source, 17),
            Op::close(source),
            Op::read_at(source, vec![0; 9], 4096).priority(Priority::High),
            Op::write_at(source, vec![0; 9], 1 << 40).priority(Priority::Low),
            Op::sync_all(source),
            Op::sync_data(source),
            Op::send_file(source, file, 1 << 41, 99).multishot().deadline(at).token(9),
            Op::sync_range(source, 1, 2),
            Op::open("a", reading).priority(Priority::High).timeout(after),
            Op::metadata(FileRef::Source(source)),
            Op::read_dir_part(DirReader::new("a"), 3),
            Op::copy("a", "b", CopyOptions::new().exclusive(true)),
            Op::lookup_host("localhost", 7),
            Op::run(|| 6 * 7).token(3),
        ]
    }

    #[test]
    fn an_operation_that_was_opened_is_put_together_again_as_it_was() {
        for (op, same) in all().into_iter().zip(all()) {
            let before = (op.code, op.source, op.token, op.flags, op.count);
            let relative = op.deadline_ns & RELATIVE != 0;
            let parts = op.into_parts();
            let text = format!("{parts:?}");
            let again = Op::from_parts(parts);
            let after = (again.code, again.source, again.token, again.flags, again.count);
            assert_eq!((before, relative), (after, again.deadline_ns & RELATIVE != 0), "{text}");
            assert_eq!(format!("{:?}", again.into_parts()), text);
            let code = same.code;
            let parts = same.into_parts();
            assert_eq!(parts.job.is_some(), code == OpCode::Job, "{text}");
            assert_eq!(parts.file.is_none(), code != OpCode::SendFile, "{text}");
        }
    }

    #[test]
    fn a_task_without_its_file_is_refused_and_a_panic_is_an_error() {
        let job = |op: Op| op.into_parts().job.expect("a job");
        let source = Source::from_parts(3, std::num::NonZeroU32::new(5).unwrap());
        for op in [Op::set_len(source, 0), Op::metadata(source), Op::set_permissions(source, 0)] {
            let error = job(op).run(None).expect_err("no file");
            assert_eq!(error.kind(), ErrorKind::Os(libc::EBADF));
        }
        let error = job(Op::run(|| panic!("on purpose"))).run(None).expect_err("it panics");
        assert_eq!(error.kind(), ErrorKind::Panicked);
        assert_eq!(error.into_buf().into_vec(), b"on purpose");
    }
}
