//! Guesses: tokens that a step runs before anybody knows that they come next.
//!
//! A step of four rows takes far less time than four steps. So the lane guesses the next tokens
//! of a text, runs them in the same step, and samples behind each row as usual. A guess has come
//! true if the sample before it is the same token. After the first wrong one, the further rows are
//! undone.
//!
//! **Invariant:** no guess changes a text. The tokens are the samples, each drawn by the whole chain
//! from the logits behind the tokens before it; a guess only decides how many of them one step
//! gives.

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
    /// Makes the guesses that the batch grants: those that a constraint forces, or else from the text
    /// itself, or else with the drafter.
    pub(super) fn guess(&mut self, batch: &mut Batch) {
        let granted = batch.rows.iter_mut().filter(|row| row.guesses.most() > 0);
        // Rows are in the order of slots.
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
            let mut forced = Vec::new(); // of constrained texts only, which may allocate
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
            // What a preempted text had generated is computed again like a prompt.
            let is_prompt = rows.len() > 1 || rows[0].position.0 < slot.prompt_tokens;
            // The last token of a text needs no guess.
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

    /// Drops guesses that are too few for a row, and counts the others.
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

    /// Whether a guess is the token that was sampled before it, and may be sampled behind. If not,
    /// this row and the further ones of its slot are undone.
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
            let left = self.backend.truncate(guess.slot, slot.next);
            assert_eq!(left, slot.next, "a model that cannot forget a part makes no guesses");
            slot.planned = left;
        }
        false
    }
}

impl Slot {
    /// The tokens behind a row that its constraint forces, if it knows them.
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

    /// The place for the guesses of a row, and the index of the text. Notes the row's token.
    fn draft_of<'a>(&'a mut self, row: &'a mut Row) -> (Option<&'a mut Lookup>, Draft<'a>) {
        let position = self.planned.index();
        self.history[position] = self.input(row);
        // The last token of the text is not run, and so the one before it is the last guess.
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

    /// The text has changed from this position on.
    pub(super) fn forget_places(&mut self, from: Position) {
        if let Some(lookup) = &mut self.lookup {
            lookup.truncate(&self.history, from.index());
        }
    }
}
