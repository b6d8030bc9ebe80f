//! The disk lane: keeps the prefix store's pages and recurrent states in files, so that they are
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

pub use fingerprint::fingerprint;
pub use folder::{Folder, FolderOptions, ReadError};

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use crate::limits::FILES_LISTED;
use crate::memory::{Kept, StateNote};
use crate::metrics::Metrics;
use crate::ring::LaneLink;
use crate::ring::files::{FileJob, FileTask, Outcome};
use crate::types::{CheckpointId, FileId, PageId, Position};
use format::Head;

/// Does jobs until the front lane closes the link.
pub fn run(mut link: LaneLink<FileTask>, mut lane: DiskLane) {
    while let Some(mut task) = link.receive() {
        lane.work(&mut task);
        link.send(task);
    }
}

/// The folder, and the memory that it is read into and written from.
pub struct DiskLane {
    folder: Folder,
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
    /// A lane for a folder.
    pub fn new(folder: Folder, kept: Arc<Kept>, metrics: Arc<Metrics>) -> Self {
        metrics.disk.bytes.set(folder.bytes());
        Self { folder, kept, metrics }
    }

    /// Does a job, and fills in its answers.
    pub fn work(&mut self, task: &mut FileTask) {
        let clock = self.metrics.clock;
        let began = clock.now();
        let done = match task.job {
            FileJob::List => {
                task.found
                    .extend(std::iter::from_fn(|| self.folder.next_page()).take(FILES_LISTED));
                self.metrics.disk.bytes.set(self.folder.bytes());
                task.outcome = Outcome::Done;
                return;
            }
            FileJob::WritePage { page, file, parent } => self.write_page(page, file, parent),
            FileJob::ReadPage { page, file } => self.read_page(page, file),
            FileJob::WriteState { place, position, file } => {
                self.write_state(place, position, file)
            }
            FileJob::ReadState { place, position, file } => self.read_state(place, position, file),
            FileJob::Remove { file } => {
                self.folder.remove(file, &std::mem::take(&mut task.states));
                Ok(0)
            }
        };
        task.took = Duration::from_micros(clock.now().since(began));
        task.outcome = match &done {
            Ok(_) => Outcome::Done,
            Err(Undone::Write(error)) if is_full(error) => Outcome::Full,
            Err(Undone::Write(_) | Undone::InUse) => Outcome::Refused,
            Err(Undone::Read(error)) if !error.is_final() => Outcome::Refused,
            Err(Undone::Read(_) | Undone::Gone | Undone::Size) => Outcome::Gone,
        };
        task.bytes = *done.as_ref().unwrap_or(&0);
        self.count(task, done.err().as_ref());
    }

    fn count(&mut self, task: &FileTask, error: Option<&Undone>) {
        let metrics = &self.metrics.disk;
        metrics.bytes.set(self.folder.bytes());
        match task.job {
            FileJob::ReadPage { .. } | FileJob::ReadState { .. } => metrics.read.add(task.bytes),
            FileJob::WritePage { .. } | FileJob::WriteState { .. } => {
                metrics.written.add(task.bytes)
            }
            FileJob::List | FileJob::Remove { .. } => {}
        }
        match error {
            None => {}
            Some(error @ (Undone::Gone | Undone::InUse)) => {
                tracing::debug!(%error, job = ?task.job)
            }
            Some(error) => {
                metrics.failures.increment();
                tracing::warn!(%error, job = ?task.job, "a file of --cache-disk");
            }
        }
    }

    fn write_page(&mut self, page: PageId, file: FileId, parent: FileId) -> Result<u64, Undone> {
        let page = self.kept.page(page).ok_or(Undone::InUse)?;
        let (tokens, content) = (page.note().tokens(), page.note().cells(page.bytes()));
        if tokens.is_empty() {
            return Err(Undone::Gone);
        }
        let (state, tokens) = (None, tokens.into());
        let head = Head { file, parent, state, tokens, content: content.len() as u64 };
        Ok(self.folder.write(&head, content)?)
    }

    fn read_page(&mut self, page: PageId, file: FileId) -> Result<u64, Undone> {
        let mut page = self.kept.page_mut(page).ok_or(Undone::InUse)?;
        let (note, bytes) = page.parts();
        note.put(&[], 0);
        let read = self.folder.read(file, None).map_err(Undone::Read).and_then(|read| {
            let (Head { tokens, .. }, content) = read;
            let place = bytes.get_mut(..content.len()).ok_or(Undone::Size)?;
            if tokens.len() > note.tokens_max() || content.is_empty() {
                return Err(Undone::Size);
            }
            place.copy_from_slice(content);
            note.put(&tokens, content.len());
            Ok(content.len() as u64)
        });
        if read.as_ref().is_err_and(Undone::is_final) {
            self.folder.remove(file, &[]);
        }
        read
    }

    fn write_state(
        &mut self,
        place: CheckpointId,
        position: Position,
        file: FileId,
    ) -> Result<u64, Undone> {
        let state = self.kept.state(place).ok_or(Undone::InUse)?;
        if !state.note().is_behind(position) {
            return Err(Undone::Gone);
        }
        let (parent, tokens) = (FileId::default(), Box::default());
        let content = state.bytes().len() as u64;
        let head = Head { file, parent, state: Some(position.0), tokens, content };
        Ok(self.folder.write(&head, state.bytes())?)
    }

    fn read_state(
        &mut self,
        place: CheckpointId,
        position: Position,
        file: FileId,
    ) -> Result<u64, Undone> {
        let mut state = self.kept.state_mut(place).ok_or(Undone::InUse)?;
        let (note, bytes) = state.parts();
        *note = StateNote::default();
        let read = self.folder.read(file, Some(position.0)).map_err(Undone::Read);
        let read = read.and_then(|(_, content)| {
            if content.len() != bytes.len() {
                return Err(Undone::Size);
            }
            bytes.copy_from_slice(content);
            *note = StateNote { position, serial: self.kept.next_save() };
            Ok(content.len() as u64)
        });
        if read.as_ref().is_err_and(Undone::is_final) {
            self.folder.remove_state(file, position.0);
        }
        read
    }
}

impl Undone {
    /// Whether the file is of no use for ever.
    fn is_final(&self) -> bool {
        match self {
            Self::Read(error) => error.is_final(),
            Self::Size => true,
            Self::Write(_) | Self::Gone | Self::InUse => false,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
