//! The limits of connections: how long a phase may take, and how many bytes may wait.

use std::time::Duration;

/// The least limit of memory, in bytes. The smallest write of another thread fits into it beside
/// the reserve, with its entry in the queue. Otherwise a stream would be woken for ever, and find
/// no room.
pub(crate) const LEAST: usize = 256;

/// The limits of the connections of an engine or a server. Each one is on by default.
///
/// ```
/// use std::time::Duration;
/// use windlass_serve::Limits;
/// let limits = Limits::new().idle(Duration::from_secs(30)).memory(64 << 20);
/// assert_eq!(limits.close, Duration::from_secs(10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How long a connection may be idle: no byte moves in either direction. A connection is never
    /// closed as idle while its reads are [paused](crate::Engine::pause). After a pause in which
    /// no byte arrived, the idle time begins again with [`resume`](crate::Engine::resume). A
    /// program can [set](crate::Engine::set_idle_timeout) another time for a connection. Default 2
    /// minutes.
    pub idle: Option<Duration>,
    /// How long waiting output may make no progress. Default 30 s.
    pub write_stall: Option<Duration>,
    /// How long the output of a connection that closes, or is to be detached, may make no progress.
    /// In a shutdown of the server: how long such a connection may take as a whole. The time that
    /// its [jobs](crate::Engine::execute) take meanwhile counts, too. If the program closes it
    /// while it connects, the rest of the connect also counts. A datagram that the kernel has not
    /// taken after this time is dropped. Default 10 s.
    pub close: Duration,
    /// How long a closing connection, after it has sent its output, waits for its peer to close.
    /// The connection drops the bytes that the peer sends meanwhile. Without this wait, the system
    /// would answer them with a reset, and the peer could lose the last output. If the peer has
    /// already shut down its output, there is no wait. An [abort](crate::Engine::abort) does not
    /// wait, either. Zero closes without a wait. Default 2 s.
    pub linger: Duration,
    /// How long a connect may take, at all addresses together. Default 30 s.
    pub connect: Option<Duration>,
    /// How long a handshake of TLS may take. The time of an accepted connection begins with its
    /// accept, or behind the header of a proxy; that of a client when it is connected; that of an
    /// `Engine::upgrade` with the call. Then a client and an upgrade end with
    /// [`Cause::ReadTimeout`](crate::Cause::ReadTimeout). An accepted connection has no event yet:
    /// the [log](crate::log) tells of it. Default 10 s.
    pub handshake: Duration,
    /// How many flights of TLS handshakes a loop answers in one turn, after all that its other
    /// connections have to do. A flight is what a peer sends before it waits for an answer, such as
    /// its hello. The answer to a hello cannot be divided, and takes a third of a millisecond with
    /// a key on P-256, and some milliseconds with a key of RSA-4096. So no connection waits for
    /// more answers than this. More than one gains little, because a turn costs little beside an
    /// answer. At least 1, default 1.
    pub handshakes_per_turn: usize,
    /// How many TLS handshakes of a loop may wait for the answer to a flight: for their turn, for a
    /// worker, or for the program's `TlsBuilder::resolver`. While so many wait, a further accepted
    /// connection is closed when its hello has come, without an answer. Handshakes that have begun
    /// go on, and those of an `Engine::upgrade` count and are not refused. Default
    /// 1024.
    pub handshakes_waiting: usize,
    /// A connection with more bytes of waiting output than this stops reading. Default 256 KiB.
    pub high: usize,
    /// Once at most so many bytes of output wait, it reads again, and
    /// [`Event::Drained`](crate::Event::Drained) follows. Default 64 KiB.
    pub low: usize,
    /// The most bytes of output that may wait for a connection, from all threads together. For a
    /// datagram socket, 128 bytes more count for each datagram. At most 1 GiB, default 64 MiB.
    pub cap: usize,
    /// The most bytes that may wait in all loops together: output, datagrams, data that is held
    /// back or that the program keeps, and what it [holds](crate::memory::Charge).
    /// [`Budget`](crate::memory::Budget) says how they are shared out. At least 256, default
    /// 256 MiB.
    pub memory: usize,
    /// How long a UDP session may hear nothing from its peer. What the session sends does not
    /// count: nothing shows that it arrives. Default 2 minutes.
    pub session_idle: Option<Duration>,
    /// How many UDP sessions a loop has before it drops the datagrams of further peers. They do not
    /// count for [`connections`](Limits::connections). Default 65,536.
    pub sessions: usize,
    /// How many connections a loop has before it refuses those that its listeners accept. Connects
    /// and attached descriptors count, and are not refused. Connections count, too, whose
    /// [header of a proxy](crate::Config::proxy) has not come. At most 2^24, default 2^20.
    pub connections: usize,
    /// How many [jobs](crate::Engine::execute) of a connection may wait or run. Further ones are
    /// refused. At least 1, default 256.
    pub jobs: usize,
    /// How many jobs of all connections of a loop may wait or run: 1 to 2^20, default 65,536.
    pub loop_jobs: usize,
    /// How many [files](crate::Engine::send_file) may wait for a connection to send them. Further
    /// ones are refused. A connection at this number stops reading. Once at most half as many wait,
    /// it reads again, and [`Event::Drained`](crate::Event::Drained) follows. Each one is an open
    /// descriptor. At least 1, default 16.
    pub files: usize,
}

impl Limits {
    /// The defaults: each field says its own.
    pub const fn new() -> Limits {
        Limits {
            idle: Some(Duration::from_secs(120)),
            write_stall: Some(Duration::from_secs(30)),
            close: Duration::from_secs(10),
            linger: Duration::from_secs(2),
            connect: Some(Duration::from_secs(30)),
            handshake: Duration::from_secs(10),
            handshakes_per_turn: 1,
            handshakes_waiting: 1024,
            high: 256 << 10,
            low: 64 << 10,
            cap: 64 << 20,
            memory: 256 << 20,
            session_idle: Some(Duration::from_secs(120)),
            sessions: 1 << 16,
            connections: 1 << 20,
            jobs: 256,
            loop_jobs: 1 << 16,
            files: 16,
        }
    }

    /// Sets [`idle`](Limits::idle); `None` lets connections be idle for ever.
    pub fn idle(mut self, span: impl Into<Option<Duration>>) -> Limits {
        self.idle = span.into();
        self
    }

    /// Sets [`write_stall`](Limits::write_stall); `None` lets a peer stop reading for ever.
    pub fn write_stall(mut self, span: impl Into<Option<Duration>>) -> Limits {
        self.write_stall = span.into();
        self
    }

    /// Sets [`close`](Limits::close).
    pub fn close(mut self, span: Duration) -> Limits {
        self.close = span;
        self
    }

    /// Sets [`linger`](Limits::linger).
    pub fn linger(mut self, span: Duration) -> Limits {
        self.linger = span;
        self
    }

    /// Sets [`connect`](Limits::connect); `None` leaves it to the system.
    pub fn connect(mut self, span: impl Into<Option<Duration>>) -> Limits {
        self.connect = span.into();
        self
    }

    /// Sets [`handshake`](Limits::handshake).
    pub fn handshake(mut self, span: Duration) -> Limits {
        self.handshake = span;
        self
    }

    /// Sets [`handshakes_per_turn`](Limits::handshakes_per_turn), at least 1.
    pub fn handshakes_per_turn(mut self, count: usize) -> Limits {
        self.handshakes_per_turn = count.max(1);
        self
    }

    /// Sets [`handshakes_waiting`](Limits::handshakes_waiting).
    pub fn handshakes_waiting(mut self, count: usize) -> Limits {
        self.handshakes_waiting = count;
        self
    }

    /// Sets the marks [`low`](Limits::low) and [`high`](Limits::high), in bytes. A low mark above
    /// the high one counts as the high one.
    pub fn marks(mut self, low: usize, high: usize) -> Limits {
        (self.low, self.high) = (low.min(high), high);
        self
    }

    /// Sets [`cap`](Limits::cap), in bytes: at most 1 GiB.
    pub fn cap(mut self, bytes: usize) -> Limits {
        self.cap = bytes.min(1 << 30);
        self
    }

    /// Sets [`memory`](Limits::memory), in bytes: at least 256.
    pub fn memory(mut self, bytes: usize) -> Limits {
        self.memory = bytes.max(LEAST);
        self
    }

    /// Sets [`session_idle`](Limits::session_idle); `None` lets sessions be idle for ever.
    pub fn session_idle(mut self, span: impl Into<Option<Duration>>) -> Limits {
        self.session_idle = span.into();
        self
    }

    /// Sets [`sessions`](Limits::sessions).
    pub fn sessions(mut self, count: usize) -> Limits {
        self.sessions = count;
        self
    }

    /// Sets [`connections`](Limits::connections), at most 2^24.
    pub fn connections(mut self, count: usize) -> Limits {
        self.connections = count.min(1 << 24);
        self
    }

    /// Sets [`jobs`](Limits::jobs), at least 1.
    pub fn jobs(mut self, count: usize) -> Limits {
        self.jobs = count.max(1);
        self
    }

    /// Sets [`loop_jobs`](Limits::loop_jobs), 1 to 2^20.
    pub fn loop_jobs(mut self, count: usize) -> Limits {
        self.loop_jobs = count.clamp(1, 1 << 20);
        self
    }

    /// Sets [`files`](Limits::files), at least 1.
    pub fn files(mut self, count: usize) -> Limits {
        self.files = count.max(1);
        self
    }

    /// The limits as the setters bound them, for those that were set as fields.
    pub(crate) fn bounded(self) -> Limits {
        let bounded = self.marks(self.low, self.high).cap(self.cap).connections(self.connections);
        let bounded = bounded.memory(self.memory).handshakes_per_turn(self.handshakes_per_turn);
        bounded.jobs(self.jobs).loop_jobs(self.loop_jobs).files(self.files)
    }

    /// How often the sweep looks: a sixteenth of the shortest limit that it checks, at least
    /// 100 ms. `idle` is the shortest idle time that the program has set itself.
    pub(crate) fn step(&self, idle: Option<Duration>) -> Duration {
        let shortest = [self.write_stall, self.idle, idle].into_iter().flatten();
        let shortest = shortest.fold(self.close, Duration::min);
        (shortest / 16).max(Duration::from_millis(100))
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_were_set_as_fields_are_bounded() {
        let mut limits = Limits::new();
        (limits.low, limits.high, limits.cap) = (5000, 1000, usize::MAX);
        (limits.connections, limits.memory) = (usize::MAX, 0);
        let bounded = limits.bounded();
        assert_eq!((bounded.low, bounded.high), (1000, 1000));
        assert_eq!((bounded.cap, bounded.connections), (1 << 30, 1 << 24));
        assert_eq!(bounded.memory, 256);
    }
}
