//! The examples whose loop is the program's own, on each driver of the system.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(clippy::duplicate_mod)] // the examples share a module
#![cfg(unix)] // the system's file and sockets

/// Turns a loop while a client talks to it in a thread, and then until it has stopped. Its ticks
/// end its waits. A macro, because the loops of two examples are two types.
macro_rules! talk {
    ($own:expr, $client:expr) => {{
        let mut own = $own;
        let client = std::thread::spawn($client);
        while !client.is_finished() {
            own.turn().expect("a turn");
        }
        own.stop();
        while !own.is_over() {
            own.turn().expect("a turn");
        }
        client.join().expect("the client has seen all");
    }};
}

/// A test for each driver.
macro_rules! each_driver {
    ($runs:ident) => {
        #[cfg(target_os = "linux")]
        #[test]
        fn epoll() {
            $runs(DriverKind::Epoll);
        }

        #[cfg(target_os = "linux")]
        #[test]
        fn uring() {
            $runs(DriverKind::Uring);
        }

        #[cfg(windlass_kqueue)]
        #[test]
        fn kqueue() {
            $runs(DriverKind::Kqueue);
        }

        #[test]
        fn poll() {
            $runs(DriverKind::Poll);
        }
    };
}

mod own_loop;
#[cfg(feature = "websocket")]
mod ws_own_loop;
