//! A connection whose bytes a test writes and reads.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use windlass_http1::{Asked, Method, Version};

use super::error::ClientError;
use super::net::Net;
use super::receive::{receive, step};
use super::response::TestResponse;

/// A connection of a simulation whose bytes the test writes and reads, at its own pace: for clients
/// that are slow, that send what no client should, or that leave at any byte.
///
/// It reads only when the test asks it to, so that the server meets a client that does not read.
///
/// ```
/// use windlass_web::{App, Status, test};
/// use std::time::Duration;
///
/// let sim = test::Simulation::new(7);
/// sim.serve("hello.test:80", || App::new().get("/", |_, _| "Hello, World!"));
/// let mut slow = sim.connect("hello.test:80");
/// slow.set_reading(true);
/// for byte in b"GET / HTTP/1.1\r\nHost: hello.test\r\n" {
///     slow.write(&[*byte]);
///     sim.sleep(Duration::from_secs(1));
/// }
/// // A head may take 10 s.
/// assert_eq!(slow.response("GET")?.status(), Status::REQUEST_TIMEOUT);
/// assert_eq!(slow.read()?, b"");
/// # Ok::<(), test::ClientError>(())
/// ```
pub struct Connection {
    net: Rc<RefCell<Net>>,
    at: usize,
    timeout: Duration,
}

impl Connection {
    pub(super) fn new(net: Rc<RefCell<Net>>, host: &str, port: u16) -> Connection {
        let to = net.borrow().find(host, port);
        let at = net.borrow_mut().connect(to, false);
        Connection { net, at, timeout: Duration::from_secs(60) }
    }

    #[cfg(feature = "tls")]
    pub(super) fn secure(&self, trust: &windlass_serve::tls::TlsClient, host: &str) {
        self.net.borrow_mut().secure(self.at, trust, host);
    }

    /// Sets how long it waits for the next bytes, in virtual time. Default 60 s.
    pub fn timeout(&mut self, span: Duration) {
        self.timeout = span;
    }

    /// Sends bytes. They leave while the simulation goes on. Returns false if the connection has
    /// failed.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        self.net.borrow_mut().write(self.at, bytes)
    }

    /// How many bytes the network has not taken, because the server does not read.
    pub fn unsent(&self) -> usize {
        self.net.borrow().unsent(self.at)
    }

    /// Waits for the next bytes. They are empty at the end of the server's side.
    ///
    /// # Errors
    ///
    /// The connection has failed, or nothing comes in time.
    pub fn read(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut net = self.net.borrow_mut();
        let end = net.sim.now() + self.timeout;
        while net.heard(self.at).is_empty() {
            if net.is_over(self.at) {
                return net.take_error(self.at).map_or(Ok(Vec::new()), Err);
            }
            if net.sim.now() >= end {
                return Err(ClientError::Timeout);
            }
            step(&mut net, self.at, end);
        }
        Ok(std::mem::take(net.heard(self.at)))
    }

    /// Waits for the end of the server's side, and returns all bytes before it.
    ///
    /// # Errors
    ///
    /// As [`read`](Connection::read).
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut all = Vec::new();
        loop {
            let bytes = self.read()?;
            if bytes.is_empty() {
                return Ok(all);
            }
            all.extend_from_slice(&bytes);
        }
    }

    /// Waits for the response to a request with this method. Bytes behind it stay.
    ///
    /// # Errors
    ///
    /// As [`Call::send`](super::Call::send).
    pub fn response(&mut self, method: &str) -> Result<TestResponse, ClientError> {
        let asked = Asked::new(Method::of(method.as_bytes()), Version::Http11);
        let mut net = self.net.borrow_mut();
        let result = receive(&mut net, self.at, asked, self.timeout);
        let line = match &result {
            Ok(response) => response.status.to_string(),
            Err(error) => error.to_string(),
        };
        net.note(&format!("<- {line}, connection {}", self.at));
        result
    }

    /// Sets whether it reads whatever comes, while the simulation goes on. At first it does not.
    pub fn set_reading(&mut self, on: bool) {
        self.net.borrow_mut().set_reads(self.at, on);
    }

    /// The bytes that have come, without a wait.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.net.borrow_mut().heard(self.at))
    }

    /// Whether nothing more comes: it has read the end of the server's side, or has failed.
    pub fn is_over(&self) -> bool {
        self.net.borrow().is_over(self.at)
    }

    /// Ends the client's side, behind what it has sent.
    pub fn shutdown(&mut self) {
        self.net.borrow_mut().shut_down(self.at);
    }

    /// Breaks the connection: the server gets a reset.
    pub fn abort(&mut self) {
        self.net.borrow_mut().leave(self.at, true);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Ok(mut net) = self.net.try_borrow_mut() {
            net.leave(self.at, false);
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("at", &self.at).finish_non_exhaustive()
    }
}
