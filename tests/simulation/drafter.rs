//! A drafter that knows the fake model's text, and is wrong from time to time.

use corelane::model::fake::{END, FakeOptions, N_VOCAB, continuation_with};
use corelane::model::{Draft, Drafter};
use corelane::types::TokenId;

use crate::support::Random;

/// See the module's description.
pub struct RandomDrafter {
    pub random: Random,
    pub options: FakeOptions,
    /// Of so many guesses, one is wrong; 0 is never.
    pub wrong_one_in: u64,
}

impl Drafter for RandomDrafter {
    fn draft(&mut self, wanted: &mut [Draft<'_>]) {
        assert!(wanted.is_sorted_by(|a, b| a.slot < b.slot), "in the order of slots");
        for Draft { tokens, len, most, made, .. } in wanted {
            let count = self.random.within(0, *most);
            let mut next = continuation_with(&self.options, &tokens[..*len], count);
            for token in &mut next {
                if self.wrong_one_in > 0 && self.random.one_in(self.wrong_one_in) {
                    *token = self.random.within(0, N_VOCAB - 1) as TokenId;
                }
            }
            // A guess may be the end, too.
            next.truncate(next.iter().position(|t| *t == END).map_or(next.len(), |at| at + 1));
            tokens[*len..][..next.len()].copy_from_slice(&next);
            **made = next.len() as u8;
        }
    }
}
