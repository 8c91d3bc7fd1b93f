//! Certificates, and a client with TLS above a blocking stream.
#![allow(dead_code, unreachable_pub)] // each test uses its own part

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rcgen::{CertificateParams, IsCa, Issuer, KeyPair};
use windlass_web::tls::{Pem, Session, Tls, TlsBuilder, TlsClient};

use crate::wire::Client;

/// One that issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(parameters, key), pem }
    }

    pub fn root(&self) -> Pem {
        Pem::bytes(&self.pem)
    }

    /// A certificate for a name, and its key, in PEM.
    pub fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// The settings of a server of this name.
    pub fn server(&self, name: &str) -> TlsBuilder {
        let (certificate, key) = self.issue(name);
        Tls::builder().certificate(Pem::bytes(certificate), Pem::bytes(key))
    }
}

/// A stream of TLS.
pub struct Secure {
    pub session: Session,
    stream: TcpStream,
    plain: Vec<u8>,
}

impl Secure {
    /// A connection whose handshake is done.
    pub fn open(address: SocketAddr, tls: &TlsClient) -> io::Result<Client<Secure>> {
        let session = Session::client(tls, "localhost").map_err(io::Error::other)?;
        let stream = TcpStream::connect(address)?;
        let mut secure = Secure { session, stream, plain: Vec::new() };
        while !secure.session.is_open() {
            secure.send()?;
            if !secure.receive()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        secure.send()?;
        Ok(Client::over(secure))
    }

    fn send(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        self.session.take_output(&mut out);
        self.stream.write_all(&out)
    }

    /// Takes what comes; false at the end.
    fn receive(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let len = loop {
            match self.stream.read(&mut buffer) {
                // Another test of this process has raised a signal.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.session.feed_into(&buffer[..len], &mut self.plain).map_err(io::Error::other)?;
        Ok(len > 0)
    }
}

impl Read for Secure {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.plain.is_empty() {
            if !self.receive()? || self.session.is_closed() {
                return Ok(0);
            }
        }
        let len = buffer.len().min(self.plain.len());
        buffer[..len].copy_from_slice(&self.plain[..len]);
        self.plain.drain(..len);
        Ok(len)
    }
}

impl Write for Secure {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = Vec::new();
        self.session.write_all(bytes, &mut out).map_err(io::Error::other)?;
        self.stream.write_all(&out)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
