//! How many connections and processes this machine allows, and what a larger one needs.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::{fs, io};

use nix::sys::resource::{Resource, getrlimit};

use crate::arguments::invalid;
use crate::table::Table;

/// What the suite aims at.
pub const MILLION: usize = 1_000_000;
/// Descriptors of a process that are no connections, with room to spare.
const OTHER_FILES: usize = 128;
/// What a connection takes before one was measured, both ends together: the kernel's objects, and
/// what server and client have of it.
const ASSUMED_BYTES: u64 = 12 << 10;

/// Source addresses and ports of the clients: every address has each local port once.
pub struct Ports {
    first: u16,
    count: usize,
}

impl Ports {
    pub fn read() -> io::Result<Ports> {
        let range = numbers("net/ipv4/ip_local_port_range");
        match range[..] {
            [first, last] if 0 < first && first <= last && last <= 65_535 => {
                Ok(Ports { first: first as u16, count: (last - first) as usize + 1 })
            }
            _ => Err(invalid(format!("{range:?} is no range of local ports"))),
        }
    }

    /// How many addresses so many connections need.
    pub fn addresses(&self, connections: usize) -> usize {
        connections.div_ceil(self.count)
    }

    /// The address of connection `index`, counted from the `first` address. They begin at
    /// 127.1.0.1.
    pub fn address(&self, first: usize, index: usize) -> SocketAddrV4 {
        let host = u32::from(Ipv4Addr::new(127, 1, 0, 1)) + (first + index / self.count) as u32;
        SocketAddrV4::new(Ipv4Addr::from(host), self.first + (index % self.count) as u16)
    }
}

/// What a run is given.
pub struct Size {
    pub connections: usize,
    /// Processes of servers; there are as many of clients.
    pub processes: usize,
    /// Memory that stays available.
    pub floor_bytes: u64,
    /// What bounded the connections.
    pub bound: String,
}

impl Size {
    /// The most connections up to `wanted` that the machine allows.
    pub fn of(wanted: usize, processes: usize, memory_percent: u64) -> io::Result<Size> {
        if wanted == 0 || memory_percent == 0 || memory_percent > 95 {
            return Err(invalid("at least one connection, and 1 to 95 % of the memory".into()));
        }
        let files = file_limit()?;
        let each = files.saturating_sub(OTHER_FILES);
        let (open, most) = open_files();
        let all_files = (most.saturating_sub(open) as usize * 9 / 10) / 2;
        let available = available_bytes()?;
        let for_us = available / 100 * memory_percent;
        let mut bounds = vec![
            (wanted, "what was asked for".to_owned()),
            (all_files, format!("fs.file-max = {most}: each connection has two descriptors here")),
            (
                (for_us / ASSUMED_BYTES) as usize,
                format!(
                    "{memory_percent} % of the {} that are available, at {} for each connection",
                    super::report::bytes(available as f64),
                    super::report::bytes(ASSUMED_BYTES as f64),
                ),
            ),
        ];
        // Connections are tracked here only if there are some.
        let tracked = numbers("net/netfilter/nf_conntrack_count").first().copied().unwrap_or(0);
        if let [most] = numbers("net/netfilter/nf_conntrack_max")[..]
            && tracked > 0
        {
            let why = format!("net.netfilter.nf_conntrack_max = {most}");
            bounds.push((most.saturating_sub(tracked) as usize * 9 / 10, why));
        }
        if processes > 0 {
            let why = format!("{processes} processes with {files} descriptors each (ulimit -n)");
            bounds.push((processes * each, why));
        }
        let (connections, bound) =
            bounds.into_iter().min_by_key(|bound| bound.0).expect("there are some");
        if connections == 0 || each == 0 {
            return Err(io::Error::other(format!("no connection fits: {bound}")));
        }
        // Every processor of the servers has a process, if each gets enough to do.
        let least = connections.div_ceil(each);
        let useful = Processors::of_machine().servers.min(connections.div_ceil(1000));
        let processes = if processes > 0 { processes } else { least.max(useful) };
        let processes = processes.clamp(least, connections);
        Ok(Size { connections, processes, floor_bytes: available - for_us, bound })
    }

    /// The connections of a process.
    pub fn share(&self, process: usize) -> usize {
        share(self.connections, self.processes, process)
    }
}

/// What part `at` has when `whole` is divided into `parts`.
pub fn share(whole: usize, parts: usize, at: usize) -> usize {
    whole / parts + usize::from(at < whole % parts)
}

/// The first half of the processors is for servers, the second for clients.
pub struct Processors {
    pub servers: usize,
    count: usize,
}

impl Processors {
    pub fn of_machine() -> Processors {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        Processors { servers: (count / 2).max(1), count }
    }

    pub fn of_server(&self, process: usize) -> usize {
        process % self.servers
    }

    pub fn of_client(&self, process: usize) -> usize {
        let clients = self.count - self.servers;
        if clients == 0 { 0 } else { self.servers + process % clients }
    }
}

/// Measured bytes of a connection, for what a larger machine needs.
pub struct Needs {
    /// Of the server's process.
    pub server: f64,
    /// Of the client's process.
    pub client: f64,
    /// Of the kernel, for one end.
    pub kernel: f64,
}

impl Needs {
    /// Settings and memory for a million connections, beside those of this machine.
    pub fn print(&self, name: &str, command: &str) -> io::Result<()> {
        let title = "A million connections: what the machine needs";
        let mut table = Table::new(title, command, &["setting", "here", "for a million"]);
        let mut row = |name: &str, here: String, needed: String| {
            table.row(&[name.to_owned(), here, needed]);
        };
        let million = MILLION as f64;
        let files = file_limit()?;
        let ports = Ports::read()?;
        let server = million * (self.server + self.kernel);
        let client = million * (self.client + self.kernel);
        let text = |name: &str| setting(name).unwrap_or_else(|| "not there".into());
        let size = super::report::bytes;
        row(
            "memory, servers and clients on one machine",
            format!("{} available", size(available_bytes()? as f64)),
            size(server + client),
        );
        row("memory, the machine of the servers alone", "–".into(), size(server));
        row(
            "ulimit -n",
            files.to_string(),
            format!(
                "{} in one process, or {} processes of each kind as here",
                MILLION + OTHER_FILES,
                MILLION.div_ceil(files.saturating_sub(OTHER_FILES).max(1))
            ),
        );
        row("fs.nr_open", text("fs/nr_open"), format!("at least ulimit -n: {}", MILLION + 128));
        row(
            "fs.file-max",
            text("fs/file-max"),
            "2,100,000 with the clients, else 1,100,000".into(),
        );
        row(
            "net.ipv4.ip_local_port_range",
            text("net/ipv4/ip_local_port_range").replace('\t', " "),
            format!(
                "{} source addresses with this range, {} with 1024 65535",
                ports.addresses(MILLION),
                MILLION.div_ceil(64_512)
            ),
        );
        row(
            "net.ipv4.tcp_mem (pages)",
            text("net/ipv4/tcp_mem").replace('\t', " "),
            "none while idle; above, payload × messages in flight, at least 2 pages each".into(),
        );
        row(
            "net.core.somaxconn",
            text("net/core/somaxconn"),
            "at least the connects in flight to one listener".into(),
        );
        row(
            "net.ipv4.tcp_max_syn_backlog",
            text("net/ipv4/tcp_max_syn_backlog"),
            "the same, over a network".into(),
        );
        row(
            "net.netfilter.nf_conntrack_max",
            text("net/netfilter/nf_conntrack_max"),
            "without the module nothing; else 1,100,000, or NOTRACK for the port".into(),
        );
        table.finish(&format!("{name}-needs"))
    }
}

/// The descriptors that a process may have, once it has raised its own limit.
fn file_limit() -> io::Result<usize> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(usize::try_from(hard).unwrap_or(usize::MAX))
}

/// The descriptions that are open in the whole system, and how many may be.
fn open_files() -> (u64, u64) {
    match numbers("fs/file-nr")[..] {
        [open, _, most] => (open, most),
        _ => (0, u64::MAX),
    }
}

/// Memory that programs can still take, in bytes.
pub fn available_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    super::memory::field(&text, "MemAvailable:").ok_or_else(|| io::Error::other("no MemAvailable"))
}

/// The text of a setting of the kernel.
fn setting(name: &str) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().to_owned())
}

fn numbers(name: &str) -> Vec<u64> {
    let text = setting(name).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn connections_have_addresses_of_their_own() {
        let ports = Ports { first: 60_000, count: 100 };
        let mut seen = HashSet::new();
        for process in 0..3 {
            let first = process * ports.addresses(250);
            assert!((0..250).all(|index| seen.insert(ports.address(first, index))));
        }
        assert_eq!(ports.address(0, 99).to_string(), "127.1.0.1:60099");
        assert_eq!(ports.address(0, 100).to_string(), "127.1.0.2:60000");
        assert_eq!(ports.address(255, 0).to_string(), "127.1.1.0:60000");
    }

    #[test]
    fn processes_share_all_connections() {
        for (whole, parts) in [(10, 3), (3, 3), (2, 3), (200_000, 11)] {
            assert_eq!((0..parts).map(|at| share(whole, parts, at)).sum::<usize>(), whole);
        }
    }

    #[test]
    fn a_size_is_bounded_and_says_by_what() {
        let size = Size::of(2000, 0, 60).unwrap();
        assert!(size.connections <= 2000 && size.processes >= 1 && !size.bound.is_empty());
        let one = Size::of(usize::MAX, 1, 60).unwrap();
        assert_eq!(one.processes, 1);
        assert!(one.connections <= file_limit().unwrap(), "{}", one.bound);
        assert!(Size::of(0, 0, 60).is_err() && Size::of(1, 0, 96).is_err());
    }
}
