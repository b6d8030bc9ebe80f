//! What clients ask for with slots: to save the text of a slot in a file, to bring the text of a file
//! back, and to erase a text.
//!
//! A text is saved from the prefix store, so it is copied there first; until then, no other sequence
//! takes its slot. A text that is brought back is one of the texts in files ([`super::disk`]): a
//! sequence that begins like it reads its pages.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::books::Books;
use super::disk_state;
use super::slot_state::{Listing, Saving, SlotRefusal, SlotTask, SlotTasks, Waiting};
use super::tuning::REUSE_TOKENS_MIN;
use crate::limits::SLOT_TASKS_MAX;
use crate::ring::files::{FileJob, FileTask, Outcome};
use crate::types::{CacheScope, KeyId, Position, SlotAction, SlotId, TokenId};

/// Takes a task.
pub(super) fn ask(books: &mut Books, task: SlotTask) {
    let tasks = &mut books.slot_tasks;
    if tasks.waiting.len() >= SLOT_TASKS_MAX {
        tasks.end(task, Err(SlotRefusal::Busy));
    } else {
        tasks.waiting.push_back(Waiting { task, text: None, failed: None });
    }
}

/// Begins the tasks that can begin.
pub(super) fn advance(books: &mut Books) {
    loop {
        let ended = books.slot_tasks.ended();
        advance_each(books);
        // A task may have waited for one that has ended since.
        if books.slot_tasks.ended() == ended {
            return;
        }
    }
}

/// Begins each task that can begin. Those of a key with the same slot keep their order.
fn advance_each(books: &mut Books) {
    let mut before: heapless::Vec<(KeyId, SlotId), SLOT_TASKS_MAX> = heapless::Vec::new();
    for _ in 0..books.slot_tasks.waiting.len() {
        let waiting = books.slot_tasks.waiting.pop_front().expect("it was counted");
        let place = (waiting.task.scope.key, waiting.task.slot);
        let is_erased = waiting.task.action == SlotAction::Erase && waiting.text.is_some();
        if waiting.task.abandoned.load(Ordering::Relaxed) && !is_erased {
            books.slot_tasks.end(waiting.task, Err(SlotRefusal::Busy)); // nobody reads it
            continue;
        }
        let waits = before.contains(&place) || !may_begin(books, &waiting);
        let left = match waiting.task.action {
            _ if waits => Some(waiting),
            SlotAction::Restore => {
                begin_listing(&mut books.slot_tasks, waiting.task);
                None
            }
            SlotAction::Save => save(books, waiting),
            SlotAction::Erase => erase(books, waiting),
        };
        if let Some(waiting) = left {
            books.slot_tasks.waiting.push_back(waiting);
            before.push(place).expect("at most one for each task");
        }
    }
}

fn may_begin(books: &Books, waiting: &Waiting) -> bool {
    let tasks = &books.slot_tasks;
    let is_free = |waiting: &Waiting| waiting.text.is_some() || !is_held(books, &waiting.task);
    match waiting.task.action {
        SlotAction::Restore => tasks.listing.is_none(),
        SlotAction::Save => {
            // The keys take turns.
            let is_other = |waiting: &&Waiting| {
                waiting.task.action == SlotAction::Save
                    && Some(waiting.task.scope.key) != tasks.last
                    && is_free(waiting)
            };
            let is_next = Some(waiting.task.scope.key) != tasks.last
                || !tasks.waiting.iter().any(|other| is_other(&other));
            tasks.saving.is_none() && is_next && is_free(waiting)
        }
        SlotAction::Erase => {
            let is_listed = |disk: &disk_state::Disk| disk.listing == disk_state::Listing::Done;
            is_free(waiting) && books.disk.as_ref().is_none_or(is_listed)
        }
    }
}

/// Whether a sequence of the task's client holds the slot. Nobody waits for those of others.
fn is_held(books: &Books, task: &SlotTask) -> bool {
    books.slots.holder_of(task.slot).is_some_and(|id| {
        let asked = &books.sequences.get(id).asked;
        asked.cache.map_or(asked.key, |scope| scope.key) == task.scope.key
    })
}

/// The text in a free slot with its scope, if it belongs to the task's client.
fn own_text(books: &Books, task: &SlotTask) -> Option<(CacheScope, Vec<TokenId>)> {
    let scope = books.slots.scope_of(task.slot)?;
    let is_own = (scope.key, scope.tenant) == (task.scope.key, task.scope.tenant);
    is_own.then(|| (scope, books.slots.text(task.slot).to_vec()))
}

/// Begins to save the text of a slot, once the prefix store has it. Until then, returns the task.
fn save(books: &mut Books, mut waiting: Waiting) -> Option<Waiting> {
    let slot = waiting.task.slot;
    let is_new = waiting.text.is_none();
    waiting.text = waiting.text.or_else(|| own_text(books, &waiting.task));
    let Some((scope, text)) = &waiting.text else {
        books.slot_tasks.end(waiting.task, Err(SlotRefusal::NoText));
        return None;
    };
    let tokens = text.len();
    let mut stored = books.store.find(*scope, text);
    let mut state = None;
    if books.capacity.states.is_some() {
        state = books.store.state_of(&stored, &books.cells.checkpoints);
        stored.tokens = state.map_or(0, |(_, tokens)| tokens);
        stored.pages.truncate(stored.tokens.div_ceil(books.store.page_tokens()));
    }
    let is_all = stored.tokens > 0 && stored.tokens + REUSE_TOKENS_MIN > tokens;
    if is_new && (!is_all || books.slots.dirty_in(slot).is_some()) {
        books.slots.want(slot); // the store may have lost some of it since it was copied
        books.slot_tasks.needs_step = true;
        return Some(waiting);
    }
    let checkpoints = &books.cells.checkpoints;
    let is_made = !books.slots.is_wanted(slot)
        && stored.pages.iter().all(|page| books.store.is_made(*page))
        && state.is_none_or(|((state, _), _)| checkpoints.is_made(state));
    if !is_made {
        return Some(waiting); // steps still copy it
    }
    // Behind the last state of a model that has states, tokens are computed again.
    let is_enough = is_all || (state.is_some() && stored.tokens > 0);
    let Some(disk) = books.disk.as_ref().filter(|_| is_enough) else {
        let refusal = SlotRefusal::NoRoom { stored: stored.tokens, tokens };
        books.slot_tasks.end(waiting.task, Err(refusal));
        return None;
    };
    let mut jobs = VecDeque::from([FileJob::BeginSave]);
    let mut parent = scope.root(&disk.files.sizes().seed);
    let mut states = Vec::new();
    for page in &stored.pages {
        let file = books.store.file_of(*page).expect("texts have names");
        jobs.push_back(FileJob::SavePage { page: *page, file, parent });
        for (place, at) in books.store.states_in(*page, checkpoints) {
            if at <= stored.tokens && checkpoints.is_made(place) {
                let position = Position(at as u32); // at most SEQUENCE_TOKENS_MAX
                jobs.push_back(FileJob::SaveState { place, position, file });
                states.push(place);
            }
        }
        parent = file;
    }
    jobs.push_back(FileJob::EndSave { keep: true });
    let tokens = match state {
        Some(_) => stored.tokens,
        None => stored.pages.iter().map(|page| books.store.tokens_of(*page)).sum(),
    };
    books.store.pin(&stored.pages);
    states.iter().for_each(|state| books.cells.checkpoints.pin(*state));
    books.slot_tasks.last = Some(waiting.task.scope.key);
    let (task, pages, is_asked, failed) = (waiting.task, stored.pages, false, None);
    let saving = Saving { task, pages, states, tokens, jobs, is_asked, failed };
    books.slot_tasks.saving = Some(saving);
    None
}

/// Removes a text and its beginnings from free slots, from the prefix store and from files. Pages
/// that belong to other texts, too, stay. Returns the task until the files are removed.
fn erase(books: &mut Books, mut waiting: Waiting) -> Option<Waiting> {
    waiting.text = waiting.text.or_else(|| own_text(books, &waiting.task));
    let Some((scope, text)) = &waiting.text else {
        books.slot_tasks.end(waiting.task, Ok((0, 0)));
        return None;
    };
    books.slot_tasks.needs_step |= books.slots.erase(*scope, text);
    let mut is_gone = books.store.erase(*scope, text, &mut books.cells.checkpoints);
    if let Some(disk) = &mut books.disk {
        for files in [&mut disk.files, &mut disk.saved] {
            is_gone &= files.erase(*scope, text, books.store.page_tokens());
        }
        is_gone &= !disk.is_removing();
    }
    if !is_gone {
        return Some(waiting);
    }
    let done = waiting.failed.map_or(Ok((text.len(), 0)), Err);
    books.slot_tasks.end(waiting.task, done);
    None
}

fn begin_listing(tasks: &mut SlotTasks, task: SlotTask) {
    let (is_asked, is_begun, tokens, state) = (false, false, 0, 0);
    tasks.listing = Some(Listing { task, is_asked, is_begun, tokens, state });
}

/// The next job for the disk lane, whose names of texts begin with `seed`.
pub(super) fn next_task(tasks: &mut SlotTasks, seed: &[u8; 32]) -> Option<FileTask> {
    let path_of =
        |task: &SlotTask, is_first| if is_first { task.path.clone() } else { PathBuf::new() };
    if let Some(listing) = tasks.listing.as_mut().filter(|listing| !listing.is_asked) {
        let path = path_of(&listing.task, !listing.is_begun);
        (listing.is_asked, listing.is_begun) = (true, true);
        let job = FileJob::ListSave { root: listing.task.scope.root(seed) };
        return Some(FileTask { job, path, ..FileTask::default() });
    }
    let saving = tasks.saving.as_mut().filter(|saving| !saving.is_asked)?;
    let job = saving.jobs.pop_front().expect("the last one ends it");
    saving.is_asked = true;
    let path = path_of(&saving.task, job == FileJob::BeginSave);
    Some(FileTask { job, path, ..FileTask::default() })
}

/// Takes some pages of the file of a slot.
pub(super) fn listed(books: &mut Books, task: FileTask) {
    let tasks = &mut books.slot_tasks;
    let mut listing = tasks.listing.take().expect("it was asked");
    let FileTask { outcome, reason, bytes, found, .. } = task;
    let done = if outcome != Outcome::Done {
        Err(SlotRefusal::File(outcome, reason))
    } else if found.is_empty() {
        let has_states = books.capacity.states.is_some();
        Ok((if has_states { listing.state } else { listing.tokens }, bytes))
    } else {
        let disk = books.disk.as_mut().expect("jobs go there");
        for page in found {
            listing.tokens += page.tokens.len();
            let states = page.states.iter().map(|position| *position as usize);
            listing.state = states.max().unwrap_or(listing.state);
            disk.saved.restore(page);
        }
        listing.is_asked = false;
        tasks.listing = Some(listing);
        return;
    };
    tasks.end(listing.task, done);
}

/// Takes a job of the text that is being saved.
pub(super) fn saved(books: &mut Books, task: FileTask) {
    let Books { slot_tasks, store, cells, .. } = books;
    let mut saving = slot_tasks.saving.take().expect("it was asked");
    saving.is_asked = false;
    if task.outcome != Outcome::Done {
        saving.jobs.clear();
        if !matches!(task.job, FileJob::BeginSave | FileJob::EndSave { .. }) {
            saving.jobs.push_back(FileJob::EndSave { keep: false });
        }
        let refusal = SlotRefusal::File(task.outcome, task.reason);
        saving.failed.get_or_insert(refusal);
    }
    if saving.jobs.is_empty() {
        store.unpin(&saving.pages);
        saving.states.iter().for_each(|state| cells.checkpoints.unpin(*state));
        let done = saving.failed.map_or(Ok((saving.tokens, task.bytes)), Err);
        slot_tasks.end(saving.task, done);
    } else {
        slot_tasks.saving = Some(saving);
    }
}

#[cfg(test)]
mod tests {
    use super::super::capacity::{Capacity, Pages};
    use super::*;
    use crate::types::ItlTarget;

    /// The keys take turns, and a task that has nothing to save ends at once.
    #[test]
    fn a_task_that_waited_for_one_that_ends_goes_on_in_the_same_turn() {
        let mut books = Books::new(Capacity {
            slots: 2,
            step_rows: 8,
            itl_target: ItlTarget::Chosen,
            context_tokens: 64,
            sequence_tokens: 32,
            queue_sequences: 4,
            queue_tokens: 100,
            reuse: true,
            states: None,
            logits: 0,
            pages: Pages { count: 4, tokens: 16 },
            files: None,
            own_cells: false,
            looks_up: false,
            drafts: false,
            weights: vec![1.0; 2],
        });
        let save = |place: u16| SlotTask {
            ticket: place.into(),
            action: SlotAction::Save,
            slot: SlotId(0),
            scope: CacheScope { key: KeyId::at(place), ..CacheScope::default() },
            path: PathBuf::new(),
            abandoned: Default::default(),
        };
        books.slot_tasks.last = Some(KeyId::at(0));
        for place in [0, 1] {
            ask(&mut books, save(place));
        }
        advance(&mut books);
        let ended = books.slot_tasks.take_outcomes();
        assert_eq!(ended.iter().map(|one| one.task.ticket).collect::<Vec<_>>(), [1, 0]);
        assert!(ended.iter().all(|one| one.done == Err(SlotRefusal::NoText)));
    }
}
