//! Bytes that were read and not consumed yet.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;

use windlass::{Buf, Lease};

use super::{Decoder, Scan};
use crate::memory::Charge;

/// An incomplete frame stays in its lease if it is at least one part in so many of the memory that
/// the lease keeps in use. Otherwise it is copied out.
const SMALL_SHARE: usize = 4;

/// Memory for a frame that is put together grows by at most what has come, or by these bytes. So a
/// length that a peer announces costs no memory until the bytes come.
const LEAST_GROWTH: usize = 4 << 10;

/// The bytes of a connection that no frame has consumed yet.
///
/// [`push`](Input::push) the bytes of a read. Then take the frames out with [`next`](Input::next)
/// until it returns `None`, and push the next read. Frames that the program does not take out stay
/// in the input, in their order.
///
/// After `next` has returned `None`, the input keeps at most an incomplete frame, which the limit
/// of the decoder bounds. Its memory is at most four times its length, and 4 KiB more: a small part
/// of a lease is copied out, because it would keep the whole swap buffer in use.
///
/// With a [charge](Input::charge_to), the memory that it keeps between two reads counts for its
/// connection.
///
/// If the input [is not empty](Input::is_empty) at the end of the stream, the peer has not finished
/// a frame.
///
/// ```
/// use windlass::Buf;
/// use windlass_serve::framing::{Error, Input, Prefix, Prefixed};
/// let mut input = Input::new();
/// let mut frames = Prefixed::new(Prefix::U16Be, 1024);
/// input.push(b"\0\x05he");
/// assert!(input.next(&mut frames)?.is_none());
/// assert_eq!((input.len(), input.copied_bytes()), (4, 0));
/// input.push(b"llo\0\x02me");
/// let hello: Buf = input.next(&mut frames)?.unwrap().into_buf(); // put together: copied once
/// let me: Buf = input.next(&mut frames)?.unwrap().into_buf();
/// assert_eq!((&*hello, &*me), (&b"hello"[..], &b"me"[..]));
/// assert!(input.next(&mut frames)?.is_none() && input.is_empty());
/// # Ok::<(), Error>(())
/// ```
#[derive(Default)]
pub struct Input {
    /// The start of a frame that lies in several pieces, copied. Or, if `is_handed_out`, a whole
    /// frame that `next` has returned.
    tail: Vec<u8>,
    is_handed_out: bool,
    /// The piece behind `tail`. Its bytes up to `start` are consumed, and the decoder has seen
    /// those up to `scanned`, and all of `tail`.
    front: Piece,
    start: usize,
    scanned: usize,
    /// How many bytes the incomplete frame is known to lack.
    missing: usize,
    more: VecDeque<Piece>,
    copied: u64,
    /// Counts what it keeps, for a connection.
    charge: Option<Charge>,
}

/// Bytes with one owner.
enum Piece {
    Lease(Lease),
    Buf(Buf),
    /// Bytes that the input has put together.
    Own(Vec<u8>),
}

impl Default for Piece {
    fn default() -> Piece {
        Piece::Own(Vec::new())
    }
}

impl Deref for Piece {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Piece::Lease(lease) => lease,
            Piece::Buf(buf) => buf,
            Piece::Own(bytes) => bytes,
        }
    }
}

impl Piece {
    /// The bytes of memory that it keeps in use.
    fn held_bytes(&self) -> usize {
        match self {
            Piece::Lease(lease) => lease.held_bytes(),
            Piece::Buf(buf) => buf.capacity().max(buf.len()),
            Piece::Own(bytes) => bytes.capacity(),
        }
    }

    fn into_buf(self) -> Buf {
        match self {
            Piece::Lease(lease) => lease.into(),
            Piece::Buf(buf) => buf,
            Piece::Own(bytes) => bytes.into(),
        }
    }
}

impl Input {
    /// An input without bytes. It allocates nothing.
    pub fn new() -> Input {
        Input::default()
    }

    /// Charges what the input [keeps](Input::held_bytes) to a connection from now on, with a charge
    /// that [`Conn::hold`](crate::Conn::hold) makes. So a peer that sends the first half of a frame
    /// and stops does not get memory for nothing: its bytes count for the
    /// [share](crate::memory::Budget) of the connection. They count until frames or the program
    /// have consumed them, in whatever callback, job or thread, or until the input is dropped.
    ///
    /// The charge changes when [`next`](Input::next) has found no frame, and after each other call
    /// that takes bytes out or looks at them. So whole frames cost nothing, and neither does an
    /// input without bytes.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_serve::framing::{Input, Lines};
    /// use windlass_serve::{Action, Conn, Handler, Id, Origin};
    ///
    /// struct Lengths;
    /// impl Handler for Lengths {
    ///     type State = Option<(Input, Lines)>;
    ///     fn opened(&mut self, c: &mut Conn<'_, Self::State>, _: Origin) -> Action {
    ///         let mut input = Input::new();
    ///         input.charge_to(c.hold(0));
    ///         *c.state() = Some((input, Lines::new(1 << 20)));
    ///         Action::None
    ///     }
    ///     fn data(&mut self, c: &mut Conn<'_, Self::State>, data: Buf) -> Action {
    ///         let Some((input, _)) = c.state() else { return Action::Close };
    ///         input.push(data);
    ///         while let Some((input, lines)) = c.state() {
    ///             let len = match input.next(lines) {
    ///                 Ok(Some(line)) => line.len(),
    ///                 Ok(None) => return Action::None, // the rest counts for this connection
    ///                 Err(_) => return Action::Close,
    ///             };
    ///             c.write(format!("{len}\n"));
    ///         }
    ///         Action::None
    ///     }
    ///     // Only for a server with threads, from which connections move.
    ///     fn moved(&mut self, c: &mut Conn<'_, Self::State>, _from: Id) -> Action {
    ///         let charge = c.hold(0);
    ///         if let Some((input, _)) = c.state() {
    ///             input.charge_to(charge);
    ///         }
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn charge_to(&mut self, charge: Charge) {
        self.charge = Some(charge);
        self.count();
    }

    /// Appends the bytes of a read. Copies at most the incomplete frame in front of them. The parts
    /// of a [list](Buf::list) are appended one by one.
    pub fn push(&mut self, data: impl Into<Buf>) {
        let data = data.into();
        if data.is_empty() {
            return;
        }
        if data.as_slice().is_empty() {
            data.into_parts().for_each(|part| self.push(part));
            return;
        }
        let piece = data.into_lease().map_or_else(Piece::Buf, Piece::Lease);
        self.forget_handed_out();
        // If the program stopped between two frames, no decoder has seen the rest of the front.
        if self.more.is_empty() && self.scanned == self.front.len() {
            self.proceed(piece);
        } else {
            self.more.push_back(piece);
            self.count(); // the program lets frames wait
        }
    }

    /// Takes out the next frame that `decoder` finds; `None` if no whole frame is left. The frame
    /// is consumed, even if the program only drops it.
    ///
    /// Use the same decoder in all calls, because it remembers what it has seen of an incomplete
    /// frame. A [new](Decoder::is_new) one sees all bytes of this frame again: a frame that comes
    /// byte by byte takes time by the square of its length then. To go on with one that is neither,
    /// call [`rescan`](Input::rescan) first.
    ///
    /// # Errors
    /// The decoder's. Nothing is consumed, and the next call fails in the same way: behind a wrong
    /// frame, the start of the next one is unknown.
    ///
    /// # Panics
    /// If the decoder reports more bytes than it was given.
    #[inline]
    pub fn next<D: Decoder>(&mut self, decoder: &mut D) -> Result<Option<Frame<'_>>, D::Error> {
        self.forget_handed_out();
        if (self.scanned > self.start || !self.tail.is_empty()) && decoder.is_new() {
            self.rescan();
        }
        loop {
            let bytes = &self.front[self.scanned..];
            if bytes.is_empty() {
                if !self.advance() {
                    self.count();
                    return Ok(None);
                }
                continue;
            }
            let scan = match decoder.scan(bytes) {
                Ok(scan) => scan,
                Err(error) => {
                    self.count();
                    return Err(error);
                }
            };
            match scan {
                Scan::More(missing) => {
                    self.missing = missing;
                    self.scanned = self.front.len();
                }
                Scan::Frame { taken, head, trail } => {
                    let end = self.scanned + taken;
                    return Ok(Some(self.take_frame(end, head, trail)));
                }
            }
        }
    }

    /// Makes the next call of [`next`](Input::next) scan all bytes again, with a new decoder that
    /// has not seen any byte. For a connection that changes its protocol.
    pub fn rescan(&mut self) {
        self.forget_handed_out();
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            let front = std::mem::replace(&mut self.front, Piece::Own(tail));
            if self.start < front.len() {
                // Only part of it may be left, which `more` cannot say.
                let rest = front.into_buf().slice(self.start..);
                self.more.push_front(rest.into_lease().map_or_else(Piece::Buf, Piece::Lease));
            }
            self.start = 0;
        }
        (self.scanned, self.missing) = (self.start, 0);
    }

    /// All bytes, one behind the other, for a parser that is no [`Decoder`]. It removes the parsed
    /// bytes with [`consume`](Input::consume). If the bytes are in several pieces that are not
    /// adjacent, this call copies them into one.
    ///
    /// The next call of [`next`](Input::next) scans all bytes that are left.
    ///
    /// ```
    /// use windlass_serve::framing::Input;
    /// let mut input = Input::new();
    /// input.push("a b");
    /// let word = input.peek().iter().position(|&byte| byte == b' ').unwrap();
    /// input.consume(word + 1);
    /// input.push("c");
    /// assert_eq!(input.peek(), b"bc");
    /// ```
    pub fn peek(&mut self) -> &[u8] {
        self.rescan();
        while let Some(piece) = self.more.pop_front() {
            self.proceed(piece);
        }
        if !self.tail.is_empty() {
            self.keep();
            self.front = Piece::Own(std::mem::take(&mut self.tail));
        }
        self.scanned = self.start;
        self.count();
        &self.front[self.start..]
    }

    /// Drops the first `count` bytes of those that [`peek`](Input::peek) has returned.
    ///
    /// # Panics
    /// If there are fewer bytes. Then none is dropped.
    #[track_caller]
    pub fn consume(&mut self, count: usize) {
        let there = self.peek().len();
        assert!(count <= there, "{count} of {there} bytes are consumed");
        self.start += count;
        self.scanned = self.start;
        if self.start == self.front.len() {
            self.replace_front(Piece::default());
            self.count();
        }
    }

    /// Takes out the next bytes as they have come, at most `most` of them: a part of a body, whose
    /// length the program knows. `None` if no bytes are left, or if `most` is 0. Bytes of a lease
    /// are not copied. A part of another buffer is, and [`copied_bytes`](Input::copied_bytes)
    /// counts it.
    ///
    /// The next call of [`next`](Input::next) scans all bytes that are left.
    ///
    /// ```
    /// use windlass_serve::framing::{Delimited, Error, Input};
    /// let mut input = Input::new();
    /// let mut heads = Delimited::new(b"\n\n", 1024);
    /// input.push("length: 5\n\nab");
    /// assert_eq!(&*input.next(&mut heads)?.unwrap(), b"length: 5");
    /// let (mut left, mut body) = (5, Vec::new());
    /// for more in ["cd", "e\nlength: 0\n\n"] {
    ///     while let Some(part) = input.take(left) {
    ///         left -= part.len();
    ///         body.extend_from_slice(&part);
    ///     }
    ///     input.push(more);
    /// }
    /// assert_eq!((left, &body[..]), (1, &b"abcd"[..]));
    /// assert_eq!(&*input.take(left).unwrap(), b"e");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn take(&mut self, most: usize) -> Option<Buf> {
        self.rescan();
        if most == 0 {
            return None;
        }
        if self.start == self.front.len() {
            let Some(next) = self.more.pop_front() else {
                // A frame that was consumed has left its memory.
                self.tail = Vec::new();
                self.replace_front(Piece::default());
                self.count();
                return None;
            };
            self.replace_front(next);
        }
        let from = self.start;
        let to = self.front.len().min(from.saturating_add(most));
        (self.start, self.scanned) = (to, to);
        if to == self.front.len() {
            self.tail = Vec::new();
        }
        let part = self.cut(from, to);
        self.count();
        Some(part)
    }

    /// Takes out all bytes that are not consumed, without copying them: a list, if they are in
    /// several pieces. For a connection that is passed on to other code.
    pub fn take_rest(&mut self) -> Buf {
        self.rescan();
        let front = std::mem::take(&mut self.front).into_buf().slice(self.start..);
        let more = std::mem::take(&mut self.more).into_iter().map(Piece::into_buf);
        self.replace_front(Piece::default());
        self.tail = Vec::new();
        self.count();
        let mut parts: Vec<Buf> =
            std::iter::once(front).chain(more).filter(|part| !part.is_empty()).collect();
        if parts.len() > 1 { Buf::list(parts) } else { parts.pop().unwrap_or_default() }
    }

    /// The number of bytes that are not consumed.
    pub fn len(&self) -> usize {
        let tail = if self.is_handed_out { 0 } else { self.tail.len() };
        let more: usize = self.more.iter().map(|piece| piece.len()).sum();
        tail + self.front.len() - self.start + more
    }

    /// Whether all bytes are consumed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes were copied to put frames together, since the input was made. A frame that
    /// arrived in several pieces counts with all of its bytes.
    pub fn copied_bytes(&self) -> u64 {
        self.copied
    }

    /// The bytes of memory that the input keeps in use: whole swap buffers, and its copies. Leases
    /// that share a swap buffer count it several times.
    pub fn held_bytes(&self) -> usize {
        let more: usize = self.more.iter().map(Piece::held_bytes).sum();
        self.tail.capacity() + self.front.held_bytes() + more
    }

    /// Charges what it keeps, if it has a charge.
    #[inline]
    fn count(&mut self) {
        if self.charge.is_some() {
            self.count_held();
        }
    }

    #[inline(never)]
    fn count_held(&mut self) {
        let held = self.held_bytes();
        if let Some(charge) = &mut self.charge {
            charge.set(held);
        }
    }

    #[inline]
    fn forget_handed_out(&mut self) {
        if self.is_handed_out {
            self.is_handed_out = false;
            self.tail.clear();
        }
    }

    /// Consumes the bytes up to `end` of the front: a frame.
    #[inline]
    fn take_frame(&mut self, end: usize, head: usize, trail: usize) -> Frame<'_> {
        self.missing = 0;
        let start = std::mem::replace(&mut self.start, end);
        self.scanned = end;
        if self.tail.is_empty() {
            return Frame { from: start + head, to: end - trail, input: self };
        }
        self.copied += (end - start) as u64;
        self.tail.extend_from_slice(&self.front[start..end]);
        self.is_handed_out = true;
        Frame { from: head, to: self.tail.len() - trail, input: self }
    }

    /// A buffer of the bytes `from..to` of the front, which is consumed up to there.
    fn cut(&mut self, from: usize, to: usize) -> Buf {
        if self.start == self.front.len() {
            let front = std::mem::take(&mut self.front);
            (self.start, self.scanned) = (0, 0);
            self.count();
            return front.into_buf().slice(from..to);
        }
        match &self.front {
            Piece::Lease(lease) => lease.slice(from..to).into(),
            front => {
                self.copied += (to - from) as u64;
                front[from..to].to_vec().into()
            }
        }
    }

    /// The decoder has seen the front: goes on to the next piece. False if there is none.
    fn advance(&mut self) -> bool {
        if let Some(piece) = self.more.pop_front() {
            self.proceed(piece);
            return true;
        }
        let rest = self.front.len() - self.start;
        if rest == 0 {
            self.replace_front(Piece::default());
            if self.tail.is_empty() {
                self.tail = Vec::new();
            }
        } else if !self.tail.is_empty() || rest * SMALL_SHARE < self.front.held_bytes() {
            self.keep();
        }
        false
    }

    /// Makes `piece` the front. The rest of the old front is joined with it, or copied to the tail.
    fn proceed(&mut self, piece: Piece) {
        if self.start == self.front.len() {
            return self.replace_front(piece);
        }
        if !self.tail.is_empty() {
            self.keep();
            return self.replace_front(piece);
        }
        match (std::mem::take(&mut self.front), piece) {
            (Piece::Lease(front), Piece::Lease(behind)) => match front.try_join(behind) {
                Ok(whole) => self.front = Piece::Lease(whole),
                Err((front, behind)) => {
                    self.front = Piece::Lease(front);
                    self.keep();
                    self.replace_front(Piece::Lease(behind));
                }
            },
            (front, piece) => {
                self.front = front;
                self.keep();
                self.replace_front(piece);
            }
        }
    }

    fn replace_front(&mut self, piece: Piece) {
        self.front = piece;
        (self.start, self.scanned) = (0, 0);
    }

    /// Moves the rest of the front behind the tail.
    fn keep(&mut self) {
        let front = std::mem::take(&mut self.front);
        let start = std::mem::take(&mut self.start);
        self.scanned = 0;
        match front {
            Piece::Own(bytes) if start == 0 && self.tail.is_empty() => self.tail = bytes,
            front => {
                let rest = &front[start..];
                let growth = self.missing.min((self.tail.len() + rest.len()).max(LEAST_GROWTH));
                self.tail.reserve(rest.len() + growth);
                self.tail.extend_from_slice(rest);
                self.copied += rest.len() as u64;
            }
        }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input({} bytes, {} copied)", self.len(), self.copied)
    }
}

/// A frame that [`Input::next`] has taken out, without its prefix and its delimiter.
///
/// It dereferences to its bytes. To keep them, or to write them to a connection, make a buffer of
/// it.
pub struct Frame<'a> {
    input: &'a mut Input,
    from: usize,
    to: usize,
}

impl Frame<'_> {
    /// The frame as a buffer. A frame within one lease becomes a part of this lease, and a frame
    /// that was put together is handed out with its memory: this copies nothing. Only a frame that
    /// shares a buffer other than a lease with other frames is copied, and
    /// [`copied_bytes`](Input::copied_bytes) counts it.
    ///
    /// A small part of a lease keeps the whole swap buffer in use. So
    /// [compact](Lease::compact) what you keep for long.
    pub fn into_buf(self) -> Buf {
        let Frame { input, from, to } = self;
        if input.is_handed_out {
            input.is_handed_out = false;
            let mut tail = std::mem::take(&mut input.tail);
            tail.truncate(to);
            input.count();
            return Buf::from(tail).slice(from..);
        }
        input.cut(from, to)
    }
}

impl Deref for Frame<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes: &[u8] =
            if self.input.is_handed_out { &self.input.tail } else { &self.input.front };
        &bytes[self.from..self.to]
    }
}

impl AsRef<[u8]> for Frame<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.len())
    }
}
