//! Requests that we accept: the crate http-net refuses them, or reads them alike.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)] // the targets of the decoders need more of it
mod http1;
#[path = "../../crates/http1/tests/common/http_net.rs"]
mod http_net;

fuzz_target!(|program: http1::Program| {
    http_net::compare(&program.input("POST / HTTP/1.1\r\nHost: a\r\n"));
});
