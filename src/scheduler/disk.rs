//! Moves between the prefix store in memory and its files.
//!
//! A page that was stored in memory is written to a file, and so are the states behind its
//! tokens. A waiting sequence whose prompt begins like a text in files waits until these are read
//! into memory, but no longer than computing the tokens would take. Then it starts as with any other
//! text of the store ([`super::moves`]).
//!
//! The disk lane has at most [`FILE_TASKS_MAX`] jobs. Reads go before writes.

use std::collections::VecDeque;
use std::time::Duration;

use super::books::Books;
use super::cost::Rows;
use super::disk_state::{Fetch, Listing, ReadState};
use super::store::Missing;
use super::tuning::{
    FETCH_TIME, FETCH_TIME_MIN, FETCHED_PART, FILES_PAUSE, LISTING_TIME, LOOK_UPS_MAX, READ_RATE,
    REUSE_TOKENS_MIN, WRITES_LOOKED,
};
use super::{queue, reuse, slot_files};
use crate::clock::Micros;
use crate::limits::{FILE_TASKS_MAX, FILE_WRITES_MAX};
use crate::ring::files::{FileJob, FileTask, Outcome, Source};
use crate::types::{CacheScope, FileId, Position, SequenceId};

/// Pages and a state to read.
#[derive(Default)]
struct Plan {
    /// The files of the pages of the text, from its start. Some of these pages are in memory.
    pages: VecDeque<FileId>,
    /// The file with the state behind them, for a model that has states.
    state: Option<FileId>,
    /// The tokens that the sequence has when all is read.
    tokens: usize,
    /// Those of them that it could not start with otherwise.
    saved: usize,
}

/// Lets waiting sequences that have just come wait for files, if these save them time.
pub(super) fn look_up(books: &mut Books, now: Micros) {
    let Some(disk) = &mut books.disk else { return };
    let list_until = *disk.list_until.get_or_insert(now + LISTING_TIME);
    let is_listed = disk.listing == Listing::Done;
    let mut fetching = 0;
    for id in &books.waiting {
        let Some(fetch) = &mut books.sequences.get_mut(*id).fetch else { continue };
        fetch.is_over |= now >= fetch.until;
        fetching += usize::from(!fetch.is_listing);
    }
    let is_new = |id: &SequenceId| {
        let sequence = books.sequences.get(*id);
        let may_load = books.capacity.reuse && !sequence.avoids_store && !sequence.looked_up;
        let waits = sequence.fetch.as_ref().is_some_and(|fetch| !is_listed || fetch.is_over);
        may_load && !waits && sequence.asked.cache.is_some()
    };
    let mut new: Vec<SequenceId> = books.waiting.iter().copied().filter(is_new).collect();
    new.sort_unstable_by(|a, b| queue::compare(books, *a, *b));
    // Later ones start when slots are free, and look then.
    new.truncate(LOOK_UPS_MAX.min(books.capacity.slots - fetching.min(books.capacity.slots)));
    for id in new {
        let sequence = books.sequences.get_mut(id);
        let scope = sequence.asked.cache.expect("as above");
        if !is_listed {
            let reusable = sequence.reusable();
            let ready = reuse::find_prefix(books, id).ready.map_or(0, |ready| ready.tokens);
            let saved = reusable.saturating_sub(ready);
            if saved < REUSE_TOKENS_MIN || now >= list_until {
                books.sequences.get_mut(id).looked_up = true;
                continue;
            }
            let until = now + computing(books, ready, saved);
            let fetch = Fetch { is_listing: true, until, ..Fetch::default() };
            books.sequences.get_mut(id).fetch = Some(fetch);
            continue;
        }
        sequence.looked_up = true;
        let listed = sequence.fetch.take();
        let prefix = reuse::find_prefix(books, id);
        let ready = prefix.ready.map_or(0, |ready| ready.tokens);
        let coming = prefix.coming.map_or(0, |(_, tokens)| tokens);
        let Some(plan) = plan(books, id, scope, ready).filter(|plan| plan.tokens > coming) else {
            continue;
        };
        let time = computing(books, ready, plan.saved);
        let until = listed.map_or(now + time, |listed| listed.until);
        let wanted_state = plan.state.map(|file| (file, plan.tokens));
        let fetch = Fetch { wanted: plan.pages, wanted_state, until, ..Fetch::default() };
        books.sequences.get_mut(id).fetch = Some(fetch);
    }
}

/// The time to compute `count` tokens of a text behind its first `ready`.
fn computing(books: &Books, ready: usize, count: usize) -> Duration {
    books
        .cost
        .step(Rows::default(), Rows::of(ready, count))
        .unwrap_or(FETCH_TIME)
        .max(FETCH_TIME_MIN)
}

/// What to read for a sequence of which the KV cache has the first `ready` tokens. `None` if it is
/// not worth it.
fn plan(books: &mut Books, id: SequenceId, scope: CacheScope, ready: usize) -> Option<Plan> {
    let disk = books.disk.as_ref()?;
    let sequence = books.sequences.get(id);
    let wanted = &sequence.tokens[..sequence.reusable()];
    let page_tokens = books.store.page_tokens();
    let has_states = books.capacity.states.is_some();
    // The files that others wait for, and those for which there is room beside them.
    let others = books.waiting.iter().filter_map(|id| books.sequences.get(*id).fetch.as_ref());
    let others: usize = others.map(|fetch| fetch.wanted.len() + fetch.coming).sum();
    let room = (books.capacity.pages.count as f64 * FETCHED_PART) as usize;
    let room = room.saturating_sub(others);

    let (mut pages, mut tokens, mut to_read) = (VecDeque::new(), 0, 0);
    let mut here = Some(None); // the last page, while all are in memory
    let mut text = scope.root(&disk.files.sizes().seed);
    let mut last_state = None; // the last state in a file: its tokens, its page, and the pages to it
    while tokens < wanted.len() {
        let rest = &wanted[tokens..];
        let found = here.and_then(|parent| books.store.next_coming(scope, parent, rest));
        let in_file = match found {
            Some((_, same)) if same == page_tokens => None,
            _ => disk.next(text, rest, page_tokens),
        };
        let in_file = in_file.filter(|next| found.is_none_or(|(_, same)| next.same > same));
        let (file, same) = match (in_file, found) {
            (Some(next), _) => (next.file, next.same),
            (None, Some((page, same))) => (books.store.file_of(page)?, same),
            (None, None) => break,
        };
        here = found.filter(|_| in_file.is_none()).map(|(page, _)| Some(page));
        let is_here = here.flatten().is_some_and(|page| !books.store.is_coming(page));
        if !is_here && to_read == room {
            break;
        }
        to_read += usize::from(!is_here);
        pages.push_back(file);
        (text, tokens) = (file, tokens + same);
        let of_page = disk.states_of(file).filter(|at| *at <= tokens);
        let state = of_page.max().map(|at| (at, file, pages.len()));
        last_state = state.max(last_state);
        if same < page_tokens {
            break;
        }
    }
    let mut state = None;
    if has_states {
        let (at, file, count) = last_state?;
        (tokens, state) = (at, Some(file));
        pages.truncate(count);
    }
    // The tokens that the sequence can start with now.
    let stored = books.store.find(scope, wanted);
    let best = match has_states {
        false => stored.tokens,
        true => {
            let state = books.store.state_of(&stored, &books.cells.checkpoints);
            state.map_or(0, |(_, tokens)| tokens)
        }
    };
    let best = best.max(ready);
    let saved = tokens.saturating_sub(best);
    if saved < REUSE_TOKENS_MIN || (to_read == 0 && state.is_none()) {
        return None;
    }
    let sizes = disk.files.sizes();
    let bytes = sizes.page_bytes * (to_read + others) as u64
        + if has_states { sizes.state_bytes } else { 0 };
    let reading = Duration::from_secs_f64(disk.read_s * bytes as f64);
    let copying = books.page_took.unwrap_or_default() * pages.len() as u32; // at most PAGES_MAX
    let computing = books.cost.step(Rows::default(), Rows::of(best, saved));
    if computing.is_some_and(|time| reading + copying > time) {
        // One slow read must not be the last one.
        books.disk.as_mut()?.read_s *= 1.0 - READ_RATE;
        return None;
    }
    Some(Plan { pages, state, tokens, saved })
}

/// Finds the next file to read for a waiting sequence, and a place for it in memory. Returns false
/// if there is nothing to read for any of them.
fn read_next(books: &mut Books) -> bool {
    for index in 0..books.waiting.len() {
        let id = books.waiting[index];
        let sequence = books.sequences.get_mut(id);
        let Some(scope) = sequence.asked.cache else { continue };
        let Some(mut fetch) = sequence.fetch.take() else { continue };
        let begins = !fetch.is_over && read_next_of(books, scope, &mut fetch);
        fetch.end_if_complete();
        books.sequences.get_mut(id).fetch = Some(fetch);
        if begins {
            return true;
        }
    }
    false
}

/// Finds the next file to read for one waiting sequence. Pages that are in memory already, or that
/// another sequence waits for, are not read again.
fn read_next_of(books: &mut Books, scope: CacheScope, fetch: &mut Fetch) -> bool {
    let (step, sent) = (books.step, books.sent);
    let Some(disk) = &mut books.disk else { return false };
    let (store, checkpoints) = (&mut books.store, &mut books.cells.checkpoints);
    while let Some(file) = fetch.wanted.pop_front() {
        let parent = fetch.pages.last().copied();
        if let Some(page) = store.named(scope, parent, file) {
            store.pin(&[page]);
            fetch.pages.push(page);
            fetch.coming += usize::from(store.is_coming(page));
            continue;
        }
        let page = disk.source_of(file).and_then(|(source, tokens)| {
            let missing = Missing { parent, shorter: None, from: 0, to: tokens.len() };
            Some((source, store.add(scope, tokens, missing, step, checkpoints)?))
        });
        let Some((source, page)) = page else {
            fetch.give_up(); // it has gone, or there is no room
            return false;
        };
        store.await_file(page);
        store.pin(&[page, page]); // for the job, and for the sequence
        fetch.pages.push(page);
        fetch.coming += 1;
        disk.of(source).begin_read(file);
        disk.reads.push_back((sent, FileJob::ReadPage { page, file, source }));
        return true;
    }
    let (Some((file, position)), Some(page)) = (fetch.wanted_state.take(), fetch.pages.last())
    else {
        return false;
    };
    let page = *page;
    if store.states_in(page, checkpoints).any(|(_, at)| at == position) {
        return false;
    }
    let is_meant = |read: &&ReadState| (read.page, read.position) == (page, position);
    if let Some(read) = disk.states.iter().find(is_meant) {
        fetch.state = Some(read.place);
        return false;
    }
    let Some(source) = disk.source_of_state(file, position) else { return false }; // it has gone
    let Some(place) = checkpoints.reserve(position, step) else { return false };
    disk.of(source).begin_read(file);
    disk.states.push(ReadState { place, page, position });
    let position = Position(position as u32); // at most SEQUENCE_TOKENS_MAX
    disk.reads.push_back((sent, FileJob::ReadState { place, position, file, source }));
    store.pin(&[page]);
    fetch.state = Some(place);
    true
}

/// The time at which the first wait ends, or writes go on, even if nothing comes back until then.
pub(super) fn next_end(books: &Books, now: Micros) -> Option<Micros> {
    let fetches = books.waiting.iter().filter_map(|id| books.sequences.get(*id).fetch.as_ref());
    let waits = fetches.filter(|fetch| !fetch.is_over).map(|fetch| fetch.until).min();
    let disk = books.disk.as_ref().filter(|disk| disk.has_unwritten());
    let pause = disk.map(|disk| disk.paused_until).filter(|until| *until > now);
    waits.into_iter().chain(pause).min()
}

/// Whether texts still have to be written to files, and writing works.
pub(super) fn has_to_write(books: &Books, now: Micros) -> bool {
    let Some(disk) = &books.disk else { return false };
    let works = disk.writes && disk.listing == Listing::Done && now >= disk.paused_until;
    works && (disk.jobs > 0 || disk.has_unwritten() || books.slots.dirty().is_some())
}

/// The next job for the disk lane, if there is one and the lane has room for it.
pub(super) fn next_task(books: &mut Books, now: Micros) -> Option<FileTask> {
    let returned = books.returned;
    let disk = books.disk.as_mut().filter(|disk| disk.jobs < FILE_TASKS_MAX)?;
    let mut task = FileTask::default();
    if disk.listing == Listing::Wanted {
        disk.listing = Listing::Asked;
    } else if let Some(removal) = disk.next_removal() {
        task = removal;
    } else if let Some(job) = next_read(books, returned) {
        task.job = job;
    } else if let Some(disk) = books.disk.as_ref().filter(|disk| disk.listing == Listing::Done)
        && let Some(asked) = slot_files::next_task(&mut books.slot_tasks, &disk.files.sizes().seed)
    {
        task = asked;
    } else {
        let disk = books.disk.as_ref()?;
        let works = disk.writes && disk.listing == Listing::Done && now >= disk.paused_until;
        if !works || disk.jobs >= FILE_WRITES_MAX {
            return None;
        }
        task = next_write(books)?;
    }
    let disk = books.disk.as_mut()?;
    disk.jobs += 1;
    disk.removals += usize::from(matches!(task.job, FileJob::Remove { .. }));
    Some(task)
}

/// The next file to read, as soon as no step uses what its place in memory held before.
fn next_read(books: &mut Books, returned: u64) -> Option<FileJob> {
    let disk = books.disk.as_ref()?;
    let begun = disk.jobs + disk.reads.len();
    if begun < FILE_TASKS_MAX {
        read_next(books);
    }
    let reads = &mut books.disk.as_mut()?.reads;
    Some(reads.pop_front_if(|(step, _)| *step <= returned)?.1)
}

/// The next write, or the removal that must come before it.
fn next_write(books: &mut Books) -> Option<FileTask> {
    let Books { disk, store, cells, .. } = &mut *books;
    let disk = disk.as_mut()?;
    let mut looked = 0..WRITES_LOOKED;
    let (job, bytes, kept) = loop {
        looked.next()?;
        let page = disk.next_unwritten()?;
        let Some(file) = store.file_of(page).filter(|_| store.has_cells(page)) else {
            continue; // it has gone
        };
        if !store.is_made(page) {
            disk.note(page); // a step in flight stores it
            continue;
        }
        let sizes = disk.files.sizes();
        if !disk.files.has(file) {
            disk.note_first(page); // its states come after it
            let parent = store.parent_of(page);
            let before = match parent {
                Some(parent) => store.file_of(parent)?,
                None => store.scope_of(page).root(&sizes.seed),
            };
            if let Some(parent) = parent.filter(|parent| store.is_made(*parent))
                && !disk.files.has(before)
            {
                disk.note_first(parent);
                continue;
            }
            let job = FileJob::WritePage { page, file, parent: before };
            break (job, sizes.page_bytes, [file, before]);
        }
        let mut states = store.states_in(page, &cells.checkpoints);
        let Some((place, position)) = states.find(|(_, at)| !disk.files.has_state(file, *at))
        else {
            continue; // all is written
        };
        if !cells.checkpoints.is_made(place) {
            disk.note(page); // a step in flight saves it
            continue;
        }
        disk.note_first(page); // it may have more states
        let position = Position(position as u32); // at most SEQUENCE_TOKENS_MAX
        break (FileJob::WriteState { place, position, file }, sizes.state_bytes, [file; 2]);
    };
    let mut task = FileTask { job, ..FileTask::default() };
    let Ok(removed) = disk.files.make_room(bytes, kept) else {
        disk.forget_unwritten(); // the files that are used leave no room
        return None;
    };
    match removed {
        Some(file) => {
            task.states = disk.files.remove(file);
            task.job = FileJob::Remove { file, source: Source::Store };
        }
        None => match job {
            FileJob::WritePage { page, file, parent } => {
                disk.files.begin_page(file, parent, store.tokens_in(page));
                store.pin(&[page]);
            }
            FileJob::WriteState { place, position, file } => {
                disk.files.begin_state(file, position.index());
                cells.checkpoints.pin(place);
            }
            _ => unreachable!("a write"),
        },
    }
    Some(task)
}

/// Takes a job that came back from the disk lane.
pub(super) fn done(books: &mut Books, task: FileTask, now: Micros) {
    let Books { disk, store, cells, waiting, sequences, slot_tasks, .. } = &mut *books;
    let disk = disk.as_mut().expect("jobs come from there");
    disk.jobs -= 1;
    match task.job {
        FileJob::BeginSave
        | FileJob::SavePage { .. }
        | FileJob::SaveState { .. }
        | FileJob::EndSave { .. } => return slot_files::saved(books, task),
        FileJob::ListSave { .. } => return slot_files::listed(books, task),
        _ => {}
    }
    let checkpoints = &mut cells.checkpoints;
    let is_done = task.outcome == Outcome::Done;
    let is_gone = task.outcome == Outcome::Gone;
    match task.job {
        FileJob::List => {
            let is_all = task.found.is_empty();
            disk.listing = if is_all { Listing::Done } else { Listing::Wanted };
            task.found.into_iter().for_each(|page| disk.files.found(page));
        }
        FileJob::WritePage { page, file, .. } => {
            store.unpin(&[page]);
            disk.files.end_page(file, is_done.then_some(task.bytes));
        }
        FileJob::WriteState { place, position, file } => {
            checkpoints.unpin(place);
            disk.files.end_state(file, position.0, is_done.then_some(task.bytes));
        }
        FileJob::ReadPage { page, file, source } => {
            disk.of(source).end_read(file, !is_gone);
            store.arrive(page, is_done);
            store.unpin(&[page]);
            for id in &*waiting {
                let Some(fetch) = &mut sequences.get_mut(*id).fetch else { continue };
                if !fetch.pages.contains(&page) {
                    continue;
                }
                fetch.coming -= 1;
                fetch.tokens += if is_done { store.tokens_of(page) } else { 0 };
                if !is_done {
                    fetch.give_up();
                }
            }
        }
        FileJob::ReadState { place, position, file, source } => {
            disk.of(source).end_read_state(file, position.0, !is_gone);
            let index = disk.states.iter().position(|read| read.place == place);
            let page = disk.states.swap_remove(index.expect("it is being read")).page;
            if is_done && store.has_cells(page) {
                checkpoints.arrive(place);
                store.attach(page, place, checkpoints);
            }
            checkpoints.unpin(place);
            store.unpin(&[page]);
            for id in &*waiting {
                if let Some(fetch) = &mut sequences.get_mut(*id).fetch {
                    fetch.state = fetch.state.filter(|state| *state != place);
                }
            }
        }
        FileJob::Remove { .. } => {
            disk.removals -= 1;
            if !is_done {
                slot_tasks.erase_failed(task.outcome, &task.reason);
            }
        }
        _ => {}
    }
    match (task.job, task.outcome) {
        (FileJob::ReadPage { .. } | FileJob::ReadState { .. }, Outcome::Done) => {
            let read_s = task.took.as_secs_f64() / task.bytes.max(1) as f64;
            disk.read_s += READ_RATE * (read_s - disk.read_s);
        }
        (FileJob::WritePage { .. } | FileJob::WriteState { .. }, _) if !is_done => {
            disk.paused_until = now + FILES_PAUSE;
        }
        _ => {}
    }
    if task.outcome == Outcome::Full {
        disk.files.shrink();
    }
    for id in &*waiting {
        if let Some(fetch) = &mut sequences.get_mut(*id).fetch {
            fetch.end_if_complete();
        }
    }
}
