//! The types of TLS that the engine uses. Without the feature `tls` these types have no value, so
//! that the compiler leaves the code for them out.

#[cfg(feature = "tls")]
pub(crate) use crate::tls::{Session, SessionState, Tls};

#[cfg(not(feature = "tls"))]
pub(crate) use none::{NoSession as Session, NoState as SessionState, NoTls as Tls};

#[cfg(not(feature = "tls"))]
mod none {
    use std::convert::Infallible;
    use std::io::IoSlice;

    use windlass::Buf;

    /// Stands for the settings of a server, and has no value.
    #[derive(Clone, Debug)]
    pub(crate) struct NoTls(Infallible);

    /// Stands for a session, and has no value.
    #[derive(Debug)]
    pub(crate) struct NoSession(Infallible);

    #[derive(PartialEq, Eq)]
    pub(crate) enum NoState {
        Handshaking,
        PeerClosed,
    }

    impl NoSession {
        pub(crate) fn server(tls: &NoTls) -> Result<NoSession, Infallible> {
            match tls.0 {}
        }

        pub(crate) fn feed_handshake(&mut self, _: &[u8]) -> Result<usize, Infallible> {
            match self.0 {}
        }

        pub(crate) fn feed_buf(&mut self, _: Buf) -> (Buf, Result<(), Infallible>) {
            match self.0 {}
        }

        pub(crate) fn write(
            &mut self,
            _: &[IoSlice<'_>],
            _: &mut Vec<u8>,
        ) -> Result<usize, Infallible> {
            match self.0 {}
        }

        pub(crate) fn take_output(&mut self, _: &mut Vec<u8>) -> usize {
            match self.0 {}
        }

        pub(crate) fn has_output(&self) -> bool {
            match self.0 {}
        }

        pub(crate) fn close(&mut self) {
            match self.0 {}
        }

        pub(crate) fn end_of_input(&mut self) -> Result<(), Infallible> {
            match self.0 {}
        }

        pub(crate) fn state(&self) -> NoState {
            match self.0 {}
        }
    }
}
