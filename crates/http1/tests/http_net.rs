//! Random requests, valid ones and spoiled ones: what we accept, http-net refuses or reads alike.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::random::Requests;

#[path = "common/http_net.rs"]
#[allow(unreachable_pub)] // the fuzz target has it, too
mod http_net;

#[test]
fn http_net_refuses_or_agrees() {
    let programs = std::env::var("WINDLASS_PROGRAMS").map_or(3000, |n| n.parse().expect("a count"));
    let seed = std::env::var("WINDLASS_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    println!("WINDLASS_SEED={seed}");
    let mut random = Requests::new(seed);
    let (mut requests, mut agreed) = (0, 0);
    for _ in 0..programs {
        let (input, count) = random.input();
        requests += count;
        agreed += http_net::compare(&input);
    }
    println!("{agreed} of {requests} requests are read alike");
    // Most are valid, or nothing is compared.
    assert!(agreed * 4 > requests, "{agreed} of {requests}");
}
