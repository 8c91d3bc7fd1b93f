//! The guide: one page for each task that a program has sooner or later.
//!
//! A newcomer reads the first three pages in their order. Each of the others stands by itself.
//!
//! | | page | after it you can |
//! |---|---|---|
//! | 1 | [how the loop works](how_the_loop_works) | write a loop of operations and completions |
//! | 2 | [state per connection](state_per_connection) | find the state of a completion's source |
//! | 3 | [framing] | find the messages in the bytes of reads |
//! | 4 | [buffers] | choose the buffer of each operation, and know what it costs |
//! | 5 | [deadlines and idle connections](deadlines_and_idle_connections) | limit each wait |
//! | 6 | [back-pressure](back_pressure) | bound what slow peers cost |
//! | 7 | [graceful shutdown](graceful_shutdown) | end a server without losing answers |
//! | 8 | [signals] | stop a loop on SIGTERM, wait for a child process |
//! | 9 | [TLS](tls) | encrypt connections, with windlass-serve or by hand |
//! | 10 | [a simulatable server](a_simulatable_server) | test with virtual time and faults |
//! | 11 | [files and durability](files_and_durability) | know when a write is on the disk |
//! | 12 | [platforms] | choose a driver, and know what differs between systems |
//! | 13 | [tuning] | set up a server for very many connections |
//! | 14 | [limits] | plan for what windlass does not do |
//! | 15 | [moving over](moving) | port a program from gaio, evio, nbio, libuv or mio |
//!
//! The code on these pages is compiled and run with the tests. Whole programs to start from are in
//! the directory `examples` of the repository; its README says what each of them shows.

macro_rules! pages {
    ($($(#[$attribute:meta])* $page:ident = $file:literal;)*) => {
        $(
            $(#[$attribute])*
            #[doc = include_str!(concat!("../docs/guide/", $file))]
            pub mod $page {}
        )*
    };
}

pages! {
    how_the_loop_works = "how-the-loop-works.md";
    state_per_connection = "state-per-connection.md";
    framing = "framing.md";
    buffers = "buffers.md";
    deadlines_and_idle_connections = "deadlines-and-idle-connections.md";
    back_pressure = "back-pressure.md";
    graceful_shutdown = "graceful-shutdown.md";
    signals = "signals.md";
    tls = "tls.md";
    a_simulatable_server = "a-simulatable-server.md";
    files_and_durability = "files-and-durability.md";
    platforms = "platforms.md";
    tuning = "tuning.md";
    limits = "limits.md";
    moving = "moving.md";
}
