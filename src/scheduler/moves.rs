//! Moves between the KV cache and the prefix store.
//!
//! Texts that ended are copied into the store a few pages in a step, short ones before long ones.
//! When a slot or its cells are needed, texts that are stored go first. A sequence whose
//! prompt begins like a stored text starts with those pages, as soon as they are copied back.

use std::time::Duration;

use super::books::Books;
use super::cost::Rows;
use super::sequence::{Loads, Stage};
use super::slots::Dirty;
use super::store::Stored;
use super::tuning::{LOADS_PART, LOADS_TIME, REUSE_TOKENS_MIN, STORES_PART, STORES_TIME};
use super::{pressure, times};
use crate::limits::PAGES_STEP_MAX;
use crate::ring::message::{Batch, Load, Save, SaveKind, StorePage};
use crate::types::{Position, SequenceId, SlotId};

/// What the store has of a sequence.
#[derive(Default)]
pub(super) struct Found {
    /// Its first tokens in the store, even without a state behind them.
    pub shared: usize,
    /// The pages to start with, if they are worth more than what the KV cache has.
    pub loads: Option<Loads>,
}

/// Searches the store for a sequence of which the KV cache has the first `ready` tokens.
pub(super) fn find(books: &Books, id: SequenceId, ready: usize) -> Found {
    let sequence = books.sequences.get(id);
    let may_load = books.capacity.reuse && books.store.exists() && !sequence.avoids_store;
    let Some(scope) = sequence.asked.cache.filter(|_| may_load) else { return Found::default() };
    let stored = books.store.find(scope, &sequence.tokens[..sequence.reusable()]);
    Found { shared: stored.tokens, loads: loads_of(books, stored, ready) }
}

/// The pages of a stored text to start with, if they are worth more than the first `ready` tokens
/// that the KV cache has. The first pages that these tokens cover are left out, except with a
/// model that has states.
fn loads_of(books: &Books, mut stored: Stored, ready: usize) -> Option<Loads> {
    let mut checkpoint = None;
    if books.capacity.states.is_some() {
        let (state, tokens) = books.store.state_of(&stored, &books.cells.checkpoints)?;
        (checkpoint, stored.tokens) = (Some(state), tokens);
    }
    let page_tokens = books.store.page_tokens();
    let first = if checkpoint.is_some() { 0 } else { ready / page_tokens };
    let pages = stored.pages.get(first..stored.tokens.div_ceil(page_tokens))?;
    let saved = stored.tokens.saturating_sub(ready);
    let copies = books.page_took.unwrap_or_default() * pages.len() as u32; // at most PAGES_MAX
    let rows = Rows::of(ready, saved);
    let is_slower = books.cost.step(Rows::default(), rows).is_some_and(|time| copies > time);
    if saved < REUSE_TOKENS_MIN || is_slower {
        return None;
    }
    Some(Loads { pages: pages.to_vec(), next: 0, tokens: stored.tokens, checkpoint })
}

/// The tokens that a sequence with these loads keeps of those that the KV cache has.
pub(super) fn kept_before(books: &Books, loads: &Loads) -> usize {
    let page_tokens = books.store.page_tokens();
    loads.tokens.div_ceil(page_tokens).saturating_sub(loads.pages.len()) * page_tokens
}

/// Lets a running sequence load pages. They were pinned since.
pub(super) fn begin(books: &mut Books, id: SequenceId, loads: Loads) {
    let sequence = books.sequences.get_mut(id);
    let more = loads.tokens - sequence.planned;
    let before = sequence.cached;
    sequence.cached = loads.tokens.min(sequence.prompt_tokens);
    sequence.restored = sequence.cached - before;
    sequence.fetched = sequence.fetch.as_ref().map_or(0, |fetch| fetch.tokens);
    sequence.fetched = sequence.fetched.min(sequence.restored);
    books.tally.fetched_tokens += sequence.fetched as u64;
    sequence.loads = Some(loads);
    let slot = sequence.owner().slot;
    books.windows.lose(slot, books.step); // until the state has come
    books.tally.cached_tokens += more as u64;
    books.tally.restored_tokens += more as u64;
}

/// Plans copies from the store for sequences that wait for them.
pub(super) fn load(books: &mut Books, batch: &mut Batch) {
    if !books.store.exists() {
        return;
    }
    let mut room = pages_beside(books);
    for index in (0..books.held.len()).rev() {
        let id = books.held[index];
        while room > 0 && load_next(books, batch, id) {
            room -= 1;
        }
    }
}

/// The pages that a step copies for a sequence that waits for them.
fn pages_beside(books: &Books) -> usize {
    let mut decode = Rows::default();
    let decoding = books.held.iter().filter(|id| books.decodes(**id));
    decoding.for_each(|id| decode.add(books.sequences.get(*id).planned));
    let time = match decode.count {
        0 => Some(LOADS_TIME),
        _ => books.cost.decode(decode).map(|time| time.mul_f64(LOADS_PART)),
    };
    pages_within(books, time)
}

/// Plans the copy of a sequence's next page. Returns false if it has none, or if it has to wait.
fn load_next(books: &mut Books, batch: &mut Batch, id: SequenceId) -> bool {
    let sequence = books.sequences.get(id);
    let (Stage::Running(owner), Some(loads)) = (sequence.state, &sequence.loads) else {
        return false;
    };
    let (page, from, end) = (loads.pages[loads.next], sequence.planned, loads.tokens);
    let (is_last, started) = (loads.next + 1 == loads.pages.len(), sequence.started);
    let checkpoint = loads.checkpoint;
    // All tokens of the page are copied before those too many are removed.
    let cells = books.store.tokens_of(page);
    let to = (from + cells).min(end);
    let is_there = checkpoint
        .is_none_or(|(id, serial)| books.cells.checkpoints.position(id, serial) == Some(end));
    books.evict(batch, cells);
    if books.cells.left() < cells || !is_there {
        if books.capacity.states.is_none() {
            books.drop_loads(id); // the prompt goes on from here
        } else if started < books.step {
            // Cells without a state are of no use.
            pressure::preempt(books, batch, id);
            books.sequences.get_mut(id).avoids_store = true;
        }
        return false;
    }
    let states = books.store.states_in(page, &books.cells.checkpoints);
    let mut states: Vec<_> = states.filter(|(_, at)| *at <= end).collect();
    states.sort_unstable_by_key(|(_, at)| *at);
    for (state, _) in states {
        books.cells.checkpoints.attach(state, owner.slot);
    }
    let (from, position) = (Position(from as u32), Position(to as u32)); // below sequence_tokens
    let checkpoint = checkpoint.filter(|_| is_last).map(|(id, _)| id);
    let load = Load { owner, page, from, to: position, checkpoint };
    batch.loads.push(load).expect("a step has no more");
    books.sequences.get_mut(id).planned = to;
    books.grow(owner.slot, to);
    if is_last {
        books.windows.replace(owner.slot, to, books.step);
        books.store.touch(Some(page), books.step); // texts that this step stores must not replace it
        books.drop_loads(id);
    } else {
        books.windows.lose(owner.slot, books.step); // as in `begin`
        let loads = &mut books.sequences.get_mut(id).loads;
        loads.as_mut().expect("it has one more page").next += 1;
    }
    true
}

/// Plans copies of ended texts into the store.
pub(super) fn store(books: &mut Books, batch: &mut Batch) {
    if !books.store.exists() || !batch.loads.is_empty() {
        return;
    }
    let time = if batch.rows.is_empty() {
        Some(STORES_TIME)
    } else {
        times::step_time(books, batch).map(|time| time.mul_f64(STORES_PART))
    };
    while batch.stores.len() < pages_within(books, time) {
        let Some(dirty) = books.slots.dirty() else { return };
        if !store_next(books, batch, dirty) {
            books.slots.clean(dirty.slot);
        }
    }
}

/// Plans copies of the text in a slot that another sequence is about to take. Returns false if it
/// must not take the slot in this step, because a client waits for the rest of the text to be copied.
pub(super) fn store_before_it_is_lost(books: &mut Books, batch: &mut Batch, slot: SlotId) -> bool {
    let dirty = books.slots.dirty_in(slot).filter(|_| books.store.exists());
    let Some(dirty) = dirty else { return true };
    let room = pages_beside(books);
    while batch.stores.len() < room {
        if !store_next(books, batch, dirty) {
            books.slots.clean(slot);
            return true;
        }
    }
    !books.slots.is_wanted(slot)
}

/// Plans the copy of the first page of a slot that the store lacks. Returns false if it has all.
fn store_next(books: &mut Books, batch: &mut Batch, dirty: Dirty) -> bool {
    let Dirty { slot, owner, scope, is_all } = dirty;
    let text = books.slots.text(slot);
    let checkpoints = &mut books.cells.checkpoints;
    let end = text.len();
    let has_states = books.capacity.states.is_some();
    if has_states && is_all && checkpoints.is_worth(slot, end) && !batch.saves.is_full() {
        // The state behind the text goes on from there.
        if let Some(checkpoint) = checkpoints.save(slot, end, books.step) {
            let position = Position(end as u32); // at most sequence_tokens
            let what = SaveKind::State(checkpoint);
            let save = Save { owner, position, what, is_made: false };
            batch.saves.push(save).expect("there is room");
        }
    }
    // A model with states needs no cells behind the last state.
    let end = match has_states {
        true => checkpoints.find(slot, end).map_or(0, |(_, tokens)| tokens),
        false => end,
    };
    let least = if has_states { 1 } else { REUSE_TOKENS_MIN };
    let text = &text[..end];
    let Some(missing) = books.store.missing(scope, text, least, books.step) else {
        attach_states(books, dirty, end);
        return false;
    };
    let Some(page) = books.store.add(scope, text, missing, books.step, checkpoints) else {
        return false;
    };
    // Now, because the slot may be taken before all of the text is stored.
    let states: Vec<_> = checkpoints.between(slot, missing.from, missing.to).collect();
    states.into_iter().for_each(|state| books.store.attach(page, state, checkpoints));
    let (from, to) = (Position(missing.from as u32), Position(missing.to as u32)); // as above
    let copy = StorePage { slot, from, to, page, is_made: false };
    batch.stores.push(copy).expect("a step has no more");
    true
}

/// Lets the pages of a text that is stored keep its saved states.
fn attach_states(books: &mut Books, dirty: Dirty, end: usize) {
    let text = &books.slots.text(dirty.slot)[..end];
    let stored = books.store.find(dirty.scope, text);
    let page_tokens = books.store.page_tokens();
    for (index, page) in stored.pages.iter().enumerate() {
        let (from, to) = (index * page_tokens, (index + 1) * page_tokens);
        let checkpoints = &mut books.cells.checkpoints;
        let known: Vec<_> = books.store.states_in(*page, checkpoints).map(|(id, _)| id).collect();
        let states = checkpoints.between(dirty.slot, from, to.min(stored.tokens));
        let new: Vec<_> = states.filter(|id| !known.contains(id)).collect();
        for state in new {
            books.store.attach(*page, state, checkpoints);
        }
        // Files that are used stay; those that have gone are written again.
        if let Some(disk) = &mut books.disk
            && let Some(file) = books.store.file_of(*page)
        {
            disk.files.touch(file);
            disk.note(*page);
        }
    }
}

/// The pages that can be copied within a time, at least one. One if the time is not known.
fn pages_within(books: &Books, time: Option<Duration>) -> usize {
    let Some((time, each)) = time.zip(books.page_took) else { return 1 };
    let pages = time.as_nanos() / each.as_nanos().max(1);
    usize::try_from(pages).unwrap_or(usize::MAX).clamp(1, PAGES_STEP_MAX)
}
