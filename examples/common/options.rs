//! Options on the command line.

use std::str::FromStr;

/// Options of the form `--name value`.
pub(crate) struct Options {
    usage: &'static str,
    words: Vec<String>,
}

impl Options {
    /// Those that the program was started with.
    pub(crate) fn new(usage: &'static str) -> Options {
        let words = std::env::args().skip(1).collect();
        Options { usage, words }
    }

    /// Takes the value of `name`, if it was given. Explains the usage and exits if the value does
    /// not parse.
    pub(crate) fn take<T: FromStr>(&mut self, name: &str) -> Option<T> {
        let at = self.words.iter().position(|word| word == name)?;
        let value = self.words.get(at + 1).and_then(|word| word.parse().ok());
        if value.is_none() {
            self.explain();
        }
        self.words.drain(at..=at + 1);
        value
    }

    /// Whether the option `name`, which has no value, was given.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| word == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// Takes the first word that is left when all options were taken; explains the usage and exits
    /// if there is none.
    pub(crate) fn word(&mut self) -> String {
        if self.words.first().is_none_or(|word| word.starts_with("--")) {
            self.explain();
        }
        self.words.remove(0)
    }

    /// Explains the usage and exits if anything is left over.
    pub(crate) fn end(self) {
        if !self.words.is_empty() {
            self.explain();
        }
    }

    fn explain(&self) -> ! {
        eprintln!("usage: {}", self.usage);
        std::process::exit(2);
    }
}
