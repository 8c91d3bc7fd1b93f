//! Lists in the values of fields.

/// Space around `bytes` is taken off.
fn trim(bytes: &[u8]) -> &[u8] {
    let is_inner = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = bytes.iter().position(is_inner).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(is_inner).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// The value of a field that comes once. `None` if it is missing, repeated, or has bytes above 127.
pub(super) fn only<'a, V: AsRef<[u8]> + ?Sized + 'a>(
    values: impl IntoIterator<Item = &'a V>,
) -> Option<&'a str> {
    let mut values = values.into_iter();
    let value = values.next()?;
    if values.next().is_some() || !value.as_ref().is_ascii() {
        return None;
    }
    str::from_utf8(trim(value.as_ref())).ok()
}

/// The elements of a list without quoted strings.
pub(super) fn elements<V: AsRef<[u8]> + ?Sized>(value: &V) -> impl Iterator<Item = &[u8]> {
    value.as_ref().split(|byte| *byte == b',').map(trim).filter(|element| !element.is_empty())
}

/// Whether these bytes are a token of RFC 9110, section 5.6.2.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_part)
}

/// What a list of extensions breaks: its grammar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// The name of a parameter, and its value without quotes. The escapes of the value are left.
type Param<'a> = (&'a [u8], Option<&'a [u8]>);

/// An extension of a list, with its parameters as they are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extension<'a> {
    pub(super) name: &'a [u8],
    params: &'a [u8],
}

impl<'a> Extension<'a> {
    pub(super) fn params(self) -> impl Iterator<Item = Param<'a>> {
        let mut cursor = ListText(self.params);
        std::iter::from_fn(move || cursor.param().ok()?)
    }
}

/// The extensions of the value of a `Sec-WebSocket-Extensions`. The last item is the error, if
/// there is one.
pub(super) fn extensions<V: AsRef<[u8]> + ?Sized>(
    value: &V,
) -> impl Iterator<Item = Result<Extension<'_>, Malformed>> {
    let mut cursor = ListText(value.as_ref());
    std::iter::from_fn(move || {
        let next = cursor.extension();
        if next.is_err() {
            cursor.0 = &[];
        }
        next.transpose()
    })
}

/// What is left of a value.
struct ListText<'a>(&'a [u8]);

impl<'a> ListText<'a> {
    fn skip_space(&mut self) {
        let space = self.0.iter().take_while(|byte| matches!(byte, b' ' | b'\t'));
        self.0 = &self.0[space.count()..];
    }

    /// Skips space, and then this byte, if it comes.
    fn eat(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_there = self.0.first() == Some(&byte);
        self.0 = &self.0[usize::from(is_there)..];
        is_there
    }

    /// The next extension, if there is one. Elements of the list may be empty.
    fn extension(&mut self) -> Result<Option<Extension<'a>>, Malformed> {
        while self.eat(b',') {}
        if self.0.is_empty() {
            return Ok(None);
        }
        let name = self.token()?;
        let from = self.0;
        while self.param()?.is_some() {}
        let params = &from[..from.len() - self.0.len()];
        if !self.eat(b',') && !self.0.is_empty() {
            return Err(Malformed);
        }
        Ok(Some(Extension { name, params }))
    }

    /// The next parameter, if there is one.
    fn param(&mut self) -> Result<Option<Param<'a>>, Malformed> {
        if !self.eat(b';') {
            return Ok(None);
        }
        self.skip_space();
        let name = self.token()?;
        let value = match self.eat(b'=') {
            false => None,
            true if self.eat(b'"') => Some(self.quoted()?),
            true => Some(self.token()?),
        };
        Ok(Some((name, value)))
    }

    fn token(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.0.iter().take_while(|byte| is_token(&[**byte])).count();
        let (token, rest) = self.0.split_at(len);
        self.0 = rest;
        if token.is_empty() { Err(Malformed) } else { Ok(token) }
    }

    /// The rest of a quoted string. Without its escapes it must be a token.
    fn quoted(&mut self) -> Result<&'a [u8], Malformed> {
        let mut at = 0;
        loop {
            let escape = usize::from(self.0.get(at) == Some(&b'\\'));
            match self.0.get(at + escape) {
                Some(b'"') if escape == 0 && at > 0 => break,
                Some(byte) if is_token(&[*byte]) => at += escape + 1,
                _ => return Err(Malformed),
            }
        }
        let text = &self.0[..at];
        self.0 = &self.0[at + 1..];
        Ok(text)
    }
}
