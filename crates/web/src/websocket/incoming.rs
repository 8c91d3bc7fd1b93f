//! Bytes that have come, while they become messages.

use std::ops::Range;

use windlass::{Buf, LeaseMut};
use windlass_websocket::{FrameHead, Kind};

use super::message::{Message, Payload};

/// Bytes that have come, and are not taken yet.
pub(super) enum Incoming {
    /// As they were read.
    Read(LeaseMut),
    /// Of a vector, from an offset on.
    Copied(Vec<u8>, usize),
}

impl Incoming {
    const NOTHING: Incoming = Incoming::Copied(Vec::new(), 0);

    /// `kept` came before `data`.
    pub(super) fn new(kept: &mut Vec<u8>, data: Buf) -> Incoming {
        if !kept.is_empty() {
            let mut all = std::mem::take(kept);
            all.extend_from_slice(&data);
            return Incoming::Copied(all, 0);
        }
        match data.into_lease_mut() {
            Ok(lease) => Incoming::Read(lease),
            Err(data) => Incoming::Copied(data.into_vec(), 0),
        }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Incoming::Read(lease) => lease,
            Incoming::Copied(bytes, at) => &mut bytes[*at..],
        }
    }

    pub(super) fn skip(&mut self, count: usize) {
        match self {
            Incoming::Read(lease) => drop(lease.split_to(count)),
            Incoming::Copied(_, at) => *at += count,
        }
    }

    /// Takes a whole message of `count` bytes, with the head of a frame that a server could send
    /// it on with: that is no longer than the head that it came with.
    pub(super) fn take(&mut self, count: usize, payload: Range<usize>, kind: Kind) -> Message {
        let head = FrameHead::new(kind.into(), payload.len() as u64);
        let Some(start) = payload.start.checked_sub(head.size()) else {
            let payload = self.take_part(count, payload);
            return Message::new(kind, payload.into());
        };
        head.write(&mut self.bytes()[start..]);
        let frame = self.take_part(count, start..payload.end);
        Message::new(kind, Payload::framed(frame, head.size(), kind))
    }

    pub(super) fn take_part(&mut self, count: usize, range: Range<usize>) -> Buf {
        match self {
            // The last ones: without another owner of the memory.
            Incoming::Read(lease) if lease.len() == count => {
                std::mem::replace(self, Incoming::NOTHING).into_rest().slice(range)
            }
            Incoming::Read(lease) => Buf::from(lease.split_to(count)).slice(range),
            Incoming::Copied(bytes, 0) if bytes.len() == count => {
                Buf::from(std::mem::take(bytes)).slice(range)
            }
            Incoming::Copied(bytes, at) => {
                let range = *at + range.start..*at + range.end;
                *at += count;
                bytes[range].to_vec().into()
            }
        }
    }

    /// What is left.
    pub(super) fn into_rest(self) -> Buf {
        match self {
            Incoming::Read(lease) => lease.into(),
            Incoming::Copied(bytes, at) => Buf::from(bytes).slice(at..),
        }
    }
}
