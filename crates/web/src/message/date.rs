//! The field `Date`.
//!
//! # Why
//! It is formatted once a second, by the clock of the loop, which is read once a turn.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use windlass_http1::FixedField;

/// The date for the responses of a loop, as RFC 9110, 5.6.7 has it: 29 bytes.
pub(crate) struct Date {
    field: FixedField,
    /// When the text changes.
    until: Option<Instant>,
    /// The time of day at an instant, where the time of day is not the system's.
    start: Option<(Instant, SystemTime)>,
}

/// The second in which a simulation begins: a fixed one, so that a seed has one trace.
const SIMULATED: Duration = Duration::from_secs(1_767_225_600);

impl Date {
    pub(crate) fn new() -> Date {
        let field = FixedField::new("Date", "").expect("a name and a value");
        Date { field, until: None, start: None }
    }

    /// Counts from a fixed date on, which `now` is: for virtual time.
    pub(crate) fn simulate(&mut self, now: Instant) {
        (self.start, self.until) = (Some((now, UNIX_EPOCH + SIMULATED)), None);
    }

    /// The field at the time `now` of the loop.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant) -> &FixedField {
        if self.until.is_none_or(|until| now >= until) {
            self.make(now);
        }
        &self.field
    }

    /// The time of day at the time `now` of the loop.
    pub(crate) fn time(&self, now: Instant) -> SystemTime {
        match self.start {
            Some((start, date)) => date + now.saturating_duration_since(start),
            None => SystemTime::now(),
        }
    }

    #[cold]
    fn make(&mut self, now: Instant) {
        let time = self.time(now);
        let mut text = [0; 29];
        let is_whole = write!(&mut text[..], "{}", httpdate::HttpDate::from(time)).is_ok();
        if !is_whole || self.field.set(text).is_err() {
            return; // a year beyond 9999 has no such form
        }
        // The text changes with the second of the date, not a second after it was made.
        let passed = time.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        self.until = Some(now + Duration::from_nanos(1_000_000_000 - u64::from(passed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_lasts_a_second() {
        let (mut date, start) = (Date::new(), Instant::now());
        date.simulate(start);
        let mut at = |ms| date.at(start + Duration::from_millis(ms)).value().to_vec();
        assert_eq!(at(0), b"Thu, 01 Jan 2026 00:00:00 GMT");
        assert_eq!(at(999), b"Thu, 01 Jan 2026 00:00:00 GMT");
        assert_eq!(at(1000), b"Thu, 01 Jan 2026 00:00:01 GMT");
    }
}
