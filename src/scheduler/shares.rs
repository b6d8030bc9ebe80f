//! Who is next when several clients want more than there is: the one that was
//! served least, by the weight of its key (the virtual token counters of Sheng
//! et al., "Fairness in Serving Large Language Models", 2024).

use crate::limits::KEYS_MAX;
use crate::types::KeyId;

/// What each key was served.
pub(super) struct Shares {
    keys: heapless::Vec<Share, KEYS_MAX>,
}

struct Share {
    weight: f64,
    /// Tokens served, divided by the weight.
    served: f64,
    /// Its sequences that wait or run.
    live: usize,
}

impl Shares {
    /// Keys with these weights, all of them positive.
    pub fn new(weights: &[f64]) -> Self {
        let share = |weight: &f64| Share { weight: *weight, served: 0.0, live: 0 };
        Self { keys: weights.iter().map(share).collect() }
    }

    /// One more sequence of a key. One that had none is as far as the one that
    /// was served least: what it did not use is not owed to it.
    pub fn arrive(&mut self, key: KeyId) {
        if self.keys[key.index()].live == 0 {
            let live = self.keys.iter().filter(|share| share.live > 0);
            let least = live.map(|share| share.served).reduce(f64::min);
            let share = &mut self.keys[key.index()];
            share.served = share.served.max(least.unwrap_or(share.served));
        }
        self.keys[key.index()].live += 1;
    }

    /// One sequence of a key less.
    pub fn leave(&mut self, key: KeyId) {
        self.keys[key.index()].live -= 1;
    }

    /// A key was served so many tokens, prompt or generated.
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

    #[test]
    fn a_key_that_was_idle_is_not_owed_what_it_did_not_use() {
        let mut shares = Shares::new(&[1.0, 2.0]);
        shares.arrive(KeyId(0));
        shares.serve(KeyId(0), 1000);
        shares.arrive(KeyId(1));
        assert!((shares.served(KeyId(1)) - 1000.0).abs() < 1e-9);
        // Twice the weight, twice the tokens.
        shares.serve(KeyId(0), 100);
        shares.serve(KeyId(1), 200);
        assert!((shares.served(KeyId(0)) - shares.served(KeyId(1))).abs() < 1e-9);
    }
}
