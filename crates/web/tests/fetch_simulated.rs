//! Servers that ask other servers by name, in a simulation.
#![allow(missing_docs)] // a test binary has no users

use std::net::IpAddr;
use std::time::Duration;

use windlass_web::answers::Later;
use windlass_web::client::{Fetch, FetchError, FetchPhase, FetchSettings};
use windlass_web::test::{self, ClientError, Simulation};
use windlass_web::{App, Error, Response, Status};

/// Tells rates, and one of them never.
fn rates() -> App<Vec<Later>> {
    App::with(|_| Vec::new()).get("/{code}", |late, q| match q.param("code") {
        "EUR" => Ok(Response::text("1.25")),
        "late" => {
            let (later, response) = Response::later();
            late.push(later);
            Ok(response)
        }
        _ => Err(Error::from(Status::NOT_FOUND)),
    })
}

/// Asks for rates.
fn shop(settings: FetchSettings) -> App {
    App::new()
        .get("/rate/{code}", |_, q| {
            let url = format!("http://rates.test/{}", q.param("code"));
            q.fetch(Fetch::get(&url).timeout(Duration::from_secs(20)), |_, a| {
                let a = a?;
                Ok::<_, Error>(format!("{} {}", a.status().code(), a.text()?))
            })
        })
        .client(settings)
}

#[test]
fn a_server_asks_another_one_by_its_name() -> Result<(), ClientError> {
    let sim = Simulation::new(7);
    sim.serve("rates.test:80", rates);
    let shop = sim.serve("shop.test:80", || shop(FetchSettings::new()));
    let mut client = sim.client();
    for _ in 0..3 {
        assert_eq!(client.get("http://shop.test/rate/EUR").send()?.text(), "200 1.25");
    }
    assert_eq!(client.get("http://shop.test/rate/ZZZ").send()?.text(), "404 Not Found");
    // Links that are idle do not keep it.
    let before = sim.elapsed();
    sim.stop(&shop);
    sim.sleep(Duration::from_secs(3)); // less than the grace
    assert!(!sim.is_running(&shop), "{:?}", sim.elapsed() - before);
    Ok(())
}

#[test]
fn a_dead_first_address_costs_a_quarter_of_a_second() -> Result<(), ClientError> {
    let sim = Simulation::new(7);
    sim.serve("rates.test:80", rates);
    sim.serve("shop.test:80", || shop(FetchSettings::new()));
    let live = IpAddr::from([10, 0, 0, 2]);
    sim.network().host("rates.test", [IpAddr::from([10, 0, 0, 99]), live]);
    let mut client = sim.client();
    let before = sim.elapsed();
    assert_eq!(client.get("http://shop.test/rate/EUR").send()?.text(), "200 1.25");
    assert!(sim.elapsed() - before < Duration::from_secs(1), "{:?}", sim.elapsed() - before);
    Ok(())
}

#[test]
fn a_name_that_is_not_known_is_a_502() -> Result<(), ClientError> {
    let sim = Simulation::new(7);
    sim.serve("shop.test:80", || shop(FetchSettings::new()));
    let mut client = sim.client();
    let status = |client: &mut test::TestClient| -> Result<Status, ClientError> {
        Ok(client.get("http://shop.test/rate/EUR").send()?.status())
    };
    assert_eq!(status(&mut client)?, Status::BAD_GATEWAY);
    // The failure is kept for a second.
    sim.serve("rates.test:80", rates);
    assert_eq!(status(&mut client)?, Status::BAD_GATEWAY);
    sim.sleep(Duration::from_millis(1100));
    assert_eq!(status(&mut client)?, Status::OK);
    Ok(())
}

#[test]
fn a_server_that_says_nothing_is_a_504() -> Result<(), ClientError> {
    let sim = Simulation::new(7);
    sim.serve("rates.test:80", rates);
    sim.serve("shop.test:80", || {
        shop(FetchSettings::new().head(Duration::from_secs(3))).on_error(|_, _, error| {
            Response::text(error.cause().map(ToString::to_string).unwrap_or_default())
        })
    });
    let before = sim.elapsed();
    let late = sim.client().get("http://shop.test/rate/late").send()?;
    assert_eq!(late.status(), Status::GATEWAY_TIMEOUT);
    assert_eq!(late.text(), "the head of the response has taken longer than 3s");
    let took = sim.elapsed() - before;
    assert!(took >= Duration::from_secs(3) && took < Duration::from_millis(3200), "{took:?}");
    let limit = Duration::from_secs(3);
    let error = FetchError::Timeout { phase: FetchPhase::Head, limit };
    assert_eq!(Error::from(error).status(), Status::GATEWAY_TIMEOUT);
    Ok(())
}

#[test]
fn a_server_that_has_closed_its_connection_is_asked_again() -> Result<(), ClientError> {
    let sim = Simulation::new(7);
    let rates = sim.serve("rates.test:80", rates);
    sim.serve("shop.test:80", || shop(FetchSettings::new()));
    let mut client = sim.client();
    assert_eq!(client.get("http://shop.test/rate/EUR").send()?.text(), "200 1.25");
    // The machine loses its power: the shop learns of it by its next request.
    sim.crash(&rates);
    sim.start(&rates);
    assert_eq!(client.get("http://shop.test/rate/EUR").send()?.text(), "200 1.25");
    Ok(())
}
