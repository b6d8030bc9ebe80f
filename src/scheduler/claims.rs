//! Claims: each key's part of the slots and of the KV cells, taken back from keys that have more.
//!
//! Each key with running or waiting sequences has a claim to its part of the slots and of the KV
//! cells, by weight. A key may take more than its part while no other key wants it. If a key has
//! less than its part and finds nothing free, a sequence is preempted: the youngest of a key that
//! has more and was served at least as much. With one key there are no claims.
//!
//! A slot that a key held recently stays reserved for it, with the prefix in it, while the key has
//! less than its part. So a client that sends one request after another causes one preemption, and
//! not one for each request.

use super::books::Books;
use super::shares::Overtaken;
use super::tuning::{MAKE_WAY_MAX, OVERTAKEN_STEPS_MAX};
use super::{pressure, queue};
use crate::limits::KEYS_MAX;
use crate::ring::message::Batch;
use crate::types::{KeyId, SequenceId, SlotId};

/// The slots and cells of a key, and its claim to them.
#[derive(Clone, Copy, Default)]
struct Claim {
    slots: usize,
    cells: usize,
    /// Its part of the slots, at least one.
    slots_claimed: usize,
    /// Its part of the cells.
    cells_claimed: usize,
    /// Most slots that it had at once in the last steps.
    slots_recent: usize,
}

impl Claim {
    fn has_less(&self) -> bool {
        self.slots < self.slots_claimed
    }

    /// Free slots that are reserved for the key.
    fn kept(&self) -> usize {
        self.slots_recent.min(self.slots_claimed).saturating_sub(self.slots)
    }

    fn has_more(&self) -> bool {
        self.slots > self.slots_claimed || self.cells > self.cells_claimed
    }
}

type Claims = heapless::Vec<Claim, KEYS_MAX>; // by KeyId::index

/// The claims of all keys. A key takes part if it holds a slot, waits for one, or held one
/// recently.
fn claims(books: &Books) -> Claims {
    let weights = &books.capacity.weights;
    let recent = books.recent.iter().map(|recent| Claim {
        slots_recent: if books.is_recent(*recent) { recent.slots } else { 0 },
        ..Claim::default()
    });
    let mut claims: Claims = recent.collect();
    for id in &books.held {
        let sequence = books.sequences.get(*id);
        let claim = &mut claims[sequence.asked.key.index()];
        claim.slots += 1;
        claim.cells += books.cells.of(sequence.owner().slot);
    }
    let takes_part = |index: usize, claim: &Claim| {
        let waiting = books.shares.sequences.held_at(index);
        claim.slots > 0 || waiting > 0 || claim.slots_recent > 0
    };
    let present = claims.iter().enumerate().filter(|(index, claim)| takes_part(*index, claim));
    let all: f64 = present.map(|(index, _)| weights[index]).sum();
    for (index, claim) in claims.iter_mut().enumerate() {
        let part = |whole: usize| (whole as f64 * weights[index] / all) as usize;
        claim.slots_claimed = part(books.capacity.slots).max(1);
        claim.cells_claimed = part(books.capacity.context_tokens as usize);
    }
    claims
}

/// A free slot for a sequence of this key, preferably one that is not reserved for another key.
pub(super) fn free_slot(books: &Books, key: KeyId) -> Option<SlotId> {
    let claims = claims(books);
    let is_kept = |keeper: KeyId| claims.get(keeper.index()).is_some_and(|claim| claim.kept() > 0);
    books.slots.free(|keeper| keeper != key && is_kept(keeper))
}

/// The index of the first waiting sequence that may take a free slot. Slots that keys held recently
/// are reserved for these keys, at most half of all slots. Keys in `overtaken` are skipped. Another
/// key may overtake them while it has less than its part of the slots.
pub(super) fn first_for_a_free_slot(books: &Books, overtaken: &Overtaken) -> Option<usize> {
    if books.capacity.weights.len() == 1 {
        return queue::first_waiting(books, |_| overtaken.is_empty());
    }
    let claims = claims(books);
    let kept: usize = claims.iter().map(Claim::kept).sum();
    let free = books.slots.free_count();
    let has_slots = free > kept.min(books.capacity.slots / 2);
    queue::first_waiting(books, |sequence| {
        let key = sequence.asked.key;
        let may_start = has_slots && overtaken.is_empty() || claims[key.index()].has_less();
        may_start && !overtaken.contains(&key)
    })
}

/// Whether a sequence may overtake a sequence of another key that is first and does not fit. It may
/// if its key then stays within its part of the cells.
pub(super) fn may_overtake(books: &Books, id: SequenceId) -> bool {
    let sequence = books.sequences.get(id);
    let own = claims(books)[sequence.asked.key.index()];
    own.cells + sequence.cells_promised() <= own.cells_claimed
}

/// Whether other keys may overtake a sequence that is first and needs `cells` cells, which are not
/// free. They may for [`OVERTAKEN_STEPS_MAX`] steps. They may for longer if the sequence's own key
/// leaves it no room: running sequences of this key hold cells, and will need more.
pub(super) fn may_be_overtaken(books: &Books, id: SequenceId, cells: usize) -> bool {
    let sequence = books.sequences.get(id);
    let (key, steps) = (sequence.asked.key, sequence.overtaken);
    let is_own = |held: &&SequenceId| books.sequences.get(**held).asked.key == key;
    let own = books.held.iter().filter(is_own).map(|held| {
        books.cells.of(books.sequences.get(*held).owner().slot)
            + pressure::cells_coming(books, *held)
    });
    steps <= OVERTAKEN_STEPS_MAX
        || own.sum::<usize>() + cells > books.capacity.context_tokens as usize
}

/// Preempts sequences so that a waiting sequence can start, if its key has less than its part.
/// Tries the first waiting sequence of each such key, in the order of the queue, and stops at the
/// first for which it preempts. Returns that sequence, or `None` if nothing was preempted.
///
/// Must run before any sequence starts in this step: a sequence that starts may copy from a running
/// one, or follow it, and that one must then not be preempted.
pub(super) fn settle(books: &mut Books, batch: &mut Batch) -> Option<SequenceId> {
    if books.capacity.weights.len() == 1 || books.waiting.is_empty() {
        return None;
    }
    let claims = claims(books);
    // `make_way` takes no slot from a key that was served less, so the credit of each key is
    // bounded. A text holds its slot until it ends, so a key can fairly fall behind by as many
    // tokens as the KV cache holds.
    let tokens = f64::from(books.capacity.context_tokens);
    books.shares.bound_credit(|place| claims[place].slots > 0, tokens);
    let mut refused = Overtaken::new();
    loop {
        let first = queue::first_waiting(books, |sequence| {
            let key = sequence.asked.key;
            claims[key.index()].has_less() && !refused.contains(&key)
        })?;
        let (id, mut claimant) = (books.waiting[first], None);
        loop {
            let needed = queue::prefix_if_it_fits(books, id).err();
            if needed.is_none() && books.slots.free_count() > 0 {
                return claimant;
            }
            if !make_way(books, batch, id, needed.unwrap_or(0)) {
                break;
            }
            claimant = Some(id);
        }
        if claimant.is_some() || refused.push(books.sequences.get(id).asked.key).is_err() {
            return claimant;
        }
    }
}

/// Preempts one sequence in favour of a waiting one that needs `cells` cells, if the key of the
/// waiting one has a claim to them. Returns false if no sequence may be preempted.
fn make_way(books: &mut Books, batch: &mut Batch, id: SequenceId, cells: usize) -> bool {
    let claims = claims(books);
    let waiting = &books.sequences.get(id).asked;
    let (own, priority) = (claims[waiting.key.index()], waiting.priority);
    if own.cells + cells > own.cells_claimed {
        return false;
    }
    let served = books.shares.served(waiting.key);
    let last = pressure::last_of(books, |sequence| {
        let key = sequence.asked.key;
        claims[key.index()].has_more()
            // A key that was served less than the waiting key keeps its slots.
            && books.shares.served(key) >= served
            && sequence.asked.priority >= priority
            && (sequence.made_way < MAKE_WAY_MAX || sequence.has_gone_on())
            // A sequence that started in the previous step may not have run: that step may still be
            // in the ring.
            && sequence.started + 1 < books.step
    });
    let Some(last) = last else { return false };
    let sequence = books.sequences.get_mut(last);
    sequence.made_way += 1;
    sequence.made_way_at = sequence.tokens.len();
    // The sequence will compute these rows again. Its key must not be charged for them twice.
    let (key, rows) = (sequence.asked.key, sequence.planned.saturating_sub(sequence.cached));
    books.shares.refund(key, rows);
    pressure::preempt(books, batch, last);
    true
}
