//! How connections are distributed.

/// How the connections of a server with several loops are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Balance {
    /// Each loop in turn.
    #[default]
    RoundRobin,
    /// A loop at random.
    Random,
    /// The loop with the fewest connections.
    LeastConnections,
    /// The kernel distributes them: each loop has a listener of its own at each TCP address, and a
    /// socket of its own at each UDP address (`SO_REUSEPORT`). Connections of other listeners go to
    /// each loop in turn. Linux and FreeBSD distribute; other systems may prefer one listener. On
    /// Windows the server does not start: `Unsupported`.
    ReusePort,
}
