//! Faults: their kinds, their probabilities, and how often each has happened.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sim::names::Name;
use crate::sim::rng::Rng;

macro_rules! faults {
    ($($(#[$doc:meta])* $field:ident: $fault:ident,)*) => {
        /// How often each fault happens: its probability, from 0 to 1, in each attempt in which it
        /// can happen.
        ///
        /// ```
        /// use windlass::sim::Faults;
        /// let faults = Faults { reset: 0.01, ..Faults::transient(0.1) };
        /// assert_eq!(faults.partial_read, 0.1);
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        pub struct Faults {
            $($(#[$doc])* pub $field: f64,)*
            /// The longest delay of a delayed readiness.
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
            /// Every fault with the same probability. Some faults end connections, so that a
            /// program must connect again to get its work done.
            pub const fn all(probability: f64) -> Faults {
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

        impl Fault {
            fn name(self) -> &'static str {
                match self {
                    $(Fault::$fault => stringify!($field),)*
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

            fn add(&mut self, other: &Injected) {
                $(self.$field += other.$field;)*
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
    /// A call for several datagrams takes fewer than it could, and no error says why.
    partial_batch: PartialBatch,
    /// A filter denies a call for several datagrams; they go one by one.
    batch_denied: BatchDenied,
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
    /// A look-up reaches no name server (`EAGAIN`).
    lookup_failed: LookupFailed,
    /// A kernel that completes finds no buffer for a receive (`ENOBUFS`).
    no_buffer: NoBuffer,
    /// A multishot receive in the kernel ends after its bytes, and has to be started again.
    multishot_end: MultishotEnd,
    /// A cancel does not find the operation in the kernel, and the kernel does not repeat the
    /// cancel.
    lost_cancel: LostCancel,
    /// A cancel reaches the operation late: it may have completed before.
    late_cancel: LateCancel,
    /// The page cache does not have bytes that were read or written before.
    cache_miss: CacheMiss,
    /// The kernel hands work on a file back (`EAGAIN`): it goes to the threads.
    handed_back: HandedBack,
    /// A read of a file by the kernel moves fewer bytes than there are.
    short_file_read: ShortFileRead,
    /// A write to a file by the kernel moves fewer bytes than it has.
    short_file_write: ShortFileWrite,
    /// A read or a write of a file fails (`EIO`).
    file_error: FileError,
    /// A sync of a file or a directory fails (`EIO`). Some of the sectors that were dirty are on
    /// the disk then. The others do not reach it by a later sync either, which succeeds. A later
    /// sync does put names and lengths on the disk.
    sync_error: SyncError,
    /// A write to a file finds no space (`ENOSPC`).
    disk_full: DiskFull,
}

impl Faults {
    /// No faults.
    pub const fn none() -> Faults {
        Faults::all(0.0)
    }

    /// The faults that a correct program does not notice, all with the same probability: no
    /// connection is lost.
    pub const fn transient(probability: f64) -> Faults {
        Faults {
            emfile: 0.0,
            aborted: 0.0,
            denied: 0.0,
            reset: 0.0,
            connect_refused: 0.0,
            lookup_failed: 0.0,
            file_error: 0.0,
            sync_error: 0.0,
            disk_full: 0.0,
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

/// The place of all addresses that have no faults of their own.
pub(super) const ANYWHERE: u32 = 0;

/// The probabilities of faults at a place, and the counts of those that happened.
struct FaultPlace {
    faults: Faults,
    injected: Injected,
}

/// Decides which faults happen.
pub(super) struct Dice {
    pub(super) rng: Rng,
    /// Whether any fault can happen. Every attempt checks this first.
    pub(super) on: bool,
    /// `ANYWHERE`, then the places with addresses.
    places: Vec<FaultPlace>,
    addresses: BTreeMap<Name, u32>,
    /// Whether the history needs names of faults, and the names of the faults in this call.
    pub(super) names_hits: bool,
    pub(super) hit_names: Vec<&'static str>,
}

impl Dice {
    pub(super) fn new(seed: u64, faults: Faults) -> Dice {
        let mut dice = Dice {
            rng: Rng::new(seed),
            on: false,
            places: Vec::new(),
            addresses: BTreeMap::new(),
            names_hits: false,
            hit_names: Vec::new(),
        };
        dice.add_place();
        dice.set_faults(ANYWHERE, faults);
        dice
    }

    fn add_place(&mut self) -> u32 {
        let place = FaultPlace { faults: Faults::none(), injected: Injected::default() };
        self.places.push(place);
        self.places.len() as u32 - 1
    }

    pub(super) fn set_faults(&mut self, place: u32, faults: Faults) {
        self.places[place as usize].faults = faults;
        self.on = self.places.iter().any(|place| {
            let none = Faults { latency: place.faults.latency, ..Faults::none() };
            place.faults != none
        });
    }

    /// The place of an address. Makes one if there is none.
    pub(super) fn place_at(&mut self, address: Name) -> u32 {
        if let Some(place) = self.addresses.get(&address) {
            return *place;
        }
        let place = self.add_place();
        self.addresses.insert(address, place);
        place
    }

    /// The place of a socket with these addresses. A place with a port wins over one without, and
    /// the socket's own address over its peer's.
    pub(super) fn place_of(&self, local: &Name, remote: &Name) -> u32 {
        if self.addresses.is_empty() {
            return ANYWHERE;
        }
        let hosts = [local.every_port(), remote.every_port()];
        let mut all = [local, remote].into_iter().chain(&hosts);
        all.find_map(|name| self.addresses.get(name)).copied().unwrap_or(ANYWHERE)
    }

    pub(super) fn injected(&self) -> Injected {
        let mut sum = Injected::default();
        self.places.iter().for_each(|place| sum.add(&place.injected));
        sum
    }

    pub(super) fn injected_at(&self, address: &Name) -> Injected {
        let place = self.addresses.get(address);
        place.map_or_else(Injected::default, |place| self.places[*place as usize].injected)
    }

    /// Draws whether this fault happens at this place, and counts it if it does.
    pub(super) fn hits(&mut self, place: u32, fault: Fault) -> bool {
        if !self.on {
            return false;
        }
        let place = &mut self.places[place as usize];
        let hit = self.rng.chance(place.faults.rate(fault));
        if hit {
            place.injected.count(fault);
            if self.names_hits {
                self.hit_names.push(fault.name());
            }
        }
        hit
    }

    /// If this fault happens: a number smaller than `count` of bytes or messages.
    pub(super) fn shorten(&mut self, place: u32, count: usize, fault: Fault) -> Option<usize> {
        let hit = count > 1 && self.hits(place, fault);
        hit.then(|| 1 + self.rng.below(count as u64 - 1) as usize)
    }

    /// How late a delayed readiness is, in nanoseconds; at least 1.
    pub(super) fn latency_ns(&mut self, place: u32) -> u64 {
        let latency = self.places[place as usize].faults.latency;
        let most = crate::words::clock::ns_of_duration(latency);
        1 + self.rng.below(most.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a place had 16 bits: the 65,536th address had none.
    #[test]
    #[cfg_attr(miri, ignore = "70,000 places are slow")]
    fn there_are_places_for_any_number_of_addresses() {
        let mut dice = Dice::new(1, Faults::none());
        let address = |i: u32| Name::Ip(([10, 0, (i >> 16) as u8, 1], i as u16).into());
        let places: Vec<_> = (0..70_000).map(|i| dice.place_at(address(i))).collect();
        for (i, &place) in (0..).zip(&places) {
            assert_ne!(place, ANYWHERE);
            assert_eq!(dice.place_at(address(i)), place, "address {i}");
            assert_eq!(dice.place_of(&address(i), &Name::None), place, "address {i}");
        }
        dice.set_faults(places[69_999], Faults::all(1.0));
        assert!(dice.hits(places[69_999], Fault::Reset) && !dice.hits(places[4_463], Fault::Reset));
    }
}
