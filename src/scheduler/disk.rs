//! Moves between the prefix store in memory and its files.
//!
//! A page that was stored in memory is written to a file, and so are the recurrent states behind its
//! tokens. A waiting sequence whose prompt begins like a text in files waits until these are read
//! into memory, but no longer than computing the tokens would take. Then it starts as with any other
//! text of the store ([`super::moves`]).
//!
//! The disk lane has at most [`FILE_TASKS_MAX`] jobs. Reads go before writes.

use std::time::Duration;

use super::books::Books;
use super::cost::Rows;
use super::disk_jobs::{Fetch, Listing};
use super::store::Missing;
use super::tuning::{FETCH_TIME, FETCH_TIME_MIN, FETCHED_PART, FILES_PAUSE, REUSE_TOKENS_MIN};
use super::{files, reuse};
use crate::clock::Micros;
use crate::limits::FILE_TASKS_MAX;
use crate::ring::files::{FileJob, FileTask, Outcome};
use crate::types::{CacheScope, FileId, PageId, Position, SequenceId};

/// Pages and a state to read.
struct Plan {
    /// The pages of the text, from its start.
    pages: Vec<Part>,
    /// The tokens that the sequence has when all is read.
    tokens: usize,
    /// The file with the state behind them, if that is not in memory.
    state: Option<FileId>,
}

#[derive(Clone, Copy)]
enum Part {
    Here(PageId),
    InFile(FileId),
}

/// Lets waiting sequences that have just come wait for files, if these save them time.
pub(super) fn look_up(books: &mut Books, now: Micros) {
    let Some(disk) = &books.disk else { return };
    let is_listed = disk.listing == Listing::Done;
    let is_fetching = |id: &SequenceId| books.sequences.get(*id).fetch.is_some();
    let mut fetching = books.waiting.iter().filter(|id| is_fetching(id)).count();
    for index in 0..books.waiting.len() {
        let id = books.waiting[index];
        let sequence = books.sequences.get(id);
        if let Some(fetch) = &sequence.fetch {
            if fetch.is_listing && is_listed {
                books.sequences.get_mut(id).fetch = None;
                fetching -= 1;
            } else {
                if now >= fetch.until {
                    books.sequences.get_mut(id).fetch.as_mut().expect("as above").is_over = true;
                }
                continue;
            }
        }
        let sequence = books.sequences.get(id);
        let may_load = books.capacity.reuse && !sequence.avoids_store && !sequence.looked_up;
        let Some(scope) = sequence.asked.cache.filter(|_| may_load) else { continue };
        if !is_listed {
            let until = now + computing(books, 0, sequence.reusable());
            let fetch = Fetch { is_listing: true, until, ..Fetch::default() };
            books.sequences.get_mut(id).fetch = Some(fetch);
            continue;
        }
        if fetching >= books.capacity.slots {
            continue; // it looks again
        }
        books.sequences.get_mut(id).looked_up = true;
        let prefix = reuse::find_prefix(books, id);
        let ready = prefix.ready.map_or(0, |ready| ready.tokens);
        let coming = prefix.coming.map_or(0, |(_, tokens)| tokens);
        if let Some((plan, saved)) = plan(books, id, scope, ready)
            && plan.tokens > coming
        {
            fetch(books, id, scope, &plan, now + computing(books, ready, saved));
            fetching += 1;
        }
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

/// What to read for a sequence of which the KV cache has the first `ready` tokens, and the tokens
/// that this saves. `None` if it is not worth it.
fn plan(books: &Books, id: SequenceId, scope: CacheScope, ready: usize) -> Option<(Plan, usize)> {
    let disk = books.disk.as_ref()?;
    let sequence = books.sequences.get(id);
    let wanted = &sequence.tokens[..sequence.reusable()];
    let page_tokens = books.store.page_tokens();
    let is_recurrent = books.capacity.states.is_some();
    let (mut pages, mut tokens) = (Vec::new(), 0);
    let mut here = Some(None); // the last page, while all are in memory
    let mut text = files::root(&disk.files.sizes().seed, scope);
    // The states that files have behind the text, each with its page.
    let mut states: Vec<(usize, FileId)> = Vec::new();
    while tokens < wanted.len() {
        let rest = &wanted[tokens..];
        let found = here.and_then(|parent| books.store.next_coming(scope, parent, rest));
        let in_file = || disk.files.next(text, rest, page_tokens);
        let (part, file, same) = match found {
            Some((page, same)) if same == page_tokens => {
                here = Some(Some(page));
                (Part::Here(page), books.store.file_of(page)?, same)
            }
            found => match (found, in_file()) {
                (Some((page, same)), next) if next.is_none_or(|next| next.same <= same) => {
                    (Part::Here(page), books.store.file_of(page)?, same)
                }
                (_, Some(next)) => {
                    here = None;
                    (Part::InFile(next.file), next.file, next.same)
                }
                (_, None) => break,
            },
        };
        let of_page = disk.files.states_of(file).iter().map(|position| *position as usize);
        let ahead = tokens + same;
        states.extend(of_page.filter(|at| *at <= ahead).map(|at| (at, file)));
        pages.push(part);
        (text, tokens) = (file, ahead);
        if same < page_tokens {
            break;
        }
    }
    // What the sequence can start with now.
    let stored = books.store.find(scope, wanted);
    let best = match is_recurrent {
        false => stored.tokens,
        true => {
            let state = books.store.state_of(&stored, &books.cells.checkpoints);
            state.map_or(0, |(_, tokens)| tokens)
        }
    };
    let best = best.max(ready);
    let mut state = None;
    if is_recurrent {
        let (last, file) = states.into_iter().max_by_key(|(at, _)| *at)?;
        (tokens, state) = (last, Some(file));
        pages.truncate(tokens.div_ceil(page_tokens));
    }
    let saved = tokens.saturating_sub(best);
    let to_read = pages.iter().filter(|part| matches!(part, Part::InFile(_))).count();
    if saved < REUSE_TOKENS_MIN || (to_read == 0 && state.is_none()) {
        return None;
    }
    let reading = disk.page_took.unwrap_or_default() * to_read as u32; // at most PAGES_MAX
    let copying = books.page_took.unwrap_or_default() * pages.len() as u32;
    let computing = books.cost.step(Rows::default(), Rows::of(best, saved));
    let is_slower = computing.is_some_and(|time| reading + copying > time);
    let kept: usize = books.waiting.iter().map(|id| pages_of(books, *id)).sum();
    let has_room =
        kept + pages.len() <= (books.capacity.pages.count as f64 * FETCHED_PART) as usize;
    (has_room && !is_slower).then_some((Plan { pages, tokens, state }, saved))
}

/// The pages that are kept for a waiting sequence.
fn pages_of(books: &Books, id: SequenceId) -> usize {
    books.sequences.get(id).fetch.as_ref().map_or(0, |fetch| fetch.pages.len())
}

/// Gets places in memory for what is to be read, and lets the sequence wait for it.
fn fetch(books: &mut Books, id: SequenceId, scope: CacheScope, plan: &Plan, until: Micros) {
    let (step, sent) = (books.step, books.sent);
    let Some(disk) = &mut books.disk else { return };
    let store = &mut books.store;
    let checkpoints = &mut books.cells.checkpoints;
    let mut fetch = Fetch { until, ..Fetch::default() };
    let mut parent = None;
    let page_tokens = store.page_tokens();
    for (index, part) in plan.pages.iter().enumerate() {
        let page = match *part {
            Part::Here(page) => page,
            Part::InFile(file) => {
                let from = index * page_tokens;
                let tokens = disk.files.tokens_of(file);
                let missing = Missing { parent, shorter: None, from: 0, to: tokens.len() };
                let Some(page) = store.add(scope, tokens, missing, step, checkpoints) else {
                    break;
                };
                assert_eq!(store.file_of(page), Some(file), "a page has the name of its text");
                store.expect(page);
                store.pin(&[page]);
                fetch.tokens += plan.tokens.saturating_sub(from).min(tokens.len());
                disk.files.begin_read(file);
                disk.reads.push_back((sent, FileJob::ReadPage { page, file }));
                page
            }
        };
        store.pin(&[page]);
        store.touch(Some(page), step);
        fetch.pages.push(page);
        parent = Some(page);
    }
    let is_whole = fetch.pages.len() == plan.pages.len();
    if let (Some(file), true, Some(page)) = (plan.state, is_whole, fetch.pages.last())
        && let Some(place) = checkpoints.reserve(plan.tokens, step)
    {
        let position = Position(plan.tokens as u32); // at most SEQUENCE_TOKENS_MAX
        disk.files.begin_read(file);
        disk.reads.push_back((sent, FileJob::ReadState { place, position, file }));
        store.pin(&[*page]);
        disk.states.push((place, *page));
        fetch.state = Some(place);
    }
    books.sequences.get_mut(id).fetch = Some(fetch);
    end_waits(books); // if there was room for nothing
}

/// Ends the waits of sequences for which all is read.
fn end_waits(books: &mut Books) {
    for id in &books.waiting {
        if let Some(fetch) = &mut books.sequences.get_mut(*id).fetch
            && !fetch.is_listing
            && fetch.state.is_none()
            && !fetch.pages.iter().any(|page| books.store.is_coming(*page))
        {
            fetch.is_over = true;
        }
    }
}

/// The time at which the first wait ends, even if nothing is read until then.
pub(super) fn next_end(books: &Books) -> Option<Micros> {
    let fetches = books.waiting.iter().filter_map(|id| books.sequences.get(*id).fetch.as_ref());
    fetches.filter(|fetch| !fetch.is_over).map(|fetch| fetch.until).min()
}

/// The next job for the disk lane, if there is one and the lane has room for it.
pub(super) fn next_task(books: &mut Books, now: Micros) -> Option<FileTask> {
    let disk = books.disk.as_mut().filter(|disk| disk.jobs < FILE_TASKS_MAX)?;
    let task = if disk.listing == Listing::Wanted {
        disk.listing = Listing::Asked;
        FileTask::default()
    } else if let Some((file, states)) = disk.files.next_lost() {
        FileTask { job: FileJob::Remove { file }, states, ..FileTask::default() }
    } else if let Some((_, job)) = disk.reads.pop_front_if(|(step, _)| *step <= books.returned) {
        FileTask { job, ..FileTask::default() }
    } else if disk.listing == Listing::Done && now >= disk.paused_until {
        next_write(books)?
    } else {
        return None;
    };
    books.disk.as_mut()?.jobs += 1;
    Some(task)
}

/// The next write, or the removal that must come before it.
fn next_write(books: &mut Books) -> Option<FileTask> {
    let Books { disk, store, cells, .. } = &mut *books;
    let disk = disk.as_mut()?;
    let mut tries = disk.unwritten.len() + store.used(); // each page may bring those before it
    let (job, bytes, kept) = loop {
        let page = disk.unwritten.pop_front()?;
        tries = tries.checked_sub(1)?;
        let Some(file) = store.file_of(page).filter(|_| store.has_cells(page)) else {
            continue; // it has gone
        };
        if !store.is_made(page) {
            disk.unwritten.push_back(page); // a step in flight stores it
            continue;
        }
        let sizes = disk.files.sizes();
        if !disk.files.has(file) {
            disk.unwritten.push_front(page); // its states come after it
            let parent = store.parent_of(page);
            let before = match parent {
                Some(parent) => store.file_of(parent)?,
                None => files::root(&sizes.seed, store.scope_of(page)),
            };
            if let Some(parent) = parent.filter(|parent| store.is_made(*parent))
                && !disk.files.has(before)
            {
                disk.unwritten.push_front(parent);
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
            disk.unwritten.push_back(page); // a step in flight saves it
            continue;
        }
        disk.unwritten.push_front(page); // it may have more states
        let position = Position(position as u32); // at most SEQUENCE_TOKENS_MAX
        break (FileJob::WriteState { place, position, file }, sizes.state_bytes, [file; 2]);
    };
    let mut task = FileTask { job, ..FileTask::default() };
    let Ok(removed) = disk.files.make_room(bytes, kept) else {
        disk.unwritten.clear(); // the files that are used leave no room
        return None;
    };
    match removed {
        Some(file) => {
            task.states = disk.files.remove(file);
            task.job = FileJob::Remove { file };
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
    let Books { disk, store, cells, waiting, sequences, .. } = &mut *books;
    let disk = disk.as_mut().expect("jobs come from there");
    let checkpoints = &mut cells.checkpoints;
    let is_done = task.outcome == Outcome::Done;
    disk.jobs -= 1;
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
        FileJob::ReadPage { page, file } => {
            disk.files.end_read(file, is_done);
            store.arrive(page, is_done);
            store.unpin(&[page]);
            if is_done {
                disk.page_took = Some(task.took);
            }
        }
        FileJob::ReadState { place, position, file } => {
            disk.files.end_read_state(file, position.0, is_done);
            let index = disk.states.iter().position(|(other, _)| *other == place);
            let (_, page) = disk.states.swap_remove(index.expect("it is being read"));
            if is_done && store.has_cells(page) {
                checkpoints.arrive(place);
                store.attach(page, place, checkpoints);
            }
            checkpoints.unpin(place);
            store.unpin(&[page]);
            for id in &*waiting {
                if let Some(fetch) = &mut sequences.get_mut(*id).fetch
                    && fetch.state == Some(place)
                {
                    fetch.state = None;
                }
            }
        }
        FileJob::Remove { .. } => {}
    }
    if task.outcome == Outcome::Refused {
        disk.paused_until = now + FILES_PAUSE;
    }
    end_waits(books);
}
