//! An application: routes, hooks and state, and the server that runs it.
//!
//! ```text
//! mod.rs      the type `App`
//! routes.rs   which handler answers a request
//! hooks.rs    what is called around handlers
//! every.rs    what is done again and again
//! files.rs    routes that serve the files of a directory
//! perform.rs  requests into calls of handlers
//! serve.rs    the application as a handler of windlass-serve
//! listen.rs   where it listens
//! running.rs  the server: addresses, loops, start and end
//! upgrade.rs  what takes over a connection behind an upgrade
//! websocket.rs  routes whose connections become WebSockets
//! open_websocket.rs  WebSockets that a server opens to others
//! ```

mod every;
mod files;
mod hooks;
mod listen;
#[cfg(feature = "websocket")]
mod open_websocket;
mod perform;
mod routes;
mod running;
mod serve;
pub(crate) mod upgrade;
#[cfg(feature = "websocket")]
mod websocket;

#[cfg(feature = "websocket")]
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

pub use hooks::Finished;
use hooks::Hooks;
pub use listen::Listen;
use routes::{Route, Routes};
pub use running::{Running, ServerLoop};
use upgrade::Protocol;

#[cfg(feature = "websocket")]
use crate::client::hub::CallId;
use crate::exchange::raw::Raws;
use crate::message::head::Head;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::message::save::Saved;
use crate::message::trace::Spans;
use crate::remote::Remote;
use crate::topics::TopicCall;
#[cfg(feature = "websocket")]
use crate::websocket::LoopSockets;
use crate::words::error::Error;
use crate::words::limits::Limits;

/// Answers a request.
type HandlerFn<S> = dyn Fn(&mut S, &mut Request<'_, S>) -> Response + Send + Sync;

/// Makes the state of a loop.
type MakeState<S> = dyn Fn(usize) -> S + Send + Sync;

/// An application: routes with their handlers, hooks around them, and a state for each loop.
///
/// A handler gets the state and the request, and returns what converts into a [`Response`]. It runs
/// on the loop, so it must not block: [`Request::blocking`] runs blocking code on another thread.
///
/// ```no_run
/// use windlass_web::App;
///
/// let app = App::new()
///     .get("/", |_, _| "Hello, World!")
///     .get("/hello/{name}", |_, q| format!("hi {}", q.param("name")));
/// app.listen("127.0.0.1:8080")?.run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Routes
///
/// `{name}` is one part of a path, `{*name}` the rest of it. The most exact route answers. A path
/// without a route is a 404, a method that a path has not is a 405, one that no path has is a 501.
/// `HEAD` is answered by the handler of `GET`, and `OPTIONS` with the methods of the path.
///
/// # State
///
/// Each loop has a state of its own, made by the closure of [`App::with`], so that handlers need no
/// lock. What all loops share is an `Arc` that the closure clones.
pub struct App<S = ()> {
    make: Arc<MakeState<S>>,
    routes: Routes<S>,
    hooks: Hooks<S>,
    limits: Limits,
    periodic: Vec<every::Periodic<S>>,
    server: running::Settings,
}

impl App<()> {
    /// An application without a state.
    pub fn new() -> App<()> {
        App::with(|_loop| ())
    }
}

impl Default for App<()> {
    fn default() -> App<()> {
        App::new()
    }
}

impl<S: 'static> App<S> {
    /// An application whose loops have the state that `make` makes. It gets the index of the loop,
    /// from 0 on, and runs on the loop's thread, so that the state need not be `Send`.
    pub fn with(make: impl Fn(usize) -> S + Send + Sync + 'static) -> App<S> {
        App {
            make: Arc::new(make),
            routes: Routes::default(),
            hooks: Hooks::default(),
            limits: Limits::default(),
            periodic: Vec::new(),
            server: running::Settings::default(),
        }
    }

    /// Adds a route for a method: a token such as `PURGE`.
    ///
    /// # Panics
    ///
    /// If the method is no token, if the route is no pattern, if it conflicts with another one, or
    /// if it has this method already.
    pub fn route<R: Into<Response>>(
        mut self,
        method: &str,
        route: &str,
        handler: impl Fn(&mut S, &mut Request<'_, S>) -> R + Send + Sync + 'static,
    ) -> App<S> {
        let handler: Arc<HandlerFn<S>> =
            Arc::new(move |state, request| handler(state, request).into());
        self.routes.add(Some(method), route, Route::new(handler));
        self
    }

    /// Adds a route for all methods that have none of their own.
    ///
    /// # Panics
    ///
    /// As [`route`](App::route).
    pub fn any<R: Into<Response>>(
        mut self,
        route: &str,
        handler: impl Fn(&mut S, &mut Request<'_, S>) -> R + Send + Sync + 'static,
    ) -> App<S> {
        let handler: Arc<HandlerFn<S>> =
            Arc::new(move |state, request| handler(state, request).into());
        self.routes.add(None, route, Route::new(handler));
        self
    }

    /// Answers requests whose path has no route, in the place of a 404.
    pub fn fallback<R: Into<Response>>(
        mut self,
        handler: impl Fn(&mut S, &mut Request<'_, S>) -> R + Send + Sync + 'static,
    ) -> App<S> {
        let handler: Arc<HandlerFn<S>> =
            Arc::new(move |state, request| handler(state, request).into());
        self.routes.fall_back(Route::new(handler));
        self
    }

    /// Answers `CONNECT` requests, which name a host and a port in the place of a path:
    /// [`Request::target`] has them. [`Request::tunnel`] takes the connection over. Without this
    /// they are a 501.
    pub fn connect<R: Into<Response>>(
        mut self,
        handler: impl Fn(&mut S, &mut Request<'_, S>) -> R + Send + Sync + 'static,
    ) -> App<S> {
        let handler: Arc<HandlerFn<S>> =
            Arc::new(move |state, request| handler(state, request).into());
        self.routes.connect(Route::new(handler));
        self
    }

    /// Adds the routes of another application below a path, with its hooks and its fallback. Its
    /// state is not used.
    ///
    /// All that is below the path belongs to it: its hooks are called for a path without a route,
    /// too. That is a 404, or the response of its [fallback](App::fallback), or of the outer one.
    ///
    /// # Panics
    ///
    /// If the path does not begin with a slash or ends with one, or if a route conflicts.
    pub fn nest(mut self, path: &str, other: App<S>) -> App<S> {
        self.routes.nest(path, other.routes, &other.hooks);
        self
    }

    /// The handler of the last route is called with the head of a request, before its body. It
    /// answers at once, or asks for the body: by [`Request::collect`] or [`Request::receive`].
    ///
    /// Where it does not ask, up to 64 KiB of a body with a `Content-Length` are read and dropped,
    /// and the connection goes on. Behind a longer one, a chunked one, or one for which the client
    /// waits with `Expect: 100-continue`, the connection closes. A client that does so gets its
    /// `100 Continue` only when the body is wanted.
    pub fn at_head(mut self) -> App<S> {
        self.routes.last().at_head = true;
        self
    }

    /// Sets how many bytes a request of the last route may have in its body, in the place of
    /// [`Limits::body`].
    pub fn body_limit(mut self, bytes: u64) -> App<S> {
        self.routes.last().body_limit = Some(bytes);
        self
    }

    /// Sets how many requests of the last route may wait for their response on a loop, beside
    /// [`Limits::running`]: for a database with few connections, for example. A further one is a
    /// 503 with `Retry-After`, whose handler has run, but not its job. All methods of a path count
    /// together. A request whose body comes does not count yet.
    ///
    /// ```
    /// use windlass_web::App;
    ///
    /// let app = App::new()
    ///     .get("/report", |_, q| q.blocking(|| "a long query", |_, report| report))
    ///     .running(4);
    /// # let _ = app;
    /// ```
    pub fn running(mut self, count: usize) -> App<S> {
        self.routes.last().most_running = Some(count);
        self
    }

    /// Calls `hook` at the head of every request, before its body and its handler. If the hook
    /// returns a response, the client gets it, and nothing else is called.
    ///
    /// A path without a route has it, too, before its 404: so a redirect or an authentication sees
    /// all. Hooks are called in the order in which they were added, those of an application before
    /// those of the applications in it.
    ///
    /// ```
    /// use windlass_web::{App, Error, Status, test};
    ///
    /// let app = App::new().get("/", |_, _| "hello").before(|_, q| {
    ///     let missing = Error::new(Status::UNAUTHORIZED).header("WWW-Authenticate", "Bearer");
    ///     q.header("Authorization").is_none().then(|| missing.into())
    /// });
    /// assert_eq!(app.call(test::get("/none")).status(), Status::UNAUTHORIZED);
    /// ```
    pub fn before(
        mut self,
        hook: impl Fn(&mut S, &mut Request<'_, S>) -> Option<Response> + Send + Sync + 'static,
    ) -> App<S> {
        self.hooks.before.push(Arc::new(hook));
        self
    }

    /// Calls `hook` with the head of every response, before it is written, whenever it is decided:
    /// also with those of streams, of late responses, and of errors that the server finds. Those of
    /// inner applications are called first. The request is `None` if its head was malformed, or has
    /// not come in time. It has no body any more. If the hook panics, the response is a 500 without
    /// any field of the program.
    ///
    /// ```
    /// use windlass_web::{App, test};
    ///
    /// let app = App::new().after(|_, _, head| head.set("X-Content-Type-Options", "nosniff"));
    /// let missing = app.call(test::get("/none"));
    /// assert_eq!(missing.header("X-Content-Type-Options"), Some("nosniff"));
    /// ```
    pub fn after(
        mut self,
        hook: impl Fn(&mut S, Option<&Request<'_, S>>, &mut Head) + Send + Sync + 'static,
    ) -> App<S> {
        self.hooks.after.push(Arc::new(hook));
        self
    }

    /// Calls `hook` once for every request that is done with: for logs and metrics. Either its
    /// response is whole, and was handed to the connection; or there is a [`Finished::cause`]. What
    /// was refused before it had a method is shown, too, with its status. Inner hooks are first.
    ///
    /// Only with such a hook, or with spans, the server reads the clock for each request, and keeps
    /// the heads of those that are answered later.
    ///
    /// ```
    /// use windlass_web::{App, test};
    ///
    /// let app = App::new().get("/notes/{id}", |_, _| "a note").finished(|_, f| {
    ///     assert_eq!((f.route(), f.target()), ("/notes/{id}", Some("/notes/7")));
    ///     assert_eq!((f.sent(), f.cause()), (6, None));
    /// });
    /// app.call(test::get("/notes/7"));
    /// ```
    pub fn finished(
        mut self,
        hook: impl Fn(&mut S, &Finished<'_>) + Send + Sync + 'static,
    ) -> App<S> {
        self.hooks.finished.push(Arc::new(hook));
        self
    }

    /// Makes the response of every error: of those that handlers and hooks return, of panics, and
    /// of those that the server finds, as 404, 408 and 413. An application in another one has its
    /// own, or that of the outer one. The response gets the status of the error in the place of one
    /// below 400, and the fields of the error that it has not.
    ///
    /// The request is `None` if its head was malformed, or has not come in time.
    ///
    /// ```
    /// use windlass_web::{App, Response, test};
    ///
    /// // RFC 9457.
    /// let app = App::new().on_error(|_, q, error| {
    ///     let (status, path) = (error.status().code(), q.map_or("", |q| q.path()));
    ///     let text = format!(r#"{{"status":{status},"instance":"{path}"}}"#);
    ///     Response::text(text).content_type("application/problem+json")
    /// });
    /// let missing = app.call(test::get("/none"));
    /// assert_eq!(missing.text(), r#"{"status":404,"instance":"/none"}"#);
    /// assert_eq!(missing.header("Content-Type"), Some("application/problem+json"));
    /// ```
    pub fn on_error(
        mut self,
        shape: impl Fn(&mut S, Option<&Request<'_, S>>, &Error) -> Response + Send + Sync + 'static,
    ) -> App<S> {
        self.hooks.on_error = Some(Arc::new(shape));
        self
    }

    /// Sets the limits of requests. [`serve_limits`](App::serve_limits) sets those of connections.
    pub fn limits(mut self, limits: Limits) -> App<S> {
        self.limits = limits;
        self
    }

    /// Compresses responses: see [`Compress`](crate::Compress). By default none is. Those of the
    /// applications below a path are compressed by the rules of the outer one.
    #[cfg(feature = "deflate")]
    pub fn compress(mut self, rules: crate::message::compress::Compress) -> App<S> {
        self.server.compress = Some(Arc::new(rules));
        self
    }
}

/// Methods with a verb of their own.
macro_rules! verbs {
    ($($name:ident $method:literal,)+) => {
        impl<S: 'static> App<S> {
            $(
                #[doc = concat!("Adds a route for `", $method, "`: see [`route`](App::route).")]
                ///
                /// # Panics
                ///
                /// As [`route`](App::route).
                pub fn $name<R: Into<Response>>(
                    self,
                    route: &str,
                    handler: impl Fn(&mut S, &mut Request<'_, S>) -> R + Send + Sync + 'static,
                ) -> App<S> {
                    self.route($method, route, handler)
                }
            )+
        }
    };
}

verbs! {
    get "GET",
    post "POST",
    put "PUT",
    delete "DELETE",
    patch "PATCH",
}

impl<S> fmt::Debug for App<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What the loops of a server share of an application.
struct Plan<S> {
    routes: Routes<S>,
    hooks: Hooks<S>,
    /// Whether any hook changes heads, or hears of the end of requests.
    has_after: bool,
    has_finished: bool,
    /// The limit of bodies where a route has none.
    body: u64,
    remote: Remote,
}

impl<S> Plan<S> {
    fn new(routes: Routes<S>, hooks: Hooks<S>, body: u64, remote: Remote) -> Plan<S> {
        let nested = routes.all.iter().flat_map(|resource| &resource.nested);
        let all = nested.map(|hooks| hooks.has()).chain([hooks.has()]);
        let (has_after, has_finished) =
            all.fold((false, false), |sum, one| (sum.0 || one.0, sum.1 || one.1));
        Plan { routes, hooks, has_after, has_finished, body, remote }
    }
}

/// An application on one loop.
pub(crate) struct Perform<S> {
    /// Each request takes it, without the atomics of a count that loops share.
    #[allow(clippy::redundant_allocation)] // made once for a loop
    plan: Rc<Arc<Plan<S>>>,
    state: S,
    panics: u64,
    spans: Spans,
    /// What has taken over connections.
    raws: Raws<Box<dyn Protocol<S>>>,
    /// Those that have panicked, until they have ended.
    panicked: Vec<u32>,
    topic_calls: VecDeque<TopicCall>,
    #[cfg(feature = "websocket")]
    sockets: LoopSockets,
    /// WebSockets whose handshakes are not over.
    #[cfg(feature = "websocket")]
    openings: BTreeMap<CallId, open_websocket::Opened<S>>,
}

/// What is kept of a request until its response is decided.
pub(crate) enum Kept<S> {
    /// What follows its job.
    Then(crate::message::request::Then<S>),
    /// What follows its request to another server.
    Fetched(crate::message::request::BehindFetch<S>),
    /// What follows its body.
    Behind(crate::message::request::BehindBody<S>),
    /// What takes its body.
    Receiver(Box<dyn crate::message::request::receive::Receive<S>>),
    /// What follows its body, which is saved, and what has become of that.
    Saver(crate::message::request::BehindSave<S>, Option<Result<Saved, Error>>),
    /// What takes the parts of its form.
    #[cfg(feature = "multipart")]
    Parts(Box<dyn crate::message::request::parts::ReceiveParts<S>>),
}

impl<S> Perform<S> {
    fn new(plan: Arc<Plan<S>>, state: S) -> Perform<S> {
        let (plan, spans, raws) = (Rc::new(plan), Spans::default(), Raws::default());
        Perform {
            plan,
            state,
            panics: 0,
            spans,
            raws,
            topic_calls: VecDeque::new(),
            panicked: Vec::new(),
            #[cfg(feature = "websocket")]
            sockets: LoopSockets::default(),
            #[cfg(feature = "websocket")]
            openings: BTreeMap::new(),
        }
    }

    fn state(&mut self) -> &mut S {
        &mut self.state
    }
}
