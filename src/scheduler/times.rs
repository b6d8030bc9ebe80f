//! The expected times of steps, and the bounds on them.

use std::time::Duration;

use super::books::Books;
use super::cost::Rows;
use super::tuning::ITL_UNNOTICED;
use crate::ring::message::{Batch, Row};
use crate::types::{ItlTarget, Logits};

/// How a completed step affects the time between tokens.
pub struct Lateness {
    /// The fraction of the step's model time that prompt rows take, 0 to 1. 0 if it is not known.
    pub prompt_part: f64,
    /// The time after which a token is late: `--itl-target-ms`, or else twice the time of the
    /// decode rows alone without other programs, and at least [`ITL_UNNOTICED`]. `None` if there
    /// are no decode rows, if the target sets no bound, or until the time is known.
    pub late_after: Option<Duration>,
}

/// The longest time of a step with these decode rows and with prompt rows, if it is known:
/// `--itl-target-ms`, or else twice the time of the decode rows alone, and at least
/// [`ITL_UNNOTICED`]. `None` also if the target sets no bound.
pub(super) fn bound(books: &Books, decode: Rows) -> Option<Duration> {
    bound_by(books.capacity.itl_target, books.cost.decode(decode))
}

/// The bound by this target, where the decode rows alone take this time.
fn bound_by(target: ItlTarget, alone: Option<Duration>) -> Option<Duration> {
    match target {
        ItlTarget::Chosen => alone.map(|time| (2 * time).max(ITL_UNNOTICED)),
        ItlTarget::Within(time) => Some(time),
        ItlTarget::Unbounded => None,
    }
}

/// The expected time of a step with the rows of `batch`, once it is known.
pub(super) fn step_time(books: &Books, batch: &Batch) -> Option<Duration> {
    let (decode, prefill) = rows_of(books, batch);
    books.cost.step(decode, prefill).map(|time| time + drafts_time(books, batch))
}

/// The time of the shortest step, which is one row of a short text, once it is known.
pub(super) fn shortest_step(books: &Books) -> Option<Duration> {
    let (row, none) = (Rows { count: 1, depths: 0 }, Rows::default());
    books.cost.step(row, none).or_else(|| books.cost.step(none, row))
}

/// The expected time of the draft model for a step.
pub(super) fn drafts_time(books: &Books, batch: &Batch) -> Duration {
    let drafts: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.drafts)).sum();
    Duration::from_secs_f64(f64::from(drafts) * books.cost.draft().unwrap_or(0.0) / 1e6)
}

/// How a completed step affects the time between tokens.
pub(super) fn lateness(books: &Books, batch: &Batch) -> Lateness {
    let (decode, prefill) = rows_of(books, batch);
    let of_texts = if decode.count == 0 { Some(Duration::ZERO) } else { books.cost.decode(decode) };
    let all = books.cost.step(decode, prefill).filter(|all| !all.is_zero());
    let share = |(texts, all): (Duration, Duration)| texts.div_duration_f64(all).min(1.0);
    let bound = bound_by(books.capacity.itl_target, books.cost.decode_alone(decode));
    Lateness {
        prompt_part: 1.0 - of_texts.zip(all).map_or(1.0, share),
        late_after: bound.filter(|_| decode.count > 0),
    }
}

/// The decode rows, with the guesses that were made, and the prompt rows of a step. Scored rows
/// count as decode rows if they run in the same pass.
pub(super) fn rows_of(books: &Books, batch: &Batch) -> (Rows, Rows) {
    let (mut decode, mut prefill) = (Rows::default(), Rows::default());
    let is_scored = |row: &Row| matches!(row.logits, Logits::Score(_));
    for rows in batch.rows.chunk_by(|a, b| a.owner == b.owner) {
        let decodes = match rows {
            [row] => row.logits != Logits::None,
            rows => books.capacity.is_ragged() && rows.iter().any(is_scored),
        };
        let kind = if decodes { &mut decode } else { &mut prefill };
        for row in rows {
            kind.add(row.position.index());
            kind.add_guesses(row.guesses.made);
        }
    }
    (decode, prefill)
}
