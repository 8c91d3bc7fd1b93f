//! Files: how they are opened, their attributes, and the mechanisms that serve them.
//!
//! The operations are constructors of [`Op`](crate::Op), under the names of [`std::fs`]:
//! [`Op::open`](crate::Op::open), [`Op::read_at`](crate::Op::read_at),
//! [`Op::metadata`](crate::Op::metadata), [`Op::create_dir`](crate::Op::create_dir) … They take and
//! return the types of this module.
//!
//! | for | types |
//! |---|---|
//! | opening and copying | [`OpenOptions`], [`CopyOptions`], [`Access`], [`FileRef`] |
//! | attributes of a file | [`Metadata`], [`FileKind`], [`DirectAlignment`], [`StatFs`] |
//! | directories | [`DirEntry`], [`DirReader`], [`DirPart`] |
//! | the mechanism that serves files | [`FileBackend`] |
//! | Linux AIO in a loop of your own, on Linux | `AioFiles`, `AioOp` |
//! | kernels of your own | [`FileRequest`], [`FileWork`], [`FileAnswer`] |
//! | their arguments | [`FileList`], [`FileFacts`] |

pub use crate::file::{
    Access, CopyOptions, DirEntry, DirPart, DirReader, DirectAlignment, FileAnswer, FileBackend,
    FileFacts, FileKind, FileList, FileRef, FileRequest, FileWork, Metadata, OpenOptions, StatFs,
    UnknownBackend,
};
#[allow(unused_imports, unreachable_pub)] // it is empty where there is no Linux AIO
pub use crate::kernel::aio::public::*;
