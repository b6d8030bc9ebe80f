//! The decode lane's view of a slot of the KV cache.

use std::sync::Arc;

use super::checkpoints::Checkpoint;
use super::lookup::Lookup;
use super::reasoning::Reasoning;
use crate::constraint::{Compiled, Walk};
use crate::model::DecodeRow;
use crate::ring::message::{Input, Row};
use crate::sampling::AdvancedSampling;
use crate::types::{Generation, Guessing, Position, Sampling, TokenId};

/// See the module's description.
pub(super) struct Slot {
    pub generation: Generation,
    pub state: SlotState,
    /// The position of the next row. It moves only after a step with that row succeeded.
    pub next: Position,
    /// `next` plus the rows of the step that is being prepared.
    pub planned: Position,
    /// The last saved state that belongs to its tokens.
    pub checkpoint: Option<Checkpoint>,
    /// A step has run some of the holder's rows.
    pub has_run: bool,
    /// The last sampled token, which is the input of the next row.
    pub carry: Option<TokenId>,
    pub prompt_tokens: u32,
    /// The number of tokens at which the sequence ends, prompt included.
    pub tokens_max: u32,
    pub guessing: Guessing,
    /// Finds guesses in the text, if lookups are on.
    pub lookup: Option<Lookup>,
    pub sampling: Sampling,
    /// The less common options. They stay after the sequence has ended, until the next start takes
    /// them back to the front lane.
    pub advanced: Option<Arc<AdvancedSampling>>,
    /// Mirostat's state.
    pub mu: f32,
    /// The state of the constraint, if this lane has computed a mask.
    pub walk: Option<Walk>,
    /// Where the text is in its reasoning, if that has a limit.
    pub reasoning: Reasoning,
    pub history: Box<[TokenId]>, // [sequence_tokens], valid below `planned`
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// The slot has no cells.
    Free,
    /// The slot runs every row sent for it.
    Running,
    /// The slot drops every row sent for it, until a sequence starts in it.
    Ended,
}

impl Slot {
    /// An empty slot for sequences of at most `sequence_tokens` tokens.
    pub fn new(sequence_tokens: usize) -> Self {
        Self {
            generation: Generation::default(),
            state: SlotState::Free,
            next: Position(0),
            planned: Position(0),
            checkpoint: None,
            has_run: false,
            carry: None,
            prompt_tokens: 0,
            tokens_max: 0,
            guessing: Guessing::default(),
            lookup: None,
            sampling: Sampling::default(),
            advanced: None,
            mu: 0.0,
            walk: None,
            reasoning: Reasoning::default(),
            history: vec![0; sequence_tokens].into_boxed_slice(),
        }
    }

    /// The model's rows for a row of the batch: its own and those of its guesses. Notes the token,
    /// moves `planned`, and writes the true position into the batch.
    pub fn take(&mut self, row: &mut Row) -> impl Iterator<Item = DecodeRow> {
        // Invariant: positions are checked on both sides of the ring.
        let (least, moved) = (row.position.0, u32::from(row.guesses.in_flight));
        assert!(
            (least..=least + moved).contains(&self.planned.0),
            "slot {:?}: the batch is at position {least} to {}, the decode lane at {}",
            row.owner.slot,
            least + moved,
            self.planned.0
        );
        row.position = self.planned;
        self.history[row.position.index()] = self.input(row);
        self.planned = Position(row.position.0 + 1 + u32::from(row.guesses.made));
        let Row { owner, logits, .. } = *row;
        let tokens = self.history[row.position.index()..self.planned.index()].iter();
        let positions = (row.position.0..).map(Position);
        tokens.zip(positions).map(move |(token, position)| DecodeRow {
            token: *token,
            position,
            slot: owner.slot,
            logits,
        })
    }

    /// The constraint of its text.
    pub fn constraint(&self) -> Option<&Compiled> {
        self.advanced.as_ref()?.constraint.as_deref()
    }

    /// The token of a row.
    pub fn input(&self, row: &Row) -> TokenId {
        match row.input {
            Input::Token(token) => token,
            Input::Carry => self.carry.expect("a carry follows a sample"),
        }
    }
}
