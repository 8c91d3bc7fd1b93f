//! Which operations the kernel has: it completes them, and is asked to end some.

/// What a driver knows of the operations that its kernel completes.
#[derive(Default)]
pub(super) struct KernelOps {
    /// Directions of sources whose operation the kernel has, and work on files that it has.
    pub(super) busy: u32,
    /// The kernel was asked to end some of them, and not entered since.
    pub(super) cancels_pending: bool,
    /// A thread of the kernel was told to end its operation.
    pub(super) stopping: bool,
    /// The kernel has lost answers, and the driver takes everything back.
    pub(super) recovering: bool,
}
