//! Spans of the crate `tracing`: one for each request.
//!
//! # Why
//! A connection has one request at a time, so the id of the connection finds its span, wherever a
//! request waits. Without the feature nothing here has a size or an instruction.

#[cfg(not(feature = "tracing"))]
pub(crate) use off::Spans;
#[cfg(feature = "tracing")]
pub(crate) use on::Spans;

#[cfg(feature = "tracing")]
mod on {
    use std::collections::HashMap;

    use tracing::field::{self, Empty};
    use tracing::span::EnteredSpan;
    use tracing::{Level, Span, span};
    use windlass_serve::{Cause, Id};

    use crate::message::arrived::Arrived;
    use crate::message::forwarded;
    use crate::words::status::Status;

    /// The spans of the requests of a loop that are not done with, by their connections.
    #[derive(Default)]
    pub(crate) struct Spans(HashMap<Id, Span>);

    /// The span is the current one until this is dropped. `None`: nobody wants it.
    type Entered = Option<EnteredSpan>;

    impl Spans {
        /// A request has begun, or goes on if `has_begun`.
        pub(crate) fn begin(
            &mut self,
            arrived: Arrived<'_>,
            route: &str,
            has_begun: bool,
        ) -> Entered {
            if has_begun {
                return self.enter(arrived.from.id);
            }
            let Arrived { head, bytes, from } = arrived;
            // No parent: a span around the loop has no end, and would hold all requests together.
            let span = span!(
                target: "windlass_web", parent: None, Level::INFO, "request",
                method = head.method(bytes), route, path = head.target(bytes),
                client = forwarded::client(arrived).ip.map(field::display),
                traceparent = traceparent(arrived), status = Empty, cause = Empty
            );
            if span.is_disabled() {
                return None;
            }
            self.0.insert(from.id, span.clone());
            Some(span.entered())
        }

        /// Enters the span of a connection's request.
        pub(crate) fn enter(&self, id: Id) -> Entered {
            Some(self.0.get(&id)?.clone().entered())
        }

        /// Enters the span of a request, if it is known.
        pub(crate) fn enter_of(&self, arrived: Option<Arrived<'_>>) -> Entered {
            self.enter(arrived?.from.id)
        }

        /// A request is done with. Its span closes behind what is still in it.
        pub(crate) fn end(
            &mut self,
            arrived: Option<Arrived<'_>>,
            status: Option<Status>,
            cause: Option<Cause>,
        ) -> Entered {
            let span = self.0.remove(&arrived?.from.id)?;
            if let Some(status) = status {
                span.record("status", status.code());
            }
            if let Some(cause) = cause {
                span.record("cause", field::debug(cause));
            }
            Some(span.entered())
        }

        /// Whether a request has a span.
        pub(crate) fn any(&self) -> bool {
            !self.0.is_empty()
        }
    }

    /// The field `traceparent` of a request, if there is one, and it is well-formed.
    fn traceparent(arrived: Arrived<'_>) -> Option<&str> {
        let mut values = arrived.head.get_all(arrived.bytes, "traceparent");
        let value = std::str::from_utf8(values.next()?).ok()?;
        (values.next().is_none() && is_traceparent(value)).then_some(value)
    }

    /// Whether it is a `traceparent` (W3C Trace Context, 3.2.2): a version, the id of a trace, that
    /// of a span, and flags. A later version than 00 may have more behind a hyphen.
    fn is_traceparent(value: &str) -> bool {
        let mut parts = value.split('-');
        let mut part = |len: usize| {
            let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let is_hex = |part: &&str| part.len() == len && part.as_bytes().iter().all(is_digit);
            parts.next().filter(is_hex)
        };
        let (version, trace, span, flags) = (part(2), part(32), part(16), part(2));
        let is_id = |id: Option<&str>| id.is_some_and(|id| id.bytes().any(|byte| byte != b'0'));
        let is_whole = version != Some("00") || parts.next().is_none();
        version.is_some_and(|version| version != "ff")
            && is_id(trace)
            && is_id(span)
            && flags.is_some()
            && is_whole
    }

    #[cfg(test)]
    mod tests {
        use super::is_traceparent;

        #[test]
        fn traceparents() {
            const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
            const SPAN: &str = "00f067aa0ba902b7";
            let of = |version: &str, trace: &str, span: &str, rest: &str| {
                is_traceparent(&format!("{version}-{trace}-{span}-{rest}"))
            };
            let (no_trace, no_span) = ("0".repeat(32), "0".repeat(16));
            for flags in ["00", "01", "ff"] {
                assert!(of("00", TRACE, SPAN, flags), "{flags}");
            }
            assert!(of("cc", TRACE, SPAN, "01"));
            assert!(of("cc", TRACE, SPAN, "01-what-comes-later"));
            assert!(of("fe", TRACE, SPAN, "01-"));
            assert!(!of("ff", TRACE, SPAN, "01"));
            assert!(!of("00", TRACE, SPAN, "01-more"));
            assert!(!of("00", TRACE, SPAN, "01-"));
            assert!(!of("cc", TRACE, SPAN, "01.more"));
            assert!(!of("00", &no_trace, SPAN, "01"));
            assert!(!of("00", TRACE, &no_span, "01"));
            assert!(!of("00", &TRACE.to_uppercase(), SPAN, "01"));
            assert!(!of("00", &TRACE[1..], SPAN, "01"));
            assert!(!of("00", TRACE, &SPAN[1..], "01"));
            for rest in ["", "1", "001", "0g", " 01"] {
                assert!(!of("00", TRACE, SPAN, rest), "{rest}");
            }
            for value in ["", "-", "---", "00", TRACE, "00-é"] {
                assert!(!is_traceparent(value), "{value}");
            }
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use windlass_serve::{Cause, Id};

    use crate::message::arrived::Arrived;
    use crate::words::status::Status;

    #[derive(Default)]
    pub(crate) struct Spans {}

    /// No span is entered.
    pub(crate) struct Entered;

    impl Spans {
        #[inline(always)]
        pub(crate) fn begin(&mut self, _: Arrived<'_>, _route: &str, _has_begun: bool) -> Entered {
            Entered
        }

        #[inline(always)]
        pub(crate) fn enter(&self, _: Id) -> Entered {
            Entered
        }

        #[inline(always)]
        pub(crate) fn enter_of(&self, _: Option<Arrived<'_>>) -> Entered {
            Entered
        }

        #[inline(always)]
        pub(crate) fn end(
            &mut self,
            _: Option<Arrived<'_>>,
            _: Option<Status>,
            _: Option<Cause>,
        ) -> Entered {
            Entered
        }

        #[inline(always)]
        pub(crate) fn any(&self) -> bool {
            false
        }
    }
}
