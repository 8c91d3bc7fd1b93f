//! The bookkeeping of the operations that the kernel completes.

/// What a driver knows of the operations that its kernel completes.
#[derive(Default)]
pub(super) struct KernelOps {
    /// The number of directions of sources whose operation the kernel has, and of its operations on
    /// files.
    pub(super) busy: u32,
    /// The kernel was asked to end operations, and was not entered since.
    pub(super) cancels_pending: bool,
    /// A thread of the kernel was told to end its operation.
    pub(super) stopping: bool,
    /// The kernel has lost answers, and the driver takes all operations back.
    pub(super) recovering: bool,
}
