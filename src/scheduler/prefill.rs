//! Plans prompt rows: which prompts, and how many rows beside the running streams.

use std::time::Duration;

use super::Scheduler;
use super::cost::Rows;
use super::sequence::State;
use crate::limits::{ITL_UNNOTICED, PREFILL_ROWS_STEP, SCORED_ROWS_MAX, SLOTS_MAX};
use crate::ring::message::Batch;
use crate::types::SequenceId;

/// In one of four steps the oldest prompt goes first. So it takes at most four times as long as it
/// would alone.
const OLDEST_FIRST_ONE_IN: u64 = 4;

impl Scheduler {
    /// Plans prompt rows.
    pub(super) fn plan_prefill(&mut self, batch: &mut Batch) {
        let oldest_first = self.step.is_multiple_of(OLDEST_FIRST_ONE_IN);
        let mut waiting = heapless::Vec::<(usize, u64, SequenceId), SLOTS_MAX>::new();
        for id in &self.held {
            let sequence = self.sequences.get(*id);
            if matches!(sequence.state, State::Running(_)) && sequence.rows_left() > 1 {
                let length = if oldest_first { 0 } else { self.rows_wanted(*id) };
                waiting.push((length, sequence.admitted, *id)).expect("one for each slot");
            }
        }
        waiting.sort_unstable();
        let Some((.., first)) = waiting.first() else { return };
        let first = self.sequences.get(*first);
        // A row that is scored takes longer than another one, so a step has only one kind.
        let scores = first.scores_next();
        waiting.retain(|(.., id)| self.sequences.get(*id).scores_next() == scores);
        let mut room = if scores {
            self.scored_rows(batch, first.planned)
        } else {
            self.prefill_rows(batch, first.planned)
        };
        // If slots have caches of their own, the rows of each prompt are a separate pass over the
        // weights. A handful of rows does not repay that.
        let least = if self.cells.are_own() && batch.decode_rows > 0 {
            PREFILL_ROWS_STEP.min(room).max(1)
        } else {
            1
        };
        for (.., id) in waiting {
            if room < least {
                break;
            }
            // The last row of a prompt is the first with a mask. It may wait for that.
            let last = usize::from(self.is_on_mask_lane(id));
            let sequence = self.sequences.get(id);
            let take = (sequence.rows_left() - last).min(room).min(sequence.rows_unscored());
            self.evict(batch, take);
            let take = take.min(self.cells.left());
            for _ in 0..take {
                self.plan_row(batch, id);
            }
            room -= take;
        }
    }

    /// Rows until the prompt is computed, or until a follower can start if that is sooner. Prompts
    /// with fewer of these rows go first.
    fn rows_wanted(&self, id: SequenceId) -> usize {
        let sequence = self.sequences.get(id);
        let follower = |other: &SequenceId| match self.sequences.get(*other).state {
            State::Following { leader, tokens, .. } if leader == id => Some(tokens),
            _ => None,
        };
        let nearest = self.held.iter().filter_map(follower).min();
        let followed = nearest.map(|tokens| tokens.saturating_sub(sequence.planned));
        sequence.rows_left().min(followed.unwrap_or(usize::MAX))
    }

    /// Prompt rows that a step may have beside its decode rows, for a prompt with `depth` computed
    /// tokens.
    fn prefill_rows(&self, batch: &Batch, depth: usize) -> usize {
        let most = self.rows_left(batch);
        let decode = self.planned_rows(batch);
        if decode.count == 0 || self.capacity.itl_target == Some(Duration::MAX) {
            return most;
        }
        let bound = self.bound_left(batch);
        let fits = bound.and_then(|t| self.cost.prefill_rows_within(t, decode, depth, most));
        let Some(rows) = fits else { return PREFILL_ROWS_STEP.min(most) };
        if !self.cells.are_own() {
            return rows.max(1).min(most);
        }
        let rows = rows.max(PREFILL_ROWS_STEP);
        (rows - rows % PREFILL_ROWS_STEP).min(most)
    }

    /// Scored rows that a step may have beside its decode rows, for a prompt with `depth` computed
    /// tokens. They have logits, and so take as long as decode rows.
    fn scored_rows(&self, batch: &Batch, depth: usize) -> usize {
        if self.cells.are_own() {
            return self.prefill_rows(batch, depth).min(SCORED_ROWS_MAX);
        }
        let most = SCORED_ROWS_MAX.min(self.rows_left(batch));
        let decode = self.planned_rows(batch);
        if decode.count == 0 || self.capacity.itl_target == Some(Duration::MAX) {
            return most;
        }
        let bound = self.bound_left(batch);
        let fits = bound.and_then(|t| self.cost.decode_rows_within(t, decode, depth, most));
        fits.unwrap_or(PREFILL_ROWS_STEP).max(1).min(most)
    }

    /// Rows that a step may still have.
    pub(super) fn rows_left(&self, batch: &Batch) -> usize {
        self.rows_max - batch.rows.len() - batch.guessed_rows as usize
    }

    /// The part of the bound on a step that is left for its rows, if it is known. Guesses do not
    /// raise the bound.
    fn bound_left(&self, batch: &Batch) -> Option<Duration> {
        let mut decode = Rows::default();
        batch.rows.iter().for_each(|row| decode.add(row.position.index()));
        let copy = self.cost.copy().filter(|_| self.copied).unwrap_or_default();
        let masks = Duration::from_micros(self.masks.planned);
        let besides = copy + masks + self.drafts_time(batch);
        self.bound(decode).map(|bound| bound.saturating_sub(besides))
    }

    /// The rows of a batch that has no prompt rows yet, with the guesses that it will probably have.
    /// Many texts have few guesses, and prompts need not wait for those that are never made.
    fn planned_rows(&self, batch: &Batch) -> Rows {
        let mut rows = Rows::default();
        batch.rows.iter().for_each(|row| rows.add(row.position.index()));
        let most: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.most())).sum();
        rows.count += (f64::from(most) * self.guesses_made).ceil() as usize; // at most `most`
        rows
    }

    /// The longest time of a step with these decode rows, if it is known.
    pub(super) fn bound(&self, decode: Rows) -> Option<Duration> {
        self.capacity
            .itl_target
            .or_else(|| Some((2 * self.cost.decode(decode)?).max(ITL_UNNOTICED)))
    }
}
