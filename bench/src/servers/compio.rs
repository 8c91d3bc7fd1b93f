//! compio on io_uring: a task and a buffer of 16 KiB per connection.

use std::io;

use compio::BufResult;
use compio::buf::{IntoInner, IoBuf};
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::TcpListener;

pub fn serve(port: u16) -> io::Result<()> {
    let listener = super::listen(port)?;
    compio::runtime::Runtime::new()?.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (mut socket, _) = listener.accept().await?;
            compio::runtime::spawn(async move {
                let mut space = Vec::with_capacity(16 << 10);
                loop {
                    let BufResult(read, buf) = socket.read(space).await;
                    let Ok(count @ 1..) = read else { break };
                    let BufResult(written, slice) = socket.write_all(buf.slice(..count)).await;
                    if written.is_err() {
                        break;
                    }
                    space = slice.into_inner();
                    space.clear();
                }
            })
            .detach();
        }
    })
}
