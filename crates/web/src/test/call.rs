//! Calls of an application without a network of the test's own.
//!
//! # Why
//! They run over a simulated connection, too: so their limits, their codec and the order of their
//! hooks are those of a server.

use std::fmt;
use std::path::Path;

use super::client::TestClient;
use super::request::TestRequest;
use super::response::TestResponse;
use super::simulation::Simulation;
use crate::app::App;

/// Calls an application several times: the state of its loop stays.
///
/// ```
/// use windlass_web::{App, test};
///
/// let app = App::with(|_loop| 0).post("/add", |sum, _| {
///     *sum += 1;
///     format!("{sum}")
/// });
/// let mut caller = test::Caller::of(app);
/// assert_eq!(caller.call(test::post("/add")).text(), "1");
/// assert_eq!(caller.call(test::post("/add")).text(), "2");
/// ```
pub struct Caller {
    client: TestClient,
    simulation: Simulation,
}

/// The address of the first server of a simulation.
const SERVER: [u8; 4] = [10, 0, 0, 2];

impl Caller {
    /// Starts the application.
    pub fn of<S: 'static>(app: App<S>) -> Caller {
        let simulation = Simulation::new(0);
        let app = std::cell::Cell::new(Some(app));
        simulation.serve("localhost:80", move || app.take().expect("it starts once"));
        Caller { client: simulation.client(), simulation }
    }

    /// Writes a file of the simulated host, for [`App::files`] and
    /// [`Response::file`](crate::Response::file): the files of the system are not there. Its path
    /// is taken as the application says it.
    ///
    /// ```
    /// use windlass_web::files::FilesOptions;
    /// use windlass_web::{App, Status, test};
    ///
    /// let mut caller = test::Caller::of(App::new().files("/", "www", FilesOptions::new()));
    /// caller.write_file("www/a.txt", "a text");
    /// let response = caller.call(test::get("/a.txt").header("Range", "bytes=2-"));
    /// assert_eq!((response.status(), response.text()), (Status::PARTIAL_CONTENT, "text"));
    /// assert_eq!(caller.call(test::get("/b.txt")).status(), Status::NOT_FOUND);
    /// ```
    pub fn write_file(&mut self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        self.simulation.network().at(SERVER).write_file(path, bytes);
    }

    /// Sends a request, whose URL may be a path, and waits for the response.
    ///
    /// # Panics
    ///
    /// If there is no response: the application has ended the connection.
    pub fn call(&mut self, request: TestRequest) -> TestResponse {
        let what = format!("{} {}", request.method, request.url);
        let mut request = request;
        if request.url.starts_with('/') {
            request.url.insert_str(0, "http://localhost");
        }
        let response = self.client.send(&request);
        response.unwrap_or_else(|error| panic!("{what} has no response: {error}"))
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

impl<S: 'static> App<S> {
    /// Answers one request of a test, without a network of the test's own. A
    /// [`test::Caller`](crate::test::Caller) keeps the state for further ones.
    ///
    /// ```
    /// use windlass_web::{App, Status, test};
    ///
    /// let app = App::new().get("/hello/{name}", |_, q| format!("hi {}", q.param("name")));
    /// let response = app.call(test::get("/hello/you"));
    /// assert_eq!((response.status(), response.text()), (Status::OK, "hi you"));
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no response: the application has ended the connection.
    pub fn call(self, request: TestRequest) -> TestResponse {
        Caller::of(self).call(request)
    }
}
