//! Which fields go on, and which the proxy writes.

use std::sync::LazyLock;

use windlass_web::proxy::{Forward, Upstream};
use windlass_web::serve::net::Networks;
use windlass_web::{App, Limits, Status};

use crate::every_driver;
use crate::net::Harness;
use crate::scene::Scene;

every_driver! {
    fields_of_one_connection_stay_there
    what_a_client_says_of_itself_is_left_out
    what_a_trusted_proxy_says_is_kept
    the_program_changes_what_goes_on
    paths_are_rewritten
    hooks_see_the_head_of_a_response
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n";

fn fields_of_one_connection_stay_there<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.ask(
        "GET http://other/a?b HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, x-own\r\nX-Own: 1\r\n\
         Keep-Alive: 5\r\nProxy-Connection: close\r\nProxy-Authorization: a\r\nUpgrade: h2c\r\n\
         TE: gzip\r\nMax-Forwards: 3\r\nVia: 1.0 before\r\nCookie: \u{e9}\r\n\r\n",
    );
    let inner = scene.inner_hears(0, "\r\n\r\n");
    assert_eq!(
        scene.text(inner),
        "GET /a?b HTTP/1.1\r\nHost: other\r\nMax-Forwards: 3\r\nVia: 1.0 before\r\n\
         Cookie: \u{c3}\u{a9}\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n\
         X-Forwarded-Host: other\r\nVia: 1.1 windlass\r\n\r\n"
    );
    scene.say(
        inner,
        "HTTP/1.1 200 Fine\r\nServer: them\r\nDate: then\r\nConnection: Keep-Alive, X-Own\r\n\
         X-Own: 1\r\nKeep-Alive: 5\r\nVia: 1.0 deep\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
         Upgrade: h2c\r\nContent-Length: 1\r\n\r\nx",
    );
    scene.hears(client, "\r\n\r\nx");
    assert_eq!(
        scene.text(client),
        "HTTP/1.1 200 Fine\r\nServer: them\r\nDate: then\r\nVia: 1.0 deep\r\nSet-Cookie: a\r\n\
         Set-Cookie: b\r\nVia: 1.1 windlass\r\nContent-Length: 1\r\n\r\nx"
    );
}

const CLAIMS: &str = "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 2.2.2.2\r\n\
    X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\n\
    Forwarded: for=1.1.1.1\r\n";

fn what_a_client_says_of_itself_is_left_out<T: Harness>() {
    let mut scene = Scene::new::<T>();
    scene.ask(format!("GET / HTTP/1.1\r\nHost: h\r\n{CLAIMS}\r\n"));
    let inner = scene.inner_hears(0, "\r\n\r\n");
    assert_eq!(
        scene.text(inner),
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n\
         X-Forwarded-Host: h\r\nVia: 1.1 windlass\r\n\r\n"
    );
}

fn what_a_trusted_proxy_says_is_kept<T: Harness>() {
    static TRUSTED: LazyLock<Networks> = LazyLock::new(|| "127.0.0.0/8".parse().expect("one"));
    let trusts = |app: App<Upstream>| app.limits(Limits::new().trust(&TRUSTED));
    let mut scene = Scene::with::<T>(|up| up, trusts);
    scene.ask(format!("GET / HTTP/1.1\r\nHost: h\r\n{CLAIMS}\r\n"));
    let inner = scene.inner_hears(0, "\r\n\r\n");
    assert_eq!(
        scene.text(inner),
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n\
         X-Forwarded-Port: 1\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2, 127.0.0.1\r\n\
         Forwarded: for=1.1.1.1, for=127.0.0.1;proto=http\r\nVia: 1.1 windlass\r\n\r\n"
    );
}

fn the_program_changes_what_goes_on<T: Harness>() {
    let mut scene = Scene::of::<T>(|url| {
        App::with(move |_| {
            Upstream::new(&url).expect("a URL").keeps_host(false).via("me").protocols([])
        })
        .fallback(|up, q| {
            let plan =
                Forward::to(up).header("X-Id", "7").header("Via", "none").without_header("cookie");
            q.forward(plan.target("/new?x=y"))
        })
        .at_head()
    });
    scene.ask("GET /old HTTP/1.1\r\nHost: h\r\nCookie: a\r\nX-ID: 1\r\n\r\n");
    let inner = scene.inner_hears(0, "\r\n\r\n");
    let at = scene.inner_at;
    assert_eq!(
        scene.text(inner),
        format!(
            "GET /new?x=y HTTP/1.1\r\nHost: {at}\r\nX-Forwarded-For: 127.0.0.1\r\n\
             X-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\nX-Id: 7\r\nVia: none\r\n\r\n"
        )
    );
}

fn paths_are_rewritten<T: Harness>() {
    let mut scene = Scene::of::<T>(|url| {
        App::with(move |_| Upstream::new(&format!("{url}/base/")).expect("a URL"))
            .fallback(|up, q| q.forward(Forward::to(up).without_prefix("/api")))
            .at_head()
    });
    let client = scene.client();
    for (target, expected) in [
        ("/api/a?b", "/base/a?b"),
        ("/api", "/base/"),
        ("/api?b", "/base/?b"),
        ("/apix", "/base/apix"),
        ("/", "/base/"),
        ("http://h?q", "/base/?q"),
        ("http://h/api/%2e%2e/x", "/base/%2e%2e/x"),
    ] {
        scene.say(client, format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let inner = scene.inner_hears(0, "\r\n\r\n");
        let heard = scene.take(inner);
        assert!(heard.starts_with(&format!("GET {expected} HTTP/1.1\r\n")), "{target}: {heard}");
        scene.say(inner, format!("{OK}\r\n"));
        scene.hears(client, "\r\n\r\n");
        scene.take(client);
    }
}

fn hooks_see_the_head_of_a_response<T: Harness>() {
    let change = |app: App<Upstream>| {
        app.after(|_, _, head| {
            assert_eq!(head.get("x-inner"), Some("1"));
            head.set("X-Inner", "2");
            head.remove("Server");
            if head.status() == Status::OK {
                head.set_status(Status::CREATED);
            }
        })
    };
    let mut scene = Scene::with::<T>(|up| up, change);
    let client = scene.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let inner = scene.inner_hears(0, "\r\n\r\n");
    let fields = "Server: them\r\nX-Inner: 1\r\nContent-Type: text/plain\r\nDate: then\r\n";
    scene.say(inner, "HTTP/1.1 200 Fine\r\n");
    scene.say(inner, format!("{fields}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"));
    scene.hears(client, "0\r\n\r\n");
    assert_eq!(
        scene.text(client),
        "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nDate: then\r\nVia: 1.1 windlass\r\n\
         X-Inner: 2\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
    );
}
