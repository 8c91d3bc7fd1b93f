//! What can go wrong, how often it does, and how often it did.

use std::time::Duration;

use super::rng::Rng;

macro_rules! faults {
    ($($(#[$doc:meta])* $field:ident: $fault:ident,)*) => {
        /// How often each fault happens: a probability from 0 to 1 for each attempt that it can
        /// strike.
        ///
        /// ```
        /// use windlass::sim::Faults;
        /// let faults = Faults { reset: 0.01, ..Faults::transient(0.1) };
        /// assert_eq!(faults.partial_read, 0.1);
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        pub struct Faults {
            $($(#[$doc])* pub $field: f64,)*
            /// The most that a delayed readiness is late.
            pub latency: Duration,
        }

        /// How often each fault of [`Faults`] has happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Injected {
            $($(#[$doc])* pub $field: u64,)*
        }

        /// The names of the faults.
        #[derive(Clone, Copy)]
        pub(super) enum Fault {
            $($fault,)*
        }

        impl Faults {
            /// Every fault with the same probability. Among them are those that end connections, so
            /// that a program must connect again to get its work done.
            pub fn all(probability: f64) -> Faults {
                Faults {
                    $($field: probability,)*
                    latency: Duration::from_millis(1),
                }
            }

            fn rate(&self, fault: Fault) -> f64 {
                match fault {
                    $(Fault::$fault => self.$field,)*
                }
            }
        }

        impl Injected {
            /// How many faults there were.
            pub fn total(&self) -> u64 {
                self.named().iter().map(|(_, count)| count).sum()
            }

            /// Every count with the name of its fault.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }

            fn count(&mut self, fault: Fault) {
                match fault {
                    $(Fault::$fault => self.$field += 1,)*
                }
            }
        }
    };
}

faults! {
    /// A read takes fewer bytes than there are; an event says later that there are more.
    partial_read: PartialRead,
    /// A write takes fewer bytes than there is room for; an event says later that there is room.
    partial_write: PartialWrite,
    /// An attempt that could have worked answers `EAGAIN`; an event follows.
    eagain: Eagain,
    /// An attempt is interrupted by a signal (`EINTR`).
    eintr: Eintr,
    /// A wait reports false readiness, or an event of a descriptor that is closed.
    spurious_readiness: SpuriousReadiness,
    /// Readiness is reported late.
    delayed_readiness: DelayedReadiness,
    /// A write finds no memory in the system (`ENOBUFS`); no event follows.
    enobufs: Enobufs,
    /// An accept finds no descriptor left (`EMFILE`); no event follows.
    emfile: Emfile,
    /// The connection that an accept would take is gone (`ECONNABORTED`); its client is reset.
    aborted: Aborted,
    /// An accept fails with `EPERM` and the connection stays; no event follows. An accept that
    /// meets only this error for about a second ends with it.
    denied: Denied,
    /// A connection breaks: both ends are reset (`ECONNRESET`) when either reads or writes.
    reset: Reset,
    /// A connect is refused although a socket listens (`ECONNREFUSED`).
    connect_refused: ConnectRefused,
}

impl Faults {
    /// No faults: every attempt does what it can.
    pub fn none() -> Faults {
        Faults::all(0.0)
    }

    /// The faults that a correct program does not notice, all with the same probability: no
    /// connection is lost.
    pub fn transient(probability: f64) -> Faults {
        Faults {
            emfile: 0.0,
            aborted: 0.0,
            denied: 0.0,
            reset: 0.0,
            connect_refused: 0.0,
            ..Faults::all(probability)
        }
    }
}

impl Default for Faults {
    /// No faults.
    fn default() -> Faults {
        Faults::none()
    }
}

/// Decides what goes wrong.
pub(super) struct Dice {
    pub(super) rng: Rng,
    /// Whether anything can go wrong: asked first, on every attempt.
    pub(super) on: bool,
    pub(super) injected: Injected,
    faults: Faults,
}

impl Dice {
    pub(super) fn new(seed: u64, faults: Faults) -> Dice {
        let mut dice = Dice {
            rng: Rng::new(seed),
            on: false,
            injected: Injected::default(),
            faults: Faults::none(),
        };
        dice.set_faults(faults);
        dice
    }

    pub(super) fn set_faults(&mut self, faults: Faults) {
        let none = Faults { latency: faults.latency, ..Faults::none() };
        self.on = faults != none;
        self.faults = faults;
    }

    /// Whether this fault happens here, where it has a chance; counts it.
    pub(super) fn hits(&mut self, fault: Fault) -> bool {
        let hit = self.on && self.rng.chance(self.faults.rate(fault));
        if hit {
            self.injected.count(fault);
        }
        hit
    }

    /// How late a delayed readiness is, in nanoseconds; at least 1.
    pub(super) fn latency_ns(&mut self) -> u64 {
        let most = crate::clock::ns_of_duration(self.faults.latency);
        1 + self.rng.below(most.max(1))
    }
}
