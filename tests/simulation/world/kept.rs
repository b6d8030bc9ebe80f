//! Responses that are kept and continued, by the key that they belong to and by others.

use corelane::api::asked::Request;

use super::*;

impl World {
    /// A response that was kept for any tenant: one of the last, so that some are gone already.
    pub(super) fn any_kept(&mut self) -> Option<Kept> {
        let last = self.kept.len().min(6);
        (last > 0 && !self.random.one_in(3)).then(|| {
            let back = self.random.within(1, last);
            self.kept[self.kept.len() - back].clone()
        })
    }

    /// Finds the response that a request continues. Only its own key may.
    pub(super) fn find_kept(&self, tenant: KeyId, id: &str) -> bool {
        let found = self.responses.get(self.id_of(tenant), id).is_some();
        let of_tenant = |kept: &&Kept| kept.tenant == tenant;
        let own = self.kept.iter().find(|kept| kept.id == id).filter(of_tenant);
        assert!(!found || own.is_some(), "{tenant:?} finds a response that is not its own");
        let is_newest = self.kept.iter().rfind(of_tenant).is_some_and(|kept| kept.id == id);
        assert!(found || !is_newest, "the newest response of {tenant:?} is kept");
        found
    }

    /// Gives a request the conversation that it continues. False if there is none.
    pub(super) fn continue_kept(&self, tenant: KeyId, request: &mut Request) -> bool {
        let Some(id) = request.previous().map(str::to_owned) else { return true };
        let response = self.responses.get(self.id_of(tenant), &id).cloned();
        response.is_some_and(|response| request.continue_from(&response.turn).is_ok())
    }

    /// Keeps the response of a client that has been served.
    pub(super) fn keep(&mut self, index: usize, stored: Option<Box<Stored>>) {
        let client = &self.clients[index];
        let Some(text) = &client.ask.kept else {
            assert!(stored.is_none(), "kept, though nobody wants it");
            return;
        };
        let mut stored = stored.expect("a response that was served is kept");
        let text = format!("{text}[assistant]{}", client.reference.text());
        let kept = Kept { id: stored.id.clone(), tenant: client.tenant, text };
        let key = self.id_of(client.tenant);
        if self.fault == Some(Fault::OtherTurnKept)
            && let Some(other) = self.kept.last()
            && let Some(other) = self.responses.get(self.id_of(other.tenant), &other.id)
        {
            stored.turn = other.turn.clone();
        }
        let fits = stored.bytes() <= self.response_bytes;
        self.responses.keep(key, stored);
        if fits {
            self.kept.push(kept);
            self.count("kept", 1);
        }
    }
}
