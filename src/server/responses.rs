//! The stored responses of OpenAI's Responses API. Each key may store a certain number of bytes.
//! Beyond it, a new response replaces the oldest ones of its key.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::api::stored::Stored;
use crate::types::KeyId;

/// Most stored responses of all keys together. The bound is low because a single new response may
/// replace all others of its key, and the front lane must free them.
const RESPONSES_MAX: usize = 1024;

/// The responses of all keys.
#[derive(Debug)]
pub struct Responses {
    keys: Box<[OfKey]>,
}

#[derive(Debug, Default)]
struct OfKey {
    bytes_max: usize,
    bytes: usize,
    /// Most responses of the key. Dropping all of them takes well under a millisecond.
    count_max: usize,
    /// The generation of the first key at this place that was not removed.
    generation: u32,
    /// By id, with the bytes of each.
    stored: HashMap<String, (usize, Arc<Stored>)>,
    /// The ids, the oldest first. Some may be deleted already.
    order: VecDeque<String>,
}

impl Responses {
    /// Divides `bytes` among the keys by their weights, which are positive.
    pub fn new(bytes: usize, weights: &[f64]) -> Self {
        let all: f64 = weights.iter().sum();
        let of_key = |weight: &f64| OfKey {
            bytes_max: (bytes as f64 * weight / all) as usize,
            count_max: (RESPONSES_MAX as f64 * weight / all).ceil() as usize,
            ..OfKey::default()
        };
        Self { keys: weights.iter().map(of_key).collect() }
    }

    /// Stores a response, unless it alone has more bytes than its key may store.
    pub fn keep(&mut self, key: KeyId, response: Box<Stored>) {
        let of_key = &mut self.keys[key.index()];
        if key.generation < of_key.generation {
            return; // the key was removed while the request ran
        }
        let bytes = response.bytes();
        if bytes > of_key.bytes_max {
            return;
        }
        while of_key.bytes + bytes > of_key.bytes_max || of_key.stored.len() >= of_key.count_max {
            let oldest = of_key.order.pop_front().expect("a stored response is in the order");
            of_key.forget(&oldest);
        }
        of_key.bytes += bytes;
        of_key.order.push_back(response.id.clone());
        of_key.stored.insert(response.id.clone(), (bytes, Arc::from(response)));
        // Deleted ids are removed from the order here, so that it does not grow.
        while of_key.order.len() > 2 * of_key.stored.len() {
            let OfKey { order, stored, .. } = of_key;
            order.retain(|id| stored.contains_key(id));
        }
    }

    /// A response of a key.
    pub fn get(&self, key: KeyId, id: &str) -> Option<&Arc<Stored>> {
        let of_key = &self.keys[key.index()];
        let found = of_key.stored.get(id).filter(|_| key.generation >= of_key.generation);
        found.map(|(_, response)| response)
    }

    /// Drops all responses of a removed key. Those of its running requests are dropped when they
    /// end.
    pub fn forget(&mut self, key: KeyId) {
        let of_key = &mut self.keys[key.index()];
        let generation = key.generation.saturating_add(1);
        let OfKey { bytes_max, count_max, .. } = *of_key;
        *of_key = OfKey { bytes_max, count_max, generation, ..OfKey::default() };
    }

    /// Deletes a response. Returns whether it was there.
    pub fn delete(&mut self, key: KeyId, id: &str) -> bool {
        let of_key = &mut self.keys[key.index()];
        key.generation >= of_key.generation && of_key.forget(id)
    }
}

impl OfKey {
    fn forget(&mut self, id: &str) -> bool {
        let forgotten = self.stored.remove(id);
        self.bytes -= forgotten.as_ref().map_or(0, |(bytes, _)| *bytes);
        forgotten.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::stored::Items;

    fn response(id: usize, body: usize) -> Box<Stored> {
        let (id, body) = (format!("resp_{id}"), Arc::new(vec![b'x'; body]));
        Box::new(Stored { id, body, items: Items::default(), turn: Arc::default() })
    }

    #[test]
    fn the_oldest_makes_room_within_its_key() {
        let mut responses = Responses::new(40_000, &[1.0, 1.0]);
        let (alice, bob) = (KeyId::at(0), KeyId::at(1));
        responses.keep(bob, response(0, 9_000));
        for id in 1..=4 {
            responses.keep(alice, response(id, 9_000));
        }
        let kept = |key, id: usize| responses.get(key, &format!("resp_{id}")).is_some();
        assert_eq!([1, 2, 3, 4].map(|id| kept(alice, id)), [false, false, true, true]);
        assert!(kept(bob, 0) && !kept(bob, 4), "each key has its own");
    }

    #[test]
    fn small_responses_are_bounded_in_number() {
        let mut responses = Responses::new(1 << 30, &[1.0, 3.0]);
        for id in 0..2 * RESPONSES_MAX {
            responses.keep(KeyId::at(0), response(id, 10));
        }
        assert_eq!(responses.keys[0].stored.len(), RESPONSES_MAX / 4);
        assert!(responses.get(KeyId::at(0), &format!("resp_{}", 2 * RESPONSES_MAX - 1)).is_some());
    }

    #[test]
    fn a_new_key_at_a_place_finds_nothing_of_the_one_before() {
        let mut responses = Responses::new(20_000, &[1.0]);
        let (old, new) = (KeyId::at(0), KeyId { place: 0, generation: 2 });
        responses.keep(old, response(0, 9_000));
        responses.forget(old);
        responses.keep(old, response(1, 9_000)); // by a request that still ran
        assert!(responses.get(new, "resp_0").is_none() && responses.get(new, "resp_1").is_none());
        responses.keep(new, response(2, 9_000));
        assert!(responses.get(old, "resp_2").is_none() && !responses.delete(old, "resp_2"));
        assert!(responses.get(new, "resp_2").is_some());
    }

    #[test]
    fn what_is_deleted_gives_its_bytes_back() {
        let mut responses = Responses::new(20_000, &[1.0]);
        let key = KeyId::at(0);
        for id in 0..1000 {
            responses.keep(key, response(id, 9_000));
            assert!(responses.delete(key, &format!("resp_{id}")));
            assert!(!responses.delete(key, &format!("resp_{id}")));
        }
        assert_eq!(responses.keys[0].bytes, 0);
        assert!(responses.keys[0].order.len() <= 2);
        responses.keep(key, response(7, 30_000));
        assert!(responses.get(key, "resp_7").is_none(), "it has more than the key may");
    }
}
