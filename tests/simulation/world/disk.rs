//! The disk lane of the simulation. It keeps its files in memory, takes any time, and fails from
//! time to time.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use corelane::engine::SlotAnswer;
use corelane::limits::FILE_TASKS_MAX;
use corelane::memory::{Kept, StateNote};
use corelane::ring::files::{FileJob, FileTask, FoundPage, Outcome, Source};
use corelane::ring::{self, FrontLink, LaneLink, bell::SocketBell};
use corelane::scheduler::{Scheduler, SlotTask};
use corelane::types::{FileId, KeyId, Position, SlotAction, SlotId, TokenId};

use super::{Occurrence, World};
use crate::support::Random;

/// Files that outlive a server.
#[derive(Debug, Default)]
pub(super) struct Files {
    pages: HashMap<FileId, Page>,
    states: HashMap<(FileId, Position), Vec<u8>>,
    /// The tenant of each token of a page.
    writers: HashMap<FileId, Vec<Option<KeyId>>>,
    /// The files of slots.
    saved: HashMap<PathBuf, Saved>,
}

/// The file of a slot.
#[derive(Clone, Debug, Default)]
struct Saved {
    pages: Vec<(FileId, Page)>,
    states: HashMap<(FileId, Position), Vec<u8>>,
}

/// What was brought back from files of slots.
#[derive(Debug, Default)]
struct Back {
    pages: HashMap<FileId, Page>,
    states: HashMap<(FileId, Position), Vec<u8>>,
}

#[derive(Clone, Debug)]
struct Page {
    parent: FileId,
    tokens: Vec<TokenId>,
    cells: Vec<u8>,
}

/// The lane and its files.
pub(super) struct Disk {
    link: LaneLink<FileTask>,
    kept: Arc<Kept>,
    /// Jobs of the lane. It does the first.
    jobs: VecDeque<Box<FileTask>>,
    pub files: Files,
    /// Those that it has not listed yet.
    unlisted: Vec<FoundPage>,
    /// The file of a slot that is being written.
    unfinished: Option<(PathBuf, Saved)>,
    /// The file of a slot that is being listed: what is left of it.
    listed: Option<Saved>,
    /// Pages and states that were brought back.
    back: Back,
}

impl Disk {
    pub fn new(kept: Arc<Kept>, files: Files) -> (Self, FrontLink<FileTask>) {
        let (bell, _) = SocketBell::new().unwrap();
        let (front, link) = ring::link(FILE_TASKS_MAX, Arc::new(bell), Duration::ZERO);
        let mut unlisted: Vec<FoundPage> =
            files.pages.iter().map(|page| files.found(page)).collect();
        unlisted.sort_by_key(|page| page.file); // a map has no order
        let (jobs, unfinished, listed, back) = (VecDeque::new(), None, None, Back::default());
        (Self { link, kept, jobs, files, unlisted, unfinished, listed, back }, front)
    }

    /// Does a job. `fails` makes that impossible.
    fn work(&mut self, task: &mut FileTask, fails: bool, random: &mut Random) {
        let Files { pages, states, saved, .. } = &mut self.files;
        let back = &mut self.back;
        let outcome = match task.job {
            FileJob::List => {
                let left = self.unlisted.len().saturating_sub(random.within(1, 20));
                task.found = self.unlisted.split_off(left);
                Outcome::Done
            }
            FileJob::WritePage { .. }
            | FileJob::WriteState { .. }
            | FileJob::BeginSave
            | FileJob::SavePage { .. }
            | FileJob::SaveState { .. }
            | FileJob::EndSave { keep: true }
                if fails =>
            {
                if matches!(task.job, FileJob::EndSave { .. }) {
                    self.unfinished = None;
                }
                if random.one_in(4) { Outcome::Full } else { Outcome::Refused }
            }
            FileJob::ReadPage { .. } | FileJob::ReadState { .. } if fails && random.one_in(2) => {
                Outcome::Refused
            }
            FileJob::WritePage { page, file, parent } => {
                let page = self.kept.page(page).expect("nobody else writes it");
                let (tokens, cells) = (page.note().tokens(), page.note().cells(page.bytes()));
                assert!(!tokens.is_empty(), "a page without cells is not written");
                let (tokens, cells) = (tokens.to_vec(), cells.to_vec());
                task.bytes = cells.len() as u64;
                pages.insert(file, Page { parent, tokens, cells });
                Outcome::Done
            }
            FileJob::ReadPage { page, file, source } => {
                let mut place = self.kept.page_mut(page).expect("nobody else writes it");
                let (note, bytes) = place.parts();
                let of_source = match source {
                    Source::Store => pages,
                    Source::Slot => &mut back.pages,
                };
                match of_source.get(&file).filter(|_| !fails) {
                    Some(Page { tokens, cells, .. }) => {
                        bytes[..cells.len()].copy_from_slice(cells);
                        note.put(tokens, cells.len());
                        Outcome::Done
                    }
                    None => {
                        note.put(&[], 0);
                        of_source.remove(&file);
                        Outcome::Gone
                    }
                }
            }
            FileJob::WriteState { place, position, file } => {
                let state = self.kept.state(place).expect("nobody else writes it");
                assert!(state.note().is_behind(position), "a state is written once it is saved");
                task.bytes = state.saved().len() as u64;
                states.insert((file, position), state.saved().to_vec());
                Outcome::Done
            }
            FileJob::ReadState { place, position, file, source } => {
                let mut state = self.kept.state_mut(place).expect("nobody else writes it");
                let (note, bytes) = state.parts();
                *note = StateNote::default();
                let of_source = match source {
                    Source::Store => states,
                    Source::Slot => &mut back.states,
                };
                match of_source.get(&(file, position)).filter(|_| !fails) {
                    Some(content) => {
                        bytes.copy_from_slice(content);
                        let serial = self.kept.next_save();
                        *note = StateNote { position, serial, length: bytes.len() };
                        Outcome::Done
                    }
                    None => {
                        of_source.remove(&(file, position));
                        Outcome::Gone
                    }
                }
            }
            FileJob::Remove { file, source } => {
                let (pages, states) = match source {
                    Source::Store => (pages, states),
                    Source::Slot => (&mut back.pages, &mut back.states),
                };
                pages.remove(&file);
                task.states.drain(..).for_each(|state| {
                    states.remove(&(file, Position(state)));
                });
                Outcome::Done
            }
            FileJob::BeginSave => {
                assert!(self.unfinished.is_none(), "one file is written at a time");
                self.unfinished = Some((task.path.clone(), Saved::default()));
                Outcome::Done
            }
            FileJob::SavePage { page, file, parent } => {
                let page = self.kept.page(page).expect("nobody else writes it");
                let (tokens, cells) = (page.note().tokens(), page.note().cells(page.bytes()));
                assert!(!tokens.is_empty(), "a page without cells is not saved");
                let page = Page { parent, tokens: tokens.to_vec(), cells: cells.to_vec() };
                self.unfinished.as_mut().unwrap().1.pages.push((file, page));
                Outcome::Done
            }
            FileJob::SaveState { place, position, file } => {
                let state = self.kept.state(place).expect("nobody else writes it");
                assert!(state.note().is_behind(position), "a state is written once it is saved");
                let states = &mut self.unfinished.as_mut().unwrap().1.states;
                states.insert((file, position), state.saved().to_vec());
                Outcome::Done
            }
            FileJob::EndSave { keep } => {
                let (path, file) = self.unfinished.take().expect("it was begun");
                if keep {
                    saved.insert(path, file);
                }
                Outcome::Done
            }
            FileJob::ListSave { root } => {
                if task.path != Path::new("") {
                    self.listed = saved.get(&task.path).cloned();
                    let first = self.listed.as_ref().and_then(|file| file.pages.first());
                    if first.is_some_and(|(_, page)| page.parent != root) {
                        self.listed = None; // a text of another salt
                    }
                }
                match self.listed.as_mut().filter(|_| !fails) {
                    Some(Saved { pages, states }) => {
                        let some = pages.len().min(random.within(1, 4));
                        for (file, page) in pages.drain(..some) {
                            task.found.push(found(file, &page, states));
                            back.pages.insert(file, page);
                            let of_page = states.iter().filter(|((of, _), _)| *of == file);
                            back.states.extend(of_page.map(|(at, state)| (*at, state.clone())));
                        }
                        Outcome::Done
                    }
                    None => Outcome::Gone,
                }
            }
        };
        task.outcome = outcome;
    }
}

impl Disk {
    /// Checks that the server knows these files, and of those that were brought back, only some.
    pub fn check(&self, scheduler: &Scheduler) {
        let (files, back) = (&self.files, &self.back);
        let mut found = (0, 0);
        for (file, positions) in scheduler.files() {
            assert!(files.pages.contains_key(&file), "{file:?}");
            let has = |position: &u32| files.states.contains_key(&(file, Position(*position)));
            assert!(positions.iter().all(has), "{file:?}");
            found = (found.0 + 1, found.1 + positions.len());
        }
        assert_eq!(found, (files.pages.len(), files.states.len()));
        for (file, positions) in scheduler.saved_files() {
            assert!(back.pages.contains_key(&file), "{file:?}");
            let has = |position: &u32| back.states.contains_key(&(file, Position(*position)));
            assert!(positions.iter().all(has), "{file:?}");
        }
        assert!(self.unfinished.is_none(), "a file is not complete");
    }
}

impl Files {
    fn found(&self, (file, page): (&FileId, &Page)) -> FoundPage {
        found(*file, page, &self.states)
    }
}

/// A page with the states behind its tokens.
fn found(file: FileId, page: &Page, states: &HashMap<(FileId, Position), Vec<u8>>) -> FoundPage {
    let of_page = states.iter().filter(|((of, _), _)| *of == file);
    let mut positions: Vec<u32> = of_page.clone().map(|((_, position), _)| position.0).collect();
    positions.sort_unstable();
    let bytes = page.cells.len() + of_page.map(|(_, state)| state.len()).sum::<usize>();
    let Page { parent, tokens, .. } = page;
    let (tokens, states) = ((**tokens).into(), positions);
    FoundPage { file, parent: *parent, tokens, states, bytes: bytes as u64 }
}

impl World {
    /// A client asks to save, restore or erase the text of a slot.
    pub(super) fn ask_slot(&mut self) {
        let actions = [SlotAction::Save, SlotAction::Save, SlotAction::Restore, SlotAction::Erase];
        let tenant = self.any_tenant();
        self.slots_asked += 1;
        let task = SlotTask {
            ticket: self.slots_asked,
            action: actions[self.random.within(0, 3)],
            slot: SlotId(self.random.within(0, self.capacity.slots - 1) as u16),
            scope: self.cache_of(tenant),
            path: format!("{tenant:?}/{}", self.random.within(0, 3)).into(),
            abandoned: Arc::new(AtomicBool::new(self.random.one_in(8))),
        };
        self.engine.ask_slot(task);
        self.kick();
    }

    /// Takes the outcomes of tasks with slots.
    pub(super) fn take_slot_outcomes(&mut self) {
        let outcomes: Vec<SlotAnswer> = self.engine.slot_answers().collect();
        self.slots_answered += outcomes.len() as u64;
        for outcome in outcomes {
            let name = if outcome.done.is_ok() { "slot tasks" } else { "refused slot tasks" };
            self.count(name, 1);
        }
    }

    /// The lane takes jobs.
    pub(super) fn take_file_jobs(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        let is_free = disk.jobs.is_empty();
        disk.jobs.extend(std::iter::from_fn(|| disk.link.try_receive()));
        if is_free && !disk.jobs.is_empty() {
            self.begin_file_job();
        }
    }

    fn begin_file_job(&mut self) {
        let most = [100, 5_000, 300_000][self.random.within(0, 2)];
        let took = self.within_us(1, most);
        self.after(took, Occurrence::FileEnds);
    }

    pub(super) fn end_file_job(&mut self) {
        let fails = self.random.one_in(if self.failures { 8 } else { 1000 });
        let most = [10, 2_000][self.random.within(0, 1)];
        let took = self.within_us(1, most);
        let disk = self.disk.as_mut().expect("jobs come from there");
        let mut task = disk.jobs.pop_front().expect("it was begun");
        disk.work(&mut task, fails, &mut self.random);
        task.took = took;
        let (name, is_done) = (name_of(task.job), task.outcome == Outcome::Done);
        let (stored, writers) = (&mut self.tenants.stored, &mut disk.files.writers);
        match task.job {
            FileJob::WritePage { page, file, .. } | FileJob::SavePage { page, file, .. } => {
                writers.insert(file, stored[&page].clone());
            }
            FileJob::ReadPage { page, file, .. } => {
                stored.insert(page, writers[&file].clone());
            }
            _ => {}
        }
        disk.link.send(task);
        if !disk.jobs.is_empty() {
            self.begin_file_job();
        }
        self.count(name, u64::from(is_done));
        self.count("failed file jobs", u64::from(!is_done));
        self.kick();
    }
}

fn name_of(job: FileJob) -> &'static str {
    match job {
        FileJob::List => "lists of files",
        FileJob::WritePage { .. } => "pages written",
        FileJob::ReadPage { .. } => "pages read",
        FileJob::WriteState { .. } => "states written",
        FileJob::ReadState { .. } => "states read",
        FileJob::Remove { .. } => "files removed",
        FileJob::BeginSave => "saves begun",
        FileJob::SavePage { .. } => "pages saved",
        FileJob::SaveState { .. } => "states of slots saved",
        FileJob::EndSave { .. } => "saves ended",
        FileJob::ListSave { .. } => "files of slots listed",
    }
}
