//! A server on threads of its own.

use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::{fmt, io, panic};

use windlass::Address;
use windlass::driver::discard;

use super::Server;
use super::handler::Handler;
use super::report::Report;
use super::threads::named;
use crate::handles::remote::Remote;

/// A server that runs on threads of its own: see [`Server::start`].
///
/// ```
/// use std::io::{Read, Write};
/// use windlass::Buf;
/// use windlass_serve::{Action, Conn, Handler, Server};
///
/// struct Echo;
/// impl Handler for Echo {
///     type State = ();
///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
///         c.write(data);
///         Action::Close
///     }
/// }
///
/// let server = Server::new(|_loop| Echo).listen("tcp://127.0.0.1:0")?.start()?;
/// let address = server.addresses()[0].ip().unwrap(); // with the port that the system has chosen
/// let mut client = std::net::TcpStream::connect(address)?;
/// client.write_all(b"hello")?;
/// let mut heard = String::new();
/// client.read_to_string(&mut heard)?;
/// assert_eq!(heard, "hello");
/// server.shutdown();
/// assert_eq!(server.wait()?.counters.accepted, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Drop
///
/// Dropping the value shuts the server down, and waits for its end, as [`wait`](Running::wait)
/// does, without its answer. So the threads never outlive the value, when a `?` or a panic leaves
/// the function that has it, too, and then the ports are free. (A `JoinHandle` of std detaches its
/// thread. But a thread ends by itself, and a server does not.) A program whose server is to run
/// until the process ends passes the value to [`std::mem::forget`].
///
/// Do not drop it in a callback of the server, and do not wait for it there: the callback would
/// wait for itself.
#[must_use = "dropping it shuts the server down"]
pub struct Running {
    addresses: Vec<Address>,
    remote: Remote,
    /// `None` once it was waited for.
    thread: Option<JoinHandle<io::Result<Report>>>,
}

impl Running {
    /// Starts a server, and waits until it serves.
    pub(super) fn start<H, F>(server: Server<F>) -> io::Result<Running>
    where
        H: Handler,
        F: Fn(usize) -> H + Send + Sync + 'static,
    {
        let (tell, told) = channel();
        let ready = move |remote: &Remote, addresses: &[Address]| {
            let _ = tell.send((remote.clone(), addresses.to_vec()));
        };
        let builder = thread::Builder::new().name(named("server", server.config.name));
        let thread = builder.spawn(move || server.run_and_tell(ready))?;
        if let Ok((remote, addresses)) = told.recv() {
            return Ok(Running { addresses, remote, thread: Some(thread) });
        }
        let ended = join(thread);
        Err(ended.err().unwrap_or_else(|| io::Error::other("the server has ended at its start")))
    }

    /// The bound addresses, in the order in which the program added them. Each has the port that
    /// the kernel has chosen for port 0.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Reaches the connections of all loops, from any thread.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Shuts the server down, as [`Remote::shutdown`] does. This call does not wait.
    pub fn shutdown(&self) {
        self.remote.shutdown();
    }

    /// Waits until the server has ended. It does not shut the server down.
    ///
    /// # Errors
    /// [`Watcher::wait`](windlass::Watcher::wait) has failed on a loop. Then the other loops have
    /// shut down, too.
    ///
    /// # Panics
    /// If the function that makes the handlers, or the [listeners](Server::listeners), has
    /// panicked, on the thread of a loop or of a connection. A panic in a callback does not pass
    /// through.
    pub fn wait(mut self) -> io::Result<Report> {
        join(self.thread.take().expect("only `wait` takes it"))
    }
}

/// Waits for the thread of a server, and passes its panic on.
fn join(thread: JoinHandle<io::Result<Report>>) -> io::Result<Report> {
    thread.join().unwrap_or_else(|payload| panic::resume_unwind(payload))
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.remote.shutdown();
            // A panic here could end the process. A program that wants to know calls `wait`.
            if let Err(payload) = thread.join() {
                discard(payload);
            }
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
