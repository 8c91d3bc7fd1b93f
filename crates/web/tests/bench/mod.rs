//! An application and its clients, in one thread on one watcher of every driver.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

use std::net::TcpListener;
use std::time::Duration;

use windlass::driver::Driver;
use windlass::net::ConnectOptions;
use windlass::{Address, Buf, Completions, Op, Refusal, Source, Watcher};
use windlass_web::{App, ServerLoop};

#[cfg(feature = "ring")]
use crate::common::secure::{self, Secured};
use crate::common::{Client, Clients, Harness, PATIENCE};

/// The token of what clients do.
const CLIENT: u64 = 1;

#[cfg(feature = "ring")]
thread_local! {
    static OVER_TLS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs a test whose servers, and their clients, speak TLS.
#[cfg(feature = "ring")]
pub fn over_tls(test: impl FnOnce()) {
    OVER_TLS.set(true);
    test(); // a panic ends the thread of the test
    OVER_TLS.set(false);
}

/// An application that serves, and its clients.
pub struct Web<D: Driver, S: 'static = ()> {
    pub watcher: Watcher<D>,
    pub server: ServerLoop<S>,
    pub clients: Clients,
    pub address: Address,
    /// The sessions of clients that speak TLS.
    #[cfg(feature = "ring")]
    secured: Option<Secured>,
}

/// Serves an application on a watcher of the harness.
pub fn serve<T: Harness, S: 'static>(app: App<S>) -> Web<T::Driver, S> {
    let mut watcher = T::watcher(Watcher::builder());
    #[cfg(feature = "ring")]
    let tls = OVER_TLS.get().then(secure::settings);
    let (app, address) = if T::VIRTUAL {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 8080));
        #[cfg(feature = "ring")]
        let app = match &tls {
            Some((tls, _)) => app.listen((address.to_string(), tls.clone())),
            None => app.listen(address.to_string()),
        };
        #[cfg(not(feature = "ring"))]
        let app = app.listen(address.to_string());
        (app.expect("an address"), address)
    } else {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        bound_buffers(&listener);
        let address = listener.local_addr().expect("its address");
        #[cfg(feature = "ring")]
        let app = match &tls {
            Some((tls, _)) => app.listen((listener, tls.clone())),
            None => app.listen(listener),
        };
        #[cfg(not(feature = "ring"))]
        let app = app.listen(listener);
        (app.expect("a listener"), address)
    };
    let server = app.start_on(&mut watcher).expect("the server starts");
    let web = Web::new(watcher, server, address.into());
    #[cfg(feature = "ring")]
    let web = Web { secured: tls.map(|(_, client)| Secured::new(client)), ..web };
    web
}

/// What the system holds for a connection is bounded, so that tests of what waits do not depend on
/// its settings.
#[cfg(unix)]
fn bound_buffers(listener: &TcpListener) {
    let socket = socket2::SockRef::from(listener);
    socket.set_recv_buffer_size(64 << 10).expect("a size");
    socket.set_send_buffer_size(64 << 10).expect("a size");
}

#[cfg(not(unix))]
fn bound_buffers(_: &TcpListener) {}

impl<D: Driver, S: 'static> Web<D, S> {
    /// A server on a watcher, without clients yet.
    pub fn new(watcher: Watcher<D>, server: ServerLoop<S>, address: Address) -> Web<D, S> {
        Web {
            watcher,
            server,
            clients: Clients::default(),
            address,
            #[cfg(feature = "ring")]
            secured: None,
        }
    }

    /// A client that connects.
    pub fn connect(&mut self) -> Source {
        let options = ConnectOptions::default().token(CLIENT);
        let (source, _) = self.watcher.connect([self.address.clone()], options).expect("a source");
        self.clients.all.insert(source, Client { stays: true, ..Client::default() });
        #[cfg(feature = "ring")]
        if let Some(secured) = &mut self.secured {
            secured.begin(source);
        }
        source
    }

    /// A client that connects, and never reads.
    pub fn connect_deaf(&mut self) -> Source {
        let client = self.connect();
        self.clients.all.get_mut(&client).expect("right from above").is_deaf = true;
        client
    }

    /// A client that connects and asks.
    pub fn ask(&mut self, what: impl Into<Buf>) -> Source {
        let client = self.connect();
        self.say(client, what);
        client
    }

    /// A client says something.
    pub fn say(&mut self, client: Source, what: impl Into<Buf>) {
        #[cfg(feature = "ring")]
        if let Some(secured) = &mut self.secured {
            return secured.say(&mut self.watcher, client, what.into());
        }
        self.submit(Op::write(client, what));
    }

    /// A client ends its side, and still reads.
    pub fn finish(&mut self, client: Source) {
        #[cfg(feature = "ring")]
        if let Some(secured) = &mut self.secured {
            return secured.finish(&mut self.watcher, client);
        }
        self.submit(Op::shutdown(client));
    }

    /// A client closes.
    pub fn close(&mut self, client: Source) {
        self.watcher.abort(client);
    }

    /// A client that did not read begins to read.
    pub fn hear(&mut self, client: Source) {
        self.clients.all.get_mut(&client).expect("a client").is_deaf = false;
        self.submit(Op::read(client).multishot());
    }

    /// Submits an operation of a client; refused only if it has closed.
    fn submit(&mut self, op: Op) {
        if let Err(refused) = self.watcher.submit(op.token(CLIENT)) {
            assert!(matches!(refused.reason, Refusal::Os(_) | Refusal::Stale), "{refused}");
        }
    }

    pub fn client(&self, client: Source) -> &Client {
        &self.clients.all[&client]
    }

    /// What a client has heard.
    pub fn heard(&self, client: Source) -> String {
        String::from_utf8_lossy(&self.client(client).heard).into_owned()
    }

    /// Whether a client has heard this.
    pub fn has_heard(&self, client: Source, what: &str) -> bool {
        let heard = &self.client(client).heard;
        heard.windows(what.len()).any(|window| window == what.as_bytes())
    }

    /// Waits until a client has heard this.
    #[track_caller]
    pub fn until_heard(&mut self, client: Source, what: &str) {
        self.until(what, |web| web.has_heard(client, what));
    }

    /// Waits until the server has ended the connection of a client. Returns what it has heard.
    #[track_caller]
    pub fn until_over(&mut self, client: Source) -> String {
        self.until("the end", |web| web.client(client).is_over());
        self.heard(client)
    }

    /// Runs until `ready`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.watcher.update_now();
        while !ready(self) {
            assert!(self.watcher.now() - start < 50 * PATIENCE, "still waits until {what}");
            assert!(self.turn(50 * PATIENCE) > 0, "waited in vain until {what}");
        }
    }

    /// Runs one turn, and waits for it for at most `span`; how many completions there were.
    pub fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for completion in done.drain(..) {
            if let Some(own) = self.server.complete(&mut self.watcher, completion) {
                #[cfg(feature = "ring")]
                let own = match (&mut self.secured, self.clients.all.get_mut(&own.source)) {
                    (Some(secured), Some(client)) => secured.take(&mut self.watcher, client, own),
                    _ => Some(own),
                };
                #[cfg(feature = "ring")]
                let Some(own) = own else { continue };
                self.clients.take(&mut self.watcher, own);
            }
        }
        self.server.turn(&mut self.watcher);
        count
    }

    /// Runs for a time.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.watcher.update_now() + span;
        while let Some(left) = end.checked_duration_since(self.watcher.update_now())
            && !left.is_zero()
        {
            self.turn(left);
        }
    }

    /// The time of the watcher.
    pub fn now(&mut self) -> std::time::Instant {
        self.watcher.update_now()
    }
}

/// The body of the only response that a client has heard, which has a length.
pub fn body(heard: &str) -> &str {
    heard.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}
