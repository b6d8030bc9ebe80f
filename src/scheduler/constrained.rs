//! Masks of constrained texts: how many a step computes, and who pays for them.
//!
//! The decode lane computes a mask when it samples a token of a constrained text, and every
//! sequence of the step waits for it. Slow masks take longer than [`MASK_UNNOTICED`], and may take
//! longer than many steps.
//! - The slow masks of a step are expected to take no longer than its decode rows, or there is only
//!   one. The text that has waited longest goes first.
//! - Beside other work, steps with slow masks are followed by steps without, until these have taken
//!   as long as the masks. So the other work has half of the time.
//! - A key is charged for the time of its masks as for tokens.

use super::complete::rows_of;
use super::sequence::SequenceId;
use super::{Scheduler, State};
use crate::limits::{MASK_UNNOTICED, SLOTS_MAX};
use crate::ring::message::Batch;

impl Scheduler {
    /// The expected time of a sequence's next mask, in microseconds. 0 if nothing constrains it.
    fn mask_us(&self, id: SequenceId) -> u32 {
        let asked = &self.sequences.get(id).asked;
        let is_constrained =
            asked.advanced.as_ref().is_some_and(|advanced| advanced.constraint.is_some());
        let first = if is_constrained { self.masks.first[asked.key.index()] } else { 0 };
        self.sequences.get(id).mask_us.unwrap_or(first)
    }

    /// Whether the next mask of a sequence is expected to be a slow one.
    pub(super) fn is_slow(&self, id: SequenceId) -> bool {
        u128::from(self.mask_us(id)) > MASK_UNNOTICED.as_micros()
    }

    /// Plans decode rows with slow masks. If `only` is set, the step has nothing else to do.
    pub(super) fn plan_slow_masks(&mut self, batch: &mut Batch, only: bool) {
        let mut slow = heapless::Vec::<(u64, SequenceId), SLOTS_MAX>::new();
        for id in self.held.iter().filter(|id| self.decodes(**id) && self.is_slow(**id)) {
            let sequence = self.sequences.get(*id);
            // A new text has waited only since it started, or new ones could overtake for ever.
            let since = sequence.masked.max(sequence.started);
            slow.push((since, *id)).expect("one for each slot");
        }
        let has_prompts = || {
            self.held.iter().map(|id| self.sequences.get(*id)).any(|sequence| {
                matches!(sequence.state, State::Running(_)) && sequence.rows_left() > 1
            })
        };
        let is_beside = !only && (!batch.rows.is_empty() || has_prompts());
        self.masks.planned = 0;
        if !is_beside {
            self.masks.owed = 0;
        }
        if self.masks.owed > 0 {
            return;
        }
        slow.sort_unstable();
        let (mut decode, _) = rows_of(batch);
        let mut room = self.cells.left().min(self.rows_max - batch.rows.len());
        for (_, id) in slow {
            let mask = u64::from(self.mask_us(id));
            decode.add(self.sequences.get(id).planned);
            let rows = self.cost.decode(decode).map_or(0, |time| time.as_micros() as u64);
            let is_too_long = self.masks.planned > 0 && self.masks.planned + mask > rows;
            if room == 0 || is_too_long {
                break;
            }
            room -= 1;
            self.masks.planned += mask;
            self.sequences.get_mut(id).masked = self.step;
            self.plan_row(batch, id);
        }
        self.masks.owed = self.masks.planned;
    }

    /// A planned step gives its time back to other work.
    pub(super) fn pay_for_masks(&mut self, batch: &Batch) {
        if self.masks.owed > 0 {
            let step = self.step_time(batch).map_or(0, |time| time.as_micros() as u64);
            self.masks.owed = self.masks.owed.saturating_sub(step);
        }
    }

    /// Takes note of a sequence's mask, which took `took` microseconds. The next one is expected to
    /// take as long, but at least half of what was expected.
    pub(super) fn learn_mask(&mut self, id: SequenceId, took: u32) {
        let expected = self.mask_us(id);
        if u128::from(took) > MASK_UNNOTICED.as_micros() {
            self.masks.owed += u64::from(took.saturating_sub(expected));
        }
        let token = self.shortest_step().map_or(0, |step| step.as_micros() as usize);
        let sequence = self.sequences.get_mut(id);
        let key = sequence.asked.key;
        if sequence.mask_us.is_none() {
            let first = &mut self.masks.first[key.index()];
            *first = took.max(*first / 2);
        }
        sequence.mask_us = Some(took.max(sequence.mask_us.unwrap_or(0) / 2));
        if let Some(tokens) = (took as usize).checked_div(token) {
            self.shares.serve(key, tokens);
        }
    }
}
