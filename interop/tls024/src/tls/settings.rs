//! As many settings as the tests of the sessions use, under the names of windlass-serve.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, mem};

use rustls_next::client::Resumption;
use rustls_next::crypto::{CipherSuite, CryptoProvider, SingleCredential};
use rustls_next::enums::ProtocolVersion;
use rustls_next::pki_types::{ServerName, UnixTime};
use rustls_next::server::{NoServerSessionStorage, ServerSessionMemoryCache, Tls13Tickets};
use rustls_next::time_provider::TimeProvider;
use rustls_next::{ClientConfig, RootCertStore, ServerConfig};

use super::certificate::CertificateInfo;
use super::error::TlsError;
use super::pem::{self, Pem};

/// Who does the cryptography.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// ring.
    #[default]
    Ring,
}

impl Provider {
    /// All of them.
    pub const ALL: &'static [Provider] = &[Provider::Ring];

    /// The names of its suites.
    pub fn suites(self) -> Vec<String> {
        let all = rustls_ring::DEFAULT_PROVIDER;
        let new = all.tls13_cipher_suites.iter().map(|suite| suite.common.suite);
        let old = all.tls12_cipher_suites.iter().map(|suite| suite.common.suite);
        new.chain(old).map(suite_name).collect()
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ring")
    }
}

pub(super) fn suite_name(suite: CipherSuite) -> String {
    format!("{suite:?}").replacen("TLS13_", "TLS_", 1)
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl Version {
    /// All of them.
    pub const ALL: &'static [Version] = &[Version::Tls12, Version::Tls13];

    pub(super) fn of(version: ProtocolVersion) -> Option<Version> {
        match version {
            ProtocolVersion::TLSv1_2 => Some(Version::Tls12),
            ProtocolVersion::TLSv1_3 => Some(Version::Tls13),
            _ => None,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Version::Tls12 { "TLS 1.2" } else { "TLS 1.3" })
    }
}

/// Here no verifier keeps what it refuses.
pub(super) fn take_refused() -> Option<CertificateInfo> {
    None
}

/// The settings of one side.
#[derive(Debug)]
pub struct Settings<Config> {
    config: Arc<Config>,
    limit: u32,
}

impl<Config> Clone for Settings<Config> {
    fn clone(&self) -> Self {
        Settings { config: Arc::clone(&self.config), limit: self.limit }
    }
}

/// The settings of a server.
pub type Tls = Settings<ServerConfig>;
/// The settings of a client.
pub type TlsClient = Settings<ClientConfig>;

/// Makes the settings of one side.
#[derive(Clone)]
#[must_use = "`build` makes the settings"]
pub struct SettingsBuilder<Config> {
    versions: Vec<Version>,
    suites: Vec<String>,
    key_exchanges: Vec<String>,
    alpn: Vec<Vec<u8>>,
    clock: Clock,
    identity: Option<(Pem, Pem)>,
    roots: Vec<Pem>,
    has_tickets: bool,
    sessions: usize,
    limit: u32,
    side: PhantomData<fn() -> Config>,
}

/// Makes a [`Tls`].
pub type TlsBuilder = SettingsBuilder<ServerConfig>;
/// Makes a [`TlsClient`].
pub type TlsClientBuilder = SettingsBuilder<ClientConfig>;

#[derive(Clone, Copy, Debug)]
struct Clock(fn() -> SystemTime);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        self.0().duration_since(UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}

impl<Config> Settings<Config> {
    /// Begins settings.
    pub fn builder() -> SettingsBuilder<Config> {
        SettingsBuilder {
            versions: Version::ALL.to_vec(),
            suites: Vec::new(),
            key_exchanges: Vec::new(),
            alpn: Vec::new(),
            clock: Clock(SystemTime::now),
            identity: None,
            roots: Vec::new(),
            has_tickets: true,
            sessions: 256,
            limit: 16 << 10,
            side: PhantomData,
        }
    }

    /// What a session needs, and the limit of its handshake.
    pub(super) fn current(&self) -> (Arc<Config>, u32) {
        (Arc::clone(&self.config), self.limit)
    }
}

impl<Config> SettingsBuilder<Config> {
    /// There is one.
    pub fn provider(self, _: Provider) -> Self {
        self
    }

    /// The versions.
    pub fn versions(mut self, versions: impl IntoIterator<Item = Version>) -> Self {
        self.versions = versions.into_iter().collect();
        self
    }

    /// The suites.
    pub fn suites<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.suites = names.into_iter().map(Into::into).collect();
        self
    }

    /// The key exchanges.
    pub fn key_exchanges<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.key_exchanges = names.into_iter().map(Into::into).collect();
        self
    }

    /// The protocols.
    pub fn alpn<T: AsRef<[u8]>>(mut self, protocols: impl IntoIterator<Item = T>) -> Self {
        self.alpn = protocols.into_iter().map(|name| name.as_ref().to_vec()).collect();
        self
    }

    /// Where the time comes from.
    pub fn clock(mut self, now: fn() -> SystemTime) -> Self {
        self.clock = Clock(now);
        self
    }

    /// How many bytes a peer may send before the handshake is done.
    pub fn handshake_limit(mut self, bytes: usize) -> Self {
        self.limit = u32::try_from(bytes).unwrap_or(u32::MAX);
        self
    }

    /// How many sessions are kept.
    pub fn session_cache(mut self, sessions: usize) -> Self {
        self.sessions = sessions;
        self
    }

    /// The cryptography, as it is chosen.
    fn cryptography(&self) -> Arc<CryptoProvider> {
        let mut all = rustls_ring::DEFAULT_PROVIDER;
        let is_chosen = |names: &[String], name: String| names.is_empty() || names.contains(&name);
        let is_suite = |suite, version| {
            self.versions.contains(&version) && is_chosen(&self.suites, suite_name(suite))
        };
        let old = mem::take(&mut all.tls12_cipher_suites).into_owned().into_iter();
        all.tls12_cipher_suites =
            old.filter(|suite| is_suite(suite.common.suite, Version::Tls12)).collect();
        let new = mem::take(&mut all.tls13_cipher_suites).into_owned().into_iter();
        all.tls13_cipher_suites =
            new.filter(|suite| is_suite(suite.common.suite, Version::Tls13)).collect();
        let groups = mem::take(&mut all.kx_groups).into_owned().into_iter();
        let name_of = |group: rustls_next::crypto::kx::NamedGroup| format!("{group:?}");
        all.kx_groups =
            groups.filter(|group| is_chosen(&self.key_exchanges, name_of(group.name()))).collect();
        Arc::new(all)
    }
}

fn setting(error: rustls_next::Error) -> TlsError {
    TlsError::Setting(error.to_string())
}

impl Tls {
    /// The settings with one certificate.
    ///
    /// # Errors
    /// What is wrong with the certificate or the key.
    pub fn pem(certificates: impl Into<Pem>, key: impl Into<Pem>) -> Result<Tls, TlsError> {
        Tls::builder().certificate(certificates, key).build()
    }
}

impl TlsBuilder {
    /// The certificate of the server, and its key.
    pub fn certificate(mut self, certificates: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        self.identity = Some((certificates.into(), key.into()));
        self
    }

    /// Whether clients get tickets.
    pub fn tickets(mut self, has_tickets: bool) -> Self {
        self.has_tickets = has_tickets;
        self
    }

    /// Makes the settings.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn build(self) -> Result<Tls, TlsError> {
        let provider = self.cryptography();
        let (certificates, key) = self.identity.as_ref().ok_or(TlsError::NoCertificate)?;
        let identity = pem::identity(certificates, key, &provider)?;
        let resolver = SingleCredential::from(identity.into_credentials().map_err(setting)?);
        let time = Arc::new(self.clock);
        let mut config = ServerConfig::builder_with_details(Arc::clone(&provider), time)
            .with_no_client_auth()
            .with_server_credential_resolver(Arc::new(resolver))
            .map_err(setting)?;
        config.alpn_protocols = self.alpn.into_iter().map(Into::into).collect();
        if self.has_tickets {
            config.ticketer = Some(provider.ticketer_factory.ticketer().map_err(setting)?);
        } else if self.sessions == 0 {
            config.send_tls13_tickets = Tls13Tickets { default: 0, max: 0 };
        }
        config.session_storage = match self.sessions {
            0 => Arc::new(NoServerSessionStorage {}),
            most => ServerSessionMemoryCache::new(most),
        };
        Ok(Settings { config: Arc::new(config), limit: self.limit })
    }
}

impl TlsClientBuilder {
    /// Whom the client trusts.
    pub fn roots(mut self, roots: impl Into<Pem>) -> Self {
        self.roots.push(roots.into());
        self
    }

    /// Makes the settings.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn build(self) -> Result<TlsClient, TlsError> {
        let mut roots = RootCertStore::empty();
        self.roots.iter().try_for_each(|pem| pem.add_roots(&mut roots))?;
        let time = Arc::new(self.clock);
        let mut config = ClientConfig::builder_with_details(self.cryptography(), time)
            .with_root_certificates(roots)
            .with_no_client_auth()
            .map_err(setting)?;
        config.alpn_protocols = self.alpn.into_iter().map(Into::into).collect();
        config.resumption = match self.sessions {
            0 => Resumption::disabled(),
            most => Resumption::in_memory_sessions(most),
        };
        Ok(Settings { config: Arc::new(config), limit: self.limit })
    }
}

/// A server, as a client knows it.
#[derive(Clone, Debug)]
pub struct Destination {
    client: TlsClient,
    name: ServerName<'static>,
}

impl Destination {
    pub(super) fn current(&self) -> (Arc<ClientConfig>, ServerName<'static>, u32) {
        let (config, limit) = self.client.current();
        (config, self.name.clone(), limit)
    }
}

impl TlsClient {
    /// The server with this name.
    ///
    /// # Errors
    /// [`TlsError::BadName`] if it is none.
    pub fn to(&self, name: &str) -> Result<Destination, TlsError> {
        let bad_name = |_| TlsError::BadName(name.to_owned());
        let name = name.to_owned().try_into().map_err(bad_name)?;
        Ok(Destination { client: self.clone(), name })
    }
}
