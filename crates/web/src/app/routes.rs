//! Which handler answers a request.

use std::sync::Arc;

use matchit::{Params, Router};
use windlass_http1::{Method, RequestHead};

use super::HandlerFn;
use super::hooks::Hooks;
use crate::exchange::program::RouteId;

/// A handler, and the settings of its route.
pub(super) struct Route<S> {
    pub(super) handler: Arc<HandlerFn<S>>,
    pub(super) at_head: bool,
    pub(super) body_limit: Option<u64>,
    pub(super) most_running: Option<usize>,
}

impl<S> Route<S> {
    pub(super) fn new(handler: Arc<HandlerFn<S>>) -> Route<S> {
        Route { handler, at_head: false, body_limit: None, most_running: None }
    }
}

/// All that is at one pattern.
pub(super) struct Resource<S> {
    pub(super) pattern: String,
    methods: Vec<(String, Route<S>)>,
    any: Option<Route<S>>,
    /// The value of `Allow`.
    pub(super) allow: String,
    /// The hooks of nested applications, outermost first.
    pub(super) nested: Vec<Arc<Hooks<S>>>,
    /// Answers below the path of a nested application, where nothing else does.
    fallback: Option<Route<S>>,
}

/// The routes of an application.
pub(super) struct Routes<S> {
    router: Router<u32>,
    /// The resources whose pattern is one path, in the order of their patterns. Most requests are
    /// for these, which take no walk, and no path as a text.
    plain: Vec<u32>,
    pub(super) all: Vec<Resource<S>>,
    fallback: Option<Route<S>>,
    connect: Option<Route<S>>,
    /// The paths of nested applications, and the resources for what has no route below them. These
    /// have no pattern.
    scopes: Vec<(String, u32)>,
    below: Router<u32>,
    last: Option<LastRoute>,
}

/// The route that was added last.
enum LastRoute {
    /// Of a resource, with the number of its method; that is beyond all for `any`.
    Of(usize, usize),
    Fallback,
    Connect,
}

impl<S> Default for Routes<S> {
    fn default() -> Routes<S> {
        Routes {
            router: Router::new(),
            plain: Vec::new(),
            all: Vec::new(),
            fallback: None,
            connect: None,
            scopes: Vec::new(),
            below: Router::new(),
            last: None,
        }
    }
}

/// What is found for a request, and the resource whose hooks it has.
pub(super) enum Found<'a, S> {
    Route(u32, &'a Route<S>),
    Fallback(Option<u32>, &'a Route<S>),
    /// There is no route.
    NoPath(Option<u32>),
    /// The route has other methods.
    NoMethod(u32),
    /// No route has this method.
    Unknown(Option<u32>),
    /// The methods of the route are asked for; of all routes, if there is none.
    Options(Option<u32>),
}

impl<'a, S> Found<'a, S> {
    #[inline]
    pub(super) fn route(&self) -> (RouteId, Option<&'a Route<S>>) {
        let (id, route) = match *self {
            Found::Route(id, route) => (Some(id), Some(route)),
            Found::Fallback(id, route) => (id, Some(route)),
            Found::NoMethod(id) => (Some(id), None),
            Found::NoPath(id) | Found::Unknown(id) | Found::Options(id) => (id, None),
        };
        (id.map_or(RouteId::NONE, RouteId), route)
    }
}

impl<S> Routes<S> {
    pub(super) fn add(&mut self, method: Option<&str>, pattern: &str, route: Route<S>) {
        let at = self.at(pattern);
        let resource = &mut self.all[at];
        match method {
            None => {
                assert!(resource.any.is_none(), "the route {pattern} is there already");
                resource.any = Some(route);
                self.last = Some(LastRoute::Of(at, usize::MAX));
            }
            Some(method) => {
                let is_token = !method.is_empty()
                    && method
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
                assert!(is_token, "the method {method:?} is no token");
                let is_new = resource.methods.iter().all(|(other, _)| other != method);
                assert!(is_new, "the route {method} {pattern} is there already");
                self.last = Some(LastRoute::Of(at, resource.methods.len()));
                resource.methods.push((method.to_owned(), route));
            }
        }
        self.all[at].list_methods();
    }

    /// The resource at a pattern.
    fn at(&mut self, pattern: &str) -> usize {
        if let Some(at) = self.all.iter().position(|other| other.pattern == pattern) {
            return at;
        }
        let at = self.all.len();
        if let Err(error) = self.router.insert(pattern, at as u32) {
            panic!("the route {pattern}: {error}");
        }
        assert!(pattern.starts_with('/'), "the route {pattern} does not begin with a slash");
        self.all.push(Resource {
            pattern: pattern.to_owned(),
            methods: Vec::new(),
            any: None,
            allow: String::new(),
            nested: Vec::new(),
            fallback: None,
        });
        // A target with one of these is no path, or not the one that the pattern means.
        if !pattern.contains(['{', '}', '?'])
            && let Err(place) = self.plain(pattern.as_bytes())
        {
            self.plain.insert(place, at as u32);
        }
        at
    }

    /// Where the resource of this very pattern is in [`plain`](Routes::plain), or belongs.
    #[inline]
    fn plain(&self, pattern: &[u8]) -> Result<usize, usize> {
        self.plain.binary_search_by(|at| self.all[*at as usize].pattern.as_bytes().cmp(pattern))
    }

    pub(super) fn fall_back(&mut self, route: Route<S>) {
        self.fallback = Some(route);
        self.last = Some(LastRoute::Fallback);
    }

    pub(super) fn connect(&mut self, route: Route<S>) {
        self.connect = Some(route);
        self.last = Some(LastRoute::Connect);
    }

    /// The route that was added last.
    pub(super) fn last(&mut self) -> &mut Route<S> {
        let route = match self.last {
            Some(LastRoute::Of(at, method)) => {
                let resource = &mut self.all[at];
                match resource.methods.get_mut(method) {
                    Some((_, route)) => Some(route),
                    None => resource.any.as_mut(),
                }
            }
            Some(LastRoute::Fallback) => self.fallback.as_mut(),
            Some(LastRoute::Connect) => self.connect.as_mut(),
            None => None,
        };
        route.expect("a route comes first")
    }

    pub(super) fn nest(&mut self, path: &str, other: Routes<S>, hooks: &Hooks<S>) {
        assert!(path.starts_with('/') && !path.ends_with('/'), "{path} is no path to nest at");
        let hooks = Arc::new(hooks.clone());
        let chain = |nested: Vec<Arc<Hooks<S>>>| {
            std::iter::once(Arc::clone(&hooks)).chain(nested).collect::<Vec<_>>()
        };
        let mut scopes = other.scopes.into_iter().peekable();
        for (at, resource) in other.all.into_iter().enumerate() {
            if let Some((below, _)) = scopes.next_if(|(_, scope)| *scope as usize == at) {
                let fallback = resource.fallback;
                self.scope(format!("{path}{below}"), chain(resource.nested), fallback);
                continue;
            }
            let pattern = if resource.pattern == "/" {
                path.to_owned()
            } else {
                format!("{path}{}", resource.pattern)
            };
            let at = self.at(&pattern);
            let mine = &mut self.all[at];
            assert!(mine.methods.is_empty() && mine.any.is_none(), "{pattern} is there already");
            (mine.methods, mine.any) = (resource.methods, resource.any);
            mine.nested = chain(resource.nested);
            mine.list_methods();
        }
        self.scope(path.to_owned(), chain(Vec::new()), other.fallback);
        self.last = None;
    }

    /// Notes who answers below a path. The first one stays.
    fn scope(&mut self, path: String, nested: Vec<Arc<Hooks<S>>>, fallback: Option<Route<S>>) {
        let at = self.all.len() as u32;
        let patterns = [path.clone(), format!("{path}/"), format!("{path}/{{*below}}")];
        if patterns.into_iter().any(|pattern| self.below.insert(pattern, at).is_err()) {
            return;
        }
        self.scopes.push((path, at));
        self.all.push(Resource {
            pattern: String::new(),
            methods: Vec::new(),
            any: None,
            allow: String::new(),
            nested,
            fallback,
        });
    }

    /// The pattern of a route; empty for one that is none.
    #[inline]
    pub(super) fn pattern(&self, id: RouteId) -> &str {
        self.all.get(id.0 as usize).map_or("", |one| &one.pattern)
    }

    /// How many requests of a path may wait for their response.
    pub(super) fn most_running(&self, id: RouteId) -> usize {
        let Some(resource) = self.all.get(id.0 as usize) else { return usize::MAX };
        let routes = resource.methods.iter().map(|(_, route)| route).chain(&resource.any);
        routes.filter_map(|route| route.most_running).min().unwrap_or(usize::MAX)
    }

    /// The hooks of the applications that a route is in, below the outermost.
    #[inline]
    pub(super) fn nested(&self, id: RouteId) -> &[Arc<Hooks<S>>] {
        self.all.get(id.0 as usize).map_or(&[], |one| &one.nested)
    }

    /// What answers a request, and the parts of its path, if its pattern has any.
    #[inline]
    pub(super) fn find<'r, 'p>(
        &'r self,
        head: &RequestHead,
        bytes: &'p [u8],
    ) -> (Found<'r, S>, Option<Params<'r, 'p>>) {
        let target = bytes.get(head.target_range()).unwrap_or(b"");
        match self.plain(target) {
            Ok(place) => {
                (self.of_resource(self.plain[place], head.kind(), head.method(bytes)), None)
            }
            Err(_) => self.walk(head, bytes),
        }
    }

    #[inline(never)]
    fn walk<'r, 'p>(
        &'r self,
        head: &RequestHead,
        bytes: &'p [u8],
    ) -> (Found<'r, S>, Option<Params<'r, 'p>>) {
        let (kind, method, path) = (head.kind(), head.method(bytes), head.path(bytes));
        match self.router.at(path) {
            Ok(found) => (self.of_resource(*found.value, kind, method), Some(found.params)),
            Err(_) => (self.without_path(kind, method, path), None),
        }
    }

    #[inline]
    fn of_resource(&self, at: u32, kind: Method, method: &str) -> Found<'_, S> {
        let resource = &self.all[at as usize];
        let get = |name: &str| {
            resource.methods.iter().find(|(other, _)| other == name).map(|(_, route)| route)
        };
        let route = get(method).or_else(|| if kind == Method::Head { get("GET") } else { None });
        match route.or(resource.any.as_ref()) {
            Some(route) => Found::Route(at, route),
            None if kind == Method::Options => Found::Options(Some(at)),
            None if self.knows(kind, method) => Found::NoMethod(at),
            None => Found::Unknown(Some(at)),
        }
    }

    fn without_path(&self, kind: Method, method: &str, path: &str) -> Found<'_, S> {
        if kind == Method::Connect {
            return self
                .connect
                .as_ref()
                .map_or(Found::Unknown(None), |route| Found::Fallback(None, route));
        }
        if kind == Method::Options && path == "*" {
            return Found::Options(None);
        }
        let scope = self.below.at(path).ok().map(|found| *found.value);
        let inner = scope.and_then(|at| self.all[at as usize].fallback.as_ref());
        match inner.or(self.fallback.as_ref()) {
            Some(route) => Found::Fallback(scope, route),
            None if self.knows(kind, method) => Found::NoPath(scope),
            None => Found::Unknown(scope),
        }
    }

    /// Whether any route may have this method.
    fn knows(&self, kind: Method, method: &str) -> bool {
        let is_usual = !matches!(kind, Method::Other | Method::Connect | Method::Trace);
        is_usual || self.all.iter().any(|one| one.methods.iter().any(|(other, _)| other == method))
    }
}

impl<S> Resource<S> {
    fn list_methods(&mut self) {
        let mut names: Vec<&str> = self.methods.iter().map(|(name, _)| &**name).collect();
        if names.contains(&"GET") && !names.contains(&"HEAD") {
            names.push("HEAD");
        }
        if !names.contains(&"OPTIONS") {
            names.push("OPTIONS");
        }
        self.allow = names.join(", ");
    }
}

#[cfg(test)]
mod tests {
    use windlass_http1::{Limits, RequestDecoder};

    use super::*;

    #[test]
    fn bytes_find_what_a_walk_finds() {
        let mut routes = Routes::<()>::default();
        let patterns = ["/", "/a", "/a/", "/a/b", "/{x}", "/a/{x}", "/b?c", "/{{d}}", "/a%20b"];
        for pattern in patterns {
            routes.add(Some("GET"), pattern, Route::new(Arc::new(|_, _| "".into())));
        }
        let mut head = RequestHead::new(Limits::default());
        let mut seen = Vec::new();
        for target in patterns.into_iter().chain(["/a?b", "/a/c", "/{d}", "http://a", "/a/b/c"]) {
            let bytes = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
            RequestDecoder::new().decode(&mut head, &bytes).unwrap();
            let (found, walked) = (routes.find(&head, &bytes).0, routes.walk(&head, &bytes).0);
            assert_eq!(found.route().0, walked.route().0, "{target}");
            seen.push(routes.pattern(found.route().0));
        }
        assert_eq!(seen[..4], patterns[..4]);
        assert_eq!(
            seen[4..],
            ["/{x}", "/a/{x}", "/{x}", "/{x}", "/a%20b", "/a", "/a/{x}", "/{{d}}", "/", ""]
        );
    }
}
