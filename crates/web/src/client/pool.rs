//! The servers that a loop asks: their addresses, and their connections.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::error::FetchError;
use super::settings::FetchSettings;
use super::url::{FetchUrl, Origin, check};

/// How many servers, and how many beginnings of URLs, are remembered.
const MOST: usize = 1024;

/// A server.
pub(super) struct Site {
    pub(super) origin: Origin,
    pub(super) addresses: Addresses,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<windlass_serve::tls::Destination>,
    /// Its connections, without those that leave.
    pub(super) links: usize,
    /// Those without a call; the one that was used last is the last.
    pub(super) idle: Vec<u32>,
    /// The places of calls that wait for a connection, and the rounds of these.
    pub(super) waiting: VecDeque<(u32, u32)>,
    /// Whether these wait because all servers together have as many links as they may.
    pub(super) is_starved: bool,
}

/// What is known of the addresses of a host.
pub(super) enum Addresses {
    Unknown,
    /// A look-up is under way.
    Awaited,
    /// For good.
    Fixed(Vec<SocketAddr>),
    /// Until this time.
    Found(Vec<SocketAddr>, Instant),
    /// There are none, with this errno, until this time.
    Missing(i32, Instant),
}

/// The servers that a loop asks.
#[derive(Default)]
pub(super) struct Sites {
    pub(super) sites: Vec<Site>,
    by_origin: HashMap<Origin, u32>,
    /// By scheme and authority, as URLs have them: so a URL is parsed once.
    by_prefix: HashMap<Box<str>, u32>,
    /// The connections to all servers, without those that leave.
    pub(super) links: usize,
}

impl Sites {
    /// The server of a URL.
    pub(super) fn of_url(
        &mut self,
        settings: &FetchSettings,
        prefix: &str,
        text: &str,
    ) -> Result<u32, FetchError> {
        if let Some(&site) = self.by_prefix.get(prefix) {
            check(text, &text[prefix.len()..])?;
            return Ok(site);
        }
        let url = FetchUrl::parse(text)?;
        let site = self.of_origin(settings, &url.origin)?;
        if self.by_prefix.len() >= MOST {
            self.by_prefix.clear();
        }
        self.by_prefix.insert(prefix.into(), site);
        Ok(site)
    }

    /// The server at an origin.
    pub(super) fn of_origin(
        &mut self,
        settings: &FetchSettings,
        origin: &Origin,
    ) -> Result<u32, FetchError> {
        if let Some(&site) = self.by_origin.get(origin) {
            return Ok(site);
        }
        let made = Site::new(settings, origin)?;
        let unused =
            (self.sites.len() >= MOST).then(|| self.sites.iter().position(Site::is_unused));
        let site = match unused.flatten() {
            Some(at) => {
                let old = std::mem::replace(&mut self.sites[at], made);
                self.by_origin.remove(&old.origin);
                self.by_prefix.retain(|_, site| *site as usize != at);
                at as u32
            }
            None => {
                self.sites.push(made);
                self.sites.len() as u32 - 1
            }
        };
        self.by_origin.insert(origin.clone(), site);
        Ok(site)
    }

    pub(super) fn site(&mut self, site: u32) -> &mut Site {
        &mut self.sites[site as usize]
    }

    /// The links to a server that have no call.
    pub(super) fn take_idle(&mut self, origin: &Origin) -> Vec<u32> {
        let site = self.by_origin.get(origin).copied();
        site.map(|site| std::mem::take(&mut self.site(site).idle)).unwrap_or_default()
    }

    /// A link of a server counts no more.
    pub(super) fn leaves(&mut self, site: u32, link: u32) {
        self.links -= 1;
        let site = self.site(site);
        site.links -= 1;
        site.idle.retain(|other| *other != link);
    }
}

impl Site {
    fn new(settings: &FetchSettings, origin: &Origin) -> Result<Site, FetchError> {
        let fixed = match origin.host.parse::<IpAddr>() {
            Ok(ip) => Some(vec![ip]),
            Err(_) => {
                let mut hosts = settings.hosts.iter();
                hosts.find(|(host, _)| *host == origin.host).map(|(_, all)| all.clone())
            }
        };
        let with_port = |ip: IpAddr| SocketAddr::new(ip, origin.port);
        let addresses = fixed.map_or(Addresses::Unknown, |all| {
            Addresses::Fixed(all.into_iter().map(with_port).collect())
        });
        #[cfg(feature = "tls")]
        let tls = match origin.is_tls {
            true => {
                let trust = settings.trusted().ok_or(FetchError::NoTrust)?;
                let to = trust.to(&origin.host);
                Some(to.map_err(|error| FetchError::Tls(Box::new(error)))?)
            }
            false => None,
        };
        #[cfg(not(feature = "tls"))]
        if origin.is_tls {
            return Err(FetchError::NoTrust);
        }
        Ok(Site {
            origin: origin.clone(),
            addresses,
            #[cfg(feature = "tls")]
            tls,
            links: 0,
            idle: Vec::new(),
            waiting: VecDeque::new(),
            is_starved: false,
        })
    }

    /// Whether it can be forgotten.
    fn is_unused(&self) -> bool {
        let is_awaited = matches!(self.addresses, Addresses::Awaited);
        self.links == 0 && self.waiting.is_empty() && !is_awaited
    }
}
