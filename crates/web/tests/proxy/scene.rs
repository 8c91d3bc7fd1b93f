//! A proxy between clients and a server that say what a test wants, all on one watcher.
#![allow(dead_code, unreachable_pub)] // it is a module of a test binary

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use windlass::net::{ConnectOptions, ListenOptions, SocketOption};
use windlass::{Buf, Completions, Source, Watcher};
use windlass_serve::{Cause, Config, Engine, Event, Id, Limits as ServeLimits};
use windlass_web::proxy::Upstream;
use windlass_web::{App, ServerLoop};

use crate::net::Harness;

/// The longest that a test waits for one thing.
const PATIENCE: Duration = Duration::from_secs(1000);

/// What is written at a time as long as there is room.
const PIECE: usize = 1 << 16;

/// What is behind the first head; `None` if that is not whole.
pub fn body(heard: &[u8]) -> Option<&[u8]> {
    let at = heard.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(&heard[at + 4..])
}

/// The bytes of the whole chunks of a body without trailers, and whether the last chunk is there.
pub fn chunks(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        let Some(chunk) = bytes[end + 2..].get(..size + 2) else { break };
        assert!(chunk.ends_with(b"\r\n"), "a chunk of {size} bytes is longer");
        if size == 0 {
            return (all, true);
        }
        all.extend_from_slice(&chunk[..size]);
        bytes = &bytes[end + 4 + size..];
    }
    (all, false)
}

/// An end of a connection that a test holds.
#[derive(Debug, Default)]
pub struct End {
    pub heard: Vec<u8>,
    pub eof: bool,
    pub closed: Option<Cause>,
    /// Whether a test writes as long as there is room.
    endless: bool,
    /// How many bytes it has written so.
    said: usize,
}

/// A proxy, its clients, and the server behind it.
pub struct Scene {
    pub watcher: Watcher,
    pub proxy: ServerLoop<Upstream>,
    /// The clients, and the connections of the server.
    pub engine: Engine<()>,
    pub ends: HashMap<Id, End>,
    /// The connections of the server, in their order.
    pub inner: Vec<Id>,
    pub at: SocketAddr,
    pub inner_at: SocketAddr,
    is_virtual: bool,
}

impl Scene {
    /// A proxy that passes all requests on as they come.
    pub fn new<T: Harness>() -> Scene {
        Scene::with::<T>(|up| up, |app| app)
    }

    /// The same, with settings.
    pub fn with<T: Harness>(
        set: impl Fn(Upstream) -> Upstream + Send + Sync + 'static,
        change: impl FnOnce(App<Upstream>) -> App<Upstream>,
    ) -> Scene {
        Scene::of::<T>(move |url| {
            change(
                App::with(move |_| set(Upstream::new(&url).expect("a URL")))
                    .any("/whole", |up, q| q.forward(up))
                    .fallback(|up, q| q.forward(up))
                    .at_head(),
            )
        })
    }

    /// A proxy of any kind, which gets the URL of the server.
    pub fn of<T: Harness>(app: impl FnOnce(String) -> App<Upstream>) -> Scene {
        let mut watcher = T::watcher();
        let limits = ServeLimits::new().idle(None).write_stall(None);
        let mut engine = Engine::new(Config::new().close_on_eof(false).limits(limits));
        let port = if T::VIRTUAL { 9000 } else { 0 };
        let local = SocketAddr::from(([127, 0, 0, 1], port));
        engine.listen(&mut watcher, local, ListenOptions::default()).expect("a listener");
        let address = watcher.local_address(engine.listeners()[0]).expect("its address");
        let inner_at = address.ip().expect("an address");
        let app = app(format!("http://{inner_at}"));
        let (app, at) = if T::VIRTUAL {
            (app.listen("127.0.0.1:8080").expect("an address"), ([127, 0, 0, 1], 8080).into())
        } else {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
            let at = listener.local_addr().expect("its address");
            (app.listen(listener).expect("a listener"), at)
        };
        let proxy = app.start_on(&mut watcher).expect("it starts");
        let (ends, inner, is_virtual) = (HashMap::new(), Vec::new(), T::VIRTUAL);
        Scene { watcher, proxy, engine, ends, inner, at, inner_at, is_virtual }
    }

    /// A client that connects.
    pub fn client(&mut self) -> Id {
        let options = ConnectOptions::default();
        let id = self.engine.connect([self.at], options, ()).expect("few connections");
        self.ends.insert(id, End::default());
        id
    }

    /// A client of the server itself.
    pub fn direct(&mut self) -> Id {
        let options = ConnectOptions::default();
        let id = self.engine.connect([self.inner_at], options, ()).expect("few connections");
        self.ends.insert(id, End::default());
        id
    }

    /// Ends the connections that the proxy keeps.
    pub fn forget(&mut self) {
        for id in self.engine.ids().collect::<Vec<Id>>() {
            self.engine.close(id);
        }
        self.until("all have ended", |scene| scene.engine.is_empty());
    }

    /// A client that asks.
    pub fn ask(&mut self, what: impl Into<Buf>) -> Id {
        let client = self.client();
        self.say(client, what);
        client
    }

    pub fn say(&mut self, end: Id, what: impl Into<Buf>) {
        let _ = self.engine.write(end, what); // refused if the other side has ended it
    }

    /// Says something that the other side has to take before more is said.
    pub fn say_without_end(&mut self, end: Id) {
        self.ends.get_mut(&end).expect("an end").endless = true;
        self.events();
    }

    /// Says no more than what waits.
    pub fn say_to_the_end(&mut self, end: Id) {
        self.ends.get_mut(&end).expect("an end").endless = false;
    }

    /// How many of these bytes the other side, or what lies between, has taken.
    pub fn taken(&mut self, end: Id) -> usize {
        // What waits can have begun in front of them.
        self.ends[&end].said.saturating_sub(self.engine.waiting(end))
    }

    pub fn finish(&mut self, end: Id) {
        self.engine.shutdown(end);
    }

    pub fn reset(&mut self, end: Id) {
        self.engine.set_option(end, SocketOption::Linger(Some(Duration::ZERO)));
        self.engine.abort(end);
    }

    pub fn text(&self, end: Id) -> String {
        self.ends[&end].heard.iter().map(|byte| *byte as char).collect()
    }

    /// What an end has heard, which is forgotten.
    pub fn take(&mut self, end: Id) -> String {
        let text = self.text(end);
        self.ends.get_mut(&end).expect("an end").heard.clear();
        text
    }

    /// The connection of the server with this number, which has heard this.
    #[track_caller]
    pub fn inner_hears(&mut self, number: usize, what: &str) -> Id {
        self.until(what, |scene| {
            let inner = scene.inner.get(number);
            inner.is_some_and(|inner| scene.text(*inner).contains(what))
        });
        self.inner[number]
    }

    #[track_caller]
    pub fn hears(&mut self, end: Id, what: &str) {
        self.until(what, |scene| {
            let is_there = scene.text(end).contains(what);
            let is_over = scene.ends[&end].closed.is_some();
            assert!(is_there || !is_over, "it has ended behind {:?}", scene.text(end));
            is_there
        });
    }

    /// Waits for a whole response that has a `Content-Length`, and takes what the end has heard.
    #[track_caller]
    pub fn answer(&mut self, end: Id) -> String {
        self.until("the response is whole", |scene| {
            let heard = scene.text(end);
            heard.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                let field = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                let len = field.expect("a Content-Length").parse::<usize>().expect("a length");
                body.len() >= len
            })
        });
        self.take(end)
    }

    /// Waits until an end has heard these bytes in chunks, however they are cut, and with the last
    /// chunk behind them if they are `whole`.
    #[track_caller]
    pub fn hears_chunks(&mut self, end: Id, bytes: &[u8], whole: bool) {
        self.until("the chunks", |scene| {
            let heard = &scene.ends[&end].heard;
            let is_there = body(heard).is_some_and(|body| chunks(body) == (bytes.to_vec(), whole));
            let is_over = scene.ends[&end].closed.is_some();
            assert!(is_there || !is_over, "it has ended behind {:?}", scene.text(end));
            is_there
        });
    }

    /// Waits until nothing more comes. True: by an end of file. False: by a reset.
    #[track_caller]
    pub fn ends_whole(&mut self, end: Id) -> bool {
        self.until("it ends", |scene| {
            let end = &scene.ends[&end];
            end.eof || end.closed.is_some()
        });
        self.ends[&end].eof
    }

    fn events(&mut self) {
        while let Some(event) = self.engine.next_event(&mut self.watcher) {
            let all = &mut self.ends;
            match event {
                Event::Opened { id, origin } => {
                    all.entry(id).or_default();
                    if origin.listener.is_some() {
                        self.inner.push(id);
                    }
                }
                Event::Data { id, data } => {
                    all.entry(id).or_default().heard.extend_from_slice(&data)
                }
                Event::Eof { id } => all.entry(id).or_default().eof = true,
                Event::Closed { id, cause, .. } => {
                    let end = all.entry(id).or_default();
                    end.closed = Some(cause);
                    end.eof |= cause == Cause::Eof;
                }
                _ => {}
            }
        }
        for (id, end) in &mut self.ends {
            while end.endless && !self.engine.is_full(*id) {
                if self.engine.write(*id, vec![b'.'; PIECE]).is_err() {
                    break;
                }
                end.said += PIECE;
            }
        }
    }

    /// Runs one turn, which waits for at most `span`; how many completions it had.
    pub fn turn(&mut self, span: Duration) -> usize {
        self.engine.flush(&mut self.watcher);
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for c in done.drain(..) {
            if let Some(c) = self.proxy.complete(&mut self.watcher, c) {
                let rest = self.engine.complete(&mut self.watcher, c);
                assert!(rest.is_none(), "whose is it?");
            }
        }
        self.proxy.turn(&mut self.watcher);
        self.events();
        self.engine.flush(&mut self.watcher);
        count
    }

    /// Runs until `ready`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.watcher.update_now();
        while !ready(self) {
            let waited = self.watcher.update_now() - start;
            assert!(waited < PATIENCE, "still waits until {what}: {:?}", self.ends);
            self.turn(PATIENCE - waited);
        }
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

    /// Runs turns until nothing more happens.
    pub fn settle(&mut self) {
        if self.is_virtual {
            // A network with faults holds up what it carries, again and again.
            return self.run_for(Duration::from_millis(200));
        }
        while self.turn(Duration::from_millis(30)) > 0 {}
    }

    /// The listener of the server.
    pub fn listener(&self) -> Source {
        self.engine.listeners()[0]
    }
}
