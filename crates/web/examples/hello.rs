//! The smallest server: `GET /`, `GET /plaintext`, `POST /echo`.
//!
//! ```text
//! cargo run --release -p windlass-web --features ring --example hello -- \
//!     [--port N] [--loops N] [--tls [--cert FILE --key FILE]]
//! curl http://127.0.0.1:8080/
//! curl http://127.0.0.1:8080/echo -d hello
//! ```
//!
//! `--tls` needs the feature `ring`. Without files the server makes a certificate for `localhost`,
//! which it signs itself: `curl --insecure https://127.0.0.1:8080/`.

use windlass_web::App;

#[path = "common/mod.rs"]
mod common;

pub(crate) fn app() -> App {
    App::new()
        .get("/", |_, _| "Hello, World!")
        .get("/plaintext", |_, _| "Hello, World!")
        .post("/echo", |_, q| q.body().map(<[u8]>::to_vec))
}

#[allow(dead_code)] // a test uses the application
fn main() -> std::io::Result<()> {
    const USAGE: &str = "hello [--port N] [--loops N] [--tls [--cert FILE --key FILE]]";
    common::Setup::new(common::Options::new(USAGE), 8080).run(app())
}
