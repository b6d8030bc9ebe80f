//! Masks of constrained texts: which lane computes them, and how keys are charged for them.
//!
//! A mask depends on the token before it, so it can be computed only after a step. If the decode
//! lane computes it before it samples, every sequence of the step waits for that. For fast masks
//! this is still the fastest way.
//! - All masks of a step may take [`STEP_MASKS_MIN`], or half as long as its decode rows if that is
//!   more. A text whose mask does not fit moves to the mask lane for good. So does a text after one
//!   slow mask, which took more than [`STEP_MASKS_MIN`] and more than half of the shortest step. So
//!   does a text whose constraint has a state of more than [`STEP_WALK_BYTES_MAX`] bytes.
//! - Several masks can turn slow in the same step, without a warning. Once a step's masks have used
//!   up their time, the decode lane undoes the rows that still lack one ([`FailureReason::LateMask`]).
//!   Their texts move to the mask lane, too.
//! - The mask lane computes a text's next mask while steps run without that text. The text gets its
//!   next row when the mask has come back.
//! - A text begins on the mask lane if its constraint had a slow mask in another text. After any
//!   slow mask of a key, all texts of the key begin there, except those whose constraint is known
//!   to be fast. This ends after [`MASKS_OF_DISTRUST`] fast masks of the key on the mask lane.
//! - A key is charged for the time of its masks: one token for the time of the shortest step.

use std::time::Duration;

use super::books::Books;
use super::cost::Rows;
use super::masks::MaskSource;
use super::sequence::Stage;
use super::times;
use super::tuning::{MASKS_OF_DISTRUST, STEP_MASKS_MIN, STEP_WALK_BYTES_MAX};
#[cfg(doc)]
use crate::ring::message::FailureReason;
use crate::ring::message::{Batch, MaskCost, MaskTask};
use crate::types::{KeyId, SequenceId};

/// The next task for the mask lane, if there is one.
pub(super) fn next_task(books: &mut Books) -> Option<Box<MaskTask>> {
    let task = match books.masks.ended.pop() {
        Some(ended) => ended,
        None => {
            let wants = |id: &&SequenceId| {
                let sequence = books.sequences.get(**id);
                matches!(sequence.masks, MaskSource::Unasked(_))
                    && matches!(sequence.state, Stage::Running(_))
                    && sequence.in_flight == 0 // its last token is known
                    && sequence.asked.max_tokens > 0
            };
            let id = *books.held.iter().find(wants)?;
            ask(books, id)?
        }
    };
    books.masks.asked += 1;
    Some(task)
}

/// The task for the next mask of a sequence. `None` if there are no tasks left.
fn ask(books: &mut Books, id: SequenceId) -> Option<Box<MaskTask>> {
    let sequence = books.sequences.get_mut(id);
    let MaskSource::Unasked(own) = &mut sequence.masks else { unreachable!("it is unasked") };
    let mut task = own.take().or_else(|| books.masks.spare())?;
    sequence.masks = MaskSource::Asked;
    task.sequence = Some(id);
    task.key = sequence.asked.key;
    if task.constraint.is_none() {
        task.constraint = sequence.constraint().cloned();
    }
    let new = sequence.prompt_tokens + task.generated.len();
    task.generated.extend_from_slice(&sequence.tokens[new..]);
    Some(task)
}

/// Takes a task that came back from the mask lane. Returns its sequence and the bytes that the
/// state of its constraint holds.
pub(super) fn masked(books: &mut Books, task: Box<MaskTask>) -> Option<(SequenceId, u32)> {
    books.masks.asked -= 1;
    let (Some(id), Some(constraint)) = (task.sequence, &task.constraint) else {
        books.masks.freed(task);
        return None;
    };
    let is_slow = is_slow(books, task.cost.us);
    constraint.count_mask(is_slow);
    charge_mask(books, task.key, task.cost.us);
    if books.shares.has_place(task.key) {
        let distrust = &mut books.masks.distrust[task.key.index()];
        *distrust = if is_slow { MASKS_OF_DISTRUST } else { distrust.saturating_sub(1) };
    }
    // Meanwhile the sequence may have ended or lost its slot. It may even have asked for a new
    // mask.
    let is_wanted = books.sequences.contains(id) && {
        let sequence = books.sequences.get(id);
        matches!(sequence.masks, MaskSource::Asked) && task.generated.len() == sequence.generated()
    };
    if !is_wanted {
        books.masks.end(task);
        return None;
    }
    let bytes = task.cost.bytes;
    books.sequences.get_mut(id).masks = MaskSource::Ready(task);
    Some((id, bytes))
}

/// True if no sequence waits in the queue, and all running ones get their masks from the mask lane.
pub(super) fn waits_for_masks(books: &Books) -> bool {
    let is_on_mask_lane =
        |id: &SequenceId| !matches!(books.sequences.get(*id).masks, MaskSource::DecodeLane { .. });
    books.waiting.is_empty() && books.held.iter().all(is_on_mask_lane)
}

/// The time that all masks of a step with these decode rows may take. `None` (no bound) until a
/// step was measured.
pub(super) fn masks_bound(books: &Books, decode: Rows) -> Option<Duration> {
    books.cost.decode(decode).map(|time| (time / 2).max(STEP_MASKS_MIN))
}

/// Whether a mask that took `us` microseconds is too slow for the decode lane.
fn is_slow(books: &Books, us: u32) -> bool {
    let bound = times::shortest_step(books).map(|step| (step / 2).max(STEP_MASKS_MIN));
    bound.is_some_and(|bound| Duration::from_micros(us.into()) > bound)
}

/// Chooses the source of masks for a sequence that gets a slot.
pub(super) fn choose_mask_source(books: &mut Books, id: SequenceId) {
    let sequence = books.sequences.get_mut(id);
    let Some(constraint) = sequence.constraint() else { return };
    if sequence.asked.max_tokens == 0 {
        return; // it has no masks
    }
    let is_distrusted = books.masks.distrust[sequence.asked.key.index()] > 0;
    // The constraint must take in all generated tokens again, which takes as long as their masks.
    let restarts = sequence.generated() > 0;
    if constraint.is_slow() || restarts || is_distrusted && !constraint.is_fast() {
        sequence.masks = MaskSource::Unasked(None);
    }
}

/// Chooses the source of masks of a sequence that restarts after a failed step. A mask that a later
/// step has already is lost, because the decode lane drops its row there.
pub(super) fn restart_masks(books: &mut Books, id: SequenceId) {
    match &mut books.sequences.get_mut(id).masks {
        MaskSource::DecodeLane { .. } => choose_mask_source(books, id),
        masks @ MaskSource::Sent => *masks = MaskSource::Unasked(None),
        MaskSource::Unasked(_) | MaskSource::Asked | MaskSource::Ready(_) => {}
    }
}

/// Whether the mask lane computes the masks of a sequence.
pub(super) fn is_on_mask_lane(books: &Books, id: SequenceId) -> bool {
    !matches!(books.sequences.get(id).masks, MaskSource::DecodeLane { .. })
}

/// Whether a decode row of a sequence can be planned. It can if the text is not constrained, if its
/// mask fits into the step's time for masks, or if the mask lane has computed its mask. In the last
/// case the mask moves into the batch. A mask that does not fit moves the text to the mask lane.
pub(super) fn take_mask(books: &mut Books, batch: &mut Batch, id: SequenceId) -> bool {
    let bound = batch.masks_max.unwrap_or(Duration::MAX);
    let sequence = books.sequences.get_mut(id);
    match std::mem::replace(&mut sequence.masks, MaskSource::Sent) {
        MaskSource::DecodeLane { us } => {
            let planned = books.masks.planned + u64::from(us);
            let fits = us == 0 || Duration::from_micros(planned) <= bound;
            sequence.masks = MaskSource::DecodeLane { us };
            if fits {
                books.masks.planned = planned;
            } else {
                leave_decode_lane(books, id);
            }
            fits
        }
        MaskSource::Ready(mut task) => {
            task.owner = sequence.owner();
            books.masks.sent += 1;
            assert!(batch.masks.push(task).is_ok(), "one for each slot");
            true
        }
        other => {
            sequence.masks = other;
            false
        }
    }
}

/// Moves a sequence to the mask lane, for all later masks.
pub(super) fn leave_decode_lane(books: &mut Books, id: SequenceId) {
    let sequence = books.sequences.get_mut(id);
    sequence.masks = MaskSource::Unasked(None);
    books.masks.forget(sequence.owner().slot);
}

/// Learns the time of a mask that the decode lane computed. The text's next mask is expected to
/// take that time, or half of the previous expectation if that is longer.
pub(super) fn learn_mask(books: &mut Books, id: SequenceId, cost: MaskCost) {
    let is_slow = is_slow(books, cost.us);
    let sequence = books.sequences.get_mut(id);
    let key = sequence.asked.key;
    if let Some(constraint) = sequence.constraint() {
        constraint.count_mask(is_slow);
    }
    if is_slow && books.shares.has_place(key) {
        books.masks.distrust[key.index()] = MASKS_OF_DISTRUST;
    }
    if let MaskSource::DecodeLane { us } = &mut sequence.masks {
        *us = cost.us.max(*us / 2);
        if is_slow || cost.bytes as usize > STEP_WALK_BYTES_MAX {
            leave_decode_lane(books, id);
        }
    }
    charge_mask(books, key, cost.us);
}

/// Charges a key for a mask of `us` microseconds: one token for the time of the shortest step.
fn charge_mask(books: &mut Books, key: KeyId, us: u32) {
    if let Some(step) = times::shortest_step(books).filter(|step| !step.is_zero()) {
        books.shares.serve(key, f64::from(us) / 1e6 / step.as_secs_f64());
    }
}

/// Takes back the masks of a batch, once its samples are taken. A mask whose row got no sample was
/// not used, and stays ready for the next try.
pub(super) fn take_masks_back(books: &mut Books, batch: &mut Batch) {
    while let Some(task) = batch.masks.pop() {
        books.masks.sent -= 1;
        match books.slots.holder(task.owner) {
            Some(id) if matches!(books.sequences.get(id).masks, MaskSource::Sent) => {
                let sequence = books.sequences.get_mut(id);
                let is_used = task.generated.len() < sequence.generated();
                sequence.masks =
                    if is_used { MaskSource::Unasked(Some(task)) } else { MaskSource::Ready(task) };
            }
            _ => books.masks.end(task),
        }
    }
}
