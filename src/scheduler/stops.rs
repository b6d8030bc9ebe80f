//! Stops: the places in a prompt at which its state is saved. The step ends there, unless that is the
//! end of the prompt.

use super::books::Books;
use super::tuning::{CHECKPOINT_TOKENS_MIN, WHOLE_TOKENS_MIN};
use crate::ring::message::Batch;
use crate::types::SequenceId;

/// The number of first tokens of a sequence behind which its state is saved next. Those are:
/// - what it shares with other sequences ([`super::reuse`]),
/// - where its conversation says that later prompts may part from it,
/// - all tokens of the prompt but the last, if no such place is near: the same prompt may come again,
/// - multiples of the interval.
///
/// Saved states that save few tokens are left out, except for the first kind. Generated tokens that
/// a preempted sequence computes again count as its prompt.
pub(super) fn next_stop(books: &Books, id: SequenceId) -> Option<usize> {
    let states = books.capacity.states.filter(|states| states.checkpoints > 0)?;
    let sequence = books.sequences.get(id);
    sequence.asked.cache?;
    let (slot, planned) = (sequence.owner().slot, sequence.planned);
    let last = sequence.tokens.len() - 1;
    let checkpoints = &books.cells.checkpoints;
    let branches = sequence.asked.branches.iter().map(|branch| *branch as usize);
    let end = branches.clone().all(|branch| branch + CHECKPOINT_TOKENS_MIN < last).then_some(last);
    let next = (planned / states.interval + 1) * states.interval;
    let stops = branches.chain(end).chain([next]);
    let is_worth = |stop: &usize| checkpoints.is_worth(slot, *stop);
    let shared = sequence.shared.iter().map(|stop| *stop as usize);
    stops.filter(is_worth).chain(shared).filter(|stop| (planned + 1..=last).contains(stop)).min()
}

/// Keeps the logits behind a prompt whose last row was just planned, with a recurrent state if the model
/// has any. Then the same prompt computes nothing. No step ends for it, so it is worth it for fewer tokens.
pub(super) fn keep_whole(books: &mut Books, batch: &mut Batch, id: SequenceId) {
    let sequence = books.sequences.get(id);
    let tokens = sequence.tokens.len();
    let ends = sequence.planned == tokens && sequence.generated() == 0;
    let may_start = sequence.asked.cache.is_some() && sequence.may_start_whole();
    if !ends || !may_start || books.capacity.logits == 0 {
        return;
    }
    let (slot, cells) = (sequence.owner().slot, &books.cells);
    let is_recurrent = books.capacity.has_recurrent_states();
    let saved = if is_recurrent { &cells.checkpoints } else { &cells.logits };
    let is_worth = saved.tokens_saved(slot, tokens) >= WHOLE_TOKENS_MIN;
    if is_worth && !is_kept(books, id) && (!is_recurrent || books.save_state(batch, id)) {
        books.keep_logits(batch, id);
    }
}

/// Whether another running sequence has kept, or keeps, the logits behind the same prompt.
fn is_kept(books: &Books, id: SequenceId) -> bool {
    let sequence = books.sequences.get(id);
    let prompt = &sequence.tokens[..];
    books.held.iter().filter(|other| **other != id).any(|other| {
        let other = books.sequences.get(*other);
        other.asked.cache == sequence.asked.cache
            && books.cells.logits.stands_at(other.owner().slot, prompt.len())
            && other.tokens.starts_with(prompt)
    })
}
