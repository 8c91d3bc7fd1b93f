//! How many requests wait for their response: in all, and of each route.

use super::program::RouteId;

/// The requests of a loop that wait for their response.
#[derive(Default)]
pub(super) struct RunningCounts {
    all: usize,
    /// Those of the routes up to the last one that has had some.
    of: Vec<usize>,
}

impl RunningCounts {
    pub(super) fn len(&self) -> usize {
        self.all
    }

    /// Whether one more may wait, beside at most so many in all and of its route.
    pub(super) fn admits(&self, route: RouteId, most: usize, most_of_route: usize) -> bool {
        let of_route = self.of.get(route.0 as usize).copied().unwrap_or(0);
        self.all < most && of_route < most_of_route
    }

    pub(super) fn begin(&mut self, route: RouteId) {
        self.all += 1;
        if route == RouteId::NONE {
            return;
        }
        let at = route.0 as usize;
        if self.of.len() <= at {
            self.of.resize(at + 1, 0);
        }
        self.of[at] += 1;
    }

    pub(super) fn end(&mut self, route: RouteId) {
        self.all -= 1;
        if let Some(of_route) = self.of.get_mut(route.0 as usize) {
            *of_route -= 1;
        }
    }
}
