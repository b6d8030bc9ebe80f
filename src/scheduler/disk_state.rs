//! The state of the disk lane's jobs, and that of sequences that wait for files. See
//! [`super::disk`].

use std::collections::VecDeque;

use super::capacity::FileSizes;
use super::files::{Files, Next};
use crate::clock::Micros;
use crate::ring::files::{FileJob, FileTask, Source};
use crate::types::{CheckpointId, FileId, PageId, TokenId};

/// The files, and the jobs to do.
pub(super) struct Disk {
    /// The files that the server writes by itself.
    pub files: Files,
    /// Files of slots that clients have brought back.
    pub saved: Files,
    /// The server writes files by itself. Otherwise, only clients save texts.
    pub writes: bool,
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
    /// Jobs that the lane has, and those of them that remove files.
    pub jobs: usize,
    pub removals: usize,
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

/// A state that is being read.
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
    pub fn new(sizes: FileSizes, pages: usize) -> Self {
        let writes = sizes.bytes_max > 0;
        Self {
            files: Files::new(sizes),
            saved: Files::of_slots(sizes),
            writes,
            listing: if writes { Listing::Wanted } else { Listing::Done },
            list_until: None,
            reads: VecDeque::new(),
            states: Vec::new(),
            unwritten: VecDeque::with_capacity(pages),
            is_unwritten: vec![false; pages].into(),
            jobs: 0,
            removals: 0,
            paused_until: Micros(0),
            read_s: 0.0,
        }
    }

    /// The files of a source.
    pub fn of(&mut self, source: Source) -> &mut Files {
        match source {
            Source::Store => &mut self.files,
            Source::Slot => &mut self.saved,
        }
    }

    /// The page behind the text `parent` that has the most first tokens of `wanted`.
    pub fn next(&self, parent: FileId, wanted: &[TokenId], page_tokens: usize) -> Option<Next> {
        let all = [&self.saved, &self.files].map(|files| files.next(parent, wanted, page_tokens));
        all.into_iter().flatten().max_by_key(|next| next.same)
    }

    /// The tokens before each state of a page that can be read.
    pub fn states_of(&self, file: FileId) -> impl Iterator<Item = usize> {
        let all = [&self.files, &self.saved].map(|files| files.states_of(file));
        all.into_iter().flatten().map(|position| *position as usize)
    }

    /// From where a page can be read, with its tokens.
    pub fn source_of(&self, file: FileId) -> Option<(Source, &[TokenId])> {
        let all = [(Source::Store, &self.files), (Source::Slot, &self.saved)];
        let mut all = all.map(|(source, files)| (source, files.tokens_of(file))).into_iter();
        all.find(|(_, tokens)| !tokens.is_empty())
    }

    /// From where a state of a page can be read.
    pub fn source_of_state(&self, file: FileId, position: usize) -> Option<Source> {
        let has = |files: &Files| files.states_of(file).contains(&(position as u32)); // at most SEQUENCE_TOKENS_MAX
        let all = [(Source::Store, &self.files), (Source::Slot, &self.saved)];
        all.into_iter().find_map(|(source, files)| has(files).then_some(source))
    }

    /// A removal that is due.
    pub fn next_removal(&mut self) -> Option<FileTask> {
        let lost = self.files.next_lost().map(|lost| (lost, Source::Store));
        let lost = lost.or_else(|| Some((self.saved.next_lost()?, Source::Slot)));
        let ((file, states), source) = lost?;
        Some(FileTask { job: FileJob::Remove { file, source }, states, ..FileTask::default() })
    }

    /// Whether files are still to be removed.
    pub fn is_removing(&self) -> bool {
        self.removals > 0 || self.files.has_lost() || self.saved.has_lost()
    }

    /// Notes that a page may lack files.
    pub fn note(&mut self, page: PageId) {
        if self.writes && !std::mem::replace(&mut self.is_unwritten[page.index()], true) {
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
