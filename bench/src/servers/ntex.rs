//! ntex's HTTP service on tokio, with one worker.

use std::io;

use ntex::http::header::{CONTENT_TYPE, HeaderValue};
use ntex::http::{HttpService, Response};

pub fn serve(port: u16) -> io::Result<()> {
    ntex::rt::System::new("bench", ntex::rt::DefaultRuntime).block_on(async move {
        let serve = async |_| {
            HttpService::h1(async |_| {
                let mut answer = Response::Ok();
                answer.header(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
                Ok::<_, io::Error>(answer.body("Hello, World!"))
            })
        };
        ntex::server::build().workers(1).bind("bench", ("127.0.0.1", port), serve)?.run().await
    })
}
