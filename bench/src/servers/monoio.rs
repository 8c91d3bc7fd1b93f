//! monoio on io_uring: a task and a buffer of 16 KiB per connection.

use std::io;

use monoio::buf::IoBuf;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpListener;

pub fn serve(port: u16) -> io::Result<()> {
    let listener = super::listen(port)?;
    let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (mut socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            monoio::spawn(async move {
                let mut space = Vec::with_capacity(16 << 10);
                loop {
                    let (read, buf) = socket.read(space).await;
                    let Ok(count @ 1..) = read else { break };
                    let (written, slice) = socket.write_all(buf.slice(..count)).await;
                    if written.is_err() {
                        break;
                    }
                    space = slice.into_inner();
                    space.clear();
                }
            });
        }
    })
}
