//! The field `Date`.
//!
//! # Why
//! It is formatted once a second, by the clock of the loop, which is read once a turn.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The date for the responses of a loop, as RFC 9110, 5.6.7 has it: 29 bytes.
pub(crate) struct Date {
    text: [u8; 29],
    /// When the text was made.
    made: Option<Instant>,
    /// The time of day at an instant, where the time of day is not the system's.
    start: Option<(Instant, SystemTime)>,
}

/// The second in which a simulation begins: a fixed one, so that a seed has one trace.
const SIMULATED: Duration = Duration::from_secs(1_767_225_600);

impl Date {
    pub(crate) fn new() -> Date {
        Date { text: *b"Thu, 01 Jan 1970 00:00:00 GMT", made: None, start: None }
    }

    /// Counts from a fixed date on, which `now` is: for virtual time.
    pub(crate) fn simulate(&mut self, now: Instant) {
        (self.start, self.made) = (Some((now, UNIX_EPOCH + SIMULATED)), None);
    }

    /// The text at the time `now` of the loop.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant) -> &str {
        const SECOND: Duration = Duration::from_secs(1);
        if self.made.is_none_or(|made| now.saturating_duration_since(made) >= SECOND) {
            self.make(now);
        }
        std::str::from_utf8(&self.text).unwrap_or("")
    }

    #[cold]
    fn make(&mut self, now: Instant) {
        let time = match self.start {
            Some((start, date)) => date + now.saturating_duration_since(start),
            None => SystemTime::now(),
        };
        let text = httpdate::fmt_http_date(time);
        if let Ok(text) = text.as_bytes().try_into() {
            self.text = text;
        }
        // The text changes with the second of the date, not a second after it was made.
        let passed = time.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        self.made = Some(now.checked_sub(Duration::from_nanos(passed.into())).unwrap_or(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_lasts_a_second() {
        let (mut date, start) = (Date::new(), Instant::now());
        date.simulate(start);
        let first = date.at(start).to_owned();
        assert_eq!(first, "Thu, 01 Jan 2026 00:00:00 GMT");
        assert_eq!(date.at(start + Duration::from_millis(999)), first);
        assert_eq!(date.at(start + Duration::from_secs(1)), "Thu, 01 Jan 2026 00:00:01 GMT");
    }
}
