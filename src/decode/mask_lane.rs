//! The mask lane: computes masks that take long, so that no step of the model waits for them.
//!
//! A [`MaskTask`] comes with the tokens of a text, and goes back with the tokens that may follow.
//! The lane keeps no state between tasks: a task holds the state of its constraint.
//!
//! **Invariant:** no key delays another by more than one mask, or by the time in which a constraint
//! takes in [`WALK_TOKENS_MAX`] tokens.

use crate::constraint::Walk;
use crate::fair::Line;
use crate::limits::{MASK_TASKS_MAX, WALK_TOKENS_MAX};
use crate::metrics::Metrics;
use crate::ring::LaneLink;
use crate::ring::message::{MaskCost, MaskTask};

use super::saturating;

/// Computes masks until the front lane closes the link. `weights` are those of the keys.
pub fn run(mut link: LaneLink<MaskTask>, weights: &[f64], metrics: &Metrics) {
    let clock = metrics.clock;
    let mut line = Line::<Box<MaskTask>, MASK_TASKS_MAX>::new(weights);
    loop {
        let first = if line.is_empty() { link.receive() } else { None };
        for task in first.into_iter().chain(std::iter::from_fn(|| link.try_receive())) {
            // A mask is expected to take as long as the previous one of its text.
            line.push(task.key, task.cost.us as usize, task);
        }
        if link.is_closed() {
            return;
        }
        let Some((number, mut task)) = line.pop() else { continue };
        let began = clock.now();
        let is_done = compute(&mut task);
        let took = clock.now().since(began);
        line.serve(task.key, took as f64);
        metrics.mask_pieces.increment();
        if !is_done {
            line.put_back(number, task.key, task.cost.us as usize, task);
            continue;
        }
        task.cost.us = saturating(took);
        metrics.masks.time_us.observe(took);
        link.send(task);
    }
}

/// Computes a task's mask, or frees its state if its sequence has ended. A preempted text may begin
/// here with many tokens. The constraint takes them in by pieces of [`WALK_TOKENS_MAX`]. Returns
/// false if tokens are left.
pub fn compute(task: &mut MaskTask) -> bool {
    let MaskTask { sequence, constraint, generated, walk, allowed, .. } = task;
    if sequence.is_none() {
        *task = MaskTask { key: task.key, ..MaskTask::default() };
        return true;
    }
    let constraint = constraint.as_deref().expect("a constrained sequence has a constraint");
    let walk = walk.get_or_insert_with(|| Walk::new(constraint));
    if !walk.follow(generated, WALK_TOKENS_MAX) {
        return false;
    }
    *allowed = Some(walk.allowed_after(generated));
    if let Some(error) = walk.error() {
        tracing::debug!(error, "a constraint failed in mid-text"); // the client is told
    }
    task.broken = walk.broken();
    task.cost = MaskCost { us: task.cost.us, bytes: saturating(walk.bytes() as u64) };
    true
}
