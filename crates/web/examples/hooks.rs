//! What stands around handlers: an access log, metrics, CORS, request ids, basic authentication and
//! redirects. Each is a function on an application, to take along.
//!
//! ```text
//! cargo run --release -p windlass-web --example hooks -- [--port N] [--loops N] [--combined]
//! curl --include http://127.0.0.1:8080/notes/7
//! curl --user admin:secret http://127.0.0.1:8080/admin/
//! curl http://127.0.0.1:8080/metrics
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use windlass_web::http1::Method;
use windlass_web::{App, Error, Request, Response, Status};

#[path = "common/mod.rs"]
mod common;

/// A line for each request, in the common format of logs. With `is_combined` it has `Referer` and
/// `User-Agent`, too.
pub(crate) fn access_log<S: 'static>(
    app: App<S>,
    is_combined: bool,
    print: impl Fn(String) + Send + Sync + 'static,
) -> App<S> {
    app.finished(move |_, f| {
        let client = f.client().map_or("-".into(), |client| client.to_string());
        let request = match (f.method(), f.target(), f.version()) {
            (Some(method), Some(target), Some(version)) => {
                format!("{method} {target} {}", version.as_str())
            }
            _ => "-".into(), // what was no request
        };
        let day = |range| f.date().get(range).unwrap_or_default(); // of `Sun, 06 Nov 1994 08:49:37`
        let date = format!("{}/{}/{}:{}", day(5..7), day(8..11), day(12..16), day(17..25));
        let (status, sent) = (f.status().map_or(0, Status::code), f.sent());
        let mut line = format!("{client} - - [{date} +0000] {request:?} {status} {sent}");
        for name in ["Referer", "User-Agent"].into_iter().filter(|_| is_combined) {
            let _ = write!(line, " {:?}", f.header(name).unwrap_or("-"));
        }
        print(line);
    })
}

/// `/metrics` for Prometheus: requests by their route and status, and the connections of the loop
/// that answers.
pub(crate) fn metrics<S: 'static>(app: App<S>) -> App<S> {
    let all = Arc::new(Mutex::new(BTreeMap::<(String, u16), (u64, f64)>::new()));
    let shown = Arc::clone(&all);
    let app = app.get("/metrics", move |_, q| {
        let (counters, index) = (q.counters(), q.connection().loop_index());
        let mut text = format!("connections_total{{loop=\"{index}\"}} {}\n", counters.accepted);
        let _ = writeln!(text, "idle_total{{loop=\"{index}\"}} {}", counters.ends.idle);
        for ((route, status), (count, seconds)) in &*shown.lock().unwrap() {
            let labels = format!("{{route=\"{route}\",status=\"{status}\"}}");
            let _ = writeln!(text, "requests_total{labels} {count}");
            let _ = writeln!(text, "request_seconds_total{labels} {seconds}");
        }
        Response::text(text).content_type("text/plain; version=0.0.4")
    });
    app.finished(move |_, f| {
        let key = (f.route().to_owned(), f.status().map_or(0, Status::code));
        let mut all = all.lock().unwrap();
        let (count, seconds) = all.entry(key).or_default();
        (*count, *seconds) = (*count + 1, *seconds + f.took().as_secs_f64());
    })
}

/// Lets pages of these origins use the application, and answers what their browsers ask before.
pub(crate) fn cors<S: 'static>(app: App<S>, origins: &'static [&'static str]) -> App<S> {
    let app = app.before(|_, q| {
        let asks = q.header("Access-Control-Request-Method").is_some();
        (q.known_method() == Method::Options && asks).then(|| {
            Response::empty(Status::NO_CONTENT)
                .header("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
                .header("Access-Control-Allow-Headers", "Authorization, Content-Type")
                .header("Access-Control-Max-Age", "600")
        })
    });
    app.after(move |_, q, head| {
        head.add("Vary", "Origin");
        let origin = q.and_then(|q| q.header("Origin"));
        if let Some(known) = origins.iter().find(|known| Some(**known) == origin) {
            head.set("Access-Control-Allow-Origin", *known);
        }
    })
}

/// Each response has an id: that of the request, or a new one.
pub(crate) fn request_ids<S: 'static>(app: App<S>) -> App<S> {
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let count = AtomicU64::new(0);
    app.after(move |_, q, head| {
        let is_id = |id: &&str| {
            (1..=64).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let id = match q.and_then(|q| q.header("X-Request-Id")).filter(is_id) {
            Some(id) => id.to_owned(),
            None => format!("{start:x}-{}", count.fetch_add(1, Ordering::Relaxed)),
        };
        head.set("X-Request-Id", id);
    })
}

/// Asks for a name and a password: `credentials` are both, as `printf name:password | base64`
/// prints them.
pub(crate) fn basic_auth<S: 'static>(app: App<S>, credentials: &'static str) -> App<S> {
    app.before(move |_, q| {
        let given = q.header("Authorization").and_then(|value| value.split_once(' '));
        let is_known = given.is_some_and(|(scheme, given)| {
            scheme.eq_ignore_ascii_case("Basic")
                && is_same(given.as_bytes(), credentials.as_bytes())
        });
        let ask = || Error::new(Status::UNAUTHORIZED).header("WWW-Authenticate", "Basic");
        (!is_known).then(|| ask().into())
    })
}

/// Compares in a time that depends on the lengths only: else the time would tell how many bytes of
/// a guess are right.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differ = |sum, (a, b): (&u8, &u8)| std::hint::black_box(sum | (a ^ b));
    one.len() == other.len() && one.iter().zip(other).fold(0, differ) == 0
}

/// Sends clients from old paths to new ones, and from `/path/` to `/path`.
fn redirect<S: 'static>(q: &Request<'_, S>) -> Option<Response> {
    let query = q.query_text().map(|query| format!("?{query}")).unwrap_or_default();
    let (to, status) = match q.path() {
        "/home" => ("/".to_owned(), Status::MOVED_PERMANENTLY),
        "/" | "/admin/" => return None,
        // One slash at the begin: `//other.example` would be another host.
        path if path.ends_with('/') => {
            (format!("/{}", path.trim_matches('/')), Status::PERMANENT_REDIRECT)
        }
        _ => return None,
    };
    Some(Response::redirect(to + &query).status(status))
}

pub(crate) fn app(is_combined: bool, print: impl Fn(String) + Send + Sync + 'static) -> App {
    let admin = basic_auth(App::new().get("/", |_, _| "the admin's page"), "YWRtaW46c2VjcmV0");
    let app = App::new()
        .get("/", |_, _| "Hello, World!")
        .get("/notes/{id}", |_, q| format!("note {}", q.param("id")))
        .before(|_, q| redirect(q))
        .nest("/admin", admin);
    let app = cors(request_ids(app), &["https://app.example"]);
    access_log(metrics(app), is_combined, print)
}

#[allow(dead_code)] // a test uses the application
fn main() -> std::io::Result<()> {
    let mut options = common::Options::new("hooks [--port N] [--loops N] [--combined]");
    let is_combined = options.flag("--combined");
    let app = app(is_combined, |line| println!("{line}"));
    common::Setup::new(options, 8080).run(app)
}
