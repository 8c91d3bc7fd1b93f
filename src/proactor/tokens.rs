//! Tokens of sources: what their operations carry that have none of their own.
//!
//! A source with a token lacks the flag `BYTES`, so that the usual reads and writes, which look for
//! it, need not look for a token.

use super::*;
use crate::source::SourceKind;

impl<K: Kernel> Proactor<K> {
    /// The token of an operation on this source whose own token is `own`.
    #[inline]
    pub(super) fn token(&self, source: Source, own: u64) -> u64 {
        if own != 0 || self.tokens.is_empty() { own } else { self.token_of(source) }
    }

    /// The token of a source. (A stale name is refused later.)
    #[cold]
    fn token_of(&self, source: Source) -> u64 {
        self.tokens.get(source.index() as usize).copied().unwrap_or(0)
    }

    /// Gives a source a token; 0 takes it away.
    pub(super) fn give_token(&mut self, source: Source, token: u64) -> Result<(), Reason> {
        self.check_fork()?;
        self.take_arrived(source);
        let stale = self.why_missing(source);
        let state = self.state(source).filter(|state| !state.has(RESERVED | CONNECTING));
        state.ok_or(stale)?;
        self.put_token(source.index(), token);
        Ok(())
    }

    /// As `give_token`, for a source that is known to exist.
    pub(super) fn put_token(&mut self, index: u32, token: u64) {
        let state = &mut self.sources[index];
        let index = index as usize;
        let plain = token == 0 && state.has(PREPARED) && state.takes_bytes();
        state.flags = state.flags & !BYTES | if plain { BYTES } else { 0 };
        if index >= self.tokens.len() {
            if token == 0 {
                return;
            }
            self.tokens.resize(index + 1, 0);
        }
        self.tokens[index] = token;
    }

    /// A source is prepared: if it has a token, its operations take the longer way.
    pub(super) fn mark_token(&mut self, index: u32) {
        if self.tokens.get(index as usize).is_some_and(|&token| token != 0) {
            self.sources[index].flags &= !BYTES;
        }
    }

    /// The token of a source that goes is not its successor's.
    #[inline]
    pub(super) fn drop_token(&mut self, index: u32) {
        if let Some(token) = self.tokens.get_mut(index as usize) {
            *token = 0;
        }
    }
}

impl State {
    /// Whether the source takes reads and writes of bytes, once it is prepared: it is no listener,
    /// no file, and no source of signals or of a child.
    pub(super) fn takes_bytes(&self) -> bool {
        let kind = self.kind();
        !matches!(kind, SourceKind::Listener | SourceKind::File) && !kind.is_of_process()
    }
}
