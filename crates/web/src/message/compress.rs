//! Which responses are compressed, and how.

use std::borrow::Cow;

use windlass_http1::RequestHead;

use crate::coding::ContentCoding;
use crate::coding::accept::AcceptedCoding;
use crate::coding::deflate::Compressors;
use crate::message::head::Head;

/// The types that get smaller. Pictures, films, sound and most fonts are compressed already.
const TYPES: [&str; 14] = [
    "text/*",
    "+json",
    "+xml",
    "+text",
    "+yaml",
    "application/json",
    "application/javascript",
    "application/xml",
    "application/x-ndjson",
    "application/yaml",
    "application/wasm",
    "font/ttf",
    "font/otf",
    "image/bmp",
];

/// Events must not wait in a compressor, so their type is apart.
const EVENTS: &str = "text/event-stream";

/// Which responses are compressed, and how: for [`App::compress`](crate::App::compress) and
/// [`Engine::compress`](crate::Engine::compress). It needs the feature `deflate`.
///
/// ```
/// use windlass_web::{App, Compress, Response, test};
///
/// let app = App::new()
///     .get("/", |_, _| Response::json(&vec!["a word"; 1000]))
///     .compress(Compress::new().level(1));
/// let response = app.call(test::get("/").header("Accept-Encoding", "gzip, br"));
/// assert_eq!(response.header("Content-Encoding"), Some("gzip"));
/// assert_eq!(response.header("Vary"), Some("Accept-Encoding"));
/// assert!(response.body().len() < 500);
/// assert_eq!(response.decoded().len(), 9001);
/// ```
///
/// # Which responses
///
/// Those whose `Content-Type` is in the [list](Compress::types), whose body has at least
/// [1 KiB](Compress::least) or is made while it is sent, and whose client takes `gzip` or `deflate`
/// (the format of zlib), by the weights of its `Accept-Encoding`. At equal weights `gzip` is taken.
/// A client whose field is malformed gets a plain body. So does a client that refuses plain bodies,
/// if it takes neither coding.
///
/// Never compressed are:
///
/// - responses with `Content-Encoding`, `Cache-Control: no-transform`, `Content-Range`, or a digest
///   of their body, and those without a body: 204, 205, 206, 304, upgrades;
/// - Server-Sent Events, unless [asked for](Compress::events);
/// - files, and what is passed on from another server;
/// - a body that does not get smaller.
///
/// A handler, or a hook of [`App::after`](crate::App::after), prevents it for one response by
/// `Content-Encoding: identity`, which the server leaves out. Hooks see the head before it is
/// compressed.
///
/// # What changes
///
/// `Content-Encoding` is added, and `Vary: Accept-Encoding` also where a client of another kind
/// would get the compressed body. A strong `ETag` becomes a weak one, since the bytes differ and
/// the content does not: `If-None-Match` compares weakly, so a handler knows it when it comes back.
/// `Accept-Ranges` is left out. A HEAD has the head of a GET.
///
/// Whole bodies up to 128 KiB are compressed at once. Longer ones go out in chunks, and the loop
/// serves others after each 64 KiB. A body that is made while it is sent is flushed whenever its
/// source [waits](crate::Flow::Wait), so that the client can decode what there is.
///
/// # Memory
///
/// A compressor has about 400 KiB. A loop has one for whole bodies, and one for each body that is
/// being sent in parts, up to [16](Compress::streams). Further ones go out plain. They are made
/// when they are first needed, and stay.
///
/// # Secrets
///
/// The length of a compressed body tells whether two parts of it are equal. A body that has a
/// secret (a token against CSRF), and text that an attacker chooses (a search), gives the secret
/// away in some thousand requests: BREACH. Send such bodies with `Content-Encoding: identity`, or
/// mask the secret anew in each.
#[derive(Clone, Debug)]
#[must_use]
pub struct Compress {
    level: u8,
    least: usize,
    types: Vec<Cow<'static, str>>,
    has_events: bool,
    streams: usize,
}

impl Default for Compress {
    fn default() -> Compress {
        Compress::new()
    }
}

/// What is done with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) coding: ContentCoding,
    /// Whether the client refuses a plain body.
    pub(crate) refuses_plain: bool,
}

impl Compress {
    /// The defaults: level 6, 1 KiB, texts and data, no events, 16 streams.
    pub fn new() -> Compress {
        let types = TYPES.map(Cow::Borrowed).to_vec();
        Compress { level: 6, least: 1024, types, has_events: false, streams: 16 }
    }

    /// Sets how hard it tries, from 1 (fast) to 9 (small). Default 6.
    ///
    /// # Panics
    ///
    /// If there is no such level.
    pub fn level(mut self, level: u8) -> Compress {
        assert!((1..=9).contains(&level), "the level {level} is not one of 1 to 9");
        self.level = level;
        self
    }

    /// Sets how many bytes a body has at least that is compressed, if it is whole. Default 1024: a
    /// shorter one fits into one packet in any case.
    pub fn least(mut self, bytes: usize) -> Compress {
        self.least = bytes;
        self
    }

    /// Sets which types of bodies are compressed, in place of the default list: `text/html` is one
    /// type, `text/*` are all of a kind, and `+json` are all with this suffix. Parameters, as a
    /// charset, do not count.
    ///
    /// ```
    /// use windlass_web::Compress;
    ///
    /// let compress = Compress::new().types(["text/html", "application/json", "+json"]);
    /// # let _ = compress;
    /// ```
    ///
    /// # Panics
    ///
    /// If one is none of these forms.
    pub fn types<T: Into<Cow<'static, str>>>(
        mut self,
        types: impl IntoIterator<Item = T>,
    ) -> Compress {
        self.types = types.into_iter().map(Into::into).collect();
        for kind in &self.types {
            let is_name = |name: &str| {
                !name.is_empty() && name.bytes().all(|byte| byte > b' ' && !b"/;,*".contains(&byte))
            };
            let is_valid = match (kind.strip_prefix('+'), kind.split_once('/')) {
                (Some(suffix), _) => is_name(suffix),
                (None, Some((kind, name))) => is_name(kind) && (name == "*" || is_name(name)),
                (None, None) => false,
            };
            assert!(is_valid, "{kind:?} is not a type such as text/html, text/* or +json");
        }
        self
    }

    /// Sets whether `text/event-stream` is compressed, too. Default no.
    ///
    /// Each event is flushed. Each connection compresses it anew, for some microseconds, and keeps
    /// a [compressor](Compress::streams) as long as it is there.
    pub fn events(mut self, on: bool) -> Compress {
        self.has_events = on;
        self
    }

    /// Sets how many bodies a loop compresses in parts at the same time. Default 16, which take
    /// about 6 MiB. With 0, only whole bodies up to 128 KiB are compressed.
    pub fn streams(mut self, count: usize) -> Compress {
        self.streams = count;
        self
    }

    /// The compressors of a loop. None is made yet.
    pub(crate) fn compressors(&self) -> Compressors {
        Compressors::new(self.level, self.streams)
    }

    /// Decides about a response whose head is complete, with a body of this length, if it is known.
    /// Adds `Vary` if another client could get another body. `request` is its head, with its bytes.
    pub(crate) fn choose(
        &self,
        head: &mut Head,
        len: Option<usize>,
        request: Option<(&RequestHead, &[u8])>,
    ) -> Option<Choice> {
        if has(head, "content-encoding", "identity") {
            head.remove("Content-Encoding");
            return None;
        }
        let code = head.status().code();
        if code == 304 {
            if let Some((fields, bytes)) = request {
                weaken_as_asked(head, fields.get(bytes, "If-None-Match"));
            }
            vary(head); // as the 200 would: RFC 9110, section 15.4.5
            return None;
        }
        if !self.is_compressible(head) {
            return None;
        }
        if code == 206 || head.get("Content-Range").is_some() {
            vary(head);
            return None;
        }
        let is_large = len.is_none_or(|len| len >= self.least && len > 0);
        if !is_large || (100..200).contains(&code) || code == 204 || code == 205 {
            return None;
        }
        vary(head);
        let (fields, bytes) = request?;
        let accepted = AcceptedCoding::of(fields.get_all(bytes, "Accept-Encoding"));
        let AcceptedCoding { coding: Some(coding), refuses_plain } = accepted else { return None };
        Some(Choice { coding, refuses_plain })
    }

    /// Whether its type gets smaller, and nothing of its head forbids it.
    fn is_compressible(&self, head: &Head) -> bool {
        const DIGESTS: [&str; 5] =
            ["Content-Encoding", "Content-Digest", "Repr-Digest", "Digest", "Content-MD5"];
        head.kind().is_some_and(|kind| self.has_type(kind))
            && DIGESTS.iter().all(|name| head.get(name).is_none())
            && !has(head, "cache-control", "no-transform")
    }

    fn has_type(&self, kind: &str) -> bool {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case(EVENTS) {
            return self.has_events;
        }
        let kind = kind.as_bytes();
        self.types.iter().any(|pattern| match pattern.as_bytes() {
            suffix @ [b'+', ..] => {
                let at = kind.len().checked_sub(suffix.len()).filter(|at| *at > 0);
                at.is_some_and(|at| kind[at..].eq_ignore_ascii_case(suffix))
            }
            [front @ .., b'*'] => {
                kind.len() > front.len() && kind[..front.len()].eq_ignore_ascii_case(front)
            }
            whole => kind.eq_ignore_ascii_case(whole),
        })
    }
}

/// Changes the head of a response whose body is compressed.
pub(crate) fn mark(head: &mut Head, coding: ContentCoding) {
    head.add("Content-Encoding", coding.name());
    head.remove("Accept-Ranges"); // they are those of the plain body
    weaken(head);
}

/// Makes a strong tag a weak one.
fn weaken(head: &mut Head) {
    if let Some(tag) = head.get("ETag").filter(|tag| tag.starts_with('"')) {
        let weak = format!("W/{tag}");
        head.set("ETag", weak);
    }
}

/// The client has a compressed body, and hears that it is still right: by the tag that it has. A
/// cache must not take a strong tag for that of a body with a weak one (RFC 9111, section 4.3.4).
fn weaken_as_asked(head: &mut Head, asked: Option<&[u8]>) {
    let Some((tag, asked)) = head.get("ETag").zip(asked) else { return };
    let weak = format!("W/{tag}");
    if asked.windows(weak.len()).any(|window| window == weak.as_bytes()) {
        weaken(head);
    }
}

/// Adds `Vary: Accept-Encoding`, if it does not say so.
fn vary(head: &mut Head) {
    if !has(head, "vary", "accept-encoding") && !has(head, "vary", "*") {
        head.add("Vary", "Accept-Encoding");
    }
}

/// Whether a field has an element, in any case.
fn has(head: &Head, name: &str, element: &str) -> bool {
    let fields = head.fields().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let mut elements = fields.flat_map(|(_, value)| value.split(',')).map(str::trim);
    elements.any(|other| other.eq_ignore_ascii_case(element))
}
