//! Read access to the scheduler, for the engine, people, metrics and tests.

use std::time::Duration;

use super::masks::{MaskSource, Masks};
use super::sequence::Stage;
use super::tally::{Phase, SlotView, Tally};
use super::times::Lateness;
use super::{Scheduler, constrained, times};
use crate::ring::message::Batch;
use crate::types::{FileId, KeyId, Owner, SequenceId, Threads};

impl Scheduler {
    /// The state of each slot.
    pub fn slots(&self) -> impl Iterator<Item = SlotView> {
        self.books.slots.holders().map(|(slot, holder)| {
            let Some(id) = holder else {
                let position = self.books.slots.kept_len(slot);
                return SlotView { held: None, key: self.books.slots.keeper(slot), position };
            };
            let sequence = self.books.sequences.get(id);
            let position = self.books.cells.of(slot);
            let state = match sequence.state {
                Stage::Following { .. } => Phase::Following,
                _ if sequence.planned < sequence.prompt_tokens => Phase::Prefill,
                _ => Phase::Decode,
            };
            SlotView { held: Some((id, state)), key: Some(sequence.asked.key), position }
        })
    }

    /// The counters since the start.
    pub fn tally(&self) -> Tally {
        self.books.tally
    }

    /// Compares the books with each other. For tests, after each step.
    ///
    /// # Panics
    /// If they disagree.
    pub fn check(&self) {
        assert_eq!(self.books.sequences.len(), self.books.waiting.len() + self.books.held.len());
        assert_eq!(self.books.slots.held_count(), self.books.held.len());
        let mut owners: Vec<Owner> = Vec::new();
        for id in &self.books.held {
            let sequence = self.books.sequences.get(*id);
            let owner = sequence.owner();
            assert_eq!(self.books.slots.holder(owner), Some(*id), "the slot knows its holder");
            assert!(!owners.iter().any(|o| o.slot == owner.slot), "one holder for each slot");
            owners.push(owner);
            assert!(sequence.planned <= sequence.tokens_max());
            assert!(sequence.tokens.len() <= sequence.tokens_max());
            if let Stage::Following { leader, .. } = sequence.state {
                let place = |id: SequenceId| self.books.held.iter().position(|held| *held == id);
                assert!(place(leader) < place(*id), "a sequence waits for one that came later");
                assert_eq!(sequence.planned, 0, "a follower has no rows");
                assert!(sequence.loads.is_none(), "a follower loads no pages");
            }
        }
        let waiting = self.books.waiting.iter().map(|id| self.books.sequences.get(*id));
        assert!(waiting.clone().all(|sequence| sequence.state == Stage::Waiting));
        let tokens = waiting.map(|s| s.tokens.len()).sum::<usize>();
        assert_eq!(self.books.shares.sequences.held(), self.books.waiting.len());
        assert_eq!(self.books.shares.tokens.held(), tokens);
        self.books.cells.check();
        self.books.store.check();
        if let Some(disk) = &self.books.disk {
            disk.files.check();
            disk.saved.check();
        }
        let masks = self.books.held.iter().map(|id| &self.books.sequences.get(*id).masks);
        let own =
            masks.filter(|m| matches!(m, MaskSource::Unasked(Some(_)) | MaskSource::Ready(_)));
        let Masks { ended, spare, asked, sent, made, .. } = &self.books.masks;
        let known = ended.len() + spare.len() + asked + sent + own.count();
        assert_eq!(known, *made, "a task of the mask lane is lost");
        for (slot, holder) in self.books.slots.holders() {
            let cells = holder.map(|id| self.books.sequences.get(id).cells());
            assert_eq!(
                self.books.cells.of(slot),
                cells.unwrap_or(self.books.cells.of(slot)),
                "{slot:?}"
            );
        }
    }

    /// The compute threads of the last step, apart from trials, and the machine's slowdown.
    /// `None` before a calibration.
    pub fn threads(&self) -> Option<(Threads, f64)> {
        self.books.cost.threads()
    }

    /// Whether other programs slow the steps.
    pub fn is_busy(&self) -> bool {
        self.books.cost.is_busy()
    }

    /// True if there is only one key.
    pub fn serves_one_key(&self) -> bool {
        self.books.capacity.weights.len() == 1
    }

    /// The waiting sequences.
    pub fn waiting(&self) -> impl Iterator<Item = (SequenceId, KeyId)> {
        self.books.waiting.iter().map(|id| (*id, self.books.sequences.get(*id).asked.key))
    }

    /// A key's running sequences, its waiting sequences, and the KV cells of the running ones.
    pub fn load(&self, key: KeyId) -> (usize, usize, usize) {
        let is_own = |id: &&SequenceId| self.books.sequences.get(**id).asked.key == key;
        let cells =
            |id: &SequenceId| self.books.cells.of(self.books.sequences.get(*id).owner().slot);
        let running = self.books.held.iter().filter(is_own);
        let waiting = self.books.waiting.iter().filter(is_own).count();
        (running.clone().count(), waiting, running.map(cells).sum())
    }

    /// The sequence that holds a slot in this generation.
    pub fn holder(&self, owner: Owner) -> Option<SequenceId> {
        self.books.slots.holder(owner)
    }

    /// The sequences that hold slots.
    pub fn running(&self) -> &[SequenceId] {
        &self.books.held
    }

    /// Tokens of the prompt that were found in the KV cache.
    pub fn cached_tokens(&self, id: SequenceId) -> usize {
        self.books.sequences.get(id).cached
    }

    /// Those of them that came from the prefix store.
    pub fn restored_tokens(&self, id: SequenceId) -> usize {
        self.books.sequences.get(id).restored
    }

    /// Those of them that were read from files.
    pub fn fetched_tokens(&self, id: SequenceId) -> usize {
        self.books.sequences.get(id).fetched
    }

    /// The pages of the prefix store that have files, each with the tokens before its states that
    /// have files. For tests.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &[u32])> {
        self.books.disk.iter().flat_map(|disk| disk.files.written())
    }

    /// The same for files of slots that clients have brought back.
    pub fn saved_files(&self) -> impl Iterator<Item = (FileId, &[u32])> {
        self.books.disk.iter().flat_map(|disk| disk.saved.written())
    }

    /// Tokens served to a key, divided by its weight.
    pub fn served_tokens(&self, key: KeyId) -> f64 {
        self.books.shares.served(key)
    }

    /// Sequences waiting for a slot.
    pub fn waiting_count(&self) -> usize {
        self.books.waiting.len()
    }

    /// Most sequences that may wait.
    pub fn queue_limit(&self) -> usize {
        self.books.capacity.queue_sequences
    }

    /// Sequences that hold a slot.
    pub fn running_count(&self) -> usize {
        self.books.held.len()
    }

    /// Sequences that could start in the next step.
    pub fn free_slots(&self) -> usize {
        self.books.slots.free_count()
    }

    /// KV cells in use: those of running sequences, and those of kept prefixes.
    pub fn cells(&self) -> (usize, usize) {
        (self.books.cells.held(), self.books.cells.kept())
    }

    /// Saved states.
    pub fn checkpoints(&self) -> usize {
        self.books.cells.checkpoints.count()
    }

    /// Pages of the prefix store that are in use.
    pub fn pages(&self) -> usize {
        self.books.store.used()
    }

    /// Tasks at the mask lane.
    pub fn masks_asked(&self) -> usize {
        self.books.masks.asked
    }

    /// The expected time of a step with the rows of `batch`, once it is known.
    pub fn step_time(&self, batch: &Batch) -> Option<Duration> {
        times::step_time(&self.books, batch)
    }

    /// The time of the shortest step, which is one row of a short text, once it is known.
    pub fn shortest_step(&self) -> Option<Duration> {
        times::shortest_step(&self.books)
    }

    /// How a completed step affects the time between tokens.
    pub fn lateness(&self, batch: &Batch) -> Lateness {
        times::lateness(&self.books, batch)
    }

    /// True if no sequence waits in the queue, and all running ones get their masks from the mask
    /// lane.
    pub fn waits_for_masks(&self) -> bool {
        constrained::waits_for_masks(&self.books)
    }

    /// True when no sequence waits or runs.
    pub fn is_idle(&self) -> bool {
        self.books.is_idle()
    }
}
