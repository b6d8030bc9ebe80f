//! Guesses of a draft model: a smaller model with the same vocabulary.
//!
//! It has a KV cache of its own, with the same slots. It reads a prompt in the same steps as the
//! served model. While many texts run, or drafts do not pay, it reads nothing. It then reads a text
//! before its next guess, some tokens in each step.
//!
//! **Invariant:** neither this model's guesses nor its failures change a text.

use super::largest::{argmax, max};
use super::weights::sum_exp;
use crate::limits::{DRAFT_READ_ROWS, GUESSED_ROWS_MAX, GUESSES_MAX};
use crate::model::{Backend, DecodeRow};
use crate::ring::message::{GuessSource, Guesses};
use crate::types::{Logits, Position, SlotId, Threads, TokenId};

/// Guesses the next tokens of texts.
pub trait Drafter {
    /// Sets the threads of the next calls.
    fn use_threads(&mut self, _threads: Threads) {}

    /// Sets the tokens of a slot to the first `keep` tokens of `source`, which may be the slot
    /// itself.
    fn start(&mut self, _slot: SlotId, _source: SlotId, _keep: Position) {}

    /// Reads texts ahead of their guesses.
    fn read(&mut self, _texts: &[Reading<'_>]) {}

    /// Makes guesses for some slots, in the order of their ids.
    fn draft(&mut self, wanted: &mut [Draft<'_>]);
}

/// A text to read.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The slot.
    pub slot: SlotId,
    /// The text, at least one token.
    pub text: &'a [TokenId],
    /// The most tokens to read.
    pub most: usize,
}

/// The part of a text that [`DraftModel::plan`] planned or has read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Planned {
    /// All of it. The last row has the logits behind the text.
    Whole,
    /// A part: the call was full, or `most` was reached.
    Part,
    /// Nothing: the text is too long, or has tokens that the draft model lacks.
    Never,
}

/// Most tokens by which a text grows in a step.
const GROWTH: usize = GUESSES_MAX + 1;

/// Guesses for one slot.
#[derive(Debug)]
pub struct Draft<'a> {
    /// The slot.
    pub slot: SlotId,
    /// The tokens of the text. The guesses go behind the first `len`.
    pub tokens: &'a mut [TokenId],
    /// The tokens that are known, at least one.
    pub len: usize,
    /// The most guesses; there is room for them.
    pub most: usize,
    /// The least probability of a guess.
    pub p_min: f32,
    /// Answer: the number of guesses made, and their source or the reason for none.
    pub answer: &'a mut Guesses,
}

impl Draft<'_> {
    /// Adds a guess. Returns whether there may be another one.
    fn push(&mut self, guess: TokenId) -> bool {
        self.tokens[self.known()] = guess;
        self.answer.made += 1;
        usize::from(self.answer.made) < self.most
    }

    /// The tokens so far, with the guesses.
    fn known(&self) -> usize {
        self.len + usize::from(self.answer.made)
    }

    /// The text with the guesses, to read at most `most` tokens of it.
    fn text(&self, most: usize) -> Reading<'_> {
        Reading { slot: self.slot, text: &self.tokens[..self.known()], most }
    }
}

/// See the module's description.
pub struct DraftModel<B> {
    model: B,
    slots: Box<[Vec<TokenId>]>, // the tokens in each slot's cache; room for `text_tokens`
    rows: Vec<DecodeRow>,       // of one call; room for `rows_max`
    /// Guesses are below this number. The draft model may have more tokens than the served one.
    n_vocab: usize,
    text_tokens: usize,
    rows_max: usize,
}

impl<B: Backend> DraftModel<B> {
    /// Wraps `model`, for a served model of `n_vocab` tokens, with `slots` slots for texts of at
    /// most `text_tokens` tokens. A call has at most `rows_max` rows.
    pub fn new(
        model: B,
        n_vocab: usize,
        slots: usize,
        text_tokens: usize,
        rows_max: usize,
    ) -> Self {
        Self {
            n_vocab: n_vocab.min(model.n_vocab()),
            model,
            slots: (0..slots).map(|_| Vec::with_capacity(text_tokens)).collect(),
            rows: Vec::with_capacity(rows_max),
            text_tokens,
            rows_max,
        }
    }

    /// Plans rows for the tokens of a text that its slot's cache lacks: at most `most`, and no more
    /// than still fit into the call.
    fn plan(&mut self, Reading { slot, text, most }: Reading<'_>) -> Planned {
        if text.len() > self.text_tokens {
            return Planned::Never;
        }
        let held = &mut self.slots[slot.index()];
        // The last token always runs, because its logits give the first guess.
        let known = &text[..text.len() - 1];
        let same = held.iter().zip(known).take_while(|(held, token)| held == token).count();
        if same < held.len() {
            let goes_back = self.model.truncate(slot, Position(same as u32)); // below text_tokens
            if !goes_back {
                self.model.truncate(slot, Position(0)); // cells of a sliding window were reused
            }
            held.truncate(if goes_back { same } else { 0 });
        }
        let most = most.min(self.rows_max - self.rows.len());
        for index in (held.len()..text.len()).take(most) {
            let token = text[index];
            if token as usize >= self.model.n_vocab() {
                return Planned::Never; // the served model has more tokens
            }
            let is_last = index + 1 == text.len();
            let logits = if is_last { Logits::Sample } else { Logits::None };
            let position = Position(index as u32); // below text_tokens
            self.rows.push(DecodeRow { token, position, slot, logits });
            held.push(token);
        }
        if held.len() == text.len() { Planned::Whole } else { Planned::Part }
    }

    /// Runs the planned rows. Returns false after an error. The cache is then emptied, because its
    /// contents are unknown.
    fn run(&mut self) -> bool {
        let Err(error) = self.model.decode(&self.rows) else { return true };
        tracing::debug!(rows = self.rows.len(), %error, "the draft model failed");
        for (slot, held) in (0..).map(SlotId).zip(&mut self.slots) {
            self.model.truncate(slot, Position(0));
            held.clear();
        }
        false
    }

    /// The most probable token behind a row, if its probability is at least `p_min`.
    fn best(&mut self, row: usize, p_min: f32) -> Option<TokenId> {
        let logits = &self.model.logits(row)[..self.n_vocab];
        let is_probable = p_min <= 0.0 || 1.0 / sum_exp(logits, max(logits)) >= f64::from(p_min);
        is_probable.then(|| argmax(logits) as TokenId) // below n_vocab
    }
}

impl<B: Backend> Drafter for DraftModel<B> {
    fn use_threads(&mut self, threads: Threads) {
        self.model.use_threads(threads);
    }

    fn start(&mut self, slot: SlotId, source: SlotId, keep: Position) {
        let held = self.slots[source.index()].len() as u32; // at most text_tokens
        let keep = self.model.start(slot, source, keep.min(Position(held)), None).index();
        match self.slots.get_disjoint_mut([slot.index(), source.index()]) {
            Ok([to, from]) => {
                to.clear();
                to.extend_from_slice(&from[..keep]);
            }
            Err(_) => self.slots[slot.index()].truncate(keep), // they are the same
        }
    }

    fn read(&mut self, texts: &[Reading<'_>]) {
        self.rows.clear();
        for text in texts {
            let mut most = text.most;
            loop {
                let before = self.rows.len();
                let planned = self.plan(Reading { most, ..*text });
                most -= self.rows.len() - before;
                if planned != Planned::Part || most == 0 {
                    break;
                }
                // The call is full.
                if !self.run() {
                    return;
                }
                self.rows.clear();
            }
        }
        if !self.rows.is_empty() {
            self.run();
        }
    }

    fn draft(&mut self, wanted: &mut [Draft<'_>]) {
        // The drafts that go on: their index in `wanted`, and their row with logits.
        let mut going = heapless::Vec::<(usize, usize), GUESSED_ROWS_MAX>::new();
        self.rows.clear();
        let mut unread = DRAFT_READ_ROWS; // for all texts together
        for (index, draft) in wanted.iter_mut().enumerate() {
            let before = self.rows.len();
            let planned = self.plan(draft.text(GROWTH + unread));
            unread -= (self.rows.len() - before).saturating_sub(GROWTH);
            match planned {
                Planned::Whole => {
                    going.push((index, self.rows.len() - 1)).expect("each has a guess");
                }
                Planned::Part => draft.answer.source = GuessSource::Unread,
                Planned::Never => {}
            }
        }
        while !self.rows.is_empty() {
            if !self.run() {
                // The guesses count as not made, which lowers the estimate of the draft model's
                // luck.
                wanted.iter_mut().for_each(|draft| draft.answer.source = GuessSource::Draft);
                return;
            }
            self.rows.clear();
            for (index, row) in std::mem::take(&mut going) {
                let draft = &mut wanted[index];
                let Some(guess) = self.best(row, draft.p_min) else { continue };
                if draft.push(guess) && self.plan(draft.text(1)) == Planned::Whole {
                    going.push((index, self.rows.len() - 1)).expect("no more than before");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fake::{FakeModel, FakeOptions, N_VOCAB, continuation};

    const TEXT_TOKENS: usize = 300;

    fn model(options: FakeOptions) -> DraftModel<FakeModel> {
        let fake = FakeModel::new(4, 1000, 100, options);
        DraftModel::new(fake, N_VOCAB, 4, TEXT_TOKENS, 100)
    }

    /// Asks for guesses for some texts, one in each slot.
    fn draft(
        model: &mut DraftModel<FakeModel>,
        texts: &[&[TokenId]],
        most: usize,
        p_min: f32,
    ) -> Vec<(GuessSource, Vec<TokenId>)> {
        let mut rooms: Vec<Vec<TokenId>> = texts.iter().map(|text| text.to_vec()).collect();
        rooms.iter_mut().for_each(|room| room.resize(room.len() + most, -1));
        let mut answers = vec![Guesses::default(); texts.len()];
        let drafts = rooms.iter_mut().zip(&mut answers).zip(texts).zip(0..);
        let mut wanted: Vec<_> = drafts
            .map(|(((tokens, answer), text), slot)| {
                answer.source = GuessSource::Draft;
                Draft { slot: SlotId(slot), tokens, len: text.len(), most, p_min, answer }
            })
            .collect();
        model.draft(&mut wanted);
        drop(wanted);
        let guesses = answers.iter().zip(&rooms).zip(texts).map(|((answer, room), text)| {
            (answer.source, room[text.len()..][..answer.made.into()].to_vec())
        });
        guesses.collect()
    }

    fn guesses(model: &mut DraftModel<FakeModel>, text: &[TokenId], most: usize) -> Vec<TokenId> {
        draft(model, &[text], most, 0.0).swap_remove(0).1
    }

    #[test]
    fn a_model_that_cannot_go_back_so_far_reads_the_text_again() {
        let mut model = model(FakeOptions { window: 10, ..FakeOptions::default() });
        let long: Vec<TokenId> = (30..70).collect();
        assert!(guesses(&mut model, &long, 3).is_empty(), "it has read a part of the text");
        assert_eq!(guesses(&mut model, &long, 3).len(), 3);
        let text = [&long[..10], &[7]].concat();
        assert!(model.model.least_left(SlotId(0)) > Some(Position(10)));
        assert_eq!(guesses(&mut model, &text, 3), continuation(&text, 3, 0));
    }

    #[test]
    fn it_guesses_what_its_model_says() {
        let mut model = model(FakeOptions::default());
        let texts: [&[TokenId]; 3] = [&[1, 2, 3], &[9], &[4, 4]];
        let expected = texts.map(|text| (GuessSource::Draft, continuation(text, 5, 0)));
        assert_eq!(draft(&mut model, &texts, 5, 0.0), expected);
        assert_eq!(model.model.calls(), 5, "all texts together");
    }

    #[test]
    fn it_follows_a_text_whatever_came_of_its_guesses() {
        let mut model = model(FakeOptions::default());
        let mut text = vec![1, 2, 3];
        for kept in [0, 1, 2, 4, 0, 3] {
            let found = guesses(&mut model, &text, 4);
            assert_eq!(found, continuation(&text, 4, 0), "after {} tokens", text.len());
            text.extend_from_slice(&found[..kept]);
            text.push(7);
        }
        assert_eq!(model.model.calls(), 6 * 4, "what it knows, it does not read again");
    }

    #[test]
    fn a_text_that_it_has_not_read_comes_in_parts() {
        let mut model = model(FakeOptions::default());
        // The first text gets all rows for unread texts. The second gets only the rows by which any
        // text may grow in a step.
        let text: Vec<TokenId> = (0..2 * (GROWTH + DRAFT_READ_ROWS) as TokenId + 10).collect();
        let mut next = || draft(&mut model, &[&text, &text], 2, 0.0);
        let unread = (GuessSource::Unread, vec![]);
        let drafted = (GuessSource::Draft, continuation(&text, 2, 0));
        assert_eq!(next(), [unread.clone(), unread.clone()]);
        assert_eq!(next(), [unread.clone(), unread.clone()]);
        assert_eq!(next(), [drafted.clone(), unread]);
        (0..2).for_each(|_| drop(next()));
        assert_eq!(next(), [drafted.clone(), drafted]);
    }

    #[test]
    fn texts_are_read_ahead_in_as_few_calls_as_they_fit_into() {
        let mut model = model(FakeOptions::default());
        let text: Vec<TokenId> = (1..=250).map(|token| token % 99).collect();
        let reading =
            |slot, len: usize, most| Reading { slot: SlotId(slot), text: &text[..len], most };
        model.read(&[reading(0, 30, 30), reading(1, 250, 180), reading(2, 40, 40)]);
        assert_eq!(model.model.calls(), 3, "100 rows at once");
        assert_eq!([0, 1, 2].map(|slot| model.model.tokens_in(SlotId(slot))), [30, 180, 40]);
        model.read(&[reading(1, 250, 250)]);
        assert_eq!(model.model.tokens_in(SlotId(1)), 250);
        let texts: [&[TokenId]; 3] = [&text[..30], &text, &text[..40]];
        let expected = texts.map(|text| (GuessSource::Draft, continuation(text, 2, 0)));
        assert_eq!(draft(&mut model, &texts, 2, 0.0), expected);
    }

    #[test]
    fn a_text_longer_than_it_takes_has_no_guesses() {
        let mut model = model(FakeOptions::default());
        let text = vec![1; TEXT_TOKENS + 1];
        model.read(&[Reading { slot: SlotId(0), text: &text, most: 1000 }]);
        assert_eq!(model.model.tokens_in(SlotId(0)), 0);
        assert_eq!(draft(&mut model, &[&text], 1, 0.0), [(GuessSource::Draft, vec![])]);
        assert_eq!(guesses(&mut model, &text[..20], 1), continuation(&text[..20], 1, 0));
    }

    #[test]
    fn a_token_that_only_the_served_model_has_ends_its_guesses() {
        let mut model = model(FakeOptions::default());
        let text = [1, 2, N_VOCAB as TokenId, 3];
        assert_eq!(draft(&mut model, &[&text], 1, 0.0), [(GuessSource::Draft, vec![])]);
        assert_eq!(guesses(&mut model, &text[..2], 3), continuation(&text[..2], 3, 0));
    }

    #[test]
    fn a_start_takes_the_beginning_of_another_text() {
        let mut model = model(FakeOptions::default());
        let text: Vec<TokenId> = (0..100).collect();
        model.read(&[Reading { slot: SlotId(0), text: &text, most: 100 }]);
        model.start(SlotId(1), SlotId(0), Position(90));
        model.start(SlotId(0), SlotId(0), Position(50));
        assert_eq!([0, 1].map(|slot| model.model.tokens_in(SlotId(slot))), [50, 90]);
        let calls = model.model.calls();
        let texts: [&[TokenId]; 2] = [&text[..60], &text];
        let expected = texts.map(|text| (GuessSource::Draft, continuation(text, 1, 0)));
        assert_eq!(draft(&mut model, &texts, 1, 0.0), expected);
        assert_eq!(model.model.calls(), calls + 1);
        model.start(SlotId(2), SlotId(3), Position(10));
        assert_eq!(model.model.tokens_in(SlotId(2)), 0, "the other has read nothing");
    }

    #[test]
    fn a_guess_must_be_as_probable_as_asked() {
        let mut model = model(FakeOptions::default());
        // The fake model's logits are 20 and 0.
        let p = 1.0 / (1.0 + 256.0 * (-20.0f32).exp());
        assert_eq!(draft(&mut model, &[&[1, 2]], 3, p - 1e-6)[0].1.len(), 3);
        assert_eq!(draft(&mut model, &[&[1, 2]], 3, 1.0)[0].1.len(), 0);
    }

    #[test]
    fn after_an_error_it_reads_the_text_again() {
        let options = FakeOptions { fail_one_in: 3, ..FakeOptions::default() };
        let mut model = model(options);
        let text = [5, 6, 7];
        assert_eq!(
            guesses(&mut model, &text, 4),
            continuation(&text, 2, 0),
            "the third call fails"
        );
        assert_eq!(model.model.tokens_in(SlotId(0)), 0);
        assert_eq!(guesses(&mut model, &text, 2), continuation(&text, 2, 0));
        // A text that does not fit counts as a text without guesses, not as an unread one.
        let fake = FakeModel::new(1, 30, 100, FakeOptions::default());
        let mut small = DraftModel::new(fake, N_VOCAB, 1, TEXT_TOKENS, 100);
        let text = [1; 100];
        let found = [(); 3].map(|()| draft(&mut small, &[&text], 1, 0.0).swap_remove(0).0);
        assert_eq!(found, [GuessSource::Draft; 3]);
    }
}
