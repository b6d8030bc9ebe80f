//! Drafters that know the fake model's text, and are wrong from time to time.

use corelane::decode::draft::{Draft, DraftModel, Drafter};
use corelane::model::fake::{END, FakeModel, FakeOptions, N_VOCAB, continuation_with};
use corelane::ring::message::GuessSource;
use corelane::types::TokenId;

use crate::support::Random;

/// One of the two drafters. `cells` are those of the served model.
pub fn drafter(
    random: &mut Random,
    seed: u64,
    options: FakeOptions,
    slots: usize,
    cells: usize,
) -> Box<dyn Drafter> {
    let wrong_one_in = [0, 2, 5][random.within(0, 2)];
    if random.one_in(2) {
        return Box::new(RandomDrafter { random: Random::new(seed), options, wrong_one_in });
    }
    // The text of this one ends at other places, and its cache may be too small.
    let options = FakeOptions {
        end_one_in: options.end_one_in + wrong_one_in,
        fail_one_in: [0, 7, 50][random.within(0, 2)],
        is_recurrent: false,
        window: 0,
        ..options
    };
    let rows = random.within(1, 100);
    let text_tokens = random.within(1, cells);
    let model = FakeModel::new(slots, random.within(cells / 2, cells), rows.max(slots), options);
    Box::new(DraftModel::new(model, N_VOCAB, slots, text_tokens, rows.max(slots)))
}

/// A drafter that guesses at random.
struct RandomDrafter {
    random: Random,
    options: FakeOptions,
    /// Of so many guesses, one is wrong; 0 is never.
    wrong_one_in: u64,
}

impl Drafter for RandomDrafter {
    fn draft(&mut self, wanted: &mut [Draft<'_>]) {
        assert!(wanted.is_sorted_by(|a, b| a.slot < b.slot), "in the order of slots");
        for Draft { tokens, len, most, answer, .. } in wanted {
            if self.random.one_in(4) {
                answer.source = GuessSource::Unread;
                continue;
            }
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
            answer.made = next.len() as u8;
        }
    }
}
