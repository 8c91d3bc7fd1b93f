//! What a program and other threads were promised before a connection moves to a loop.
//!
//! Of the promises on the page of the crate: P3 and P9.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::common::System;
use windlass::{Address, Buf};
use windlass_serve::modes::IoMode;
use windlass_serve::{Action, Config, Conn, Context, Handler, Id, Limits, Remote, Server};

crate::systems_drivers! {
    a_wake_and_drained_of_before_a_move_come_behind_it
    drained_follows_a_move_that_is_called_off
}

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
enum Told {
    Serving(Remote, SocketAddr),
    Full(bool),
    Data,
    Moved,
    Drained,
    Woken(bool),
    Wake,
}

struct Feed {
    tell: Sender<Told>,
}

impl Handler for Feed {
    type State = ();
    fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        let told = Told::Serving(server.remote().clone(), addresses[0].ip().unwrap());
        let _ = self.tell.send(told);
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        let _ = self.tell.send(Told::Data);
        if &*data == b"go" {
            c.write(vec![7; 4 << 20]);
            let _ = self.tell.send(Told::Full(c.is_full()));
            assert!(c.move_to_loop());
            // Some time after the call the connection leaves. Here it is in the next turn.
            let _ = self.tell.send(Told::Woken(c.remote().wake(c.id())));
        }
        Action::None
    }
    fn moved(&mut self, _: &mut Conn<'_, ()>, _: Id) -> Action {
        let _ = self.tell.send(Told::Moved);
        Action::None
    }
    fn wake(&mut self, _: &mut Conn<'_, ()>) -> Action {
        let _ = self.tell.send(Told::Wake);
        Action::None
    }
    fn drained(&mut self, _: &mut Conn<'_, ()>) -> Action {
        let _ = self.tell.send(Told::Drained);
        Action::None
    }
}

struct Run {
    remote: Remote,
    client: TcpStream,
    told: Receiver<Told>,
    server: std::thread::JoinHandle<()>,
}

fn start<T: System>(limits: Limits) -> Run {
    let (tell, told) = channel();
    let server = std::thread::spawn(move || {
        let make = |_| Feed { tell: tell.clone() };
        let config = Config::new().limits(limits).close_on_eof(false).send_buffer(64 << 10);
        let server = Server::new(make)
            .watcher(T::builder())
            .io_mode(IoMode::Mixed { threads: 2 })
            .config(config);
        server.listen("tcp://127.0.0.1:0").unwrap().run().unwrap();
    });
    let Ok(Told::Serving(remote, address)) = told.recv_timeout(PATIENCE) else { panic!() };
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.connect(&address.into()).unwrap();
    Run { remote, client: socket.into(), told, server }
}

impl Run {
    fn end(self) {
        self.remote.shutdown();
        drop(self.client);
        self.server.join().unwrap();
    }

    fn next(&self) -> Told {
        loop {
            match self.told.recv_timeout(PATIENCE).expect("a callback") {
                Told::Serving(..) => {}
                told => return told,
            }
        }
    }
}

/// Both were promised on the thread, which forgot them with the connection.
fn a_wake_and_drained_of_before_a_move_come_behind_it<T: System>() {
    let mut run = start::<T>(Limits::new());
    run.client.write_all(b"go").unwrap();
    assert!(matches!(run.next(), Told::Data) && matches!(run.next(), Told::Full(true)));
    assert!(matches!(run.next(), Told::Woken(true)));
    run.client.read_exact(&mut vec![0; 4 << 20]).unwrap();
    assert!(matches!(run.next(), Told::Moved));
    let told = [run.next(), run.next()];
    assert!(matches!(told, [Told::Drained, Told::Wake] | [Told::Wake, Told::Drained]), "{told:?}");
    run.end();
}

/// The program has stopped at `is_full`. The output falls below the low mark while the connection
/// leaves, and then the move is called off.
fn drained_follows_a_move_that_is_called_off<T: System>() {
    let limits = Limits::new().marks(2 << 20, 3 << 20).close(SECOND).write_stall(None);
    let mut run = start::<T>(limits);
    run.client.write_all(b"go").unwrap();
    assert!(matches!(run.next(), Told::Data) && matches!(run.next(), Told::Full(true)));
    assert!(matches!(run.next(), Told::Woken(true)));
    // The system has at most a few hundred KiB of the rest.
    run.client.read_exact(&mut vec![0; 2600 << 10]).unwrap();
    // No progress any more: the move is called off.
    let told = [run.next(), run.next()];
    assert!(matches!(told, [Told::Drained, Told::Wake] | [Told::Wake, Told::Drained]), "{told:?}");
    run.end();
}
