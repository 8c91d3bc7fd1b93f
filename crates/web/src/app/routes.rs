//! Which handler answers a request.

use std::sync::Arc;

use matchit::{Params, Router};
use windlass_http1::Method;

use super::HandlerFn;
use super::hooks::Hooks;

/// A handler, and the settings of its route.
pub(super) struct Route<S> {
    pub(super) handler: Arc<HandlerFn<S>>,
    pub(super) at_head: bool,
    pub(super) body_limit: Option<u64>,
}

impl<S> Route<S> {
    pub(super) fn new(handler: Arc<HandlerFn<S>>) -> Route<S> {
        Route { handler, at_head: false, body_limit: None }
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
}

/// The routes of an application.
pub(super) struct Routes<S> {
    router: Router<u32>,
    pub(super) all: Vec<Resource<S>>,
    fallback: Option<Route<S>>,
    connect: Option<Route<S>>,
    /// The resource and the method that were added last; the method is beyond all for `any`.
    last: Option<(usize, usize)>,
}

impl<S> Default for Routes<S> {
    fn default() -> Routes<S> {
        Routes { router: Router::new(), all: Vec::new(), fallback: None, connect: None, last: None }
    }
}

/// What is found for a request.
pub(super) enum Found<'a, S> {
    Route(u32, &'a Route<S>),
    Fallback(&'a Route<S>),
    /// There is no route.
    NoPath,
    /// The route has other methods.
    NoMethod(u32),
    /// No route has this method.
    Unknown,
    /// The methods of the route are asked for; of all routes, if there is none.
    Options(Option<u32>),
}

impl<S> Routes<S> {
    pub(super) fn add(&mut self, method: Option<&str>, pattern: &str, route: Route<S>) {
        let at = self.at(pattern);
        let resource = &mut self.all[at];
        match method {
            None => {
                assert!(resource.any.is_none(), "the route {pattern} is there already");
                resource.any = Some(route);
                self.last = Some((at, usize::MAX));
            }
            Some(method) => {
                let is_token = !method.is_empty()
                    && method
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
                assert!(is_token, "the method {method:?} is no token");
                let is_new = resource.methods.iter().all(|(other, _)| other != method);
                assert!(is_new, "the route {method} {pattern} is there already");
                self.last = Some((at, resource.methods.len()));
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
        });
        at
    }

    pub(super) fn fall_back(&mut self, route: Route<S>) {
        self.fallback = Some(route);
    }

    pub(super) fn connect(&mut self, route: Route<S>) {
        self.connect = Some(route);
    }

    /// The route that was added last.
    pub(super) fn last(&mut self) -> &mut Route<S> {
        let (at, method) = self.last.expect("a route comes first");
        let resource = &mut self.all[at];
        match resource.methods.get_mut(method) {
            Some((_, route)) => route,
            None => resource.any.as_mut().expect("it was added"),
        }
    }

    pub(super) fn nest(&mut self, path: &str, other: Routes<S>, hooks: &Hooks<S>) {
        assert!(path.starts_with('/') && !path.ends_with('/'), "{path} is no path to nest at");
        let hooks = Arc::new(hooks.clone());
        for resource in other.all {
            let pattern = if resource.pattern == "/" {
                path.to_owned()
            } else {
                format!("{path}{}", resource.pattern)
            };
            let at = self.at(&pattern);
            let mine = &mut self.all[at];
            assert!(mine.methods.is_empty() && mine.any.is_none(), "{pattern} is there already");
            (mine.methods, mine.any) = (resource.methods, resource.any);
            mine.nested = std::iter::once(Arc::clone(&hooks)).chain(resource.nested).collect();
            mine.list_methods();
        }
        self.last = None;
    }

    /// What answers a request, and the parts of its path.
    #[inline]
    pub(super) fn find<'r, 'p>(
        &'r self,
        kind: Method,
        method: &str,
        path: &'p str,
    ) -> (Found<'r, S>, Params<'r, 'p>) {
        let Ok(found) = self.router.at(path) else {
            return (self.without_path(kind, method, path), Params::default());
        };
        let resource = &self.all[*found.value as usize];
        (self.of_resource(*found.value, resource, kind, method), found.params)
    }

    #[inline]
    fn of_resource<'r>(
        &'r self,
        at: u32,
        resource: &'r Resource<S>,
        kind: Method,
        method: &str,
    ) -> Found<'r, S> {
        let get = |name: &str| {
            resource.methods.iter().find(|(other, _)| other == name).map(|(_, route)| route)
        };
        let route = get(method).or_else(|| if kind == Method::Head { get("GET") } else { None });
        match route.or(resource.any.as_ref()) {
            Some(route) => Found::Route(at, route),
            None if kind == Method::Options => Found::Options(Some(at)),
            None if self.knows(kind, method) => Found::NoMethod(at),
            None => Found::Unknown,
        }
    }

    fn without_path(&self, kind: Method, method: &str, path: &str) -> Found<'_, S> {
        if kind == Method::Connect {
            return self.connect.as_ref().map_or(Found::Unknown, Found::Fallback);
        }
        match &self.fallback {
            _ if kind == Method::Options && path == "*" => Found::Options(None),
            Some(route) => Found::Fallback(route),
            None if self.knows(kind, method) => Found::NoPath,
            None => Found::Unknown,
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
