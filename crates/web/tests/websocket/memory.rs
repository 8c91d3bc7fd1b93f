//! What messages may hold of the memory, and that those that stop in the middle hold up nobody.

use std::time::Duration;

use windlass::Source;
use windlass::driver::Driver;
use windlass_web::serve as below;
use windlass_web::websocket::WebSocketSettings;

use crate::bench::{Web, serve};
use crate::client::{BINARY, Got, LAST, PART, TEXT_PART, Ws, close, frame, request, said, text};
use crate::common::Harness;
use crate::messages::bytes;
use crate::program::{Log, app};

crate::every_kernel! {
    a_long_message_arrives_whole
    a_message_beyond_the_memory_is_refused
    each_end_gives_the_memory_back
    clients_that_stop_hold_up_nobody
}

fn web<T: Harness>(memory: usize) -> Web<T::Driver, Log> {
    let limits = below::Limits::new().memory(memory);
    let settings = WebSocketSettings::new().message_limit(16 << 20);
    serve::<T, _>(app(settings).serve_limits(limits))
}

fn a_long_message_arrives_whole<T: Harness>() {
    let long = bytes(8 << 20);
    let parts = [&frame(0x02, &long[..3 << 20])[..], &frame(LAST, &long[3 << 20..])].concat();
    let mut web = web::<T>(16 << 20);
    for all in [frame(BINARY, &long), parts] {
        let mut ws = Ws::open(&mut web, "/ws");
        ws.say(&mut web, all);
        assert!(ws.next(&mut web) == Got::Binary(long.clone()));
        web.close(ws.source);
    }
    web.until("both have ended", |web| web.server.state().ends.len() == 2);
    assert_eq!(web.server.state().heard.len(), 2);
    // Eight of them at once, in what is enough for all.
    let mut web = self::web::<T>(256 << 20);
    let long = bytes(3 << 20);
    let mut all: Vec<Ws> = (0..8).map(|_| Ws::open(&mut web, "/ws")).collect();
    all.iter().for_each(|ws| ws.say(&mut web, frame(BINARY, &long)));
    for ws in &mut all {
        assert!(ws.next(&mut web) == Got::Binary(long.clone()));
    }
    web.until("nothing waits", |web| web.server.budget().used() == 0);
}

/// A client that has sent a part of a message, which the server holds.
fn stop<D: Driver>(web: &mut Web<D, Log>, len: usize, part: usize) -> Source {
    let before = web.server.budget().used();
    let client = web.connect();
    let all = [request("/ws", "").as_bytes(), &frame(BINARY, &bytes(len))[..part]].concat();
    web.say(client, all);
    web.until("it is held", |web| web.server.budget().used() > before + part / 2);
    client
}

fn a_message_beyond_the_memory_is_refused<T: Harness>() {
    let mut web = web::<T>(1 << 20);
    let refused = |ws: &mut Ws, web: &mut Web<T::Driver, Log>, code: u16| {
        let why = "there is no memory for the message".to_owned();
        assert_eq!(ws.rest(web), [Got::Close(Some(code), why)]);
    };
    // It would never fit.
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, frame(BINARY, &bytes(800 << 10)));
    refused(&mut ws, &mut web, 1009);
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, frame(BINARY, &bytes(500 << 10)));
    assert!(ws.next(&mut web) == Got::Binary(bytes(500 << 10)));
    // Its share is smaller while others hold something.
    let others: Vec<Source> = (0..9).map(|_| stop(&mut web, 60_000, 30_000)).collect();
    let mut late = Ws::open(&mut web, "/ws");
    late.say(&mut web, frame(BINARY, &bytes(200 << 10)));
    refused(&mut late, &mut web, 1013);
    let mut late = Ws::open(&mut web, "/ws");
    let parts: Vec<u8> = (0..40).flat_map(|_| frame(PART, &bytes(5000))).collect();
    late.say(&mut web, [frame(0x02, b""), parts, frame(LAST, b"")].concat());
    refused(&mut late, &mut web, 1013);
    for other in others {
        web.say(other, frame(BINARY, &bytes(60_000))[30_000..].to_vec());
        assert!(Ws::of(other).next(&mut web) == Got::Binary(bytes(60_000)));
    }
    ws.say(&mut web, frame(BINARY, &bytes(200 << 10)));
    assert!(ws.next(&mut web) == Got::Binary(bytes(200 << 10)));
}

fn each_end_gives_the_memory_back<T: Harness>() {
    let mut web = web::<T>(64 << 20);
    let orders = |orders: &str| frame(0x8a, orders.as_bytes());
    let ends: [Vec<u8>; 8] = [
        frame(LAST, b""),
        close(1000, ""),
        orders("!abort"),
        orders("!panic"),
        orders("!close 1000 "),
        frame(0x83, b""),
        text("within a message"),
        Vec::new(),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let client = web.connect();
        let long = frame(0x02, &bytes(100_000));
        web.say(client, [request("/ws", "").as_bytes(), &long].concat());
        web.until("it is held", |web| web.server.budget().used() >= 100_000);
        let is_reset = end.is_empty();
        web.say(client, end);
        match is_reset {
            true => web.close(client),
            false => web.finish(client),
        }
        web.until("its end", |web| web.server.state().ends.len() == number + 1);
        web.until("nothing is held", |web| web.server.budget().used() == 0);
        web.close(client);
    }
}

fn clients_that_stop_hold_up_nobody<T: Harness>() {
    if !T::VIRTUAL {
        return; // what is about time is shown where it is virtual
    }
    let mut web = web::<T>(16 << 20);
    let start = web.now();
    let stopped: Vec<Source> = (0..1000)
        .map(|_| {
            let client = web.connect();
            let part = &frame(BINARY, &bytes(11_000))[..9000];
            web.say(client, [request("/ws", "").as_bytes(), part].concat());
            client
        })
        .collect();
    web.run_for(Duration::from_millis(100));
    let mut ws = Ws::open(&mut web, "/ws");
    for at in 0..20 {
        ws.say(&mut web, text(&at.to_string()));
        assert_eq!(ws.next(&mut web), said(&at.to_string()));
        ws.say(&mut web, [frame(0x02, &bytes(8000)), frame(LAST, b"")].concat());
        assert!(ws.next(&mut web) == Got::Binary(bytes(8000)));
    }
    assert!(web.now() - start < Duration::from_secs(5), "virtual time");
    web.until("all have ended", |web| web.server.state().ends.len() == 1000);
    assert!(web.now() - start < Duration::from_secs(40));
    for client in stopped {
        web.until("its end", |web| web.client(client).is_over());
    }
    ws.say(&mut web, [frame(TEXT_PART, b"a"), frame(LAST, b"b")].concat());
    assert_eq!(ws.next(&mut web), said("ab"));
    web.until("nothing is held", |web| web.server.budget().used() == 0);
}
