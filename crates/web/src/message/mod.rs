//! Requests and responses, as programs see them.

pub(crate) mod arrived;
#[cfg(feature = "deflate")]
pub(crate) mod compress;
pub(crate) mod date;
pub(crate) mod event;
pub(crate) mod file;
#[cfg(feature = "multipart")]
pub(crate) mod form;
pub(crate) mod forwarded;
pub(crate) mod gone;
pub(crate) mod handover;
pub(crate) mod head;
#[cfg(feature = "http")]
mod http_types;
pub(crate) mod kind;
pub(crate) mod later;
pub(crate) mod publication;
pub(crate) mod query;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod save;
pub(crate) mod source;
pub(crate) mod subscription;
pub(crate) mod trace;
pub(crate) mod writer;
