//! Starts: which waiting sequences get a slot, and which slot.
//!
//! A waiting sequence gets a free slot when the KV cache has room for its known tokens and for a
//! share of its future ones. The same room must be left for all running sequences. The lowest
//! priority number goes first, then the key with the least service for its weight
//! ([`super::shares`]), then the oldest. Another key overtakes the first one only to settle its
//! claim, to take a slot that is reserved for it, or while the first one does not fit.

use super::books::Books;
use super::reuse::{Prefix, Ready};
use super::sequence::Stage;
use super::shares::Overtaken;
use super::tuning::CHECKPOINT_TOKENS_MIN;
use super::{claims, constrained, moves, pressure, queue, reuse};
use crate::ring::message::Batch;
use crate::types::{KeyId, Owner, SequenceId, SlotId};

/// Restarts failed sequences at their position, or puts them back into the queue if they start again.
pub(super) fn restart_failed(books: &mut Books, batch: &mut Batch) {
    while let Some(id) = books.restarts.pop() {
        if !books.sequences.contains(id) {
            continue;
        }
        let sequence = books.sequences.get_mut(id);
        let Stage::Running(owner) = sequence.state else { continue };
        if std::mem::take(&mut sequence.starts_again) {
            pressure::put_back(books, batch, id);
        } else {
            sequence.push_start(batch, owner.slot, sequence.planned, None, None);
        }
    }
}

/// Gives slots to waiting sequences in order, while there are slots and cells. `claimant` goes
/// first. A sequence that does not fit delays the rest of its key. Other keys may overtake it for a
/// bounded number of steps.
pub(super) fn start_waiting(books: &mut Books, batch: &mut Batch, claimant: Option<SequenceId>) {
    let mut next = books.waiting.iter().position(|id| Some(*id) == claimant);
    let mut overtaken = Overtaken::new();
    while books.slots.free_count() > 0 {
        let first = next.take().or_else(|| claims::first_for_a_free_slot(books, &overtaken));
        let Some(index) = first else { return };
        let id = books.waiting[index];
        let is_first = overtaken.is_empty();
        let prefix = match queue::prefix_if_it_fits(books, id) {
            Ok(prefix) if is_first || claims::may_overtake(books, id) => Some(prefix),
            Err(cells) if is_first => {
                let sequence = books.sequences.get_mut(id);
                sequence.overtaken = sequence.overtaken.saturating_add(1);
                if !claims::may_be_overtaken(books, id, cells) {
                    return;
                }
                None
            }
            _ => None,
        };
        let Some(prefix) = prefix else {
            match overtaken.push(books.sequences.get(id).asked.key) {
                Ok(()) => continue,
                Err(_) => return,
            }
        };
        if !start_one(books, batch, id, prefix) {
            return;
        }
        books.waiting.swap_remove(index);
        books.end_fetch(id);
        let sequence = books.sequences.get(id);
        books.shares.leave(sequence.asked.key, sequence.tokens.len());
    }
}

/// Gives a slot to a sequence, preferably one that holds a prefix of it. Returns false if it
/// has to wait for the next step.
fn start_one(books: &mut Books, batch: &mut Batch, id: SequenceId, prefix: Prefix) -> bool {
    let asked = &books.sequences.get(id).asked;
    let owner = asked.cache.map_or(asked.key, |scope| scope.key);
    let wanted = asked.slot.filter(|slot| may_choose(books, *slot, owner));
    let free = wanted.or_else(|| claims::free_slot(books, asked.key));
    let free = free.expect("there is a free slot");
    let ready = prefix.ready.map_or(0, |ready| ready.tokens);
    let coming = prefix.coming.map_or(0, |(_, tokens)| tokens);
    let moves::Found { shared: stored, loads } = moves::find(books, id, ready);
    let loads = loads.filter(|loads| {
        // Loaded pages share no cells with the sequence that `prefix` counts on.
        let kept =
            prefix.ready.map(|ready| Ready { tokens: moves::kept_before(books, loads), ..ready });
        let shared = pressure::cells_shared(books, Prefix { ready: kept, ..Prefix::default() });
        loads.tokens > coming && queue::check_room(books, id, shared).is_ok()
    });
    // Texts that are stored meanwhile must not replace what this one starts from.
    let loaded = loads.as_ref().and_then(|loads| loads.checkpoint).map(|(state, _)| state);
    let states = [prefix.ready.and_then(|ready| ready.checkpoint), loaded];
    states.into_iter().flatten().for_each(|state| books.cells.checkpoints.touch(state, books.step));
    if let Some(loads) = &loads {
        books.store.pin(&loads.pages);
        books.store.touch(loads.pages.last().copied(), books.step);
    }
    if let Some((leader, tokens)) = prefix.coming.filter(|_| loads.is_none()) {
        if !moves::store_before_it_is_lost(books, batch, free) {
            return false;
        }
        let owner = take_slot(books, free, id, 0);
        reuse::follow(books, id, owner, leader, tokens);
        // This clears the slot: tokens left in it would occupy cells that the books do not count.
        books.sequences.get(id).push_start(batch, free, 0, None, None);
        return true;
    }
    let nothing = Ready::of(free, 0);
    let ready = match &loads {
        None => prefix.ready.unwrap_or(nothing),
        Some(loads) => {
            let kept = prefix.ready.map(|ready| (ready.slot, moves::kept_before(books, loads)));
            let kept = kept.filter(|(_, tokens)| *tokens > 0);
            kept.map_or(nothing, |(slot, tokens)| Ready::of(slot, tokens))
        }
    };
    let Ready { slot: source, tokens, checkpoint, .. } = ready;
    // Take the slot that holds the prefix if it is free, unless most of its tokens would be
    // lost to later sequences. The state of a slot stays there.
    let is_free = books.slots.is_free(source);
    let goes_on = books.capacity.states.is_some() && checkpoint.is_none();
    let in_place = is_free && 2 * tokens >= books.slots.kept_len(source);
    let in_place = in_place && (wanted.is_none() || goes_on);
    let place = if in_place { source } else { free };
    if (place != source && !reuse::may_copy(books))
        || !moves::store_before_it_is_lost(books, batch, place)
    {
        loads.iter().for_each(|loads| books.store.unpin(&loads.pages));
        return false;
    }
    let owner = take_slot(books, place, id, if place == source { tokens } else { 0 });
    reuse::start_running(books, batch, id, owner, ready);
    if let Some(loads) = loads {
        moves::begin(books, id, loads);
    }
    let shared = prefix.shared.max(stored);
    if shared >= books.sequences.get(id).cached + CHECKPOINT_TOKENS_MIN {
        reuse::stop_at(books, id, shared); // others will part from it there, too
    }
    true
}

/// Whether a sequence may choose its slot: it is free, and keeps no text of another key.
fn may_choose(books: &Books, slot: SlotId, key: KeyId) -> bool {
    let has_slot = !books.cells.are_own() && slot.index() < books.capacity.slots;
    let is_other = |slot| books.slots.keeper(slot).is_some_and(|keeper| keeper != key);
    has_slot && books.slots.is_free(slot) && !is_other(slot)
}

/// Gives a free slot to `id`. The sequence reuses the first `reused` tokens that the slot kept.
fn take_slot(books: &mut Books, slot: SlotId, id: SequenceId, reused: usize) -> Owner {
    books.tally.evicted_tokens += (books.slots.kept_len(slot) - reused) as u64;
    books.held.push(id).expect("one held slot for each slot");
    let sequence = books.sequences.get_mut(id);
    (sequence.started, sequence.draft_luck) = (books.step, books.draft_luck);
    books.cells.take(slot, reused, books.sequences.get(id).tokens_max());
    constrained::choose_mask_source(books, id);
    books.slots.take(slot, id)
}
