//! Starts sequences in slots, with the tokens that a slot holds.

use super::DecodeLane;
use super::checkpoints::Checkpoint;
use super::reasoning::Reasoning;
use super::slot::SlotState;
use crate::model::{Backend, DecodeRow};
use crate::ring::message::{Batch, Failed, FailureReason, Start};
use crate::types::{Logits, Position};

impl<B: Backend> DecodeLane<B> {
    /// Starts the sequences of a batch, in their order: a later one may begin with an earlier one's
    /// tokens.
    pub(super) fn start_all(&mut self, batch: &mut Batch) {
        for index in 0..batch.starts.len() {
            match self.start(&mut batch.starts[index]) {
                Ok(()) if batch.starts[index].logits.is_some() => self.sample_kept(index, batch),
                Ok(()) => {}
                Err(failed) => batch.failed.push(failed).expect("one failure for each slot"),
            }
        }
    }

    /// Starts a sequence in its slot.
    ///
    /// # Errors
    /// If the source does not have the prefix `start.keep`, or not the logits behind it. After a lost
    /// window, the slot has the tokens before the newest saved state of the source, otherwise what the
    /// source has; or none.
    fn start(&mut self, start: &mut Start) -> Result<(), Failed> {
        let (slot, source) = (start.owner.slot, start.source);
        let keep = start.keep.min(self.slots[source.index()].next);
        let least = self.backend.least_left(source).unwrap_or_default();
        let is_lost = start.checkpoint.is_none() && Position(0) < keep && keep < least;
        let found = if is_lost {
            let last = self.slots[source.index()].checkpoint;
            let last = last.filter(|last| last.position <= keep);
            last.and_then(|last| Some((last, last.state(&self.kept)?)))
        } else {
            start.checkpoint.and_then(|id| Checkpoint::find(&self.kept, id, keep))
        };
        let has_logits =
            start.logits.is_none_or(|place| self.kept.logits(place, start.keep, &mut self.logits));
        let found = found.filter(|_| has_logits);
        let checkpoint = found.as_ref().map(|(checkpoint, _)| *checkpoint);
        let keep = match &found {
            Some((Checkpoint { position, .. }, state)) => {
                self.backend.start(slot, source, *position, Some(state.saved()))
            }
            None if start.checkpoint.is_none() && !is_lost && has_logits => {
                self.backend.start(slot, source, keep, None)
            }
            // The state or the logits were not saved.
            None => self.backend.start(slot, slot, Position(0), None),
        };
        drop(found);
        let checkpoint = checkpoint.or(self.slots[source.index()].checkpoint);
        let checkpoint = checkpoint.filter(|checkpoint| checkpoint.position <= keep);
        self.slots[slot.index()].checkpoint = checkpoint;
        if let Some(drafter) = &mut self.drafter {
            drafter.start(slot, source, keep);
        }
        self.slots[slot.index()].forget_places(if source == slot { keep } else { Position(0) });
        if source != slot {
            let tokens = ..keep.index();
            let [from, to] = self
                .slots
                .get_disjoint_mut([source.index(), slot.index()])
                .expect("two slots, both of them there");
            to.history[tokens].copy_from_slice(&from.history[tokens]);
        }
        self.set_next(slot, keep);
        let place = &mut self.slots[slot.index()];
        place.generation = start.owner.generation;
        place.prompt_tokens = start.prompt_tokens;
        place.tokens_max = start.tokens_max;
        place.guessing = start.guessing;
        place.sampling = start.sampling;
        std::mem::swap(&mut place.advanced, &mut start.advanced);
        place.mu = start.mu;
        place.walk = None;
        place.reasoning = Reasoning::default();
        if keep < start.keep {
            let reason = if is_lost { FailureReason::LostWindow } else { FailureReason::Step };
            return Err(Failed { owner: start.owner, next: keep, reason });
        }
        place.state = SlotState::Running;
        Ok(())
    }

    /// Samples the first token of a sequence that has started from kept logits.
    fn sample_kept(&mut self, start: usize, batch: &mut Batch) {
        let Start { owner, keep, .. } = batch.starts[start];
        let history = &self.slots[owner.slot.index()].history;
        let last = keep.index() - 1; // a prompt has tokens
        let row = DecodeRow {
            token: history[last],
            position: Position(last as u32), // below sequence_tokens
            slot: owner.slot,
            logits: Logits::Sample,
        };
        self.sample(None, row, batch);
    }
}
