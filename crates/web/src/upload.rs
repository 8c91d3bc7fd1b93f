//! Uploads: forms with files, and names of files that clients choose.

#[cfg(feature = "multipart")]
pub use crate::message::form::{Multipart, PartHead};
#[cfg(feature = "multipart")]
pub use crate::message::request::parts::{PartPlan, ReceiveParts};
pub use crate::message::save::{Save, Saved, file_name};
