//! Code that the examples share: options on the command line, certificates, and the run.
#![allow(dead_code)] // each example uses its own part

use std::io;

use windlass_web::App;
#[cfg(feature = "ring")]
use windlass_web::tls::{Pem, Tls};

#[path = "../../../../examples/common/options.rs"]
mod options;

pub(crate) use options::Options;

/// The options that all examples have.
#[derive(Default)]
pub(crate) struct Setup {
    port: u16,
    loops: usize,
    /// Whether it has TLS; with which files, if it does not make a certificate.
    #[cfg(feature = "ring")]
    tls: Option<Option<(String, String)>>,
}

impl Setup {
    /// Takes `--port`, `--loops`, `--tls`, and `--cert` with `--key`. If any option is left over,
    /// prints the usage and exits.
    pub(crate) fn new(mut options: Options, port: u16) -> Setup {
        let setup = Setup::take(&mut options, port);
        options.end();
        setup
    }

    /// The same, for a program with further options.
    pub(crate) fn take(options: &mut Options, port: u16) -> Setup {
        let port = options.take("--port").unwrap_or(port);
        let loops = options.take("--loops").unwrap_or(1);
        #[cfg(feature = "ring")]
        let tls = {
            let files = options.take("--cert").zip(options.take("--key"));
            (options.flag("--tls") || files.is_some()).then_some(files)
        };
        Setup {
            port,
            loops,
            #[cfg(feature = "ring")]
            tls,
        }
    }

    /// Serves until SIGINT or SIGTERM comes.
    pub(crate) fn run<S: 'static>(self, app: App<S>) -> io::Result<()> {
        let address = format!("127.0.0.1:{}", self.port);
        #[cfg(feature = "ring")]
        let app = match self.tls {
            Some(files) => app.listen((address, tls(files)?))?,
            None => app.listen(address)?,
        };
        #[cfg(not(feature = "ring"))]
        let app = app.listen(address)?;
        serve(app.loops(self.loops))
    }
}

/// Serves at the addresses of the application until SIGINT or SIGTERM comes.
pub(crate) fn serve<S: 'static>(app: App<S>) -> io::Result<()> {
    let running = app.start()?;
    running.addresses().iter().for_each(|address| println!("listening on {address}"));
    let report = running.wait()?;
    println!("{} connections", report.counters.accepted);
    Ok(())
}

/// The certificate and the key in these files; without files, a certificate for `localhost` that it
/// signs itself.
#[cfg(feature = "ring")]
pub(crate) fn tls(files: Option<(String, String)>) -> io::Result<Tls> {
    if let Some((certificate, key)) = files {
        return Ok(Tls::pem(certificate.as_str(), key.as_str())?);
    }
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
    let made = made.map_err(io::Error::other)?;
    let key = Pem::bytes(made.signing_key.serialize_pem());
    Ok(Tls::pem(Pem::bytes(made.cert.pem()), key)?)
}
