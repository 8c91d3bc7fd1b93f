//! Operations of the program on the watcher of the engine: files, look-ups, timers.
//!
//! The engine gives each the token of a place of its own, and the program's token comes back with
//! the completion. So a program may use any token.

use windlass::driver::{Driver, discard};
use windlass::{Completion, Done, Handle, Limit, Op, Refusal as Reason, Refused as Rejected};
use windlass::{SourceGuard, Watcher};

use crate::engine::events::Pending;
use crate::engine::{Engine, OPS};
use crate::parts::ops::{OpAtWork, is_work};
use crate::words::event::Event;
use crate::words::op::Completed;

impl<S> Engine<S> {
    /// Queues an operation, which the next [`flush`](Engine::flush) submits to the watcher. It is
    /// for handlers, which have no watcher. [`Event::Completed`] has the completion, with the token
    /// of the operation, which may be any number. Nothing is delivered in this call.
    ///
    /// The operations are those of [`Op`]: opens, reads and writes of files, metadata, renames,
    /// look-ups of hosts, jobs, timers. They run where the watcher runs them, and in a simulation
    /// on its simulated store. If an operation opens a file, the engine attaches it, and
    /// [`Completed::file`] is a guard for it. Its [source](SourceGuard::source) is for further
    /// operations, and for no other watcher. The file is closed when the guard is dropped.
    ///
    /// ```
    /// use windlass::fs::OpenOptions;
    /// use windlass::{Buf, Done, Op, SourceGuard};
    /// use windlass_serve::ops::Completed;
    /// use windlass_serve::{Action, Conn, Context, Handler, Id};
    ///
    /// /// Answers with the beginning of a file.
    /// #[derive(Default)]
    /// struct Heads {
    ///     /// Who waits for the operation with this token, and the open file.
    ///     waiting: Vec<(Id, Option<SourceGuard>)>,
    /// }
    ///
    /// impl Handler for Heads {
    ///     type State = ();
    ///
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
    ///         let open = Op::open("Cargo.toml", OpenOptions::new().read(true));
    ///         c.engine().submit(open.token(self.waiting.len() as u64));
    ///         self.waiting.push((c.id(), None));
    ///         Action::None
    ///     }
    ///
    ///     fn completed(&mut self, server: &mut Context<'_, ()>, ended: Completed) -> Action {
    ///         let (id, opened) = &mut self.waiting[ended.token as usize];
    ///         if let Ok(Some(file)) = ended.file {
    ///             let read = Op::read_at(file.source(), vec![0; 9], 0);
    ///             server.engine().submit(read.token(ended.token));
    ///             *opened = Some(file);
    ///             return Action::None;
    ///         }
    ///         *opened = None; // closes the file
    ///         let Some(mut c) = server.conn(*id) else { return Action::None }; // it has ended
    ///         match ended.result.map(|completion| completion.result) {
    ///             Ok(Ok(Done::Read(head))) => _ = c.write(head),
    ///             Ok(other) => println!("{other:?}"),
    ///             Err(refused) => println!("{refused}"),
    ///         }
    ///         Action::Shutdown
    ///     }
    /// }
    /// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let address = listener.local_addr()?;
    /// # let client = std::thread::spawn(move || {
    /// #     use std::io::{Read, Write};
    /// #     let mut client = std::net::TcpStream::connect(address).unwrap();
    /// #     client.write_all(b"please").unwrap();
    /// #     let mut heard = String::new();
    /// #     client.read_to_string(&mut heard).unwrap();
    /// #     heard
    /// # });
    /// # windlass_serve::Server::new(|_| Heads::default()).listener(listener).run()?;
    /// # assert_eq!(client.join().unwrap(), "[package]");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Order and limits
    /// The operations go to the watcher in the order of these calls. If the watcher is full
    /// ([`Limit::Operations`], [`Limit::Jobs`]), they wait in the engine, and go with a later
    /// flush. The engine does not bound their number, nor does it count their buffers: the program
    /// submits a bounded number for each connection.
    ///
    /// # Cancellation
    /// An operation belongs to no connection, and its completion comes even if the connection for
    /// which it was submitted has ended. A program that no longer wants it ignores its completion.
    /// A [deadline](Op::deadline) counts from the submission to the watcher.
    ///
    /// A shutdown of a server waits for operations that do something: file work, look-ups and jobs
    /// ([`Op::run`]), writes. It does so for at most [`Limits::close`](crate::Limits::close) after
    /// the last connection has ended, and meanwhile the program may submit more, in
    /// [`Handler::closed`](crate::Handler::closed) for example. Then it cancels what is left, and
    /// operations that only wait for others, such as timers and reads of sockets. A cancelled
    /// operation has no event: [`Report::unfinished_operations`] counts it. [`Engine::end`] waits
    /// for none, and cancels all.
    ///
    /// [`Report::unfinished_operations`]: crate::report::Report::unfinished_operations
    ///
    /// # Errors
    /// What the watcher refuses comes back in [`Completed::result`], with the reason. A
    /// [quiet](Op::quiet) operation is refused with [`Unsupported`](Reason::Unsupported), because
    /// its success would be no event. A [multishot](Op::multishot) operation has an event for each
    /// completion.
    ///
    /// Submit no operation on the [source](Engine::source) of a connection.
    pub fn submit(&mut self, op: Op) {
        self.work.ops.work += usize::from(is_work(&op));
        self.work.ops.waiting.push_back(op);
        self.work.requests = true;
    }

    /// How many operations of [`submit`](Engine::submit) wait or are in flight.
    pub fn operations(&self) -> usize {
        self.work.ops.len()
    }

    /// How many operations that do something were given up.
    pub(crate) fn unfinished_operations(&self) -> usize {
        self.work.ops.unfinished
    }

    /// Submits the operations of the program that wait.
    #[cold]
    pub(crate) fn submit_ops<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        while let Some(mut op) = self.work.ops.waiting.pop_front() {
            let is_work = is_work(&op);
            let place = self.work.ops.place();
            let token = op.replace_token(self.token(OPS | place));
            let submitted = match op.is_quiet() {
                true => Err(Rejected { value: op, reason: Reason::Unsupported }),
                false => watcher.submit(op),
            };
            let ops = &mut self.work.ops;
            match submitted {
                Ok(ticket) => {
                    ops.submitted[place as usize] = Some(OpAtWork { token, ticket, is_work });
                }
                Err(mut refused) => {
                    ops.vacant.push(place);
                    refused.value.replace_token(token);
                    // Full tables have room again after the next completions.
                    if let Reason::Full { limit, .. } = refused.reason
                        && limit != Limit::Writes
                    {
                        ops.waiting.push_front(refused.value);
                        self.work.requests = true;
                        return;
                    }
                    ops.work -= usize::from(is_work);
                    self.counters.operations.refused += 1;
                    let completed =
                        Completed { token, result: Err(Box::new(refused)), file: Ok(None) };
                    self.told.pending.push_back(Pending::Refused(Box::new(completed)));
                }
            }
        }
    }

    /// An operation of the program has made a completion.
    pub(crate) fn op_completed<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        place: u32,
        mut completion: Completion,
    ) -> Option<Event<S>> {
        // One that was given up has no event.
        let token = self.work.ops.find(place, completion.ticket())?.token;
        completion.token = token;
        if !completion.has_more() {
            self.work.ops.vacate(place);
            self.counters.operations.done += 1;
        }
        let file = attach_opened(watcher, &mut completion);
        if let Ok(Some(file)) = &file {
            self.is_of_watcher(watcher, file); // from now on that is known
        }
        Some(Event::Completed(Completed { token, result: Ok(completion), file }))
    }

    /// Drops the operations of the program that wait, and cancels those that the watcher has.
    pub(crate) fn give_up_ops<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let ops = std::mem::take(&mut self.work.ops);
        self.work.ops.unfinished = ops.unfinished + ops.work;
        self.counters.operations.dropped += ops.len() as u64;
        for submitted in ops.submitted.into_iter().flatten() {
            watcher.cancel(submitted.ticket);
        }
        ops.waiting.into_iter().for_each(discard);
    }
}

/// Attaches the file that an operation has opened, and takes it out of the completion.
fn attach_opened<D: Driver>(
    watcher: &mut Watcher<D>,
    completion: &mut Completion,
) -> Result<Option<SourceGuard>, Box<Rejected<Handle>>> {
    let opened = std::mem::replace(&mut completion.result, Ok(Done::Finished));
    let handle = match opened {
        Ok(Done::Opened(handle)) => handle,
        Ok(Done::Temporary(made)) => {
            let (path, handle) = *made;
            completion.result = Ok(Done::Path(path));
            handle
        }
        other => {
            completion.result = other;
            return Ok(None);
        }
    };
    let source = watcher.attach(handle)?;
    Ok(Some(watcher.guard(source)))
}
