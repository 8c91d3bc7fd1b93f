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
//! and SHUTDOWN, as arrays or inline. (For redis-cli and redis-benchmark there are answers to
//! CONFIG and COMMAND, too.) The replies to all commands that arrive together leave as one write.
//! All loops share one store.
//!
//! # The log
//!
//! With `--appendonly yes` the server logs every write, and reads the log when it starts. A loop of
//! its own writes and syncs the log. All writes that arrive during a sync form the next group. A
//! reply that depends on a write leaves when this write is on the disk. So no client reads a value
//! that a crash takes back.
//!
//! **It only grows.** Nothing rewrites the log: a key that was written a million times is there a
//! million times, and a start reads all of them.
//!
//! **A crash** can tear the last group, whose writes have no replies yet. The next start cuts it
//! off, says so, and keeps its bytes in `FILE.cut`. Whatever else is wrong with the log, the server
//! does not start: it says where the damage is, and leaves the log as it is. Two kinds of damage
//! look like a torn group: damage within the last group, and damage that leaves no head of a group
//! up to the end of the file. (`journal.rs` has the format, and says why.)
//!
//! **A write or a sync that fails** ends the server, with an error. It acknowledges nothing from
//! then on, because the disk may have any part of the last group. A client that waits for the log
//! gets no reply: its write may be there at the next start or not, as after a crash. What the next
//! start finds of the last group, it writes and syncs again before it serves. So what it tells its
//! clients is on the disk, and stays there.
//!
//! **One server** at a time has a log: the next one does not start. The lock goes with the process.
//! It does not protect from other programs that write the file.
//!
//! The log begins with a line of its own, and the log of another program is refused. In the other
//! direction, redis-check-aof of Redis 7 takes this log for whole: there a line that begins with
//! `#` is a remark.
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
//! | `log.rs` | group commit, in a loop of its own |
//! | `journal.rs` | the file of the log, and recovery |
//! | `lock.rs` | the lock of the log |
//! | `client.rs` | the state of a connection |
//! | `redis.rs` | the callbacks |
//!
//! `tests/redis.rs` runs all of it in a simulation, with crashes at any step.

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use windlass_serve::Server;

use log::Shared;
use redis::Redis;
use store::Store;

mod client;
#[path = "../common/mod.rs"]
mod common;
mod journal;
mod lock;
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
    let setup = common::Setup::new(options, 6380, 1);
    let store = if appends.0 { Store::logged() } else { Store::default() };
    let shared = Arc::new(Shared::new(store));
    let about = |error| io::Error::other(format!("{}: {error}", path.display()));
    let mut log = None;
    if appends.0 {
        let running = log::start(&path, &shared, &setup.started).map_err(about)?;
        if let Some(cut) = &running.cut {
            let (path, kept_in) = (path.display(), cut.kept_in.display());
            let (bytes, at) = (cut.bytes, cut.at);
            println!("{path}: cut off {bytes} bytes of a torn group at byte {at}: see {kept_in}");
        }
        log = Some(running);
    }
    let of_loops = Arc::clone(&shared);
    let new = move |_loop| Redis::new(Arc::clone(&of_loops), most_bulk);
    setup.run(Server::new(new).config(redis::config(most_bulk)))?;
    shared.end();
    // After a failed write or sync, this says why the server has ended.
    log.map_or(Ok(()), |log| log.wait().map_err(about))
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
