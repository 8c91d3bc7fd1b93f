//! Whether the system takes several datagrams with one call, and what `explain` says of it.

use crate::sys::datagrams;
use crate::words::clock;
use crate::words::explain::Explain;

/// After this many denials in a row a filter probably denies the call. (Single denials prove
/// nothing: a firewall also answers sends with `EPERM`.)
const FILTER: u32 = 8;
/// How long the call is then left alone: the rule of a firewall may go.
const REST_NS: u64 = 1_000_000_000;

/// The calls in both directions: receives, and sends.
#[derive(Default)]
pub(super) struct Batches([DenialCount; 2]);

#[derive(Default)]
struct DenialCount {
    /// Denials in a row.
    row: u32,
    /// Denials in all.
    denials: u64,
    /// When the call is tried again; never where there is none.
    again_ns: u64,
}

impl DenialCount {
    fn is_denied(&self) -> bool {
        self.row >= FILTER && clock::now_ns() < self.again_ns
    }
}

impl Batches {
    /// Whether the call was denied lately. Then datagrams are received and sent one by one.
    pub(super) fn are_denied(&self, sends: bool) -> bool {
        self.0[usize::from(sends)].is_denied()
    }

    /// Notes the answer of a call. Returns it, or `-EOPNOTSUPP` if the call was denied.
    pub(super) fn note(&mut self, sends: bool, answer: isize) -> isize {
        let batch = &mut self.0[usize::from(sends)];
        let (row, again_ns) = match -answer as i32 {
            libc::ENOSYS => (FILTER, u64::MAX),
            libc::EPERM => (batch.row + 1, clock::now_ns().saturating_add(REST_NS)),
            _ => {
                batch.row = 0;
                return answer;
            }
        };
        (batch.row, batch.again_ns) = (row.min(FILTER), again_ns);
        batch.denials += 1;
        -(libc::EOPNOTSUPP as isize)
    }

    /// Adds a row for each direction: how often its call was made.
    pub(super) fn explain(&self, explain: &mut Explain, receives: u64, sends: u64) {
        let rows = [
            ("recv_from of several", "recvmmsg", "several wait, or one is multishot", receives),
            ("send_to of several", "sendmmsg", "they were deferred, or the socket was full", sends),
        ];
        for ((operation, mechanism, reason, calls), batch) in rows.into_iter().zip(&self.0) {
            if datagrams::MOST == 1 {
                explain.row(operation, "one by one", "this system has no call for several", 0);
            } else if batch.denials == 0 {
                explain.row(operation, mechanism, reason, calls);
            } else {
                let often = batch.denials;
                let why = format!("{mechanism} was denied {often} times: a filter, or a firewall");
                let how = if batch.is_denied() { "one by one" } else { mechanism };
                explain.row(operation, how, why, calls);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight sends in a row that a firewall refused left a watcher without sendmmsg(2) for its
    /// life. Only a system without the call is final.
    #[test]
    fn a_denied_call_is_tried_again() {
        let mut batches = Batches::default();
        for denials in 1..20 {
            assert_eq!(batches.are_denied(true), denials > FILTER);
            batches.note(true, -(libc::EPERM as isize));
        }
        assert!(!batches.are_denied(false), "the other direction");
        batches.0[1].again_ns = clock::now_ns();
        assert!(!batches.are_denied(true), "it has rested");
        batches.note(true, -(libc::EPERM as isize));
        assert!(batches.are_denied(true));
        batches.note(true, 3);
        assert!(!batches.are_denied(true));
        batches.note(true, -(libc::ENOSYS as isize));
        assert_eq!(batches.0[1].again_ns, u64::MAX);
        assert!(batches.are_denied(true));
    }
}
