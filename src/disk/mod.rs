//! The disk lane: keeps the prefix store's pages and states in files, so that they are
//! there after a restart, and so that there can be more of them than memory holds.
//!
//! The scheduler knows which files there are, and gives the jobs ([`FileTask`]). The lane reads and
//! writes the places in memory that a job names ([`Kept`]). While it writes a place, no other lane
//! uses it; while it reads one, others may read it, too.
//!
//! **Invariant:** no other lane waits for a file.
//! **Invariant:** what a file holds is used only if its seals are right ([`mod@format`]).

mod fingerprint;
mod folder;
pub mod format;
mod slot_folder;

pub use fingerprint::fingerprint;
pub use folder::{Folder, FolderOptions, ReadError};
pub use slot_folder::{SlotFileError, SlotFolder};

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::FILES_LISTED;
use crate::memory::{Kept, StateNote};
use crate::metrics::Metrics;
use crate::ring::LaneLink;
use crate::ring::files::{FileJob, FileTask, Outcome, Source};
use crate::types::{CheckpointId, FileId, PageId, Position};
use format::Head;

/// Does jobs until the front lane closes the link.
pub fn run(mut link: LaneLink<FileTask>, mut lane: DiskLane) {
    while let Some(mut task) = link.receive() {
        lane.work(&mut task);
        link.send(task);
    }
}

/// The folders, and the memory that they are read into and written from.
pub struct DiskLane {
    folder: Option<Folder>,
    slots: Option<SlotFolder>,
    kept: Arc<Kept>,
    metrics: Arc<Metrics>,
}

/// A job that was not done.
#[derive(Debug, thiserror::Error)]
enum Undone {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("writing it failed: {0}")]
    Write(#[from] io::Error),
    #[error("removing it failed: {0}")]
    Remove(io::Error),
    /// The file of a slot.
    #[error(transparent)]
    Slot(#[from] SlotFileError),
    /// The place in memory holds something else by now.
    #[error("it is no longer in memory")]
    Gone,
    /// Another lane uses the place in memory.
    #[error("its place in memory is in use")]
    InUse,
    /// The file does not fit into the place in memory.
    #[error("it has another size than this server's pages and states")]
    Size,
}

impl DiskLane {
    /// A lane for the folder of the prefix store, and for that of the slots' files.
    pub fn new(
        folder: Option<Folder>,
        slots: Option<SlotFolder>,
        kept: Arc<Kept>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let lane = Self { folder, slots, kept, metrics };
        lane.count_bytes();
        lane
    }

    /// Does a job, and fills in its answers.
    pub fn work(&mut self, task: &mut FileTask) {
        let clock = self.metrics.clock;
        let began = clock.now();
        let done = self.do_job(task);
        task.took = Duration::from_micros(clock.now().since(began));
        task.outcome = match &done {
            Ok(_) => Outcome::Done,
            Err(Undone::Write(error)) if is_full(error) => Outcome::Full,
            Err(Undone::Slot(SlotFileError::NoRoom(_) | SlotFileError::TooMany)) => Outcome::Full,
            Err(Undone::Write(_) | Undone::Remove(_) | Undone::InUse) => Outcome::Refused,
            Err(Undone::Slot(SlotFileError::Io(error))) if is_full(error) => Outcome::Full,
            Err(Undone::Slot(SlotFileError::Io(_))) => Outcome::Refused,
            Err(Undone::Slot(SlotFileError::Part(error)) | Undone::Read(error))
                if !error.is_final() =>
            {
                Outcome::Refused
            }
            Err(Undone::Slot(_) | Undone::Read(_) | Undone::Gone | Undone::Size) => Outcome::Gone,
        };
        task.bytes = *done.as_ref().unwrap_or(&0);
        self.count(task, done.err());
    }

    /// Returns the bytes that were read or written.
    fn do_job(&mut self, task: &mut FileTask) -> Result<u64, Undone> {
        match task.job {
            FileJob::List => {
                let pages = std::iter::from_fn(|| self.folder.as_mut()?.next_page());
                task.found.extend(pages.take(FILES_LISTED));
                Ok(0)
            }
            FileJob::WritePage { page, file, parent } => self.with_page(page, file, parent, write),
            FileJob::ReadPage { page, file, source } => self.read_page(page, file, source),
            FileJob::WriteState { place, position, file } => {
                self.with_state(place, position, file, write)
            }
            FileJob::ReadState { place, position, file, source } => {
                self.read_state(place, position, (file, source))
            }
            FileJob::Remove { file, source } => {
                let states = std::mem::take(&mut task.states);
                let page = self.remove((file, source), None);
                let removed = states.into_iter().fold(page, |before, state| {
                    let removed = self.remove((file, source), Some(state));
                    before.and(removed)
                });
                removed.map_err(Undone::Remove)?;
                Ok(0)
            }
            FileJob::BeginSave => Ok(self.slots()?.begin(&task.path).map(|()| 0)?),
            FileJob::SavePage { page, file, parent } => self.with_page(page, file, parent, save),
            FileJob::SaveState { place, position, file } => {
                self.with_state(place, position, file, save)
            }
            FileJob::EndSave { keep } => Ok(self.slots()?.end(keep)?),
            FileJob::ListSave { root } => {
                let slots = self.slots()?;
                if task.path != Path::new("") {
                    slots.begin_list(&task.path)?;
                }
                let (found, bytes) = slots.list(root)?;
                task.found = found;
                Ok(bytes)
            }
        }
    }

    fn slots(&mut self) -> Result<&mut SlotFolder, Undone> {
        Ok(self.slots.as_mut().ok_or(SlotFileError::Missing)?)
    }

    fn count_bytes(&self) {
        self.metrics.disk.bytes.set(self.folder.as_ref().map_or(0, Folder::bytes));
    }

    fn count(&self, task: &mut FileTask, error: Option<Undone>) {
        let metrics = &self.metrics.disk;
        self.count_bytes();
        match task.job {
            FileJob::ReadPage { .. } | FileJob::ReadState { .. } => metrics.read.add(task.bytes),
            FileJob::WritePage { .. }
            | FileJob::WriteState { .. }
            | FileJob::SavePage { .. }
            | FileJob::SaveState { .. } => metrics.written.add(task.bytes),
            FileJob::List
            | FileJob::Remove { .. }
            | FileJob::BeginSave
            | FileJob::EndSave { .. }
            | FileJob::ListSave { .. } => {}
        }
        match error {
            None => {}
            Some(error @ (Undone::Gone | Undone::InUse)) => {
                tracing::debug!(%error, job = ?task.job);
                task.reason = error.to_string();
            }
            Some(Undone::Slot(error)) => {
                task.reason = error.to_string(); // the client is told
                if let SlotFileError::Io(error) = error {
                    metrics.failures.increment();
                    tracing::warn!(%error, job = ?task.job, "a file of a slot");
                }
            }
            Some(error) => {
                task.reason = error.to_string();
                metrics.failures.increment();
                tracing::warn!(%error, job = ?task.job, "a file of the prefix store");
            }
        }
    }

    /// Removes a page's file or that of a state, or forgets what the file of a slot has of it.
    fn remove(&mut self, (file, source): (FileId, Source), state: Option<u32>) -> io::Result<()> {
        match (source, &mut self.folder, &mut self.slots) {
            (Source::Slot, _, Some(slots)) => slots.forget(file, state),
            (Source::Store, Some(folder), _) => {
                return match state {
                    None => folder.remove(file, &[]),
                    Some(state) => folder.remove_state(file, state),
                };
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads a page or a state, and lets `put` take it.
    fn read(
        folder: &mut Option<Folder>,
        slots: &mut Option<SlotFolder>,
        (file, source): (FileId, Source),
        state: Option<u32>,
        put: impl FnOnce(&Head, &[u8]) -> Result<(), Undone>,
    ) -> Result<u64, Undone> {
        let (head, content) = match (source, folder, slots) {
            (Source::Store, Some(folder), _) => folder.read(file, state)?,
            (Source::Slot, _, Some(slots)) => {
                slots.read(file, state).ok_or(Undone::Gone)?? // its file was closed
            }
            _ => return Err(Undone::Gone),
        };
        put(&head, content)?;
        Ok(content.len() as u64)
    }

    /// Lets `put` write a page into a file.
    fn with_page(
        &mut self,
        page: PageId,
        file: FileId,
        parent: FileId,
        put: fn(&mut Self, &Head, &[u8]) -> Result<u64, Undone>,
    ) -> Result<u64, Undone> {
        let kept = self.kept.clone();
        let page = kept.page(page).ok_or(Undone::InUse)?;
        let (tokens, content) = (page.note().tokens(), page.note().cells(page.bytes()));
        if tokens.is_empty() {
            return Err(Undone::Gone);
        }
        let (state, tokens) = (None, tokens.into());
        put(self, &Head { file, parent, state, tokens, content: content.len() as u64 }, content)
    }

    /// Lets `put` write a state into a file.
    fn with_state(
        &mut self,
        place: CheckpointId,
        position: Position,
        file: FileId,
        put: fn(&mut Self, &Head, &[u8]) -> Result<u64, Undone>,
    ) -> Result<u64, Undone> {
        let kept = self.kept.clone();
        let state = kept.state(place).ok_or(Undone::InUse)?;
        if !state.note().is_behind(position) {
            return Err(Undone::Gone);
        }
        let (parent, tokens) = (FileId::default(), Box::default());
        let content = state.saved();
        let state = Some(position.0);
        put(self, &Head { file, parent, state, tokens, content: content.len() as u64 }, content)
    }

    fn read_page(&mut self, page: PageId, file: FileId, source: Source) -> Result<u64, Undone> {
        let Self { folder, slots, kept, .. } = self;
        let mut page = kept.page_mut(page).ok_or(Undone::InUse)?;
        let (note, bytes) = page.parts();
        note.put(&[], 0);
        let read =
            Self::read(folder, slots, (file, source), None, |Head { tokens, .. }, content| {
                let place = bytes.get_mut(..content.len()).ok_or(Undone::Size)?;
                if tokens.len() > note.tokens_max() || content.is_empty() {
                    return Err(Undone::Size);
                }
                place.copy_from_slice(content);
                note.put(tokens, content.len());
                Ok(())
            });
        drop(page);
        if read.as_ref().is_err_and(Undone::is_final) {
            let _ = self.remove((file, source), None); // it is logged
        }
        read
    }

    fn read_state(
        &mut self,
        place: CheckpointId,
        position: Position,
        file: (FileId, Source),
    ) -> Result<u64, Undone> {
        let Self { folder, slots, kept, .. } = self;
        let mut state = kept.state_mut(place).ok_or(Undone::InUse)?;
        let (note, bytes) = state.parts();
        *note = StateNote::default();
        let read = Self::read(folder, slots, file, Some(position.0), |_, content| {
            let place = bytes.get_mut(..content.len()).filter(|place| !place.is_empty());
            place.ok_or(Undone::Size)?.copy_from_slice(content);
            *note = StateNote { position, serial: kept.next_save(), length: content.len() };
            Ok(())
        });
        drop(state);
        if read.as_ref().is_err_and(Undone::is_final) {
            let _ = self.remove(file, Some(position.0)); // it is logged
        }
        read
    }
}

/// Writes into a file of its own.
fn write(lane: &mut DiskLane, head: &Head, content: &[u8]) -> Result<u64, Undone> {
    Ok(lane.folder.as_mut().ok_or(Undone::Gone)?.write(head, content)?)
}

/// Writes into the file of a slot.
fn save(lane: &mut DiskLane, head: &Head, content: &[u8]) -> Result<u64, Undone> {
    Ok(lane.slots()?.add(head, content)?)
}

impl Undone {
    /// Whether the file is of no use for ever.
    fn is_final(&self) -> bool {
        match self {
            Self::Read(error) => error.is_final(),
            Self::Size => true,
            Self::Write(_) | Self::Remove(_) | Self::Slot(_) | Self::Gone | Self::InUse => false,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
