//! What a step that ran means for the sequences in it, and for the next ones.

use std::time::Duration;

use super::cost::Rows;
use super::sequence::{SequenceId, State};
use super::{Event, Finish, Scheduler};
use crate::limits::STEP_RETRIES_MAX;
use crate::ring::message::{Batch, Failed, Start};

impl Scheduler {
    /// Takes a step's answers, and tells `event` what became of each sequence
    /// in it.
    pub fn complete(&mut self, batch: &Batch, mut event: impl FnMut(Event)) {
        self.learn(batch);
        if !batch.step_failed {
            for row in &batch.rows {
                if let Some(id) = self.slots.holder(row.owner) {
                    self.sequences.get_mut(id).failures = 0;
                }
            }
        }
        for sample in &batch.samples {
            // A late message for a sequence that is gone.
            let Some(id) = self.slots.holder(sample.owner) else { continue };
            let sequence = self.sequences.get_mut(id);
            assert!(sequence.in_flight > 0, "a sample came back that nobody planned");
            sequence.in_flight -= 1;
            if sample.end {
                self.release(id);
                let finish = if sample.broken { Finish::Broken } else { Finish::End };
                event(Event::Finished(id, finish));
                continue;
            }
            sequence.tokens.push(sample.token);
            sequence.mu = sample.mu;
            let is_last = sequence.generated() == sequence.max_tokens as usize;
            event(Event::Token(id, sample.token, sample.logprobs));
            // `event` may not cancel: the caller does so after this call.
            if is_last {
                self.release(id);
                event(Event::Finished(id, Finish::Length));
            }
        }
        for failed in &batch.failed {
            if let Some(id) = self.slots.holder(failed.owner) {
                self.fail(id, failed, batch.aborted, &mut event);
            }
        }
    }

    /// What the step took tells what the next will.
    fn learn(&mut self, batch: &Batch) {
        let ran = batch.rows.len() - batch.rows_dropped as usize;
        if batch.step_failed {
            self.rows_max = (ran / 2).max(1);
        }
        if batch.step_failed || ran == 0 {
            return;
        }
        self.rows_max = (2 * self.rows_max).min(self.capacity.step_rows);
        let took = u64::from(batch.decode_us) + u64::from(batch.sample_us);
        let is_copy = |start: &&Start| start.source != start.owner.slot && start.keep.index() > 0;
        let copies = batch.starts.iter().filter(is_copy).count();
        // Rows that were dropped took nothing.
        if took > 0 && batch.rows_dropped == 0 {
            let (mut decode, mut prefill) = (Rows::default(), Rows::default());
            for rows in batch.rows.chunk_by(|a, b| a.owner == b.owner) {
                let decodes = rows.len() == 1 && rows[0].sample;
                let kind = if decodes { &mut decode } else { &mut prefill };
                rows.iter().for_each(|row| kind.add(row.position.index()));
            }
            self.cost.observe(decode, prefill, copies, Duration::from_micros(took));
        }
    }

    /// A step failed with this sequence in it: it begins again where it stood,
    /// or ends if that has happened too often, or would take too long.
    fn fail(
        &mut self,
        id: SequenceId,
        failed: &Failed,
        aborted: bool,
        event: &mut impl FnMut(Event),
    ) {
        let sequence = self.sequences.get_mut(id);
        sequence.planned = failed.next.index();
        self.cells.truncate(failed.owner.slot, failed.next.index());
        sequence.cached = sequence.cached.min(sequence.planned);
        sequence.in_flight = 0;
        // A step that took too long is tried again once.
        sequence.failures += if aborted { STEP_RETRIES_MAX } else { 1 };
        if sequence.failures > STEP_RETRIES_MAX {
            self.release(id);
            event(Event::Finished(id, Finish::Failed));
            return;
        }
        self.tally.retries += 1;
        let owner = self.slots.renew(failed.owner);
        sequence.state = State::Running(owner);
        self.restarts.push(id).expect("one restart for each slot");
    }
}
