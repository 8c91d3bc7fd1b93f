//! Requests of `https`: from handlers in a simulation, and over the system's network.
#![cfg(feature = "ring")]
#![allow(missing_docs)] // a test binary has no users

use windlass_web::client::{Fetch, FetchError, FetchSettings};
use windlass_web::test::{ClientError, Simulation};
use windlass_web::tls::{Pem, Tls, TlsClient};
use windlass_web::windlass::Watcher;
use windlass_web::{App, Client, Error, Response};

/// The settings of a server of this name, and of those who trust it.
fn settings(name: &str) -> (Tls, TlsClient) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let parameters = rcgen::CertificateParams::new([name.to_owned()]).expect("a name");
    let certificate = Pem::bytes(parameters.self_signed(&key).expect("one").pem());
    let server = Tls::pem(certificate.clone(), Pem::bytes(key.serialize_pem())).expect("a server");
    let client = TlsClient::builder().roots(certificate).alpn(["http/1.1"]).build();
    (server, client.expect("a client"))
}

fn rates() -> App {
    App::new().get("/{code}", |_, q| format!("{} {}", q.param("code"), q.is_secure()))
}

#[test]
fn a_handler_asks_over_tls() -> Result<(), ClientError> {
    let sim = Simulation::new(7);
    let (tls, trust) = settings("rates.test");
    sim.serve_tls("rates.test:443", tls, rates);
    sim.network().host("other.test", [[10, 0, 0, 2]]);
    sim.serve("shop.test:80", move || {
        App::new()
            .get("/rate/{host}", |_, q| {
                let url = format!("https://{}/EUR", q.param("host"));
                q.fetch(Fetch::get(url), |_, a| Ok::<_, Error>(a?.text()?.to_owned()))
            })
            .on_error(|_, _, error| {
                Response::text(error.cause().map(ToString::to_string).unwrap_or_default())
            })
            .client(FetchSettings::new().trust(trust.clone()))
    });
    let mut client = sim.client();
    for _ in 0..2 {
        assert_eq!(client.get("http://shop.test/rate/rates.test").send()?.text(), "EUR true");
    }
    let refused = client.get("http://shop.test/rate/other.test").send()?;
    assert_eq!(refused.status().code(), 502);
    assert!(refused.text().contains("other.test"), "{}", refused.text());
    Ok(())
}

#[test]
fn a_client_asks_over_tls() {
    let (tls, trust) = settings("localhost");
    let running = rates().listen(("127.0.0.1:0", tls)).unwrap().start().unwrap();
    let port = running.address().port();
    let settings = FetchSettings::new().host("localhost", [[127, 0, 0, 1]]).trust(trust);
    let (mut watcher, mut client) = (Watcher::new().unwrap(), Client::new(settings));
    for _ in 0..2 {
        let id = client.fetch(Fetch::get(format!("https://localhost:{port}/EUR")));
        let response = client.wait_for(&mut watcher, id).unwrap();
        assert_eq!(response.text().unwrap(), "EUR true");
    }
    assert_eq!(client.connections(), 1);
    let id = client.fetch(Fetch::get(format!("https://127.0.0.1:{port}/EUR")));
    let error = client.wait_for(&mut watcher, id).unwrap_err();
    let error = error.get_ref().and_then(|error| error.downcast_ref::<FetchError>());
    assert!(matches!(error, Some(FetchError::Tls(_))), "{error:?}");
    client.end(&mut watcher);
    running.shutdown().unwrap();
}

#[cfg(feature = "websocket")]
mod websocket {
    use windlass_web::Status;
    use windlass_web::client::FetchEvent;
    use windlass_web::websocket::{CloseCode, Message, Peer, Socket, WebSocketSettings};

    use super::*;

    struct Echo;

    impl Peer<()> for Echo {
        fn open(&mut self, _: &mut (), c: &mut Socket<'_>) {
            c.send("welcome"); // in one segment with the 101
        }

        fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
            c.send(message);
        }
    }

    #[test]
    fn a_websocket_is_opened_over_tls() {
        let (tls, trust) = settings("localhost");
        let app = App::new().websocket("/", |_, _| Ok::<_, Status>(Echo));
        let running = app.listen(("127.0.0.1:0", tls)).unwrap().start().unwrap();
        let port = running.address().port();
        let settings = FetchSettings::new().host("localhost", [[127, 0, 0, 1]]).trust(trust);
        let (mut watcher, mut client) = (Watcher::new().unwrap(), Client::new(settings));
        let none = WebSocketSettings::new();
        client.open_websocket(format!("wss://127.0.0.1:{port}/"), &none);
        match client.wait_event(&mut watcher).unwrap() {
            FetchEvent::Failed { error: FetchError::Tls(_), .. } => {}
            other => panic!("{other:?}"),
        }
        client.open_websocket(format!("WSS://localhost:{port}/"), &none);
        let text = "a".repeat(100_000);
        let mut heard = Vec::new();
        loop {
            match client.wait_event(&mut watcher).unwrap() {
                FetchEvent::Opened { socket, .. } => {
                    assert!(client.socket(socket).unwrap().send(text.clone()));
                }
                FetchEvent::Message { socket, message } => {
                    heard.push(message.as_text().unwrap().to_owned());
                    if heard.len() == 2 {
                        client.socket(socket).unwrap().close(CloseCode::NORMAL, "");
                    }
                }
                FetchEvent::Closed { end, .. } => break assert!(end.is_clean, "{end:?}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(heard, ["welcome".to_owned(), text]);
        running.shutdown().unwrap();
    }
}
