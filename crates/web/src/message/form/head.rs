//! The head of a part: its name, the name of its file, its type.

use std::borrow::Cow;

use httparse::{EMPTY_HEADER, Status as Parsed};
use percent_encoding::percent_decode;

use crate::words::error::Error;
use crate::words::status::Status;

/// The most fields of a part's head. Clients send three.
const FIELDS: usize = 32;

/// The head of a part of a form.
#[derive(Clone, Debug)]
pub struct PartHead {
    name: String,
    file_name: Option<String>,
    fields: Vec<(String, Vec<u8>)>,
}

/// The client has sent what is no form.
#[cold]
pub(super) fn wrong(text: &'static str) -> Error {
    Error::new(Status::BAD_REQUEST).text(text)
}

impl PartHead {
    /// Reads a head that is whole, with the empty line behind it.
    pub(super) fn parse(bytes: &[u8]) -> Result<PartHead, Error> {
        let mut fields = [EMPTY_HEADER; FIELDS];
        let fields = match httparse::parse_headers(bytes, &mut fields) {
            Ok(Parsed::Complete((_, fields))) => fields,
            Err(httparse::Error::TooManyHeaders) => {
                const MANY: &str = "the head of a part has more than 32 fields";
                return Err(Error::new(Status::CONTENT_TOO_LARGE).text(MANY));
            }
            _ => return Err(wrong("the head of a part is malformed")),
        };
        let mut all = fields.iter().filter(|field| is(field.name, "content-disposition"));
        let (Some(disposition), None) = (all.next(), all.next()) else {
            return Err(wrong("a part of the form has not one Content-Disposition"));
        };
        let (mut name, mut plain, mut extended) = (None, None, None);
        let malformed = || wrong("the Content-Disposition of a part is malformed");
        let (kind, mut params) = Params::of(disposition.value);
        if !kind.eq_ignore_ascii_case(b"form-data") {
            return Err(malformed());
        }
        for param in &mut params {
            let (key, value) = param.ok_or_else(malformed)?;
            let place = match key {
                _ if key.eq_ignore_ascii_case(b"name") => &mut name,
                _ if key.eq_ignore_ascii_case(b"filename") => &mut plain,
                _ if key.eq_ignore_ascii_case(b"filename*") => &mut extended,
                _ => continue,
            };
            // Two readers could take different ones.
            if place.replace(value).is_some() {
                return Err(malformed());
            }
        }
        let text = |bytes: Cow<'_, [u8]>| String::from_utf8_lossy(&bytes).into_owned();
        let name = name.map(text).ok_or_else(|| wrong("a part of the form has no name"))?;
        // RFC 7578 (4.2) knows no `filename*`. Some clients send both, with the plain one encoded.
        let file_name = extended.and_then(|value| decode_extended(&value)).or(plain.map(text));
        let fields = fields.iter().map(|field| (field.name.to_owned(), field.value.to_vec()));
        Ok(PartHead { name, file_name, fields: fields.collect() })
    }

    /// The name of the part: that of a field of the form. Bytes that are no UTF-8 are U+FFFD.
    ///
    /// Browsers write a quote in it as `%22`, and ends of lines as `%0D` and `%0A`. They stay so.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the file, as the client says; `None` if the part is no file. Bytes that are no
    /// UTF-8 are U+FFFD. It is empty where a browser's user has chosen no file.
    ///
    /// **It is no path**: it may be `../../etc/passwd`.
    /// [`upload::file_name`](crate::upload::file_name) refuses such ones.
    pub fn file_name(&self) -> Option<&str> {
        self.file_name.as_deref()
    }

    /// The media type that the client says; `None`, too, if it is no UTF-8.
    pub fn content_type(&self) -> Option<&str> {
        self.header("content-type")
    }

    /// The value of the first field with this name, in any case; `None`, too, if it is no UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|field| is(&field.0, name))?;
        std::str::from_utf8(&field.1).ok()
    }
}

fn is(name: &str, other: &str) -> bool {
    name.eq_ignore_ascii_case(other)
}

/// A value as `UTF-8''a%20b` (RFC 8187), if it is one.
fn decode_extended(value: &[u8]) -> Option<String> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let (charset, _language, text) = (parts.next()?, parts.next()?, parts.next()?);
    if !charset.eq_ignore_ascii_case(b"utf-8") {
        return None;
    }
    percent_decode(text).decode_utf8().ok().map(Cow::into_owned)
}

/// The parameters of a field's value: `; name="value"; name=value`.
pub(super) struct Params<'a>(&'a [u8]);

impl<'a> Params<'a> {
    /// What stands in front of the parameters, and those.
    pub(super) fn of(value: &'a [u8]) -> (&'a [u8], Params<'a>) {
        let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
        let (kind, params) = value.split_at(end);
        (kind.trim_ascii(), Params(params))
    }
}

impl<'a> Iterator for &mut Params<'a> {
    /// `None` if it is malformed; then it was the last one.
    type Item = Option<(&'a [u8], Cow<'a, [u8]>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = std::mem::take(&mut self.0).trim_ascii();
        while let Some(behind) = rest.strip_prefix(b";") {
            rest = behind.trim_ascii_start();
        }
        if rest.is_empty() {
            return None;
        }
        let Some(at) = rest.iter().position(|byte| matches!(byte, b'=' | b';' | b'"')) else {
            return Some(None);
        };
        let (key, value) = (rest[..at].trim_ascii_end(), &rest[at..]);
        let Some(value) = value.strip_prefix(b"=").filter(|_| !key.is_empty()) else {
            return Some(None);
        };
        let value = value.trim_ascii_start();
        let found = match value.strip_prefix(b"\"") {
            Some(quoted) => unquote(quoted),
            None => {
                let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
                Some((Cow::Borrowed(value[..end].trim_ascii_end()), &value[end..]))
            }
        };
        let Some((value, behind)) = found else { return Some(None) };
        // Something else behind a quoted value would have two readings.
        if !behind.is_empty() && !behind.trim_ascii_start().starts_with(b";") {
            return Some(None);
        }
        self.0 = behind;
        Some(Some((key, value)))
    }
}

/// The text up to a quote, and what is behind that. `\"` and `\\` are one byte. All other
/// backslashes are themselves: old browsers send paths of Windows.
fn unquote(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let mut at = 0;
    let mut is_escaped = false;
    loop {
        match text.get(at)? {
            b'"' => break,
            b'\\' if matches!(text.get(at + 1), Some(b'"' | b'\\')) => {
                is_escaped = true;
                at += 2;
            }
            _ => at += 1,
        }
    }
    let (value, behind) = (&text[..at], &text[at + 1..]);
    if !is_escaped {
        return Some((Cow::Borrowed(value), behind));
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut bytes = value.iter();
    while let Some(&byte) = bytes.next() {
        let next = bytes.as_slice().first().copied();
        if byte == b'\\' && matches!(next, Some(b'"' | b'\\')) {
            plain.extend(bytes.next());
        } else {
            plain.push(byte);
        }
    }
    Some((Cow::Owned(plain), behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disposition: &str) -> Result<(String, Option<String>), u16> {
        let head = format!("Content-Disposition: {disposition}\r\nContent-Type: text/x\r\n\r\n");
        let head = PartHead::parse(head.as_bytes()).map_err(|error| error.status().code())?;
        assert_eq!(head.content_type(), Some("text/x"));
        Ok((head.name().to_owned(), head.file_name().map(str::to_owned)))
    }

    #[test]
    fn names_of_parts_and_files() {
        let cases = [
            ("form-data; name=\"a\"", Ok(("a", None))),
            ("Form-Data;NAME=a", Ok(("a", None))),
            ("form-data; name=\"a;b\"; filename=\"c=d; name=e\"", Ok(("a;b", Some("c=d; name=e")))),
            ("form-data; name=\"a\"; filename=\"\"", Ok(("a", Some("")))),
            ("form-data; name=\"a\\\"b\"; filename=\"\\\\x\"", Ok(("a\"b", Some("\\x")))),
            (
                "form-data; name=\"a%22b\"; filename=\"C:\\dir\\f\"",
                Ok(("a%22b", Some("C:\\dir\\f"))),
            ),
            // .NET sends both, without quotes.
            ("form-data; name=a; filename=b; filename*=utf-8''b%20c", Ok(("a", Some("b c")))),
            ("form-data; name=a; filename*=UTF-8'en'%C3%A4", Ok(("a", Some("ä")))),
            ("form-data; name=a; filename=b; filename*=latin1''%E4", Ok(("a", Some("b")))),
            ("form-data; name=\"ä\";", Ok(("ä", None))),
            ("form-data; name=\"\"", Ok(("", None))),
            ("form-data", Err(400)),
            ("form-data; filename=b", Err(400)),
            ("attachment; name=a", Err(400)),
            ("form-data; name=a; name=b", Err(400)),
            ("form-data; name=a; filename=b; FILENAME=c", Err(400)),
            ("form-data; name=\"a", Err(400)),
            ("form-data; name=\"a\"b", Err(400)),
            ("form-data; name", Err(400)),
            ("form-data; =a", Err(400)),
        ];
        for (disposition, expected) in cases {
            let expected = expected.map(|(name, file): (&str, Option<&str>)| {
                (name.to_owned(), file.map(str::to_owned))
            });
            assert_eq!(read(disposition), expected, "{disposition}");
        }
    }

    #[test]
    fn heads_without_one_disposition_are_refused() {
        let one = "Content-Disposition: form-data; name=a\r\n";
        let many = format!("{one}{}\r\n", "A: b\r\n".repeat(32));
        let cases = [
            ("\r\n".to_owned(), 400),
            ("Content-Type: text/x\r\n\r\n".to_owned(), 400),
            (format!("{one}{one}\r\n"), 400),
            (format!("{one} folded: x\r\n\r\n"), 400),
            (format!("{one}no colon\r\n\r\n"), 400),
            (many, 413),
        ];
        for (head, status) in cases {
            let error = PartHead::parse(head.as_bytes()).expect_err("it is refused");
            assert_eq!(error.status().code(), status, "{head:?}");
        }
    }
}
