//! Keys that change while requests run, and whose tokens each slot holds.

use super::*;

/// The tenants of a world, and what each has written into the KV cache.
pub(super) struct Tenants {
    /// The number of keys that each place had before.
    generations: Vec<u32>,
    /// Each key has its own prefixes.
    are_apart: bool,
    /// The tenant of each token, by slot.
    written: Vec<Vec<Option<KeyId>>>,
    /// The tenant of each token of a page of the prefix store.
    pub(super) stored: HashMap<PageId, Vec<Option<KeyId>>>,
    /// The tenant of each owner of a slot that started.
    starters: HashMap<Owner, KeyId>,
}

impl Tenants {
    pub(super) fn new(random: &mut Random, places: usize, slots: usize) -> Self {
        let are_apart = !random.one_in(4);
        let written = vec![Vec::new(); slots];
        let (stored, starters) = (HashMap::new(), HashMap::new());
        Self { generations: vec![0; places], are_apart, written, stored, starters }
    }
}

impl World {
    /// Requests for one change of a key.
    pub(super) fn changes_one_in(&self) -> u64 {
        if self.fault == Some(Fault::KeyIsItsPlace) { 4 } else { 40 }
    }

    /// Any of the tenants that there are now.
    pub(super) fn any_tenant(&mut self) -> KeyId {
        let place = self.random.within(0, self.capacity.weights.len() - 1);
        KeyId { place: place as u16, generation: self.tenants.generations[place] }
    }

    /// The id that the engine gets for a tenant.
    pub(super) fn id_of(&self, tenant: KeyId) -> KeyId {
        match self.fault {
            Some(Fault::KeyIsItsPlace) => KeyId::at(tenant.place),
            _ => tenant,
        }
    }

    /// The part of the prefix cache that a tenant may use.
    pub(super) fn cache_of(&self, tenant: KeyId) -> CacheScope {
        let key = if self.tenants.are_apart { self.id_of(tenant) } else { KeyId::at(0) };
        CacheScope {
            key,
            salt: 0,
            tenant: 1 + u128::from(key.place) + (u128::from(key.generation) << 64),
        }
    }

    pub(super) fn lets_in(&self, tenant: KeyId) -> bool {
        self.tenants.generations[tenant.place as usize] == tenant.generation
    }

    /// A key is removed, and another one takes its place.
    pub(super) fn change_key(&mut self) {
        let old = self.any_tenant();
        self.tenants.generations[old.place as usize] += 1;
        self.count("keys changed", 1);
        if self.fault == Some(Fault::KeyIsItsPlace) {
            return;
        }
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            let State::InProgress(exchange) = &client.state else { continue };
            if client.tenant == old && exchange.borrow().started.is_none() {
                client.reference.outcome.get_or_insert(Err(401));
                self.count("removed", 1);
            }
        }
        self.engine.forget_keys(&[old], self.tenants.are_apart, self.now);
        self.responses.forget(old);
        self.check_tenants();
        self.check_replies();
        self.kick();
    }

    /// Nothing is kept for a key that was removed.
    pub(super) fn check_tenants(&self) {
        if self.tenants.are_apart && self.fault.is_none() {
            let mut kept = self.engine.scheduler().slots().filter(|view| view.held.is_none());
            assert!(kept.all(|view| view.key.is_none_or(|key| self.lets_in(key))));
        }
        let (running, waiting) = (0..self.tenants.generations.len())
            .flat_map(|place| {
                let generations = 0..=self.tenants.generations[place];
                generations.map(move |generation| KeyId { place: place as u16, generation })
            })
            .map(|key| self.engine.load(key))
            .fold((0, 0), |sum, load| (sum.0 + load.running, sum.1 + load.waiting));
        let scheduler = self.engine.scheduler();
        assert_eq!(running, scheduler.running_count() as u64);
        assert_eq!(waiting, scheduler.waiting_count() as u64);
    }

    /// No sequence starts with tokens of another tenant.
    pub(super) fn check_prefixes(&mut self, batch: &Batch) {
        let Tenants { written, stored, .. } = &mut self.tenants;
        for store in &batch.stores {
            let slot = &written[store.slot.index()];
            stored.insert(store.page, slot[store.from.index()..store.to.index()].to_vec());
        }
        for slot in &batch.clears {
            self.tenants.written[slot.index()].clear();
        }
        for start in &batch.starts {
            let id = self.engine.scheduler().holder(start.owner);
            let client = id.and_then(|id| self.owners.get(&id)).map(|(client, _)| *client);
            let Tenants { are_apart, written, starters, .. } = &mut self.tenants;
            let keep = start.keep.index();
            let prefix: Vec<_> = written[start.source.index()].iter().take(keep).copied().collect();
            if let Some(client) = client {
                let tenant = self.clients[client].tenant;
                starters.insert(start.owner, tenant);
                let own = prefix.iter().filter(|writer| **writer == Some(tenant)).count();
                assert!(
                    own == keep || !*are_apart,
                    "{tenant:?} starts with {keep} tokens, and {own} are its own"
                );
            }
            written[start.owner.slot.index()] = prefix;
        }
        let Tenants { are_apart, written, stored, starters, .. } = &mut self.tenants;
        for load in &batch.loads {
            let tenant = starters.get(&load.owner).copied();
            let tokens = &stored[&load.page][..load.to.index() - load.from.index()];
            let is_own = tokens.iter().all(|writer| *writer == tenant);
            assert!(is_own || !*are_apart, "{tenant:?} loads {tokens:?}");
            let slot = &mut written[load.owner.slot.index()];
            slot.truncate(load.from.index());
            slot.extend_from_slice(tokens);
        }
        for row in &batch.rows {
            let Tenants { written, starters, .. } = &mut self.tenants;
            let tokens = &mut written[row.owner.slot.index()];
            // It comes later by the guesses of the step before that are kept.
            let guesses = usize::from(row.guesses.in_flight) + usize::from(row.guesses.most());
            let end = row.position.index() + 1 + guesses;
            tokens.resize(row.position.index(), None);
            tokens.resize(end, starters.get(&row.owner).copied());
        }
    }
}
