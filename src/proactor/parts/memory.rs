//! The memory that a driver receives into.

use crate::memory::buf::swap::Pool;
use crate::proactor::ops::Expected;
use crate::words::address::Address;

/// The most addresses that are kept for their memory.
const KEPT: usize = 64;

/// Swap buffers, and memory for what comes beside bytes.
pub(in crate::proactor) struct Memory {
    pub(in crate::proactor) pool: Pool,
    /// Takes the part of a message that does not fit into the current swap buffer.
    pub(in crate::proactor) spill: Vec<u8>,
    /// How many datagrams, and how long ones, the next call is likely to find.
    pub(in crate::proactor) expected: Expected,
    /// Addresses that are unused, kept for their memory.
    pub(in crate::proactor) addresses: Vec<Address>,
}

impl Memory {
    pub(in crate::proactor) fn new(pool: Pool) -> Memory {
        Memory { pool, spill: Vec::new(), expected: Expected::default(), addresses: Vec::new() }
    }

    /// Memory for an address.
    pub(in crate::proactor) fn address(&mut self) -> Address {
        self.addresses.pop().unwrap_or_else(Address::unspecified)
    }

    pub(in crate::proactor) fn keep_address(&mut self, address: Option<Address>) {
        if let Some(mut address) = address
            && self.addresses.len() < KEPT
        {
            address.close_descriptors();
            self.addresses.push(address);
        }
    }
}
