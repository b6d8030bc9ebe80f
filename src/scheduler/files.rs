//! The prefix store's files: which texts they hold.
//!
//! As in memory, a file has a page of a text, and continues that of its parent. It is known by a
//! hash of the whole text up to the end of the page, and of who may use it. So a parent that was
//! removed does no harm: its children are no longer found, and go when room is needed.

use std::collections::{HashMap, VecDeque};

use super::capacity::FileSizes;
use crate::limits::FILES_MAX;
use crate::ring::files::FoundPage;
use crate::types::{CacheScope, FileId, TokenId};

/// How often a page that must make room is looked for before the store gives up for now.
const TRIES_TO_EVICT: usize = 256;

/// Most pages behind a text that are compared with another text which parts from them.
const BRANCHES_COMPARED: usize = 32;

/// See the module's description.
pub(super) struct Files {
    sizes: FileSizes,
    known: HashMap<FileId, Known>,
    /// The pages behind each text.
    children: HashMap<FileId, Vec<FileId>>,
    /// All pages, about in the order of their last use.
    order: VecDeque<FileId>,
    bytes: u64,
    /// Pages that were lost, with the tokens before each of their states, whose files are to be
    /// removed.
    lost: Vec<(FileId, Vec<u32>)>,
}

/// A page that is in a file, or is being written.
struct Known {
    parent: FileId,
    tokens: Box<[TokenId]>,
    /// The tokens of its text before each state that has a file, and those of states that
    /// are being written.
    states: Vec<u32>,
    unwritten: Vec<u32>,
    is_written: bool,
    /// The bytes of its files.
    bytes: u64,
    /// It was used since it was last passed over.
    is_used: bool,
    /// Jobs that use its files.
    jobs: u32,
}

impl Known {
    /// A page whose files are there, and were not used yet.
    fn written(parent: FileId, tokens: Box<[TokenId]>, states: Vec<u32>, bytes: u64) -> Self {
        let (unwritten, is_written, is_used, jobs) = (Vec::new(), true, false, 0);
        Self { parent, tokens, states, unwritten, is_written, bytes, is_used, jobs }
    }
}

/// A page that continues a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub file: FileId,
    /// The first tokens of the page that the text has, too.
    pub same: usize,
}

impl Files {
    /// No files yet.
    pub fn new(sizes: FileSizes) -> Self {
        let most = sizes.bytes_max / sizes.page_bytes.max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(FILES_MAX);
        Self {
            sizes,
            known: HashMap::with_capacity(most),
            children: HashMap::with_capacity(most),
            order: VecDeque::with_capacity(most),
            bytes: 0,
            lost: Vec::new(),
        }
    }

    /// No files of slots yet, for a server whose own files have these sizes.
    pub fn of_slots(sizes: FileSizes) -> Self {
        // Few servers have any, so they take no memory yet.
        let none = Self::new(FileSizes { bytes_max: 0, ..sizes });
        Self { sizes: FileSizes { bytes_max: u64::MAX, ..sizes }, ..none }
    }

    /// Whether a page has a file, or is getting one.
    pub fn has(&self, file: FileId) -> bool {
        self.known.contains_key(&file)
    }

    /// Whether a state behind a page's tokens has a file, or is getting one.
    pub fn has_state(&self, file: FileId, position: usize) -> bool {
        let position = position as u32; // at most SEQUENCE_TOKENS_MAX
        let has =
            |known: &Known| known.states.contains(&position) || known.unwritten.contains(&position);
        self.known.get(&file).is_some_and(has)
    }

    /// The tokens before each state of a page, if it is there.
    pub fn states_of(&self, file: FileId) -> &[u32] {
        self.known.get(&file).map_or(&[], |known| &known.states)
    }

    /// The tokens of a page, if it can be read.
    pub fn tokens_of(&self, file: FileId) -> &[TokenId] {
        let known = self.known.get(&file).filter(|known| known.is_written);
        known.map_or(&[], |known| &known.tokens)
    }

    /// The page behind the text `parent` that has the most first tokens of `wanted`, and is whole.
    pub fn next(&self, parent: FileId, wanted: &[TokenId], page_tokens: usize) -> Option<Next> {
        if let Some(page) = wanted.get(..page_tokens) {
            let file = parent.with(page);
            if self.known.get(&file).is_some_and(|known| known.is_written) {
                return Some(Next { file, same: page_tokens });
            }
        }
        let children = self.children.get(&parent)?;
        let newest = children.iter().rev().take(BRANCHES_COMPARED);
        let next = newest.filter_map(|file| {
            let known = self.known.get(file).filter(|known| known.is_written)?;
            let same = known.tokens.iter().zip(wanted).take_while(|(a, b)| a == b).count();
            Some(Next { file: *file, same })
        });
        next.filter(|next| next.same > 0).max_by_key(|next| next.same)
    }

    /// Adds a page that an earlier server has left: one that was used before those that were found
    /// earlier. If there is no room, its files are to be removed.
    pub fn found(&mut self, page: FoundPage) {
        let FoundPage { file, parent, tokens, states, bytes } = page;
        if self.known.len() >= FILES_MAX || self.bytes + bytes > self.sizes.bytes_max {
            self.lost.push((file, states));
            return;
        }
        let known = Known::written(parent, tokens, states, bytes);
        self.insert(file, known);
        self.order.push_front(file);
    }

    /// Adds a page in the file of a slot. It takes no room of its own.
    pub fn restore(&mut self, page: FoundPage) {
        let FoundPage { file, parent, tokens, states, .. } = page;
        if let Some(known) = self.known.get_mut(&file) {
            known.is_used = true;
            let new = states.into_iter().filter(|state| !known.states.contains(state));
            let new: Vec<u32> = new.collect();
            known.states.extend(new);
            return;
        }
        let Ok(oldest) = self.make_room(0, [file, parent]) else { return };
        if let Some(oldest) = oldest {
            let states = self.remove(oldest);
            self.lost.push((oldest, states));
        }
        let known = Known { is_used: true, ..Known::written(parent, tokens, states, 0) };
        self.insert(file, known);
        self.order.push_back(file);
    }

    /// Lets the files of a text and of its beginnings be removed. Pages that belong to other texts,
    /// too, stay. Returns false if some are in use now.
    pub fn erase(&mut self, scope: CacheScope, text: &[TokenId], page_tokens: usize) -> bool {
        // Pages with tokens of the text alone, each behind those that it goes on from.
        let (mut files, mut last, mut from) = (Vec::new(), scope.root(&self.sizes.seed), 0);
        while let Some(children) = self.children.get(&last) {
            let rest = &text[from..];
            files
                .extend(children.iter().filter(|file| rest.starts_with(&self.known[*file].tokens)));
            let Some(page) = rest.get(..page_tokens) else { break };
            (last, from) = (last.with(page), from + page_tokens);
        }
        let before = self.lost.len();
        let mut is_gone = true;
        for file in files.into_iter().rev() {
            if self.known[&file].jobs > 0 {
                is_gone = false;
            } else if !self.children.contains_key(&file) {
                let states = self.remove(file);
                self.lost.push((file, states));
            }
        }
        if self.lost.len() > before {
            self.order.retain(|file| self.known.contains_key(file));
        }
        is_gone
    }

    /// Adds a page that is about to be written. Until then it counts with the most bytes.
    pub fn begin_page(&mut self, file: FileId, parent: FileId, tokens: &[TokenId]) {
        let known = Known {
            parent,
            tokens: tokens.into(),
            states: Vec::new(),
            unwritten: Vec::new(),
            is_written: false,
            bytes: self.sizes.page_bytes,
            is_used: true,
            jobs: 1,
        };
        self.insert(file, known);
        self.order.push_back(file);
    }

    fn insert(&mut self, file: FileId, known: Known) {
        self.children.entry(known.parent).or_default().push(file);
        self.bytes += known.bytes;
        self.known.insert(file, known);
    }

    /// Notes that a page was written, with its bytes, or that it was not.
    pub fn end_page(&mut self, file: FileId, bytes: Option<u64>) {
        let known = self.known.get_mut(&file).expect("a page stays while it is written");
        known.is_written = bytes.is_some();
        let of_states = known.bytes - self.sizes.page_bytes;
        let now = bytes.unwrap_or_default() + of_states;
        self.bytes = self.bytes - known.bytes + now;
        known.bytes = now;
        self.end_job(file);
    }

    /// Notes that a state behind a page's tokens is about to be written.
    pub fn begin_state(&mut self, file: FileId, position: usize) {
        let known = self.known.get_mut(&file).expect("a state's page is there");
        known.unwritten.push(position as u32); // at most SEQUENCE_TOKENS_MAX
        known.jobs += 1;
        known.bytes += self.sizes.state_bytes;
        self.bytes += self.sizes.state_bytes;
    }

    /// Notes that a state was written, with its bytes, or that it was not.
    pub fn end_state(&mut self, file: FileId, position: u32, bytes: Option<u64>) {
        let known = self.known.get_mut(&file).expect("a page stays while its state is written");
        known.unwritten.retain(|other| *other != position);
        if bytes.is_some() {
            known.states.push(position);
        }
        let now = known.bytes - self.sizes.state_bytes + bytes.unwrap_or_default();
        self.bytes = self.bytes - known.bytes + now;
        known.bytes = now;
        self.end_job(file);
    }

    /// Notes that a page or a state of it is about to be read.
    pub fn begin_read(&mut self, file: FileId) {
        let known = self.known.get_mut(&file).expect("only what is known is read");
        (known.is_used, known.jobs) = (true, known.jobs + 1);
    }

    /// Notes that a page was read, or that it could not be used. Its file is gone then.
    pub fn end_read(&mut self, file: FileId, is_read: bool) {
        let known = self.known.get_mut(&file).expect("a page stays while it is read");
        known.is_written &= is_read;
        self.end_job(file);
    }

    /// Notes that a state was read, or that it could not be used. Its file is gone then.
    pub fn end_read_state(&mut self, file: FileId, position: u32, is_read: bool) {
        let known = self.known.get_mut(&file).expect("a page stays while its state is read");
        let before = known.states.len();
        known.states.retain(|other| is_read || *other != position);
        if known.states.len() < before {
            let bytes = self.sizes.state_bytes.min(known.bytes);
            known.bytes -= bytes;
            self.bytes -= bytes;
        }
        self.end_job(file);
    }

    /// One job of a page less. A page without a file goes with its last job.
    fn end_job(&mut self, file: FileId) {
        let known = self.known.get_mut(&file).expect("a page stays during its jobs");
        known.jobs -= 1;
        if known.jobs == 0 && !known.is_written {
            let states = self.remove(file);
            self.order.retain(|other| *other != file);
            if !states.is_empty() {
                self.lost.push((file, states));
            }
        }
    }

    /// A page without a file whose states' files are to be removed, with the tokens before each.
    pub fn next_lost(&mut self) -> Option<(FileId, Vec<u32>)> {
        self.lost.pop()
    }

    /// Whether there is such a page.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Notes that a text is used, so that its pages stay.
    pub fn touch(&mut self, file: FileId) {
        if let Some(known) = self.known.get_mut(&file) {
            known.is_used = true;
        }
    }

    /// The page that must go before a file of `bytes` bytes is written: one that was not used for
    /// long, and none of `kept`. `Err` if there is none.
    pub fn make_room(&mut self, bytes: u64, kept: [FileId; 2]) -> Result<Option<FileId>, ()> {
        if self.bytes + bytes <= self.sizes.bytes_max && self.known.len() < FILES_MAX {
            return Ok(None);
        }
        // The first look at a page that was used spares it.
        for _ in 0..TRIES_TO_EVICT.min(2 * self.order.len()) {
            let file = self.order.pop_front().expect("it is not empty");
            let known = self.known.get_mut(&file).expect("those in order are known");
            let has_children = self.children.get(&file).is_some_and(|all| !all.is_empty());
            if known.jobs > 0 || known.is_used || has_children || kept.contains(&file) {
                known.is_used = false;
                self.order.push_back(file);
                continue;
            }
            return Ok(Some(file));
        }
        Err(())
    }

    /// Notes that there is no more room on the disk: the files must not become more.
    pub fn shrink(&mut self) {
        if self.bytes > 0 {
            self.sizes.bytes_max = self.sizes.bytes_max.min(self.bytes);
        }
    }

    /// Forgets a page. Returns the tokens before its states, which have files.
    pub fn remove(&mut self, file: FileId) -> Vec<u32> {
        let Some(known) = self.known.remove(&file) else { return Vec::new() };
        self.bytes -= known.bytes;
        if let Some(siblings) = self.children.get_mut(&known.parent) {
            siblings.retain(|sibling| *sibling != file);
            if siblings.is_empty() {
                self.children.remove(&known.parent);
            }
        }
        known.states
    }

    /// The most bytes of a page's file, and of a state's.
    pub fn sizes(&self) -> FileSizes {
        self.sizes
    }

    /// The pages that have files, with the tokens before each state that has one. For tests.
    pub fn written(&self) -> impl Iterator<Item = (FileId, &[u32])> {
        let written = self.known.iter().filter(|(_, known)| known.is_written);
        written.map(|(file, known)| (*file, &*known.states))
    }

    /// Compares the pages with each other. For tests.
    ///
    /// # Panics
    /// If they disagree.
    pub fn check(&self) {
        let bytes: u64 = self.known.values().map(|known| known.bytes).sum();
        assert_eq!(self.bytes, bytes);
        let children: usize = self.children.values().map(Vec::len).sum();
        assert_eq!(children, self.known.len(), "each page stands behind one text");
        assert!(self.known.keys().all(|file| self.order.contains(file)), "each page can go");
        assert_eq!(self.order.len(), self.known.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CacheScope;

    const SEED: [u8; 32] = [3; 32];

    fn files() -> Files {
        Files::new(FileSizes { bytes_max: 300, page_bytes: 100, state_bytes: 10, seed: SEED })
    }

    fn write(files: &mut Files, parent: FileId, tokens: &[TokenId]) -> FileId {
        let file = parent.with(tokens);
        files.begin_page(file, parent, tokens);
        let found = files.next(parent, tokens, 4).map(|next| next.file);
        assert_ne!(found, Some(file), "not before it is written");
        files.end_page(file, Some(100));
        files.check();
        file
    }

    #[test]
    fn a_text_is_found_by_its_pages_and_by_the_beginning_of_its_last_one() {
        let mut files = files();
        let start = CacheScope::default().root(&SEED);
        let first = write(&mut files, start, &[1, 2, 3, 4]);
        let short = write(&mut files, first, &[5, 6]);
        let wanted = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(files.next(start, &wanted, 4), Some(Next { file: first, same: 4 }));
        assert_eq!(files.next(first, &wanted[4..], 4), Some(Next { file: short, same: 2 }));
        assert_eq!(files.next(start, &[1, 2, 9, 9, 9], 4), Some(Next { file: first, same: 2 }));
        assert_eq!(files.next(start, &[2, 2], 4), None);
        let other = CacheScope { tenant: 1, ..CacheScope::default() };
        let salted = CacheScope { salt: 1, ..CacheScope::default() };
        for scope in [other, salted] {
            assert_eq!(files.next(scope.root(&SEED), &wanted, 4), None);
        }
        assert_eq!(files.next(CacheScope::default().root(&[4; 32]), &wanted, 4), None);
    }

    #[test]
    fn pages_that_were_not_used_make_room_the_last_ones_of_a_text_first() {
        let mut files = files();
        let start = CacheScope::default().root(&SEED);
        let first = write(&mut files, start, &[1, 2, 3, 4]);
        let second = write(&mut files, first, &[5, 6]);
        let other = write(&mut files, start, &[9]);
        assert_eq!(files.make_room(0, [start, start]), Ok(None));
        // Each was used when it was written. The first look spares it.
        let none = [start, start];
        files.touch(first);
        assert_eq!(files.make_room(100, [second, other]), Err(()), "it has a page behind it");
        assert_eq!(files.make_room(100, [second, start]), Ok(Some(other)));
        assert!(files.remove(other).is_empty());
        files.check();
        files.begin_state(second, 6);
        assert_eq!(files.make_room(100, none), Err(()), "its state is being written");
        files.end_state(second, 6, Some(10));
        files.begin_read(second);
        assert_eq!(files.make_room(100, none), Err(()), "it is being read");
        files.end_read(second, true);
        assert_eq!(files.make_room(100, none), Ok(Some(second)));
        assert_eq!(files.remove(second), [6]);
        assert_eq!(files.bytes, 100);
        files.check();
    }

    #[test]
    fn the_states_of_a_page_are_those_that_were_written() {
        let mut files = files();
        let start = CacheScope::default().root(&SEED);
        let page = write(&mut files, start, &[1, 2, 3, 4]);
        files.begin_state(page, 3);
        assert!(files.has_state(page, 3) && files.states_of(page).is_empty());
        files.end_state(page, 3, None);
        assert!(!files.has_state(page, 3), "it was not written");
        files.begin_state(page, 4);
        files.end_state(page, 4, Some(10));
        assert_eq!(files.states_of(page), [4]);
        files.begin_read(page);
        files.end_read_state(page, 4, false);
        assert!(!files.has_state(page, 4), "its file is gone");
        assert_eq!(files.bytes, 100);
        files.check();
    }

    #[test]
    fn a_page_that_cannot_be_read_goes_when_its_jobs_have_ended_with_its_states() {
        let mut files = files();
        let start = CacheScope::default().root(&SEED);
        let page = write(&mut files, start, &[1, 2, 3, 4]);
        files.begin_state(page, 3);
        files.begin_read(page);
        files.begin_read(page);
        files.end_read(page, false);
        assert_eq!(files.next(start, &[1, 2, 3, 4], 4), None);
        files.end_state(page, 3, Some(10));
        assert!(files.has(page) && files.next_lost().is_none(), "a job uses it");
        files.end_read(page, false);
        assert!(!files.has(page));
        assert_eq!(files.next_lost(), Some((page, vec![3])));
        assert_eq!(files.bytes, 0);
        files.check();
    }

    #[test]
    fn an_erased_text_goes_with_its_beginnings_but_for_what_others_use() {
        let mut files = files();
        let scope = CacheScope::default();
        let start = scope.root(&SEED);
        let first = write(&mut files, start, &[1, 2, 3, 4]);
        let short = write(&mut files, first, &[5]);
        let second = write(&mut files, first, &[5, 6, 7, 8]);
        let last = write(&mut files, second, &[9]);
        let other = write(&mut files, first, &[6, 6]);
        let longer = write(&mut files, second, &[9, 9]);
        files.begin_read(short);
        let text = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert!(!files.erase(scope, &text, 4), "a job uses one");
        files.end_read(short, true);
        assert!(files.erase(scope, &text, 4));
        files.check();
        let has = |file: &FileId| files.has(*file);
        assert_eq!([first, second, other, longer].iter().filter(|file| has(file)).count(), 4);
        assert!(!has(&short) && !has(&last));
        assert!(files.erase(scope, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 9], 4));
        assert!(files.erase(scope, &[1, 2, 3, 4, 6, 6, 1], 4));
        files.check();
        assert_eq!((files.known.len(), files.order.len(), files.bytes), (0, 0, 0));
        let lost: Vec<_> = std::iter::from_fn(|| files.next_lost()).collect();
        assert_eq!(lost.len(), 6);
    }

    #[test]
    fn pages_in_the_files_of_slots_take_no_room() {
        let mut files = Files::of_slots(files().sizes());
        let start = CacheScope::default().root(&SEED);
        let tokens: Box<[TokenId]> = [1, 2, 3, 4].into();
        let file = start.with(&tokens);
        let page = |states: &[u32]| FoundPage {
            file,
            parent: start,
            tokens: tokens.clone(),
            states: states.into(),
            bytes: 0,
        };
        files.restore(page(&[2]));
        files.restore(page(&[2, 4]));
        files.check();
        assert_eq!(files.states_of(file), [2, 4]);
        assert_eq!(files.next(start, &[1, 2, 3, 4, 5], 4), Some(Next { file, same: 4 }));
        files.begin_read(file);
        files.end_read_state(file, 2, false);
        files.check();
        assert_eq!((files.states_of(file), files.bytes), (&[4][..], 0));
    }
}
