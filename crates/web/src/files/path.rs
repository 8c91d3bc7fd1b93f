//! Paths of requests into paths below a directory.
//!
//! # Why
//! A path is split at its slashes first, and each part is decoded once. So `%2f` never becomes a
//! separator, and what is `..` behind the decoding is refused, whatever it was before. Nothing is
//! resolved here: `a/../b` has no file, although a file system would find one. Clients resolve `..`
//! before they send (RFC 3986, 5.2.4).

use std::borrow::Cow;

/// The longest name that file systems have, in bytes.
const LONGEST_NAME: usize = 255;

/// The longest path that systems take, in bytes.
const LONGEST_PATH: usize = 4095;

/// Which names are served.
#[derive(Clone, Copy)]
pub(crate) struct ServedNames {
    /// Whether those with a dot in front are.
    pub(crate) hidden: bool,
    /// Whether the rules of Windows hold, where a name can mean a drive, a stream or a device.
    pub(crate) windows: bool,
}

/// A path below a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Below<'a> {
    /// The names, with slashes between them; empty for the directory itself.
    pub(crate) path: Cow<'a, str>,
    /// Whether a slash is behind it, so that it names a directory.
    pub(crate) is_directory: bool,
}

impl ServedNames {
    /// The path below a directory that a part of a request's path means; `None` if no file can be
    /// there.
    pub(crate) fn below<'a>(&self, part: &'a str) -> Option<Below<'a>> {
        if part.len() > 3 * LONGEST_PATH {
            return None;
        }
        let (names, is_directory) = match part.strip_suffix('/') {
            Some(names) => (names, true),
            None => (part, part.is_empty()),
        };
        if names.is_empty() {
            // `/` behind the route's own slash would be an empty name.
            return part.is_empty().then_some(Below { path: Cow::Borrowed(""), is_directory });
        }
        if !names.contains('%') {
            let are_served = names.split('/').all(|name| self.serves(name));
            let is_short = names.len() <= LONGEST_PATH;
            let path = Cow::Borrowed(names);
            return (are_served && is_short).then_some(Below { path, is_directory });
        }
        let mut path = String::with_capacity(names.len());
        for (at, name) in names.split('/').enumerate() {
            let name = decode(name)?;
            if name.contains('/') || !self.serves(&name) {
                return None;
            }
            if at > 0 {
                path.push('/');
            }
            path.push_str(&name);
        }
        let is_short = path.len() <= LONGEST_PATH;
        is_short.then_some(Below { path: Cow::Owned(path), is_directory })
    }

    fn serves(&self, name: &str) -> bool {
        let is_dots = matches!(name, "" | "." | "..");
        let is_hidden = name.starts_with('.') && !self.hidden;
        // Some servers and file systems take a backslash for a slash.
        let has_foreign = name.bytes().any(|byte| matches!(byte, 0 | b'\\'));
        let is_refused = is_dots || is_hidden || has_foreign || name.len() > LONGEST_NAME;
        let is_foreign = || is_special_on_windows(name) || is_short_name(name);
        !(is_refused || self.windows && is_foreign())
    }
}

/// A part without its percent-encoding; `None` if that is malformed, or no UTF-8.
fn decode(part: &str) -> Option<Cow<'_, str>> {
    let mut escapes = part.split('%').skip(1);
    let is_hex = |escape: &str| {
        escape.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    };
    if !escapes.all(is_hex) {
        return None;
    }
    percent_encoding::percent_decode_str(part).decode_utf8().ok()
}

/// Whether a name means more than a file there: a drive or a stream (`c:`, `a.txt::$DATA`), a
/// device (`con`, `nul.txt`), or another name (`a.` is `a`).
pub(crate) fn is_special_on_windows(name: &str) -> bool {
    const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];
    let is_numbered = |stem: &str, port: &str| {
        let number = stem.strip_prefix(port).unwrap_or("");
        let mut chars = number.chars();
        matches!((chars.next(), chars.next()), (Some('0'..='9' | '¹' | '²' | '³'), None))
    };
    let stem = name.split('.').next().unwrap_or("").trim_end_matches(' ').to_lowercase();
    let is_device = DEVICES.contains(&&*stem);
    let has_special = name.chars().any(|c| c < ' ' || "<>:\"|?*".contains(c));
    has_special
        || name.ends_with(['.', ' '])
        || is_device
        || is_numbered(&stem, "com")
        || is_numbered(&stem, "lpt")
}

/// Whether a name has the form of the second ones that Windows gives to files: `GIT~1` can be
/// `.git`, and `HTACCE~1` can be `.htaccess`.
pub(crate) fn is_short_name(name: &str) -> bool {
    let (stem, end) = name.split_once('.').unwrap_or((name, ""));
    let number = stem.rsplit_once('~').map_or("", |(_, number)| number);
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && stem.chars().count() <= 8 && end.chars().count() <= 3
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: ServedNames = ServedNames { hidden: false, windows: false };

    fn path(part: &str) -> Option<String> {
        NAMES.below(part).map(|below| below.path.into_owned())
    }

    #[test]
    fn names_are_decoded_once() {
        for (part, file) in [
            ("", ""),
            ("a", "a"),
            ("a/b.txt", "a/b.txt"),
            ("a/", "a"),
            ("%61%2Eb", "a.b"),
            ("a%20b", "a b"),
            ("a+b", "a+b"),
            ("%25", "%"),
            ("%252e%252e/a", "%2e%2e/a"),
            ("%e2%82%ac", "€"),
            ("a..b/...c...", "a..b"),
            ("a:b", "a:b"),
            ("~", "~"),
            ("con", "con"),
        ] {
            let wanted = if part.contains("...") { None } else { Some(file.to_owned()) };
            assert_eq!(path(part), wanted, "{part}");
        }
        let is_directory = |part: &str| NAMES.below(part).unwrap().is_directory;
        assert!(is_directory("") && is_directory("a/") && !is_directory("a"));
    }

    #[test]
    fn nothing_leads_out() {
        let long = "a".repeat(256);
        let deep = "a/".repeat(2049);
        for part in [
            "..",
            "../",
            "../a",
            "a/..",
            "a/../b",
            ".",
            "a/./b",
            "./a",
            "%2e%2e/a",
            "%2E%2e",
            ".%2e",
            "%2e",
            "..%2fa",
            "a%2fb",
            "%2fetc",
            "a%5cb",
            "..\\a",
            "a\\..\\b",
            "%5c",
            "a%00b",
            "%00",
            "a//b",
            "//a",
            "/",
            "/a",
            "a//",
            "%",
            "%4",
            "%zz",
            "%+1",
            "%%35",
            "a/%",
            "%ff",
            "%c0%ae",
            "%c0%af",
            ".git/config",
            "a/.b",
            "%2egit",
            ".a",
            "%u002e",
            &long,
            &deep,
        ] {
            assert_eq!(path(part), None, "{part:.80}");
        }
    }

    #[test]
    fn names_with_a_dot_in_front_are_served_if_asked() {
        let names = ServedNames { hidden: true, ..NAMES };
        assert!(names.below(".well-known/acme").is_some() && names.below("%2ea").is_some());
        for part in ["..", ".", "a/..", "%2e%2e", "./a"] {
            assert_eq!(names.below(part), None, "{part}");
        }
    }

    #[test]
    fn windows_has_names_that_mean_more() {
        let names = ServedNames { windows: true, ..NAMES };
        for part in [
            "c:",
            "C:/a",
            "a.txt::$DATA",
            "a%3ab",
            "con",
            "CON",
            "nul.txt",
            "aux .x",
            "com1",
            "LPT9.a",
            "a.",
            "a%20",
            "a*",
            "a%3f",
            "%01",
            "a%7cb",
            "conin$",
            "com¹",
            "GIT~1",
            "git~1/config",
            "HTACCE~1",
            "gi7eba~1",
            "a%7e12.htm",
        ] {
            assert_eq!(names.below(part), None, "{part}");
        }
        for part in [
            "a",
            "com",
            "com10",
            "lpt",
            "console",
            "a.b",
            "null",
            "auxiliary.txt",
            "a~",
            "a~b",
            "~1a",
            "a~1.html",
            "abcdefgh~1",
        ] {
            assert!(names.below(part).is_some(), "{part}");
        }
    }
}
