//! The requests of other threads, and when the loop looks for them.

use crate::remote::Remote;

/// The requests of other threads to a driver.
pub(super) struct Inbox {
    pub(super) remote: Remote,
    /// The next turn takes requests first: other threads believe that the loop sleeps, or wait for
    /// ids.
    pub(super) is_due: bool,
    /// A request is being served.
    pub(super) serving: bool,
    /// Other threads wait for ids, and the tables had none.
    pub(super) ids_wanted: bool,
}

impl Inbox {
    pub(super) fn new(remote: Remote) -> Inbox {
        Inbox { remote, is_due: false, serving: false, ids_wanted: false }
    }
}
