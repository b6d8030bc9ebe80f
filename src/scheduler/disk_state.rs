//! The state of the disk lane's jobs, and that of sequences that wait for files. See
//! [`super::disk`].

use std::collections::VecDeque;

use super::files::Files;
use crate::clock::Micros;
use crate::ring::files::FileJob;
use crate::types::{CheckpointId, FileId, PageId};

/// The files, and the jobs to do.
pub(super) struct Disk {
    pub files: Files,
    pub listing: Listing,
    /// From then on, no sequence waits for the list.
    pub list_until: Option<Micros>,
    /// Files to read, each with the last step that may use what its place in memory held before.
    pub reads: VecDeque<(u64, FileJob)>,
    /// The places for states that are being read.
    pub states: Vec<ReadState>,
    /// Pages that may lack a file, or files of their states. Each is there once.
    unwritten: VecDeque<PageId>,
    is_unwritten: Box<[bool]>, // [pages]
    /// Jobs that the lane has.
    pub jobs: usize,
    /// After a failed write, the time until which nothing is written.
    pub paused_until: Micros,
    /// The seconds to read a byte, an average. 0 if nothing was read yet.
    pub read_s: f64,
}

/// The list of the files that an earlier server has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    Wanted,
    Asked,
    Done,
}

/// A recurrent state that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadState {
    pub place: CheckpointId,
    /// The page that holds the token before the state, and the tokens before it.
    pub page: PageId,
    pub position: usize,
}

/// What a waiting sequence waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetch {
    /// The files of pages that it still wants, in the order of the text.
    pub wanted: VecDeque<FileId>,
    /// The file of a state that it wants behind them, and the tokens before the state.
    pub wanted_state: Option<(FileId, usize)>,
    /// Its pages in memory. They are kept until it starts.
    pub pages: Vec<PageId>,
    /// Those of them that are being read.
    pub coming: usize,
    /// The place of a state that is being read.
    pub state: Option<CheckpointId>,
    /// The list of files is not complete.
    pub is_listing: bool,
    /// It waits no longer than this.
    pub until: Micros,
    /// The wait is over.
    pub is_over: bool,
    /// The tokens that were read.
    pub tokens: usize,
}

impl Disk {
    /// Without jobs, for a store of `pages` pages.
    pub fn new(files: Files, pages: usize) -> Self {
        Self {
            files,
            listing: Listing::Wanted,
            list_until: None,
            reads: VecDeque::new(),
            states: Vec::new(),
            unwritten: VecDeque::with_capacity(pages),
            is_unwritten: vec![false; pages].into(),
            jobs: 0,
            paused_until: Micros(0),
            read_s: 0.0,
        }
    }

    /// Notes that a page may lack files.
    pub fn note(&mut self, page: PageId) {
        if !std::mem::replace(&mut self.is_unwritten[page.index()], true) {
            self.unwritten.push_back(page);
        }
    }

    /// Notes that a page lacks files, and comes before the others.
    pub fn note_first(&mut self, page: PageId) {
        if std::mem::replace(&mut self.is_unwritten[page.index()], true) {
            self.unwritten.retain(|other| *other != page);
        }
        self.unwritten.push_front(page);
    }

    /// Takes the next page that may lack files.
    pub fn next_unwritten(&mut self) -> Option<PageId> {
        let page = self.unwritten.pop_front()?;
        self.is_unwritten[page.index()] = false;
        Some(page)
    }

    /// Whether a page may lack files.
    pub fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Gives up all pages that may lack files.
    pub fn forget_unwritten(&mut self) {
        self.unwritten.clear();
        self.is_unwritten.fill(false);
    }
}

impl Fetch {
    /// Ends the wait if nothing more comes.
    pub fn end_if_complete(&mut self) {
        let is_complete =
            self.wanted.is_empty() && self.wanted_state.is_none() && self.state.is_none();
        self.is_over |= is_complete && self.coming == 0 && !self.is_listing;
    }

    /// Wants nothing more.
    pub fn give_up(&mut self) {
        self.wanted.clear();
        self.wanted_state = None;
    }
}
