//! The parts of an engine, each with rules of its own. None of them knows the engine.

pub(crate) mod allowances;
pub(crate) mod cipher;
pub(crate) mod datagrams;
pub(crate) mod deadlines;
pub(crate) mod files;
pub(crate) mod flights;
pub(crate) mod heads;
pub(crate) mod idle;
pub(crate) mod jobs;
pub(crate) mod kept;
pub(crate) mod moves;
pub(crate) mod ops;
pub(crate) mod output;
pub(crate) mod pressure;
pub(crate) mod proxy;
pub(crate) mod sessions;
pub(crate) mod side;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod transport;
pub(crate) mod trim;
pub(crate) mod writer;
