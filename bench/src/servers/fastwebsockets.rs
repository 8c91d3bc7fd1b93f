//! fastwebsockets behind hyper's upgrade, as its own example has it, on tokio's runtime of one
//! thread.

use std::io;

use bytes::Bytes;
use fastwebsockets::{FragmentCollector, OpCode, WebSocketError, upgrade};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

pub fn serve(port: u16) -> io::Result<()> {
    let listener = super::listen(port)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(async move {
                let served = http1::Builder::new();
                let served = served.serve_connection(TokioIo::new(stream), service_fn(accept));
                // The client ends connections as it likes.
                let _ = served.with_upgrades().await;
            });
        }
    })
}

async fn accept(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, WebSocketError> {
    let (response, socket) = upgrade::upgrade(&mut request)?;
    tokio::spawn(async move {
        if let Ok(socket) = socket.await {
            // The client ends connections as it likes.
            let _ = echo(FragmentCollector::new(socket)).await;
        }
    });
    Ok(response)
}

type Socket = FragmentCollector<TokioIo<hyper::upgrade::Upgraded>>;

async fn echo(mut socket: Socket) -> Result<(), WebSocketError> {
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            OpCode::Text | OpCode::Binary => socket.write_frame(frame).await?,
            _ => {}
        }
    }
}
