//! The checkpoints: states that the decode lane has saved, and the slots whose tokens
//! they belong to.
//!
//! A state stands behind the last token of its slot and goes back not at all or not far. So it is saved
//! where later prompts will probably part from this one ([`super::stops`]). A sequence that shares the
//! tokens before that place starts with the saved state. A slot that starts with another one's
//! tokens shares their checkpoints, as it shares their cells.
//!
//! Kept logits are the same: what stands behind the last token of a prompt, and is saved there.

use super::tuning::{CHECKPOINT_STEPS, CHECKPOINT_TOKENS_MIN};
use crate::types::{CheckpointId, SlotId};

/// All checkpoints.
pub(super) struct Checkpoints {
    saved: Vec<Option<Saved>>,
    /// The last step that was to save a state into each place. A step must not do that twice: the
    /// first save may fail after the second one was made.
    last_saves: Vec<u64>,
    /// The checkpoints of each slot, in the order of their positions.
    slots: Vec<Vec<CheckpointId>>, // [slots], each of capacity `saved.len()`
    /// Saves so far.
    saves: u64,
}

/// A state that is saved, or that a step in flight saves.
#[derive(Clone, Copy)]
struct Saved {
    /// The tokens before it.
    position: usize,
    /// The slots whose tokens begin with these, and the page of the store that holds the last one.
    users: usize,
    /// The tokens that it saves: those behind the checkpoint before it.
    saves: usize,
    /// The number of this save. A later one into the same place has another number.
    serial: u64,
    /// The step that saved it.
    saved: u64,
    /// The last step that saved it or started from it.
    used: u64,
    /// It was saved.
    is_made: bool,
    /// Jobs of the disk lane that use it.
    jobs: usize,
}

/// A state with nothing set.
const NEW: Saved = Saved {
    position: 0,
    users: 0,
    saves: 0,
    serial: 0,
    saved: 0,
    used: 0,
    is_made: false,
    jobs: 0,
};

impl Checkpoints {
    /// Room for `count` checkpoints.
    pub fn new(count: usize, slots: usize) -> Self {
        let slots = (0..slots).map(|_| Vec::with_capacity(count)).collect();
        Self { saved: vec![None; count], last_saves: vec![0; count], slots, saves: 0 }
    }

    /// Saved states.
    pub fn count(&self) -> usize {
        self.saved.iter().flatten().count()
    }

    /// The last checkpoint of a slot behind at most `tokens` tokens, and their number.
    pub fn find(&self, slot: SlotId, tokens: usize) -> Option<(CheckpointId, usize)> {
        let behind = |id: &CheckpointId| (*id, self.get(*id).position);
        self.slots[slot.index()].iter().map(behind).rfind(|(_, position)| *position <= tokens)
    }

    /// As [`Checkpoints::find`], but without those that step `step` saves: it starts its sequences
    /// before.
    pub fn find_before(
        &self,
        slot: SlotId,
        tokens: usize,
        step: u64,
    ) -> Option<(CheckpointId, usize)> {
        let of_slot = self.slots[slot.index()].iter().map(|id| (*id, self.get(*id)));
        let mut usable = of_slot.filter(|(_, at)| at.position <= tokens && at.saved < step);
        usable.next_back().map(|(id, at)| (id, at.position))
    }

    /// Whether a slot has a checkpoint behind exactly `tokens` tokens.
    pub fn stands_at(&self, slot: SlotId, tokens: usize) -> bool {
        self.find(slot, tokens).is_some_and(|(_, position)| position == tokens)
    }

    /// The checkpoint of a slot behind exactly `tokens` tokens, if it was saved.
    pub fn find_made(&self, slot: SlotId, tokens: usize) -> Option<CheckpointId> {
        let (id, position) = self.find(slot, tokens)?;
        (position == tokens && self.is_made(id)).then_some(id)
    }

    /// Whether a checkpoint of a slot behind `tokens` tokens would save enough of them for a step to
    /// end there.
    pub fn is_worth(&self, slot: SlotId, tokens: usize) -> bool {
        self.tokens_saved(slot, tokens) >= CHECKPOINT_TOKENS_MIN
    }

    /// The tokens that a checkpoint of a slot behind `tokens` tokens would save.
    pub fn tokens_saved(&self, slot: SlotId, tokens: usize) -> usize {
        tokens - self.find(slot, tokens).map_or(0, |(_, position)| position)
    }

    /// Takes a place for the state of a slot behind `tokens` tokens, which are all of its tokens.
    /// `None` if all places have checkpoints that are worth more.
    pub fn save(&mut self, slot: SlotId, tokens: usize, step: u64) -> Option<CheckpointId> {
        self.save_worth(slot, tokens, self.tokens_saved(slot, tokens), step)
    }

    /// As [`Checkpoints::save`], if what is saved saves `saves` tokens.
    pub fn save_worth(
        &mut self,
        slot: SlotId,
        tokens: usize,
        saves: usize,
        step: u64,
    ) -> Option<CheckpointId> {
        let id = self.place(saves, step)?;
        self.last_saves[id.index()] = step;
        self.put(id, Saved { position: tokens, users: 1, saves, saved: step, used: step, ..NEW });
        self.slots[slot.index()].push(id);
        Some(id)
    }

    /// Takes a place for a state behind `tokens` tokens that is to be read from a file. `None` if
    /// all places have checkpoints that are worth more.
    pub fn reserve(&mut self, tokens: usize, step: u64) -> Option<CheckpointId> {
        let id = self.place(tokens, step)?;
        let saved = Saved { position: tokens, saves: tokens, used: step, jobs: 1, ..NEW };
        self.put(id, saved);
        Some(id)
    }

    /// Notes that a state was saved, or read from a file.
    pub fn arrive(&mut self, id: CheckpointId) {
        self.get_mut(id).is_made = true;
    }

    /// Notes that step `step` has saved a state.
    pub fn made(&mut self, id: CheckpointId, step: u64) {
        let saved = self.saved[id.index()].as_mut().filter(|saved| saved.saved == step);
        if let Some(saved) = saved {
            saved.is_made = true;
        }
    }

    /// Whether a state is saved, and no step in flight still has to do that.
    pub fn is_made(&self, id: CheckpointId) -> bool {
        self.get(id).is_made
    }

    /// Keeps a state while the disk lane uses it.
    pub fn pin(&mut self, id: CheckpointId) {
        self.get_mut(id).jobs += 1;
    }

    /// Undoes [`Checkpoints::pin`] and [`Checkpoints::reserve`].
    pub fn unpin(&mut self, id: CheckpointId) {
        self.get_mut(id).jobs -= 1;
        self.drop_unused(id);
    }

    fn put(&mut self, id: CheckpointId, saved: Saved) {
        self.saves += 1;
        self.saved[id.index()] = Some(Saved { serial: self.saves, ..saved });
    }

    /// Finds a place for a state that saves `saves` tokens.
    fn place(&mut self, saves: usize, step: u64) -> Option<CheckpointId> {
        let is_free =
            |index: &usize| self.saved[*index].is_none() && self.last_saves[*index] < step;
        if let Some(index) = (0..self.saved.len()).find(is_free) {
            return Some(CheckpointId(index as u16)); // at most CHECKPOINTS_MAX
        }
        let (id, worth) = self.least(step)?;
        if worth > worth_of(saves, 0) {
            return None;
        }
        self.slots.iter_mut().for_each(|of_slot| of_slot.retain(|other| *other != id));
        Some(id)
    }

    /// The checkpoint that is worth least, of those that this step does not use.
    fn least(&self, step: u64) -> Option<(CheckpointId, f64)> {
        let saved = self.saved.iter().enumerate();
        let saved = saved.filter_map(|(index, saved)| Some((index, saved.as_ref()?)));
        let may_go = |saved: &Saved| saved.used < step && saved.jobs == 0;
        let all = saved.filter(|(_, saved)| may_go(saved)).map(|(index, saved)| {
            let worth = worth_of(saved.saves, step - saved.used);
            (CheckpointId(index as u16), worth) // at most CHECKPOINTS_MAX
        });
        all.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// Notes that a sequence starts from a checkpoint.
    pub fn touch(&mut self, id: CheckpointId, step: u64) {
        self.get_mut(id).used = step;
    }

    /// Drops a checkpoint that step `step` should have saved and did not.
    pub fn lose(&mut self, id: CheckpointId, step: u64) {
        if self.saved[id.index()].is_some_and(|saved| saved.saved == step) {
            self.slots.iter_mut().for_each(|of_slot| of_slot.retain(|other| *other != id));
            self.saved[id.index()] = None;
        }
    }

    /// Drops the checkpoints of a slot behind more than `tokens` tokens.
    pub fn truncate(&mut self, slot: SlotId, tokens: usize) {
        while let Some(id) = self.slots[slot.index()].last().copied() {
            let saved = self.get_mut(id);
            if saved.position <= tokens {
                return;
            }
            self.slots[slot.index()].pop();
            self.leave(id);
        }
    }

    /// One user less. A checkpoint without users is dropped.
    fn leave(&mut self, id: CheckpointId) {
        self.get_mut(id).users -= 1;
        self.drop_unused(id);
    }

    fn drop_unused(&mut self, id: CheckpointId) {
        let saved = self.get(id);
        if saved.users == 0 && saved.jobs == 0 {
            self.saved[id.index()] = None;
        }
    }

    /// The checkpoints of a slot behind more than `from` and at most `to` tokens.
    pub fn between(
        &self,
        slot: SlotId,
        from: usize,
        to: usize,
    ) -> impl Iterator<Item = CheckpointId> {
        let all = self.slots[slot.index()].iter().copied();
        all.filter(move |id| (from + 1..=to).contains(&self.get(*id).position))
    }

    /// The tokens before a checkpoint, if it is still that of this save.
    pub fn position(&self, id: CheckpointId, serial: u64) -> Option<usize> {
        let saved = self.saved[id.index()].as_ref().filter(|saved| saved.serial == serial)?;
        Some(saved.position)
    }

    /// A page of the store uses a checkpoint, too. Returns the number of its save.
    pub fn share(&mut self, id: CheckpointId) -> u64 {
        let saved = self.get_mut(id);
        saved.users += 1;
        saved.serial
    }

    /// A page of the store no longer uses a checkpoint, if it is still that of this save.
    pub fn unshare(&mut self, id: CheckpointId, serial: u64) {
        if self.position(id, serial).is_some() {
            self.leave(id);
        }
    }

    /// A slot, whose checkpoints stand behind fewer tokens, gets this one.
    pub fn attach(&mut self, id: CheckpointId, slot: SlotId) {
        self.get_mut(id).users += 1;
        self.slots[slot.index()].push(id);
    }

    /// A slot that has none gets those of another one behind at most `tokens` tokens.
    pub fn copy(&mut self, from: SlotId, to: SlotId, tokens: usize) {
        for index in 0..self.slots[from.index()].len() {
            let id = self.slots[from.index()][index];
            let saved = self.get_mut(id);
            if saved.position > tokens {
                return;
            }
            saved.users += 1;
            self.slots[to.index()].push(id);
        }
    }

    /// Compares the checkpoints with the slots, which have `tokens`. For tests.
    ///
    /// # Panics
    /// If they disagree.
    pub fn check(&self, tokens: impl Fn(SlotId) -> usize) {
        let mut users = vec![0; self.saved.len()];
        for (index, of_slot) in self.slots.iter().enumerate() {
            of_slot.iter().for_each(|id| users[id.index()] += 1);
            let mut positions = of_slot.iter().map(|id| self.get(*id).position);
            assert!(positions.clone().is_sorted(), "checkpoints in order");
            let all = tokens(SlotId(index as u16)); // below SLOTS_MAX
            assert!(positions.all(|position| position <= all), "a checkpoint behind the tokens");
        }
        let counted = self.saved.iter().map(|saved| saved.map_or(0, |saved| saved.users));
        assert!(counted.zip(users).all(|(all, slots)| all >= slots), "users of checkpoints");
    }

    fn get(&self, id: CheckpointId) -> &Saved {
        self.saved[id.index()].as_ref().expect("a slot's checkpoint is saved")
    }

    fn get_mut(&mut self, id: CheckpointId) -> &mut Saved {
        self.saved[id.index()].as_mut().expect("a slot's checkpoint is saved")
    }
}

/// The worth of a checkpoint that saves `tokens` tokens and was not used for `steps` steps.
fn worth_of(tokens: usize, steps: u64) -> f64 {
    tokens as f64 / (CHECKPOINT_STEPS + steps as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: SlotId = SlotId(0);
    const SECOND: SlotId = SlotId(1);

    #[test]
    fn slots_share_the_checkpoints_of_their_common_tokens() {
        let mut checkpoints = Checkpoints::new(4, 2);
        let a = checkpoints.save(FIRST, 100, 1).unwrap();
        let b = checkpoints.save(FIRST, 200, 1).unwrap();
        checkpoints.copy(FIRST, SECOND, 150);
        checkpoints.check(|slot| if slot == FIRST { 200 } else { 150 });
        assert_eq!(checkpoints.find(FIRST, 1000), Some((b, 200)));
        assert_eq!(checkpoints.find(SECOND, 1000), Some((a, 100)));
        assert_eq!(checkpoints.find(FIRST, 99), None);
        checkpoints.truncate(FIRST, 0);
        assert_eq!((checkpoints.count(), checkpoints.find(SECOND, 150)), (1, Some((a, 100))));
        checkpoints.truncate(SECOND, 99);
        assert_eq!(checkpoints.count(), 0);
    }

    #[test]
    fn the_checkpoint_that_saves_least_for_longest_makes_room() {
        let mut checkpoints = Checkpoints::new(3, 2);
        checkpoints.save(FIRST, 1000, 1).unwrap();
        let little = checkpoints.save(FIRST, 1040, 1).unwrap();
        let much = checkpoints.save(FIRST, 3000, 1).unwrap();
        assert_eq!(checkpoints.save(SECOND, 500, 1), None, "this step uses all");
        assert_eq!(checkpoints.save(SECOND, 10, 2), None, "the others save more");
        assert_eq!(checkpoints.save(SECOND, 500, 2), Some(little));
        assert_eq!(checkpoints.find(FIRST, 2000).unwrap().1, 1000);
        // In a long time all others become worth less.
        checkpoints.touch(much, 100_000);
        checkpoints.touch(little, 100_000);
        checkpoints.save(SECOND, 600, 100_001).unwrap();
        assert_eq!(checkpoints.find(FIRST, 2000), None);
    }

    #[test]
    fn a_page_keeps_the_checkpoints_of_its_tokens() {
        let mut checkpoints = Checkpoints::new(2, 2);
        let id = checkpoints.save(FIRST, 100, 1).unwrap();
        let serial = checkpoints.share(id);
        checkpoints.truncate(FIRST, 0);
        assert_eq!(checkpoints.position(id, serial), Some(100));
        checkpoints.attach(id, SECOND);
        assert_eq!(checkpoints.find(SECOND, 100), Some((id, 100)));
        checkpoints.unshare(id, serial);
        checkpoints.truncate(SECOND, 0);
        assert_eq!((checkpoints.position(id, serial), checkpoints.count()), (None, 0));
    }

    #[test]
    fn a_checkpoint_that_was_not_made_is_dropped_unless_a_later_step_makes_it() {
        let mut checkpoints = Checkpoints::new(1, 1);
        let id = checkpoints.save(FIRST, 100, 1).unwrap();
        checkpoints.lose(id, 1);
        assert_eq!(checkpoints.count(), 0);
        assert_eq!(checkpoints.save(FIRST, 100, 2), Some(id));
        checkpoints.lose(id, 1);
        assert_eq!(checkpoints.count(), 1);
    }

    #[test]
    fn a_whole_prompt_is_found_once_its_step_has_ended() {
        let mut checkpoints = Checkpoints::new(2, 1);
        let id = checkpoints.save(FIRST, 100, 1).unwrap();
        assert_eq!(checkpoints.find_made(FIRST, 100), None, "the step still runs");
        checkpoints.made(id, 1);
        assert_eq!(checkpoints.find_made(FIRST, 100), Some(id));
        assert_eq!(checkpoints.find_made(FIRST, 101), None, "that is another prompt");
    }

    #[test]
    fn a_step_saves_one_state_into_a_place() {
        let mut checkpoints = Checkpoints::new(1, 2);
        let id = checkpoints.save(FIRST, 100, 1).unwrap();
        checkpoints.truncate(FIRST, 0);
        assert_eq!(checkpoints.save(SECOND, 100, 1), None, "the first save may come late");
        assert_eq!(checkpoints.save(SECOND, 100, 2), Some(id));
    }
}
