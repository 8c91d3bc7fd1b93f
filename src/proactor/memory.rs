//! The memory that a driver receives into.

use super::ops::Expected;
use crate::address::Address;
use crate::buf::swap::Pool;

/// The most addresses that are kept for their memory.
const KEPT: usize = 64;

/// Swap buffers, and memory for what comes beside bytes.
pub(super) struct Memory {
    pub(super) pool: Pool,
    /// Takes the part of a message that does not fit into the current swap buffer.
    pub(super) spill: Vec<u8>,
    /// How many datagrams, and how long ones, the next call is likely to find.
    pub(super) expected: Expected,
    /// Addresses that are unused, kept for their memory.
    pub(super) addresses: Vec<Address>,
}

impl Memory {
    pub(super) fn new(pool: Pool) -> Memory {
        Memory { pool, spill: Vec::new(), expected: Expected::default(), addresses: Vec::new() }
    }

    /// Memory for an address.
    pub(super) fn address(&mut self) -> Address {
        self.addresses.pop().unwrap_or_else(Address::unspecified)
    }

    pub(super) fn keep_address(&mut self, address: Option<Address>) {
        if let Some(mut address) = address
            && self.addresses.len() < KEPT
        {
            address.take_descriptors();
            self.addresses.push(address);
        }
    }
}
