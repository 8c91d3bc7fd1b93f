//! Bytes of a link that have come and are not decoded.

use std::ops::Range;

use windlass::{Buf, Lease};

/// Bytes that have come. What comes whole is decoded where it was read; only what is cut is copied.
#[derive(Default)]
pub(crate) struct Input {
    lease: Option<Lease>,
    kept: Vec<u8>,
    /// How many of them are decoded.
    at: usize,
}

impl Input {
    pub(crate) fn push(&mut self, data: Buf) {
        self.settle();
        if !self.kept.is_empty() {
            self.kept.extend_from_slice(&data);
            return;
        }
        match data.into_lease() {
            Ok(lease) => self.lease = Some(lease),
            Err(data) => self.kept = data.into_vec(),
        }
    }

    fn all(&self) -> &[u8] {
        self.lease.as_deref().unwrap_or(&self.kept)
    }

    /// The bytes that are not decoded.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.all()[self.at..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// Passes bytes that are decoded, and returns where they are.
    pub(crate) fn pass(&mut self, count: usize) -> usize {
        self.at += count;
        self.at - count
    }

    /// Goes back to bytes that were passed, and are not settled.
    #[cfg(feature = "deflate")]
    pub(crate) fn pass_back(&mut self, count: usize) {
        self.at -= count;
    }

    /// Bytes from their beginning on, decoded ones too, until the next [`push`](Input::push) or
    /// [`settle`](Input::settle).
    pub(crate) fn from(&self, start: usize) -> &[u8] {
        &self.all()[start..]
    }

    /// A part, without a copy if it was read whole.
    pub(crate) fn part(&self, range: Range<usize>) -> Buf {
        match &self.lease {
            Some(lease) => lease.slice(range).into(),
            None => self.kept[range].to_vec().into(),
        }
    }

    /// All bytes that are not decoded, without a copy if they were read whole.
    pub(crate) fn take(&mut self) -> Buf {
        let start = self.pass(self.rest().len());
        let all = self.part(start..self.at);
        self.settle();
        all
    }

    /// Keeps what is not decoded, and gives the memory of the loop back.
    pub(crate) fn settle(&mut self) {
        match self.lease.take() {
            Some(lease) => self.kept.extend_from_slice(&lease[self.at..]),
            None => _ = self.kept.drain(..self.at),
        }
        self.at = 0;
    }
}
