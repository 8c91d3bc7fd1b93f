//! A connection goes over to another protocol, or to other code.
//!
//! # Why
//! Each layer reads more than it uses: the bytes behind its last message are for what comes next.
//! So there is one way back for them, [`Engine::unread`], and everything that can come next takes
//! the input from there: the next callback, a session of TLS, a stream, the new owner of the
//! descriptor, and the loop to which the connection moves.

use windlass::Buf;

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::parts::table::{CONNECTING, ENDED, HELD, PAUSED};
use crate::stage::Stage;
use crate::words::id::Id;
use crate::words::refused::{Refusal, Refused};

impl<S> Engine<S> {
    /// Gives bytes back that the program has read ahead, in front of all input that it has not got
    /// yet. For a program that goes over to another protocol, or passes the connection on: what
    /// comes next gets these bytes first.
    ///
    /// - The next [`Event::Data`] has them, if the program goes on. A pause holds them back.
    /// - A [`stream`](Engine::stream) that is made then reads them first.
    /// - A [detach](Engine::detach) hands them over in front of its other `undelivered` bytes, and
    ///   a [move](crate::Conn::move_to_loop) takes them along.
    ///
    /// [`Input::take_rest`](crate::framing::Input::take_rest) takes them out of an input. The bytes
    /// count for [`Limits::memory`](crate::Limits::memory) until they are delivered, which is in
    /// the same turn: keep the beginning of a message that is not whole, and do not give it back.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_serve::framing::{Input, Lines, Prefix, Prefixed};
    /// use windlass_serve::{Action, Conn, Handler};
    ///
    /// /// Lines, until one of them asks for frames.
    /// #[derive(Default)]
    /// struct Talk {
    ///     lines: Input,
    ///     frames: Option<(Input, Prefixed)>,
    /// }
    ///
    /// struct Server;
    /// impl Handler for Server {
    ///     type State = Talk;
    ///     fn data(&mut self, c: &mut Conn<'_, Talk>, data: Buf) -> Action {
    ///         let Talk { lines, frames } = c.state();
    ///         if let Some((input, decoder)) = frames {
    ///             input.push(data);
    ///             while let Ok(Some(frame)) = input.next(decoder) {
    ///                 println!("{} bytes", frame.len());
    ///             }
    ///             return Action::None;
    ///         }
    ///         lines.push(data);
    ///         while let Ok(Some(line)) = lines.next(&mut Lines::new(100)) {
    ///             if &*line == b"frames" {
    ///                 let rest = lines.take_rest(); // frames may follow in the same read
    ///                 *frames = Some((Input::new(), Prefixed::new(Prefix::U16Be, 100)));
    ///                 return if c.unread(rest).is_ok() { Action::None } else { Action::Close };
    ///             }
    ///         }
    ///         Action::None
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the bytes back, with:
    ///
    /// - [`Refusal::Stale`]: the connection has ended, closes, or has not opened.
    /// - [`Refusal::Ended`]: the program knows of the end of the input, and nothing follows it.
    /// - [`Refusal::Stream`]: a stream has its input.
    /// - [`Refusal::Tls`]: it goes over to TLS. What came before is no input of the session.
    /// - [`Refusal::Unsupported`]: a session has datagrams.
    ///
    /// [`Event::Data`]: crate::Event::Data
    pub fn unread(&mut self, id: Id, data: impl Into<Buf>) -> Result<(), Refused<Buf>> {
        let data = data.into();
        match self.may_take_back(id) {
            Ok(()) => {
                self.take_back(id, data);
                Ok(())
            }
            Err(reason) => Err(Refused { value: data, reason }),
        }
    }

    /// Whether a connection takes input back.
    fn may_take_back(&mut self, id: Id) -> Result<(), Refusal> {
        let Some(place) = self.table.get(id) else { return Err(Refusal::Stale) };
        if place.session().is_some() {
            Err(Refusal::Unsupported)
        } else if place.is_over() || place.flags & CONNECTING != 0 {
            Err(Refusal::Stale)
        } else if place.stage == Stage::Handshake {
            Err(Refusal::Tls) // it would be told behind the handshake
        } else if place.flags & ENDED != 0 {
            Err(Refusal::Ended)
        } else if self.stream_of(id.index()).is_some() {
            Err(Refusal::Stream)
        } else {
            Ok(())
        }
    }

    /// Puts input in front of what is held back.
    fn take_back(&mut self, id: Id, data: Buf) {
        if data.is_empty() {
            return;
        }
        let (index, place) = (id.index(), self.table.place_mut(id.index()));
        // Where data is held, an event is on its way already, or the end of the pause makes it.
        let waits = place.flags & (HELD | PAUSED) != 0 || place.stage == Stage::Leaving;
        place.flags |= HELD;
        // An event has its bytes in one piece, and other connections need a lease.
        let data = match data.is_lease() || data.parts().len() > 1 {
            true => Buf::from(data.into_vec()),
            false => data,
        };
        let active = self.activate(index);
        active.held_bytes += data.len();
        active.held.push_front(data);
        self.recharge(index);
        if !waits {
            self.told.pending.push_front(Pending::Held(id));
        }
    }
}
