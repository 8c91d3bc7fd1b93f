//! Who hears what is published, on one loop.
//!
//! # Why
//! The table knows connections by their ids, and nothing of what they speak. So one topic can have
//! hearers of several protocols. A topic is there as long as it has a hearer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use windlass_serve::Id;

/// The topics of a loop.
#[derive(Default)]
pub(crate) struct Topics {
    /// In an order that does not depend on the process, so that a seed of a simulation has one
    /// trace.
    hearers: HashMap<Arc<str>, BTreeSet<Id>>,
}

impl Topics {
    /// A connection hears a topic from now on; false if it did already.
    pub(crate) fn subscribe(&mut self, topic: &Arc<str>, id: Id) -> bool {
        match self.hearers.get_mut(topic) {
            Some(hearers) => hearers.insert(id),
            None => self.hearers.entry(Arc::clone(topic)).or_default().insert(id),
        }
    }

    /// A connection hears a topic no more; false if it did not.
    pub(crate) fn unsubscribe(&mut self, topic: &str, id: Id) -> bool {
        let Some(hearers) = self.hearers.get_mut(topic) else { return false };
        let did = hearers.remove(&id);
        if hearers.is_empty() {
            self.hearers.remove(topic);
        }
        did
    }

    /// Those that hear a topic.
    pub(crate) fn hearers(&self, topic: &str) -> impl Iterator<Item = Id> + '_ {
        self.hearers.get(topic).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use windlass::net::ConnectOptions;
    use windlass_serve::{Config, Engine};

    use super::*;

    #[test]
    fn a_topic_is_there_as_long_as_it_has_a_hearer() {
        let mut engine = Engine::<()>::new(Config::new());
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
        let mut id = || engine.connect([address], ConnectOptions::default(), ()).expect("an id");
        let (one, other) = (id(), id());
        let (news, prices): (Arc<str>, Arc<str>) = ("news".into(), "prices".into());
        let mut topics = Topics::default();
        assert!(topics.subscribe(&news, other) && topics.subscribe(&news, one));
        assert!(topics.subscribe(&prices, one) && !topics.subscribe(&prices, one));
        assert_eq!(topics.hearers("news").collect::<Vec<_>>(), [one, other]);
        assert!(topics.unsubscribe("news", one) && !topics.unsubscribe("news", one));
        assert_eq!(topics.hearers("news").collect::<Vec<_>>(), [other]);
        assert_eq!(topics.hearers("others").count(), 0);
        assert!(topics.unsubscribe("news", other) && topics.unsubscribe("prices", one));
        assert!(topics.hearers.is_empty(), "an empty topic takes no room");
    }
}
