//! The TLS sessions of windlass-serve on rustls 0.24, which is not released.
//!
//! The files of the sessions are those of windlass-serve. They name rustls by its names of 0.23, so
//! this crate also stands in for it: it has these names, on the types of 0.24.

extern crate self as rustls;

pub use rustls_next::crypto::{CipherSuite, InconsistentKeys};
pub use rustls_next::error::{
    CertRevocationListError, CertificateError, InvalidMessage, PeerMisbehaved,
};
pub use rustls_next::{Error, RootCertStore, crypto, pki_types};

pub mod sign;
pub mod tls;
