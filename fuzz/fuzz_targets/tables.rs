//! The tables of a driver against the collections of std: the deadline heap, the places with
//! generations, and addresses.
#![no_main]

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::num::NonZeroU32;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use windlass::Address;
use windlass::driver::deadlines::Deadlines;
use windlass::driver::slots::{Entry, NIL, Table, VACANT};

#[derive(Debug, Arbitrary)]
enum Program<'a> {
    Deadlines(Vec<Deadline>),
    Table { limit: u16, start: u32, steps: Vec<Place> },
    Address { ip: SocketAddr, path: &'a [u8] },
}

#[derive(Debug, Arbitrary)]
enum Deadline {
    Set { slot: u8, at_ns: u16 },
    Remove { slot: u8 },
    Pop { now_ns: u16 },
}

#[derive(Debug, Arbitrary)]
enum Place {
    Occupy,
    OccupyMany { count: u16 },
    Vacate { which: u16 },
    Limit { limit: u16 },
    Find { index: u32, generation: u32 },
}

fuzz_target!(|program: Program| {
    match program {
        Program::Deadlines(steps) => deadlines(&steps),
        Program::Table { limit, start, steps } => table(limit % 1024, start, &steps),
        Program::Address { ip, path } => address(ip, path),
    }
});

/// By time, those of equal time in the order in which they came.
fn deadlines(steps: &[Deadline]) {
    let mut deadlines = Deadlines::new();
    let mut model: BTreeMap<(u64, usize), u32> = BTreeMap::new();
    for (now, step) in steps.iter().enumerate() {
        match *step {
            Deadline::Set { slot, at_ns } => {
                let (slot, at_ns) = (u32::from(slot), u64::from(at_ns));
                deadlines.set(slot, at_ns);
                model.retain(|_, other| *other != slot);
                model.insert((at_ns, now), slot);
            }
            Deadline::Remove { slot } => {
                deadlines.remove(u32::from(slot));
                model.retain(|_, other| *other != u32::from(slot));
            }
            Deadline::Pop { now_ns } => {
                let now_ns = u64::from(now_ns);
                let first = model.first_entry().filter(|first| first.key().0 <= now_ns);
                let expected = first.map(|first| {
                    let ((at_ns, _), slot) = first.remove_entry();
                    (slot, at_ns)
                });
                assert_eq!(deadlines.pop_due(now_ns), expected);
            }
        }
        assert_eq!(deadlines.len(), model.len());
        assert_eq!(deadlines.is_empty(), model.is_empty());
        assert_eq!(deadlines.next_ns(), model.keys().next().map(|(at_ns, _)| *at_ns));
    }
    for ((at_ns, _), slot) in model {
        assert_eq!(deadlines.pop_due(u64::MAX), Some((slot, at_ns)));
    }
    assert_eq!(deadlines.pop_due(u64::MAX), None);
}

/// The smallest entry there can be, with a mark that finds it again.
#[derive(Debug)]
struct Marked {
    generation: NonZeroU32,
    next_vacant: u32,
    mark: usize,
}

impl Default for Marked {
    fn default() -> Marked {
        Marked { generation: VACANT, next_vacant: NIL, mark: 0 }
    }
}

impl Entry for Marked {
    fn generation(&self) -> NonZeroU32 {
        self.generation
    }
    fn set_generation(&mut self, generation: NonZeroU32) {
        self.generation = generation;
    }
    fn next_vacant(&self) -> u32 {
        self.next_vacant
    }
    fn set_next_vacant(&mut self, index: u32) {
        self.next_vacant = index;
    }
}

/// A name finds its entry until the place is vacated, and nothing afterwards.
fn table(mut limit: u16, start: u32, steps: &[Place]) {
    let mut table: Table<Marked> = Table::starting_at(u32::from(limit), start);
    let mut alive: Vec<(u32, NonZeroU32, usize)> = Vec::new();
    let mut stale: HashMap<(u32, NonZeroU32), usize> = HashMap::new();
    let mut mark = 0;
    let mut occupy = |table: &mut Table<Marked>, limit: u16, alive: &mut Vec<_>| {
        let expected = alive.len() < usize::from(limit.max(1));
        let found = table.occupy();
        assert_eq!(found.is_some(), expected, "{} of {limit} places", alive.len());
        let (index, generation) = found?;
        mark += 1;
        table[index].mark = mark;
        alive.push((index, generation, mark));
        Some((index, generation))
    };
    for step in steps {
        match *step {
            Place::Occupy => {
                if let Some(name) = occupy(&mut table, limit, &mut alive) {
                    assert!(!stale.contains_key(&name), "a stale name lives again");
                }
            }
            Place::OccupyMany { count } => {
                for _ in 0..count % 600 {
                    if occupy(&mut table, limit, &mut alive).is_none() {
                        break;
                    }
                }
            }
            Place::Vacate { which } if !alive.is_empty() => {
                let which = usize::from(which) % alive.len();
                let (index, generation, mark) = alive.swap_remove(which);
                table.vacate(index);
                stale.insert((index, generation), mark);
            }
            Place::Vacate { .. } => {}
            Place::Limit { limit: to } => {
                limit = to % 1024;
                table.set_limit(u32::from(limit));
            }
            Place::Find { index, generation } => {
                let found = table.find_key(index, generation).map(|entry| entry.mark);
                let named = |&&(i, g, _): &&(u32, NonZeroU32, usize)| {
                    i == index && g.get() == generation | 1
                };
                assert_eq!(found, alive.iter().find(named).map(|(.., mark)| *mark));
            }
        }
        assert_eq!(table.len() as usize, alive.len());
    }
    for &(index, generation, mark) in &alive {
        assert_eq!(table.find(index, generation).map(|entry| entry.mark), Some(mark));
        assert_eq!(table.look(index, generation).map(|entry| entry.mark), Some(mark));
    }
    for &(index, generation) in stale.keys() {
        assert!(table.find(index, generation).is_none(), "a stale name finds an entry");
    }
    let mut occupied: Vec<u32> = alive.iter().map(|(index, ..)| *index).collect();
    occupied.sort_unstable();
    assert!(table.occupied().eq(occupied));
}

/// An address returns the value that it was made from.
fn address(ip: SocketAddr, path: &[u8]) {
    let address = Address::from(ip);
    let parts = |address: SocketAddr| (address.ip(), address.port());
    assert_eq!(address.ip().map(parts), Some(parts(ip)));
    assert!(address.path().is_none() && !address.is_unspecified());
    use std::os::unix::ffi::OsStrExt;
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
    let bytes = path.as_os_str().as_bytes();
    let fits = !bytes.is_empty() && bytes.len() <= 107 && !bytes.contains(&0);
    match Address::unix(path) {
        Ok(address) => {
            assert!(fits);
            assert_eq!(address.path().as_deref(), Some(path));
            assert!(address.ip().is_none() && !address.is_unspecified());
        }
        Err(error) => {
            assert!(!fits);
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        }
    }
}
