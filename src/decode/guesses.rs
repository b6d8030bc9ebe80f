//! Guesses: tokens that a step runs before they are known to come next (speculative decoding).
//!
//! A step of four rows takes far less time than four steps. So the lane guesses the next tokens of
//! a text, runs them in the same step, and samples behind each row as usual. A guess comes true if
//! the token sampled before it is the same. The rows of the first wrong guess and of all guesses
//! behind it are undone.
//!
//! **Invariant:** no guess changes a text. The tokens are the samples, each drawn by the whole
//! chain from the logits behind the tokens before it; a guess only decides how many of them one
//! step gives.

use std::time::Duration;

use super::DecodeLane;
use super::draft::{Draft, Reading};
use super::lookup::Lookup;
use super::slot::{Slot, SlotState};
use crate::constraint::Walk;
use crate::limits::{DRAFT_READ_ROWS, DRAFT_TEXTS_MAX, GUESSED_ROWS_MAX};
use crate::model::{Backend, DecodeRow};
use crate::ring::message::{Batch, GuessSource, Row};
use crate::types::{Position, TokenId};

impl<B: Backend> DecodeLane<B> {
    /// Makes the guesses that the batch grants: those that a constraint forces, or else from the
    /// text itself, or else with the drafter.
    pub(super) fn guess(&mut self, batch: &mut Batch) {
        let granted = batch.rows.iter_mut().filter(|row| row.guesses.most() > 0);
        // Rows are sorted by slot.
        let mut granted = granted.peekable();
        let clock = self.metrics.clock;
        let mut took = Duration::ZERO;
        let mut drafts = heapless::Vec::<Draft<'_>, GUESSED_ROWS_MAX>::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let is_its = |row: &&mut Row| row.owner.slot.index() == index;
            let Some(row) = granted.next_if(is_its).filter(|_| slot.state == SlotState::Running)
            else {
                continue;
            };
            let mut forced = Vec::new(); // only constrained texts have any; they may allocate
            if slot.constraint().is_some() && row.guesses.granted > 0 {
                let began = clock.now();
                forced = slot.forced(row);
                took += Duration::from_micros(clock.now().since(began));
            }
            let (lookup, mut draft) = slot.draft_of(row);
            let most = draft.most.min(draft.answer.granted.into());
            let forced = &forced[..forced.len().min(most)];
            draft.tokens[draft.len..][..forced.len()].copy_from_slice(forced);
            draft.answer.made = forced.len() as u8; // at most `most`
            if let Some(lookup) = lookup.filter(|_| forced.is_empty()) {
                draft.answer.made = lookup.guess(draft.tokens, draft.len, most) as u8; // as above
            }
            draft.most = draft.most.min(draft.answer.drafts.into());
            if draft.answer.made == 0 && draft.most > 0 {
                draft.answer.source = GuessSource::Draft;
                drafts.push(draft).expect("each has a guess");
            }
        }
        if let Some(drafter) = self.drafter.as_mut().filter(|_| !drafts.is_empty()) {
            drafter.draft(&mut drafts);
        }
        drop(drafts);
        batch.masks_took += took;
        self.count_guesses(batch);
    }

    /// Lets the drafter read the prompts of the step, so that it can guess as soon as they end.
    pub(super) fn read_prompts(&mut self, batch: &Batch) {
        let Some(drafter) = self.drafter.as_mut().filter(|_| batch.drafter_reads) else { return };
        let mut texts = heapless::Vec::<Reading<'_>, DRAFT_TEXTS_MAX>::new();
        for rows in batch.rows.chunk_by(|a, b| a.owner == b.owner) {
            let id = rows[0].owner.slot;
            let slot = &self.slots[id.index()];
            // The generated tokens of a preempted text are computed again like a prompt.
            let is_prompt = rows.len() > 1 || rows[0].position.0 < slot.prompt_tokens;
            // A text of one generated token needs no guess.
            let guesses = slot.guessing.most > 0 && slot.tokens_max > slot.prompt_tokens + 1;
            if slot.state == SlotState::Running && is_prompt && guesses {
                let text = &slot.history[..slot.planned.index()];
                let most = rows.len() + DRAFT_READ_ROWS;
                texts.push(Reading { slot: id, text, most }).expect("few texts run then");
            }
        }
        if !texts.is_empty() {
            drafter.read(&texts);
        }
    }

    /// Drops a row's guesses if they are fewer than its request wants, and counts the others.
    fn count_guesses(&self, batch: &mut Batch) {
        let metrics = &self.metrics.decode.guesses;
        for Row { owner, guesses, .. } in &mut batch.rows {
            if guesses.made < self.slots[owner.slot.index()].guessing.least {
                guesses.made = 0;
            }
            if guesses.made > 0 {
                metrics.rows.increment();
                metrics.made.add(guesses.made.into());
            }
        }
    }

    /// Whether a guess came true: it equals the token sampled before it, and its own sample need
    /// not wait for a late mask. If not, this row and the later rows of its slot are undone.
    pub(super) fn comes_true(&mut self, guess: DecodeRow, batch: &Batch) -> bool {
        let slot = &mut self.slots[guess.slot.index()];
        let comes_true = slot.state == SlotState::Running
            && slot.carry == Some(guess.token)
            && !(slot.constraint().is_some() && batch.masks_are_late());
        if comes_true {
            let row = batch.last_row(guess.slot).expect("its row is in the batch");
            let index = guess.position.index() - row.position.index() - 1;
            self.metrics.decode.guesses.kept[index].increment();
            return true;
        }
        // A late mask has undone its row already.
        if slot.planned > slot.next {
            let is_done = self.backend.truncate(guess.slot, slot.next);
            assert!(is_done, "a model that cannot go back makes no guesses");
            slot.planned = slot.next;
        }
        false
    }
}

impl Slot {
    /// The next tokens that the row's constraint forces, as far as they are known. Notes the row's
    /// token.
    fn forced(&mut self, row: &Row) -> Vec<TokenId> {
        let position = self.planned.index();
        self.history[position] = self.input(row);
        let Some(advanced) = &self.advanced else { return Vec::new() };
        let Some(constraint) = &advanced.constraint else { return Vec::new() };
        let prompt_tokens = self.prompt_tokens as usize;
        let generated = &self.history[prompt_tokens.min(position + 1)..=position];
        let walk = self.walk.get_or_insert_with(|| Walk::new(constraint));
        walk.forced_after(generated, row.guesses.granted.into())
    }

    /// The index of a row's text, and the place for the row's guesses. Notes the row's token.
    fn draft_of<'a>(&'a mut self, row: &'a mut Row) -> (Option<&'a mut Lookup>, Draft<'a>) {
        let position = self.planned.index();
        self.history[position] = self.input(row);
        // The text's last token never runs as a row, so the last guess is the token before it.
        let room = (self.tokens_max as usize).saturating_sub(position + 2);
        let draft = Draft {
            slot: row.owner.slot,
            tokens: &mut self.history,
            len: position + 1,
            most: room,
            p_min: self.guessing.p_min,
            answer: &mut row.guesses,
        };
        (self.lookup.as_mut(), draft)
    }

    /// Forgets the indexed tokens from this position on, because the text has changed there.
    pub(super) fn forget_places(&mut self, from: Position) {
        if let Some(lookup) = &mut self.lookup {
            lookup.truncate(&self.history, from.index());
        }
    }
}
