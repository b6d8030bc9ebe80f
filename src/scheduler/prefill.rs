//! Plans prompt rows: which prompts, and how many rows beside the running streams.
//!
//! The prompt with the lowest priority number goes first. Among equal priorities, the key with the
//! fewest prompt rows for its weight goes first. No key is owed more than the rows of two steps
//! ([`PROMPT_CREDIT_STEPS`]). Within a key, the prompt with the fewest rows left goes first.
//!
//! In one of four steps the oldest prompt of each key goes before the others, whatever its
//! priority. Keys take turns here, too. So among `k` keys of equal weight, a key's oldest prompt
//! that has a slot takes at most about `4 k` times as long as it would alone, however many short or
//! urgent prompts arrive.

use std::time::Duration;

use super::books::Books;
use super::cost::Rows;
use super::sequence::Stage;
use super::tuning::{OLDEST_FIRST_ONE_IN, PREFILL_ROWS_STEP, PROMPT_CREDIT_STEPS};
use super::{constrained, stops, times};
use crate::limits::{SCORED_ROWS_MAX, SLOTS_MAX};
use crate::ring::message::{Batch, Save};
use crate::types::{ItlTarget, KeyId, SequenceId};

/// A prompt that is not computed yet.
struct Prompt {
    id: SequenceId,
    key: KeyId,
    priority: i32,
    /// The prompt rows of its key, divided by the key's weight.
    served: f64,
    /// Rows until it is computed, or until a follower can start.
    left: usize,
    admitted: u64,
    /// No prompt of its key is older.
    is_oldest: bool,
}

/// Plans prompt rows.
pub(super) fn plan(books: &mut Books, batch: &mut Batch) {
    let mut prompts = in_order(books);
    let Some(first) = prompts.first() else { return };
    let first = books.sequences.get(*first);
    // Scored rows take longer than other prompt rows, so a step has prompt rows of one kind only.
    let scores = first.scores_next();
    prompts.retain(|id| books.sequences.get(*id).scores_next() == scores);
    let mut room = if scores {
        scored_rows(books, batch, first.planned)
    } else {
        prefill_rows(books, batch, first.planned)
    };
    // If the rows of each prompt are a separate pass over the weights, a few rows are not worth it.
    let least = if !books.capacity.is_ragged() && batch.decode_rows > 0 {
        PREFILL_ROWS_STEP.min(room).max(1)
    } else {
        1
    };
    for id in prompts {
        if room < least {
            break;
        }
        // The last row of a prompt is the first that needs a mask. On the mask lane, it waits for
        // it.
        let last = usize::from(constrained::is_on_mask_lane(books, id));
        let sequence = books.sequences.get(id);
        let stop = stops::next_stop(books, id);
        let take = (sequence.rows_left() - last).min(room).min(sequence.rows_unscored());
        let take = take.min(stop.unwrap_or(usize::MAX) - sequence.planned);
        books.evict(batch, take);
        let take = take.min(books.cells.left());
        for _ in 0..take {
            books.plan_row(batch, id);
        }
        if take > 0 && stop == Some(books.sequences.get(id).planned) {
            books.save_state(batch, id);
        } else if take > 0 {
            stops::keep_whole(books, batch, id);
        }
        room -= take;
        let key = books.sequences.get(id).asked.key;
        books.prompt_turns.serve(key, take as f64);
    }
}

/// The sequences whose prompts are not computed yet, in the order in which they get rows.
fn in_order(books: &mut Books) -> heapless::Vec<SequenceId, SLOTS_MAX> {
    let prompt = |id: &SequenceId| {
        let sequence = books.sequences.get(*id);
        let runs = matches!(sequence.state, Stage::Running(_)) && sequence.loads.is_none();
        let is_prompt = runs && sequence.rows_left() > 1;
        let key = sequence.asked.key;
        is_prompt.then(|| Prompt {
            id: *id,
            key,
            priority: sequence.asked.priority,
            served: 0.0, // below
            left: rows_wanted(books, *id),
            admitted: sequence.admitted,
            is_oldest: false,
        })
    };
    let mut prompts: heapless::Vec<Prompt, SLOTS_MAX> =
        books.held.iter().filter_map(prompt).collect();
    bound_credit(books, &prompts);
    prompts.iter_mut().for_each(|prompt| prompt.served = books.prompt_turns.served(prompt.key));
    if books.step.is_multiple_of(OLDEST_FIRST_ONE_IN) {
        prompts.sort_unstable_by_key(|prompt| (prompt.key.index(), prompt.admitted));
        for of_key in prompts.chunk_by_mut(|a, b| a.key.index() == b.key.index()) {
            of_key[0].is_oldest = true;
        }
        prompts.sort_unstable_by(|a, b| {
            (b.is_oldest.cmp(&a.is_oldest))
                .then(a.served.total_cmp(&b.served))
                .then(a.admitted.cmp(&b.admitted))
        });
    } else {
        prompts.sort_unstable_by(|a, b| {
            (a.priority.cmp(&b.priority))
                .then(a.served.total_cmp(&b.served))
                .then((a.left, a.admitted).cmp(&(b.left, b.admitted)))
        });
    }
    prompts.iter().map(|prompt| prompt.id).collect()
}

/// Bounds the prompt rows that a key with prompts is owed; see [`PROMPT_CREDIT_STEPS`].
fn bound_credit(books: &mut Books, prompts: &[Prompt]) {
    // A new key does not inherit the rows of the removed key that had its place.
    prompts.iter().for_each(|prompt| books.prompt_turns.arrive(prompt.key, |_| true));
    let has_prompt = |place| prompts.iter().any(|prompt| prompt.key.index() == place);
    let credit = PROMPT_CREDIT_STEPS * books.capacity.step_rows as f64;
    books.prompt_turns.bound_credit(has_prompt, credit);
}

/// Rows until the prompt is computed, or until a follower can start if that is sooner. Prompts
/// with fewer of these rows go first.
fn rows_wanted(books: &Books, id: SequenceId) -> usize {
    let sequence = books.sequences.get(id);
    let follower = |other: &SequenceId| match books.sequences.get(*other).state {
        Stage::Following { leader, tokens, .. } if leader == id => Some(tokens),
        _ => None,
    };
    let nearest = books.held.iter().filter_map(follower).min();
    let followed = nearest.map(|tokens| tokens.saturating_sub(sequence.planned));
    sequence.rows_left().min(followed.unwrap_or(usize::MAX))
}

/// Prompt rows that a step may have beside its decode rows, for a prompt with `depth` computed
/// tokens.
fn prefill_rows(books: &Books, batch: &Batch, depth: usize) -> usize {
    let most = rows_left(books, batch);
    let decode = planned_rows(books, batch);
    if decode.count == 0 || books.capacity.itl_target == ItlTarget::Unbounded {
        return most;
    }
    let bound = bound_left(books, batch);
    let fits = bound.and_then(|t| books.cost.prefill_rows_within(t, decode, depth, most));
    let Some(rows) = fits else { return PREFILL_ROWS_STEP.min(most) };
    if books.capacity.is_ragged() {
        return rows.max(1).min(most);
    }
    let rows = rows.max(PREFILL_ROWS_STEP);
    (rows - rows % PREFILL_ROWS_STEP).min(most)
}

/// Scored rows that a step may have beside its decode rows, for a prompt with `depth` computed
/// tokens. They have logits, and so take as long as decode rows.
fn scored_rows(books: &Books, batch: &Batch, depth: usize) -> usize {
    if !books.capacity.is_ragged() {
        return prefill_rows(books, batch, depth).min(SCORED_ROWS_MAX);
    }
    let most = SCORED_ROWS_MAX.min(rows_left(books, batch));
    let decode = planned_rows(books, batch);
    if decode.count == 0 || books.capacity.itl_target == ItlTarget::Unbounded {
        return most;
    }
    let bound = bound_left(books, batch);
    let fits = bound.and_then(|t| books.cost.decode_rows_within(t, decode, depth, most));
    fits.unwrap_or(PREFILL_ROWS_STEP).max(1).min(most)
}

/// Rows that a step may still have.
pub(super) fn rows_left(books: &Books, batch: &Batch) -> usize {
    books.rows_max - batch.rows.len() - batch.guessed_rows as usize
}

/// The time that a step has for its rows: the bound on the step, less a copy, its masks, its
/// drafts, the states that it saves and the pages that it loads. `None` if the bound is not known yet. Guesses do not raise the bound.
fn bound_left(books: &Books, batch: &Batch) -> Option<Duration> {
    let mut decode = Rows::default();
    batch.rows.iter().for_each(|row| decode.add(row.position.index()));
    let copy = books.cost.copy().filter(|_| books.copied).unwrap_or_default();
    let masks = Duration::from_micros(books.masks.planned);
    let states = batch.saves.iter().filter_map(Save::state).count();
    let saves = books.save_took * states as u32; // at most three for each slot
    let pages = books.page_took.unwrap_or_default() * batch.loads.len() as u32; // PAGES_STEP_MAX
    let besides = copy + masks + saves + pages + times::drafts_time(books, batch);
    times::bound(books, decode).map(|bound| bound.saturating_sub(besides))
}

/// The rows of a batch that has no prompt rows yet, with the guesses that it will probably have.
/// Not every granted guess is made, and prompts need not leave time for the others.
fn planned_rows(books: &Books, batch: &Batch) -> Rows {
    let mut rows = Rows::default();
    batch.rows.iter().for_each(|row| rows.add(row.position.index()));
    let most: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.most())).sum();
    rows.count += (f64::from(most) * books.guesses_made).ceil() as usize; // at most `most`
    rows
}
