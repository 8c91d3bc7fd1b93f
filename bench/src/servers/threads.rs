//! std: a thread with a buffer of 16 KiB for each connection.

use std::io::{self, Read, Write};
use std::thread;

pub fn serve(port: u16) -> io::Result<()> {
    let listener = super::listen(port)?;
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        thread::Builder::new().spawn(move || {
            let mut space = vec![0; 16 << 10];
            while let Ok(count) = stream.read(&mut space) {
                if count == 0 || stream.write_all(&space[..count]).is_err() {
                    break;
                }
            }
        })?;
    }
}
