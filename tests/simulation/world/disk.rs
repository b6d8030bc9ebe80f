//! The disk lane of the simulation. It keeps its files in memory, takes any time, and fails from
//! time to time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use corelane::limits::FILE_TASKS_MAX;
use corelane::memory::{Kept, StateNote};
use corelane::ring::files::{FileJob, FileTask, FoundPage, Outcome};
use corelane::ring::{self, FrontLink, LaneLink, bell::SocketBell};
use corelane::types::{FileId, KeyId, Position, TokenId};

use super::{Occurrence, World};
use crate::support::Random;

/// Files that outlive a server.
#[derive(Debug, Default)]
pub(super) struct Files {
    pages: HashMap<FileId, Page>,
    states: HashMap<(FileId, Position), Vec<u8>>,
    /// The tenant of each token of a page.
    writers: HashMap<FileId, Vec<Option<KeyId>>>,
}

#[derive(Debug)]
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
}

impl Disk {
    pub fn new(kept: Arc<Kept>, files: Files) -> (Self, FrontLink<FileTask>) {
        let (bell, _) = SocketBell::new().unwrap();
        let (front, link) = ring::link(FILE_TASKS_MAX, Arc::new(bell), Duration::ZERO);
        let mut unlisted: Vec<FoundPage> =
            files.pages.iter().map(|page| files.found(page)).collect();
        unlisted.sort_by_key(|page| page.file); // a map has no order
        (Self { link, kept, jobs: VecDeque::new(), files, unlisted }, front)
    }

    /// Does a job. `fails` makes that impossible.
    fn work(&mut self, task: &mut FileTask, fails: bool, random: &mut Random) {
        let Files { pages, states, .. } = &mut self.files;
        let outcome = match task.job {
            FileJob::List => {
                let left = self.unlisted.len().saturating_sub(random.within(1, 20));
                task.found = self.unlisted.split_off(left);
                Outcome::Done
            }
            FileJob::WritePage { .. } | FileJob::WriteState { .. } if fails => {
                if random.one_in(4) {
                    Outcome::Full
                } else {
                    Outcome::Refused
                }
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
            FileJob::ReadPage { page, file } => {
                let mut place = self.kept.page_mut(page).expect("nobody else writes it");
                let (note, bytes) = place.parts();
                match pages.get(&file).filter(|_| !fails) {
                    Some(Page { tokens, cells, .. }) => {
                        bytes[..cells.len()].copy_from_slice(cells);
                        note.put(tokens, cells.len());
                        Outcome::Done
                    }
                    None => {
                        note.put(&[], 0);
                        pages.remove(&file);
                        Outcome::Gone
                    }
                }
            }
            FileJob::WriteState { place, position, file } => {
                let state = self.kept.state(place).expect("nobody else writes it");
                assert!(state.note().is_behind(position), "a state is written once it is saved");
                task.bytes = state.bytes().len() as u64;
                states.insert((file, position), state.bytes().to_vec());
                Outcome::Done
            }
            FileJob::ReadState { place, position, file } => {
                let mut state = self.kept.state_mut(place).expect("nobody else writes it");
                let (note, bytes) = state.parts();
                *note = StateNote::default();
                match states.get(&(file, position)).filter(|_| !fails) {
                    Some(content) => {
                        bytes.copy_from_slice(content);
                        let serial = self.kept.next_save();
                        *note = StateNote { position, serial };
                        Outcome::Done
                    }
                    None => {
                        states.remove(&(file, position));
                        Outcome::Gone
                    }
                }
            }
            FileJob::Remove { file } => {
                pages.remove(&file);
                task.states.drain(..).for_each(|state| {
                    states.remove(&(file, Position(state)));
                });
                Outcome::Done
            }
        };
        task.outcome = outcome;
    }
}

impl Files {
    /// Checks that these are the files that the server knows.
    pub fn check<'a>(&self, known: impl Iterator<Item = (FileId, &'a [u32])>) {
        let mut states = 0;
        let mut pages = 0;
        for (file, positions) in known {
            assert!(self.pages.contains_key(&file), "{file:?}");
            let is_there = |at: &u32| self.states.contains_key(&(file, Position(*at)));
            assert!(positions.iter().all(is_there), "{file:?}: {positions:?}");
            (pages, states) = (pages + 1, states + positions.len());
        }
        assert_eq!((pages, states), (self.pages.len(), self.states.len()));
    }

    fn found(&self, (file, page): (&FileId, &Page)) -> FoundPage {
        let states = self.states.keys().filter(|(of, _)| of == file);
        let mut states: Vec<u32> = states.map(|(_, position)| position.0).collect();
        states.sort_unstable();
        let bytes = states.iter().map(|at| self.states[&(*file, Position(*at))].len() as u64);
        let bytes = page.cells.len() as u64 + bytes.sum::<u64>();
        let Page { parent, tokens, .. } = page;
        FoundPage { file: *file, parent: *parent, tokens: (**tokens).into(), states, bytes }
    }
}

impl World {
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
            FileJob::WritePage { page, file, .. } => {
                writers.insert(file, stored[&page].clone());
            }
            FileJob::ReadPage { page, file } => {
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
    }
}
