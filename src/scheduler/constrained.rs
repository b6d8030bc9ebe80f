//! Masks of constrained texts: which lane computes them, and who pays for them.
//!
//! A mask depends on the token before, so it is known only after a step. The decode lane computes
//! it when it samples, and every sequence of the step waits for that. For fast masks, this is the
//! fastest way.
//! - All masks of a step may take [`STEP_MASKS_MIN`], or half as long as its decode rows if that is
//!   more. A text whose mask does not fit moves to the mask lane for good. So does a text with one
//!   slow mask: it took more than [`STEP_MASKS_MIN`] and than half of the shortest step. So does one
//!   with a state of more than [`STEP_WALK_BYTES_MAX`].
//! - Masks can turn slow without a warning, several of them in one step. Once a step's masks have
//!   taken as long as they may, the decode lane undoes the rows of the others ([`Failed::is_late`]).
//!   These texts move to the mask lane, too.
//! - The mask lane computes a text's next mask while steps run without that text. The text gets its
//!   next row when the mask has come back.
//! - A text begins on the mask lane if its constraint had a slow mask in another text. After a slow
//!   mask of its key, a constraint must be known to be fast, until the key has had
//!   [`MASKS_OF_DISTRUST`] fast masks.
//! - A key is charged for the time of its masks: one token for the time of the shortest step.

use std::time::Duration;

use super::books::Books;
use super::cost::Rows;
use super::masks::MaskSource;
use super::sequence::State;
use super::times;
use super::tuning::{MASKS_OF_DISTRUST, STEP_MASKS_MIN, STEP_WALK_BYTES_MAX};
#[cfg(doc)]
use crate::ring::message::Failed;
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
                    && matches!(sequence.state, State::Running(_))
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
    // The sequence may have ended, or lost its slot, and even asked anew.
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

/// True if nothing could run but texts that wait for their masks.
pub(super) fn waits_for_masks(books: &Books) -> bool {
    let is_on_mask_lane =
        |id: &SequenceId| !matches!(books.sequences.get(*id).masks, MaskSource::DecodeLane { .. });
    books.waiting.is_empty() && books.held.iter().all(is_on_mask_lane)
}

/// The time that all masks of a step with these decode rows may take. There is no bound
/// before a step was measured.
pub(super) fn masks_bound(books: &Books, decode: Rows) -> Option<Duration> {
    books.cost.decode(decode).map(|time| (time / 2).max(STEP_MASKS_MIN))
}

/// Whether a mask that took `us` microseconds is too slow for any step.
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
    // To follow a text from its start again takes as long as all of its masks.
    let restarts = sequence.generated() > 0;
    if constraint.is_slow() || restarts || is_distrusted && !constraint.is_fast() {
        sequence.masks = MaskSource::Unasked(None);
    }
}

/// A sequence restarts after a failed step. A mask in a later step is lost, because that step
/// will drop its row.
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

/// Whether a decode row of a sequence can be planned: nothing constrains it, or its mask fits
/// into the step, or its mask is there. The batch takes the mask.
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

/// From now on a sequence gets its masks from the mask lane.
pub(super) fn leave_decode_lane(books: &mut Books, id: SequenceId) {
    let sequence = books.sequences.get_mut(id);
    sequence.masks = MaskSource::Unasked(None);
    books.masks.forget(sequence.owner().slot);
}

/// Takes note of the time of a mask that the decode lane computed. The text's next mask is expected to take
/// that time, or half of the time that was expected of this one if that is longer.
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

/// Takes back the masks of a batch, once its samples are taken. If a step failed, its sequences
/// still need theirs.
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
