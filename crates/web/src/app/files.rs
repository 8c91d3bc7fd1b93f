//! Routes that serve the files of a directory.

use std::path::PathBuf;
use std::sync::Arc;

use super::App;
use crate::files::dir::ServedDir;
use crate::files::options::FilesOptions;
use crate::message::request::Request;
use crate::message::response::Response;

/// The rest of a path, below the route.
const REST: &str = "file";

impl<S: 'static> App<S> {
    /// Serves the files of a directory below a route, to `GET` and `HEAD`. Another method is a 405.
    /// The module [`files`](mod@crate::files) tells what the responses are like.
    ///
    /// Routes below it that are more exact answer before it. The path of `root` is relative to the
    /// working directory of the process. It need not be there yet: a file that is not there is a
    /// 404.
    ///
    /// ```no_run
    /// use windlass_web::App;
    /// use windlass_web::files::FilesOptions;
    ///
    /// App::new()
    ///     .files("/", "www", FilesOptions::new().cache_control("max-age=60"))
    ///     .get("/time", |_, _| "now")
    ///     .listen("127.0.0.1:8080")?
    ///     .run()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// As [`route`](App::route).
    pub fn files(self, route: &str, root: impl Into<PathBuf>, options: FilesOptions) -> App<S> {
        let dir = ServedDir::new(root.into(), options);
        let route = route.strip_suffix('/').unwrap_or(route);
        let below = Arc::clone(&dir);
        let mut app = self
            .get(&format!("{route}/{{*{REST}}}"), move |_, q: &mut Request<'_, S>| {
                Response::below(&below, q.rest_at(REST))
            });
        // The rest of a path is never empty.
        app = app.get(&format!("{route}/"), move |_, q: &mut Request<'_, S>| {
            Response::below(&dir, q.path().len())
        });
        if route.is_empty() {
            return app;
        }
        app.get(route, |_, q: &mut Request<'_, S>| Response::to_directory(q.path(), q.query_text()))
    }
}
