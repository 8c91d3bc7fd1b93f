//! A `Write` of std over a call that copies bytes to a connection.

use std::io;

use crate::words::refused::Refusal;

/// Passes each write to the closure, which takes all of the bytes or refuses them.
pub(crate) struct Writer<F>(pub(crate) F);

impl<F: FnMut(&[u8]) -> Result<(), Refusal>> io::Write for Writer<F> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (self.0)(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(reason) => Err(reason.into()),
        }
    }

    /// All parts, up to the first one that is refused: a TLS library passes its records in this
    /// way, and the default takes one record in each call.
    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for part in parts {
            match self.write(part) {
                Ok(count) => taken += count,
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    /// Nothing: the bytes leave at the end of the turn.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
