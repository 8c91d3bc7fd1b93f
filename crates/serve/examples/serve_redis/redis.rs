//! The callbacks of the server.

use std::sync::Arc;

use windlass::Buf;
use windlass_serve::{Action, Config, Conn, Handler, Limits, Origin};

use crate::client::{Client, End, MOST_REPLIES};
use crate::log::Shared;
use crate::resp::BESIDE;

/// Replies up to this length are copied into the output of the turn, longer ones are moved.
const COPIED: usize = 16 << 10;

/// The handler of a loop.
pub(crate) struct Redis {
    shared: Arc<Shared>,
    /// The longest string of a command, in bytes.
    most_bulk: usize,
    /// Memory for replies.
    out: Vec<u8>,
}

/// A client that has shut down its output still gets the replies. When the replies that wait for a
/// client reach their limit, its further commands wait, too. `drained` carries them out after the
/// client has read most of the replies. So the replies that wait, and one as long as the longest
/// string, fit into the cap. The memory of the server has room for two such replies, or for two
/// clients that send such a string: a client is not read beyond its share.
pub(crate) fn config(most_bulk: usize) -> Config {
    let limits = Limits::new().marks(MOST_REPLIES / 4, MOST_REPLIES - 1).cap(most_bulk + BESIDE);
    let memory = limits.memory + 3 * most_bulk;
    Config::new().close_on_eof(false).limits(limits.memory(memory))
}

impl Redis {
    pub(crate) fn new(shared: Arc<Shared>, most_bulk: usize) -> Redis {
        Redis { shared, most_bulk, out: Vec::new() }
    }

    fn serve(&mut self, c: &mut Conn<'_, Client>) -> Action {
        let (id, waiting) = (c.id(), c.waiting());
        self.out.clear();
        let turn = c.state().serve(&self.shared, id, waiting, &mut self.out);
        // A connection that takes no more output is about to end, and `closed` tells why.
        if self.out.len() > COPIED {
            c.write(std::mem::take(&mut self.out));
        } else {
            c.write_slice(&self.out);
        }
        if turn.wakes {
            c.remote().wake(id);
        }
        // What the client sends meanwhile stays in its socket.
        if c.state().has_more() {
            c.pause();
        } else {
            c.resume();
        }
        match turn.end {
            None => Action::None,
            Some(End::Connection) => Action::Close,
            Some(End::Server) => Action::Shutdown,
        }
    }
}

impl Handler for Redis {
    type State = Client;

    fn opened(&mut self, c: &mut Conn<'_, Client>, _: Origin) -> Action {
        let charge = c.hold(0);
        c.state().limit(self.most_bulk, charge);
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Client>, data: Buf) -> Action {
        c.state().push(data);
        self.serve(c)
    }

    fn eof(&mut self, c: &mut Conn<'_, Client>) -> Action {
        c.state().finish();
        self.serve(c)
    }

    fn drained(&mut self, c: &mut Conn<'_, Client>) -> Action {
        self.serve(c)
    }

    /// The log has synced, or replies were sent at once.
    fn wake(&mut self, c: &mut Conn<'_, Client>) -> Action {
        self.serve(c)
    }
}
