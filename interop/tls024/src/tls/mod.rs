//! Sessions of TLS: the files of windlass-serve, and beside them what depends on the version.

// What differs between the versions.
mod adapter;
mod reasons;
mod settings;

#[allow(dead_code, reason = "errors of settings name certificates, and here nobody checks them")]
#[path = "../../../../crates/serve/src/tls/certificate.rs"]
mod certificate;
#[path = "../../../../crates/serve/src/tls/error.rs"]
mod error;
#[allow(dead_code, reason = "here are no lists of revoked certificates")]
#[path = "../../../../crates/serve/src/tls/pem.rs"]
mod pem;
#[path = "../../../../crates/serve/src/tls/records.rs"]
mod records;
#[allow(dead_code, reason = "the engine of windlass-serve has calls of its own")]
#[path = "../../../../crates/serve/src/tls/session.rs"]
mod session;

use settings as client;
use settings as provider;
use settings as server;
use settings as verifier;

pub use certificate::{CertificateInfo, CertificateProblem};
pub use error::{Alert, TlsError as Error};
pub use pem::{Pem, PemProblem};
pub use session::{Fed, Session, SessionState};
pub use settings::{Destination, Provider, Tls, TlsBuilder, TlsClient, TlsClientBuilder, Version};
