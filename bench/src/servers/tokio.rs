//! tokio on one thread: a task per connection. It has a buffer of 16 KiB of its own, or waits until
//! the socket is readable, and reads into a buffer that all tasks share.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

/// An idle connection holds no buffer.
pub fn serve_readable(port: u16) -> io::Result<()> {
    let listener = super::listen(port)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let listener = TcpListener::from_std(listener)?;
        let space = Rc::new(RefCell::new(vec![0; 64 << 10]));
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let space = space.clone();
            tokio::task::spawn_local(async move {
                while socket.readable().await.is_ok() {
                    let rest = match echo(&socket, &mut space.borrow_mut()) {
                        Ok(rest) => rest,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        Err(_) => break,
                    };
                    if !rest.is_empty() && write_all(&socket, &rest).await.is_err() {
                        break;
                    }
                }
            });
        }
    })
}

/// Reads once and writes at once. Returns what the socket did not take.
fn echo(socket: &TcpStream, space: &mut [u8]) -> io::Result<Vec<u8>> {
    let count = socket.try_read(space)?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let sent = match socket.try_write(&space[..count]) {
        Ok(sent) => sent,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    Ok(space[sent..count].to_vec())
}

async fn write_all(socket: &TcpStream, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        socket.writable().await?;
        match socket.try_write(rest) {
            Ok(sent) => rest = &rest[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
