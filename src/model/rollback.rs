//! How far recurrent states can go back.
//!
//! Behind each of the last tokens of a sequence, llama.cpp keeps the state. But it neither notes when
//! a later step moves the sequence elsewhere without those states, nor when a step has fewer tokens
//! than it keeps states, and would then take old ones. So a state goes back only behind a step that had
//! rows of that sequence alone, by fewer tokens than it had, and once.

use super::DecodeRow;
use crate::types::{Position, SlotId};

/// See the module's description.
pub(super) struct Rollback {
    most: u32,
    /// The tokens before the state of each slot. `None` after a step that failed: it may have
    /// written parts of the state.
    behind: Box<[Option<u32>]>, // [slots]
    /// Tokens that can be removed from each slot.
    now: Box<[u32]>, // [slots]
    /// Whether each slot has gone back since its last row. llama.cpp goes back when the next row
    /// comes, and a copy before that would have the later state.
    is_pending: Box<[bool]>, // [slots]
    /// Room for a state.
    state: Vec<u8>,
}

impl Rollback {
    /// States of `slots` slots that can go back by at most `most` tokens. One has `state_bytes`.
    pub fn new(most: u32, slots: usize, state_bytes: usize) -> Self {
        Self {
            most,
            behind: vec![Some(0); slots].into(),
            now: vec![0; slots].into(),
            is_pending: vec![false; slots].into(),
            state: Vec::with_capacity(state_bytes),
        }
    }

    /// Most tokens by which a state can go back.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Notes that a slot has a copy of another one's state.
    pub fn copy(&mut self, from: SlotId, to: SlotId) {
        self.replace(to, self.behind[from.index()]);
    }

    /// Whether llama.cpp has yet to go back in a slot. Notes that it does so now.
    pub fn settle(&mut self, slot: SlotId) -> bool {
        std::mem::take(&mut self.is_pending[slot.index()])
    }

    /// Room for a state of this size.
    pub fn room_for_state(&mut self, bytes: usize) -> &mut [u8] {
        self.state.resize(bytes, 0);
        &mut self.state
    }

    /// Notes the rows of a step that was computed, or failed in the middle.
    pub fn note(&mut self, rows: &[DecodeRow], is_computed: bool) {
        self.now.fill(0);
        let Some(DecodeRow { slot, .. }) = rows.first() else { return };
        for DecodeRow { slot, position, .. } in rows {
            self.is_pending[slot.index()] = false;
            self.behind[slot.index()] = is_computed.then_some(position.0 + 1);
        }
        if is_computed && rows.iter().all(|row| row.slot == *slot) {
            self.now[slot.index()] = (rows.len() as u32 - 1).min(self.most); // STEP_ROWS_MAX
        }
    }

    /// Notes that a slot has another state, which stands behind `behind` tokens.
    pub fn replace(&mut self, slot: SlotId, behind: Option<u32>) {
        let slot = slot.index();
        (self.behind[slot], self.now[slot], self.is_pending[slot]) = (behind, 0, false);
    }

    /// Whether the tokens of a slot from `from` on may be removed, as far as its state goes. Notes
    /// that they are.
    pub fn may_go_back(&mut self, slot: SlotId, from: Position) -> bool {
        if from == Position(0) {
            self.replace(slot, Some(0));
            return true;
        }
        let Some(behind) = self.behind[slot.index()] else { return false };
        let removed = behind.saturating_sub(from.0);
        if removed > self.now[slot.index()] {
            return false;
        }
        if removed > 0 {
            self.replace(slot, Some(from.0));
            self.is_pending[slot.index()] = true;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Logits;

    const FIRST: SlotId = SlotId(0);
    const SECOND: SlotId = SlotId(1);

    fn rows(slot: SlotId, from: u32, count: u32) -> Vec<DecodeRow> {
        let row = |position| DecodeRow {
            token: 0,
            position: Position(position),
            slot,
            logits: Logits::None,
        };
        (from..from + count).map(row).collect()
    }

    #[test]
    fn a_state_goes_back_once_and_by_fewer_tokens_than_its_step_had() {
        let mut rollback = Rollback::new(3, 2, 0);
        rollback.note(&rows(FIRST, 0, 10), true);
        assert!(!rollback.may_go_back(FIRST, Position(6)), "more than it keeps");
        assert!(rollback.may_go_back(FIRST, Position(10)), "nothing is removed");
        assert!(rollback.may_go_back(FIRST, Position(7)));
        assert!(!rollback.may_go_back(FIRST, Position(6)), "once");
        rollback.note(&rows(FIRST, 7, 2), true);
        assert!(!rollback.may_go_back(FIRST, Position(7)), "all of the step");
        rollback.note(&rows(FIRST, 9, 1), true);
        assert!(!rollback.may_go_back(FIRST, Position(9)), "a step of one token");
        assert!(rollback.may_go_back(FIRST, Position(0)), "removed as a whole");
    }

    #[test]
    fn a_step_of_several_sequences_lets_none_go_back() {
        let mut rollback = Rollback::new(3, 2, 0);
        let both = [rows(FIRST, 0, 3), rows(SECOND, 0, 3)].concat();
        rollback.note(&both, true);
        assert!(!rollback.may_go_back(FIRST, Position(2)));
        assert!(!rollback.may_go_back(SECOND, Position(2)));
        // The states from before another sequence's step may have been moved.
        rollback.note(&rows(FIRST, 3, 3), true);
        rollback.note(&rows(SECOND, 3, 1), true);
        assert!(!rollback.may_go_back(FIRST, Position(5)));
    }

    #[test]
    fn behind_a_failed_step_a_state_must_be_replaced() {
        let mut rollback = Rollback::new(3, 2, 0);
        rollback.note(&rows(FIRST, 0, 3), true);
        rollback.note(&rows(FIRST, 3, 1), false);
        assert!(!rollback.may_go_back(FIRST, Position(3)));
        assert!(!rollback.may_go_back(FIRST, Position(4)));
        rollback.replace(FIRST, Some(3));
        assert!(rollback.may_go_back(FIRST, Position(3)));
    }

    #[test]
    fn a_copy_comes_after_the_state_has_gone_back() {
        let mut rollback = Rollback::new(3, 2, 0);
        rollback.note(&rows(FIRST, 0, 3), true);
        assert!(!rollback.settle(FIRST));
        assert!(rollback.may_go_back(FIRST, Position(2)));
        assert!(rollback.settle(FIRST));
        assert!(!rollback.settle(FIRST));
        rollback.copy(FIRST, SECOND);
        assert!(rollback.may_go_back(SECOND, Position(2)));
        assert!(!rollback.may_go_back(SECOND, Position(1)));
    }
}
