//! Networks of peers.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A list of networks, and whether Unix sockets belong to it.
///
/// ```
/// use windlass_serve::net::Networks;
///
/// let inside: Networks = "10.0.0.0/8, fd00::/8, unix".parse()?;
/// assert!(inside.contains(Some("10.1.2.3:4567".parse().unwrap())));
/// assert!(inside.contains(Some("[::ffff:10.1.2.3]:4567".parse().unwrap())));
/// assert!(!inside.contains(Some("192.0.2.1:4567".parse().unwrap())));
/// assert!(inside.contains(None)); // a Unix socket has no internet address
/// assert_eq!(inside, Networks::new(["10.0.0.0/8", "fd00::/8", "unix"])?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    list: Vec<Network>,
    has_unix: bool,
}

/// A network of IPv6. One of IPv4 is the network of its mapped addresses, `::ffff:0:0/96`: this is
/// how a socket for both families names an IPv4 peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: u128,
    /// The number of bits that all its addresses share: 0 to 128.
    prefix: u32,
}

/// The prefix of a network with all IPv4 addresses.
const MAPPED: u32 = 96;

impl Networks {
    /// The networks of a list. Each is an address with the number of bits of its prefix, such as
    /// `10.0.0.0/8` or `fd00::/8`; or a single address; or `unix`, for all Unix sockets. An empty
    /// list contains no peer, and neither does [`Networks::default`].
    ///
    /// # Errors
    /// `InvalidInput`, with the text: it is none of these, the prefix is longer than an address, or
    /// the address has bits behind its prefix.
    pub fn new<T: AsRef<str>>(list: impl IntoIterator<Item = T>) -> io::Result<Networks> {
        let mut networks = Networks::default();
        for text in list {
            match text.as_ref() {
                "unix" => networks.has_unix = true,
                text => networks.list.push(text.parse()?),
            }
        }
        Ok(networks)
    }

    /// Whether a peer is in one of the networks. A peer without an internet address is that of a
    /// Unix socket, as in [`Origin::peer`](crate::Origin::peer).
    ///
    /// An IPv4 network has the mapped addresses of its peers, too: `10.0.0.0/8` contains
    /// `::ffff:10.1.2.3`. An IPv6 network that is larger than that of all mapped addresses, such as
    /// `::/0`, contains no IPv4 peer.
    pub fn contains(&self, peer: Option<SocketAddr>) -> bool {
        let Some(peer) = peer else { return self.has_unix };
        let address = bits(peer.ip());
        self.list.iter().any(|network| network.contains(address))
    }

    /// Whether there is no network, so that no peer is in one.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && !self.has_unix
    }
}

impl Network {
    fn contains(self, address: u128) -> bool {
        let is_mapped = address >> (128 - MAPPED) == 0xffff;
        let is_same_family = !is_mapped || self.prefix >= MAPPED;
        is_same_family && (address ^ self.address) & mask(self.prefix) == 0
    }
}

/// The bits of an address, of IPv4 as it is mapped to IPv6.
fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The bits of a prefix.
fn mask(prefix: u32) -> u128 {
    u128::MAX.checked_shl(128 - prefix).unwrap_or(0)
}

/// An error that names the network.
fn wrong(text: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{text:?}: {why}"))
}

impl FromStr for Network {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Network> {
        let (ip, prefix) = match text.split_once('/') {
            Some((ip, prefix)) => (ip, Some(prefix)),
            None => (text, None),
        };
        let Ok(ip) = ip.parse::<IpAddr>() else {
            return Err(wrong(text, "a network is as 10.0.0.0/8, ::1/128 or unix"));
        };
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => most,
            // A sign and zeros in front would be read by std, and look like a mistake.
            Some(digits) => match digits.parse::<u32>() {
                Ok(prefix) if prefix <= most && prefix.to_string() == digits => prefix,
                _ => return Err(wrong(text, &format!("the prefix is 0 to {most}"))),
            },
        };
        let network = Network { address: bits(ip), prefix: prefix + (128 - most) };
        let address = network.address & mask(network.prefix);
        if address != network.address {
            let network = Network { address, ..network };
            return Err(wrong(
                text,
                &format!("there are bits behind the prefix; {network} has none"),
            ));
        }
        Ok(network)
    }
}

impl FromStr for Networks {
    type Err = io::Error;

    /// Reads a list with commas, with or without spaces: see [`Networks::new`].
    fn from_str(text: &str) -> io::Result<Networks> {
        Networks::new(text.split(',').map(str::trim))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = std::net::Ipv6Addr::from_bits(self.address);
        match ip.to_ipv4_mapped() {
            Some(ip) if self.prefix >= MAPPED => write!(f, "{ip}/{}", self.prefix - MAPPED),
            _ => write!(f, "{ip}/{}", self.prefix),
        }
    }
}

/// The list with commas, as it is parsed.
impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for network in &self.list {
            write!(f, "{comma}{network}")?;
            comma = ",";
        }
        if self.has_unix { write!(f, "{comma}unix") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn of(list: &str) -> Networks {
        list.parse().unwrap_or_else(|error| panic!("{list}: {error}"))
    }

    fn contains(list: &str, ip: &str) -> bool {
        let ip: IpAddr = ip.parse().unwrap();
        of(list).contains(Some((ip, 7).into()))
    }

    #[test]
    fn peers_are_found_in_their_networks() {
        for (list, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.255.0.1", "::ffff:11.0.0.0"),
            ("10.0.0.0/8", "10.0.0.0", "::10.0.0.0"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "::10.1.2.3"),
            ("10.1.2.3", "::ffff:10.1.2.3", "10.1.2.2"),
            ("10.1.2.3/32", "10.1.2.3", "10.1.2.2"),
            ("10.1.2.2/31", "10.1.2.3", "10.1.2.4"),
            ("0.0.0.0/0", "255.255.255.255", "::"),
            ("::ffff:0:0/96", "1.2.3.4", "::1:0:1"),
            ("::/0", "ffff::1", "1.2.3.4"),
            ("::/0", "::", "::ffff:1.2.3.4"),
            ("::/80", "::1", "::ffff:1.2.3.4"),
            ("::1/128", "::1", "::2"),
            ("fd00::/8", "fdff:1::2", "fe00::1"),
            ("2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"),
            ("1.0.0.0/8,2.0.0.0/8", "2.0.0.1", "3.0.0.1"),
        ] {
            assert!(contains(list, inside), "{inside} in {list}");
            assert!(!contains(list, outside), "{outside} in {list}");
        }
        let scoped = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, 3);
        assert!(of("fe80::/10").contains(Some(scoped.into())));
    }

    #[test]
    fn unix_sockets_are_a_network() {
        assert!(of("unix").contains(None) && of("::1,unix").contains(None));
        assert!(!of("0.0.0.0/0,::/0").contains(None) && !contains("unix", "127.0.0.1"));
        assert!(!of("unix").is_empty() && !of("::1").is_empty());
        let empty = Networks::default();
        assert!(empty.is_empty() && !empty.contains(None));
        assert_eq!(Networks::new([""; 0]).unwrap(), empty);
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for (text, why) in [
            ("", "\"\": a network is"),
            ("10.0.0.0/8,", "\"\": a network is"),
            ("Unix", "a network is"),
            ("localhost/8", "a network is"),
            ("10.0.0.0:80", "a network is"),
            ("[::1]/128", "a network is"),
            ("fe80::1%eth0/64", "a network is"),
            ("010.0.0.0/8", "a network is"),
            ("10.0.0/8", "a network is"),
            ("10.0.0.0/", "0 to 32"),
            ("10.0.0.0/33", "0 to 32"),
            ("10.0.0.0/-1", "0 to 32"),
            ("10.0.0.0/+8", "0 to 32"),
            ("10.0.0.0/08", "0 to 32"),
            ("10.0.0.0/8/8", "0 to 32"),
            ("10.0.0.0/255.0.0.0", "0 to 32"),
            ("10.0.0.0/4294967304", "0 to 32"),
            ("::1/129", "0 to 128"),
            ("::1,10.0.0.1/8", "\"10.0.0.1/8\": there are bits behind the prefix; 10.0.0.0/8"),
            ("::1/0", "; ::/0 has none"),
            ("::ffff:10.0.0.1/104", "; 10.0.0.0/8 has none"),
        ] {
            let error = text.parse::<Networks>().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }

    fn config() -> ProptestConfig {
        ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_peer_that_differs_behind_the_prefix_is_inside(
            ip: IpAddr,
            prefix in 0_u32..=128,
            bit in 0_u32..128,
        ) {
            let most = if ip.is_ipv4() { 32 } else { 128 };
            let (prefix, bit) = (prefix % (most + 1), bit % most);
            let (network, peer): (IpAddr, IpAddr) = match ip {
                IpAddr::V4(ip) => {
                    let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                    let peer = Ipv4Addr::from_bits(ip.to_bits() ^ (1 << (31 - bit)));
                    (Ipv4Addr::from_bits(ip.to_bits() & mask).into(), peer.into())
                }
                IpAddr::V6(ip) => {
                    let peer = Ipv6Addr::from_bits(ip.to_bits() ^ (1 << (127 - bit)));
                    (Ipv6Addr::from_bits(ip.to_bits() & mask(prefix)).into(), peer.into())
                }
            };
            let networks = of(&format!("{network}/{prefix}"));
            let is_small = ip.is_ipv4() || bits(peer) >> 32 != 0xffff || prefix >= MAPPED;
            prop_assert_eq!(networks.contains(Some((peer, 7).into())), bit >= prefix && is_small);
            if let IpAddr::V4(peer) = peer {
                let mapped = peer.to_ipv6_mapped();
                prop_assert_eq!(networks.contains(Some((mapped, 7).into())), bit >= prefix);
            }
            prop_assert_eq!(of(&networks.to_string()), networks);
        }
    }
}
