//! Peers of a server of datagrams. They count the datagrams, and the processor time that the server
//! takes for them.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::process::cpu_time_of;

/// How many of these datagrams the socket of the server holds at least, with the buffer that it has
/// by default: so none is lost.
const BURST: usize = 100;
/// The bytes of a datagram.
const SIZE: usize = 64;

/// `peers`: the peers send in bursts of 100 datagrams, of which `--answers` get an answer, and wait
/// for these. Prints the server's microseconds of processor time per datagram, and the rate.
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let port: u16 = arguments.option("--port", 0)?;
    let peers: usize = arguments.option("--peers", 1000)?;
    let answers: usize = arguments.option("--answers", BURST)?;
    let seconds: f64 = arguments.option("--seconds", 1.0)?;
    let server: u32 = arguments.option("--server", 0)?;
    arguments.end()?;
    windlass::fd::raise_max_open_files()?;
    let sockets = (0..peers).map(|_| {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(socket)
    });
    let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
    let mut bursts = sockets.chunks(BURST).cycle();
    let mut burst = || exchange(bursts.next().expect("they cycle"), answers);
    let warm = Instant::now() + Duration::from_secs_f64(seconds / 5.0);
    while Instant::now() < warm {
        burst()?;
    }
    let (start, cpu) = (Instant::now(), cpu_time_of(server)?);
    let end = start + Duration::from_secs_f64(seconds);
    let mut count = 0;
    while Instant::now() < end {
        count += burst()?;
    }
    let (took, cpu) = (start.elapsed(), cpu_time_of(server)? - cpu);
    println!("{} {}", cpu.as_secs_f64() * 1e6 / count as f64, count as f64 / took.as_secs_f64());
    Ok(())
}

/// One burst, of a datagram of each of `sockets`; the last `answers` of them get an answer.
fn exchange(sockets: &[UdpSocket], answers: usize) -> io::Result<usize> {
    let mut bytes = [0; SIZE];
    let silent = sockets.len().saturating_sub(answers);
    for (i, socket) in sockets.iter().enumerate() {
        bytes[0] = u8::from(i >= silent);
        socket.send(&bytes)?;
    }
    let mut answer = [0; SIZE + 1];
    for socket in &sockets[silent..] {
        let len = socket.recv(&mut answer)?;
        if answer[..len] != bytes {
            return Err(io::Error::other("an answer is not what was sent"));
        }
    }
    Ok(sockets.len())
}
