//! TLS of servers: certificates, and whom to trust.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::pki_types::CertificateRevocationListDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::error::TlsError;
use super::hello::{Hello, HelloResolver};
use super::names::CertificateNames;
use super::pem::{self, Pem};
use super::provider::{Provider, Version};
use super::settings::{CommonSettings, Handshakes, WallClock, common_settings};
use super::verifier::Naming;

/// How many sessions a server keeps for clients without tickets, if the program sets nothing else.
const SESSIONS: usize = 256;

/// The certificates and the other settings of a server with TLS.
///
/// Clones share everything, so all loops of a server have the same certificates, and a session of
/// one loop resumes on another one. [`reload`](Tls::reload) and [`replace`](Tls::replace) change
/// the settings of all clones, for sessions that begin later. Those that exist keep theirs.
///
/// ```no_run
/// use windlass_serve::tls::Tls;
///
/// let tls = Tls::builder()
///     .certificate("example.pem", "example.key")
///     .certificate("other.pem", "other.key") // by the names that it has
///     .alpn(["http/1.1"])
///     .build()?;
/// // Later, as a certificate was renewed. A bad file keeps the old certificates.
/// if let Err(error) = tls.reload() {
///     eprintln!("{error}");
/// }
/// # Ok::<(), windlass_serve::tls::Error>(())
/// ```
#[derive(Clone)]
pub struct Tls(Arc<ServerSettings>);

struct ServerSettings {
    /// What `reload` builds again. Its lock also keeps two changes apart.
    builder: Mutex<TlsBuilder>,
    current: RwLock<InUse>,
}

#[derive(Clone)]
struct InUse {
    config: Arc<ServerConfig>,
    handshake_limit: u32,
    handshakes: Handshakes,
    resolver: Option<HelloResolver>,
}

/// What a server asks of its clients' certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    None,
    Optional,
    Required,
}

/// Makes a [`Tls`].
#[derive(Clone, Debug)]
#[must_use = "`build` makes the settings"]
pub struct TlsBuilder {
    common: CommonSettings,
    certificates: Vec<Identity>,
    is_strict: bool,
    clients: Clients,
    roots: Vec<Pem>,
    crls: Vec<Pem>,
    has_tickets: bool,
    sessions: usize,
    resolver: Option<HelloResolver>,
    /// The protocols of a program that has set none.
    default_alpn: Vec<Vec<u8>>,
}

#[derive(Clone, Debug)]
struct Identity {
    /// Those of the certificate if there are none.
    names: Vec<String>,
    certificates: Pem,
    key: Pem,
}

impl Tls {
    /// Settings with one certificate: the server's own, with those of its issuers behind it, and
    /// its private key.
    ///
    /// # Errors
    /// [`Error::File`](TlsError::File), [`Error::Pem`](TlsError::Pem) or
    /// [`Error::KeyMismatch`](TlsError::KeyMismatch) say what is wrong with which file.
    pub fn pem(certificates: impl Into<Pem>, key: impl Into<Pem>) -> Result<Tls, TlsError> {
        Tls::builder().certificate(certificates, key).build()
    }

    /// Begins settings.
    pub fn builder() -> TlsBuilder {
        TlsBuilder {
            common: CommonSettings::default(),
            certificates: Vec::new(),
            is_strict: false,
            clients: Clients::None,
            roots: Vec::new(),
            crls: Vec::new(),
            has_tickets: true,
            sessions: SESSIONS,
            resolver: None,
            default_alpn: Vec::new(),
        }
    }

    /// Sets the protocols of this end ([ALPN](TlsBuilder::alpn)) if the program has set none: for a
    /// layer that speaks one, such as HTTP. They are of all clones, and of what
    /// [`reload`](Tls::reload) and [`replace`](Tls::replace) take later.
    ///
    /// ```
    /// # let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    /// # let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    /// use windlass_serve::tls::{Pem, Tls};
    ///
    /// let tls = Tls::pem(Pem::bytes(certificate), Pem::bytes(key))?;
    /// tls.default_alpn(["http/1.1"]); // a client that offers only `h2` is refused
    /// # Ok::<(), windlass_serve::tls::Error>(())
    /// ```
    pub fn default_alpn<T: AsRef<[u8]>>(&self, protocols: impl IntoIterator<Item = T>) {
        let mut builder = self.0.builder.lock().unwrap_or_else(PoisonError::into_inner);
        builder.default_alpn = protocols.into_iter().map(|one| one.as_ref().to_vec()).collect();
        if builder.common.alpn.is_empty() {
            let mut current = self.now();
            let mut config = ServerConfig::clone(&current.config);
            config.alpn_protocols.clone_from(&builder.default_alpn);
            current.config = Arc::new(config);
            *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = current;
        }
    }

    /// Reads all files again, and takes what they have for sessions that begin from now on. Reading
    /// can block: a loop calls this in a [job](crate::Conn::execute). Handshakes go on meanwhile,
    /// with the old certificates.
    ///
    /// Clients can resume sessions from before, unless the server checks certificates of clients:
    /// then each client shows its certificate again.
    ///
    /// # Errors
    /// As for [`TlsBuilder::build`]. Then everything stays as it was: with a file that somebody is
    /// writing, try again later.
    pub fn reload(&self) -> Result<(), TlsError> {
        let builder = self.0.builder.lock().unwrap_or_else(PoisonError::into_inner);
        self.set(&builder)
    }

    /// Takes other settings for sessions that begin from now on. From then on,
    /// [`reload`](Tls::reload) reads the files of these settings.
    ///
    /// # Errors
    /// As for [`TlsBuilder::build`]. Then everything stays as it was.
    pub fn replace(&self, mut settings: TlsBuilder) -> Result<(), TlsError> {
        let mut builder = self.0.builder.lock().unwrap_or_else(PoisonError::into_inner);
        settings.default_alpn.clone_from(&builder.default_alpn);
        self.set(&settings)?;
        *builder = settings;
        Ok(())
    }

    fn set(&self, builder: &TlsBuilder) -> Result<(), TlsError> {
        let old = self.now();
        let new = builder.current(Some(&old.config))?;
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn now(&self) -> InUse {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The settings for a session that begins now.
    pub(super) fn current(&self) -> (Arc<ServerConfig>, u32) {
        let InUse { config, handshake_limit, .. } = self.now();
        (config, handshake_limit)
    }

    /// Who answers hellos, if somebody does.
    pub(super) fn resolver(&self) -> Option<HelloResolver> {
        self.now().resolver
    }

    /// Whether the worker threads do the costly parts of handshakes.
    pub(crate) fn on_workers(&self) -> bool {
        self.now().handshakes == Handshakes::Workers
    }
}

#[cfg(test)]
impl Tls {
    /// The settings as rustls has them.
    pub(super) fn of(config: ServerConfig) -> Tls {
        let (config, handshakes) = (Arc::new(config), Handshakes::Loop);
        let current = InUse { config, handshake_limit: 16 << 10, handshakes, resolver: None };
        let builder = Mutex::new(Tls::builder());
        Tls(Arc::new(ServerSettings { builder, current: RwLock::new(current) }))
    }
}

impl TlsBuilder {
    common_settings!();

    /// Adds a certificate: the server's own, with those of its issuers behind it, and its private
    /// key. Clients get it if they ask for one of the names in it, wildcards included. The first
    /// one is also for clients that ask for another name, or for none.
    ///
    /// Two certificates with the same name may have keys of different kinds: a client gets the
    /// first one that it can check.
    pub fn certificate(self, certificates: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        self.certificate_for::<&str>([], certificates, key)
    }

    /// As [`certificate`](TlsBuilder::certificate), for these names in place of those in the
    /// certificate. A name that begins with `*.` is for all names with one label in its place.
    pub fn certificate_for<T: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = T>,
        certificates: impl Into<Pem>,
        key: impl Into<Pem>,
    ) -> Self {
        self.certificates.push(Identity {
            names: names.into_iter().map(Into::into).collect(),
            certificates: certificates.into(),
            key: key.into(),
        });
        self
    }

    /// Asks `resolver` which settings a connection gets, when the hello of its client has come:
    /// with the name and the protocols of the client. It is called on the loop, where it must not
    /// block. It may answer at once, or give the [`Hello`] to a job, a thread or a look-up, and the
    /// loop goes on meanwhile. [`Limits::handshake`](crate::Limits::handshake) bounds the time, and
    /// [`Limits::handshakes_waiting`](crate::Limits::handshakes_waiting) bounds how many hellos of
    /// a loop wait.
    ///
    /// Settings with a resolver need no certificate of their own. If they have some,
    /// [`Hello::go_on`] uses them. Only the connections of listeners ask the resolver.
    /// [`Session::server`](super::Session::server) and [`Engine::upgrade`](crate::Engine::upgrade)
    /// do not: they use these settings as they are.
    ///
    /// ```
    /// # let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    /// # let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    /// use windlass_serve::tls::{Pem, Tls};
    ///
    /// // A challenge of ACME (RFC 8737) comes with a protocol of its own.
    /// let challenge = Tls::builder()
    ///     .certificate(Pem::bytes(&certificate), Pem::bytes(&key))
    ///     .alpn(["acme-tls/1"])
    ///     .build()?;
    /// let tls = Tls::builder()
    ///     .certificate(Pem::bytes(&certificate), Pem::bytes(&key))
    ///     .resolver(move |hello| match hello.offers("acme-tls/1") {
    ///         true => hello.answer(&challenge),
    ///         false => hello.go_on(),
    ///     })
    ///     .build()?;
    /// # Ok::<(), windlass_serve::tls::Error>(())
    /// ```
    pub fn resolver(mut self, resolver: impl Fn(Hello) + Send + Sync + 'static) -> Self {
        self.resolver = Some(HelloResolver(Arc::new(resolver)));
        self
    }

    /// Refuses clients that ask for a name without a certificate, or for none:
    /// [`Error::UnknownName`](TlsError::UnknownName). By default they get the first certificate.
    pub fn refuse_unknown_names(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// Asks clients for a certificate of one of these authorities. A client may have none: then
    /// [`Session::peer_certificates`](super::Session::peer_certificates) is empty. A client with a
    /// bad one is refused. Several calls add up.
    pub fn request_client_certificates(mut self, roots: impl Into<Pem>) -> Self {
        if self.clients == Clients::None {
            self.clients = Clients::Optional;
        }
        self.roots.push(roots.into());
        self
    }

    /// Serves only clients with a certificate of one of these authorities. Several calls add up.
    pub fn require_client_certificates(mut self, roots: impl Into<Pem>) -> Self {
        self.clients = Clients::Required;
        self.roots.push(roots.into());
        self
    }

    /// Checks the certificates of clients against lists of revoked certificates. Each certificate
    /// below a root needs a list of its issuer, which must not have expired. Several calls add up.
    pub fn crls(mut self, lists: impl Into<Pem>) -> Self {
        self.crls.push(lists.into());
        self
    }

    /// Whether clients get tickets to resume sessions with, which is the default. The server keeps
    /// nothing for a ticket. The key of the tickets is made here, and changes every 6 hours of the
    /// system's clock: so a ticket is good for 6 to 12 hours. Another process has another key.
    pub fn tickets(mut self, has_tickets: bool) -> Self {
        self.has_tickets = has_tickets;
        self
    }

    /// How many sessions the server keeps, for all loops together. With tickets it keeps only those
    /// of clients with TLS 1.2 that support no tickets. Without tickets it keeps one for each
    /// connection with TLS 1.2, and two with TLS 1.3. The default is 256, and 0 keeps none.
    pub fn session_cache(mut self, sessions: usize) -> Self {
        self.sessions = sessions;
        self
    }

    /// Reads the files, and makes the settings.
    ///
    /// # Errors
    /// [`Error::File`](TlsError::File), [`Error::Pem`](TlsError::Pem),
    /// [`Error::KeyMismatch`](TlsError::KeyMismatch) and [`Error::NoName`](TlsError::NoName) say
    /// what is wrong with which file. [`Error::NoCertificate`](TlsError::NoCertificate) if there is
    /// no certificate, [`Error::Setting`](TlsError::Setting) for versions, suites and other
    /// settings that do not go together.
    pub fn build(self) -> Result<Tls, TlsError> {
        let current = RwLock::new(self.current(None)?);
        Ok(Tls(Arc::new(ServerSettings { builder: Mutex::new(self), current })))
    }

    /// The settings as rustls has them. Sessions of the old ones can be resumed if nobody's
    /// certificate was checked for them.
    fn current(&self, old: Option<&ServerConfig>) -> Result<InUse, TlsError> {
        let common = &self.common;
        let provider = common.cryptography()?;
        let setting = |error: rustls::Error| TlsError::Setting(error.to_string());
        let mut config = ServerConfig::builder_with_details(Arc::clone(&provider), common.time())
            .with_protocol_versions(&common.versions())
            .map_err(setting)?
            .with_client_cert_verifier(self.verifier(&provider)?)
            .with_cert_resolver(Arc::new(self.names(&provider)?));
        let alpn = if common.alpn.is_empty() { &self.default_alpn } else { &common.alpn };
        config.alpn_protocols.clone_from(alpn);
        if let Some(log) = common.key_log() {
            config.key_log = log;
        }
        match old.filter(|_| self.clients == Clients::None) {
            Some(old) => self.keep_sessions(&mut config, old)?,
            None => self.new_sessions(&mut config)?,
        }
        let CommonSettings { handshake_limit, handshakes, .. } = *common;
        let resolver = self.resolver.clone();
        Ok(InUse { config: Arc::new(config), handshake_limit, handshakes, resolver })
    }

    fn new_sessions(&self, config: &mut ServerConfig) -> Result<(), TlsError> {
        if self.has_tickets {
            config.ticketer = self.common.provider.ticketer()?;
        } else if self.sessions == 0 {
            config.send_tls13_tickets = 0;
        }
        config.session_storage = match self.sessions {
            0 => Arc::new(NoServerSessionStorage {}),
            most => ServerSessionMemoryCache::new(most),
        };
        Ok(())
    }

    /// Only the identity of the server has changed, and a session is bound to the name that its
    /// client has asked for.
    fn keep_sessions(&self, config: &mut ServerConfig, old: &ServerConfig) -> Result<(), TlsError> {
        self.new_sessions(config)?;
        if old.ticketer.enabled() && self.has_tickets {
            config.ticketer = Arc::clone(&old.ticketer);
        }
        if old.session_storage.can_cache() && self.sessions > 0 {
            config.session_storage = Arc::clone(&old.session_storage);
        }
        Ok(())
    }

    fn names(
        &self,
        provider: &rustls::crypto::CryptoProvider,
    ) -> Result<CertificateNames, TlsError> {
        let mut all = CertificateNames::default();
        for (i, one) in self.certificates.iter().enumerate() {
            let identity = Arc::new(pem::identity(&one.certificates, &one.key, provider)?);
            let names = match one.names.is_empty() {
                true => pem::names(&one.certificates, &identity),
                false => Ok(one.names.clone()),
            };
            let is_general = i == 0 && !self.is_strict;
            match names {
                Ok(names) => all.add(names, Arc::clone(&identity)),
                Err(_) if is_general => {}
                Err(error) => return Err(error),
            }
            if is_general {
                all.add_for_others(identity);
            }
        }
        let has_none = self.certificates.is_empty() && self.resolver.is_none();
        if has_none { Err(TlsError::NoCertificate) } else { Ok(all) }
    }

    fn verifier(
        &self,
        provider: &Arc<rustls::crypto::CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        if self.clients == Clients::None {
            return match self.crls.is_empty() {
                true => Ok(WebPkiClientVerifier::no_client_auth()),
                false => Err(TlsError::Setting(
                    "lists of revoked certificates, and no certificates of clients".to_owned(),
                )),
            };
        }
        let mut roots = RootCertStore::empty();
        self.roots.iter().try_for_each(|pem| pem.add_roots(&mut roots))?;
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(provider))
                .with_crls(lists(&self.crls)?)
                .enforce_revocation_expiration();
        if self.clients == Clients::Optional {
            builder = builder.allow_unauthenticated();
        }
        let verifier = builder.build().map_err(|error| TlsError::Setting(error.to_string()))?;
        Ok(Arc::new(Naming(verifier)))
    }
}

/// All lists of revoked certificates.
pub(super) fn lists(pems: &[Pem]) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let mut all = Vec::new();
    for pem in pems {
        all.extend(pem.lists()?);
    }
    Ok(all)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let builder = self.0.builder.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("Tls").field(&*builder).finish()
    }
}
