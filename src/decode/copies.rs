//! Copies what a slot holds: states to places for them and back, cells to pages of the prefix store and
//! back, and the logits behind prompts.

use super::DecodeLane;
use super::checkpoints::Checkpoint;
use super::mask::saturating;
use super::slot::SlotState;
use crate::clock::Micros;
use crate::memory::StateNote;
use crate::model::{Backend, DecodeRow};
use crate::ring::message::{Batch, Failed, FailureReason, Load, Save, SaveKind};
use crate::types::{Position, SlotId};

/// Places for states, and for logits, that have memory before they are used: those of a chat's prompt.
const PLACES_READY: usize = 2;

impl<B: Backend> DecodeLane<B> {
    /// Copies pages of the prefix store into slots.
    pub(super) fn load_pages(&mut self, batch: &mut Batch) {
        if batch.loads.is_empty() {
            return;
        }
        let began = self.metrics.clock.now();
        for load in &batch.loads {
            let slot = &self.slots[load.owner.slot.index()];
            // A sequence that could not start has failed already.
            if slot.state == SlotState::Running && !self.load(load) {
                let slot = load.owner.slot;
                self.backend.start(slot, slot, Position(0), None);
                self.set_next(slot, Position(0));
                let (next, reason) = (Position(0), FailureReason::Step);
                let failed = Failed { owner: load.owner, next, reason };
                batch.failed.push(failed).expect("one failure for each slot");
            }
        }
        self.count_pages(batch, began);
    }

    /// Notes the time to copy pages.
    fn count_pages(&self, batch: &mut Batch, began: Micros) {
        let took = saturating(self.metrics.clock.now().since(began));
        batch.pages_us += took;
        self.metrics.decode.page_us.observe(took.into());
    }

    /// Copies cells of slots into pages of the prefix store.
    pub(super) fn store_pages(&mut self, batch: &mut Batch) {
        if batch.stores.is_empty() {
            return;
        }
        let began = self.metrics.clock.now();
        for store in &mut batch.stores {
            let slot = &self.slots[store.slot.index()];
            let Some(mut page) = self.kept.page_mut(store.page) else { continue };
            let (note, bytes) = page.parts();
            let positions = store.from..store.to;
            let length = match slot.next >= store.to {
                true => self.backend.store_page(store.slot, positions, bytes),
                false => 0,
            };
            store.is_made = length > 0;
            let tokens = &slot.history[store.from.index()..store.to.index()];
            note.put(if store.is_made { tokens } else { &[] }, length);
        }
        self.count_pages(batch, began);
    }

    /// Copies a page behind the tokens of its sequence. Returns false if the page was not stored, or
    /// if there is no room for it.
    fn load(&mut self, load: &Load) -> bool {
        let Load { owner, page, from, to, checkpoint } = *load;
        let Some(page) = self.kept.page(page) else { return false };
        let place = &mut self.slots[owner.slot.index()];
        // Invariant: positions are checked on both sides of the ring.
        assert_eq!((place.generation, place.next), (owner.generation, from), "{load:?}");
        let tokens = page.note().tokens().get(..to.index() - from.index());
        let Some(tokens) = tokens else { return false };
        let found = checkpoint.and_then(|id| Checkpoint::find(&self.kept, id, to));
        let is_lost = checkpoint.is_some() && found.is_none();
        if is_lost || !self.backend.load_page(owner.slot, page.note().cells(page.bytes())) {
            return false;
        }
        let is_whole = page.note().tokens().len() == tokens.len();
        let is_done = match &found {
            Some((_, state)) => self.backend.restore(owner.slot, state.saved(), to),
            None => is_whole || self.backend.truncate(owner.slot, to),
        };
        place.history[from.index()..to.index()].copy_from_slice(tokens);
        (place.next, place.planned) = (to, to);
        place.checkpoint = found.map(|(checkpoint, _)| checkpoint).or(place.checkpoint);
        is_done
    }

    /// Keeps the logits of a row, whose index in the last call is `index`, if the batch wants them. The
    /// sampler may change them afterwards.
    pub(super) fn keep_logits(&mut self, index: usize, row: DecodeRow, batch: &mut Batch) {
        let behind = row.position.next();
        for save in &mut batch.saves {
            if let SaveKind::Logits(place) = save.what
                && (save.owner.slot, save.position) == (row.slot, behind)
            {
                save.is_made = self.kept.put_logits(place, behind, self.backend.logits(index));
                self.logits_places = self.logits_places.max(place.index() + 1);
            }
        }
    }

    /// Saves the states that stand where the batch wants them. The states of the others
    /// come behind the rows of the step.
    pub(super) fn save(&mut self, batch: &mut Batch) {
        if batch.saves.iter().all(|save| save.state().is_none()) {
            return;
        }
        let began = self.metrics.clock.now();
        for save in batch.saves.iter_mut().filter(|save| !save.is_made) {
            let SaveKind::State(checkpoint) = save.what else { continue };
            let slot = &mut self.slots[save.owner.slot.index()];
            // A sequence that has sampled its last token has run, too.
            let has_run = slot.generation == save.owner.generation && slot.state != SlotState::Free;
            if has_run
                && slot.next == save.position
                && let Some(mut state) = self.kept.state_mut(checkpoint)
            {
                self.places = self.places.max(checkpoint.index() + 1);
                let (note, bytes) = state.parts();
                let length = self.backend.save(save.owner.slot, bytes);
                save.is_made = length > 0;
                if save.is_made {
                    let saved =
                        Checkpoint::put(note, checkpoint, save.position, length, &self.kept);
                    slot.checkpoint = Some(saved);
                } else {
                    *note = StateNote::default();
                }
            }
        }
        batch.save_us += saturating(self.metrics.clock.now().since(began));
    }

    /// Lets a part of the next places for states and logits have memory. Returns false if there is
    /// nothing to do.
    pub(super) fn make_ready(&mut self) -> bool {
        let places = [self.places, self.logits_places].map(|places| places + PLACES_READY);
        self.kept.make_ready(places, &mut self.ready)
    }

    /// Notes that the other states were not saved, because the step failed or their sequences had
    /// ended.
    pub(super) fn forget_unsaved(&mut self, batch: &Batch) {
        let unmade = batch.saves.iter().filter(|save| !save.is_made);
        for place in unmade.filter_map(Save::state) {
            if let Some(mut state) = self.kept.state_mut(place) {
                *state.parts().0 = StateNote::default();
            }
        }
    }

    /// Removes the tokens of a slot from `to` on. If its state cannot go back so far, the slot
    /// goes back to its last saved one, and loses all tokens if there is none. Returns the tokens left.
    pub(super) fn go_back(&mut self, slot: SlotId, to: Position) -> Position {
        let place = &mut self.slots[slot.index()];
        let last = place.checkpoint.filter(|checkpoint| checkpoint.position <= to);
        let left = if self.backend.truncate(slot, to) {
            to
        } else if let Some(last) = last
            && let Some(state) = last.state(&self.kept)
        {
            self.backend.start(slot, slot, last.position, Some(state.saved()))
        } else {
            self.backend.start(slot, slot, Position(0), None)
        };
        (place.next, place.planned) = (left, left);
        left
    }
}
