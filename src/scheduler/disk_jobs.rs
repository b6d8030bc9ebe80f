//! The jobs of the disk lane, and what waiting sequences wait for. See [`super::disk`].

use std::collections::VecDeque;
use std::time::Duration;

use super::files::Files;
use crate::clock::Micros;
use crate::ring::files::FileJob;
use crate::types::{CheckpointId, PageId};

/// The files, and the jobs to do.
pub(super) struct Disk {
    pub files: Files,
    pub listing: Listing,
    /// Files to read, each with the last step that may use what its place in memory held before.
    pub reads: VecDeque<(u64, FileJob)>,
    /// The places for states that are being read, each with the page that the state belongs to.
    pub states: Vec<(CheckpointId, PageId)>,
    /// Pages that may lack a file, or files of their states.
    pub unwritten: VecDeque<PageId>,
    pub jobs: usize,
    /// After a failed write, the time until which nothing is written.
    pub paused_until: Micros,
    /// The time to read a page, of the last one that was read.
    pub page_took: Option<Duration>,
}

/// The list of the files that an earlier server has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    Wanted,
    Asked,
    Done,
}

/// What a waiting sequence waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetch {
    /// Its pages in memory, with those that are being read.
    pub pages: Vec<PageId>,
    /// The place of a state that is being read.
    pub state: Option<CheckpointId>,
    /// The list of files is not complete.
    pub is_listing: bool,
    /// It waits no longer than this.
    pub until: Micros,
    /// The wait is over. The pages are kept until the sequence starts.
    pub is_over: bool,
    /// The tokens of the pages that were read.
    pub tokens: usize,
}

impl Disk {
    /// Without jobs.
    pub fn new(files: Files) -> Self {
        Self {
            files,
            listing: Listing::Wanted,
            reads: VecDeque::new(),
            states: Vec::new(),
            unwritten: VecDeque::new(),
            jobs: 0,
            paused_until: Micros(0),
            page_took: None,
        }
    }

    /// Notes that a page may lack files. `most` pages are noted.
    pub fn note(&mut self, page: PageId, most: usize) {
        if self.unwritten.len() == most {
            self.unwritten.pop_front();
        }
        self.unwritten.push_back(page);
    }
}
