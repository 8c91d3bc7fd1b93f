//! The bookkeeping of the operations that the kernel completes.

/// What a driver knows of the operations that its kernel completes.
#[derive(Default)]
pub(in crate::proactor) struct KernelOps {
    /// The number of operations that the kernel has: at most one for each direction of a source,
    /// and operations on files.
    pub(in crate::proactor) busy: u32,
    /// The driver has asked the kernel to end operations, and has not entered the kernel since.
    pub(in crate::proactor) cancels_pending: bool,
    /// A thread of the kernel was told to end its operation.
    pub(in crate::proactor) stopping: bool,
}
