//! tokio on one thread: a task and a buffer of 16 KiB per connection.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

pub fn serve(port: u16) -> io::Result<()> {
    let listener = super::listen(port)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (mut socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            tokio::task::spawn_local(async move {
                let mut space = vec![0; 16 << 10];
                while let Ok(count) = socket.read(&mut space).await {
                    if count == 0 || socket.write_all(&space[..count]).await.is_err() {
                        break;
                    }
                }
            });
        }
    })
}
