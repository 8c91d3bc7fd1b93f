//! Authorities and certificates, made anew in each run, and pairs of sessions in memory.
#![allow(dead_code, unreachable_pub)] // each test uses its own part

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use windlass_serve::tls::{
    Error, Pem, Provider, Session, SessionState, Tls, TlsBuilder, TlsClient, TlsClientBuilder,
};

/// The time of most tests: all certificates are valid.
pub fn noon() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_780_000_000) // in May 2026
}

/// One that issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate with its key, both in PEM.
#[derive(Clone)]
pub struct Made {
    pub certificate: String,
    pub key: String,
}

impl Made {
    pub fn pems(&self) -> (Pem, Pem) {
        (Pem::bytes(&self.certificate), Pem::bytes(&self.key))
    }
}

/// What a certificate is for.
pub fn parameters(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut parameters = CertificateParams::new(names).expect("names");
    parameters.not_before = date_time_ymd(2026, 1, 1);
    parameters.not_after = date_time_ymd(2036, 1, 1);
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.distinguished_name.push(DnType::CommonName, "made for a test");
    parameters
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        Authority::with(name, KeyPair::generate().expect("a key"))
    }

    fn with(name: &str, key: KeyPair) -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.not_before = date_time_ymd(2026, 1, 1);
        parameters.not_after = date_time_ymd(2036, 1, 1);
        let pem = parameters.self_signed(&key).expect("a root").pem();
        Authority { issuer: Issuer::new(parameters, key), pem }
    }

    pub fn root(&self) -> Pem {
        Pem::bytes(&self.pem)
    }

    /// Issues a certificate.
    pub fn issue(&self, parameters: &CertificateParams) -> Made {
        self.issue_for(parameters, &KeyPair::generate().expect("a key"))
    }

    fn issue_for(&self, parameters: &CertificateParams, key: &KeyPair) -> Made {
        let certificate = parameters.signed_by(key, &self.issuer).expect("a certificate");
        Made { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// A certificate of a server with these names.
    pub fn server(&self, names: &[&str]) -> Made {
        self.issue(&parameters(names))
    }

    /// A certificate of a client, with this number.
    pub fn client(&self, name: &str, number: u64) -> Made {
        let mut parameters = parameters(&[]);
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.serial_number = Some(SerialNumber::from(number));
        self.issue(&parameters)
    }

    /// A list that revokes these numbers, until the end of the year.
    pub fn revoke(&self, numbers: &[u64], last_year: i32) -> Pem {
        let revoked = numbers.iter().map(|number| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2026, 2, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(last_year, 2, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Pem::bytes(list.signed_by(&self.issuer).expect("a list").pem().expect("a text"))
    }
}

/// A server's settings for `localhost`, and those of a client that trusts it.
pub fn settings(provider: Provider) -> (Authority, TlsBuilder, TlsClientBuilder) {
    let authority = Authority::new("the root of a test");
    let (certificate, key) = authority.server(&["localhost"]).pems();
    let server = Tls::builder().provider(provider).clock(noon).certificate(certificate, key);
    let client = TlsClient::builder().provider(provider).clock(noon).roots(authority.root());
    (authority, server, client)
}

/// The same with keys whose signatures have one length, so that each run of a seed is the same.
pub fn ed25519_settings(provider: Provider) -> (Authority, TlsBuilder, TlsClientBuilder) {
    let key = || KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let authority = Authority::with("the root of a test", key());
    let (certificate, key) = authority.issue_for(&parameters(&["localhost"]), &key()).pems();
    let server = Tls::builder().provider(provider).clock(noon).certificate(certificate, key);
    let client = TlsClient::builder().provider(provider).clock(noon).roots(authority.root());
    (authority, server, client)
}

/// Both ends of a connection, and what is on its way.
pub struct Pair {
    pub client: Session,
    pub server: Session,
    pub to_client: Vec<u8>,
    pub to_server: Vec<u8>,
    /// The plain text that each end has got.
    pub client_plain: Vec<u8>,
    pub server_plain: Vec<u8>,
}

impl Pair {
    pub fn new(server: &Tls, client: &TlsClient) -> Pair {
        Pair::to(server, client, "localhost")
    }

    pub fn to(server: &Tls, client: &TlsClient, name: &str) -> Pair {
        Pair {
            client: Session::client(client, name).expect("a client"),
            server: Session::server(server).expect("a server"),
            to_client: Vec::new(),
            to_server: Vec::new(),
            client_plain: Vec::new(),
            server_plain: Vec::new(),
        }
    }

    /// Moves bytes both ways until there are none.
    pub fn run(&mut self) -> Result<(), Error> {
        loop {
            self.client.take_output(&mut self.to_server);
            self.server.take_output(&mut self.to_client);
            if self.to_client.is_empty() && self.to_server.is_empty() {
                return Ok(());
            }
            let input = std::mem::take(&mut self.to_server);
            let at_server = self.server.feed_into(&input, &mut self.server_plain);
            self.server.take_output(&mut self.to_client);
            let input = std::mem::take(&mut self.to_client);
            let at_client = self.client.feed_into(&input, &mut self.client_plain);
            self.client.take_output(&mut self.to_server);
            at_client.and(at_server)?;
        }
    }

    /// A pair whose handshake is done, and nothing is on its way.
    pub fn open(server: &Tls, client: &TlsClient) -> Pair {
        let mut pair = Pair::new(server, client);
        pair.run().expect("a handshake");
        let states = (pair.client.state(), pair.server.state());
        assert_eq!(states, (SessionState::Open, SessionState::Open));
        pair
    }
}

/// How a handshake between these two fails at each end; `None` where it does not.
pub fn failures(pair: &mut Pair) -> (Option<Error>, Option<Error>) {
    for _ in 0..8 {
        let _ = pair.run(); // the alert of the one that has failed has to arrive
    }
    (pair.client.failure().cloned(), pair.server.failure().cloned())
}
