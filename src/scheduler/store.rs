//! The prefix store: which tokens are kept in memory outside the KV cache.
//!
//! The store has pages. A page holds the KV cells of some tokens that follow each other in a text.
//! Pages form trees, as the texts that they come from: a page continues its parent. So a beginning
//! that texts share is stored once. Only the last page of a text may have fewer than
//! [`Store::page_tokens`] tokens.
//!
//! [`super::moves`] copies texts into the store before they are evicted from the KV cache, and back.

use super::checkpoints::Checkpoints;
use crate::types::{CacheScope, CheckpointId, FileId, KeyId, PageId, TokenId};

/// See the module's description.
pub(super) struct Store {
    pages: Vec<Option<Page>>,
    free: Vec<PageId>, // capacity `pages.len()`
    /// The first pages of all texts.
    roots: Vec<PageId>,
    /// Most tokens of a page.
    page_tokens: usize,
    /// What the names of texts begin with, if texts have names.
    seed: Option<[u8; 32]>,
}

struct Page {
    /// The sequences that may use it.
    scope: CacheScope,
    parent: Option<PageId>,
    children: Vec<PageId>,
    tokens: Box<[TokenId]>,
    /// The states behind some of its tokens, with the numbers of their saves.
    checkpoints: Vec<(CheckpointId, u64)>,
    /// The step that stored it.
    stored: u64,
    /// The last step that stored it or used it.
    used: u64,
    /// Sequences that will load it, and jobs of the disk lane that use it.
    pins: u32,
    /// It has no cells, because the step that should have stored it failed, or because it is being
    /// read.
    is_lost: bool,
    /// It is being read from a file.
    is_coming: bool,
    /// Its cells are there, and no step in flight still has to store them.
    is_made: bool,
    /// The name of its text up to its end, if texts have names.
    file: Option<FileId>,
}

/// A beginning of a text that the store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    /// Its pages, from the start of the text.
    pub pages: Vec<PageId>,
    /// Its tokens. The last page may have more.
    pub tokens: usize,
}

/// The part of a text that the store lacks next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// The page before it.
    pub parent: Option<PageId>,
    /// A shorter last page that the new one replaces.
    pub shorter: Option<PageId>,
    /// The first token of the part, and the first one behind it.
    pub from: usize,
    pub to: usize,
}

impl Store {
    /// Room for `count` pages of `page_tokens` tokens.
    pub fn new(count: usize, page_tokens: usize) -> Self {
        let free = (0..count as u32).rev().map(PageId).collect(); // at most PAGES_MAX
        let (pages, roots) = ((0..count).map(|_| None).collect(), Vec::new());
        Self { pages, free, roots, page_tokens, seed: None }
    }

    /// Gives texts names that begin with `seed`.
    pub fn with_names(self, seed: Option<[u8; 32]>) -> Self {
        Self { seed, ..self }
    }

    /// Whether there is a store.
    pub fn exists(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Most tokens of a page.
    pub fn page_tokens(&self) -> usize {
        self.page_tokens
    }

    /// Pages in use.
    pub fn used(&self) -> usize {
        self.pages.len() - self.free.len()
    }

    /// Tokens of a page.
    pub fn tokens_of(&self, page: PageId) -> usize {
        self.get(page).tokens.len()
    }

    /// The longest beginning of `wanted` that the store holds for this scope.
    pub fn find(&self, scope: CacheScope, wanted: &[TokenId]) -> Stored {
        let mut found = Stored::default();
        let mut last = None;
        while let Some((page, same)) = self.next(scope, last, &wanted[found.tokens..]) {
            found.pages.push(page);
            found.tokens += same;
            if same < self.page_tokens {
                break;
            }
            last = Some(page);
        }
        found
    }

    /// The page behind `parent` that begins with the most of these tokens, and how many these are.
    fn next(
        &self,
        scope: CacheScope,
        parent: Option<PageId>,
        wanted: &[TokenId],
    ) -> Option<(PageId, usize)> {
        self.best(scope, parent, wanted, |page| !page.is_lost)
    }

    /// The same, also among pages that are being read.
    pub fn next_coming(
        &self,
        scope: CacheScope,
        parent: Option<PageId>,
        wanted: &[TokenId],
    ) -> Option<(PageId, usize)> {
        self.best(scope, parent, wanted, |page| !page.is_lost || page.is_coming)
    }

    fn best(
        &self,
        scope: CacheScope,
        parent: Option<PageId>,
        wanted: &[TokenId],
        is_meant: impl Fn(&Page) -> bool,
    ) -> Option<(PageId, usize)> {
        let pages = parent.map_or(&self.roots, |parent| &self.get(parent).children);
        let same = |page: &PageId| {
            let page = self.get(*page);
            if page.scope != scope || !is_meant(page) {
                return 0;
            }
            page.tokens.iter().zip(wanted).take_while(|(a, b)| a == b).count()
        };
        let all = pages.iter().map(|page| (*page, same(page)));
        all.filter(|(_, same)| *same > 0).max_by_key(|(_, same)| *same)
    }

    /// The last saved state that belongs to the first `stored.tokens` tokens, and the tokens before
    /// it.
    pub fn state_of(
        &self,
        stored: &Stored,
        checkpoints: &Checkpoints,
    ) -> Option<((CheckpointId, u64), usize)> {
        let all = stored.pages.iter().flat_map(|page| &self.get(*page).checkpoints);
        let behind = |(id, serial): &(CheckpointId, u64)| {
            Some(((*id, *serial), checkpoints.position(*id, *serial)?))
        };
        all.filter_map(behind).filter(|(_, at)| *at <= stored.tokens).max_by_key(|(_, at)| *at)
    }

    /// The saved states behind tokens of a page.
    pub fn states_in<'a>(
        &'a self,
        page: PageId,
        checkpoints: &'a Checkpoints,
    ) -> impl Iterator<Item = (CheckpointId, usize)> + 'a {
        let all = self.get(page).checkpoints.iter();
        all.filter_map(|(id, serial)| Some((*id, checkpoints.position(*id, *serial)?)))
    }

    /// The next part of `text` that the store lacks. `None` if it has all, but for fewer than
    /// `least` tokens at the end. Pages that `step` uses are not replaced.
    pub fn missing(
        &self,
        scope: CacheScope,
        text: &[TokenId],
        least: usize,
        step: u64,
    ) -> Option<Missing> {
        let (mut parent, mut from) = (None, 0);
        loop {
            let (rest, found) = (&text[from..], self.next(scope, parent, &text[from..]));
            let to = from + rest.len().min(self.page_tokens);
            match found {
                Some((page, same)) if same == self.page_tokens => {
                    (parent, from) = (Some(page), from + same);
                }
                Some((_, same)) if from + same + least > text.len() => return None,
                None if from + least > text.len() => return None,
                found => {
                    let is_shorter = |page: &PageId| {
                        let page = self.get(*page);
                        let is_leaf =
                            page.children.is_empty() && page.pins == 0 && page.used < step;
                        is_leaf && found.is_some_and(|(_, same)| same == page.tokens.len())
                    };
                    let shorter = found.map(|(page, _)| page).filter(is_shorter);
                    return Some(Missing { parent, shorter, from, to });
                }
            }
        }
    }

    /// Takes a page for a missing part of `text`. `None` if all pages are in use. Drops the page
    /// that was not used for longest, if there is no free one.
    pub fn add(
        &mut self,
        scope: CacheScope,
        text: &[TokenId],
        missing: Missing,
        step: u64,
        checkpoints: &mut Checkpoints,
    ) -> Option<PageId> {
        let Missing { parent, shorter, from, to } = missing;
        self.touch(parent, step);
        if let Some(shorter) = shorter {
            self.remove(shorter, checkpoints);
        }
        if self.free.is_empty() {
            let oldest = self.oldest(step)?;
            self.remove(oldest, checkpoints);
        }
        let id = self.free.pop()?;
        let tokens = &text[from..to];
        let file = self.seed.map(|seed| {
            let before = parent.and_then(|parent| self.get(parent).file);
            before.unwrap_or_else(|| scope.root(&seed)).with(tokens)
        });
        self.pages[id.index()] = Some(Page {
            scope,
            parent,
            children: Vec::new(),
            tokens: tokens.into(),
            checkpoints: Vec::new(),
            stored: step,
            used: step,
            pins: 0,
            is_lost: false,
            is_coming: false,
            is_made: false,
            file,
        });
        match parent {
            Some(parent) => self.get_mut(parent).children.push(id),
            None => self.roots.push(id),
        }
        Some(id)
    }

    /// Notes that a page that was just added is to be read from a file.
    pub fn await_file(&mut self, id: PageId) {
        let page = self.get_mut(id);
        (page.is_lost, page.is_coming, page.stored) = (true, true, 0);
    }

    /// Notes that a page was read from a file, or that it could not be read.
    pub fn arrive(&mut self, id: PageId, is_read: bool) {
        let page = self.get_mut(id);
        (page.is_lost, page.is_coming, page.is_made) = (!is_read, false, is_read);
    }

    /// Notes that step `step` has stored a page.
    pub fn made(&mut self, id: PageId, step: u64) {
        if let Some(page) = &mut self.pages[id.index()] {
            page.is_made |= page.stored == step;
        }
    }

    /// Whether a page is being read from a file.
    pub fn is_coming(&self, page: PageId) -> bool {
        self.get(page).is_coming
    }

    /// The page behind `parent` with this name, in memory or being read.
    pub fn named(&self, scope: CacheScope, parent: Option<PageId>, file: FileId) -> Option<PageId> {
        let pages = parent.map_or(&self.roots, |parent| &self.get(parent).children);
        let is_meant = |page: &&PageId| {
            let page = self.get(**page);
            let is_there = !page.is_lost || page.is_coming;
            page.file == Some(file) && page.scope == scope && is_there
        };
        pages.iter().find(is_meant).copied()
    }

    /// The name of a page's text, if it is in use and texts have names.
    pub fn file_of(&self, page: PageId) -> Option<FileId> {
        self.pages[page.index()].as_ref()?.file
    }

    /// Whether a page is in use and has cells, or gets them in a step in flight.
    pub fn has_cells(&self, page: PageId) -> bool {
        self.pages[page.index()].as_ref().is_some_and(|page| !page.is_lost)
    }

    /// Whether the cells of a page are there.
    pub fn is_made(&self, page: PageId) -> bool {
        self.get(page).is_made
    }

    /// The page before a page.
    pub fn parent_of(&self, page: PageId) -> Option<PageId> {
        self.get(page).parent
    }

    /// Who may use a page.
    pub fn scope_of(&self, page: PageId) -> CacheScope {
        self.get(page).scope
    }

    /// The tokens in a page.
    pub fn tokens_in(&self, page: PageId) -> &[TokenId] {
        &self.get(page).tokens
    }

    /// Notes that a saved state stands behind a token of a page.
    pub fn attach(
        &mut self,
        page: PageId,
        checkpoint: CheckpointId,
        checkpoints: &mut Checkpoints,
    ) {
        let serial = checkpoints.share(checkpoint);
        self.get_mut(page).checkpoints.push((checkpoint, serial));
    }

    /// Notes that a step uses a page, and so those before it.
    pub fn touch(&mut self, page: Option<PageId>, step: u64) {
        let mut next = page;
        while let Some(page) = next {
            let page = self.get_mut(page);
            page.used = step;
            next = page.parent;
        }
    }

    /// Keeps pages: those that will be loaded, and those that the disk lane uses.
    pub fn pin(&mut self, pages: &[PageId]) {
        pages.iter().for_each(|page| self.get_mut(*page).pins += 1);
    }

    /// Undoes [`Store::pin`].
    pub fn unpin(&mut self, pages: &[PageId]) {
        pages.iter().for_each(|page| self.get_mut(*page).pins -= 1);
    }

    /// The page without children that was not used for longest. Pages of this step and pages that
    /// will be loaded stay.
    fn oldest(&self, step: u64) -> Option<PageId> {
        let pages = self.pages.iter().enumerate();
        let pages = pages.filter_map(|(index, page)| Some((index, page.as_ref()?)));
        let may_go = |page: &Page| page.children.is_empty() && page.pins == 0 && page.used < step;
        let (index, _) =
            pages.filter(|(_, page)| may_go(page)).min_by_key(|(_, page)| page.used)?;
        Some(PageId(index as u32)) // below PAGES_MAX
    }

    /// Drops a page that step `step` should have stored and did not, and those behind it.
    pub fn lose(&mut self, page: PageId, step: u64, checkpoints: &mut Checkpoints) {
        if self.pages[page.index()].as_ref().is_none_or(|page| page.stored != step) {
            return;
        }
        for child in self.get(page).children.clone() {
            let stored = self.get(child).stored;
            self.lose(child, stored, checkpoints);
        }
        let place = self.get_mut(page);
        if place.pins == 0 && place.children.is_empty() {
            self.remove(page, checkpoints);
        } else {
            place.is_lost = true; // who will load it notices
        }
    }

    /// Drops the pages of a text and of its beginnings. Those that belong to other texts, too, stay.
    /// Returns false if some are in use now.
    pub fn erase(
        &mut self,
        scope: CacheScope,
        text: &[TokenId],
        checkpoints: &mut Checkpoints,
    ) -> bool {
        // Pages with tokens of the text alone, each behind those that it goes on from.
        let (mut pages, mut last, mut from) = (Vec::new(), None, 0);
        loop {
            let before = pages.len();
            let siblings = last.map_or(&self.roots, |parent| &self.get(parent).children);
            pages.extend(siblings.iter().copied().filter(|page| {
                let page = self.get(*page);
                page.scope == scope && text[from..].starts_with(&page.tokens)
            }));
            let whole = pages[before..].iter().copied();
            let whole = whole.filter(|page| self.tokens_of(*page) == self.page_tokens);
            let Some(page) = whole.min_by_key(|page| self.get(*page).is_lost) else { break };
            (last, from) = (Some(page), from + self.page_tokens);
        }
        let mut is_gone = true;
        for id in pages.into_iter().rev() {
            let page = self.get(id);
            if page.pins > 0 {
                is_gone = false;
            } else if page.children.is_empty() {
                self.remove(id, checkpoints);
            }
        }
        is_gone
    }

    /// Lets the pages of a removed key go first.
    pub fn forget(&mut self, key: KeyId) {
        let pages = self.pages.iter_mut().flatten().filter(|page| page.scope.key == key);
        pages.for_each(|page| page.used = 0);
    }

    fn remove(&mut self, id: PageId, checkpoints: &mut Checkpoints) {
        let page = self.pages[id.index()].take().expect("the page is in use");
        assert!(page.children.is_empty() && page.pins == 0, "the page is needed");
        for (checkpoint, serial) in page.checkpoints {
            checkpoints.unshare(checkpoint, serial);
        }
        let siblings = match page.parent {
            Some(parent) => &mut self.get_mut(parent).children,
            None => &mut self.roots,
        };
        siblings.retain(|sibling| *sibling != id);
        self.free.push(id);
    }

    /// Compares the pages with each other. For tests.
    ///
    /// # Panics
    /// If they disagree.
    pub fn check(&self) {
        let mut places = vec![0; self.pages.len()];
        let children = self.pages.iter().flatten().flat_map(|page| &page.children);
        self.roots.iter().chain(children).chain(&self.free).for_each(|id| places[id.index()] += 1);
        assert!(places.iter().all(|places| *places == 1), "each page stands in one place");
        for page in self.pages.iter().flatten() {
            assert!((1..=self.page_tokens).contains(&page.tokens.len()));
            assert!(page.children.is_empty() || page.tokens.len() == self.page_tokens);
        }
    }

    fn get(&self, id: PageId) -> &Page {
        self.pages[id.index()].as_ref().expect("the page is in use")
    }

    fn get_mut(&mut self, id: PageId) -> &mut Page {
        self.pages[id.index()].as_mut().expect("the page is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: CacheScope =
        CacheScope { key: KeyId { place: 0, generation: 0 }, salt: 0, tenant: 0 };

    fn keep(store: &mut Store, text: &[TokenId], step: u64) -> Vec<(usize, usize)> {
        let mut none = Checkpoints::new(0, 1);
        let mut parts = Vec::new();
        while let Some(missing) = store.missing(SCOPE, text, 1, step) {
            if store.add(SCOPE, text, missing, step, &mut none).is_none() {
                break;
            }
            parts.push((missing.from, missing.to));
            store.check();
        }
        parts
    }

    fn text(first: TokenId, count: TokenId) -> Vec<TokenId> {
        (first..first + count).collect()
    }

    #[test]
    fn a_shared_beginning_is_stored_once() {
        let mut store = Store::new(10, 4);
        let first = text(0, 10);
        assert_eq!(keep(&mut store, &first, 1), [(0, 4), (4, 8), (8, 10)]);
        assert_eq!(keep(&mut store, &first, 2), []);
        let second = [&first[..5], &[100, 101, 102, 103]].concat();
        assert_eq!(keep(&mut store, &second, 3), [(4, 8), (8, 9)]);
        assert_eq!(store.find(SCOPE, &text(0, 20)).tokens, 10);
        assert_eq!(store.find(SCOPE, &second).tokens, 9);
        assert_eq!(store.find(SCOPE, &text(1, 5)), Stored::default());
        let other = CacheScope { salt: 1, ..SCOPE };
        assert_eq!(store.find(other, &first), Stored::default());
    }

    #[test]
    fn a_text_that_went_on_replaces_its_last_page() {
        let mut store = Store::new(10, 4);
        keep(&mut store, &text(0, 6), 1);
        assert_eq!(store.used(), 2);
        assert_eq!(keep(&mut store, &text(0, 9), 2), [(4, 8), (8, 9)]);
        assert_eq!(store.used(), 3);
    }

    #[test]
    fn the_end_of_the_text_that_was_not_used_for_longest_goes_first() {
        let mut store = Store::new(4, 4);
        keep(&mut store, &text(0, 8), 1);
        keep(&mut store, &text(100, 8), 2);
        let stored = store.find(SCOPE, &text(0, 8));
        store.touch(stored.pages.last().copied(), 3);
        keep(&mut store, &text(200, 4), 4);
        assert_eq!(store.find(SCOPE, &text(0, 8)).tokens, 8);
        assert_eq!(store.find(SCOPE, &text(100, 8)).tokens, 4);
        // What will be loaded stays.
        let pages = store.find(SCOPE, &text(100, 8)).pages;
        store.pin(&pages);
        keep(&mut store, &text(300, 12), 5);
        assert_eq!(store.find(SCOPE, &text(100, 8)).tokens, 4);
        store.unpin(&pages);
    }

    #[test]
    fn a_page_that_was_not_stored_is_dropped_with_those_behind_it() {
        let mut store = Store::new(10, 4);
        keep(&mut store, &text(0, 4), 1);
        keep(&mut store, &text(0, 12), 2);
        let pages = store.find(SCOPE, &text(0, 12)).pages;
        store.lose(pages[1], 2, &mut Checkpoints::new(0, 1));
        store.check();
        assert_eq!(store.find(SCOPE, &text(0, 12)).tokens, 4);
        store.lose(pages[0], 2, &mut Checkpoints::new(0, 1));
        assert_eq!(store.used(), 1, "an earlier step stored it");
    }

    #[test]
    fn an_erased_text_goes_with_its_beginnings_but_for_what_others_use() {
        let mut store = Store::new(20, 4);
        let mut none = Checkpoints::new(0, 1);
        keep(&mut store, &text(0, 6), 1);
        store.pin(&store.find(SCOPE, &text(0, 6)).pages); // so that it stays beside a longer one
        keep(&mut store, &text(0, 10), 2);
        let beside = [&text(0, 4)[..], &[50]].concat();
        keep(&mut store, &beside, 3);
        assert!(!store.erase(SCOPE, &text(0, 10), &mut none), "a page is in use");
        let first = store.find(SCOPE, &text(0, 6)).pages[0];
        store.unpin(&[first]);
        let short = (0..20).map(PageId).find(|page| {
            store.pages[page.index()].as_ref().is_some_and(|page| page.tokens.len() == 2)
        });
        store.unpin(&[short.expect("the pinned one")]);
        assert!(store.erase(SCOPE, &text(0, 10), &mut none));
        store.check();
        assert_eq!((store.used(), store.find(SCOPE, &beside).tokens), (2, 5));
        assert!(store.erase(SCOPE, &[&beside[..], &[51]].concat(), &mut none));
        assert_eq!(store.used(), 0);
    }
}
