//! The memory that a driver receives into.

use super::ops::Expected;
use crate::address::Address;
use crate::buf::swap::Pool;

/// Addresses that are kept for their memory, at most.
const KEPT: usize = 64;

/// Swap buffers, and memory for what comes beside bytes.
pub(super) struct Memory {
    pub(super) pool: Pool,
    /// Takes what of a message does not fit into the swap buffer at hand.
    pub(super) spill: Vec<u8>,
    /// What the next call for several datagrams is likely to find.
    pub(super) expected: Expected,
    /// Memory of addresses that have served.
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
