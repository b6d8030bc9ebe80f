//! Takes the answers of a step: tokens, ends, failures and the time that it took.

use std::time::Duration;

use super::cost::Rows;
use super::sequence::State;
use super::{Event, Finish, Lateness, Scheduler};
use crate::limits::{ITL_UNNOTICED, STEP_RETRIES_MAX};
use crate::ring::message::{Batch, Failed, GuessSource, Row, Sample, Start};
use crate::types::{Logits, SequenceId};

/// The part of the error by which a step moves the share of granted guesses that are made.
const GUESSES_MADE_RATE: f64 = 0.1;

impl Scheduler {
    /// Takes the answers of a step. Calls `event` with the outcome for each sequence.
    pub fn complete(&mut self, batch: &mut Batch, mut event: impl FnMut(Event)) {
        self.learn(batch);
        for (index, score) in batch.scores.iter().enumerate() {
            let Some(id) = self.slots.holder(score.owner) else { continue };
            let sequence = self.sequences.get_mut(id);
            assert_eq!(sequence.scored, score.position.index(), "scores come in order");
            sequence.scored += 1;
            event(Event::Score { id, index });
        }
        for row in &batch.rows {
            self.computed(row, batch, &mut event);
        }
        self.take_guesses(batch, &mut event);
        let mut before = None;
        for sample in &batch.samples {
            let is_first = before.replace(sample.owner) != Some(sample.owner);
            // The sequence is gone; its sample came late.
            let Some(id) = self.slots.holder(sample.owner) else { continue };
            let sequence = self.sequences.get_mut(id);
            // Invariant: positions are checked on both sides of the ring.
            assert_eq!(sample.position.index() + 1, sequence.tokens.len(), "a sample out of order");
            assert!(sequence.in_flight > 0 || !is_first, "a sample that nobody planned");
            sequence.in_flight -= u32::from(is_first);
            if let Some(cost) = sample.mask {
                self.learn_mask(id, cost);
            }
            if sample.end {
                self.release(id);
                let Sample { token, logprobs, .. } = *sample;
                let end = Finish::End { token, logprobs };
                let finish = sample.broken.map_or(end, Finish::Broken);
                event(Event::Finished(id, finish));
                continue;
            }
            let sequence = self.sequences.get_mut(id);
            sequence.tokens.push(sample.token);
            sequence.mu = sample.mu;
            let is_last = sequence.generated() == sequence.asked.max_tokens as usize;
            if is_last {
                self.release(id);
            }
            // `event` must not cancel a sequence. The caller does so after this call.
            let Sample { token, logprobs, mask, .. } = *sample;
            let constraint_bytes = mask.map(|cost| cost.bytes);
            event(Event::Token { id, token, logprobs, is_last, constraint_bytes });
        }
        self.take_masks_back(batch);
        for failed in &batch.failed {
            if let Some(id) = self.slots.holder(failed.owner) {
                self.fail(id, failed, batch.aborted, &mut event);
            }
        }
    }

    /// Takes note of a computed row.
    fn computed(&mut self, row: &Row, batch: &Batch, event: &mut impl FnMut(Event)) {
        let Some(id) = self.slots.holder(row.owner) else { return };
        let failed = batch.failed.iter().find(|failed| failed.owner == row.owner);
        if failed.is_some_and(|failed| !failed.is_late) {
            return;
        }
        let sequence = self.sequences.get_mut(id);
        sequence.failures = 0;
        let is_whole_prompt = row.position.index() + 1 == sequence.prompt_tokens;
        if sequence.asked.max_tokens == 0 && is_whole_prompt && failed.is_none() {
            self.release(id);
            event(Event::Finished(id, Finish::PromptComputed));
        }
    }

    /// The expected time of a step with the rows of `batch`, once it is known.
    pub fn step_time(&self, batch: &Batch) -> Option<Duration> {
        let (decode, prefill) = self.rows_of(batch);
        self.cost.step(decode, prefill).map(|time| time + self.drafts_time(batch))
    }

    /// What a step that came back means for the times between two tokens.
    pub fn lateness(&self, batch: &Batch) -> Lateness {
        let (decode, prefill) = self.rows_of(batch);
        let of_texts =
            if decode.count == 0 { Some(Duration::ZERO) } else { self.cost.decode(decode) };
        let all = self.cost.step(decode, prefill).filter(|all| !all.is_zero());
        let share = |(texts, all): (Duration, Duration)| texts.div_duration_f64(all).min(1.0);
        let bound = self
            .capacity
            .itl_target
            .or_else(|| Some((2 * self.cost.decode_alone(decode)?).max(ITL_UNNOTICED)));
        Lateness {
            prompt_part: 1.0 - of_texts.zip(all).map_or(1.0, share),
            late_after: bound.filter(|bound| decode.count > 0 && *bound < Duration::MAX),
        }
    }

    /// The expected time of the draft model for a step.
    pub(super) fn drafts_time(&self, batch: &Batch) -> Duration {
        let drafts: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.drafts)).sum();
        Duration::from_secs_f64(f64::from(drafts) * self.cost.draft().unwrap_or(0.0) / 1e6)
    }

    /// The decode rows, with the guesses that were made, and the prompt rows of a step. Rows that
    /// are scored count as decode rows where they run in one pass with these.
    pub(super) fn rows_of(&self, batch: &Batch) -> (Rows, Rows) {
        let (mut decode, mut prefill) = (Rows::default(), Rows::default());
        let is_scored = |row: &Row| matches!(row.logits, Logits::Score(_));
        for rows in batch.rows.chunk_by(|a, b| a.owner == b.owner) {
            let decodes = match rows {
                [row] => row.logits != Logits::None,
                rows => !self.cells.are_own() && rows.iter().any(is_scored),
            };
            let kind = if decodes { &mut decode } else { &mut prefill };
            for row in rows {
                kind.add(row.position.index());
                kind.add_guesses(row.guesses.made);
            }
        }
        (decode, prefill)
    }

    /// The time of the shortest step, which is one row of a short text, once it is known.
    pub fn shortest_step(&self) -> Option<Duration> {
        let (row, none) = (Rows { count: 1, depths: 0 }, Rows::default());
        self.cost.step(row, none).or_else(|| self.cost.step(none, row))
    }

    /// Learns from the time of a step.
    fn learn(&mut self, batch: &Batch) {
        self.ran += Duration::from_micros(u64::from(batch.guess_us) + u64::from(batch.decode_us));
        let ran = batch.rows.len() - batch.rows_dropped as usize;
        if batch.step_failed {
            self.rows_max = (ran / 2).max(1);
        }
        if batch.step_failed || ran == 0 {
            return;
        }
        self.rows_max = (2 * self.rows_max).min(self.capacity.step_rows);
        if batch.guessed_rows > 0 {
            let made: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.made)).sum();
            let share = f64::from(made) / f64::from(batch.guessed_rows);
            self.guesses_made += GUESSES_MADE_RATE * (share - self.guesses_made);
        }
        self.learn_drafts(batch);
        let masks: u32 = batch.samples.iter().filter_map(|sample| sample.mask).map(|m| m.us).sum();
        let took = u64::from(batch.decode_us) + u64::from(batch.sample_us.saturating_sub(masks));
        let is_copy = |start: &&Start| start.source != start.owner.slot && start.keep.index() > 0;
        let copies = batch.starts.iter().filter(is_copy).count();
        // Dropped rows took no time, so the step says nothing about its planned rows.
        if took > 0 && batch.rows_dropped == 0 {
            let (decode, prefill) = self.rows_of(batch);
            let took = Duration::from_micros(took);
            self.cost.observe(decode, prefill, copies, batch.threads, took);
        }
    }

    /// Learns from the time of the draft model. Where it has yet to read a text, this is the price of
    /// a guess, too. Where it made none for another reason, it took no time.
    fn learn_drafts(&mut self, batch: &Batch) {
        let of = |source| batch.rows.iter().filter(move |row| row.guesses.source == source);
        let guesses: usize = of(GuessSource::Draft).map(|row| usize::from(row.guesses.made)).sum();
        if guesses > 0 || of(GuessSource::Unread).next().is_some() {
            self.cost.observe_drafts(guesses.max(1), Duration::from_micros(batch.guess_us.into()));
        } else {
            self.cost.forget_drafts();
        }
    }

    /// A step failed with this sequence, or was undone for it. It restarts where it stood, or ends
    /// after too many failures.
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
        sequence.guessed = 0;
        if !failed.is_late {
            // A step that took too long is tried again only once.
            sequence.failures += if aborted { STEP_RETRIES_MAX } else { 1 };
            if sequence.failures > STEP_RETRIES_MAX {
                self.release(id);
                event(Event::Finished(id, Finish::Failed));
                return;
            }
            self.tally.retries += 1;
        }
        let owner = self.slots.renew(failed.owner);
        sequence.state = State::Running(owner);
        if failed.is_late {
            self.leave_decode_lane(id);
        } else {
            self.restart_masks(id);
        }
        self.restarts.push(id).expect("one restart for each slot");
    }
}
