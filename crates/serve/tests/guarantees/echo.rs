//! Echo: the bytes of a client come back, whole and in order, on every driver.

use crate::common::{Harness, bench};
use windlass::Buf;
use windlass_serve::{Action, Cause, Closed, Conn, Context, Handler, Origin, Server};

crate::every_driver! {
    what_is_said_comes_back
    the_output_is_out_before_the_close
    a_shutdown_closes_every_connection
}

/// Echoes. If it has a command, the byte `!` at the end of the data ends the server.
#[derive(Default)]
struct Echo {
    has_command: bool,
    opened: usize,
    ended: Vec<Cause>,
}

impl Handler for Echo {
    type State = usize;

    fn opened(&mut self, c: &mut Conn<'_, usize>, origin: Origin) -> Action {
        assert_eq!(origin.listener, Some(0));
        self.opened += 1;
        c.write("welcome\n");
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, usize>, data: Buf) -> Action {
        *c.state() += data.len();
        if self.has_command && data.ends_with(b"!") {
            return Action::Shutdown;
        }
        c.write(data);
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, usize>, closed: Closed<usize>) -> Action {
        assert!(closed.state > 0, "the state of the connection");
        self.ended.push(closed.cause);
        Action::None
    }
}

fn server() -> Server<fn(usize) -> Echo> {
    let server: Server<fn(usize) -> Echo> = Server::new(|_| Echo::default());
    server.listen("tcp://127.0.0.1:0").expect("an address")
}

fn what_is_said_comes_back<T: Harness>() {
    let mut bench = bench::<T, _, _>(server());
    let clients: Vec<_> = (0..10).map(|_| bench.connect()).collect();
    let said = |i: usize| -> Vec<u8> { (0..i * 30_000 + 1).map(|at| (at * 7 + i) as u8).collect() };
    for (i, client) in clients.iter().enumerate() {
        bench.say(*client, said(i));
        bench.finish(*client);
    }
    bench.until("all have heard", |bench| bench.clients.all.values().all(|client| client.eof));
    for (i, client) in clients.iter().enumerate() {
        let heard = &bench.client(*client).heard;
        assert_eq!(heard[..8], *b"welcome\n");
        assert!(heard[8..] == said(i), "client {i}: {} bytes", heard.len());
    }
    bench.until("all are closed", |bench| bench.running.engine().is_empty());
    let echo = bench.running.handler();
    assert_eq!((echo.opened, &echo.ended), (10, &vec![Cause::Eof; 10]));
    let counters = bench.running.report().counters;
    assert_eq!((counters.accepted, counters.ends.eof), (10, 10));
    assert_eq!(bench.running.engine().budget().used(), 0);
}

fn the_output_is_out_before_the_close<T: Harness>() {
    struct Once;
    impl Handler for Once {
        type State = ();
        fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
            c.write(vec![7; 3 << 20]);
            c.write("end");
            Action::Close
        }
    }
    let server = Server::new(|_| Once).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    bench.say(client, "g");
    bench.until("it has heard the end", |bench| bench.client(client).eof);
    let heard = &bench.client(client).heard;
    assert!(heard.len() == (3 << 20) + 3 && heard.ends_with(b"end"), "{}", heard.len());
    bench.until("it is closed", |bench| bench.running.engine().is_empty());
    assert_eq!(bench.running.report().counters.ends.closed, 1);
}

fn a_shutdown_closes_every_connection<T: Harness>() {
    let mut bench = bench::<T, _, _>(server());
    bench.running.handler().has_command = true;
    let clients: Vec<_> = (0..10).map(|_| bench.connect()).collect();
    for client in &clients {
        bench.say(*client, "hello");
    }
    bench.until("all have heard", |bench| {
        bench.clients.all.values().all(|client| client.heard == b"welcome\nhello")
    });
    bench.say(clients[3], "!");
    bench.until("it is over", |bench| bench.running.is_over());
    bench.until("all have seen it", |bench| bench.clients.all.values().all(|c| c.is_over()));
    assert_eq!(bench.running.handler().ended, [Cause::Shutdown; 10]);
    let report = bench.running.report();
    assert_eq!((report.counters.ends.shutdown, report.unfinished.len(), report.panics), (10, 0, 0));
}
