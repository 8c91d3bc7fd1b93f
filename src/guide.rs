//! The guide: one page for each thing that a program does sooner or later.
//!
//! | page | answers |
//! |---|---|
//! | [how the loop works](how_the_loop_works) | What are sources, operations, completions and leases? |
//! | [framing] | Where does a message end, and what happens to half of one? |
//! | [state per connection](state_per_connection) | Where does a program keep what belongs to a source? |
//! | [deadlines and idle connections](deadlines_and_idle_connections) | How long may an operation take? |
//! | [back-pressure](back_pressure) | What if a peer is slower than we are? |
//! | [graceful shutdown](graceful_shutdown) | How does a server end? |
//! | [signals] | How does a loop hear of SIGTERM? |
//! | [TLS by hand](tls_by_hand) | How does a TLS library fit in? |
//! | [a simulatable server](a_simulatable_server) | How is a server tested without a network? |
//! | [files and durability](files_and_durability) | When is a write on the disk? |
//! | [platforms] | What differs between systems? |
//! | [tuning] | What has to be set for very many connections? |
//! | [moving over](moving) | How does a program on gaio, evio, nbio, libuv or mio look here? |
//!
//! The code on these pages is compiled and run with the tests.

macro_rules! pages {
    ($($(#[$attribute:meta])* $page:ident = $file:literal;)*) => {
        $($(#[$attribute])* #[doc = include_str!(concat!("../docs/guide/", $file))] pub mod $page {})*
    };
}

pages! {
    how_the_loop_works = "how-the-loop-works.md";
    framing = "framing.md";
    state_per_connection = "state-per-connection.md";
    deadlines_and_idle_connections = "deadlines-and-idle-connections.md";
    back_pressure = "back-pressure.md";
    graceful_shutdown = "graceful-shutdown.md";
    signals = "signals.md";
    tls_by_hand = "tls-by-hand.md";
    a_simulatable_server = "a-simulatable-server.md";
    files_and_durability = "files-and-durability.md";
    platforms = "platforms.md";
    tuning = "tuning.md";
    moving = "moving.md";
}
