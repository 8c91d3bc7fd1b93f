//! A client of HTTP that steps the simulation.

use std::cell::RefCell;
use std::fmt;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

#[cfg(feature = "tls")]
use windlass_serve::tls::TlsClient;

use super::error::ClientError;
use super::net::Net;
use super::receive::{receive, step};
use super::request::{TestRequest, Url, request};
use super::response::TestResponse;
use crate::words::status::Status;

/// How often [`Call::retry`] tries.
const ATTEMPTS: u32 = 50;

/// A client of HTTP/1.1 in a simulation. It keeps connections alive, and uses them again.
///
/// ```
/// use windlass_web::{App, test};
///
/// let sim = test::Simulation::new(7);
/// sim.serve("hello.test:80", || App::new().get("/", |_, _| "Hello, World!"));
/// let mut client = sim.client();
/// assert_eq!(client.get("http://hello.test/").send()?.text(), "Hello, World!");
/// # Ok::<(), test::ClientError>(())
/// ```
pub struct TestClient {
    net: Rc<RefCell<Net>>,
    kept: Vec<KeptConnection>,
    timeout: Duration,
    #[cfg(feature = "tls")]
    trust: Option<TlsClient>,
}

/// A connection without a request.
#[derive(Clone, Copy)]
struct KeptConnection {
    to: (Ipv4Addr, u16),
    is_tls: bool,
    at: usize,
}

/// A request that a client is about to send.
#[must_use = "`send` sends it"]
pub struct Call<'c> {
    client: &'c mut TestClient,
    request: TestRequest,
}

/// Methods with a verb of their own.
macro_rules! verbs {
    ($($name:ident $method:literal,)+) => {
        impl TestClient {
            $(
                #[doc = concat!("A `", $method, "`: see [`request`](TestClient::request).")]
                pub fn $name(&mut self, url: &str) -> Call<'_> {
                    self.request($method, url)
                }
            )+
        }
    };
}

verbs! {
    get "GET",
    head "HEAD",
    post "POST",
    put "PUT",
    delete "DELETE",
    patch "PATCH",
}

impl TestClient {
    pub(super) fn new(
        net: Rc<RefCell<Net>>,
        #[cfg(feature = "tls")] trust: Option<TlsClient>,
    ) -> TestClient {
        TestClient {
            net,
            kept: Vec::new(),
            timeout: Duration::from_secs(60),
            #[cfg(feature = "tls")]
            trust,
        }
    }

    /// A request with a method, for a URL of `http` or `https`.
    pub fn request(&mut self, method: &str, url: &str) -> Call<'_> {
        Call { request: request(method, url), client: self }
    }

    /// Sets how long it waits for the next bytes of a response, in virtual time. Default 60 s.
    pub fn timeout(&mut self, span: Duration) {
        self.timeout = span;
    }

    /// Closes the connections that it keeps.
    pub fn close(&mut self) {
        for KeptConnection { at, .. } in self.kept.drain(..) {
            self.net.borrow_mut().leave(at, false);
        }
    }

    pub(super) fn send(&mut self, request: &TestRequest) -> Result<TestResponse, ClientError> {
        let url = Url::parse(&request.url);
        let (bytes, asked) = request.encode(url.authority, url.target);
        let mut net = self.net.borrow_mut();
        let to = net.find(url.host, url.port);
        let found = self.kept.iter().position(|kept| (kept.to, kept.is_tls) == (to, url.is_tls));
        let old = found.map(|place| self.kept.remove(place).at);
        // A server may close a connection that has no request.
        let at = match old.filter(|at| !net.is_over(*at)) {
            Some(at) => at,
            None => {
                let at = net.connect(to, true);
                if url.is_tls {
                    #[cfg(feature = "tls")]
                    net.secure(at, self.trust.as_ref().expect("whom to trust"), url.host);
                    #[cfg(not(feature = "tls"))]
                    panic!("{} needs the feature `tls`", request.url);
                }
                at
            }
        };
        let end = net.sim.now() + self.timeout;
        while !net.is_connected(at) && !net.is_over(at) && net.sim.now() < end {
            step(&mut net, at, end);
        }
        let (method, target) = (&request.method, url.target);
        net.note(&format!("-> {method} {target} to {}, connection {at}", url.host));
        net.write(at, &bytes);
        let result = receive(&mut net, at, asked, self.timeout);
        let line = match &result {
            Ok(response) => format!("{}, {} bytes", response.status, response.body.len()),
            Err(error) => error.to_string(),
        };
        net.note(&format!("<- {line}, connection {at}"));
        match &result {
            Ok(response) if response.keeps_alive => {
                self.kept.push(KeptConnection { to, is_tls: url.is_tls, at });
            }
            _ => net.leave(at, false),
        }
        result
    }
}

impl Drop for TestClient {
    fn drop(&mut self) {
        let Ok(mut net) = self.net.try_borrow_mut() else { return };
        for KeptConnection { at, .. } in &self.kept {
            net.leave(*at, false);
        }
    }
}

impl Call<'_> {
    /// Adds a field.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// Sets the body: see [`TestRequest::body`].
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.request = self.request.body(body);
        self
    }

    /// Sets the body, in chunks: see [`TestRequest::chunks`].
    pub fn chunks<T: Into<Vec<u8>>>(mut self, parts: impl IntoIterator<Item = T>) -> Self {
        self.request = self.request.chunks(parts);
        self
    }

    /// Sets the body to a value as JSON: see [`TestRequest::json`].
    ///
    /// # Panics
    ///
    /// If it cannot be serialized.
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize + ?Sized>(mut self, value: &T) -> Self {
        self.request = self.request.json(value);
        self
    }

    /// Asks the server to close the connection behind the response.
    pub fn close(mut self) -> Self {
        self.request = self.request.close();
        self
    }

    /// Sends it once, and steps the simulation until its response has come.
    ///
    /// # Errors
    ///
    /// There is no response. [`ClientError::Connect`] says that the server has not seen the
    /// request. Behind the others it may have.
    ///
    /// # Panics
    ///
    /// If the URL is none, if no server has its host, or if the request has a field that no client
    /// may send.
    pub fn send(self) -> Result<TestResponse, ClientError> {
        self.client.send(&self.request)
    }

    /// Sends it, and again while that is safe: up to 50 times, with pauses of 10 ms to 1 s of
    /// virtual time.
    ///
    /// A request that the server has not seen, or has answered with a 503, is repeated; after other
    /// failures only one with a method that is idempotent (RFC 9110, 9.2.2): no `POST` and `PATCH`.
    ///
    /// # Errors
    ///
    /// That of the last attempt.
    ///
    /// # Panics
    ///
    /// As [`send`](Call::send).
    pub fn retry(self) -> Result<TestResponse, ClientError> {
        let Call { client, request } = self;
        let mut pause = Duration::from_millis(10);
        let mut result = client.send(&request);
        for _ in 1..ATTEMPTS {
            let is_safe = match &result {
                Ok(response) => response.status == Status::SERVICE_UNAVAILABLE,
                Err(ClientError::Connect(_)) => true,
                Err(ClientError::Malformed(_)) => false,
                Err(_) => request.is_idempotent(),
            };
            if !is_safe {
                break;
            }
            client.net.borrow_mut().sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(1));
            result = client.send(&request);
        }
        result
    }
}

impl fmt::Debug for TestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClient").field("connections", &self.kept.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("request", &self.request).finish_non_exhaustive()
    }
}
