//! A store of keys and values in memory that speaks the protocol of Redis.
//!
//! ```text
//! cargo run --release -p windlass-serve --example serve_redis -- [--port N] [--loops N] \
//!     [--appendonly yes|no] [--appendfilename FILE] [--max-bulk BYTES]
//! redis-cli -p 6380 set key value
//! redis-benchmark -p 6380 -P 128 -t ping,set,get -q
//! ```
//!
//! Commands: GET, SET, DEL, ECHO, PING, WAKE (wakes the connection from outside of its turn), QUIT
//! and SHUTDOWN, as arrays or inline. The replies to all commands that arrive together leave as one
//! write. All loops share one store.
//!
//! With `--appendonly yes` the server logs every write, and reads the log when it starts. It cuts
//! off an incomplete command at the end, which a crash may have left. A thread of its own writes
//! and syncs the log. All writes that arrive during a sync form the next group. A reply that
//! depends on a write leaves when this write is on the disk. So no client reads a value that a
//! crash takes back. If the log cannot be written, the server ends. A client that waits for the log
//! when the server ends gets no reply: its write may be in the log, as after a crash.
//!
//! # Limits
//!
//! | of | |
//! |---|---|
//! | a string | `--max-bulk` bytes: 512 MiB by default, as in Redis; at most 1023 MiB |
//! | a command | one longest string and 1 MiB, and 65,536 strings |
//! | an inline command | 64 KiB |
//! | replies that wait for a client | 256 KiB and one string: its next commands wait meanwhile |
//! | replies in all | 256 MiB and two longest strings |
//! | keys and values | the memory of the machine |
//!
//! A command that is too long is refused by its announced length, before its bytes come. The bytes
//! of a command that has not come as a whole are held for each connection.
//!
//! | file | |
//! |---|---|
//! | `resp.rs` | the protocol, as a decoder of [`windlass_serve::framing`] |
//! | `store.rs` | the keys, the commands, the groups of writes |
//! | `log.rs` | the log: replay, and the thread that writes it |
//! | `client.rs` | the state of a connection |
//! | `redis.rs` | the callbacks |

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use windlass_serve::Server;

use log::Shared;
use redis::Redis;
use store::Store;

mod client;
#[path = "../common/mod.rs"]
mod common;
mod log;
mod redis;
mod resp;
mod store;

fn main() -> io::Result<()> {
    let mut options = common::Options::new(
        "serve_redis [--port N] [--loops N] [--appendonly yes|no] [--appendfilename FILE] \
         [--max-bulk BYTES]",
    );
    let appends = options.take("--appendonly").unwrap_or(Switch(false));
    let path = options.take("--appendfilename").unwrap_or(PathBuf::from("appendonly.aof"));
    let MaxBulk(most_bulk) = options.take("--max-bulk").unwrap_or(MaxBulk(resp::USUAL_BULK));
    let setup = common::Setup::new(options, 6380, 1)?;
    let (store, file) = if appends.0 {
        let about = |error| io::Error::other(format!("{}: {error}", path.display()));
        let (file, store, cut) = log::open(&path).map_err(about)?;
        if cut > 0 {
            let path = path.display();
            println!("{path}: cut off {cut} bytes of an incomplete command at the end");
        }
        (store, Some(file))
    } else {
        (Store::default(), None)
    };
    let shared = Arc::new(Shared::new(store));
    let log = file.map(|file| {
        let (shared, started) = (Arc::clone(&shared), Arc::clone(&setup.started));
        thread::spawn(move || {
            let server = || started.get().expect("commands come when the server has started");
            let ended = shared.commit(file, |id| {
                server().wake(id);
            });
            // After an error, no write is acknowledged any more.
            ended.inspect_err(|_| server().shutdown())
        })
    });
    let new = |_loop| Redis::new(Arc::clone(&shared), Arc::clone(&setup.started), most_bulk);
    setup.run(Server::new(new).config(redis::config(most_bulk)))?;
    shared.end();
    if let Some(log) = log {
        log.join().expect("no panic")?;
    }
    Ok(())
}

/// The longest string of a command, in bytes.
struct MaxBulk(usize);

impl FromStr for MaxBulk {
    type Err = ();

    fn from_str(text: &str) -> Result<MaxBulk, ()> {
        let bytes = text.parse().ok().filter(|bytes| (1..=resp::MOST_BULK).contains(bytes));
        bytes.map(MaxBulk).ok_or(())
    }
}

/// `yes` or `no`.
struct Switch(bool);

impl FromStr for Switch {
    type Err = ();

    fn from_str(text: &str) -> Result<Switch, ()> {
        match text {
            "yes" => Ok(Switch(true)),
            "no" => Ok(Switch(false)),
            _ => Err(()),
        }
    }
}
