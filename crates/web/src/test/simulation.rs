//! A simulation, as a test sees it.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use windlass::Watcher;
use windlass::sim::{Faults, Sim};
#[cfg(feature = "tls")]
use windlass_serve::tls::{Tls, TlsClient};

use super::client::TestClient;
use super::connection::Connection;
use super::loop_work::LoopWork;
use super::net::Net;
use crate::app::App;

/// A network with servers, clients and a time of its own, decided by a seed. [`seeds`] makes them.
///
/// Each seed draws the kind of the kernel and the size of its buffers. Servers, clients and the
/// time go on only while a client waits, and in [`sleep`](Simulation::sleep).
///
/// [`seeds`]: super::seeds()
pub struct Simulation {
    net: Rc<RefCell<Net>>,
    seed: u64,
    #[cfg(feature = "tls")]
    trust: RefCell<Option<TlsClient>>,
}

/// The server of a simulation.
#[derive(Clone, Debug)]
pub struct Host(usize);

impl Simulation {
    /// A simulation without faults, servers and clients.
    pub fn new(seed: u64) -> Simulation {
        let sim = Sim::new(seed);
        let mut net = Net::new(sim.clone(), seed);
        // Small buffers cut messages everywhere, large ones take whole batches.
        sim.set_completing(net.draw(2) == 0);
        sim.set_buffer(1 << (8 + net.draw(9)));
        Simulation {
            net: Rc::new(RefCell::new(net)),
            seed,
            #[cfg(feature = "tls")]
            trust: RefCell::new(None),
        }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The simulated network, for links, cuts, files and faults of one address. Servers have the
    /// addresses 10.0.0.2, 10.0.0.3 and so on, in the order of their hosts, and the clients
    /// 10.0.0.1.
    pub fn network(&self) -> Sim {
        self.net.borrow().sim.clone()
    }

    /// Sets how often the network fails from now on: 0 to 1. With a tenth, every tenth call of the
    /// system is cut short, late or interrupted, every fortieth connect or accept fails, and every
    /// two-hundredth read or write breaks its connection.
    pub fn faults(&self, strength: f64) {
        self.network().set_faults(Faults {
            reset: strength / 20.0,
            aborted: strength / 4.0,
            connect_refused: strength / 4.0,
            emfile: strength / 4.0,
            ..Faults::transient(strength)
        });
    }

    /// Starts an application as a server at `HOST:PORT`, in the place of the addresses that it
    /// listens at. `make` is called again when the host starts again. The host of several servers
    /// is one machine.
    ///
    /// # Panics
    ///
    /// If the server cannot start.
    pub fn serve<S: 'static>(&self, at: &str, make: impl Fn() -> App<S> + 'static) -> Host {
        let start = move |sim: &Sim, at: &str| {
            let app = make();
            let mut watcher = app.simulated_watcher(sim);
            Ok((app.start_simulated(&mut watcher, at)?, watcher, ()))
        };
        Host(self.net.borrow_mut().serve(at, start))
    }

    /// Starts an application as [`serve`](Simulation::serve) does, with what its program does on
    /// the same loop. `make` gets the watcher of the loop. It is called again when the host starts
    /// again, and its files are what the last process has left.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass_web::test::{LoopWork, Simulation};
    /// use windlass_web::windlass::{Completion, Op, Watcher};
    /// use windlass_web::{App, test};
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    ///
    /// /// Counts seconds.
    /// struct Seconds(Arc<AtomicU64>);
    ///
    /// impl LoopWork for Seconds {
    ///     fn complete(&mut self, watcher: &mut Watcher, _: Completion) {
    ///         self.0.fetch_add(1, Relaxed);
    ///         watcher.submit(Op::timer(Duration::from_secs(1))).expect("a timer");
    ///     }
    /// }
    ///
    /// let sim = Simulation::new(7);
    /// sim.serve_beside("time.test:80", |watcher| {
    ///     watcher.submit(Op::timer(Duration::from_secs(1))).expect("a timer");
    ///     let seconds = Arc::new(AtomicU64::new(0));
    ///     let counted = seconds.clone();
    ///     let app = App::new().get("/", move |_, _| counted.load(Relaxed).to_string());
    ///     (app, Seconds(seconds))
    /// });
    /// sim.sleep(Duration::from_millis(3500));
    /// assert_eq!(sim.client().get("http://time.test/").send()?.text(), "3");
    /// # Ok::<(), test::ClientError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// As [`serve`](Simulation::serve).
    pub fn serve_beside<S: 'static, B: LoopWork + 'static>(
        &self,
        at: &str,
        make: impl Fn(&mut Watcher) -> (App<S>, B) + 'static,
    ) -> Host {
        let start = move |sim: &Sim, at: &str| {
            let mut watcher = Watcher::simulated(sim);
            let (app, beside) = make(&mut watcher);
            Ok((app.start_simulated(&mut watcher, at)?, watcher, beside))
        };
        Host(self.net.borrow_mut().serve(at, start))
    }

    /// Starts an application as a server with TLS: as [`serve`](Simulation::serve). The certificate
    /// has to be for the name of the host. [`trust`](Simulation::trust) says whom clients trust.
    ///
    /// The simulated time is no time of day: set a [clock](windlass_serve::tls::TlsBuilder::clock)
    /// that is inside of the certificate's time. Keys of Ed25519 have signatures of one length, so
    /// that a seed has one trace.
    ///
    /// # Panics
    ///
    /// As [`serve`](Simulation::serve).
    #[cfg(feature = "tls")]
    pub fn serve_tls<S: 'static>(
        &self,
        at: &str,
        tls: Tls,
        make: impl Fn() -> App<S> + 'static,
    ) -> Host {
        let start = move |sim: &Sim, at: &str| {
            let app = make();
            let mut watcher = app.simulated_watcher(sim);
            Ok((app.start_simulated(&mut watcher, (at, tls.clone()))?, watcher, ()))
        };
        Host(self.net.borrow_mut().serve(at, start))
    }

    /// Sets whom the clients that are made from now on trust, for URLs of `https`.
    #[cfg(feature = "tls")]
    pub fn trust(&self, tls: TlsClient) {
        *self.trust.borrow_mut() = Some(tls);
    }

    /// Takes the power of a host away: its connections break, and its files keep what was synced.
    /// It starts again within 2 s of virtual time, with a new state.
    pub fn crash(&self, host: &Host) {
        self.net.borrow_mut().crash(host.0);
    }

    /// Begins the shutdown of a server. It does not start again by itself.
    pub fn stop(&self, host: &Host) {
        self.net.borrow_mut().stop(host.0);
    }

    /// Starts a server again that has shut down or crashed.
    ///
    /// # Panics
    ///
    /// If it cannot start.
    pub fn start(&self, host: &Host) {
        self.net.borrow_mut().start(host.0);
    }

    /// Whether a server runs: it has not crashed, and has not shut down.
    pub fn is_running(&self, host: &Host) -> bool {
        self.net.borrow().is_running(host.0)
    }

    /// A client of HTTP.
    pub fn client(&self) -> TestClient {
        TestClient::new(
            Rc::clone(&self.net),
            #[cfg(feature = "tls")]
            self.trust.borrow().clone(),
        )
    }

    /// A connection to `HOST:PORT`, whose bytes the test writes and reads.
    ///
    /// # Panics
    ///
    /// If there is no such host.
    pub fn connect(&self, to: &str) -> Connection {
        let (host, port) = to.rsplit_once(':').expect("HOST:PORT");
        Connection::new(Rc::clone(&self.net), host, port.parse().expect("a port"))
    }

    /// A connection with TLS to `HOST:PORT`, whose plain text the test writes and reads.
    ///
    /// # Panics
    ///
    /// If there is no such host, or nobody to [trust](Simulation::trust).
    #[cfg(feature = "tls")]
    pub fn connect_tls(&self, to: &str) -> Connection {
        let connection = self.connect(to);
        let trust = self.trust.borrow().clone().expect("whom to trust");
        let host = to.rsplit_once(':').expect("HOST:PORT").0;
        connection.secure(&trust, host);
        connection
    }

    /// Lets virtual time pass, and the servers go on.
    pub fn sleep(&self, span: Duration) {
        self.net.borrow_mut().sleep(span);
    }

    /// The virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.net.borrow().elapsed()
    }

    /// A number below `bound`, drawn from the seed.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub fn random_below(&self, bound: u64) -> u64 {
        self.net.borrow().sim.random_below(bound)
    }

    /// Adds a line to the log, which a failure prints.
    pub fn note(&self, line: &str) {
        self.net.borrow_mut().note(line);
    }

    /// The last 1000 lines of the log: requests, responses, crashes and notes, each with its
    /// virtual time in seconds.
    pub fn log(&self) -> String {
        self.net.borrow().lines()
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("seed", &self.seed).finish_non_exhaustive()
    }
}
