//! Where an application listens, on each driver of the system, and the settings that pass through
//! to windlass-serve.
#![allow(missing_docs)] // a test binary has no users

#[cfg(feature = "ring")]
#[path = "common/secure.rs"]
mod secure;
#[path = "common/wire.rs"]
mod wire;

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use windlass_web::serve::modes::{Balance, IoMode};
use windlass_web::serve::net::Proxy;
use windlass_web::serve::{Config, jobs::Job};
use windlass_web::windlass::{Address, DriverKind, Watcher};
use windlass_web::{App, Response};
use wire::Client;

/// The drivers that this system has.
fn drivers() -> Vec<DriverKind> {
    match () {
        () if cfg!(target_os = "linux") => {
            vec![DriverKind::Epoll, DriverKind::Uring, DriverKind::Poll]
        }
        () if cfg!(windows) => vec![DriverKind::Poll],
        () => vec![DriverKind::Kqueue, DriverKind::Poll],
    }
}

/// Calls `test` with an application on each driver.
fn on_drivers(test: impl Fn(App<()>)) {
    for kind in drivers() {
        println!("{kind:?}");
        let app = App::new().watcher(Watcher::builder().driver(kind));
        test(app.get("/", |_, q| format!("{} {}", q.is_tls(), q.client().is_some())));
    }
}

#[test]
fn several_addresses_and_listeners() {
    on_drivers(|app| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let made = listener.local_addr().unwrap();
        let app = app.listen("127.0.0.1:0").unwrap().listen(listener).unwrap();
        let running = app.listen(String::from("tcp4://127.0.0.1:0")).unwrap().start().unwrap();
        let addresses: Vec<_> = running.addresses().iter().filter_map(Address::ip).collect();
        assert_eq!(addresses.len(), 3);
        assert_eq!((addresses[0], addresses[1]), (running.address(), made));
        for address in addresses {
            assert_eq!(Client::new(address).get("/").text(), "false true");
        }
        assert_eq!(running.shutdown().unwrap().counters.accepted, 3);
    });
}

#[test]
fn what_is_no_address_is_an_error_at_once() {
    for wrong in ["localhost", "127.0.0.1:http", "http://127.0.0.1:80", ""] {
        let error = App::new().listen(wrong).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{wrong}");
    }
    assert!(App::new().start().is_err(), "there is nothing to serve");
}

#[cfg(unix)]
#[test]
fn a_unix_socket() {
    on_drivers(|app| {
        let name = format!("windlass-web-listen-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let running = app.listen(format!("unix://{}", path.display())).unwrap().start().unwrap();
        let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert_eq!(Client::over(stream).get("/").text(), "false false");
        assert_eq!(running.address().port(), 0);
        running.shutdown().unwrap();
        assert!(!path.exists(), "the server removes its path");
    });
}

/// The header that a proxy writes before the request.
#[test]
fn the_client_of_a_proxy() {
    static PROXY: LazyLock<Proxy> =
        LazyLock::new(|| Proxy::any().from("127.0.0.0/8".parse().expect("a network")));
    let app = App::new()
        .config(Config::new().name("proxied").proxy(&PROXY))
        .get("/", |_, q| format!("{:?}", q.peer()));
    let running = app.listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut client = Client::new(running.address());
    client.say("PROXY TCP4 203.0.113.7 127.0.0.1 5000 80\r\n");
    assert_eq!(client.get("/").text(), "Some(203.0.113.7:5000)");
    let report = running.shutdown().unwrap();
    assert_eq!((report.counters.accepted, report.counters.refused), (1, 0));
}

/// Each loop has a state of its own, and connections go to each loop in turn.
#[test]
fn several_loops_have_several_states() {
    let app = App::with(|index| index)
        .get("/", |index: &mut usize, _| format!("{index}"))
        .loops(2)
        .balance(Balance::RoundRobin);
    let running = app.listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut clients: Vec<_> = (0..4).map(|_| Client::new(running.address())).collect();
    let mut seen: Vec<_> = clients.iter_mut().map(|one| one.get("/").text().to_owned()).collect();
    seen.sort();
    assert_eq!(seen, ["0", "0", "1", "1"]);
    running.shutdown().unwrap();
}

/// A handler on a thread of its own may wait for another connection's.
#[test]
fn a_thread_for_each_connection() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let app = App::new()
        .io_mode(IoMode::Mixed { threads: 2 })
        .get("/wait", move |_, _| {
            told.lock().unwrap().recv().unwrap();
            "told"
        })
        .get("/tell", move |_, _| {
            tell.send(()).unwrap();
            "telling"
        });
    let running = app.listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut waits = Client::new(running.address());
    waits.say("GET /wait HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(Client::new(running.address()).get("/tell").text(), "telling");
    assert_eq!(waits.reply().text(), "told");
    assert_eq!(running.shutdown().unwrap().thread_errors, 0);
}

#[test]
fn jobs_run_on_the_executor_of_the_program() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let app = App::new()
        .executor(move |job: Job| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(|| job.run());
        })
        .get("/", |_, q| q.blocking(|| 6 * 7, |_, answer| Response::text(answer.to_string())));
    let running = app.listen("127.0.0.1:0").unwrap().start().unwrap();
    assert_eq!(Client::new(running.address()).get("/").text(), "42");
    assert_eq!(count.load(Ordering::Relaxed), 1);
    running.shutdown().unwrap();
}

#[cfg(unix)]
#[test]
fn a_signal_calls_the_program() {
    use windlass_web::windlass::process::signal::SIGUSR1;
    let (tell, told) = std::sync::mpsc::channel();
    let app = App::new().on_signal(SIGUSR1, move |_| tell.send(()).unwrap());
    let running = app.listen("127.0.0.1:0").unwrap().start().unwrap();
    let me = std::process::id().to_string();
    let status = std::process::Command::new("kill").args(["-USR1", &me]).status().unwrap();
    assert!(status.success());
    told.recv_timeout(std::time::Duration::from_secs(60)).expect("the call");
    running.shutdown().unwrap();
}

#[cfg(feature = "ring")]
mod tls {
    use windlass_web::tls::{Pem, TlsClient};

    use super::*;
    use secure::{Authority, Secure};

    #[test]
    fn requests_over_tls_and_plain_ones_beside_them() {
        on_drivers(|app| {
            let authority = Authority::new();
            let tls = authority.server("localhost").build().unwrap();
            let app = app.listen(("127.0.0.1:0", tls)).unwrap().listen("127.0.0.1:0").unwrap();
            let running = app.start().unwrap();
            let trust = TlsClient::builder().roots(authority.root()).build().unwrap();
            let mut client = Secure::open(running.address(), &trust).unwrap();
            for _ in 0..2 {
                assert_eq!(client.get("/").text(), "true true");
            }
            let plain = running.addresses()[1].ip().unwrap();
            assert_eq!(Client::new(plain).get("/").text(), "false true");
            running.shutdown().unwrap();
        });
    }

    #[test]
    fn the_protocol_is_http_1_1() {
        let authority = Authority::new();
        let tls = authority.server("localhost").build().unwrap();
        let app = App::new().get("/", |_, q| {
            let alpn = q.tls().and_then(|tls| tls.alpn());
            String::from_utf8_lossy(alpn.unwrap_or(b"none")).into_owned()
        });
        let running = app.listen(("127.0.0.1:0", tls)).unwrap().start().unwrap();
        let agreed = |alpn: &[&str]| {
            let trust = TlsClient::builder().roots(authority.root()).alpn(alpn);
            let mut client = Secure::open(running.address(), &trust.build().unwrap()).ok()?;
            Some(client.get("/").text().to_owned())
        };
        assert_eq!(agreed(&["h2", "http/1.1"]).as_deref(), Some("http/1.1"));
        assert_eq!(agreed(&[]).as_deref(), Some("none"));
        assert_eq!(agreed(&["h2"]), None);
        assert_eq!(running.shutdown().unwrap().counters.handshakes.failed, 1);
    }

    #[test]
    fn the_certificate_of_a_client() {
        let authority = Authority::new();
        let tls = authority.server("localhost").require_client_certificates(authority.root());
        let app = App::new().get("/", |_, q| {
            let who = q.tls().and_then(|tls| tls.peer_certificate_info());
            who.map_or(String::from("nobody"), |who| who.to_string())
        });
        let running = app.listen(("127.0.0.1:0", tls.build().unwrap())).unwrap().start().unwrap();
        let (certificate, key) = authority.issue("ann.example");
        let trust = TlsClient::builder().roots(authority.root());
        let known = trust.clone().certificate(Pem::bytes(certificate), Pem::bytes(key));
        let mut client = Secure::open(running.address(), &known.build().unwrap()).unwrap();
        let who = client.get("/").text().to_owned();
        assert!(who.contains("ann.example"), "{who}");
        running.shutdown().unwrap();
    }
}
