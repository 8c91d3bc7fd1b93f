//! Whether the system takes several datagrams with one call, and what `explain` says of it.

use crate::sys::datagrams;
use crate::words::explain::Explain;

/// After this many denials in a row we conclude that a filter denies the call. (Single denials
/// prove nothing: a firewall also answers sends with `EPERM`.)
const FILTER: u32 = 8;

/// The calls in both directions: receives, and sends.
#[derive(Default)]
pub(super) struct Batches([DenialCount; 2]);

#[derive(Default)]
struct DenialCount {
    /// Denials in a row.
    row: u32,
    /// Denials in all.
    denials: u64,
}

impl Batches {
    /// Whether a filter denies the call. Then datagrams are received and sent one by one.
    pub(super) fn are_denied(&self, sends: bool) -> bool {
        self.0[usize::from(sends)].row >= FILTER
    }

    /// Notes the answer of a call. Returns it, or `-EOPNOTSUPP` if the call was denied.
    pub(super) fn note(&mut self, sends: bool, answer: isize) -> isize {
        let batch = &mut self.0[usize::from(sends)];
        let row = match -answer as i32 {
            libc::ENOSYS => FILTER,
            libc::EPERM => batch.row + 1,
            _ => {
                batch.row = 0;
                return answer;
            }
        };
        batch.row = row;
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
                let how = if batch.row >= FILTER { "one by one" } else { mechanism };
                explain.row(operation, how, why, calls);
            }
        }
    }
}
