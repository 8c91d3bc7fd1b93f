//! A mail server whose connections begin plain and go over to TLS, and a client of it: the STARTTLS
//! of RFC 3207.
//!
//! ```text
//! cargo run --release -p windlass-serve --features ring --example starttls -- \
//!     [--port N] [--loops N] [--cert FILE --key FILE] [--client]
//! openssl s_client -starttls smtp -connect 127.0.0.1:7025 -quiet
//! ```
//!
//! Without files it makes a certificate for `localhost`, which it signs itself. The server takes
//! mails, behind the upgrade only, and drops them. With `--client` the program also sends itself a
//! mail, prints what both ends say, and ends. The client trusts the file of the certificate.
//!
//! Three things make such an upgrade safe. What was read behind the last plain line goes along with
//! the call of `upgrade`, and is not kept. What was learnt before the upgrade is forgotten: both
//! ends begin again behind it. And the client goes on only where the server offers TLS, because an
//! attacker between both ends can take the offer away.

use std::error::Error;
use std::io;
use std::sync::{Mutex, PoisonError};

use windlass::net::ConnectOptions;
use windlass::{Address, Buf};
use windlass_serve::framing::{Input, Lines};
use windlass_serve::tls::{Destination, Pem, Tls, TlsClient};
use windlass_serve::{Action, Closed, Conn, Context, Handler, Origin, Server};

#[path = "common/mod.rs"]
mod common;

/// The longest line, as RFC 5321 has it for text.
const LINE: usize = 1000;

/// What the client waits for, and what it says then. An empty text stands for the upgrade, and for
/// the end.
const SCRIPT: [(&str, &str); 9] = [
    ("220", "EHLO client"),
    ("250", "STARTTLS"),
    ("220", ""),
    ("250", "MAIL FROM:<a@localhost>"),
    ("250", "RCPT TO:<b@localhost>"),
    ("250", "DATA"),
    ("354", "Subject: hello\r\n\r\nIt came encrypted.\r\n."),
    ("250", "QUIT"),
    ("221", ""),
];

/// A connection at either end. An upgrade leaves nothing of it but who the client is.
#[derive(Debug)]
pub(crate) struct Talk {
    input: Input,
    lines: Lines,
    /// Whether the client has said hello, and whether it sends the text of a mail.
    is_greeted: bool,
    sends_text: bool,
    client: Option<Client>,
}

impl Talk {
    fn of(client: Option<Client>) -> Talk {
        let (input, lines) = (Input::new(), Lines::new(LINE));
        Talk { input, lines, is_greeted: false, sends_text: false, client }
    }

    /// That of the client.
    pub(crate) fn client() -> Talk {
        Talk::of(Some(Client::default()))
    }
}

impl Default for Talk {
    fn default() -> Talk {
        Talk::of(None)
    }
}

/// The client's side.
#[derive(Debug, Default)]
struct Client {
    /// Its place in the script.
    step: usize,
    /// Whether the reply that comes offers TLS.
    is_offered: bool,
}

/// The server, and its client if this loop has one.
pub(crate) struct Mail {
    pub(crate) tls: Tls,
    /// Whom the client trusts.
    pub(crate) to: Option<Destination>,
    /// What the client has said and heard, and how it has ended.
    pub(crate) told: Vec<String>,
}

impl Mail {
    pub(crate) fn new(tls: Tls, to: Option<Destination>) -> Mail {
        Mail { tls, to, told: Vec::new() }
    }

    /// Answers a line of a client.
    fn answer(&self, c: &mut Conn<'_, Talk>, line: &str) -> Action {
        let is_secure = c.tls().is_some();
        let talk = c.state();
        if talk.sends_text {
            talk.sends_text = line != ".";
            if line == "." {
                c.write("250 taken\r\n");
            }
            return Action::None;
        }
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        let answer = match &*verb {
            "EHLO" | "HELO" => {
                talk.is_greeted = true;
                let offers = verb == "EHLO" && !is_secure;
                if offers { "250-localhost\r\n250 STARTTLS\r\n" } else { "250 localhost\r\n" }
            }
            "NOOP" => "250 ok\r\n",
            "QUIT" => {
                c.write("221 bye\r\n");
                return Action::Close;
            }
            "STARTTLS" if is_secure => "503 it is encrypted\r\n",
            "STARTTLS" => {
                // It leaves as plain text. What was read behind the line is not plain.
                let rest = talk.input.take_rest();
                c.write("220 go ahead\r\n");
                let begins = c.upgrade(&self.tls, rest).is_ok();
                return if begins { Action::None } else { Action::Close };
            }
            "MAIL" | "RCPT" | "DATA" if !is_secure => "530 STARTTLS first\r\n",
            "MAIL" | "RCPT" | "DATA" if !talk.is_greeted => "503 EHLO first\r\n",
            "MAIL" | "RCPT" => "250 ok\r\n",
            "DATA" => {
                talk.sends_text = true;
                "354 a dot ends it\r\n"
            }
            _ => "500 what?\r\n",
        };
        c.write(answer);
        Action::None
    }

    /// Takes a line of the server, and says what follows.
    fn go_on(&mut self, c: &mut Conn<'_, Talk>, line: &str) -> Action {
        self.tell(format!("S: {line}"));
        let Talk { client: Some(client), input, .. } = c.state() else { return Action::Close };
        let (code, text) = line.split_at_checked(4).unwrap_or((line, ""));
        client.is_offered |= text.eq_ignore_ascii_case("STARTTLS");
        if code.ends_with('-') {
            return Action::None; // The reply has more lines.
        }
        let is_offered = std::mem::take(&mut client.is_offered);
        let Some(&(expected, says)) = SCRIPT.get(client.step) else { return Action::Close };
        client.step += 1;
        if code.trim_end() != expected {
            return Action::Close;
        }
        if says == "STARTTLS" && !is_offered {
            self.tell("the server does not offer TLS".to_owned());
            return Action::Close;
        }
        match (expected, &self.to) {
            (_, Some(to)) if says.is_empty() && expected == "220" => {
                let rest = input.take_rest();
                let begins = c.upgrade(to, rest).is_ok();
                return if begins { Action::None } else { Action::Close };
            }
            _ if says.is_empty() => return Action::Close,
            _ => self.say(c, says),
        }
        Action::None
    }

    fn say(&mut self, c: &mut Conn<'_, Talk>, what: &str) {
        what.lines().for_each(|line| self.tell(format!("C: {line}")));
        c.write(format!("{what}\r\n"));
    }

    fn tell(&mut self, what: String) {
        println!("{what}");
        self.told.push(what);
    }
}

impl Handler for Mail {
    type State = Talk;

    fn serving(&mut self, server: &mut Context<'_, Talk>, addresses: &[Address]) -> Action {
        let (to, options) = (addresses.first().cloned(), ConnectOptions::default());
        let starts =
            self.to.is_none() || server.engine().connect(to, options, Talk::client()).is_ok();
        if starts { Action::None } else { Action::Shutdown }
    }

    fn opened(&mut self, c: &mut Conn<'_, Talk>, _: Origin) -> Action {
        if c.state().client.is_none() {
            c.write("220 localhost ESMTP\r\n");
        }
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Talk>, data: Buf) -> Action {
        c.state().input.push(data);
        loop {
            let Talk { input, lines, .. } = c.state();
            let line = match input.next(lines) {
                Ok(Some(line)) => String::from_utf8_lossy(&line).into_owned(),
                Ok(None) => return Action::None,
                Err(_) => return Action::Close, // too long
            };
            let is_client = c.state().client.is_some();
            let action = if is_client { self.go_on(c, &line) } else { self.answer(c, &line) };
            if action != Action::None {
                return action;
            }
        }
    }

    fn upgraded(&mut self, c: &mut Conn<'_, Talk>) -> Action {
        let client = c.state().client.take();
        *c.state() = Talk::of(client);
        if c.state().client.is_some() {
            self.say(c, "EHLO client");
        }
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Talk>, closed: Closed<Talk>) -> Action {
        let Some(client) = closed.state.client else { return Action::None };
        self.tell(match closed.tls_error {
            Some(error) => format!("no mail: {error}"),
            None if client.step < SCRIPT.len() => format!("no mail: {}", closed.cause),
            None => "the mail is sent".to_owned(),
        });
        Action::Shutdown
    }
}

/// The certificate with its key, and a client that trusts it.
fn tls(files: Option<(String, String)>) -> Result<(Tls, TlsClient), Box<dyn Error + Send + Sync>> {
    let (certificate, key) = match files {
        Some((certificate, key)) => (Pem::file(certificate), Pem::file(key)),
        None => {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
            (Pem::bytes(made.cert.pem()), Pem::bytes(made.signing_key.serialize_pem()))
        }
    };
    let client = TlsClient::builder().roots(certificate.clone()).build()?;
    Ok((Tls::pem(certificate, key)?, client))
}

#[allow(dead_code)] // a test uses the handler
fn main() -> io::Result<()> {
    let usage = "starttls [--port N] [--loops N] [--cert FILE --key FILE] [--client]";
    let mut options = common::Options::new(usage);
    let files = options.take("--cert").zip(options.take("--key"));
    let has_client = options.flag("--client");
    let setup = common::Setup::new(options, 7025, 1);
    let (tls, client) = tls(files).map_err(io::Error::other)?;
    let to = client.to("localhost").map_err(io::Error::other)?;
    // The first loop that begins has the client.
    let to = Mutex::new(has_client.then_some(to));
    let server = Server::new(move |_loop| {
        let to = to.lock().unwrap_or_else(PoisonError::into_inner).take();
        Mail::new(tls.clone(), to)
    });
    setup.run(server.listen(&setup.address())?)
}
