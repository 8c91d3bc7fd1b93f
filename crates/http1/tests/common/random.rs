//! Random requests: of parts that are valid, and of parts that some server has taken.

/// Makes inputs of several requests.
pub struct Requests {
    random: fastrand::Rng,
}

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"];

const TARGETS: [&str; 10] =
    ["/", "/a", "/a/b?c=d", "/%41", "//", "/?", "/a;b=c", "http://a/b", "http://a:80", "/~_-."];

const BAD_TARGETS: [&str; 10] =
    ["*", "a", "a:80", "http:///", "http://u@a/", "/\u{e9}", "/#a", "/\\", "/ b", "http://a:b/"];

/// Fields that decide nothing.
const FIELDS: [&str; 10] = [
    "Accept: */*",
    "A:b",
    "Empty:",
    "Cookie: a=b; c=\"d\"",
    "Connection: keep-alive",
    "Connection: a, b",
    "Spaces: \t a b \t",
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64)",
    "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "Expect: 100-continue",
];

/// Fields that a strict server refuses, or must not take for others.
const BAD_FIELDS: [&str; 34] = [
    "Host: b",
    "Host:",
    "Host : a",
    "Content-Length: 5",
    "Content-Length: 5, 5",
    "Content-Length: +5",
    "Content-Length: 0x5",
    "Content-Length: 05",
    "Content-Length: 5 ",
    "Content-Length : 5",
    "Content-Length: ",
    "Content-Length: 18446744073709551616",
    "Content-Length\0: 5",
    "Content_Length: 5",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: Chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding:\r\n chunked",
    "Transfer-Encoding : chunked",
    "Transfer_Encoding: chunked",
    " Transfer-Encoding: chunked",
    "A: b\r\n c",
    "A: b\nTransfer-Encoding: chunked",
    "A: b\rTransfer-Encoding: chunked",
    "A: b\0",
    ": b",
    "A b: c",
    "A",
    "Connection: close",
];

const BAD_SIZES: [&str; 14] = [
    "",
    " ",
    "0x5",
    "+5",
    "5 ",
    " 5",
    "5;",
    "5;a\nb",
    "5;a=\"\r\"",
    "5\t;a",
    "g",
    "00000000000000005",
    "10000000000000005",
    "5;a=b c",
];

impl Requests {
    pub fn new(seed: u64) -> Requests {
        Requests { random: fastrand::Rng::with_seed(seed) }
    }

    fn one_of(&mut self, all: &[&'static str]) -> &'static str {
        all[self.random.usize(..all.len())]
    }

    fn is_one_in(&mut self, count: usize) -> bool {
        self.random.usize(..count) == 0
    }

    /// An input, and how many requests were put into it.
    pub fn input(&mut self) -> (Vec<u8>, usize) {
        let count = self.random.usize(1..=4);
        let mut input = Vec::new();
        for _ in 0..count {
            let mut request = self.request().into_bytes();
            if self.is_one_in(8) {
                self.spoil(&mut request);
            }
            input.extend(request);
        }
        (input, count)
    }

    /// One request. About one in four has a part that should be refused.
    fn request(&mut self) -> String {
        let method = self.one_of(&METHODS);
        let target =
            if self.is_one_in(20) { self.one_of(&BAD_TARGETS) } else { self.one_of(&TARGETS) };
        let version = if self.is_one_in(20) { "HTTP/1.0" } else { "HTTP/1.1" };
        let mut fields = vec!["Host: a"];
        for _ in 0..self.random.usize(..4) {
            fields.push(self.one_of(&FIELDS));
        }
        if self.is_one_in(8) {
            fields.push(self.one_of(&BAD_FIELDS));
        }
        let (framing, body) = match self.random.usize(..3) {
            0 => (None, String::new()),
            1 => {
                let len = self.random.usize(..40);
                (
                    Some(format!("Content-Length: {len}")),
                    "GET / HTTP/1.1\r\n".repeat(3)[..len].to_owned(),
                )
            }
            _ => (Some("Transfer-Encoding: chunked".to_owned()), self.chunks()),
        };
        let mut fields: Vec<&str> = fields;
        fields.extend(framing.as_deref());
        self.random.shuffle(&mut fields);
        let end = if self.is_one_in(40) { "\n" } else { "\r\n" };
        let mut text = String::new();
        if self.is_one_in(20) {
            text += end;
        }
        text += &format!("{method} {target} {version}{end}");
        for field in fields {
            text += field;
            text += "\r\n";
        }
        text + "\r\n" + &body
    }

    fn chunks(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..self.random.usize(..4) {
            let len = self.random.usize(1..20);
            let extension = match self.random.usize(..8) {
                0 => ";a",
                1 => ";a=b;c=\"d e\"",
                _ => "",
            };
            text += &format!(
                "{len:x}{extension}\r\n{}\r\n",
                "0\r\n\r\nGET / HTTP/1.1\r\n"[..len].to_owned()
            );
        }
        if self.is_one_in(12) {
            text += self.one_of(&BAD_SIZES);
            text += "\r\nhello\r\n";
        }
        text += "0\r\n";
        match self.random.usize(..10) {
            0 => text += "Md5: abc\r\n",
            1 => text += "A: b\r\nC:\r\n",
            2 if self.is_one_in(4) => text += "Content-Length: 5\r\n",
            _ => {}
        }
        text + "\r\n"
    }

    /// Changes, adds or deletes a byte or two.
    fn spoil(&mut self, request: &mut Vec<u8>) {
        const BYTES: &[u8] = b"\r\n \t\0:;,\"\\/ax05\x7f\x80\xff";
        for _ in 0..self.random.usize(1..=2) {
            let at = self.random.usize(..request.len());
            let byte = BYTES[self.random.usize(..BYTES.len())];
            match self.random.usize(..3) {
                0 => request[at] = byte,
                1 => request.insert(at, byte),
                _ => drop(request.remove(at)),
            }
        }
    }
}
