//! Key files, one after the other, as a server reads them again. A control character (RS) ends each.
#![no_main]

use std::collections::{HashMap, HashSet};

use corelane::keys::{ApiKey, Given, Keys, read_file};
use corelane::limits::KEYS_MAX;
use corelane::types::KeyId;

corelane_fuzz::target!(|bytes: &[u8]| {
    let mut server =
        Server { keys: Keys::new(Vec::new()), tenants: HashMap::new(), ids: HashSet::new() };
    for file in bytes.split(|byte| *byte == 0x1e) {
        match read_file(file) {
            Ok(given) => server.read(given.into_iter().map(|Given { key, .. }| key).collect()),
            Err(why) => assert!(!why.is_empty()),
        }
    }
});

struct Server {
    keys: Keys,
    /// The id and the secret of each tenant, by its name or its secret.
    tenants: HashMap<(bool, String), (KeyId, String)>,
    /// All ids that there were.
    ids: HashSet<KeyId>,
}

impl Server {
    fn read(&mut self, read: Vec<ApiKey>) {
        assert!((1..=KEYS_MAX).contains(&read.len()));
        let changed = match self.keys.is_open() {
            true => Keys::new(read.clone()), // the start
            false => match self.keys.changed(read.clone()) {
                Ok(changed) => changed,
                Err(why) => return assert!(!why.is_empty()),
            },
        };
        let mut tenants = HashMap::new();
        for key in read {
            let id = changed.find(key.secret.as_bytes()).expect("a key is let in");
            assert!(changed.lets_in(id) && changed.get(id) == Some(&key));
            let tenant = (key.name.is_some(), key.name.unwrap_or_else(|| key.secret.clone()));
            match self.tenants.get(&tenant) {
                Some((before, _)) => assert_eq!(id, *before, "a tenant stays one"),
                None => assert!(self.ids.insert(id), "{id:?} was another tenant's"),
            }
            assert!(tenants.insert(tenant, (id, key.secret)).is_none(), "keys are distinct");
        }
        let ids: HashSet<KeyId> = tenants.values().map(|(id, _)| *id).collect();
        let secrets: HashSet<&String> = tenants.values().map(|(_, secret)| secret).collect();
        assert_eq!((ids.len(), changed.count()), (tenants.len(), tenants.len()));
        let removed = changed.removed_since(&self.keys);
        for (id, secret) in self.tenants.values() {
            assert_eq!(removed.contains(id), !ids.contains(id));
            assert_eq!(changed.lets_in(*id), ids.contains(id));
            let is_gone = !secrets.contains(secret);
            assert!(!is_gone || changed.find(secret.as_bytes()).is_none(), "it was removed");
        }
        assert!(!changed.is_open());
        (self.keys, self.tenants) = (changed, tenants);
    }
}
