//! Applications on every driver and in the simulation, with clients that speak bytes.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

pub mod real;
pub mod simulated;

use std::time::Duration;

use windlass_web::App;

/// The longest that a test waits for one thing.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How a client's connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server has shut down its output behind all that it has written.
    Eof,
    Reset,
}

/// A server with clients: through sockets of the system, or in a simulation.
pub trait Net: Sized {
    /// Whether time is virtual, and waiting for a limit costs nothing.
    const VIRTUAL: bool;

    /// Serves an application at one address.
    fn start<S: 'static>(app: App<S>) -> Self;
    /// A client that connects; its place.
    fn connect(&mut self) -> usize;
    /// A client says something. The server need not have read it.
    fn say(&mut self, client: usize, bytes: &[u8]);
    /// A client shuts down its output.
    fn finish(&mut self, client: usize);
    /// A client resets its connection.
    fn reset(&mut self, client: usize);
    /// Reads until the bytes that a client has heard are `enough`.
    fn hear(&mut self, client: usize, what: &str, enough: impl FnMut(&[u8]) -> bool);
    /// Reads until the connection of a client has ended.
    fn end(&mut self, client: usize) -> End;
    /// All that a client has heard.
    fn heard(&self, client: usize) -> &[u8];

    /// A client says something, ends its side, and hears all of the answer.
    fn ask(&mut self, bytes: &[u8]) -> (String, End) {
        let client = self.connect();
        self.say(client, bytes);
        self.finish(client);
        let end = self.end(client);
        (text(self.heard(client)), end)
    }

    /// A client says something, leaves its side open, and hears the server's end.
    fn provoke(&mut self, bytes: &[u8]) -> (String, End) {
        let client = self.connect();
        self.say(client, bytes);
        let end = self.end(client);
        (text(self.heard(client)), end)
    }
}

/// Bytes as text, one character each, without the field `Date`.
pub fn text(bytes: &[u8]) -> String {
    let mut all: String = bytes.iter().map(|byte| *byte as char).collect();
    const DATE: &str = "Date: ";
    while let Some(at) = all.find(DATE) {
        let len = all[at..].find("\r\n").expect("a whole field") + 2;
        assert_eq!(len, "Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n".len(), "{all:?}");
        all.replace_range(at..at + len, "");
    }
    all
}

/// The status lines of a text.
pub fn statuses(text: &str) -> Vec<u16> {
    text.match_indices("HTTP/1.1 ")
        .map(|(at, line)| text[at + line.len()..][..3].parse().expect("a status"))
        .collect()
}

/// How many responses have come, by their status lines.
pub fn count(bytes: &[u8]) -> usize {
    const LINE: &[u8] = b"HTTP/1.1 ";
    bytes.windows(LINE.len()).filter(|window| *window == LINE).count()
}

/// The head of a response and its body.
pub fn halves(response: &str) -> (&str, &str) {
    response.split_once("\r\n\r\n").expect("a whole head")
}

/// Stamps tests for every driver of the system, and for the simulation.
#[macro_export]
macro_rules! every_driver {
    ($($body:ident)*) => {
        $crate::systems_drivers! { $($body)* }
        $crate::stamp! { #[cfg(all())] sim simulated::Simulated: $($body)* }
        $crate::stamp! { #[cfg(all())] faults simulated::Faulty: $($body)* }
        $crate::stamp! { #[cfg(all())] completes simulated::Completing: $($body)* }
    };
}

/// Stamps tests for every driver of the system, and for a thread for each connection.
#[macro_export]
macro_rules! systems_drivers {
    ($($body:ident)*) => {
        $crate::stamp! { #[cfg(target_os = "linux")] epoll real::Epoll: $($body)* }
        $crate::stamp! { #[cfg(target_os = "linux")] uring real::Uring: $($body)* }
        $crate::stamp! { #[cfg(windlass_kqueue)] kqueue real::Kqueue: $($body)* }
        $crate::stamp! { #[cfg(unix)] poll real::Poll: $($body)* }
        $crate::stamp! { #[cfg(unix)] threads real::Threads: $($body)* }
        $crate::stamp! { #[cfg(unix)] mixed real::Mixed: $($body)* }
    };
}

/// Stamps tests for one driver.
#[macro_export]
macro_rules! stamp {
    (#[$cfg:meta] $driver:ident $module:ident::$net:ident: $($body:ident)*) => {
        #[$cfg]
        mod $driver {
            $(#[test]
            fn $body() {
                super::$body::<$crate::common::$module::$net>();
            })*
        }
    };
}
