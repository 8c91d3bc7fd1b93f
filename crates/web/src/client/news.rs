//! What the engine below tells of links, look-ups and timers.

use windlass::{Buf, Done, ErrorKind};
use windlass_serve::ops::Completed;
use windlass_serve::{Cause, Engine};

use super::clocks::TIMER;
use super::error::{FetchError, FetchPhase};
use super::hub::Hub;
use super::link::{Link, LinkState};
use super::pool::Addresses;
use super::pump::LOOK_UP;

/// How long a failed look-up is kept, at most.
const MISSING: std::time::Duration = std::time::Duration::from_secs(1);

/// The end of a connection.
pub(crate) struct LinkEnd {
    pub(crate) cause: Cause,
    /// Why TLS has failed.
    #[cfg(feature = "tls")]
    pub(crate) tls_error: Option<Box<windlass_serve::tls::Error>>,
}

impl LinkEnd {
    fn error(self) -> FetchError {
        #[cfg(feature = "tls")]
        if let Some(error) = self.tls_error {
            return FetchError::Tls(error);
        }
        FetchError::Connection(self.cause)
    }
}

impl Hub {
    /// A connection is open.
    pub(crate) fn opened<S: LinkState>(&mut self, engine: &mut Engine<S>, number: u32) {
        #[cfg(feature = "tls")]
        let is_other = self.link(number).and_then(|link| link.id).is_some_and(|id| {
            let alpn = engine.tls(id).and_then(|session| session.alpn());
            alpn.is_some_and(|protocol| protocol != b"http/1.1")
        });
        #[cfg(not(feature = "tls"))]
        let is_other = false;
        let Some(link) = self.link(number) else { return };
        (link.is_open, link.has_drained) = (true, true);
        let Some(at) = link.call else { return };
        self.ready.push_back(number);
        if is_other {
            return self.fail_call(engine, at, FetchError::Protocol);
        }
        self.set_phase(engine, at, FetchPhase::Head);
    }

    /// Bytes have come.
    pub(crate) fn data<S: LinkState>(&mut self, engine: &mut Engine<S>, number: u32, data: Buf) {
        let Some(link) = self.link(number).filter(|link| !link.is_leaving) else { return };
        if link.call.is_none() {
            return self.let_go(engine, number); // a response without a request
        }
        link.has_heard = true;
        link.input.push(data);
        self.ready.push_back(number);
    }

    /// The output of a link has drained, or the source of its request's body was woken.
    pub(crate) fn drained(&mut self, number: u32) {
        let Some(link) = self.link(number) else { return };
        link.has_drained = true;
        self.ready.push_back(number);
    }

    /// The server has ended its side.
    pub(crate) fn eof<S: LinkState>(&mut self, engine: &mut Engine<S>, number: u32) {
        let Some(link) = self.link(number) else { return };
        link.is_at_end = true;
        match link.call {
            Some(_) => self.ready.push_back(number),
            None => self.retire(engine, number),
        }
    }

    /// No byte has moved for a while. Links without a tunnel have other limits.
    pub(crate) fn is_idle(&mut self, number: u32) {
        if self.link(number).is_some_and(|link| link.is_tunnel) {
            self.fail(number, Cause::Idle);
        }
    }

    /// A limit of time has passed that the caller has set.
    pub(crate) fn fail(&mut self, number: u32, cause: Cause) {
        let Some(link) = self.link(number).filter(|link| link.call.is_some()) else { return };
        link.failed = Some(FetchError::Connection(cause));
        self.ready.push_back(number);
    }

    /// The connection is over.
    pub(crate) fn closed<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        number: u32,
        end: LinkEnd,
    ) {
        let Some(link) = self.link(number) else { return };
        link.id = None;
        let site = link.site;
        if link.call.is_none() {
            return self.let_go(engine, number);
        }
        let has_opened = link.is_open;
        link.failed.get_or_insert(end.error());
        self.ready.push_back(number);
        if !has_opened && let Addresses::Found(..) = self.pool.site(site).addresses {
            // The host may have moved.
            self.pool.site(site).addresses = Addresses::Unknown;
        }
    }

    /// An operation of the engine has completed. False if it is not of this hub.
    pub(crate) fn completed<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        completed: &mut Completed,
    ) -> bool {
        if completed.token == TIMER {
            self.tick(engine);
            return true;
        }
        let site = completed.token as u32;
        if completed.token != LOOK_UP | u64::from(site) || site as usize >= self.pool.sites.len() {
            return false;
        }
        let now = engine.now();
        let found = match &mut completed.result {
            Ok(completion) => match &mut completion.result {
                Ok(Done::Addresses(all)) if !all.is_empty() => Ok(std::mem::take(all)),
                Err(error) => match error.kind() {
                    ErrorKind::Os(errno) => Err(errno),
                    _ => Err(NO_ANSWER),
                },
                Ok(_) => Err(NO_ANSWER),
            },
            Err(_) => Err(NO_ANSWER),
        };
        let of = self.pool.site(site);
        of.addresses = match found {
            Ok(all) => Addresses::Found(all, now + self.settings.dns_cache),
            Err(errno) => Addresses::Missing(errno, now + MISSING.min(self.settings.dns_cache)),
        };
        // Those that wait have their answer, whatever the time for which it is kept.
        let waiting: Vec<(u32, u32)> = of.waiting.iter().copied().collect();
        for (at, round) in waiting {
            if !self.calls[at as usize].is_live(round) {
                continue;
            }
            match found_errno(&self.pool.site(site).addresses) {
                Some(errno) => {
                    let host = self.pool.site(site).origin.host.clone();
                    self.fail_call(engine, at, FetchError::LookUp { host, errno });
                }
                None => self.set_phase(engine, at, FetchPhase::Queue),
            }
        }
        self.to_pump.push_back(site);
        true
    }

    pub(super) fn link(&mut self, number: u32) -> Option<&mut Link> {
        self.links.get_mut(number as usize)?.as_mut()
    }
}

/// The errno of a look-up that could not be made: `EAGAIN`.
const NO_ANSWER: i32 = 11;

fn found_errno(addresses: &Addresses) -> Option<i32> {
    match addresses {
        Addresses::Missing(errno, _) => Some(*errno),
        _ => None,
    }
}
