//! Uploads to a slow disk: the most memory that the server has resident.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::process::{Server, Talking};
use crate::table::Table;

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let bytes: u64 = arguments.option("--bytes", 1 << 30)?;
    let rate: u64 = arguments.option("--rate", 100 << 20)?;
    arguments.end()?;
    let disk = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/slow-disk");
    fs::create_dir_all(&disk)?;
    let directory = disk.to_string_lossy().into_owned();
    let words = ["slow-disk", &directory, &rate.to_string()].map(String::from);
    let mounted = Talking::start(1, &words)?;
    let line = mounted.hear(Duration::from_secs(20))?;
    if line != "mounted" {
        return Err(io::Error::other(line));
    }
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let command = format!("bench -- upload --bytes {bytes} --rate {rate}");
    let columns = ["server", "upload, MiB", "seconds", "KiB resident before", "at most", "more"];
    let title = format!("An upload to a disk of {} MiB/s", rate >> 20);
    let mut table = Table::new(&title, &command, &columns);
    for name in ["windlass-upload", "windlass-upload-uring"] {
        for bytes in [bytes / 64, bytes] {
            let server = [&ours, "serve", name, "{port}", &directory].map(String::from);
            let server = Server::start(&server)?;
            // The first upload starts threads and makes buffers.
            upload(server.port, 1 << 20)?;
            let before = server.peak_bytes()? >> 10;
            let seconds = upload(server.port, bytes)?.as_secs_f64();
            let most = server.peak_bytes()? >> 10;
            table.row(&[
                name.into(),
                (bytes >> 20).to_string(),
                format!("{seconds:.1}"),
                before.to_string(),
                most.to_string(),
                (most - before).to_string(),
            ]);
        }
    }
    mounted.end()?;
    table.finish("upload")
}

/// Sends a body as fast as the server takes it, and returns how long its file took.
fn upload(port: u16, bytes: u64) -> io::Result<Duration> {
    let begin = Instant::now();
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(socket, "PUT /file HTTP/1.1\r\nHost: upload\r\nContent-Length: {bytes}\r\n\r\n")?;
    let block = vec![7; 256 << 10];
    let mut missing = bytes;
    while missing > 0 {
        let count = missing.min(block.len() as u64);
        socket.write_all(&block[..count as usize])?;
        missing -= count;
    }
    let mut answer = [0; 1024];
    let count = socket.read(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer[..count]);
    match answer.ends_with(&format!("\r\n\r\n{bytes}")) {
        true => Ok(begin.elapsed()),
        false => Err(io::Error::other(answer.into_owned())),
    }
}
