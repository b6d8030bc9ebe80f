//! The tokens that may follow in a constrained text.

use super::history::History;
use crate::clock::Clock;
use crate::constraint::{Allowed, Compiled, Walk};
use crate::ring::message::{MaskCost, MaskTask};
use crate::types::Broken;

/// The tokens that a constraint allows.
pub(super) enum Mask<'a> {
    /// From the mask lane.
    Sent(&'a MaskTask),
    /// Computed by the decode lane in this step.
    Own { allowed: Allowed, broken: Option<Broken>, cost: MaskCost },
}

impl Mask<'_> {
    /// Computes the mask behind `history` with the state `walk`, which is made if there is none.
    pub fn compute(
        walk: &mut Option<Walk>,
        compiled: &Compiled,
        history: History<'_>,
        clock: Clock,
    ) -> Self {
        let began = clock.now();
        let walk = walk.get_or_insert_with(|| Walk::new(compiled));
        let allowed = walk.allowed_after(history.generated());
        if let Some(error) = walk.error() {
            tracing::debug!(error, "a constraint failed in mid-text"); // the client is told
        }
        let us = saturating(clock.now().since(began));
        let cost = MaskCost { us, bytes: saturating(walk.bytes() as u64) };
        Self::Own { allowed, broken: walk.broken(), cost }
    }

    pub fn allowed(&self) -> &Allowed {
        match self {
            Mask::Sent(task) => task.allowed.as_ref().expect("the mask lane has computed it"),
            Mask::Own { allowed, .. } => allowed,
        }
    }

    /// If the constraint can no longer be followed: why. The text then ends although it is
    /// incomplete.
    pub fn broken(&self) -> Option<Broken> {
        match self {
            Mask::Sent(task) => task.broken,
            Mask::Own { broken, .. } => *broken,
        }
    }

    /// The cost of the mask in this step. `None` if the mask lane computed it.
    pub fn cost(&self) -> Option<MaskCost> {
        match self {
            Mask::Sent(_) => None,
            Mask::Own { cost, .. } => Some(*cost),
        }
    }
}

/// Converts to `u32`; larger numbers become `u32::MAX`.
pub(super) fn saturating(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
