//! Plans prompt rows: which prompts, and how many rows beside the running streams.

use std::time::Duration;

use super::Scheduler;
use super::cost::Rows;
use super::sequence::State;
use crate::limits::{ITL_UNNOTICED, PREFILL_ROWS_STEP, SLOTS_MAX};
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
        let mut room = self.prefill_rows(batch, self.sequences.get(*first).planned);
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
            let take = (self.sequences.get(id).rows_left() - last).min(room);
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
        let most = self.rows_max - batch.rows.len();
        let mut decode = Rows::default();
        batch.rows.iter().for_each(|row| decode.add(row.position.index()));
        if decode.count == 0 || self.capacity.itl_target == Some(Duration::MAX) {
            return most;
        }
        let mut bound = self.bound(decode);
        if let (true, Some(copy)) = (self.copied, self.cost.copy()) {
            bound = bound.map(|bound| bound.saturating_sub(copy));
        }
        let masks = Duration::from_micros(self.masks.planned);
        bound = bound.map(|bound| bound.saturating_sub(masks));
        let fits = bound.and_then(|t| self.cost.prefill_rows_within(t, decode, depth, most));
        let Some(rows) = fits else { return PREFILL_ROWS_STEP.min(most) };
        if !self.cells.are_own() {
            return rows.max(1).min(most);
        }
        let rows = rows.max(PREFILL_ROWS_STEP);
        (rows - rows % PREFILL_ROWS_STEP).min(most)
    }

    /// The longest time of a step with these decode rows, if it is known.
    pub(super) fn bound(&self, decode: Rows) -> Option<Duration> {
        self.capacity
            .itl_target
            .or_else(|| Some((2 * self.cost.decode(decode)?).max(ITL_UNNOTICED)))
    }
}
