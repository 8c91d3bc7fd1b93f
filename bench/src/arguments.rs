//! Words of the command line: a command, its operands, and options `--name value`.

use std::collections::VecDeque;
use std::io;
use std::str::FromStr;

pub struct Arguments(VecDeque<String>);

impl Arguments {
    pub fn from_env() -> Arguments {
        Arguments(std::env::args().skip(1).collect())
    }

    pub fn from_words(words: &[&str]) -> Arguments {
        Arguments(words.iter().map(ToString::to_string).collect())
    }

    /// The next word.
    pub fn next(&mut self) -> Option<String> {
        self.0.pop_front()
    }

    /// The next word, which must be there.
    pub fn require<T: FromStr>(&mut self, what: &str) -> io::Result<T> {
        let word = self.next().ok_or_else(|| invalid(format!("{what} is missing")))?;
        word.parse().map_err(|_| invalid(format!("{word:?} is no {what}")))
    }

    /// The value of `--name`, or `default`.
    pub fn option<T: FromStr>(&mut self, name: &str, default: T) -> io::Result<T> {
        let Some(at) = self.0.iter().position(|word| word == name) else { return Ok(default) };
        self.0.remove(at);
        let value = self.0.remove(at).ok_or_else(|| invalid(format!("{name} wants a value")))?;
        value.parse().map_err(|_| invalid(format!("{name} cannot be {value:?}")))
    }

    /// All words that are left.
    pub fn rest(&mut self) -> Vec<String> {
        self.0.drain(..).collect()
    }

    /// Fails if words are left.
    pub fn end(&self) -> io::Result<()> {
        match self.0.front() {
            Some(word) => Err(invalid(format!("{word:?} is not understood"))),
            None => Ok(()),
        }
    }
}

pub fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
