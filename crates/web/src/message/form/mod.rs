//! Bodies of `multipart/form-data` (RFC 7578), part by part.
//!
//! ```text
//! mod.rs     the limits of a form
//! decode.rs  bytes into parts
//! head.rs    the head of a part
//! ```
//!
//! # Why
//! Of the crates that do this, one has had no release for two years and takes heads of any length,
//! one needs a newer Rust, one refuses what .NET sends, and one borrows the boundary, so that a
//! connection cannot own it. So the decoder is our own: memchr finds the boundary, httparse reads
//! the heads.

mod decode;
mod head;

pub(crate) use decode::{FormDecoder, FormEvent};
pub use head::PartHead;

/// How large a form may be: a body of `multipart/form-data`. Each limit is on by default. Beyond
/// any of them the client gets a 413 that names it.
///
/// [`Request::multipart`](crate::Request::multipart) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Multipart {
    /// Bytes of the whole body, in the place of [`App::body_limit`](crate::App::body_limit).
    /// Default `None`: that limit counts, or [`Limits::body`](crate::Limits::body), which is 1 MiB.
    pub limit: Option<u64>,
    /// How many parts. Default 100.
    pub parts: u32,
    /// Bytes of a part, without its head. Default 10 MiB.
    pub part_bytes: u64,
    /// Bytes of a part's head, of at most 32 fields: 64 and more. Default 4096.
    pub head_bytes: usize,
}

impl Multipart {
    /// The defaults: each field says its own.
    pub const fn new() -> Multipart {
        Multipart { limit: None, parts: 100, part_bytes: 10 << 20, head_bytes: 4096 }
    }

    /// Sets [`limit`](Multipart::limit), in bytes.
    pub fn limit(mut self, bytes: u64) -> Multipart {
        self.limit = Some(bytes);
        self
    }

    /// Sets [`parts`](Multipart::parts).
    pub fn parts(mut self, count: u32) -> Multipart {
        self.parts = count;
        self
    }

    /// Sets [`part_bytes`](Multipart::part_bytes).
    pub fn part_bytes(mut self, bytes: u64) -> Multipart {
        self.part_bytes = bytes;
        self
    }

    /// Sets [`head_bytes`](Multipart::head_bytes): 64 and more.
    pub fn head_bytes(mut self, bytes: usize) -> Multipart {
        self.head_bytes = bytes.max(64);
        self
    }
}

impl Default for Multipart {
    fn default() -> Multipart {
        Multipart::new()
    }
}
