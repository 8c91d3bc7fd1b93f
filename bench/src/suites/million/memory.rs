//! Memory of processes and of the kernel, before and after connections were opened.

use std::collections::BTreeMap;
use std::{fs, io};

/// Memory of the kernel.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// By name: how many objects are in use, and the bytes of one with its share of the page's
    /// rest.
    slabs: BTreeMap<String, (u64, f64)>,
    /// `MemAvailable`.
    pub available: u64,
    /// Memory of sockets' queues, in bytes, by `/proc/net/sockstat`.
    pub queues: u64,
    /// TCP sockets that are connected or listen, of the whole system.
    pub sockets: u64,
}

impl Kernel {
    pub fn now() -> io::Result<Kernel> {
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let sockstat = fs::read_to_string("/proc/net/sockstat")?;
        let tcp = sockstat.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
        let of_tcp = |name: &str| {
            let mut words = tcp.split(' ').skip_while(|word| *word != name);
            words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        // Only root may read it.
        let slabs = fs::read_to_string("/proc/slabinfo").unwrap_or_default();
        Ok(Kernel {
            slabs: slabs.lines().filter_map(slab).collect(),
            available: field(&meminfo, "MemAvailable:").unwrap_or(0),
            queues: of_tcp("mem") * page_bytes(),
            sockets: of_tcp("inuse"),
        })
    }

    /// The kinds of objects of which there is at least one more for every four connections: the
    /// name, and the objects and bytes of a connection.
    ///
    /// Another program may list the descriptors of all processes meanwhile. That makes an inode and
    /// a name in `/proc` for each, which the kernel keeps until it needs the memory. They do not
    /// count.
    pub fn grown(&self, before: &Kernel, connections: usize) -> Vec<(String, f64, f64)> {
        let connections = connections.max(1) as f64;
        let added = |name: &str, objects: u64| {
            let was = before.slabs.get(name).map_or(0, |slab| slab.0);
            objects.saturating_sub(was) as f64 / connections
        };
        let listed = self.slabs.get(OF_PROC).map_or(0.0, |slab| added(OF_PROC, slab.0));
        let mut grown: Vec<_> = self
            .slabs
            .iter()
            .filter_map(|(name, &(objects, bytes))| {
                let of_proc = if WITH_INODES.contains(&name.as_str()) { listed } else { 0.0 };
                let each = added(name, objects) - of_proc;
                (each >= 0.25 && name != OF_PROC).then(|| (name.clone(), each, each * bytes))
            })
            .collect();
        grown.sort_by(|a, b| b.2.total_cmp(&a.2));
        grown
    }
}

/// Inodes of `/proc`, and what each of them has.
const OF_PROC: &str = "proc_inode_cache";
const WITH_INODES: [&str; 2] = ["dentry", "lsm_inode_cache"];

/// A line of `/proc/slabinfo`: name, objects in use, all objects, bytes, objects of a slab, pages
/// of a slab.
fn slab(line: &str) -> Option<(String, (u64, f64))> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (used, _all, _size, of_slab, pages) =
        (number()?, number()?, number()?, number()?, number()?);
    let bytes = (pages * page_bytes()) as f64 / of_slab.max(1) as f64;
    Some((name.to_owned(), (used, bytes)))
}

fn page_bytes() -> u64 {
    static PAGE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    // smaps has it for every mapping.
    *PAGE.get_or_init(|| {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        field(&smaps, "KernelPageSize:").unwrap_or(4096)
    })
}

/// Memory of processes, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct User {
    /// All that is resident.
    pub resident: u64,
    /// Pages that several processes share count for each in part.
    pub proportional: u64,
    /// What is resident and no part of a file.
    pub anonymous: u64,
}

impl User {
    pub fn of(processes: impl IntoIterator<Item = u32>) -> io::Result<User> {
        let mut sum = User::default();
        for process in processes {
            let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
            let bytes = |name| field(&text, name).unwrap_or(0);
            sum.resident += bytes("Rss:");
            sum.proportional += bytes("Pss:");
            sum.anonymous += bytes("Anonymous:");
        }
        Ok(sum)
    }
}

/// Resident bytes of a process, read faster than [`User`].
pub fn resident(process: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/statm"))?;
    let pages = text.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok());
    Ok(pages.ok_or_else(|| io::Error::other("no resident pages in /proc"))? * page_bytes())
}

/// The descriptors that a process has open.
pub fn descriptors(process: u32) -> io::Result<usize> {
    let directory = format!("/proc/{process}/fd");
    // Since Linux 6.2, their number is the size of the directory. To list it would make an inode of
    // each, in the memory that is measured here.
    match fs::metadata(&directory)?.len() {
        0 => Ok(fs::read_dir(directory)?.count()),
        count => Ok(count as usize),
    }
}

/// A figure of `/proc` in kB, as bytes.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_that_grow_with_the_connections_are_found() {
        let line = "TCP  105 169 2368 13 8 : tunables 0 0 0 : slabdata 13 13 0";
        let (name, (used, bytes)) = slab(line).unwrap();
        assert_eq!((name.as_str(), used), ("TCP", 105));
        assert!((bytes - (8 * page_bytes()) as f64 / 13.0).abs() < 1e-9);
        assert!(slab("slabinfo - version: 2.1").is_none());
        let with = |tcp, inode| Kernel {
            slabs: [("TCP".into(), (tcp, 2500.0)), ("inode".into(), (inode, 600.0))].into(),
            ..Kernel::default()
        };
        let grown = with(2100, 120).grown(&with(100, 100), 1000);
        assert_eq!(grown, [("TCP".to_owned(), 2.0, 5000.0)]);
        let with = |dentries, of_proc| Kernel {
            slabs: [("dentry".into(), (dentries, 200.0)), (OF_PROC.into(), (of_proc, 600.0))]
                .into(),
            ..Kernel::default()
        };
        let grown = with(4000, 2000).grown(&with(0, 0), 1000);
        assert_eq!(grown, [("dentry".to_owned(), 2.0, 400.0)]);
    }

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let me = std::process::id();
        let user = User::of([me]).unwrap();
        assert!(user.resident >= user.anonymous && user.anonymous > 0, "{user:?}");
        assert!(resident(me).unwrap() > 0 && descriptors(me).unwrap() >= 3);
        assert!(Kernel::now().unwrap().available > 0);
    }
}
