//! Crashes: a machine loses its power and starts again, while the others go on.

use std::net::IpAddr;

use crate::sim::Sim;
#[cfg(doc)]
use crate::sim::faults::Faults;
use crate::sim::world::{Role, World};

/// A machine: the address of its host, or none for all watchers without a host together.
pub(super) type Machine = Option<IpAddr>;

/// What a [`Sim::crash`] has kept and lost.
///
/// A test that crashes should assert that each kind has happened: without losses it proves little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crash {
    /// Changes of names that no sync of a directory had put on the disk, and that are there after
    /// the crash: creations, renames, removals and links.
    pub kept_names: u64,
    /// Such changes that the crash has undone.
    pub lost_names: u64,
    /// Sectors of 512 bytes with bytes that no sync had put on the disk, and that are there.
    pub kept_sectors: u64,
    /// Such sectors that have older bytes, or zeros.
    pub lost_sectors: u64,
    /// Files whose length no sync had put on the disk, and that have it.
    pub kept_lengths: u64,
    /// Such files that have an older length.
    pub lost_lengths: u64,
    /// Sockets that have ended. Peers of connections get a reset.
    pub sockets: u64,
}

impl Crash {
    /// Adds the counts of another crash.
    pub fn add(&mut self, other: &Crash) {
        self.kept_names += other.kept_names;
        self.lost_names += other.lost_names;
        self.kept_sectors += other.kept_sectors;
        self.lost_sectors += other.lost_sectors;
        self.kept_lengths += other.kept_lengths;
        self.lost_lengths += other.lost_lengths;
        self.sockets += other.sockets;
    }

    pub(super) fn count_name(&mut self, kept: bool) {
        *(if kept { &mut self.kept_names } else { &mut self.lost_names }) += 1;
    }

    pub(super) fn count_sector(&mut self, kept: bool) {
        *(if kept { &mut self.kept_sectors } else { &mut self.lost_sectors }) += 1;
    }

    pub(super) fn count_length(&mut self, kept: bool) {
        *(if kept { &mut self.kept_lengths } else { &mut self.lost_lengths }) += 1;
    }
}

impl World {
    fn crash(&mut self, machine: Machine) -> Crash {
        let mut crash = Crash::default();
        self.schedule.crash(machine);
        for index in 0..self.sockets.len() as u32 {
            let socket = &self.sockets[index as usize];
            let is_its = match &socket.role {
                Role::Vacant | Role::Crashed => false,
                // The file of another machine is of no use to a watcher, but may be open there.
                Role::File(open) if open.machine == machine => true,
                _ => socket.machine == machine,
            };
            if is_its {
                crash.sockets += u64::from(!matches!(socket.role, Role::File(_)));
                self.tell_reset(index);
                self.end_socket(index, Role::Crashed);
            }
        }
        self.processes.crash(machine);
        self.disks.of(machine).crash(&mut crash);
        crash
    }
}

/// Crashes.
impl Sim {
    /// The machine of this [host](Sim::at) loses its power, and starts again without its programs.
    /// All watchers without a host are on one machine. Returns what was lost.
    ///
    /// The processes of the machine are gone: its sockets have ended, and the peers of its
    /// connections get a reset (`ECONNRESET`), over their link if there is one. Its watchers can
    /// only be dropped. A wait fails with [`Deadlock`](std::io::ErrorKind::Deadlock), and
    /// [`run`](Sim::run) leaves them out. The program starts again on a new watcher of the same
    /// host. Other hosts go on.
    ///
    /// To end a program without a crash of its machine, as kill(2) does, drop its watcher: the page
    /// cache keeps all that was written.
    ///
    /// # What is on the disk
    ///
    /// The seed decides what was not synced, each item on its own: what POSIX allows, and ext4 and
    /// xfs may do. A program that needs less luck is correct on all of them.
    ///
    /// - **Bytes** that [`sync_data`](crate::Op::sync_data) or [`sync_all`](crate::Op::sync_all)
    ///   covered are there. So are those of a write that has completed on a file that was opened
    ///   with [`dsync`](crate::fs::OpenOptions::dsync) or [`sync`](crate::fs::OpenOptions::sync).
    ///   Direct I/O alone keeps nothing: the disk has a cache, too.
    ///   [`sync_range`](crate::Op::sync_range) keeps nothing either.
    /// - **Other bytes** are there or not, sector by sector, in any order. A sector of 512 bytes
    ///   has the last version of them or one since the last sync. Where none was ever on the disk
    ///   it has zeros. A write that was under way can also have reached some of its sectors.
    /// - **The length** that was not synced is the new one or one since the last sync, whatever
    ///   sectors are there. So a file can end in zeros, and sectors that are there can be cut off.
    ///   After a truncation, what was behind the new end can be there again, in part.
    /// - **Names** are of their directory, and no sync of a file covers them. Open the directory,
    ///   and sync it ([`sync_all`](crate::Op::sync_all) or
    ///   [`sync_data`](crate::Op::sync_data)). Creations, renames, removals and links that this has
    ///   not covered are there or not, each on its own, but two changes of one name keep their
    ///   order. A rename is there as a whole or not at all, also between two directories, of which
    ///   one has to be synced. A file without a name is gone with its bytes.
    /// - **After a sync that failed** ([`sync_error`](Faults::sync_error)) some of what it was for
    ///   is there. A later sync succeeds. It makes up for names and lengths, which a journal keeps,
    ///   but not for bytes. Programs still read all from the page cache. So a program that goes on
    ///   after such a failure writes everything anew, also if it has been started again.
    ///
    /// ```
    /// use windlass::fs::OpenOptions;
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let sim = Sim::new(1);
    /// let mut watcher = Watcher::simulated(&sim);
    /// let mut done = Completions::new();
    /// let mut run = |op| {
    ///     watcher.submit(op)?;
    ///     watcher.wait(&mut done)?;
    ///     match done.drain(..).next().unwrap().result? {
    ///         Done::Opened(file) => watcher.attach(file).map_err(std::io::Error::from),
    ///         _ => Ok(windlass::Source::NONE),
    ///     }
    /// };
    /// let log = run(Op::open("log", OpenOptions::new().write(true).create(true)))?;
    /// let directory = run(Op::open(".", OpenOptions::new().read(true)))?;
    /// for op in [Op::write_at(log, "kept", 0), Op::sync_data(log), Op::sync_all(directory)] {
    ///     run(op)?;
    /// }
    /// run(Op::write_at(log, "?", 4))?; // nobody syncs this
    /// let lost = sim.crash();
    /// assert_eq!((lost.kept_names, lost.lost_names), (0, 0)); // the directory was synced
    /// assert_eq!(lost.kept_sectors + lost.lost_sectors, 1);
    /// let bytes = sim.read_file("log").unwrap();
    /// assert!([&b"kept"[..], b"kept?", b"kept\0"].contains(&&bytes[..]));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn crash(&self) -> Crash {
        let world = &mut *self.enter();
        let crash = world.crash(self.home);
        let host = self.home.map_or("the machine".into(), |host| host.to_string());
        world.note(format!("{host} crashes: {crash:?}").as_bytes());
        crash
    }
}
