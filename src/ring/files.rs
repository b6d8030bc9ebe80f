//! The tasks of the disk lane. A [`FileTask`] goes to the lane with a job, and comes back with its
//! outcome.

use std::path::PathBuf;
use std::time::Duration;

use crate::types::{CheckpointId, FileId, PageId, Position, TokenId};

/// A job of the disk lane, and its outcome.
#[derive(Debug, Default)]
pub struct FileTask {
    /// What to do.
    pub job: FileJob,
    /// Answer: whether that succeeded.
    pub outcome: Outcome,
    /// Answer: the bytes that the written file takes, or those that were read.
    pub bytes: u64,
    /// Answer: the time that it took.
    pub took: Duration,
    /// Answer: some of the files that are there.
    pub found: Vec<FoundPage>,
    /// For [`FileJob::Remove`]: the tokens before each state of the page.
    pub states: Vec<u32>,
    /// For [`FileJob::BeginSave`] and the first [`FileJob::ListSave`]: the path of the slot's file,
    /// from the folder of such files.
    pub path: PathBuf,
    /// Answer to jobs on a slot's file that were not done: why, for people.
    pub reason: String,
}

/// The outcome of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The file was of no use, or what should be written is no longer there.
    #[default]
    Gone,
    /// The system refused it. The file is as it was before.
    Refused,
    /// The disk is full. Nothing was written.
    Full,
}

/// What the disk lane does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileJob {
    /// List the pages that an earlier server of this model has left, those used last first. Each
    /// job lists some of them; the last one lists none.
    #[default]
    List,
    /// Write the page at this place to a file.
    WritePage {
        /// The place in memory.
        page: PageId,
        /// The text up to the end of the page.
        file: FileId,
        /// The text before the page.
        parent: FileId,
    },
    /// Read a page from its file.
    ReadPage {
        /// The place in memory.
        page: PageId,
        /// The text up to the end of the page.
        file: FileId,
        /// Where it is.
        source: Source,
    },
    /// Write the state at this place to a file.
    WriteState {
        /// The place in memory.
        place: CheckpointId,
        /// The tokens before the state.
        position: Position,
        /// The page that holds the last of these tokens.
        file: FileId,
    },
    /// Read a state from its file.
    ReadState {
        /// The place in memory.
        place: CheckpointId,
        /// The tokens before the state.
        position: Position,
        /// The page that holds the last of these tokens.
        file: FileId,
        /// Where it is.
        source: Source,
    },
    /// Remove the files of a page and of the states behind its tokens, or forget what the file of a
    /// slot has of them.
    Remove {
        /// The page.
        file: FileId,
        /// Where it is.
        source: Source,
    },
    /// Begin to write the file of a slot. There is one at a time.
    BeginSave,
    /// Add the page at this place to the file of the slot.
    SavePage {
        /// The place in memory.
        page: PageId,
        /// The text up to the end of the page.
        file: FileId,
        /// The text before the page.
        parent: FileId,
    },
    /// Add the state at this place to the file of the slot.
    SaveState {
        /// The place in memory.
        place: CheckpointId,
        /// The tokens before the state.
        position: Position,
        /// The page that holds the last of these tokens.
        file: FileId,
    },
    /// Complete the file of the slot, or remove what there is of it.
    EndSave {
        /// Whether it is complete.
        keep: bool,
    },
    /// List the pages in the file of a slot, from the start of its text. From then on, they are read
    /// from there. Each job lists some of them; the last one lists none. The first one has a path.
    ListSave {
        /// The empty text of those who may use it.
        root: FileId,
    },
}

/// Where the file of a page or of a state is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// In the folder of the prefix store.
    #[default]
    Store,
    /// Within the file of a slot that a client has brought back.
    Slot,
}

/// A page that an earlier server has left, or one in the file of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPage {
    /// The text up to the end of the page.
    pub file: FileId,
    /// The text before the page.
    pub parent: FileId,
    /// The tokens of the page.
    pub tokens: Box<[TokenId]>,
    /// The tokens before each saved state in it.
    pub states: Vec<u32>,
    /// The bytes of its files.
    pub bytes: u64,
}
