//! The API keys of a server, each with its place and its generation.
//!
//! A place is a share of the server: of the slots, the queue and the memory. There are as many
//! places as keys at the start, each with the weight of its key. When the keys change, a key that
//! stays keeps its place, at any position in the new list. A removed key leaves its place empty. A
//! new key takes an empty place of its weight, with the next generation, so that it is a different
//! tenant.
//!
//! **Invariant:** no two keys of one server ever have equal [`KeyId`]s.

mod file;
mod key;

use subtle::ConstantTimeEq;

use crate::types::KeyId;
pub use file::{Given, distinct, read_file};
pub use key::ApiKey;

/// The keys of a server, by their places. Without any place, the server needs no key.
#[derive(Clone, Debug)]
pub struct Keys {
    places: Vec<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    weight: f64,
    /// The generation of the key that is here, or was here last.
    generation: u32,
    /// `None` after it was removed.
    key: Option<ApiKey>,
}

impl Keys {
    /// The keys at the start, each at a place of its own.
    pub fn new(keys: Vec<ApiKey>) -> Self {
        let place = |key: ApiKey| Place { weight: key.weight, generation: 0, key: Some(key) };
        Self { places: keys.into_iter().map(place).collect() }
    }

    /// Replaces the current keys by `keys`. See the module's description.
    ///
    /// # Errors
    /// A sentence without secrets, if no place is free for a key, or if a key may be cut off.
    pub fn changed(&self, keys: Vec<ApiKey>) -> Result<Self, String> {
        if self.is_open() || keys.is_empty() {
            let (before, now) = (self.places.len(), keys.len());
            return Err(format!(
                "there were {before} keys at the start and now there are {now}; only a restart \
                 opens a server to everybody, or closes it"
            ));
        }
        self.check_whole(&keys)?;
        let emptied = self.places.iter().map(|place| Place { key: None, ..*place });
        let mut places: Vec<Place> = emptied.collect();
        let mut new = Vec::new();
        for key in keys {
            let is_here = |place: &Place| place.key.as_ref().is_some_and(|old| old.is_same(&key));
            match self.places.iter().position(is_here) {
                Some(at) if places[at].weight.to_bits() == key.weight.to_bits() => {
                    places[at].key = Some(key);
                }
                Some(at) => {
                    let (old, weight) = (places[at].weight, key.weight);
                    return Err(format!(
                        "the key {:?} had the weight {old} and has {weight} now; weights only \
                         change with a restart",
                        key.name.unwrap_or_default()
                    ));
                }
                None => new.push(key),
            }
        }
        for key in new {
            let is_free = |place: &&mut Place| {
                place.key.is_none() && place.weight.to_bits() == key.weight.to_bits()
            };
            let Some(place) = places.iter_mut().find(is_free) else {
                let (weight, count) = (key.weight, self.places.len());
                return Err(format!(
                    "no place with the weight {weight} is free for a new key; the server has the \
                     {count} places of its start, and more need a restart"
                ));
            };
            let next = place.generation.checked_add(1);
            place.generation = next.ok_or("the keys changed too often; restart the server")?;
            place.key = Some(key);
        }
        Ok(Self { places })
    }

    /// Refuses a key that is the beginning of a removed one: the file may still be being written.
    fn check_whole(&self, keys: &[ApiKey]) -> Result<(), String> {
        let has_gone = |old: &&ApiKey| keys.iter().all(|key| key.secret != old.secret);
        let mut gone = self.places.iter().filter_map(|place| place.key.as_ref()).filter(has_gone);
        if gone.any(|old| keys.iter().any(|key| old.secret.starts_with(&key.secret))) {
            return Err(
                "a key is the beginning of one that is no longer there; is the file still \
                        being written?"
                    .into(),
            );
        }
        Ok(())
    }

    /// Whether the server needs no key.
    pub fn is_open(&self) -> bool {
        self.places.is_empty()
    }

    /// The number of keys.
    pub fn count(&self) -> usize {
        self.places.iter().filter(|place| place.key.is_some()).count()
    }

    /// The number of tenants since the start. A server without keys has one.
    pub fn tenants(&self) -> u64 {
        let all = self.places.iter().map(|place| u64::from(place.generation) + 1);
        all.sum::<u64>().max(1)
    }

    /// The key with this secret. Compares with all keys, each in constant time.
    pub fn find(&self, secret: &[u8]) -> Option<KeyId> {
        let mut found = None;
        for (index, place) in self.places.iter().enumerate() {
            let Some(key) = &place.key else { continue };
            if key.secret.as_bytes().ct_eq(secret).into() {
                found = Some(KeyId { place: index as u16, generation: place.generation }); // below KEYS_MAX
            }
        }
        found
    }

    /// The key with this id, if it was not removed.
    pub fn get(&self, id: KeyId) -> Option<&ApiKey> {
        let place = self.places.get(id.index())?;
        place.key.as_ref().filter(|_| place.generation == id.generation)
    }

    /// Whether requests with this id are accepted: the server needs no key, or the key was not
    /// removed.
    pub fn lets_in(&self, id: KeyId) -> bool {
        self.is_open() || self.get(id).is_some()
    }

    /// The name of a key in the log, if the server has keys. Plain keys are numbered by their
    /// places, from 1: the third key at the second place is `2.3`.
    pub fn label(&self, id: KeyId) -> Option<String> {
        if self.is_open() {
            return None;
        }
        let KeyId { place, generation } = id;
        let number = || match generation {
            0 => format!("{}", place + 1),
            _ => format!("{}.{}", place + 1, u64::from(generation) + 1),
        };
        let Some(key) = self.get(id) else { return Some(format!("{} (removed)", number())) };
        Some(key.name.clone().unwrap_or_else(number))
    }

    /// The keys of `before` that were removed since.
    pub fn removed_since(&self, before: &Keys) -> Vec<KeyId> {
        let places = before.places.iter().enumerate().filter(|(_, place)| place.key.is_some());
        let ids = places
            .map(|(index, place)| KeyId { place: index as u16, generation: place.generation });
        ids.filter(|id| self.get(*id).is_none()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(texts: &[&str]) -> Vec<ApiKey> {
        let key = |text: &&str| match text.contains(':') {
            true => text.parse().unwrap(),
            false => ApiKey::plain(text),
        };
        texts.iter().map(key).collect()
    }

    fn id(place: u16, generation: u32) -> Option<KeyId> {
        Some(KeyId { place, generation })
    }

    #[test]
    fn a_key_that_stays_keeps_its_place_and_a_new_one_is_another_tenant() {
        let first = Keys::new(keys(&["alpha", "beta"]));
        let second = first.changed(keys(&["beta", "gamma"])).unwrap();
        assert_eq!((second.find(b"beta"), second.find(b"alpha")), (id(1, 0), None));
        assert_eq!(second.find(b"gamma"), id(0, 1));
        assert_eq!(second.removed_since(&first), [KeyId::at(0)]);
        assert!(!second.lets_in(KeyId::at(0)) && second.lets_in(KeyId::at(1)));
        // A key that comes back is a new tenant, too.
        let third = second.changed(keys(&["alpha"])).unwrap();
        assert_eq!((third.find(b"alpha"), third.count(), third.tenants()), (id(0, 2), 1, 4));
        let fourth = third.changed(keys(&["beta", "alpha"])).unwrap();
        assert_eq!((fourth.find(b"alpha"), fourth.find(b"beta")), (id(0, 2), id(1, 1)));
        assert_eq!(fourth.removed_since(&first), [KeyId::at(0), KeyId::at(1)]);
        let labels = [id(0, 2), id(1, 1), id(0, 0)].map(|id| fourth.label(id.unwrap()).unwrap());
        assert_eq!(labels, ["1.3", "2.2", "1 (removed)"]);
    }

    #[test]
    fn a_named_key_keeps_its_place_with_another_secret() {
        let first = Keys::new(keys(&["a:1", "b:2:3"]));
        let second = first.changed(keys(&["b:2:3:-5", "a:new"])).unwrap();
        assert_eq!((second.find(b"new"), second.find(b"1")), (id(0, 0), None));
        assert_eq!(second.get(KeyId::at(1)).unwrap().priority_min, -5);
        assert!(second.removed_since(&first).is_empty());
        assert_eq!(second.label(KeyId::at(0)).as_deref(), Some("a"));
        // A plain key with the same secret is another tenant.
        let third = second.changed(keys(&["b:2:3", "new"])).unwrap();
        assert_eq!(third.find(b"new"), id(0, 1));
    }

    #[test]
    fn keys_without_a_place_and_halves_of_keys_are_refused() {
        let now = Keys::new(keys(&["a:secret", "b:2:3", "plain-secret"]));
        for (wrong, why) in [
            (&[][..], "there were 3 keys"),
            (&["a:secret", "b:2:4"], "weights only change with a restart"),
            (&["a:secret", "b:2:3", "plain-secret", "x"], "no place with the weight 1 is free"),
            (&["a:secret", "x:3:5"], "no place with the weight 5 is free"),
            (&["a:secret", "plain-se"], "still being written"),
            (&["a:sec", "plain-secret"], "still being written"),
        ] {
            let error = now.changed(keys(wrong)).unwrap_err();
            assert!(error.contains(why), "{wrong:?}: {error}");
            assert!(!error.contains("secret") && !error.contains("plain-se"), "{error}");
        }
        let open = Keys::new(Vec::new());
        assert!(open.changed(keys(&["a"])).is_err() && open.lets_in(KeyId::at(0)));
        let last = Place { weight: 1.0, generation: u32::MAX, key: None };
        let worn = Keys { places: vec![last] };
        assert!(worn.changed(keys(&["a"])).unwrap_err().contains("too often"));
    }
}
