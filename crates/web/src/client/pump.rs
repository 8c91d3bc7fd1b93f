//! Calls onto links.

use std::panic::{AssertUnwindSafe, catch_unwind};

use windlass::net::ConnectOptions;
use windlass::{Buf, Op};
use windlass_serve::{Engine, Id, Refusal};

use super::call::{Reached, Requester, Step};
use super::error::{FetchError, FetchPhase};
use super::fetch::FetchBody;
use super::hub::Hub;
use super::link::{Link, LinkState};
use super::pool::Addresses;
use crate::message::source::{At, EMPTY_PARTS, Flow, Part};

/// The token of a look-up, with the place of its server in the lower half.
pub(super) const LOOK_UP: u64 = 0x4c6f_6f6b << 32;

impl Hub {
    /// Gives a call a link, or lets it wait for one.
    pub(super) fn place<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        at: u32,
    ) -> Result<(), FetchError> {
        let call = &self.calls[at as usize];
        let (site, is_again, round) = (call.site, call.is_again, call.round);
        // Those that wait already come first.
        let waits = !is_again && !self.pool.site(site).waiting.is_empty();
        if !waits && let Some(link) = self.find_link(engine, site, is_again)? {
            self.assign(engine, at, link);
            return Ok(());
        }
        let (most, of) = (self.settings.waiting, self.pool.site(site));
        if of.waiting.len() >= most {
            // Those that are over wait no more.
            of.waiting.retain(|(at, round)| self.calls[*at as usize].is_live(*round));
        }
        if is_again {
            of.waiting.push_front((at, round));
        } else if of.waiting.len() >= most {
            return Err(FetchError::Full);
        } else {
            of.waiting.push_back((at, round));
        }
        let phase = match of.addresses {
            Addresses::Awaited => FetchPhase::LookUp,
            _ => FetchPhase::Queue,
        };
        self.set_phase(engine, at, phase);
        Ok(())
    }

    /// Gives links to the calls that wait for a server, in their order.
    pub(super) fn pump<S: LinkState>(&mut self, engine: &mut Engine<S>, site: u32) {
        while let Some(&(at, round)) = self.pool.site(site).waiting.front() {
            let call = &self.calls[at as usize];
            if !call.is_live(round) {
                self.pool.site(site).waiting.pop_front();
                continue;
            }
            let found = self.find_link(engine, site, call.is_again);
            match found {
                Ok(None) => return,
                Ok(Some(link)) => {
                    self.pool.site(site).waiting.pop_front();
                    self.assign(engine, at, link);
                }
                Err(error) => {
                    self.pool.site(site).waiting.pop_front();
                    self.fail_call(engine, at, error);
                }
            }
        }
    }

    /// A link for a call: one that is there, or a new one. `None`: the call has to wait.
    fn find_link<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        site: u32,
        is_again: bool,
    ) -> Result<Option<u32>, FetchError> {
        let idle = &mut self.pool.site(site).idle;
        // The others may have been closed by the server, too.
        if is_again {
            let stale = std::mem::take(idle);
            stale.into_iter().for_each(|link| self.let_go(engine, link));
        } else if let Some(link) = idle.pop() {
            return Ok(Some(link));
        }
        if self.pool.site(site).links >= self.settings.connections {
            return Ok(None);
        }
        if self.pool.links >= self.settings.all_connections && !self.end_oldest(engine) {
            if !std::mem::replace(&mut self.pool.site(site).is_starved, true) {
                self.starved.push_back(site);
            }
            self.has_room = false;
            return Ok(None);
        }
        let now = engine.now();
        let of = self.pool.site(site);
        let addresses = match &of.addresses {
            Addresses::Fixed(all) => all.clone(),
            Addresses::Found(all, until) if *until > now => all.clone(),
            Addresses::Missing(errno, until) if *until > now => {
                let host = of.origin.host.clone();
                return Err(FetchError::LookUp { host, errno: *errno });
            }
            Addresses::Awaited => return Ok(None),
            _ => {
                let (host, port) = (of.origin.host.clone(), of.origin.port);
                of.addresses = Addresses::Awaited;
                engine.submit(Op::lookup_host(host, port).token(LOOK_UP | u64::from(site)));
                return Ok(None);
            }
        };
        let number = self.free_links.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() as u32 - 1
        });
        let (options, state) = (ConnectOptions::default(), S::of_link(number));
        #[cfg(feature = "tls")]
        let begun = match &of.tls {
            Some(to) => engine.connect_tls(addresses, options, to, state),
            None => engine.connect(addresses, options, state),
        };
        #[cfg(not(feature = "tls"))]
        let begun = engine.connect(addresses, options, state);
        let Ok(id) = begun else {
            self.free_links.push(number);
            return Err(FetchError::Refused);
        };
        of.links += 1;
        self.pool.links += 1;
        self.links[number as usize] = Some(Link::new(id, site, now));
        Ok(Some(number))
    }

    /// Ends the link that has been idle for longest. False if none is idle.
    fn end_oldest<S: LinkState>(&mut self, engine: &mut Engine<S>) -> bool {
        let idle = self.pool.sites.iter().flat_map(|site| &site.idle);
        let since = |number: &&u32| self.links[**number as usize].as_ref().map(|l| l.idle_since);
        let Some(&oldest) = idle.min_by_key(since) else { return false };
        self.let_go(engine, oldest);
        true
    }

    /// Sends a call on a link.
    fn assign<S: LinkState>(&mut self, engine: &mut Engine<S>, at: u32, number: u32) {
        let call = &mut self.calls[at as usize];
        let Some(link) = self.links[number as usize].as_mut() else { return };
        link.call = Some(at);
        (link.has_heard, link.keeps, link.is_at_end) = (false, false, false);
        link.decoder.expect(call.asked);
        call.link = Some(number);
        link.write(engine, &call.request);
        let phase = if link.is_open { FetchPhase::Head } else { FetchPhase::Connect };
        link.has_drained = link.is_open && call.fetch.is_none();
        if link.has_drained {
            self.ready.push_back(number);
        }
        if !self.calls[at as usize].is_held {
            self.send_body(engine, at);
        }
        if self.calls[at as usize].link == Some(number) {
            self.set_phase(engine, at, phase); // its body could be sent
        }
    }

    /// Sends the body of a call that has a link, as far as that has room.
    pub(super) fn send_body<S: LinkState>(&mut self, engine: &mut Engine<S>, at: u32) {
        let call = &mut self.calls[at as usize];
        call.is_held = false;
        let link = call.link.and_then(|number| self.links[number as usize].as_mut());
        let Some(id) = link.and_then(|link| link.id) else { return };
        if let Some(large) = &call.large {
            // Kept, so that it can be sent again.
            if let Err(refused) = engine.write(id, Buf::from(large.clone()))
                && refused.reason != Refusal::Stale
            {
                return self.fail_call(engine, at, FetchError::Refused);
            }
        } else if call.sender.is_some() && call.fetch.is_some() && !self.send_parts(engine, at, id)
        {
            return self.fail_call(engine, at, FetchError::Source);
        }
        let number = self.calls[at as usize].link;
        if let Some(link) = number.and_then(|number| self.link(number)) {
            link.hear(engine);
        }
    }

    /// Sends what the source of a body makes, while there is room. False if it has failed.
    fn send_parts<S>(&mut self, engine: &mut Engine<S>, at: u32, id: Id) -> bool {
        let call = &mut self.calls[at as usize];
        let body = call.fetch.as_mut().map(|fetch| &mut fetch.body);
        let Some(FetchBody::Source(source, _)) = body else { return true };
        let (mut bytes, mut empty) = (Vec::new(), 0);
        while !engine.is_full(id) {
            bytes.clear();
            self.out.clear();
            let Some(sender) = &mut call.sender else { return true };
            let hold = || (engine.hold(id, 0), engine.budget().clone());
            let remote = &self.remote;
            let to = At { remote, id, has_peer_ended: false, is_full: false, hold: &hold };
            let made = AssertUnwindSafe(|| source.next(&mut Part::new(&mut bytes, to)));
            let Ok(flow) = catch_unwind(made) else { return false };
            if flow == Flow::Fail || sender.data(&mut self.out, &bytes).is_err() {
                return false;
            }
            if flow == Flow::End {
                let ended = call.sender.take().map(|sender| sender.end(&mut self.out));
                if ended.is_some_and(|ended| ended.is_err()) {
                    return false;
                }
            }
            if !self.out.is_empty() && engine.write_slice(id, &self.out).is_err() {
                engine.abort(id);
                return true;
            }
            empty = if bytes.is_empty() { empty + 1 } else { 0 };
            match flow {
                Flow::More if empty <= EMPTY_PARTS => {}
                Flow::More => return false,
                _ => return true,
            }
        }
        true
    }

    /// Ends a call that goes no further, and its link.
    pub(super) fn fail_call<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        at: u32,
        error: FetchError,
    ) {
        let call = &mut self.calls[at as usize];
        let Some(requester) = call.requester else { return };
        let mut reached = Reached::Nothing;
        if let Some(number) = call.link.take() {
            reached = self.link(number).map_or(reached, |link| link.reached());
            self.let_go(engine, number);
        }
        self.free_call(at);
        self.over.push_back(failed(requester, error, reached));
    }

    /// Ends a link at once.
    pub(super) fn let_go<S: LinkState>(&mut self, engine: &mut Engine<S>, number: u32) {
        self.leave(number);
        match self.links[number as usize].as_ref().map(|link| link.id) {
            Some(Some(id)) => _ = engine.abort(id),
            Some(None) => {
                self.links[number as usize] = None;
                self.free_links.push(number);
            }
            None => {}
        }
    }

    /// Ends a link whose last response is whole.
    pub(super) fn retire<S: LinkState>(&mut self, engine: &mut Engine<S>, number: u32) {
        match self.links[number as usize].as_ref().map(|link| link.id) {
            Some(Some(id)) => {
                self.leave(number);
                engine.close(id);
            }
            _ => self.let_go(engine, number),
        }
    }

    /// A link counts no more.
    pub(super) fn leave(&mut self, number: u32) {
        let Some(link) = self.links[number as usize].as_mut() else { return };
        link.call = None;
        if !std::mem::replace(&mut link.is_leaving, true) {
            let site = link.site;
            self.pool.leaves(site, number);
            self.to_pump.push_back(site);
            self.has_room = true;
        }
    }

    /// The next server whose waiting calls may have a link now. Those that wait for a link of any
    /// server come first, each for one in its turn: the links of its own may never be enough.
    pub(super) fn next_to_pump(&mut self) -> Option<u32> {
        if self.has_room
            && let Some(site) = self.starved.pop_front()
        {
            self.pool.site(site).is_starved = false;
            return Some(site);
        }
        self.to_pump.pop_front()
    }
}

/// What a caller gets in the place of a response.
pub(super) fn failed(requester: Requester, error: FetchError, reached: Reached) -> Step {
    match requester {
        Requester::Stream(_) | Requester::OwnStream(_) => Step::Failed(requester, error, reached),
        _ => Step::Done(requester, Err(error)),
    }
}
