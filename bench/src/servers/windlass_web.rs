//! The server of windlass-web, with its default limits but for the time and the number of requests:
//! connections are kept for as long as a measurement takes.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use windlass::{DriverKind, Watcher};
use windlass_web::files::FilesOptions;
use windlass_web::proxy::Upstream;
use windlass_web::upload::{Save, file_name};
use windlass_web::websocket::{Message, Peer, Socket, WebSocketSettings};
use windlass_web::{App, Error, Limits, Status};

/// Serves until it is killed.
pub fn serve(port: u16, driver: DriverKind) -> io::Result<()> {
    windlass::fd::raise_max_open_files()?;
    App::new()
        .get("/", |_, _| "Hello, World!")
        .get("/plaintext", |_, _| "Hello, World!")
        .limits(limits())
        .watcher(Watcher::builder().driver(driver))
        .listen(format!("127.0.0.1:{port}"))?
        .run()
        .map(drop)
}

/// Sends each message of a WebSocket back. Silent connections get no pings while a measurement
/// runs: no peer sends any. A read takes up to 256 KiB, as the guide says for messages of 64 KiB;
/// uWebSockets takes up to 512.
pub fn websocket(port: u16, driver: DriverKind, settings: WebSocketSettings) -> io::Result<()> {
    windlass::fd::raise_max_open_files()?;
    let settings = settings.ping_every(Duration::from_secs(3600));
    App::new()
        .websocket_with(settings, "/ws", |_, _| Ok::<_, Status>(Echo))
        .watcher(Watcher::builder().driver(driver).buffer_size(256 << 10))
        .listen(format!("127.0.0.1:{port}"))?
        .run()
        .map(drop)
}

struct Echo;

impl Peer<()> for Echo {
    fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
        c.send(message);
    }
}

/// Serves the files below a directory.
pub fn files(port: u16, root: PathBuf, driver: DriverKind) -> io::Result<()> {
    windlass::fd::raise_max_open_files()?;
    App::new()
        .files("/", root, FilesOptions::new())
        .limits(limits())
        .watcher(Watcher::builder().driver(driver))
        .listen(format!("127.0.0.1:{port}"))?
        .run()
        .map(drop)
}

/// Saves the bodies of requests to files in a directory.
pub fn upload(port: u16, directory: PathBuf, driver: DriverKind) -> io::Result<()> {
    App::new()
        .put("/{name}", move |_, q| {
            let path = directory.join(file_name(q.param("name"))?);
            let save = Save::new().limit(1 << 40).sync(true);
            Ok::<_, Error>(q.save(path, save, |_, saved| Ok::<_, Error>(saved?.bytes.to_string())))
        })
        .at_head()
        .watcher(Watcher::builder().driver(driver))
        .listen(format!("127.0.0.1:{port}"))?
        .run()
        .map(drop)
}

/// Forwards all requests to the server on another port of this host.
pub fn forward(port: u16, to: u16, driver: DriverKind) -> io::Result<()> {
    windlass::fd::raise_max_open_files()?;
    let upstream = format!("http://127.0.0.1:{to}");
    Upstream::new(&upstream).map_err(io::Error::other)?;
    App::with(move |_| Upstream::new(&upstream).expect("it has been tried"))
        .any("/{*rest}", |upstream, q| q.forward(upstream))
        .limits(limits())
        .watcher(Watcher::builder().driver(driver))
        .listen(format!("127.0.0.1:{port}"))?
        .run()
        .map(drop)
}

fn limits() -> Limits {
    Limits::new().keep_alive(Duration::from_secs(3600)).requests(u16::MAX)
}
