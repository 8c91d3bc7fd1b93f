//! WebSocket servers of other crates, each as its own example has it, on tokio's runtime of one
//! thread. They echo each message. What ends a connection is its client.

use std::error::Error;
use std::io;

use bytes::{Buf, Bytes, BytesMut};
use fastwebsockets::FragmentCollector;
use futures_util::{SinkExt, StreamExt};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wtx::collection::Vector;
use wtx::web_socket::{WebSocketAcceptor, WebSocketPayloadOrigin};

type Ended = Result<(), Box<dyn Error + Send + Sync>>;

/// Serves each connection with a task of its own.
fn serve<F>(port: u16, with: impl Fn(TcpStream) -> F) -> io::Result<()>
where
    F: Future<Output = Ended> + Send + 'static,
{
    let listener = super::listen(port)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(with(stream));
        }
    })
}

/// Serves HTTP on hyper, with upgrades.
async fn hyper<F, E>(stream: TcpStream, accept: impl Fn(Request<Incoming>) -> F) -> Ended
where
    F: Future<Output = Result<Response<Empty<Bytes>>, E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(accept));
    Ok(served.with_upgrades().await?)
}

/// fastwebsockets behind hyper's upgrade.
pub fn fastwebsockets(port: u16) -> io::Result<()> {
    async fn echo(upgraded: fastwebsockets::upgrade::UpgradeFut) -> Ended {
        use fastwebsockets::OpCode;
        let mut socket = FragmentCollector::new(upgraded.await?);
        loop {
            let frame = socket.read_frame().await?;
            match frame.opcode {
                OpCode::Close => return Ok(()),
                OpCode::Text | OpCode::Binary => socket.write_frame(frame).await?,
                _ => {}
            }
        }
    }
    serve(port, |stream| {
        hyper(stream, |mut request| async move {
            let (response, upgraded) = fastwebsockets::upgrade::upgrade(&mut request)?;
            tokio::spawn(echo(upgraded));
            Ok::<_, fastwebsockets::WebSocketError>(response)
        })
    })
}

/// yawc behind hyper's upgrade.
pub fn yawc(port: u16, options: yawc::Options) -> io::Result<()> {
    async fn echo(upgraded: yawc::UpgradeFut) -> Ended {
        use yawc::{Frame, OpCode};
        let mut socket = upgraded.await?;
        while let Some(frame) = socket.next().await {
            let (opcode, _is_last, payload) = frame.into_parts();
            match opcode {
                OpCode::Text => socket.send(Frame::text(payload)).await?,
                OpCode::Binary => socket.send(Frame::binary(payload)).await?,
                _ => {}
            }
        }
        Ok(())
    }
    serve(port, move |stream| {
        let options = options.clone();
        hyper(stream, move |mut request: Request<Incoming>| {
            let options = options.clone();
            async move {
                let upgraded = yawc::WebSocket::upgrade_with_options(&mut request, options);
                let (response, upgraded) = upgraded?;
                tokio::spawn(echo(upgraded));
                Ok::<_, yawc::WebSocketError>(response)
            }
        })
    })
}

/// The high-level stream of sockudo-ws.
pub fn sockudo(port: u16) -> io::Result<()> {
    use sockudo_ws::{Config, Message, WebSocketStream, handshake};
    async fn echo(mut stream: TcpStream) -> Ended {
        let mut bytes = BytesMut::with_capacity(4096);
        loop {
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
            if let Some((request, len)) = handshake::parse_request(&bytes)? {
                let accept = handshake::generate_accept_key(request.key);
                stream.write_all(&handshake::build_response(&accept, None, None)).await?;
                bytes.advance(len);
                break;
            }
        }
        let mut socket = WebSocketStream::server(stream, Config::default());
        while let Some(message) = socket.next().await {
            match message? {
                message @ (Message::Text(_) | Message::Binary(_)) => socket.send(message).await?,
                Message::Close(_) => break,
                _ => {}
            }
        }
        Ok(())
    }
    serve(port, echo)
}

/// wtx, whose frames are joined.
pub fn wtx(port: u16) -> io::Result<()> {
    async fn echo(stream: TcpStream) -> Ended {
        use wtx::web_socket::OpCode;
        let mut buffer = Vector::new();
        let mut socket = WebSocketAcceptor::default().accept(stream).await?;
        let (mut common, mut reader, mut writer) = socket.split_mut();
        loop {
            let origin = WebSocketPayloadOrigin::Adaptive;
            let mut frame = reader.read_frame(&mut buffer, &mut common, origin).await?;
            match frame.op_code() {
                OpCode::Binary | OpCode::Text => {
                    writer.write_frame(&mut common, &mut frame).await?
                }
                OpCode::Close => return Ok(()),
                _ => {}
            }
        }
    }
    serve(port, echo)
}
