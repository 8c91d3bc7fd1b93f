//! Dispatch: the function that serves an operation, by its code, and what a refusal gives back.

use super::*;
use crate::buf::Buf;
use crate::op::MULTISHOT;
use usual::NewWrite;

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    fn submit_other(&mut self, op: Op) -> Result<Ticket, Rejected<Op>> {
        if op.flags & op::QUIET != 0 {
            return Err(Rejected { reason: self.why_not_quiet(), value: op });
        }
        let Op { source, token: own, deadline_ns: at, mut buf, mut extra, count, code, flags } = op;
        let token = self.token(source, own);
        let mut address = extra.take_address();
        let answer = match code {
            OpCode::Read | OpCode::Write | OpCode::ReadAt | OpCode::Close => {
                unreachable!("served by the caller")
            }
            OpCode::Message => Err(Reason::Unsupported),
            OpCode::ReadInto => self.submit_read_into(source, token, at, &mut buf),
            OpCode::ReadAppend => self.submit_read_append(source, token, at, &mut buf),
            OpCode::ReadExact => self.submit_read_exact(source, token, at, count, &mut buf),
            OpCode::Accept => self.submit_accept(source, token, at, flags & MULTISHOT != 0),
            OpCode::Connect => self.submit_connect(token, at, count, &mut address),
            OpCode::Shutdown => self.submit_after_writes(OpCode::Shutdown, source, token, at),
            OpCode::RecvFrom => self.submit_recv_from(source, token, at, count, flags, &mut buf),
            OpCode::SendTo => self.submit_send_to(source, token, at, flags, &mut buf, &mut address),
            OpCode::RecvDescriptors => self.submit_recv_descriptors(source, token, at),
            OpCode::SendDescriptors => {
                self.submit_send_descriptors(source, token, at, &mut buf, &mut address)
            }
            OpCode::Poll => self.submit_poll(source, token, at, count),
            OpCode::Signal | OpCode::ChildExit => {
                self.submit_of_process(code, source, token, at, flags)
            }
            OpCode::Timer => self.submit_timer(source, token, at, op::limit_ns(flags, &extra)),
            OpCode::Nop => self.submit_nop(token),
            OpCode::WaitDrained => self.submit_drained(source, token, at, count),
            OpCode::WriteAt => {
                self.submit_write_at(source, token, at, extra.as_offset(), flags, &mut buf)
            }
            OpCode::SyncAll | OpCode::SyncData => self.submit_sync(code, source, token, at, flags),
            OpCode::SendFile => self.submit_send_file(source, token, at, count, flags, &mut extra),
            OpCode::Task => self.submit_task(source, token, at, flags, &mut extra),
        };
        answer.map_err(|reason| {
            let extra = address.map_or(extra, Extra::from);
            let op = Op { source, token: own, deadline_ns: at, buf, extra, count, code, flags };
            Rejected { value: op, reason }
        })
    }

    /// The refusal of a quiet operation that is no write.
    #[cold]
    fn why_not_quiet(&self) -> Reason {
        match self.check_fork() {
            Err(forked) => forked,
            Ok(()) if self.closed => Reason::Closed,
            Ok(()) => Reason::Unsupported,
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse_quiet(&mut self, buf: Buf) -> Option<Ticket> {
        self.refusal = (self.why_not_quiet(), buf);
        None
    }

    /// Puts a refused operation together again.
    #[cold]
    #[inline(never)]
    fn refuse(
        &mut self,
        code: OpCode,
        source: Source,
        token: u64,
        deadline_ns: u64,
        flags: u8,
        extra: Extra,
    ) -> Rejected<Op> {
        let buf = self.refusal.1.take();
        let op = Op { source, token, deadline_ns, buf, extra, count: 0, code, flags };
        Rejected { value: op, reason: self.refusal.0 }
    }
}

impl<K: Kernel> Submit for Proactor<K> {
    type Op = Op;

    #[inline(always)]
    fn submit(&mut self, op: Op) -> Result<Ticket, Rejected<Op>> {
        // Inlined where the operation is made, so that the usual operations stay in registers.
        let code = op.code;
        match code {
            OpCode::Read => {
                let (source, token, due_ns, flags) =
                    (op.source, op.token, op.deadline_ns, op.flags);
                // The operation has no buffer and no address to drop.
                std::mem::forget(op);
                let answer = if due_ns == 0 && flags == 0 {
                    self.submit_plain_read(source, token)
                } else if flags & op::QUIET != 0 {
                    self.refuse_quiet(Buf::NONE)
                } else {
                    self.submit_read(source, token, due_ns, flags & MULTISHOT != 0)
                };
                match answer {
                    Some(ticket) => Ok(ticket),
                    None => {
                        Err(self.refuse(OpCode::Read, source, token, due_ns, flags, Extra::NONE))
                    }
                }
            }
            OpCode::Write => {
                let Op { source, token, deadline_ns, buf, extra, flags, .. } = op;
                // The operation carries nothing else.
                std::mem::forget(extra);
                let write = NewWrite { source, token, due_ns: deadline_ns, buf };
                let answer = if flags & op::QUIET == 0 {
                    self.submit_write(write)
                } else {
                    self.submit_quiet_write(write)
                };
                match answer {
                    Some(ticket) => Ok(ticket),
                    None => Err(self.refuse(code, source, token, deadline_ns, flags, Extra::NONE)),
                }
            }
            OpCode::ReadAt => {
                let Op { source, token, deadline_ns, buf, extra, flags, .. } = op;
                let offset = extra.as_offset();
                // The operation carries nothing that would have to be dropped.
                std::mem::forget(extra);
                let answer = if flags & op::QUIET != 0 {
                    self.refuse_quiet(buf)
                } else {
                    self.submit_read_at(source, token, deadline_ns, offset, flags, buf)
                };
                match answer {
                    Some(ticket) => Ok(ticket),
                    None => {
                        let extra = Extra::offset(offset);
                        Err(self.refuse(code, source, token, deadline_ns, flags, extra))
                    }
                }
            }
            OpCode::Close => {
                let (source, token, due_ns, flags) =
                    (op.source, op.token, op.deadline_ns, op.flags);
                // As a read.
                std::mem::forget(op);
                let answer = if flags & op::QUIET != 0 {
                    self.refuse_quiet(Buf::NONE)
                } else {
                    self.submit_close(source, token, due_ns)
                };
                match answer {
                    Some(ticket) => Ok(ticket),
                    None => Err(self.refuse(code, source, token, due_ns, flags, Extra::NONE)),
                }
            }
            _ => self.submit_other(op),
        }
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        self.check_fork().is_ok() && self.cancel_ticket(ticket)
    }
}
