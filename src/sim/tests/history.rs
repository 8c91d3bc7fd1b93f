//! The history of a run: what it says, how much it keeps, and that it changes nothing.

use super::*;
use crate::sim::Link;

/// A run with every kind of step: the hash of it, the faults, and its history.
fn run(steps: usize) -> (u64, u64, String) {
    let sim = Sim::with_faults(3, Faults::transient(0.3));
    sim.set_history(steps);
    sim.set_link([10, 0, 0, 1], [10, 0, 0, 2], Link::default().latency(Duration::from_millis(1)));
    let mut server = watcher(&sim.at([10, 0, 0, 1]));
    let mut client = watcher(&sim.at([10, 0, 0, 2]));
    let listener = server.listen(([10, 0, 0, 1], 80)).unwrap();
    server.submit(Op::accept(listener)).unwrap();
    client.submit(Op::run(|| 1)).unwrap();
    client.submit(Op::connect(([10, 0, 0, 1], 81))).unwrap();
    client.connect([([10, 0, 0, 1], 80)], ConnectOptions::default()).unwrap();
    let all = &mut [&mut server, &mut client];
    sim.run(all, |_, watcher, c| {
        match c.result {
            Ok(Done::Accepted(socket)) => {
                let source = watcher.attach(socket)?;
                watcher.submit(Op::read_exact(source, vec![0; 5000], 5000).token(7))?;
            }
            Ok(Done::Connected(_)) => {
                watcher.submit(Op::write(c.source, vec![1; 5000]))?;
            }
            Ok(Done::Read(_)) => {
                sim.note("read\nall");
                return Ok(Some(()));
            }
            _ => {}
        }
        Ok(None)
    })
    .unwrap();
    (sim.trace_hash(), sim.injected().total(), sim.history())
}

#[test]
fn a_history_says_what_has_happened() {
    let (_, faults, text) = run(100_000);
    assert!(faults > 5);
    for part in [
        "watcher 2: recv 10.0.0.1:80 -> 10.0.0.2:3276",
        "watcher 3: send 10.0.0.2:3276",
        ": EAGAIN",
        "event 10.0.0.1:80 listens: {READABLE}",
        "a socket is opened: 10.0.0.2:",
        ": Opened",
        ": Reset(",
        ": Bytes(",
        "[fault: eagain]",
        "job a job makes its next step",
        "run: watcher 0 of the list: ReadExact on Source(",
        "token 7: Ok(Read(",
        "note: read\\nall",
    ] {
        assert!(text.contains(part), "{part} is not in it:\n{text}");
    }
    let times: Vec<&str> = text.lines().map(|line| &line[..14]).collect();
    assert!(times.is_sorted() && times.iter().all(|time| time.trim().parse::<f64>().is_ok()));
}

#[test]
#[cfg_attr(miri, ignore = "megabytes of notes: too slow")]
fn a_history_is_bounded_and_changes_nothing() {
    let (hash, faults, whole) = run(100_000);
    let (same_hash, same_faults, nothing) = run(0);
    assert_eq!((hash, faults, ""), (same_hash, same_faults, nothing.as_str()));
    let (_, _, last) = run(10);
    assert_eq!(last.lines().count(), 10);
    assert!(whole.ends_with(&last));
    let sim = Sim::new(1);
    sim.set_history(3);
    for _ in 0..3 {
        sim.note("ö".repeat(1 << 20));
    }
    assert!(sim.history().len() < 2000 && sim.history().contains('ö'));
    sim.set_history(1);
    assert_eq!(sim.history().lines().count(), 1);
    sim.set_history(0);
    sim.note("unheard");
    assert_eq!(sim.history(), "");
}

#[test]
fn a_report_ends_with_the_history() {
    let sim = Sim::new(1);
    sim.set_history(5);
    let mut watcher = watcher(&sim);
    sim.note("the last thing");
    let error = sim.run::<()>(&mut [&mut watcher], |_, _, _| Ok(None)).unwrap_err();
    assert!(error.to_string().contains("the last steps:\n"), "{error}");
    assert!(error.to_string().contains("note: the last thing"), "{error}");
}
