//! Which calls of `llama_decode` a step is made of.

use crate::ring::message::Row;

/// A step's calls of `llama_decode`: one, or one for the rows that decode and one behind
/// it for those of prompts.
pub struct Calls {
    apart: bool,
}

impl Calls {
    /// How many there are at most.
    pub const MOST: usize = 2;

    /// Those for the rows of a batch, in which a sequence's stand together. `ragged` says
    /// whether the model runs sequences with different counts of rows together
    /// ([`Backend::runs_ragged`](crate::model::Backend::runs_ragged)).
    ///
    /// Where it does not, llama.cpp computes together only as many rows of each sequence as
    /// the one with the fewest has, and its kernels work on four rows at a time: of 4 that
    /// decode and 8 of a prompt it makes 5 and 7, which take as long as 8 and 10. But
    /// decoding rows that have a prompt's slot between them would be split, too.
    pub fn of(rows: &[Row], ragged: bool) -> Self {
        let sequences = || rows.chunk_by(|a, b| a.owner == b.owner);
        let decoding =
            || sequences().filter(|rows| rows.len() == 1).map(|rows| rows[0].owner.slot.0);
        let has_both = decoding().next().is_some() && sequences().any(|rows| rows.len() > 1);
        let apart =
            has_both && !ragged && decoding().zip(decoding().skip(1)).all(|(a, b)| a + 1 == b);
        Self { apart }
    }

    /// The rows of the first call (0) or the second (1); there may be none.
    pub fn rows<'a>(&self, rows: &'a [Row], call: usize) -> impl Iterator<Item = &'a Row> {
        let apart = self.apart;
        rows.chunk_by(|a, b| a.owner == b.owner)
            .filter(move |rows| call == usize::from(apart && rows.len() > 1))
            .flatten()
    }
}
