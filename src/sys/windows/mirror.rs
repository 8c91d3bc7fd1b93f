//! The replacement of a selector with a descriptor of its own, which Windows does not have.

use std::convert::Infallible;
use std::io;

use crate::sys::Select;
use crate::sys::fd::{BorrowedFd, RawFd};
use crate::sys::interest::{Mode, Ready};
use crate::sys::waker::SharedWake;

/// There is never one.
pub(crate) struct Mirror(Infallible);

impl Select for Mirror {
    const NAME: &'static str = "none";
    const REGISTRATION: &'static str = "none";
    const EDGES: bool = false;
    const FORGETS_CLOSED: bool = false;

    /// `Unsupported`, always.
    fn new(_: usize) -> io::Result<Mirror> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn waker(&mut self, _: u64) -> io::Result<SharedWake> {
        match self.0 {}
    }
    fn add(&mut self, _: RawFd, _: u64, _: Ready, _: Mode) -> io::Result<()> {
        match self.0 {}
    }
    fn modify(&mut self, _: RawFd, _: u64, _: Ready, _: Mode) -> io::Result<()> {
        match self.0 {}
    }
    fn remove(&mut self, _: RawFd) -> io::Result<()> {
        match self.0 {}
    }
    fn select(&mut self, _: Option<u64>) -> io::Result<usize> {
        match self.0 {}
    }
    fn event(&self, _: usize) -> (u64, Ready) {
        match self.0 {}
    }
    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        match self.0 {}
    }
    fn explain(&self) -> (&'static str, &'static str) {
        match self.0 {}
    }
}
