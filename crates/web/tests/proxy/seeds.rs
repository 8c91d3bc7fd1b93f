//! Random programs of clients, a proxy and its servers, in the simulation: what a client takes for
//! whole is the whole response of a server to that request, whatever breaks meanwhile.

use std::time::Duration;

use windlass_web::proxy::Upstream;
use windlass_web::test::{Simulation, TestResponse, seeds};
use windlass_web::{App, Error, Flow, Part, Response, Status};

/// The body of a response: it is that of one request alone.
fn body(number: u64, len: usize, sum: u64) -> Vec<u8> {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ sum;
    let mut bytes = format!("{number}:{len}:{sum};").into_bytes();
    bytes.extend((0..len as u64).map(|at| (seed.rotate_left(at as u32 & 63) ^ at) as u8));
    bytes
}

fn sum(bytes: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte) + 1);
    bytes.iter().fold(bytes.len() as u64, add)
}

/// Answers with a body that tells the request.
fn inner() -> App {
    App::new()
        .any("/x/{number}/{len}/{form}", |_, q| {
            let (number, len): (u64, usize) = (q.parse("number")?, q.parse("len")?);
            if q.header("x-number") != Some(q.param("number")) {
                return Err(Error::new(Status::CONFLICT)); // a field of another request
            }
            let bytes = body(number, len, sum(q.body()?));
            Ok(match q.param("form") {
                "stream" => {
                    let mut rest = bytes;
                    Response::stream(move |part: &mut Part<'_>| {
                        let behind = rest.split_off(rest.len().min(3000));
                        part.write(&rest);
                        rest = behind;
                        if rest.is_empty() { Flow::End } else { Flow::More }
                    })
                }
                "job" => q.blocking(move || bytes, |_, bytes| Response::bytes(bytes)),
                _ => Response::bytes(bytes),
            })
        })
        .body_limit(1 << 30)
}

fn proxy() -> App<Upstream> {
    let up = |_| {
        let up = Upstream::of(["http://a.test", "http://b.test"]).expect("URLs");
        up.connections(4).failures(2, Duration::from_secs(1)).idle_timeout(Duration::from_secs(5))
    };
    App::with(up)
        .any("/x/{number}/{len}/job", |up, q| q.forward(up))
        .body_limit(1 << 20)
        .fallback(|up, q| q.forward(up))
        .at_head()
}

/// Whether it is what a server has answered to this request, or what the proxy says of a failure.
fn check(response: &TestResponse, number: u64, len: usize, sent: &[u8]) {
    match response.status().code() {
        200 => assert!(
            response.body() == body(number, len, sum(sent)),
            "{number}: {} bytes of another response",
            response.body().len()
        ),
        502..=504 | 408 => {}
        code => panic!("{number}: {code} {:?}", response.text()),
    }
}

fn walk(sim: &Simulation) -> Result<(), Box<dyn std::error::Error>> {
    sim.faults(if sim.random_below(3) == 0 { 0.0 } else { 0.1 });
    let servers = [sim.serve("a.test:80", inner), sim.serve("b.test:80", inner)];
    let outer = sim.serve("proxy.test:80", proxy);
    let mut clients = [sim.client(), sim.client(), sim.client()];
    clients.iter_mut().for_each(|client| client.timeout(Duration::from_secs(60)));
    let mut held = Vec::new();
    let mut good = 0;
    for number in 0..12 {
        match sim.random_below(12) {
            0 => sim.crash(&servers[sim.random_below(2) as usize]),
            1 if sim.random_below(2) == 0 => sim.crash(&outer),
            2 => {
                // One that asks for much, and does not read, or goes in the middle.
                let mut other = sim.connect("proxy.test:80");
                other.set_reading(sim.random_below(2) == 0);
                let head = format!("GET /x/{number}/1000000/stream HTTP/1.1\r\n");
                other.write(format!("{head}Host: h\r\nX-Number: {number}\r\n\r\n").as_bytes());
                held.push(other);
            }
            3 => held.clear(),
            _ => {}
        }
        let len = [0, 1, 500, 5000, 70_000][sim.random_below(5) as usize];
        let form = ["whole", "stream", "job"][sim.random_below(3) as usize];
        let url = format!("http://proxy.test/x/{number}/{len}/{form}");
        let sent = vec![number as u8; [0, 10, 9000, 200_000][sim.random_below(4) as usize]];
        let client = &mut clients[sim.random_below(3) as usize];
        let call = if sent.is_empty() { client.get(&url) } else { client.put(&url) };
        let call = call.header("X-Number", &number.to_string());
        let call = match sim.random_below(2) {
            _ if sent.is_empty() => call,
            0 => call.body(sent.clone()),
            _ => call.chunks(sent.chunks(4000).map(<[u8]>::to_vec)),
        };
        if let Ok(response) = call.send() {
            check(&response, number, len, &sent);
            good += u32::from(response.status() == Status::OK);
        }
    }
    held.clear();
    // When all is well again, so is the proxy.
    sim.faults(0.0);
    [&servers[0], &servers[1], &outer].into_iter().for_each(|host| sim.start(host));
    sim.sleep(Duration::from_secs(120));
    for number in 100..104 {
        let url = format!("http://proxy.test/x/{number}/10/whole");
        let response = clients[0].get(&url).header("X-Number", &number.to_string()).retry()?;
        assert_eq!(response.status(), Status::OK, "behind {good} good ones");
        check(&response, number, 10, &[]);
    }
    Ok(())
}

#[test]
fn what_a_client_takes_for_whole_is_whole() {
    seeds(0..200, walk);
}
