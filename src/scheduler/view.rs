//! Read access to the scheduler, for people, metrics and tests.

use super::Scheduler;
use super::masks::{MaskSource, Masks};
use super::sequence::State;
use super::tally::{Phase, SlotView, Tally};
use crate::types::{Owner, SequenceId};

impl Scheduler {
    /// The state of each slot.
    pub fn slots(&self) -> impl Iterator<Item = SlotView> {
        self.slots.holders().map(|(slot, holder)| {
            let position = self.cells.of(slot);
            let Some(id) = holder else {
                return SlotView { held: None, key: self.slots.keeper(slot), position };
            };
            let sequence = self.sequences.get(id);
            let state = match sequence.state {
                State::Following { .. } => Phase::Following,
                _ if sequence.planned < sequence.prompt_tokens => Phase::Prefill,
                _ => Phase::Decode,
            };
            SlotView { held: Some((id, state)), key: Some(sequence.asked.key), position }
        })
    }

    /// The counters since the start.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Compares the books with each other. For tests, after each step.
    ///
    /// # Panics
    /// If they disagree.
    pub fn check(&self) {
        assert_eq!(self.sequences.len(), self.waiting.len() + self.held.len());
        assert_eq!(self.slots.held_count(), self.held.len());
        let mut owners: Vec<Owner> = Vec::new();
        for id in &self.held {
            let sequence = self.sequences.get(*id);
            let owner = sequence.owner();
            assert_eq!(self.slots.holder(owner), Some(*id), "the slot knows its holder");
            assert!(!owners.iter().any(|o| o.slot == owner.slot), "one holder for each slot");
            owners.push(owner);
            assert!(sequence.planned <= sequence.tokens_max());
            assert!(sequence.tokens.len() <= sequence.tokens_max());
            if let State::Following { leader, .. } = sequence.state {
                let place = |id: SequenceId| self.held.iter().position(|held| *held == id);
                assert!(place(leader) < place(*id), "a sequence waits for one that came later");
                assert_eq!(sequence.planned, 0, "a follower has no rows");
            }
        }
        let waiting = self.waiting.iter().map(|id| self.sequences.get(*id));
        assert!(waiting.clone().all(|sequence| sequence.state == State::Waiting));
        let tokens = waiting.map(|s| s.tokens.len()).sum::<usize>();
        assert_eq!(self.shares.sequences.held(), self.waiting.len());
        assert_eq!(self.shares.tokens.held(), tokens);
        self.cells.check();
        let masks = self.held.iter().map(|id| &self.sequences.get(*id).masks);
        let own =
            masks.filter(|m| matches!(m, MaskSource::Unasked(Some(_)) | MaskSource::Ready(_)));
        let Masks { ended, spare, asked, sent, made, .. } = &self.masks;
        let known = ended.len() + spare.len() + asked + sent + own.count();
        assert_eq!(known, *made, "a task of the mask lane is lost");
        for (slot, holder) in self.slots.holders() {
            let cells = holder.map(|id| self.sequences.get(id).cells());
            assert_eq!(self.cells.of(slot), cells.unwrap_or(self.cells.of(slot)), "{slot:?}");
        }
    }
}
