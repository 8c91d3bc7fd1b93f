//! A program that keeps every piece of its input, with pools of few swap buffers, on every driver:
//! all that is sent arrives.
//!
//! Of the promises on the page of the crate: P5 and P7.

use crate::common::{Harness, bench_with};
use windlass::{Buf, Watcher};
use windlass_serve::{Action, Conn, Handler, Limits, Server};

crate::every_driver! {
    what_is_kept_stops_no_reads
}

#[derive(Default)]
struct Keeper {
    kept: Vec<Buf>,
    bytes: usize,
}

impl Handler for Keeper {
    type State = ();
    fn data(&mut self, _: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.bytes += data.len();
        self.kept.push(data);
        Action::None
    }
}

/// The kernel of io_uring held the free buffers, while the reads waited for a buffer of the loop.
fn what_is_kept_stops_no_reads<T: Harness>() {
    for (count, size) in (1..=6).flat_map(|count| [512, 1024, 4096].map(|size| (count, size))) {
        for piece in [1, 300, 4096] {
            for peers in 1..=8 {
                keep::<T>(count, size, piece, peers);
            }
        }
    }
}

/// So many peers send pieces of so many bytes, in rounds; in a third of the rounds some are silent.
fn keep<T: Harness>(count: usize, size: usize, piece: usize, peers: usize) {
    let builder = Watcher::builder().buffer_size(size as u32).swap_limit(count * size);
    let limits = Limits::new().idle(None).write_stall(None);
    let server = Server::new(|_| Keeper::default()).limits(limits);
    let server = server.listen("tcp://127.0.0.1:0").expect("an address");
    let mut bench = bench_with::<T, _, _>(builder, server);
    let clients: Vec<_> = (0..peers).map(|_| bench.connect()).collect();
    let what = format!("{count} x {size}, pieces of {piece}, {peers} peers");
    let mut said = 0;
    for round in 0..(3 * count * size / piece / peers).clamp(12, 30) {
        for (at, &client) in clients.iter().enumerate() {
            if round % 3 < 2 || at % 2 == 0 {
                bench.say(client, vec![b'k'; piece]);
                said += piece;
            }
        }
        bench.until(&what, |bench| bench.running.handler().bytes == said);
    }
}
