//! Settings that servers and clients have in common.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{KeyLog, KeyLogFile, SupportedProtocolVersion};

use super::error::TlsError;
use super::provider::{Provider, Version};

/// How many bytes a peer may send before the handshake is done, if the program sets nothing else.
/// A hello has some hundred bytes, two kilobytes with a key exchange against quantum computers; a
/// chain of certificates has 2 to 5 KiB.
const HANDSHAKE_LIMIT: u32 = 16 << 10;

/// The settings of both.
#[derive(Clone, Debug)]
pub(super) struct CommonSettings {
    pub(super) provider: Provider,
    pub(super) versions: Vec<Version>,
    pub(super) suites: Vec<String>,
    pub(super) key_exchanges: Vec<String>,
    pub(super) alpn: Vec<Vec<u8>>,
    pub(super) clock: Option<WallClock>,
    pub(super) is_logging_keys: bool,
    pub(super) handshake_limit: u32,
    pub(super) handshakes: Handshakes,
}

/// Where a server or an engine answers peers in their handshakes. The answer to the hello of a
/// client takes a third of a millisecond with a key on P-256, and some milliseconds with a key of
/// RSA-4096.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Handshakes {
    /// On the loop of the connection, [few in a turn](crate::Limits::handshakes_per_turn).
    #[default]
    Loop,
    /// On the worker threads of the watcher, at most 4 for each loop at a time. The loop goes on
    /// meanwhile. Choose it for keys of RSA, or if other processors have little to do. The loop
    /// answers those of an [`Engine::upgrade`](crate::Engine::upgrade) itself.
    Workers,
}

/// Where the time comes from.
#[derive(Clone)]
pub(super) struct WallClock(pub(super) Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Default for CommonSettings {
    fn default() -> CommonSettings {
        CommonSettings {
            provider: Provider::default(),
            versions: Version::ALL.to_vec(),
            suites: Vec::new(),
            key_exchanges: Vec::new(),
            alpn: Vec::new(),
            clock: None,
            is_logging_keys: false,
            handshake_limit: HANDSHAKE_LIMIT,
            handshakes: Handshakes::Loop,
        }
    }
}

impl CommonSettings {
    /// The cryptography, as it is chosen.
    pub(super) fn cryptography(&self) -> Result<Arc<CryptoProvider>, TlsError> {
        if let Some(name) = self.alpn.iter().find(|name| !(1..=255).contains(&name.len())) {
            let len = name.len();
            return Err(TlsError::Setting(format!(
                "a protocol (ALPN) has {len} bytes, not 1 to 255"
            )));
        }
        self.provider.with(&self.suites, &self.key_exchanges)
    }

    pub(super) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        self.versions.iter().map(|version| version.get()).collect()
    }

    pub(super) fn time(&self) -> Arc<dyn TimeProvider> {
        match &self.clock {
            Some(clock) => Arc::new(clock.clone()),
            None => Arc::new(DefaultTimeProvider),
        }
    }

    /// Where keys are written, if the program wants it.
    pub(super) fn key_log(&self) -> Option<Arc<dyn KeyLog>> {
        self.is_logging_keys.then(|| Arc::new(KeyLogFile::new()) as Arc<dyn KeyLog>)
    }
}

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        (self.0)().duration_since(UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}

/// The methods of both builders. They have a field `common`.
macro_rules! common_settings {
    () => {
        /// Who does the cryptography. The default is [`Provider::default`].
        pub fn provider(mut self, provider: Provider) -> Self {
            self.common.provider = provider;
            self
        }

        /// The versions of TLS. The default is [`Version::ALL`].
        pub fn versions(mut self, versions: impl IntoIterator<Item = Version>) -> Self {
            self.common.versions = versions.into_iter().collect();
            self
        }

        /// The suites of ciphers, the best first, by the names that IANA has for them, such as
        /// `TLS_AES_256_GCM_SHA384`. The default is [`Provider::suites`].
        pub fn suites<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
            self.common.suites = names.into_iter().map(Into::into).collect();
            self
        }

        /// The ways to exchange keys, the best first, such as `X25519` and `secp256r1`. The default
        /// is [`Provider::key_exchanges`].
        pub fn key_exchanges<T: Into<String>>(
            mut self,
            names: impl IntoIterator<Item = T>,
        ) -> Self {
            self.common.key_exchanges = names.into_iter().map(Into::into).collect();
            self
        }

        /// The protocols that this end speaks (ALPN), the best first, such as `h2` and `http/1.1`.
        /// The default is none: then protocols are no subject of the handshake.
        pub fn alpn<T: AsRef<[u8]>>(mut self, protocols: impl IntoIterator<Item = T>) -> Self {
            self.common.alpn =
                protocols.into_iter().map(|protocol| protocol.as_ref().to_vec()).collect();
            self
        }

        /// Where the time comes from that certificates and tickets are checked with. The default is
        /// [`SystemTime::now`]. A simulation gives its own time.
        pub fn clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
            self.common.clock = Some(WallClock(Arc::new(now)));
            self
        }

        /// Writes the keys of every session to the file that the environment variable
        /// `SSLKEYLOGFILE` names, if it is set, so that programs such as Wireshark can read the
        /// traffic. Without this call nothing is written, whatever the environment says.
        pub fn log_keys(mut self) -> Self {
            self.common.is_logging_keys = true;
            self
        }

        /// Where engines and servers answer peers in their handshakes. (A session by itself runs
        /// where its calls are made.) The default is [`Handshakes::Loop`].
        pub fn handshakes(mut self, on: Handshakes) -> Self {
            self.common.handshakes = on;
            self
        }

        /// How many bytes a peer may send before the handshake is done; more is
        /// [`Error::HandshakeTooLong`](TlsError::HandshakeTooLong). The default is 16 KiB. One
        /// message of the handshake has at most 64 KiB, whatever this limit says.
        pub fn handshake_limit(mut self, bytes: usize) -> Self {
            self.common.handshake_limit = u32::try_from(bytes).unwrap_or(u32::MAX);
            self
        }
    };
}

pub(super) use common_settings;
