//! The tasks of clients with slots, and how far they are. See [`super::slot_files`].

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::ring::files::{FileJob, Outcome};
use crate::types::{CacheScope, CheckpointId, KeyId, PageId, SlotAction, SlotId, TokenId};

/// A task of a client with a slot.
#[derive(Clone, Debug)]
pub struct SlotTask {
    /// The number under which its outcome is told.
    pub ticket: u64,
    /// What to do.
    pub action: SlotAction,
    /// The slot. A text can be brought back without one.
    pub slot: SlotId,
    /// Whose texts it may touch. The salt counts only to bring a text back.
    pub scope: CacheScope,
    /// The path of the file, from the folder of such files.
    pub path: PathBuf,
    /// Nobody waits for it any longer. It is dropped if it has not begun.
    pub abandoned: Arc<AtomicBool>,
}

/// The outcome of a [`SlotTask`].
#[derive(Clone, Debug)]
pub struct SlotOutcome {
    /// The task.
    pub task: SlotTask,
    /// The tokens and the bytes of its file, or why it was not done.
    pub done: Result<(usize, u64), SlotRefusal>,
}

/// Why a [`SlotTask`] was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotRefusal {
    /// Too many tasks wait.
    Busy,
    /// The slot keeps no text of this client.
    NoText,
    /// The prefix store in memory has no room for the text.
    NoRoom {
        /// The tokens of the text that it could take.
        stored: usize,
        /// The tokens of the text.
        tokens: usize,
    },
    /// The disk lane could not do it, for this reason.
    File(Outcome, String),
}

/// The tasks that wait, those that run, and the outcomes of those that ended.
#[derive(Default)]
pub(super) struct SlotTasks {
    pub waiting: VecDeque<Waiting>, // at most SLOT_TASKS_MAX
    pub saving: Option<Saving>,
    pub listing: Option<Listing>,
    /// The key whose text was saved last.
    pub last: Option<KeyId>,
    /// A step is needed that copies or clears something.
    pub needs_step: bool,
    outcomes: Vec<SlotOutcome>,
}

/// A task that waits.
pub(super) struct Waiting {
    pub task: SlotTask,
    /// The text to save or to erase, as soon as the slot was free. Of the tasks of a key with one slot,
    /// only the first has one, so all of them together are not longer than the KV cache.
    pub text: Option<(CacheScope, Vec<TokenId>)>,
    /// Why some of the text is not erased.
    pub failed: Option<SlotRefusal>,
}

/// A text that is being saved.
pub(super) struct Saving {
    pub task: SlotTask,
    pub pages: Vec<PageId>,
    pub states: Vec<CheckpointId>,
    pub tokens: usize,
    /// The jobs for the disk lane that are left.
    pub jobs: VecDeque<FileJob>,
    /// The disk lane has one of them.
    pub is_asked: bool,
    /// Why it is not saved after all.
    pub failed: Option<SlotRefusal>,
}

/// A file whose pages are being listed.
pub(super) struct Listing {
    pub task: SlotTask,
    /// The disk lane lists some of them.
    pub is_asked: bool,
    /// It has listed some.
    pub is_begun: bool,
    /// The tokens of the pages so far, and those before the last state.
    pub tokens: usize,
    pub state: usize,
}

impl SlotTasks {
    /// Whether there is nothing to do and to tell.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.saving.is_none()
            && self.listing.is_none()
            && self.outcomes.is_empty()
    }

    /// The number of outcomes that were not taken yet.
    pub fn ended(&self) -> usize {
        self.outcomes.len()
    }

    /// The outcomes since the last call.
    pub fn take_outcomes(&mut self) -> Vec<SlotOutcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Notes that a file was not removed. It may be of any text that is being erased.
    pub fn erase_failed(&mut self, outcome: Outcome, reason: &str) {
        let erased = |waiting: &&mut Waiting| {
            waiting.task.action == SlotAction::Erase && waiting.text.is_some()
        };
        for waiting in self.waiting.iter_mut().filter(erased) {
            waiting.failed = Some(SlotRefusal::File(outcome, reason.to_owned()));
        }
    }

    /// Notes the outcome of a task.
    pub fn end(&mut self, task: SlotTask, done: Result<(usize, u64), SlotRefusal>) {
        self.outcomes.push(SlotOutcome { task, done });
    }
}
