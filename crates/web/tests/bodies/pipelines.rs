//! Long pipelines.

use crate::bench::{Bench, Harness};
use windlass_web::App;

crate::every_driver! {
    a_pipeline_of_chunked_requests_is_answered
}

fn a_pipeline_of_chunked_requests_is_answered<T: Harness>() {
    const MANY: usize = 2000;
    let mut b = Bench::new::<T>(App::new().post("/", |_, _| ""));
    let client = b.connect();
    const ONE: &str = "POST / HTTP/1.1\r\nHost:a\r\nTransfer-Encoding:chunked\r\n\r\n0\r\n\r\n";
    b.say(client, ONE.repeat(MANY) + "POST / HTTP/1.1\r\nHost:a\r\nConnection:close\r\n\r\n");
    let answers = b.end(client);
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), MANY + 1);
}
