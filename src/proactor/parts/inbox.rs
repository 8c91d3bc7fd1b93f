//! The requests of other threads, and when the loop looks for them.

use crate::remote::Remote;

/// The requests of other threads to a driver.
pub(in crate::proactor) struct Inbox {
    pub(in crate::proactor) remote: Remote,
    /// The next turn takes requests first: other threads believe that the loop sleeps, or wait for
    /// ids.
    pub(in crate::proactor) is_due: bool,
    /// A request is being served.
    pub(in crate::proactor) serving: bool,
    /// Other threads wait for ids, and the tables had none.
    pub(in crate::proactor) ids_wanted: bool,
}

impl Inbox {
    pub(in crate::proactor) fn new(remote: Remote) -> Inbox {
        Inbox { remote, is_due: false, serving: false, ids_wanted: false }
    }
}
