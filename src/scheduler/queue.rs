//! The queue: which waiting sequence is first, and whether there is room for a sequence.

use std::cmp::Ordering;

use super::books::Books;
use super::reuse::Prefix;
use super::sequence::Sequence;
use super::{pressure, reuse};
use crate::types::SequenceId;

/// The index of the first waiting sequence that waits for no files and for which `may_start` holds.
pub(super) fn first_waiting(books: &Books, may_start: impl Fn(&Sequence) -> bool) -> Option<usize> {
    let waits = |sequence: &Sequence| sequence.fetch.as_ref().is_some_and(|fetch| !fetch.is_over);
    let is_meant = |sequence: &Sequence| !waits(sequence) && may_start(sequence);
    (0..books.waiting.len())
        .filter(|index| is_meant(books.sequences.get(books.waiting[*index])))
        .min_by(|a, b| compare(books, books.waiting[*a], books.waiting[*b]))
}

/// Which of two waiting sequences comes first.
pub(super) fn compare(books: &Books, a: SequenceId, b: SequenceId) -> Ordering {
    let order = |id: SequenceId| {
        let sequence = books.sequences.get(id);
        (sequence.asked.priority, books.shares.served(sequence.asked.key), sequence.admitted)
    };
    let (a, b) = (order(a), order(b));
    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
}

/// The cached prefix of a waiting sequence, if there are cells for the rest of it. Otherwise the
/// cells that it needs.
pub(super) fn prefix_if_it_fits(books: &Books, id: SequenceId) -> Result<Prefix, usize> {
    let prefix = reuse::find_prefix(books, id);
    let shared = pressure::cells_shared(books, prefix);
    check_room(books, id, shared).map(|()| prefix)
}

/// Checks that there are cells for a waiting sequence, of which another running sequence's slot has
/// or will have `shared`. The error is the cells that it needs.
pub(super) fn check_room(books: &Books, id: SequenceId, shared: usize) -> Result<(), usize> {
    let coming: usize = books.held.iter().map(|id| pressure::cells_coming(books, *id)).sum();
    let needed = books.sequences.get(id).cells_promised().saturating_sub(shared);
    let fits = books.cells.held() + coming + needed <= books.capacity.context_tokens as usize;
    if fits { Ok(()) } else { Err(needed) }
}
