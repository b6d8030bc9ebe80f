//! Fairness between API keys: the key with the least service for its weight goes first. These are
//! the virtual token counters of Sheng et al., "Fairness in Serving Large Language Models", 2024.

use crate::limits::KEYS_MAX;
use crate::types::KeyId;

/// The service and the queue of each key.
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

/// Sequences and tokens in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    pub sequences: usize,
    pub tokens: usize,
}

impl Shares {
    /// One entry for each weight. Weights are positive.
    pub fn new(weights: &[f64]) -> Self {
        let waiting = Waiting::default();
        let share = |weight: &f64| Share { weight: *weight, served: 0.0, waiting };
        Self { keys: weights.iter().map(share).collect(), left_last: None }
    }

    /// Takes note that a key sends a request. A key that had nothing in the queue is raised to the
    /// least served key in the queue, or to the last one that left it. So it gets no credit for
    /// idle time.
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

    /// A sequence of `tokens` tokens enters the queue.
    pub fn wait(&mut self, key: KeyId, tokens: usize) {
        let waiting = &mut self.keys[key.index()].waiting;
        waiting.sequences += 1;
        waiting.tokens += tokens;
    }

    /// A sequence of `tokens` tokens leaves the queue.
    pub fn leave(&mut self, key: KeyId, tokens: usize) {
        let waiting = &mut self.keys[key.index()].waiting;
        waiting.sequences -= 1;
        waiting.tokens -= tokens;
        self.left_last = Some(key);
    }

    /// The queue of all keys together.
    pub fn waiting(&self) -> Waiting {
        let add = |a: Waiting, share: &Share| Waiting {
            sequences: a.sequences + share.waiting.sequences,
            tokens: a.tokens + share.waiting.tokens,
        };
        self.keys.iter().fold(Waiting::default(), add)
    }

    /// The part of a queue of `limit` that a key may fill. Half of the queue is reserved for the
    /// keys by their weights, so that no key finds it full of another key's requests.
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

    /// Charges a key with `tokens` tokens, prompt or generated.
    pub fn serve(&mut self, key: KeyId, tokens: usize) {
        let share = &mut self.keys[key.index()];
        share.served += tokens as f64 / share.weight;
    }

    /// The service of a key, divided by its weight.
    pub fn served(&self, key: KeyId) -> f64 {
        self.keys[key.index()].served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyId = KeyId(0);
    const B: KeyId = KeyId(1);

    /// Moves a sequence through the queue and charges its key.
    fn pass(shares: &mut Shares, key: KeyId, served: usize) {
        shares.arrive(key);
        shares.wait(key, 1);
        shares.leave(key, 1);
        shares.serve(key, served);
    }

    #[test]
    fn a_key_that_was_idle_is_not_owed_what_it_did_not_use() {
        // Once while the other key waits, and once while nobody does.
        for waits in [true, false] {
            let mut shares = Shares::new(&[1.0, 2.0]);
            pass(&mut shares, A, 1000);
            if waits {
                shares.arrive(A);
                shares.wait(A, 1);
            }
            shares.arrive(B);
            assert!((shares.served(B) - 1000.0).abs() < 1e-9, "{}", shares.served(B));
            // Twice the weight gets twice the tokens.
            shares.serve(A, 100);
            shares.serve(B, 200);
            assert!((shares.served(A) - shares.served(B)).abs() < 1e-9);
        }
    }

    /// A key with one endless stream gets no claim to the service that others had meanwhile.
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
        // Sequences of the other key in the queue take the part that was reserved for it.
        (0..20).for_each(|_| shares.wait(B, 10));
        assert_eq!(shares.limit(A, limit), Waiting { sequences: 70, tokens: 700 });
        assert_eq!(shares.waiting(), Waiting { sequences: 20, tokens: 200 });
        assert_eq!(Shares::new(&[2.0]).limit(A, limit), limit);
    }
}
