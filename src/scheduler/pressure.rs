//! Pressure: the cells that sequences will need, and preemption when cells run out.

use super::books::Books;
use super::masks::MaskSource;
use super::reuse::Prefix;
use super::sequence::{Sequence, Stage};
use crate::ring::message::Batch;
use crate::types::SequenceId;

/// Frees cells for one row of each decoding sequence.
pub(super) fn make_room_to_decode(books: &mut Books, batch: &mut Batch) {
    loop {
        let rows = books.held.iter().filter(|id| books.decodes(**id)).count();
        books.evict(batch, rows);
        if books.cells.left() >= rows {
            return;
        }
        let last = last_of(books, |_| true);
        preempt(books, batch, last.expect("who decodes has cells"));
    }
}

/// The youngest sequence of the least urgent priority that holds cells and for which `is_meant`
/// holds.
pub(super) fn last_of(books: &Books, is_meant: impl Fn(&Sequence) -> bool) -> Option<SequenceId> {
    let order = |id: &SequenceId| {
        let sequence = books.sequences.get(*id);
        (sequence.asked.priority, sequence.admitted)
    };
    let is_meant = |id: &SequenceId| {
        let sequence = books.sequences.get(*id);
        sequence.planned > 0 && is_meant(sequence)
    };
    books.held.iter().copied().filter(is_meant).max_by_key(order)
}

/// Preempts a sequence.
pub(super) fn preempt(books: &mut Books, batch: &mut Batch, id: SequenceId) {
    put_back(books, batch, id);
    books.tally.preemptions += 1;
}

/// A sequence loses its slot and returns to the queue with all its tokens.
pub(super) fn put_back(books: &mut Books, batch: &mut Batch, id: SequenceId) {
    books.drop_loads(id);
    let sequence = books.sequences.get_mut(id);
    let owner = sequence.owner();
    sequence.state = Stage::Waiting;
    sequence.planned = 0;
    sequence.in_flight = 0;
    sequence.guessed = 0;
    sequence.shared.clear();
    if sequence.constraint().is_some() {
        let begins = MaskSource::DecodeLane { us: 0 };
        let masks = std::mem::replace(&mut sequence.masks, begins);
        books.masks.leave(owner.slot, masks);
    }
    let sequence = books.sequences.get(id);
    books.shares.wait(sequence.asked.key, sequence.tokens.len());
    books.cells.truncate(owner.slot, 0);
    books.cells.release(owner.slot);
    books.slots.release(owner, None, books.step);
    batch.clears.push(owner.slot).expect("one clear for each slot");
    books.held.retain(|held| *held != id);
    books.waiting.push(id);
}

/// If nothing could be planned because unfinished prompts have all the cells, preempts one of
/// them.
pub(super) fn end_a_standstill(books: &mut Books, batch: &mut Batch) {
    let is_stuck = |sequence: &Sequence| {
        matches!(sequence.state, Stage::Running(_)) && sequence.rows_left() > 0
    };
    // A prefix that was used in this step becomes evictable in the next one. Never preempt a
    // sequence that started in this step.
    if batch.rows.is_empty()
        && batch.loads.is_empty()
        && books.cells.left() == 0
        && books.cells.kept() == 0
        && batch.starts.is_empty()
        && let Some(id) = last_of(books, is_stuck)
    {
        preempt(books, batch, id);
    }
}

/// Cells that a running sequence will need besides those that it has: for its known tokens and for
/// its promised share of future ones.
pub(super) fn cells_coming(books: &Books, id: SequenceId) -> usize {
    let sequence = books.sequences.get(id);
    let promised = sequence.cells_promised();
    match sequence.state {
        Stage::Following { tokens, .. } if !books.cells.are_own() => promised - tokens,
        _ => promised.saturating_sub(sequence.planned),
    }
}

/// The cells of a prefix that another running sequence's slot has or will have. Cells of kept
/// prefixes do not count: they can be evicted, so they count as free.
pub(super) fn cells_shared(books: &Books, prefix: Prefix) -> usize {
    if books.cells.are_own() {
        return 0;
    }
    let ready = prefix.ready.filter(|ready| !books.slots.is_free(ready.slot));
    let coming = prefix.coming.map(|(_, tokens)| tokens);
    ready.map(|ready| ready.tokens).max(coming).unwrap_or(0)
}
