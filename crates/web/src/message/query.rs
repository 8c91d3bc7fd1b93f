//! Names and values in queries and forms, and percent-encoding in paths.

use std::borrow::Cow;

/// The names and values of a query or of a form, decoded: `+` is a space, and bytes that are no
/// UTF-8 are U+FFFD. A name may come several times.
#[derive(Clone, Debug, Default)]
pub struct Pairs<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Pairs<'a> {
    pub(crate) fn parse(text: &'a [u8]) -> Pairs<'a> {
        Pairs(form_urlencoded::parse(text).collect())
    }

    /// The first value with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|pair| pair.0 == name).map(|(_, value)| &**value)
    }

    /// Names and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// A part of a path without its percent-encoding. Bytes that are no UTF-8 become U+FFFD.
pub(crate) fn decode(part: &str) -> Cow<'_, str> {
    percent_encoding::percent_decode_str(part).decode_utf8_lossy()
}
