//! Random calls of a server to other servers: by its handlers, and by a client on its loop. Seeds
//! draw the calls, the limits, the faults, the crashes and the links.
//!
//! Each call has one outcome. A response that is whole is that of its call, and what fails does so
//! within its limit of time.

mod callers;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use callers::{Own, caller};
use fastrand::Rng;
use windlass_web::App;
use windlass_web::client::{FetchError, FetchSettings};
use windlass_web::test::{self, Connection, Host, Simulation};
use windlass_web::windlass::sim::{Faults, Link};
use world::{KINDS, Kind, LONG, Plan, Weather, World, server, world};

/// How late a clock may be: turns of the hosts, and delays of the faults.
const SLACK: Duration = Duration::from_millis(50);

/// How often things have happened.
type Tally = BTreeMap<String, u64>;

fn count(tally: &mut Tally, name: impl Into<String>) {
    *tally.entry(name.into()).or_default() += 1;
}

/// The hosts of a program.
struct Hosts {
    servers: [Host; 2],
    caller: Host,
    /// Those who have a handler make a call.
    askers: Vec<Connection>,
}

fn hosts(sim: &Simulation, random: &mut Rng, is_own: bool, is_tls: bool) -> Hosts {
    let first = match is_tls {
        #[cfg(feature = "ring")]
        true => {
            world(|world| world.settings = world.settings.clone().trust(crate::model::trust()));
            crate::model::secure(sim, server)
        }
        #[cfg(not(feature = "ring"))]
        true => panic!("it needs the feature `ring`"),
        false => sim.serve("a.test:80", server),
    };
    let servers = [first, sim.serve("b.test:80", server)];
    let seed = random.u64(..);
    let caller = match is_own {
        true => sim.serve_beside("caller.test:80", move |watcher| {
            lose_calls();
            (App::new(), Own::new(watcher, seed))
        }),
        false => sim.serve("caller.test:80", || {
            lose_calls();
            caller()
        }),
    };
    Hosts { servers, caller, askers: Vec::new() }
}

/// Calls of a loop that has crashed have no outcome.
fn lose_calls() {
    world(|world| {
        let lost = |plan: &&mut Plan| plan.begun.is_some() && plan.outcomes.is_empty();
        world.plans.iter_mut().filter(lost).for_each(|plan| plan.is_lost = true);
    });
}

/// One program.
fn program(sim: &Simulation, weather: Weather, is_own: bool, is_tls: bool, tally: &mut Tally) {
    let mut random = Rng::with_seed(sim.random_below(u64::MAX));
    let network = sim.network();
    let breaks = if weather == Weather::Harsh { random.f64() * 0.02 } else { 0.0 };
    let transient = Faults::transient(random.f64() * 0.3);
    network.set_faults(Faults {
        reset: breaks,
        aborted: breaks,
        connect_refused: breaks,
        emfile: breaks,
        lookup_failed: 5.0 * breaks,
        ..transient
    });
    let of_server = random.usize(1..6);
    let of_all = random.usize(1..10);
    let mut settings =
        FetchSettings::new().connections(of_server, of_all).head(LONG).read_timeout(LONG);
    if weather == Weather::Harsh {
        let span = |random: &mut Rng| Duration::from_millis(random.u64(200..10_000));
        settings = settings.head(span(&mut random)).read_timeout(span(&mut random));
        settings = settings.connect(span(&mut random)).idle(span(&mut random));
        settings = settings.look_up(span(&mut random)).waiting(random.usize(1..40));
    }
    let calls = random.usize(1..50);
    world(|world| {
        *world = World {
            plans: (0..calls).map(|_| Plan::draw(&mut random, weather, is_own)).collect(),
            next: (0..calls).collect(),
            weather: Some(weather),
            requests: [u16::MAX, random.u16(1..20)][random.usize(..2)],
            settings,
            start: Some(network.now()),
            sim: Some(network.clone()),
            is_tls,
            ..World::default()
        };
    });
    let mut hosts = hosts(sim, &mut random, is_own, is_tls);
    let end = sim.elapsed() + 2 * LONG;
    while !is_over() {
        if !is_own && hosts.askers.len() < 2 * calls && random.u8(..3) == 0 {
            let mut asker = sim.connect("caller.test:80");
            asker.set_reading(true);
            asker.write(b"GET / HTTP/1.1\r\nHost: caller.test\r\nConnection: close\r\n\r\n");
            hosts.askers.push(asker);
        }
        let is_late = hosts.askers.len() == 2 * calls;
        if is_late && hosts.askers.iter().all(Connection::is_over) {
            break; // those that were lost have no outcome
        }
        let most = if world(|world| world.next.is_empty()) { 500_000 } else { 50_000 };
        sim.sleep(Duration::from_micros(random.u64(1..most)));
        if weather == Weather::Harsh {
            trouble(sim, &mut random, &hosts, tally);
        }
        assert!(sim.elapsed() < end, "a call has no end: {:?}", unfinished());
    }
    verify(weather, is_own, tally, (of_server, of_all));
    for (name, times) in network.injected().named() {
        *tally.entry(format!("fault {name}")).or_default() += times;
    }
    // Nothing is left behind the end.
    network.set_faults(Faults::default());
    heal(sim);
    world(|world| (world.stops, world.left) = (true, None));
    sim.start(&hosts.caller);
    sim.sleep(Duration::from_secs(2));
    if is_own {
        assert_eq!(world(|world| world.left), Some((0, 0)), "connections, requests");
    }
    sim.stop(&hosts.caller);
    let end = sim.elapsed() + Duration::from_secs(60);
    while sim.is_running(&hosts.caller) && sim.elapsed() < end {
        sim.sleep(Duration::from_millis(100));
    }
    assert!(!sim.is_running(&hosts.caller), "the shutdown ends");
}

const ADDRESSES: [[u8; 4]; 3] = [[10, 0, 0, 2], [10, 0, 0, 3], [10, 0, 0, 4]];

/// Crashes, cuts and slow links.
fn trouble(sim: &Simulation, random: &mut Rng, hosts: &Hosts, tally: &mut Tally) {
    let network = sim.network();
    let (server, caller) = (random.usize(..2), ADDRESSES[2]);
    match random.u16(..300) {
        0..3 => {
            count(tally, "crashes of servers");
            sim.crash(&hosts.servers[server]);
        }
        3 => {
            count(tally, "crashes of the caller");
            sim.crash(&hosts.caller);
        }
        4..7 => {
            count(tally, "cuts");
            network.cut(caller, ADDRESSES[server]);
        }
        7..10 => {
            count(tally, "slow links");
            let link = Link::default()
                .latency(Duration::from_millis(random.u64(1..100)))
                .bandwidth(random.u64(10_000..1_000_000));
            network.set_link(caller, ADDRESSES[server], link);
        }
        10..20 => heal(sim),
        20 => {
            count(tally, "shutdowns of servers");
            sim.stop(&hosts.servers[server]);
        }
        21..25 => hosts.servers.iter().for_each(|host| {
            if !sim.is_running(host) {
                sim.start(host);
            }
        }),
        _ => {}
    }
}

fn heal(sim: &Simulation) {
    let network = sim.network();
    for server in [ADDRESSES[0], ADDRESSES[1]] {
        network.heal(ADDRESSES[2], server);
        network.set_link(ADDRESSES[2], server, Link::default());
    }
}

/// Whether all calls are over.
fn is_over() -> bool {
    world(|world| world.plans.iter().all(|plan| plan.is_lost || !plan.outcomes.is_empty()))
}

fn unfinished() -> Vec<(usize, Plan)> {
    world(|world| {
        let all = world.plans.iter().cloned().enumerate();
        all.filter(|(_, plan)| !plan.is_lost && plan.outcomes.is_empty()).collect()
    })
}

fn verify(weather: Weather, is_own: bool, tally: &mut Tally, limits: (usize, usize)) {
    let (plans, running) = world(|world| (world.plans.clone(), world.running.clone()));
    for (number, plan) in plans.iter().enumerate() {
        if plan.outcomes.is_empty() {
            count(tally, format!("lost {:?}", plan.kind));
            assert!(plan.is_lost || weather == Weather::Harsh && !is_own, "{number}: {plan:?}");
            continue;
        }
        assert_eq!(plan.outcomes.len(), 1, "several outcomes: {plan:?}");
        let (at, result) = &plan.outcomes[0];
        let took = *at - plan.begun.expect("it has begun");
        assert!(took <= plan.limit + SLACK, "{took:?}: {plan:?}");
        match result {
            // Its server shuts down.
            Ok((503, _)) if weather == Weather::Harsh => count(tally, "responses 503"),
            Ok(response) => {
                count(tally, format!("responses {:?}", plan.kind));
                assert!(!matches!(plan.kind, Kind::Late | Kind::TooLong), "{plan:?}");
                let (status, body) = plan.wanted(number);
                assert_eq!(response.0, status, "{plan:?}");
                assert!(response.1 == body, "a wrong body: {plan:?}");
            }
            Err(error) => {
                let text = format!("{error:?}");
                let name = text.split(['(', ' ']).next().unwrap_or_default();
                count(tally, format!("errors {name}"));
                verify_error(weather, plan, error, took);
            }
        }
    }
    if weather == Weather::Fair {
        for (host, (_, most)) in &running {
            assert!(*most <= limits.0.min(limits.1), "{most} requests at {host}: {limits:?}");
        }
        let all: usize = running.values().map(|(now, _)| now).sum();
        let cut = plans.iter().filter(|plan| plan.is_lost || plan.kind == Kind::TooLong).count();
        assert!(all <= cut, "{all} requests still run");
    }
}

fn verify_error(weather: Weather, plan: &Plan, error: &FetchError, took: Duration) {
    use windlass_web::client::FetchPhase;
    match error {
        FetchError::TooLong { limit: 2 } => assert_eq!(plan.kind, Kind::TooLong, "{plan:?}"),
        FetchError::Timeout { phase: FetchPhase::Whole, limit } => {
            assert_eq!(*limit, plan.limit);
            assert!(took >= plan.limit, "{took:?}: {plan:?}");
            assert!(weather == Weather::Harsh || plan.kind == Kind::Late, "{plan:?}");
        }
        FetchError::Timeout { limit, .. } => {
            assert!(took >= *limit && weather == Weather::Harsh, "{took:?}: {plan:?}");
        }
        FetchError::Connection(_)
        | FetchError::Ended
        | FetchError::LookUp { .. }
        | FetchError::Full
        | FetchError::Refused => assert_eq!(weather, Weather::Harsh, "{plan:?}"),
        #[cfg(feature = "ring")]
        FetchError::Tls(_) => assert_eq!(weather, Weather::Harsh, "{plan:?}"),
        _ => panic!("{error:?}: {plan:?}"),
    }
}

/// Runs programs of one kind.
fn run(name: &str, weather: Weather, is_own: bool, is_tls: bool, needed: &[&str]) {
    let tally = RefCell::new(Tally::new());
    let (start, programs) = (Instant::now(), RefCell::new(0_u32));
    test::seeds(0..160, |sim| {
        *programs.borrow_mut() += 1;
        program(sim, weather, is_own, is_tls, &mut tally.borrow_mut());
        Ok(())
    });
    let (programs, seconds) = (programs.into_inner(), start.elapsed().as_secs_f64());
    println!("{name}: {programs} seeds, {:.0} a second", f64::from(programs) / seconds);
    let tally = tally.into_inner();
    println!("{tally:#?}");
    if programs >= 100 {
        let kinds = KINDS
            .iter()
            .filter(|kind| !matches!(kind, Kind::Late | Kind::TooLong | Kind::Cancelled));
        let kinds = kinds.map(|kind| format!("responses {kind:?}"));
        let usual = ["errors TooLong", "errors Timeout", "fault partial_read", "fault eagain"];
        for name in kinds.chain(usual.iter().chain(needed).map(ToString::to_string)) {
            assert!(tally.get(&name).is_some_and(|times| *times > 0), "never: {name}");
        }
    }
}

const BROKEN: [&str; 9] = [
    "errors Connection",
    "errors Ended",
    "errors Full",
    "fault reset",
    "fault connect_refused",
    "crashes of servers",
    "crashes of the caller",
    "cuts",
    "slow links",
];

#[test]
fn handlers_get_the_responses_of_their_calls() {
    run("handlers, fair", Weather::Fair, false, false, &[]);
}

#[test]
fn handlers_get_the_responses_of_their_calls_when_connections_break() {
    run("handlers, harsh", Weather::Harsh, false, false, &BROKEN);
}

#[test]
fn a_client_gets_the_responses_of_its_calls() {
    run("a client, fair", Weather::Fair, true, false, &["lost Cancelled"]);
}

#[test]
fn a_client_gets_the_responses_of_its_calls_when_connections_break() {
    let needed =
        [&BROKEN[..], &["lost Cancelled", "errors LookUp", "fault lookup_failed"]].concat();
    run("a client, harsh", Weather::Harsh, true, false, &needed);
}

#[cfg(feature = "ring")]
mod secure {
    use super::{BROKEN, Weather, run};

    #[test]
    fn handlers_get_the_responses_of_their_calls() {
        run("handlers, fair, with TLS", Weather::Fair, false, true, &[]);
    }

    #[test]
    fn a_client_gets_the_responses_of_its_calls_when_connections_break() {
        run("a client, harsh, with TLS", Weather::Harsh, true, true, &BROKEN);
    }
}
