//! TLS of clients: whom to trust, and who this client is.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};

use super::error::TlsError;
use super::pem::{self, Pem};
use super::provider::{Provider, Version};
use super::server::lists;
use super::settings::{CommonSettings, Handshakes, WallClock, common_settings};
use super::verifier::Naming;

/// How many sessions a client keeps to resume, if the program sets nothing else.
const SESSIONS: usize = 256;

/// Whom a client trusts, and its other settings of TLS.
///
/// Clones share everything, so that a session of one connection resumes on another one. The
/// settings do not change: a program whose own certificate was renewed makes another client.
///
/// ```
/// # #[cfg(feature = "webpki-roots")] {
/// use windlass_serve::tls::{Session, TlsClient};
///
/// let trust = TlsClient::builder().webpki_roots().alpn(["http/1.1"]).build()?;
/// let mut session = Session::client(&trust, "example.com")?;
/// let mut hello = Vec::new();
/// session.take_output(&mut hello);
/// assert!(hello.starts_with(&[22, 3, 1]));
/// # }
/// # Ok::<(), windlass_serve::tls::Error>(())
/// ```
#[derive(Clone)]
pub struct TlsClient(Arc<ClientSettings>);

struct ClientSettings {
    builder: TlsClientBuilder,
    config: Arc<ClientConfig>,
}

/// Makes a [`TlsClient`].
#[derive(Clone, Debug)]
#[must_use = "`build` makes the settings"]
pub struct TlsClientBuilder {
    common: CommonSettings,
    roots: Vec<Pem>,
    crls: Vec<Pem>,
    #[cfg(feature = "webpki-roots")]
    has_webpki_roots: bool,
    #[cfg(feature = "platform-verifier")]
    has_system_roots: bool,
    identity: Option<(Pem, Pem)>,
    sessions: usize,
}

/// A server, as a client of TLS knows it: its name, and whom the client trusts. Made by
/// [`TlsClient::to`], for [`Engine::connect_tls`](crate::Engine::connect_tls) and its like.
#[derive(Clone, Debug)]
pub struct Destination {
    client: TlsClient,
    name: ServerName<'static>,
}

impl Destination {
    /// What a new session needs, and the limit of its handshake.
    pub(super) fn current(&self) -> (Arc<ClientConfig>, ServerName<'static>, u32) {
        let (config, limit) = self.client.current();
        (config, self.name.clone(), limit)
    }

    /// Whether the worker threads do the costly parts of the handshake.
    pub(crate) fn on_workers(&self) -> bool {
        self.client.0.builder.common.handshakes == Handshakes::Workers
    }
}

impl TlsClient {
    /// Begins settings. They need authorities to trust.
    pub fn builder() -> TlsClientBuilder {
        TlsClientBuilder {
            common: CommonSettings::default(),
            roots: Vec::new(),
            crls: Vec::new(),
            #[cfg(feature = "webpki-roots")]
            has_webpki_roots: false,
            #[cfg(feature = "platform-verifier")]
            has_system_roots: false,
            identity: None,
            sessions: SESSIONS,
        }
    }

    /// The server with this name or IP address. Its certificate has to be for this name, whatever
    /// the address of the connection is. The client tells the server the name (SNI), unless it is
    /// an IP address.
    ///
    /// # Errors
    /// [`Error::BadName`](TlsError::BadName) if it is no name of a server.
    pub fn to(&self, name: &str) -> Result<Destination, TlsError> {
        let bad_name = |_| TlsError::BadName(name.to_owned());
        let name = name.to_owned().try_into().map_err(bad_name)?;
        Ok(Destination { client: self.clone(), name })
    }

    /// The settings for a new session.
    fn current(&self) -> (Arc<ClientConfig>, u32) {
        (Arc::clone(&self.0.config), self.0.builder.common.handshake_limit)
    }
}

impl TlsClientBuilder {
    common_settings!();

    /// Trusts these authorities. Several calls add up.
    pub fn roots(mut self, roots: impl Into<Pem>) -> Self {
        self.roots.push(roots.into());
        self
    }

    /// Trusts the authorities of Mozilla's programme, as the crate webpki-roots has them: every
    /// system has the same, and they change by a new version of that crate only.
    #[cfg(feature = "webpki-roots")]
    pub fn webpki_roots(mut self) -> Self {
        self.has_webpki_roots = true;
        self
    }

    /// Trusts whom the system trusts, as the crate rustls-platform-verifier finds it: on macOS and
    /// Windows the system itself checks certificates, revocation included; elsewhere
    /// [`build`](TlsClientBuilder::build) reads its files. Those of
    /// [`roots`](TlsClientBuilder::roots) count, too. With [`crls`](TlsClientBuilder::crls) or
    /// `webpki_roots`, `build` fails.
    #[cfg(feature = "platform-verifier")]
    pub fn system_roots(mut self) -> Self {
        self.has_system_roots = true;
        self
    }

    /// Checks the certificates of servers against lists of revoked certificates. Each certificate
    /// below a root needs a list of its issuer, which must not have expired. Several calls add up.
    pub fn crls(mut self, lists: impl Into<Pem>) -> Self {
        self.crls.push(lists.into());
        self
    }

    /// Who this client is, for servers that ask: its certificate, with those of its issuers behind
    /// it, and its private key.
    pub fn certificate(mut self, certificates: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        self.identity = Some((certificates.into(), key.into()));
        self
    }

    /// For how many servers the client keeps sessions to resume. The default is 256, and 0 keeps
    /// none.
    pub fn session_cache(mut self, servers: usize) -> Self {
        self.sessions = servers;
        self
    }

    /// Reads the files, and makes the settings.
    ///
    /// # Errors
    /// [`Error::NoRoots`](TlsError::NoRoots) if there is no authority to trust, and
    /// [`Error::SystemRoots`](TlsError::SystemRoots) if the authorities of the system cannot be
    /// used. [`Error::File`](TlsError::File), [`Error::Pem`](TlsError::Pem) and
    /// [`Error::KeyMismatch`](TlsError::KeyMismatch) say what is wrong with which file,
    /// [`Error::Setting`](TlsError::Setting) which settings do not go together.
    pub fn build(self) -> Result<TlsClient, TlsError> {
        let config = Arc::new(self.config()?);
        Ok(TlsClient(Arc::new(ClientSettings { builder: self, config })))
    }

    fn config(&self) -> Result<ClientConfig, TlsError> {
        let common = &self.common;
        let provider = common.cryptography()?;
        let setting = |error: rustls::Error| TlsError::Setting(error.to_string());
        let builder = ClientConfig::builder_with_details(Arc::clone(&provider), common.time())
            .with_protocol_versions(&common.versions())
            .map_err(setting)?
            .dangerous() // so does rustls call any verifier that it does not make itself
            .with_custom_certificate_verifier(Arc::new(Naming(self.verifier(&provider)?)));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => {
                let identity = pem::identity(certificates, key, &provider)?;
                let resolver = rustls::sign::SingleCertAndKey::from(identity);
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
        };
        config.alpn_protocols.clone_from(&common.alpn);
        config.resumption = match self.sessions {
            0 => Resumption::disabled(),
            most => Resumption::in_memory_sessions(most),
        };
        if let Some(log) = common.key_log() {
            config.key_log = log;
        }
        Ok(config)
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        let mut roots = RootCertStore::empty();
        #[cfg(feature = "webpki-roots")]
        if self.has_webpki_roots {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        #[cfg(feature = "platform-verifier")]
        if self.has_system_roots {
            return self.system_verifier(provider);
        }
        self.roots.iter().try_for_each(|pem| pem.add_roots(&mut roots))?;
        if roots.is_empty() {
            return Err(TlsError::NoRoots);
        }
        WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider))
            .with_crls(lists(&self.crls)?)
            .enforce_revocation_expiration()
            .build()
            .map(|verifier| verifier as Arc<dyn ServerCertVerifier>)
            .map_err(|error| TlsError::Setting(error.to_string()))
    }

    #[cfg(feature = "platform-verifier")]
    fn system_verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        #[cfg(feature = "webpki-roots")]
        let has_others = self.has_webpki_roots;
        #[cfg(not(feature = "webpki-roots"))]
        let has_others = false;
        if has_others || !self.crls.is_empty() {
            return Err(TlsError::Setting(
                "the system checks certificates, and other authorities or lists of revoked \
                 certificates cannot be given beside"
                    .to_owned(),
            ));
        }
        let mut extra = Vec::new();
        for pem in &self.roots {
            extra.extend(pem.certificates()?);
        }
        let bad = |error: rustls::Error| TlsError::SystemRoots(error.to_string());
        let verifier =
            rustls_platform_verifier::Verifier::new_with_extra_roots(extra, Arc::clone(provider));
        Ok(Arc::new(verifier.map_err(bad)?))
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsClient").field(&self.0.builder).finish()
    }
}
