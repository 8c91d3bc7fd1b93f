//! Content codings: `gzip` and `deflate` (RFC 9110, section 8.4.1).
//!
//! ```text
//! mod.rs      the codings that there are
//! accept.rs   which of them a client takes; files that lie there compressed need no more
//! deflate.rs  bodies that are compressed
//! inflate.rs  bodies that come compressed
//! ```

pub(crate) mod accept;
#[cfg(feature = "deflate")]
pub(crate) mod deflate;
#[cfg(feature = "deflate")]
pub(crate) mod inflate;

/// A coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    Gzip,
    /// The format of zlib: RFC 1950.
    Deflate,
}

impl ContentCoding {
    /// The coding with this name, in any case.
    pub(crate) fn of(name: &str) -> Option<ContentCoding> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match () {
            // RFC 9110, section 8.4.1.3: the two names are one.
            () if is("gzip") || is("x-gzip") => Some(ContentCoding::Gzip),
            () if is("deflate") => Some(ContentCoding::Deflate),
            () => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ContentCoding::Gzip => "gzip",
            ContentCoding::Deflate => "deflate",
        }
    }
}
