//! In the place of `compress.rs`, where the crate has no codings: nothing of it exists.

use std::thread;

use super::Machine;
use crate::message::head::Head;
use crate::message::response::Body;
use crate::message::source::{At, BodySource, Flow};

pub(crate) enum Compression {}

pub(super) enum Packing {}

pub(super) enum Whole {
    AtOnce(Body),
    #[allow(dead_code)] // there is no `Packing`
    InParts(Box<dyn BodySource>, Box<Packing>),
}

pub(super) struct PackStep {
    pub(super) flow: Flow,
    pub(super) is_empty: bool,
    pub(super) packed: usize,
}

impl<K: 'static> Machine<K> {
    #[allow(clippy::unused_self)] // nothing is compressed
    pub(super) fn is_turn_over(&self) -> bool {
        false
    }

    pub(super) fn pack_whole(
        &mut self,
        _: &mut Head,
        body: Body,
        _: Option<&[u8]>,
        _: bool,
    ) -> Whole {
        Whole::AtOnce(body)
    }

    pub(super) fn pack_stream(&mut self, _: &mut Head, _: Option<&[u8]>) -> Option<Box<Packing>> {
        None
    }
}

impl Packing {
    pub(super) fn next(
        &mut self,
        _: &mut Vec<u8>,
        _: At<'_>,
        _: impl FnOnce(&mut Vec<u8>) -> thread::Result<Flow>,
    ) -> thread::Result<PackStep> {
        match *self {}
    }

    pub(super) fn say(&mut self, _: &[u8], _: &mut Vec<u8>) {
        match *self {}
    }
}
