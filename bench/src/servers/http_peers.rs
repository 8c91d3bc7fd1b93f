//! HTTP servers of other crates, each as its own documentation has it, on one thread.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use may_minihttp::{HttpServer, HttpService};

const BODY: &str = "Hello, World!";

/// hyper on tokio's runtime of one thread. All answers of a pipeline leave as one write.
pub fn hyper(port: u16) -> io::Result<()> {
    let answer = async |_| {
        let mut answer = hyper::Response::new(Full::new(Bytes::from_static(BODY.as_bytes())));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok::<_, Infallible>(answer)
    };
    let listener = super::listen(port)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(async move {
                let mut server = http1::Builder::new();
                let served = server.pipeline_flush(true);
                // The client ends connections as it likes.
                let _ = served.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    })
}

#[derive(Clone)]
struct Hello;

impl HttpService for Hello {
    fn call(
        &mut self,
        _: may_minihttp::Request<'_, '_, '_>,
        answer: &mut may_minihttp::Response<'_>,
    ) -> io::Result<()> {
        answer.header("Content-Type: text/plain");
        answer.body(BODY);
        Ok(())
    }
}

/// may_minihttp: a coroutine for each connection, on one worker.
pub fn may(port: u16) -> io::Result<()> {
    may::config().set_workers(1).set_stack_size(0x1000);
    let server = HttpServer(Hello).start(("127.0.0.1", port))?;
    server.join().map_err(|_| io::Error::other("the server has panicked"))
}
