//! Responses that are compressed: which ones, their heads, and bodies that are sent in parts, on
//! every driver.
#![allow(missing_docs)] // a test binary has no users
#![cfg(feature = "deflate")]

#[path = "../bench/mod.rs"]
mod bench;
#[path = "../../../serve/tests/common/mod.rs"]
mod common;
mod events;
mod heads;
mod parts;

use zlib_rs::{Inflate, InflateFlush, Status};

/// A response, as far as it has come.
struct Heard {
    head: String,
    /// The body without chunks.
    body: Vec<u8>,
    is_whole: bool,
    /// How many bytes it has.
    len: usize,
}

impl Heard {
    /// The first response in these bytes, once its head is whole. One without a length ends with
    /// them.
    fn of(bytes: &[u8]) -> Heard {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
        let (head, mut rest) = bytes.split_at(end);
        let head = String::from_utf8(head.to_vec()).expect("a head");
        let mut heard = Heard { head, body: Vec::new(), is_whole: false, len: 0 };
        if end == 0 {
            return heard;
        }
        if let Some(len) = heard.get("Content-Length") {
            let len = len.parse::<usize>().expect("a length");
            heard.is_whole = rest.len() >= len;
            heard.body = rest[..len.min(rest.len())].to_vec();
            rest = &rest[heard.body.len()..];
        } else if heard.get("Transfer-Encoding").is_some() {
            while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
                let len = std::str::from_utf8(&rest[..at]).expect("a number");
                let len = usize::from_str_radix(len, 16).expect("a number");
                let Some(behind) = rest.get(at + 2 + len + 2..) else { break };
                heard.body.extend_from_slice(&rest[at + 2..at + 2 + len]);
                rest = behind;
                if len == 0 {
                    heard.is_whole = true;
                    break;
                }
            }
        } else {
            heard.body = std::mem::take(&mut rest).to_vec();
        }
        heard.len = bytes.len() - rest.len();
        heard
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (other, value) = line.split_once(':')?;
            other.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// What a client can decode of it, and whether that is all.
    fn decode(&self) -> (Vec<u8>, bool) {
        let window = match self.get("Content-Encoding") {
            None => return (self.body.clone(), self.is_whole),
            Some("gzip") => 31,
            Some("deflate") => 15,
            Some(other) => panic!("{other}"),
        };
        let mut inflate = Inflate::new(true, window);
        let (mut all, mut part) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            let at = inflate.total_in() as usize;
            let before = inflate.total_out();
            let status = inflate.decompress(&self.body[at..], &mut part, InflateFlush::SyncFlush);
            let made = (inflate.total_out() - before) as usize;
            all.extend_from_slice(&part[..made]);
            match status.expect("it is right") {
                Status::StreamEnd => {
                    assert_eq!(inflate.total_in() as usize, self.body.len(), "bytes behind it");
                    return (all, true);
                }
                _ if made == 0 && inflate.total_in() as usize == at => return (all, false),
                _ => {}
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.decode().0).expect("a text")
    }
}

/// A text that compresses as a page does.
fn page(len: usize) -> String {
    let mut random = fastrand::Rng::with_seed(len as u64);
    let words = ["<p>", "</p>\n", "the ", "connection ", "has ", "a ", "part ", "of ", "it. "];
    let mut page = String::new();
    while page.len() < len {
        page.push_str(words[random.usize(..words.len())]);
        page.push_str(&random.u8(..).to_string());
    }
    page.truncate(len);
    page
}
