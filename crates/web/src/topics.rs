//! Who hears what is published, on one loop.
//!
//! # Why
//! The table knows connections by their ids, and nothing of what they speak. So one topic can have
//! subscribers of several protocols. A topic is there as long as it has a subscriber.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use windlass_serve::Id;

use crate::message::publication::Publication;

/// What a connection asks for in a callback. It happens behind the callback.
pub(crate) enum TopicCall {
    Subscribe(Id, Arc<str>),
    Unsubscribe(Id, Arc<str>),
    /// What is here of its input is taken.
    #[cfg(feature = "websocket")]
    Continue(Id),
    /// A publication of this loop, by its index.
    Publish(usize, Publication),
}

/// The topics of a loop.
#[derive(Default)]
pub(crate) struct Topics {
    /// In an order that does not depend on the process, so that a seed of a simulation has one
    /// trace.
    subscribers: HashMap<Arc<str>, BTreeSet<Id>>,
    /// What connections hear that keep no list of it themselves.
    heard: BTreeMap<Id, Vec<Arc<str>>>,
}

impl Topics {
    /// A connection hears a topic from now on; false if it did already.
    pub(crate) fn subscribe(&mut self, topic: &Arc<str>, id: Id) -> bool {
        match self.subscribers.get_mut(topic) {
            Some(subscribers) => subscribers.insert(id),
            None => self.subscribers.entry(Arc::clone(topic)).or_default().insert(id),
        }
    }

    /// A connection hears a topic no more; false if it did not.
    pub(crate) fn unsubscribe(&mut self, topic: &str, id: Id) -> bool {
        let Some(subscribers) = self.subscribers.get_mut(topic) else { return false };
        let did = subscribers.remove(&id);
        if subscribers.is_empty() {
            self.subscribers.remove(topic);
        }
        did
    }

    /// As [`subscribe`](Topics::subscribe), for a connection that keeps no list of its topics.
    pub(crate) fn hear(&mut self, topic: Arc<str>, id: Id) -> bool {
        let is_new = self.subscribe(&topic, id);
        if is_new {
            self.heard.entry(id).or_default().push(topic);
        }
        is_new
    }

    /// As [`unsubscribe`](Topics::unsubscribe), for such a connection.
    pub(crate) fn hear_no_more(&mut self, topic: &str, id: Id) -> bool {
        let Some(topics) = self.heard.get_mut(&id) else { return false };
        topics.retain(|one| **one != *topic);
        if topics.is_empty() {
            self.heard.remove(&id);
        }
        self.unsubscribe(topic, id)
    }

    /// Such a connection is over: how many topics it heard.
    pub(crate) fn forget(&mut self, id: Id) -> usize {
        let topics = self.heard.remove(&id).unwrap_or_default();
        topics.iter().filter(|topic| self.unsubscribe(topic, id)).count()
    }

    /// Those that hear a topic.
    pub(crate) fn subscribers(&self, topic: &str) -> impl Iterator<Item = Id> + '_ {
        self.subscribers.get(topic).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use windlass::net::ConnectOptions;
    use windlass_serve::{Config, Engine};

    use super::*;

    #[test]
    fn a_topic_is_there_as_long_as_it_has_a_subscriber() {
        let mut engine = Engine::<()>::new(Config::new());
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
        let mut id = || engine.connect([address], ConnectOptions::default(), ()).expect("an id");
        let (one, other) = (id(), id());
        let (news, prices): (Arc<str>, Arc<str>) = ("news".into(), "prices".into());
        let mut topics = Topics::default();
        assert!(topics.subscribe(&news, other) && topics.subscribe(&news, one));
        assert!(topics.subscribe(&prices, one) && !topics.subscribe(&prices, one));
        assert_eq!(topics.subscribers("news").collect::<Vec<_>>(), [one, other]);
        assert!(topics.unsubscribe("news", one) && !topics.unsubscribe("news", one));
        assert_eq!(topics.subscribers("news").collect::<Vec<_>>(), [other]);
        assert_eq!(topics.subscribers("others").count(), 0);
        assert!(topics.unsubscribe("news", other) && topics.unsubscribe("prices", one));
        assert!(topics.subscribers.is_empty(), "an empty topic takes no room");
    }
}
