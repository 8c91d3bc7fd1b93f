//! Uploads: bodies that are saved to files, and forms with files.
//!
//! [`Request::save`](crate::Request::save) saves a whole body. With the feature `multipart`,
//! `Request::multipart` takes a form part by part, and each part can be saved, too. Both are for
//! routes that are [`at_head`](crate::App::at_head).
//!
//! **Do not make a path of a name that a client has chosen**, unless [`file_name`] has checked it.
//!
//! ```
//! # #[cfg(feature = "multipart")] {
//! use windlass_web::body::Demand;
//! use windlass_web::upload::{Multipart, PartHead, PartPlan, ReceiveParts, Save, Saved, file_name};
//! use windlass_web::windlass::Buf;
//! use windlass_web::{App, Error, Request, Response};
//!
//! /// Saves the files of a form, and drops its other fields.
//! #[derive(Default)]
//! struct Files(Vec<Saved>);
//!
//! impl ReceiveParts<()> for Files {
//!     fn part(&mut self, _: &mut (), part: PartHead) -> Result<PartPlan, Error> {
//!         let Some(name) = part.file_name() else { return Ok(PartPlan::Skip) };
//!         let path = format!("uploads/{}", file_name(name)?);
//!         Ok(PartPlan::Save(path.into(), Save::new().sync(true)))
//!     }
//!     fn data(&mut self, _: &mut (), _: Buf) -> Result<Demand, Error> {
//!         Ok(Demand::More) // no part is read
//!     }
//!     fn saved(&mut self, _: &mut (), saved: Result<Saved, Error>) -> Result<Demand, Error> {
//!         self.0.push(saved?);
//!         Ok(Demand::More)
//!     }
//!     fn end(self: Box<Self>, _: &mut (), _: &mut Request<'_>) -> Result<Response, Error> {
//!         Ok(format!("{} files", self.0.len()).into())
//!     }
//! }
//!
//! let app = App::new()
//!     .post("/form", |_, q| q.multipart(Multipart::new().limit(100 << 20), Files::default()))
//!     .at_head();
//! # let _ = app;
//! # }
//! ```
//!
//! A power failure can leave files named `.upload-` and 16 hexadecimal digits, in the directories
//! that bodies are saved to. Remove them before the server starts.

#[cfg(feature = "multipart")]
pub use crate::message::form::{Multipart, PartHead};
#[cfg(feature = "multipart")]
pub use crate::message::request::parts::{PartPlan, ReceiveParts};
pub use crate::message::save::{Save, Saved, file_name};
