//! Takes the answers of a step: tokens, ends, failures and the time that it took.

use std::time::Duration;

use super::books::Books;
use super::event::{Event, Finish};
use super::sequence::Stage;
use super::tuning::{GUESSES_MADE_RATE, STEP_RETRIES_MAX};
use super::{constrained, guesses, times};
use crate::ring::message::{
    Batch, Failed, FailureReason, GuessSource, Row, Sample, SaveKind, Start,
};
use crate::types::{Position, SequenceId};

/// Takes the answers of a step. Calls `event` with the outcome for each sequence.
pub(super) fn complete(books: &mut Books, batch: &mut Batch, mut event: impl FnMut(Event)) {
    books.returned = batch.step;
    learn(books, batch);
    books.windows.learn(&batch.least_left, batch.step);
    let stored = batch.stores.iter().filter(|store| store.is_made).count();
    let pages = stored + batch.loads.len();
    if pages > 0 && batch.failed.is_empty() {
        let took = Duration::from_micros(batch.pages_us.into()) / pages as u32; // at most 128
        books.page_took = Some(took);
    }
    books.tally.stored_pages += stored as u64;
    for store in batch.stores.iter().filter(|store| store.is_made) {
        books.store.made(store.page, batch.step);
        if let Some(disk) = &mut books.disk {
            disk.note(store.page);
        }
    }
    for store in batch.stores.iter().filter(|store| !store.is_made) {
        books.store.lose(store.page, batch.step, &mut books.cells.checkpoints);
        books.slots.clean(store.slot); // what is not there cannot be stored
    }
    let states = batch.saves.iter().filter(|save| save.state().is_some());
    let saved = states.filter(|save| save.is_made).count();
    if saved > 0 {
        books.save_took = Duration::from_micros(batch.save_us.into()) / saved as u32; // a few
    }
    books.tally.states_saved += saved as u64;
    for save in &batch.saves {
        let (all, place) = match save.what {
            SaveKind::State(place) => (&mut books.cells.checkpoints, place),
            SaveKind::Logits(place) => (&mut books.cells.logits, place),
        };
        if save.is_made {
            all.made(place, batch.step);
        } else {
            all.lose(place, batch.step);
        }
    }
    for (index, score) in batch.scores.iter().enumerate() {
        let Some(id) = books.slots.holder(score.owner) else { continue };
        let sequence = books.sequences.get_mut(id);
        assert_eq!(sequence.scored, score.position.index(), "scores come in order");
        sequence.scored += 1;
        event(Event::Score { id, index });
    }
    for row in &batch.rows {
        computed(books, row, batch, &mut event);
    }
    guesses::take(books, batch, &mut event);
    let mut before = None;
    let mut late: Option<&Sample> = None;
    for sample in &batch.samples {
        let is_first = before.replace(sample.owner) != Some(sample.owner);
        // The sequence has ended or was preempted; its sample came late.
        let Some(id) = books.slots.holder(sample.owner) else {
            let Sample { owner, position, token, end, .. } = *sample;
            if let Some(earlier) = late.replace(sample).filter(|late| late.owner == owner) {
                books.slots.take_late_guess(owner, position.index(), earlier.token);
            }
            books.slots.take_late(owner, position.index(), token, end);
            continue;
        };
        let sequence = books.sequences.get_mut(id);
        // Invariant: positions are checked on both sides of the ring.
        assert_eq!(sample.position.index() + 1, sequence.tokens.len(), "a sample out of order");
        assert!(sequence.in_flight > 0 || !is_first, "a sample that nobody planned");
        sequence.in_flight -= u32::from(is_first);
        if let Some(cost) = sample.mask {
            constrained::learn_mask(books, id, cost);
        }
        if sample.end {
            // The decode lane drops the row of this token.
            let sequence = books.sequences.get_mut(id);
            sequence.planned = sequence.planned.min(sequence.tokens.len());
            books.release(id);
            let Sample { token, logprobs, .. } = *sample;
            let end = Finish::End { token, logprobs };
            let finish = sample.broken.map_or(end, Finish::Broken);
            event(Event::Finished(id, finish));
            continue;
        }
        let sequence = books.sequences.get_mut(id);
        sequence.tokens.push(sample.token);
        sequence.mu = sample.mu;
        let is_last = sequence.generated() == sequence.asked.max_tokens as usize;
        if is_last {
            books.release(id);
        }
        // `event` must not cancel a sequence. The caller does so after this call.
        let Sample { token, logprobs, mask, .. } = *sample;
        let constraint_bytes = mask.map(|cost| cost.bytes);
        event(Event::Token { id, token, logprobs, is_last, constraint_bytes });
    }
    constrained::take_masks_back(books, batch);
    for failed in &batch.failed {
        let Failed { owner, next, .. } = *failed;
        if let Some(id) = books.slots.holder(owner) {
            fail(books, id, failed, batch.aborted, &mut event);
        } else if books.slots.shorten(owner, next.index()) {
            books.cells.truncate(owner.slot, next.index());
        }
    }
}

/// Notes a computed row. Ends a sequence that asked for no tokens when its prompt is computed.
fn computed(books: &mut Books, row: &Row, batch: &Batch, event: &mut impl FnMut(Event)) {
    let Some(id) = books.slots.holder(row.owner) else { return };
    let failed = batch.failed.iter().find(|failed| failed.owner == row.owner);
    if failed.is_some_and(|failed| failed.reason != FailureReason::LateMask) {
        return;
    }
    let sequence = books.sequences.get_mut(id);
    sequence.failures = 0;
    let is_whole_prompt = row.position.index() + 1 == sequence.prompt_tokens;
    if sequence.asked.max_tokens == 0 && is_whole_prompt && failed.is_none() {
        books.release(id);
        event(Event::Finished(id, Finish::PromptComputed));
    }
}

/// Learns from the time of a step.
fn learn(books: &mut Books, batch: &Batch) {
    books.ran += Duration::from_micros(u64::from(batch.guess_us) + u64::from(batch.decode_us));
    let ran = batch.rows.len() - batch.rows_dropped as usize;
    if batch.step_failed {
        books.rows_max = (ran / 2).max(1);
    }
    if batch.step_failed || ran == 0 {
        return;
    }
    books.rows_max = (2 * books.rows_max).min(books.capacity.step_rows);
    if batch.guessed_rows > 0 {
        let made: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.made)).sum();
        let share = f64::from(made) / f64::from(batch.guessed_rows);
        books.guesses_made += GUESSES_MADE_RATE * (share - books.guesses_made);
    }
    learn_drafts(books, batch);
    let masks: u32 = batch.samples.iter().filter_map(|sample| sample.mask).map(|m| m.us).sum();
    let took = u64::from(batch.decode_us) + u64::from(batch.sample_us.saturating_sub(masks));
    let is_copy = |start: &&Start| start.source != start.owner.slot && start.keep.index() > 0;
    let copies = batch.starts.iter().filter(is_copy).count();
    // Dropped rows took no time, so the step says nothing about its planned rows.
    if took > 0 && batch.rows_dropped == 0 {
        let (decode, prefill) = times::rows_of(books, batch);
        let took = Duration::from_micros(took);
        books.cost.observe(decode, prefill, copies, batch.threads, took);
    }
}

/// Learns the cost of a drafted guess from the time that the draft model took. If it only read a
/// text and made no guess, that time counts as the cost of one guess. If it did neither, the
/// estimate decays, so that drafts are tried again.
fn learn_drafts(books: &mut Books, batch: &Batch) {
    let of = |source| batch.rows.iter().filter(move |row| row.guesses.source == source);
    let guesses: usize = of(GuessSource::Draft).map(|row| usize::from(row.guesses.made)).sum();
    if guesses > 0 || of(GuessSource::Unread).next().is_some() {
        books.cost.observe_drafts(guesses.max(1), Duration::from_micros(batch.guess_us.into()));
    } else {
        books.cost.forget_drafts();
    }
}

/// Restarts a sequence whose step failed, whose rows were undone, or that could not start as
/// planned, where it stands. Ends it after more than [`STEP_RETRIES_MAX`] failed steps in a row.
fn fail(
    books: &mut Books,
    id: SequenceId,
    failed: &Failed,
    aborted: bool,
    event: &mut impl FnMut(Event),
) {
    books.drop_loads(id);
    let sequence = books.sequences.get_mut(id);
    sequence.planned = failed.next.index();
    books.cells.truncate(failed.owner.slot, failed.next.index());
    sequence.lose_cached();
    sequence.in_flight = 0;
    sequence.guessed = 0;
    if failed.reason == FailureReason::LostWindow {
        // It goes on from a saved state of that slot. If there is none, it looks for another prefix.
        sequence.avoids_windows = true;
        sequence.starts_again = failed.next == Position(0);
    }
    if failed.reason == FailureReason::Step {
        // A step that took too long is tried again only once.
        sequence.failures += if aborted { STEP_RETRIES_MAX } else { 1 };
        if sequence.failures > STEP_RETRIES_MAX {
            books.release(id);
            event(Event::Finished(id, Finish::Failed));
            return;
        }
        books.tally.retries += 1;
    }
    let owner = books.slots.renew(failed.owner);
    sequence.state = Stage::Running(owner);
    if failed.reason == FailureReason::LateMask {
        constrained::leave_decode_lane(books, id);
    } else {
        constrained::restart_masks(books, id);
    }
    books.restarts.push(id).expect("one restart for each slot");
}
