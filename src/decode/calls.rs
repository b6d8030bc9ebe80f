//! The calls of `llama_decode` in a step.

use crate::ring::message::Row;

/// The calls of `llama_decode` in a step: one for all rows, or one for decode rows and a second one
/// for prompt rows.
#[derive(Clone, Copy)]
pub struct Calls {
    apart: bool,
}

impl Calls {
    /// The most calls of a step.
    pub const MOST: usize = 2;

    /// Plans the calls for a batch. The rows of a sequence must be neighbours. `ragged` says
    /// whether the model computes sequences with different numbers of rows in one pass
    /// ([`Backend::runs_ragged`](crate::model::Backend::runs_ragged)).
    ///
    /// If it does not, a pass of llama.cpp takes equally many rows of each sequence: as many as the
    /// shortest sequence has. Its kernels work on four rows at a time. 4 decode rows and 8 prompt
    /// rows in one call would become passes of 5 and 7 rows, which take longer than passes of 4 and
    /// 8. So they get two calls. But if a prompt's slot lies between the slots of decode rows,
    /// llama.cpp would split the decode rows, so they get one call.
    pub fn of(rows: &[Row], ragged: bool) -> Self {
        let sequences = || rows.chunk_by(|a, b| a.owner == b.owner);
        let decoding =
            || sequences().filter(|rows| rows.len() == 1).map(|rows| rows[0].owner.slot.0);
        let has_both = decoding().next().is_some() && sequences().any(|rows| rows.len() > 1);
        let apart =
            has_both && !ragged && decoding().zip(decoding().skip(1)).all(|(a, b)| a + 1 == b);
        Self { apart }
    }

    /// The rows of the first call (0) or the second (1). The second call may have none.
    pub fn rows<'a>(&self, rows: &'a [Row], call: usize) -> impl Iterator<Item = &'a Row> {
        let calls = *self;
        let sequences = rows.chunk_by(|a, b| a.owner == b.owner);
        sequences.filter(move |rows| calls.call_of(rows) == call).flatten()
    }

    /// [`Calls::rows`], to change.
    pub fn rows_mut<'a>(
        &self,
        rows: &'a mut [Row],
        call: usize,
    ) -> impl Iterator<Item = &'a mut Row> {
        let calls = *self;
        let sequences = rows.chunk_by_mut(|a, b| a.owner == b.owner);
        sequences.filter(move |rows| calls.call_of(rows) == call).flatten()
    }

    /// The call of the rows of a sequence.
    fn call_of(&self, rows: &[Row]) -> usize {
        usize::from(self.apart && rows.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::message::{Guesses, Input};
    use crate::types::{Generation, Logits, Owner, Position, SlotId};

    /// Rows for slots: pairs of a slot and a number of rows.
    fn rows(of_slots: &[(u16, u32)]) -> Vec<Row> {
        let row = |slot, position| Row {
            owner: Owner { slot: SlotId(slot), generation: Generation::default() },
            position: Position(position),
            input: Input::Carry,
            logits: Logits::Sample,
            guesses: Guesses::default(),
        };
        let of_slot = |(slot, count): &(u16, u32)| {
            let slot = *slot;
            (0..*count).map(move |position| row(slot, position))
        };
        of_slots.iter().flat_map(of_slot).collect()
    }

    fn counts(of_slots: &[(u16, u32)], ragged: bool) -> [usize; Calls::MOST] {
        let rows = rows(of_slots);
        let calls = Calls::of(&rows, ragged);
        std::array::from_fn(|call| calls.rows(&rows, call).count())
    }

    #[test]
    fn prompts_run_behind_those_that_decode_where_that_pays() {
        assert_eq!(counts(&[(0, 1), (1, 1), (2, 8)], false), [2, 8]);
        assert_eq!(counts(&[(0, 8), (1, 1), (2, 1)], false), [2, 8]);
        // In two calls, llama.cpp would split the decode rows.
        assert_eq!(counts(&[(0, 1), (1, 8), (2, 1)], false), [10, 0]);
        assert_eq!(counts(&[(0, 1), (1, 1), (2, 8)], true), [10, 0]);
        assert_eq!(counts(&[(0, 1), (1, 1)], false), [2, 0]);
        assert_eq!(counts(&[(0, 4), (1, 8)], false), [12, 0]);
    }
}
