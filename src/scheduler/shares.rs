//! Who is next when several clients want more than there is: the one that was
//! served least, by the weight of its key (the virtual token counters of Sheng
//! et al., "Fairness in Serving Large Language Models", 2024).

use crate::limits::KEYS_MAX;
use crate::types::KeyId;

/// What each key was served, and what it waits for.
pub(super) struct Shares {
    keys: heapless::Vec<Share, KEYS_MAX>,
    /// The key whose sequence left the queue last.
    left_last: Option<KeyId>,
}

struct Share {
    weight: f64,
    /// Tokens served, divided by the weight.
    served: f64,
    waiting: Waiting,
}

/// What waits in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    pub sequences: usize,
    pub tokens: usize,
}

impl Shares {
    /// Keys with these weights, all of them positive.
    pub fn new(weights: &[f64]) -> Self {
        let waiting = Waiting::default();
        let share = |weight: &f64| Share { weight: *weight, served: 0.0, waiting };
        Self { keys: weights.iter().map(share).collect(), left_last: None }
    }

    /// A key asks for more. One that waited for nothing is as far as the one of those
    /// that wait that was served least or, where nobody waits, as the one that did
    /// last: what it did not use is not owed to it.
    pub fn arrive(&mut self, key: KeyId) {
        if self.keys[key.index()].waiting.sequences > 0 {
            return;
        }
        let waiting = self.keys.iter().filter(|share| share.waiting.sequences > 0);
        let least = waiting.map(|share| share.served).reduce(f64::min);
        let floor = least.or(self.left_last.map(|key| self.served(key))).unwrap_or(0.0);
        let share = &mut self.keys[key.index()];
        share.served = share.served.max(floor);
    }

    /// A sequence of `tokens` tokens waits.
    pub fn wait(&mut self, key: KeyId, tokens: usize) {
        let waiting = &mut self.keys[key.index()].waiting;
        waiting.sequences += 1;
        waiting.tokens += tokens;
    }

    /// A sequence of `tokens` tokens waits no more.
    pub fn leave(&mut self, key: KeyId, tokens: usize) {
        let waiting = &mut self.keys[key.index()].waiting;
        waiting.sequences -= 1;
        waiting.tokens -= tokens;
        self.left_last = Some(key);
    }

    /// What waits of all keys together.
    pub fn waiting(&self) -> Waiting {
        let add = |a: Waiting, share: &Share| Waiting {
            sequences: a.sequences + share.waiting.sequences,
            tokens: a.tokens + share.waiting.tokens,
        };
        self.keys.iter().fold(Waiting::default(), add)
    }

    /// How far a key may fill a queue of `limit`: half of it is set aside for the keys,
    /// by their weights, so that none finds it full of another one's.
    pub fn limit(&self, key: KeyId, limit: Waiting) -> Waiting {
        let weights: f64 = self.keys.iter().map(|share| share.weight).sum();
        let mut left = limit;
        for (index, share) in self.keys.iter().enumerate() {
            if index == key.index() {
                continue;
            }
            let part = share.weight / (2.0 * weights);
            let set_aside =
                |limit: usize, taken: usize| ((limit as f64 * part) as usize).saturating_sub(taken);
            left.sequences -= set_aside(limit.sequences, share.waiting.sequences);
            left.tokens -= set_aside(limit.tokens, share.waiting.tokens);
        }
        left
    }

    /// A key was served `tokens` tokens, prompt or generated.
    pub fn serve(&mut self, key: KeyId, tokens: usize) {
        let share = &mut self.keys[key.index()];
        share.served += tokens as f64 / share.weight;
    }

    /// How much a key was served, by its weight.
    pub fn served(&self, key: KeyId) -> f64 {
        self.keys[key.index()].served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyId = KeyId(0);
    const B: KeyId = KeyId(1);

    /// A sequence that waits and begins.
    fn pass(shares: &mut Shares, key: KeyId, served: usize) {
        shares.arrive(key);
        shares.wait(key, 1);
        shares.leave(key, 1);
        shares.serve(key, served);
    }

    #[test]
    fn a_key_that_was_idle_is_not_owed_what_it_did_not_use() {
        // The other one waits, or nobody does.
        for waits in [true, false] {
            let mut shares = Shares::new(&[1.0, 2.0]);
            pass(&mut shares, A, 1000);
            if waits {
                shares.arrive(A);
                shares.wait(A, 1);
            }
            shares.arrive(B);
            assert!((shares.served(B) - 1000.0).abs() < 1e-9, "{}", shares.served(B));
            // Twice the weight, twice the tokens.
            shares.serve(A, 100);
            shares.serve(B, 200);
            assert!((shares.served(A) - shares.served(B)).abs() < 1e-9);
        }
    }

    /// One stream that never ends is no claim to all that others were served meanwhile.
    #[test]
    fn a_key_that_only_runs_does_not_save_up() {
        let mut shares = Shares::new(&[1.0, 1.0]);
        pass(&mut shares, A, 10);
        pass(&mut shares, B, 1000);
        shares.arrive(A);
        assert!((shares.served(A) - shares.served(B)).abs() < 1e-9);
    }

    #[test]
    fn a_queue_has_room_for_every_key() {
        let mut shares = Shares::new(&[1.0, 3.0]);
        let limit = Waiting { sequences: 80, tokens: 800 };
        assert_eq!(shares.limit(A, limit), Waiting { sequences: 50, tokens: 500 });
        assert_eq!(shares.limit(B, limit), Waiting { sequences: 70, tokens: 700 });
        // What waits of the other one is no longer set aside for it.
        (0..20).for_each(|_| shares.wait(B, 10));
        assert_eq!(shares.limit(A, limit), Waiting { sequences: 70, tokens: 700 });
        assert_eq!(shares.waiting(), Waiting { sequences: 20, tokens: 200 });
        assert_eq!(Shares::new(&[2.0]).limit(A, limit), limit);
    }
}
