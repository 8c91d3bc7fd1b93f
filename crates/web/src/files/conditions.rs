//! Conditional requests (RFC 9110, 13).

use std::time::UNIX_EPOCH;

use super::range::{self, Selected};
use super::validators::Validators;

/// The values of a field, which may stand on several lines.
#[derive(Default)]
struct FieldLines<'a> {
    first: Option<&'a [u8]>,
    more: Vec<&'a [u8]>,
}

impl<'a> FieldLines<'a> {
    fn add(&mut self, value: &'a [u8]) {
        match self.first {
            None => self.first = Some(value),
            Some(_) => self.more.push(value),
        }
    }

    fn all(&self) -> impl Iterator<Item = &'a [u8]> {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// The value of a field that may stand there once.
    fn single(&self) -> Option<&'a [u8]> {
        self.first.filter(|_| self.more.is_empty())
    }

    fn is_there(&self) -> bool {
        self.first.is_some()
    }
}

/// The fields of a request that the version of a file, and the part of it, depend on.
#[derive(Default)]
pub(crate) struct Conditions<'a> {
    matches: FieldLines<'a>,
    none_match: FieldLines<'a>,
    modified_since: FieldLines<'a>,
    unmodified_since: FieldLines<'a>,
    range: FieldLines<'a>,
    if_range: FieldLines<'a>,
}

/// What a request gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The file, or the part of it.
    Send(Selected),
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

impl<'a> Conditions<'a> {
    /// Those of these fields.
    pub(crate) fn of(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Conditions<'a> {
        let mut conditions = Conditions::default();
        for (name, value) in fields {
            // Most fields are told apart by their length.
            let lines = match name.len() {
                5 if name.eq_ignore_ascii_case("range") => &mut conditions.range,
                8 if name.eq_ignore_ascii_case("if-match") => &mut conditions.matches,
                8 if name.eq_ignore_ascii_case("if-range") => &mut conditions.if_range,
                13 if name.eq_ignore_ascii_case("if-none-match") => &mut conditions.none_match,
                17 if name.eq_ignore_ascii_case("if-modified-since") => {
                    &mut conditions.modified_since
                }
                19 if name.eq_ignore_ascii_case("if-unmodified-since") => {
                    &mut conditions.unmodified_since
                }
                _ => continue,
            };
            lines.add(value.trim_ascii());
        }
        conditions
    }

    /// What a `GET` or a `HEAD` gets of a file, in the order of RFC 9110, 13.2.2. `HEAD` has no
    /// ranges (14.2).
    pub(crate) fn verdict(&self, is_get: bool, file: &Validators, len: u64) -> Verdict {
        if self.matches.is_there() {
            if !has_match(&self.matches, &file.etag, true) {
                return Verdict::Failed;
            }
        } else if let (Some(date), Some(modified)) =
            (self.unmodified_since.single().and_then(date), file.modified)
            && modified > date
        {
            return Verdict::Failed;
        }
        if self.none_match.is_there() {
            if has_match(&self.none_match, &file.etag, false) {
                return Verdict::NotModified;
            }
        } else if let (Some(date), Some(modified)) =
            (self.modified_since.single().and_then(date), file.modified)
            && modified <= date
        {
            return Verdict::NotModified;
        }
        let range = self.range.single().filter(|_| is_get && self.is_same_version(file));
        Verdict::Send(range.map_or(Selected::Whole, |range| range::select(range, len)))
    }

    /// Whether `If-Range` allows a range, if it is there: the comparison is strong (13.1.5).
    fn is_same_version(&self, file: &Validators) -> bool {
        if !self.if_range.is_there() {
            return true;
        }
        let Some(value) = self.if_range.single() else { return false };
        let is_date = !value.starts_with(b"\"") && !value.starts_with(b"W/");
        let version = if is_date { &file.last_modified } else { &file.etag };
        file.is_strong() && value == version.as_bytes()
    }
}

/// The seconds of a date since 1970.
fn date(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Whether a list has a tag, or is `*`.
fn has_match(list: &FieldLines<'_>, tag: &str, is_strong: bool) -> bool {
    list.all().any(|line| line == b"*" || has_tag(line, tag.as_bytes(), is_strong))
}

fn has_tag(mut list: &[u8], tag: &[u8], is_strong: bool) -> bool {
    let opaque = tag.strip_prefix(b"W/").unwrap_or(tag);
    if is_strong && opaque.len() != tag.len() {
        return false;
    }
    loop {
        let start = list.iter().position(|byte| !matches!(byte, b',' | b' ' | b'\t'));
        let Some(start) = start else { return false };
        list = &list[start..];
        let (is_weak, quoted) = match list.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, list),
        };
        // What is no tag ends the list: it cannot be told where the next one begins.
        let Some(rest) = quoted.strip_prefix(b"\"") else { return false };
        let Some(end) = rest.iter().position(|byte| *byte == b'"') else { return false };
        if &quoted[..end + 2] == opaque && !(is_strong && is_weak) {
            return true;
        }
        list = &rest[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Failed, NotModified, Send};
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn file(etag: &str) -> Validators {
        let modified = Some(784_111_777);
        Validators { etag: etag.into(), last_modified: DATE.into(), modified }
    }

    fn verdict(fields: &[(&str, &str)], etag: &str) -> Verdict {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        Conditions::of(fields).verdict(true, &file(etag), 10)
    }

    const ALL: Verdict = Send(Selected::Whole);

    #[test]
    fn each_condition_has_its_status() {
        for (name, value, wanted) in [
            ("If-Match", "*", ALL),
            ("if-match", "\"a\"", ALL),
            ("If-Match", "\"b\", \"a\"", ALL),
            ("If-Match", "\"b\"", Failed),
            ("If-Match", "W/\"a\"", Failed),
            ("If-Match", "a", Failed),
            ("If-Match", "", Failed),
            ("If-None-Match", "*", NotModified),
            ("If-None-Match", "\"a\"", NotModified),
            ("If-None-Match", "W/\"a\"", NotModified),
            ("If-None-Match", " , \"b\" ,W/\"a\",", NotModified),
            ("If-None-Match", "\"a,b\", \"a\"", NotModified),
            ("If-None-Match", "\"b\"", ALL),
            ("If-None-Match", "\"A\"", ALL),
            ("If-None-Match", "\"a", ALL),
            ("If-None-Match", "a", ALL),
            ("If-None-Match", "w/\"a\"", ALL),
            ("If-Modified-Since", DATE, NotModified),
            ("If-Modified-Since", AFTER, NotModified),
            ("If-Modified-Since", BEFORE, ALL),
            ("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT", NotModified),
            ("If-Modified-Since", "Sun Nov  6 08:49:37 1994", NotModified),
            ("If-Modified-Since", "yesterday", ALL),
            ("If-Unmodified-Since", DATE, ALL),
            ("If-Unmodified-Since", AFTER, ALL),
            ("If-Unmodified-Since", BEFORE, Failed),
            ("If-Unmodified-Since", "0", ALL),
        ] {
            assert_eq!(verdict(&[(name, value)], "\"a\""), wanted, "{name}: {value}");
        }
        assert_eq!(verdict(&[("If-Match", "W/\"a\"")], "W/\"a\""), Failed);
        assert_eq!(verdict(&[("If-Match", "*")], "W/\"a\""), ALL);
        assert_eq!(verdict(&[("If-None-Match", "\"a\"")], "W/\"a\""), NotModified);
    }

    #[test]
    fn conditions_have_an_order() {
        for (fields, wanted) in [
            // If-Match counts, and not the date; then If-None-Match.
            (vec![("If-Match", "\"a\""), ("If-Unmodified-Since", BEFORE)], ALL),
            (vec![("If-Match", "\"b\""), ("If-None-Match", "\"a\"")], Failed),
            (vec![("If-Match", "\"a\""), ("If-None-Match", "\"a\"")], NotModified),
            (vec![("If-None-Match", "\"b\""), ("If-Modified-Since", AFTER)], ALL),
            (vec![("If-Unmodified-Since", BEFORE), ("If-None-Match", "\"a\"")], Failed),
            (vec![("Range", "bytes=1-2"), ("If-None-Match", "\"a\"")], NotModified),
            // Lists on several lines are one; dates are not.
            (vec![("If-Match", "\"b\""), ("If-Match", "\"a\"")], ALL),
            (vec![("If-None-Match", "\"b\""), ("If-None-Match", "\"a\"")], NotModified),
            (vec![("If-Modified-Since", DATE), ("If-Modified-Since", DATE)], ALL),
            (vec![("Range", "bytes=1-2"), ("Range", "bytes=1-2")], ALL),
        ] {
            assert_eq!(verdict(&fields, "\"a\""), wanted, "{fields:?}");
        }
    }

    #[test]
    fn a_range_may_depend_on_the_version() {
        let part = Send(Selected::Part(1..3));
        for (if_range, etag, is_part) in [
            ("\"a\"", "\"a\"", true),
            ("\"b\"", "\"a\"", false),
            ("W/\"a\"", "\"a\"", false),
            ("W/\"a\"", "W/\"a\"", false),
            ("\"a\"", "W/\"a\"", false),
            ("\"a\", \"b\"", "\"a\"", false),
            ("*", "\"a\"", false),
            (DATE, "\"a\"", true),
            (AFTER, "\"a\"", false),
            (BEFORE, "\"a\"", false),
            (DATE, "W/\"a\"", false),
            ("", "\"a\"", false),
        ] {
            let seen = verdict(&[("Range", "bytes=1-2"), ("If-Range", if_range)], etag);
            assert_eq!(seen == part, is_part, "{if_range} of {etag}: {seen:?}");
        }
        let fields = [("Range", b"bytes=1-2".as_slice())];
        let head = Conditions::of(fields.into_iter()).verdict(false, &file("\"a\""), 10);
        assert_eq!(head, ALL, "HEAD has no ranges");
        assert_eq!(verdict(&[("Range", "bytes=99-")], "\"a\""), Send(Selected::Nothing));
    }
}
