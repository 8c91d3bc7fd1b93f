//! The shutdown of a loop: its beginning, its end, and what it waits for.

use windlass::driver::Driver;
use windlass::{Op, Watcher};

use super::ServerLoop;
use crate::log::LogEvent;
use crate::server::handler::Handler;
use crate::server::signals::OWN;
use crate::words::cause::Cause;
use crate::words::id::Id;

impl<H: Handler> ServerLoop<H> {
    /// Begins the shutdown: no more accepts, and every connection closes when its output is out.
    /// With a [grace](crate::Server::grace) they close after it, or with the second call.
    pub fn stop<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.stops = true;
        if std::mem::replace(&mut self.stopping, true) {
            return self.close_all();
        }
        // Every loop shuts down. This one may be the first to know.
        self.remote.shutdown();
        self.engine.stop_listening(watcher);
        self.descriptor_shortages = watcher.counters().descriptor_shortages;
        self.engine.log(LogEvent::ShutdownBegun {
            connections: self.engine.len(),
            descriptor_shortages: self.descriptor_shortages,
        });
        let mut is_told = false;
        self.guarded(|this| {
            if !std::mem::replace(&mut is_told, true) {
                this.call_without(|handler, context| handler.stopping(context));
            }
        });
        if !self.grace.is_zero() {
            let timer = watcher.submit(Op::timer(self.grace).token(OWN));
            self.grace_timer = timer.ok();
            // It completes behind the connections that were accepted before the listeners closed.
            self.last_accepts = watcher.submit(Op::nop().token(OWN)).ok();
        }
        if self.grace_timer.is_none() {
            self.close_all();
        }
    }

    /// Refuses connections, and closes those that are open.
    pub(super) fn close_all(&mut self) {
        self.engine.refuse_all();
        let mut is_told = false;
        self.guarded(|this| {
            if !std::mem::replace(&mut is_told, true) {
                this.call_without(|handler, context| handler.grace_over(context));
            }
        });
        let ids: Vec<Id> = self.engine.ids().collect();
        for id in ids {
            self.engine.close_as(id, Cause::Shutdown);
        }
    }

    /// The server is over, and its counts no longer change. False if another loop has handed a
    /// connection over meanwhile, which this loop still serves.
    #[cold]
    pub(super) fn finish<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> bool {
        if !self.engine.close_inbox() {
            return false;
        }
        if !std::mem::replace(&mut self.is_over, true) {
            self.engine.log(LogEvent::ShutdownEnded { unfinished: self.unfinished.len() });
        }
        self.engine.refuse_all();
        if let Some(timer) = self.grace_timer.take() {
            watcher.cancel(timer);
        }
        // Timers of the program, for example.
        self.engine.give_up_ops(watcher);
        if !self.signals.outlives {
            self.signals.give_back(watcher);
        }
        true
    }

    /// Whether the server has shut down, has called `closed` for every connection, and has sent its
    /// datagrams and farewells. It waits for the jobs of
    /// [`Engine::must_execute`](crate::Engine::must_execute) and the operations of
    /// [`Engine::submit`](crate::Engine::submit), for at most
    /// [`Limits::close`](crate::Limits::close) after the last connection has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether nothing is left to do. Then the next step ends the loop.
    pub(super) fn has_ended(&self) -> bool {
        self.stopping
            && self.last_accepts.is_none()
            && self.engine.is_empty()
            && !self.engine.has_events()
            && !self.engine.sends_datagrams()
            && !self.engine.says_farewells()
            && !self.engine.waits_for_last_jobs()
    }
}
