//! The pool of swap buffers, its leases, and buffers of every owner, against plain vectors: no
//! bytes change while something holds them, the pool keeps its limit, and all memory comes back.
#![no_main]
#![allow(unsafe_code)] // a driver promises the bytes that it has written

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use windlass::driver::swap::{Lent, Pool};
use windlass::{AlignedBuf, Buf, Lease};

/// The most buffers that a program holds, so that it stays fast.
const MOST_HELD: usize = 64;

#[derive(Debug, Arbitrary)]
struct Program {
    chunk_bytes: u16,
    chunks: u8,
    steps: Vec<Step>,
}

/// One step. A number names a buffer, modulo the number of buffers that are held.
#[derive(Debug, Arbitrary)]
enum Step {
    /// A read into the pool's memory of so many bytes.
    Read {
        len: u16,
    },
    /// The same by a copy.
    Copy {
        len: u16,
    },
    Clone {
        which: u8,
    },
    Slice {
        which: u8,
        from: u16,
        len: u16,
    },
    Drop {
        which: u8,
    },
    DropElsewhere {
        which: u8,
    },
    /// A chunk for the kernel, which writes this much into it, or is done with it.
    Lend,
    Fill {
        len: u16,
    },
    TakeBack,
    DropLent,
    /// A buffer of its own.
    Own {
        owner: Owner,
        len: u16,
    },
    /// A read into a vector's or an aligned buffer's capacity.
    Into {
        capacity: u16,
        aligned: bool,
        pieces: Vec<u16>,
    },
    /// The buffers that are held become a list, and a list becomes its parts.
    List {
        which: u8,
        count: u8,
    },
    Parts {
        which: u8,
    },
    /// A read into a list of vectors, of which this much arrives.
    IntoList {
        capacities: Vec<u16>,
        len: u16,
    },
    IntoVec {
        which: u8,
    },
    DropPool,
}

#[derive(Debug, Arbitrary)]
enum Owner {
    Vec,
    Box,
    Shared,
    Aligned,
    Other,
}

/// The buffers that the program holds, and the bytes that they must have.
struct Held {
    buf: Buf,
    bytes: Vec<u8>,
}

struct Run {
    pool: Option<Pool>,
    lent: Option<Lent>,
    wakes: Arc<AtomicUsize>,
    held: Vec<Held>,
    next: u32,
}

fuzz_target!(|program: Program| {
    let chunk_bytes = u32::from(program.chunk_bytes % 2048);
    let limit = usize::from(program.chunks % 9) * chunk_bytes as usize;
    let wakes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&wakes);
    let wake = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let pool = Some(Pool::new(limit, chunk_bytes, Arc::new(wake)));
    let mut run = Run { pool, lent: None, wakes, held: Vec::new(), next: 0 };
    for step in &program.steps {
        run.step(step);
        run.check();
    }
    run.finish();
});

impl Run {
    /// Bytes that differ from those of other calls.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let first = self.next;
        self.next = first.wrapping_add(len as u32 + 1);
        (first..).take(len).map(|i| (i ^ (i >> 7) ^ (i >> 13)) as u8).collect()
    }

    fn hold(&mut self, buf: impl Into<Buf>, bytes: Vec<u8>) {
        if self.held.len() < MOST_HELD {
            self.held.push(Held { buf: buf.into(), bytes });
        }
    }

    fn index(&self, which: u8) -> Option<usize> {
        (!self.held.is_empty()).then(|| usize::from(which) % self.held.len())
    }

    fn take(&mut self, which: u8) -> Option<Held> {
        self.index(which).map(|at| self.held.swap_remove(at))
    }

    /// The lease at `which`, taken out; anything else stays.
    fn take_lease(&mut self, which: u8) -> Option<(Lease, Vec<u8>)> {
        let at = self.index(which)?;
        let Held { buf, bytes } = self.held.swap_remove(at);
        match buf.into_lease() {
            Ok(lease) => Some((lease, bytes)),
            Err(buf) => {
                self.held.push(Held { buf, bytes });
                None
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read { len } => self.read(usize::from(len)),
            Step::Copy { len } => self.copy(usize::from(len)),
            Step::Clone { which } => {
                if let Some((lease, bytes)) = self.take_lease(which) {
                    self.hold(lease.clone(), bytes.clone());
                    self.hold(lease, bytes);
                }
            }
            Step::Slice { which, from, len } => {
                if let Some((lease, bytes)) = self.take_lease(which) {
                    let from = usize::from(from) % (bytes.len() + 1);
                    let to = from + usize::from(len) % (bytes.len() - from + 1);
                    self.hold(lease.slice(from..to), bytes[from..to].to_vec());
                    self.hold(lease, bytes);
                }
            }
            Step::Drop { which } => drop(self.take(which)),
            Step::DropElsewhere { which } => {
                if let Some(held) = self.take(which) {
                    let thread = std::thread::spawn(|| drop(held.buf));
                    thread.join().expect("a drop does not panic");
                }
            }
            Step::Lend if self.lent.is_none() => {
                self.lent = self.pool.as_mut().and_then(|pool| pool.lend(0));
            }
            Step::Lend => {}
            Step::Fill { len } => self.fill(usize::from(len)),
            Step::TakeBack => match (&mut self.pool, self.lent.take()) {
                (Some(pool), Some(lent)) => pool.take_back(lent),
                (_, lent) => self.lent = lent,
            },
            Step::DropLent => self.lent = None,
            Step::Own { ref owner, len } => self.own(owner, usize::from(len % 3000)),
            Step::Into { capacity, aligned, ref pieces } => {
                self.read_into(usize::from(capacity % 5000), aligned, pieces);
            }
            Step::List { which, count } => self.list(which, usize::from(count % 6)),
            Step::Parts { which } => self.parts(which),
            Step::IntoList { ref capacities, len } => {
                self.read_into_list(capacities, usize::from(len))
            }
            Step::IntoVec { which } => {
                if let Some(Held { buf, bytes }) = self.take(which) {
                    let vec = buf.into_vec();
                    assert_eq!(vec, bytes);
                    self.hold(vec, bytes);
                }
            }
            Step::DropPool => self.pool = None,
        }
    }

    /// The steps of the loop for a read without a buffer.
    fn read(&mut self, len: usize) {
        let Some(room) = self.space() else { return };
        let bytes = self.bytes(len.min(room));
        let pool = self.pool.as_mut().expect("it had space");
        let (start, _) = pool.space().expect("nothing was committed since");
        // SAFETY: the space is `room` bytes, which the pool alone sees.
        let space = unsafe { std::slice::from_raw_parts_mut(start.cast::<_>(), room) };
        for (place, byte) in space.iter_mut().zip(&bytes) {
            std::mem::MaybeUninit::write(place, *byte);
        }
        // SAFETY: as many bytes were written, at most the room.
        let lease = unsafe { pool.commit(bytes.len() as u32) };
        self.hold(lease, bytes);
    }

    fn copy(&mut self, len: usize) {
        let Some(room) = self.space() else { return };
        let bytes = self.bytes(len.min(room));
        let lease = self.pool.as_mut().and_then(|pool| pool.copy(&bytes));
        self.hold(lease.expect("there is space"), bytes);
    }

    /// How much room there is; none only where the pool has reached its limit and all is leased.
    fn space(&mut self) -> Option<usize> {
        let pool = self.pool.as_mut()?;
        let Some((_, room)) = pool.space() else {
            assert_eq!(pool.allocated_bytes(), pool.limit_bytes());
            assert_eq!(pool.leased_bytes(), pool.limit_bytes());
            let leases = self.held.iter().flat_map(|held| held.buf.parts());
            let leased = leases.filter(|part| part.is_lease()).count();
            assert!(leased + usize::from(self.lent.is_some()) > 0, "the pool has lost memory");
            return None;
        };
        // No read gets less than half of a chunk.
        assert!(room as usize * 2 >= pool.chunk_bytes() || room >= 64);
        Some(room as usize)
    }

    /// A kernel that has a chunk writes into it.
    fn fill(&mut self, len: usize) {
        let Some(mut lent) = self.lent.take() else { return };
        let (start, room) = lent.room();
        let bytes = self.bytes(len.min(room as usize));
        // SAFETY: the lent room is this kernel's.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // SAFETY: as many bytes were written right above.
        let buf = unsafe { lent.commit(bytes.len() as u32) };
        self.lent = Some(lent);
        self.hold(buf, bytes);
    }

    fn own(&mut self, owner: &Owner, len: usize) {
        let bytes = self.bytes(len);
        match owner {
            Owner::Vec => self.hold(bytes.clone(), bytes),
            Owner::Box => self.hold(bytes.clone().into_boxed_slice(), bytes),
            Owner::Shared => self.hold(Arc::<[u8]>::from(&bytes[..]), bytes),
            Owner::Aligned => self.hold(AlignedBuf::from_slice(&bytes, 512), bytes),
            Owner::Other => self.hold(Buf::from_owner(bytes.clone()), bytes),
        }
    }

    /// The steps of a driver for a read into a buffer: piece by piece, as long as there is room.
    fn read_into(&mut self, capacity: usize, aligned: bool, pieces: &[u16]) {
        let mut buf = match aligned {
            true => Buf::from(AlignedBuf::with_capacity(capacity.max(1), 512)),
            false => Buf::from(Vec::with_capacity(capacity)),
        };
        assert!(buf.capacity() >= capacity);
        let mut bytes = Vec::new();
        for &piece in pieces {
            let piece = self.bytes(usize::from(piece % 1000));
            let left = buf.capacity() - bytes.len();
            let mut target = buf.target(bytes.len(), piece.len());
            assert_eq!(target.len(), piece.len().min(left));
            let moved = target.write(&piece);
            bytes.extend_from_slice(&piece[..moved]);
        }
        // SAFETY: the pieces lie there one behind the other.
        unsafe { buf.set_filled(bytes.len()) };
        self.hold(buf, bytes);
    }

    fn read_into_list(&mut self, capacities: &[u16], len: usize) {
        let capacities = capacities.iter().take(8).map(|&capacity| usize::from(capacity % 700));
        let bytes = self.bytes(len);
        // The driver writes into the vectors, and the kernel says how much that was in all.
        let mut rest = &bytes[..];
        let parts: Vec<Buf> = capacities
            .map(|capacity| {
                let mut part = Buf::from(Vec::with_capacity(capacity));
                let moved = part.target(0, rest.len()).write(rest);
                rest = &rest[moved..];
                part
            })
            .collect();
        let filled = bytes.len() - rest.len();
        let mut list = Buf::list(parts);
        // SAFETY: so many bytes were written, part by part.
        unsafe { list.set_filled(filled) };
        self.hold(list, bytes[..filled].to_vec());
    }

    fn list(&mut self, which: u8, count: usize) {
        let taken: Vec<Held> = (0..count).filter_map(|_| self.take(which)).collect();
        let bytes: Vec<u8> = taken.iter().flat_map(|held| held.bytes.iter().copied()).collect();
        self.hold(Buf::list(taken.into_iter().map(|held| held.buf)), bytes);
    }

    fn parts(&mut self, which: u8) {
        let Some(Held { buf, bytes }) = self.take(which) else { return };
        let mut rest = &bytes[..];
        for part in buf.into_parts() {
            let (own, others) = rest.split_at(part.len());
            rest = others;
            self.hold(part, own.to_vec());
        }
        assert!(rest.is_empty(), "the parts are all of the list");
    }

    fn check(&self) {
        for Held { buf, bytes } in &self.held {
            assert_eq!(buf.len(), bytes.len());
            assert_eq!(buf.is_empty(), bytes.is_empty());
            let mut rest = &bytes[..];
            for part in buf.parts() {
                let (own, others) = rest.split_at(part.len());
                assert!(part.as_slice() == own, "bytes have changed");
                rest = others;
            }
        }
        if let Some(pool) = &self.pool {
            assert!(pool.allocated_bytes() <= pool.limit_bytes());
            assert!(pool.leased_bytes() <= pool.allocated_bytes());
        }
    }

    /// Without leases all memory can be had again; a read that waits is woken for it.
    fn finish(mut self) {
        let wakes = self.wakes.load(Ordering::Relaxed);
        let starved = self.pool.as_mut().is_some_and(|pool| pool.space().is_none());
        self.lent = None;
        self.held.clear();
        if starved {
            assert!(self.wakes.load(Ordering::Relaxed) > wakes, "a read waits for ever");
        }
        if let Some(pool) = &mut self.pool {
            assert!(pool.space().is_some(), "the pool has lost memory");
        }
    }
}
