//! What texts leave outside the KV cache: the cells of their tokens, in pages, states, and
//! the logits behind prompts. The decode lane copies them out and back. The disk lane writes pages and
//! states to files, and reads them again.

use std::sync::atomic::{AtomicU64, Ordering};

use super::arena::{Arena, Block, BlockMut};
use crate::types::{CheckpointId, PageId, Position, TokenId};

/// See the module's description.
#[derive(Debug)]
pub struct Kept {
    pages: Arena<PageNote>,
    states: Arena<StateNote>,
    logits: Arena<LogitsNote>,
    saves: AtomicU64,
}

/// The tokens before the one whose logits a place holds; 0 if it holds none.
type LogitsNote = Position;

/// What a page holds.
#[derive(Debug)]
pub struct PageNote {
    tokens: Box<[TokenId]>, // [page_tokens]
    count: usize,
    length: usize,
}

/// The state that a place holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct StateNote {
    /// The tokens before it.
    pub position: Position,
    /// The number of its save, from 1. 0 if the place holds no state.
    pub serial: u64,
    /// Its bytes.
    pub length: usize,
}

/// The first bytes of the states and of the logits that have memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadyBytes {
    states: usize,
    logits: usize,
}

/// The sizes of [`Kept`].
#[derive(Clone, Copy, Debug, Default)]
pub struct KeptSizes {
    /// Pages of the prefix store.
    pub pages: usize,
    /// Most tokens of a page.
    pub page_tokens: usize,
    /// Most bytes of a page's cells.
    pub page_bytes: usize,
    /// Places for states.
    pub states: usize,
    /// Most bytes of a state.
    pub state_bytes: usize,
    /// Places for logits.
    pub logits: usize,
    /// The logits of a place: those of the whole vocabulary.
    pub n_vocab: usize,
}

impl Kept {
    /// Empty pages and places.
    ///
    /// # Errors
    /// A sentence with the size, if the system refuses it.
    pub fn new(sizes: KeptSizes) -> Result<Self, String> {
        let KeptSizes { pages, page_tokens, page_bytes, states, state_bytes, logits, n_vocab } =
            sizes;
        let note = || PageNote { tokens: vec![0; page_tokens].into(), count: 0, length: 0 };
        let pages = Arena::new(pages, page_bytes, note)
            .map_err(|error| format!("{error} for the prefix store; lower --cache-ram"))?;
        let logits = Arena::new(logits, size_of::<f32>() * n_vocab, || Position(0))
            .map_err(|error| format!("{error} for logits; lower --parallel"))?;
        let states = Arena::new(states, state_bytes, StateNote::default)
            .map_err(|error| format!("{error} for saved states; lower --ctx-checkpoints"))?;
        Ok(Self { pages, states, logits, saves: AtomicU64::new(0) })
    }

    /// A page to read, unless another lane writes it.
    pub fn page(&self, page: PageId) -> Option<Block<'_, PageNote>> {
        self.pages.read(page.index())
    }

    /// A page to write, unless another lane uses it.
    pub fn page_mut(&self, page: PageId) -> Option<BlockMut<'_, PageNote>> {
        self.pages.write(page.index())
    }

    /// A place for a state to read, unless another lane writes it.
    pub fn state(&self, place: CheckpointId) -> Option<Block<'_, StateNote>> {
        self.states.read(place.index())
    }

    /// A place for a state to write, unless another lane uses it.
    pub fn state_mut(&self, place: CheckpointId) -> Option<BlockMut<'_, StateNote>> {
        self.states.write(place.index())
    }

    /// The logits of a place.
    pub fn n_vocab(&self) -> usize {
        self.logits.block_bytes() / size_of::<f32>()
    }

    /// Keeps the logits behind `position` tokens. Returns false if there is no room for them.
    pub fn put_logits(&self, place: CheckpointId, position: Position, logits: &[f32]) -> bool {
        let Some(mut block) = self.logits.write(place.index()) else { return false };
        let (note, bytes) = block.parts();
        let (chunks, _) = bytes.as_chunks_mut();
        if chunks.len() != logits.len() {
            return false;
        }
        chunks.iter_mut().zip(logits).for_each(|(chunk, logit)| *chunk = logit.to_le_bytes());
        *note = position;
        true
    }

    /// Copies the logits that were kept behind `position` tokens. Returns false if there are none.
    pub fn logits(&self, place: CheckpointId, position: Position, to: &mut [f32]) -> bool {
        let block = self.logits.read(place.index()).filter(|block| *block.note() == position);
        let Some(block) = block else { return false };
        let (chunks, _) = block.bytes().as_chunks();
        assert_eq!(chunks.len(), to.len(), "logits of the whole vocabulary");
        to.iter_mut().zip(chunks).for_each(|(logit, chunk)| *logit = f32::from_le_bytes(*chunk));
        true
    }

    /// Asks the kernel for memory for a part of the first places for states and for logits. Returns
    /// false if all of them have it.
    pub fn make_ready(&self, [states, logits]: [usize; 2], ready: &mut ReadyBytes) -> bool {
        self.states.make_ready(states, &mut ready.states)
            || self.logits.make_ready(logits, &mut ready.logits)
    }

    /// The number of a new save.
    pub fn next_save(&self) -> u64 {
        self.saves.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl PageNote {
    /// The tokens of the page; none if it has no cells.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens[..self.count]
    }

    /// Most tokens of the page.
    pub fn tokens_max(&self) -> usize {
        self.tokens.len()
    }

    /// The bytes of its cells, out of all `bytes` of the page.
    pub fn cells<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[..self.length]
    }

    /// Notes the tokens of the page, and the bytes of their cells.
    pub fn put(&mut self, tokens: &[TokenId], length: usize) {
        self.tokens[..tokens.len()].copy_from_slice(tokens);
        (self.count, self.length) = (tokens.len(), length);
    }
}

impl StateNote {
    /// Whether the place holds the state behind `position` tokens.
    pub fn is_behind(&self, position: Position) -> bool {
        self.serial > 0 && self.position == position
    }
}

impl Block<'_, StateNote> {
    /// The bytes of the state.
    pub fn saved(&self) -> &[u8] {
        &self.bytes()[..self.note().length]
    }
}
