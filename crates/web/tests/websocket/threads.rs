//! What other threads send, say, and close.

use std::any::Any;
use std::sync::Arc;
use std::thread;

use windlass_serve::{Limits as ServeLimits, Refusal};
use windlass_web::events::Published;
use windlass_web::websocket::{CloseCode, Message, Peer, Socket, SocketEnd, SocketSender};
use windlass_web::{App, Status};

use crate::bench::serve;
use crate::client::{BINARY, Got, Ws, close, closed, frame, request, said, text};
use crate::common::Harness;

crate::every_kernel! {
    messages_of_a_thread_come_in_their_order
    a_thread_closes_a_connection
    nothing_is_sent_behind_a_close
    a_thread_tells_values
    a_client_that_does_not_read_has_a_cap
    a_prepared_message_is_sent_to_many
    what_a_thread_has_room_for_is_sent
}

struct Log {
    prepared: Arc<Published>,
    senders: Vec<SocketSender>,
    told: Vec<u32>,
    ends: Vec<SocketEnd>,
}

/// More than half of the cap, and more than what the system takes at once.
const BOTH: usize = 10 << 20;

struct Echo;

impl Peer<Log> for Echo {
    fn open(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        log.senders.push(c.sender());
    }

    fn message(&mut self, log: &mut Log, c: &mut Socket<'_>, message: Message) {
        match message.as_text() {
            Some("prepared") => _ = c.send_prepared(&log.prepared),
            Some("both") => {
                // What the loop has written in this turn is not known to a thread.
                let sender = c.sender();
                assert!(c.send(vec![1; BOTH]));
                let thread = thread::spawn(move || sender.send(vec![2; BOTH]).is_ok());
                assert!(thread.join().expect("it sends"));
            }
            Some("close") => c.close(CloseCode::NORMAL, ""),
            _ => _ = c.send(message),
        }
    }

    fn told(&mut self, log: &mut Log, c: &mut Socket<'_>, value: Box<dyn Any + Send>) {
        let value = *value.downcast::<u32>().expect("a number");
        log.told.push(value);
        c.send(format!("told {value}"));
    }

    fn closed(&mut self, log: &mut Log, end: &SocketEnd) {
        log.ends.push(end.clone());
    }
}

fn app() -> App<Log> {
    let log = |_| Log {
        prepared: Arc::new(Published::from("for all")),
        senders: Vec::new(),
        told: Vec::new(),
        ends: Vec::new(),
    };
    App::with(log).websocket("/ws", |_, _| Ok::<_, Status>(Echo))
}

pub(crate) fn messages_of_a_thread_come_in_their_order<T: Harness>() {
    let mut web = serve::<T, _>(app());
    let mut ws = Ws::open(&mut web, "/ws");
    let sender = web.server.state().senders[0].clone();
    let large = vec![7; 70_000];
    let sent = large.clone();
    let thread = thread::spawn(move || {
        for number in 0..100 {
            sender.send(number.to_string()).expect("there is room");
        }
        sender.send(sent).expect("there is room");
    });
    thread.join().expect("it sends");
    ws.say(&mut web, text("echo"));
    let mut heard: Vec<Got> = (0..102).map(|_| ws.next(&mut web)).collect();
    // The loop's own message is anywhere between those of the thread.
    let at = heard.iter().position(|got| *got == said("echo")).expect("the echo");
    heard.remove(at);
    assert!(heard[..100].iter().enumerate().all(|(at, got)| *got == said(&at.to_string())));
    assert!(heard[100] == Got::Binary(large));
}

pub(crate) fn a_thread_closes_a_connection<T: Harness>() {
    let mut web = serve::<T, _>(app());
    let mut ws = Ws::open(&mut web, "/ws");
    let sender = web.server.state().senders[0].clone();
    let thread = thread::spawn(move || {
        sender.send("last").expect("there is room");
        assert!(sender.close(CloseCode::RESTART, "again"));
        sender
    });
    let sender = thread.join().expect("it closes");
    assert_eq!(ws.next(&mut web), said("last"));
    assert_eq!(ws.next(&mut web), Got::Close(Some(1012), "again".to_owned()));
    assert!(matches!(sender.send("late"), Err(refused) if refused.reason == Refusal::Stale));
    ws.say(&mut web, close(1012, ""));
    assert!(ws.rest(&mut web).is_empty());
    web.until("it has ended", |web| !web.server.state().ends.is_empty());
    let end = &web.server.state().ends[0];
    assert!(end.is_clean && end.code.map(CloseCode::number) == Some(1012) && end.reason == "again");
    assert!(!sender.close(CloseCode::NORMAL, ""), "it has ended");
}

fn nothing_is_sent_behind_a_close<T: Harness>() {
    let mut web = serve::<T, _>(app());
    let mut ws = Ws::open(&mut web, "/ws");
    let sender = web.server.state().senders[0].clone();
    ws.say(&mut web, text("close"));
    assert_eq!(ws.next(&mut web), closed(1000));
    let refused = sender.send("late").expect_err("it closes");
    assert_eq!((refused.reason, refused.value.as_text()), (Refusal::Stale, Some("late")));
    ws.say(&mut web, close(1000, ""));
    assert!(ws.rest(&mut web).is_empty());
}

fn a_thread_tells_values<T: Harness>() {
    let mut web = serve::<T, _>(app());
    let mut ws = Ws::open(&mut web, "/ws");
    let (remote, id) = (web.server.remote(), web.server.state().senders[0].id());
    let other = remote.clone();
    thread::spawn(move || (0..10).for_each(|value: u32| assert!(other.tell(id, value))))
        .join()
        .expect("it tells");
    for value in 0..10 {
        assert_eq!(ws.next(&mut web), said(&format!("told {value}")));
    }
    assert_eq!(web.server.state().told, (0..10).collect::<Vec<u32>>());
    ws.say(&mut web, close(1000, ""));
    assert_eq!(ws.rest(&mut web), [closed(1000)]);
    web.until("it has ended", |web| !web.server.state().ends.is_empty());
    assert!(!remote.tell(id, 11u32), "nobody hears it");
}

fn a_client_that_does_not_read_has_a_cap<T: Harness>() {
    let mut web = serve::<T, _>(app().serve_limits(ServeLimits::new().cap(100_000)));
    let mut ws = Ws::open(&mut web, "/ws");
    let sender = web.server.state().senders[0].clone();
    // The loop does not turn meanwhile: all of it waits.
    let thread = thread::spawn(move || {
        let sent = (0..20).take_while(|_| sender.send(vec![1; 10_000]).is_ok()).count();
        let refused = sender.send(vec![2; 10_000]).expect_err("there is no room");
        assert_eq!(refused.reason, Refusal::Cap);
        assert!(refused.value.as_bytes() == [2; 10_000], "it comes back");
        sent
    });
    let sent = thread.join().expect("it sends");
    assert!((5..10).contains(&sent), "{sent}");
    for _ in 0..sent {
        assert!(ws.next(&mut web) == Got::Binary(vec![1; 10_000]));
    }
    ws.say(&mut web, frame(BINARY, b"still there"));
    assert_eq!(ws.next(&mut web), Got::Binary(b"still there".to_vec()));
}

fn a_prepared_message_is_sent_to_many<T: Harness>() {
    let mut web = serve::<T, _>(app());
    for _ in 0..3 {
        let mut ws = Ws::open(&mut web, "/ws");
        ws.say(&mut web, [text("prepared"), text("close"), text("prepared")].concat());
        assert_eq!(ws.next(&mut web), said("for all"));
        assert_eq!(ws.next(&mut web), closed(1000));
        ws.say(&mut web, close(1000, ""));
        assert!(ws.rest(&mut web).is_empty());
    }
}

/// Its room was given back before the loop wrote, which found that there was none.
fn what_a_thread_has_room_for_is_sent<T: Harness>() {
    let limits = ServeLimits::new().cap(16 << 20);
    let mut web = serve::<T, _>(app().serve_limits(limits));
    let client = web.connect_deaf();
    web.say(client, [request("/ws", "").into_bytes(), text("both")].concat());
    web.run_for(T::span(0.1));
    web.hear(client);
    let mut ws = Ws::of(client);
    assert!(ws.next(&mut web) == Got::Binary(vec![1; BOTH]));
    assert!(ws.next(&mut web) == Got::Binary(vec![2; BOTH]));
    web.until("nothing is held", |web| web.server.budget().used() == 0);
}
