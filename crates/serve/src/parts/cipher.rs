//! The types of TLS that the engine uses. Without the feature `tls` these types have no value, so
//! that the compiler leaves the code for them out.

#[cfg(feature = "tls")]
pub(crate) use crate::tls::{Destination, Error as Failure, Session, SessionState, Tls};

#[cfg(not(feature = "tls"))]
pub(crate) use none::{
    NoDestination as Destination, NoFailure as Failure, NoSession as Session,
    NoState as SessionState, NoTls as Tls,
};

#[cfg(not(feature = "tls"))]
mod none {
    use std::convert::Infallible;
    use std::fmt;

    use windlass::Buf;

    /// Stands for the settings of a server, and has no value.
    #[derive(Clone, Debug)]
    pub(crate) struct NoTls(Infallible);

    /// Stands for a server and whom its client trusts, and has no value.
    #[derive(Clone, Debug)]
    pub(crate) struct NoDestination(Infallible);

    /// Stands for an error of TLS, and has no value.
    #[derive(Clone, Debug)]
    pub(crate) struct NoFailure(Infallible);

    impl fmt::Display for NoFailure {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {}
        }
    }

    impl NoTls {
        pub(crate) fn on_workers(&self) -> bool {
            match self.0 {}
        }
    }

    impl NoDestination {
        pub(crate) fn on_workers(&self) -> bool {
            match self.0 {}
        }
    }

    /// Stands for a session, and has no value.
    #[derive(Debug)]
    pub(crate) struct NoSession(Infallible);

    #[derive(PartialEq, Eq)]
    pub(crate) enum NoState {
        Handshaking,
        Asked,
        PeerClosed,
    }

    impl NoSession {
        pub(crate) fn to(to: &NoDestination) -> Result<NoSession, NoFailure> {
            match to.0 {}
        }

        pub(crate) fn failure(&self) -> Option<&NoFailure> {
            match self.0 {}
        }

        pub(crate) fn begin_server(tls: &NoTls) -> Result<NoSession, NoFailure> {
            match tls.0 {}
        }

        pub(crate) fn awaits_hello(&self) -> bool {
            match self.0 {}
        }

        pub(crate) fn ask(&self, _: &NoTls, _: Box<dyn FnOnce(Option<NoTls>) + Send>) {
            match self.0 {}
        }

        pub(crate) fn answer(&mut self, _: &NoTls) -> Result<(), NoFailure> {
            match self.0 {}
        }

        pub(crate) fn refuse(&mut self) -> Option<NoFailure> {
            match self.0 {}
        }

        pub(crate) fn completes_record(&self, _: &[u8]) -> bool {
            match self.0 {}
        }

        pub(crate) fn handshake_taken(&self) -> usize {
            match self.0 {}
        }

        pub(crate) fn is_resumed(&self) -> bool {
            match self.0 {}
        }

        pub(crate) fn feed_handshake(&mut self, _: &[u8]) -> Result<usize, NoFailure> {
            match self.0 {}
        }

        pub(crate) fn feed_in_place(&mut self, _: Buf) -> (Buf, Result<(), NoFailure>) {
            match self.0 {}
        }

        pub(crate) fn plain_len(&self) -> usize {
            match self.0 {}
        }

        pub(crate) fn read_plain(&mut self, _: &mut [u8]) -> usize {
            match self.0 {}
        }

        pub(crate) fn seal(
            &mut self,
            _: [&[u8]; 2],
            _: &mut [u8],
        ) -> Result<(usize, usize), NoFailure> {
            match self.0 {}
        }

        pub(crate) fn text_behind(&self, _: &Buf, _: usize) -> usize {
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

        pub(crate) fn end_of_input(&mut self) -> Result<(), NoFailure> {
            match self.0 {}
        }

        pub(crate) fn state(&self) -> NoState {
            match self.0 {}
        }
    }
}
