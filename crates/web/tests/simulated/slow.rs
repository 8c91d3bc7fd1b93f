//! Clients that are slow in each phase of a request, while others are served.

use std::time::Duration;

use windlass_web::Status;
use windlass_web::test::{self, Connection, Simulation};

use crate::model::{Served, routes};

const SECOND: Duration = Duration::from_secs(1);

/// Where a client is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It says nothing.
    Silence,
    /// The head comes byte by byte.
    Head,
    /// So does the body, with a length.
    Body,
    /// So do the extensions of a chunk.
    Chunk,
    /// It does not read its answer.
    Answer,
    /// It sends requests, and reads none of the answers.
    Pipeline,
    /// It has had an answer, and says nothing more.
    Idle,
    /// The first record of TLS does not come whole.
    #[cfg(feature = "ring")]
    Handshake,
}

const PHASES: &[Phase] = &[
    Phase::Silence,
    Phase::Head,
    Phase::Body,
    Phase::Chunk,
    Phase::Answer,
    Phase::Pipeline,
    Phase::Idle,
    #[cfg(feature = "ring")]
    Phase::Handshake,
];

/// A slow client, and what it sends in each second.
struct Slow {
    phase: Phase,
    connection: Connection,
    drip: Vec<u8>,
    heard: Vec<u8>,
    end: Option<Duration>,
}

impl Slow {
    fn new(sim: &Simulation, phase: Phase) -> Slow {
        const POST: &str = "POST /echo HTTP/1.1\r\nHost: a.test\r\n";
        let plain = "plain.test:80";
        let (to, first, drip) = match phase {
            Phase::Silence => (plain, String::new(), ""),
            Phase::Head => (plain, "GET / HTTP/1.1\r\nX: ".into(), "a"),
            Phase::Body => (plain, format!("{POST}Content-Length: 9000\r\n\r\n"), "a"),
            Phase::Chunk => (plain, format!("{POST}Transfer-Encoding: chunked\r\n\r\n5;a="), "a"),
            Phase::Answer => {
                (plain, "GET /large/1/5000000 HTTP/1.1\r\nHost: a.test\r\n\r\n".into(), "")
            }
            Phase::Pipeline => {
                let get = "GET /large/1/900 HTTP/1.1\r\nHost: a.test\r\n\r\n";
                (plain, get.repeat(1000), get)
            }
            Phase::Idle => (plain, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".into(), ""),
            #[cfg(feature = "ring")]
            Phase::Handshake => ("a.test:80", "\u{16}\u{3}\u{1}".into(), ""),
        };
        let mut connection = sim.connect(to);
        connection.set_reading(!matches!(phase, Phase::Answer | Phase::Pipeline));
        connection.write(first.as_bytes());
        let drip = drip.as_bytes().to_vec();
        Slow { phase, connection, drip, heard: Vec::new(), end: None }
    }

    fn act(&mut self, now: Duration) {
        if self.end.is_some() {
            return;
        }
        self.connection.write(&self.drip);
        self.heard.extend(self.connection.take());
        // Whoever does not read learns of its end by a write that fails, or later.
        if now > Duration::from_secs(200) {
            self.connection.set_reading(true);
        }
        if self.connection.is_over() {
            self.heard.extend(self.connection.take());
            self.end = Some(now);
        }
    }

    /// Whether it was told why.
    fn check(&self) {
        let (phase, heard) = (self.phase, String::from_utf8_lossy(&self.heard));
        let end = self.end.unwrap_or_else(|| panic!("{phase:?}: it is not ended: {}", heard.len()));
        let (first, least, most) = match phase {
            Phase::Silence => ("", 9, 80),
            Phase::Head => ("HTTP/1.1 408 ", 9, 14),
            Phase::Body | Phase::Chunk => ("HTTP/1.1 408 ", 18, 30),
            Phase::Idle => ("HTTP/1.1 200 ", 58, 80),
            Phase::Answer | Phase::Pipeline => ("", 10, 300),
            #[cfg(feature = "ring")]
            Phase::Handshake => ("", 3, 80),
        };
        assert!(heard.starts_with(first), "{phase:?}: {heard}");
        let seconds = end.as_secs();
        assert!((least..=most).contains(&seconds), "{phase:?} ends after {seconds} s");
    }
}

#[test]
fn slow_clients_are_ended_and_others_are_served() {
    test::seeds(0..8, |sim| {
        let served = Served::default();
        #[cfg(feature = "ring")]
        {
            let served = served.clone();
            crate::model::secure(sim, move || routes(&served));
        }
        sim.serve("plain.test:80", move || routes(&served));
        let mut slow: Vec<Slow> = Vec::new();
        for _ in 0..5 {
            slow.extend(PHASES.iter().map(|phase| Slow::new(sim, *phase)));
        }
        let mut client = sim.client();
        for second in 1..=300 {
            sim.sleep(SECOND);
            let start = sim.elapsed();
            let response = client.get("http://plain.test/").send()?;
            assert_eq!(response.status(), Status::OK);
            let took = sim.elapsed() - start;
            assert!(took < SECOND, "it took {took:?} in second {second}");
            slow.iter_mut().for_each(|slow| slow.act(Duration::from_secs(second)));
        }
        slow.iter().for_each(Slow::check);
        Ok(())
    });
}
