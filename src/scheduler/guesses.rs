//! How many guesses each sequence may make in a step.
//!
//! A guess is a row that may be computed in vain. It pays if it raises the tokens per second. The
//! cost model predicts the time of more rows, and [`Luck`] how often the guesses of a text come
//! true. Guesses are granted one by one, the most promising first. The chosen number of guesses is
//! the one with the most tokens per second of all texts together. With many streams, or in texts
//! that repeat nothing, it is 0.
//!
//! There are two kinds of guesses. Guesses from the text cost only their rows. Guesses of a draft
//! model also take time before the step, and come true in other texts. So a row has a number for
//! each kind. The decode lane chooses the kind when the step runs: it asks the draft model if the
//! text has no guess.
//!
//! Guesses make a step longer for every sequence in it. Let `n` be the fewest tokens that any of
//! them is expected to get; a sequence without guesses gets one. The step may then take at most `n`
//! times [`GUESSES_OTHERS_WAIT`] as long as without guesses.

use super::books::Books;
use super::cost::Rows;
use super::event::Event;
use super::luck::Luck;
use super::masks::MaskSource;
use super::prefill;
use super::tuning::{GUESSES_OTHERS_WAIT, GUESSES_WORTH};
use crate::limits::{DRAFT_TEXTS_MAX, GUESSED_ROWS_MAX};
use crate::ring::message::{Batch, GuessSource, Guesses};
use crate::types::{Logits, SequenceId};

type OfEach<T> = heapless::Vec<T, GUESSED_ROWS_MAX>;

/// A sequence that may guess, and the index of its row in the batch.
#[derive(Clone, Copy)]
struct Guesser {
    id: SequenceId,
    row: usize,
}

/// The guesses of one kind that a sequence may get.
struct Wish {
    luck: Luck,
    most: usize,
    /// Rows that the sequence has for guesses of the other kind. Only one kind will use them.
    has: usize,
    /// Guesses granted so far, and the tokens that the sequence is expected to get with them.
    granted: usize,
    tokens: f64,
}

impl Wish {
    fn new(luck: Luck, most: usize, has: usize) -> Self {
        Self { luck, most, has, granted: 0, tokens: 1.0 }
    }

    /// Whether another guess needs a row that the sequence does not have yet.
    fn takes_room(&self) -> bool {
        self.granted >= self.has
    }
}

/// Grants guesses to the decode rows of a batch.
pub(super) fn grant(books: &mut Books, batch: &mut Batch) {
    batch.drafter_reads = may_draft(books) && drafts_pay(books);
    let guessers = guessers(books, batch);
    if guessers.is_empty() {
        return;
    }
    let mut room = GUESSED_ROWS_MAX.min(prefill::rows_left(books, batch));
    // Leave one row for a prompt, and cells for the rows of the next step.
    room = room.saturating_sub(1);
    let cells = books.cells.left() + books.cells.kept();
    room = room.min(cells.saturating_sub(books.held.len()));
    let others = books.held.len() > guessers.len();
    let sequences = || guessers.iter().map(|guesser| books.sequences.get(guesser.id));
    let wishes = sequences().map(|sequence| {
        let finds = books.capacity.looks_up || sequence.is_constrained();
        let most = if finds { sequence.asked.guessing.most } else { 0 };
        Wish::new(sequence.luck, most.into(), 0)
    });
    let from_text = choose(books, batch, wishes.collect(), 0.0, others, room);
    let each = books.cost.draft();
    let wishes = sequences().zip(&from_text).map(|(sequence, from_text)| {
        // Until the time of a guess is known, one is enough to measure it.
        let most = if each.is_some() { sequence.asked.guessing.most } else { 1 };
        let most = if may_draft(books) { most } else { 0 };
        Wish::new(sequence.draft_luck, most.into(), *from_text)
    });
    let each = each.unwrap_or(0.0);
    let drafts = choose(books, batch, wishes.collect(), each, others, room);
    books.evict(batch, from_text.iter().zip(&drafts).map(|(a, b)| a.max(b)).sum());
    for (Guesser { id, row }, numbers) in guessers.iter().zip(from_text.iter().zip(&drafts)) {
        let sequence = books.sequences.get_mut(*id);
        let granted = |number: &usize| {
            let number = number.min(&books.cells.left()).to_owned() as u8; // at most GUESSES_MAX
            if number < sequence.asked.guessing.least { 0 } else { number }
        };
        let row = &mut batch.rows[*row];
        (row.guesses.granted, row.guesses.drafts) = (granted(numbers.0), granted(numbers.1));
        batch.guessed_rows += u32::from(row.guesses.most());
        sequence.guessed += usize::from(row.guesses.most());
        let cells = sequence.cells();
        books.grow(row.owner.slot, cells);
    }
}

/// Whether the draft model is used. With many texts few guesses pay, and the draft model would have
/// to read every text.
fn may_draft(books: &Books) -> bool {
    books.capacity.drafts && books.held.len() <= DRAFT_TEXTS_MAX && runs_ragged(books)
}

/// Whether one drafted guess would raise the tokens per second of a single text with average luck.
fn drafts_pay(books: &Books) -> bool {
    let rows = |count| Rows { count, depths: 0 };
    let alone = books.cost.hoped_decode(rows(1));
    let Some((alone, two)) = alone.zip(books.cost.hoped_decode(rows(2))) else { return true };
    let (_, kept) = books.draft_luck.chances(0);
    (1.0 + kept) / (two + books.cost.draft().unwrap_or(0.0)) > GUESSES_WORTH / alone
}

/// Whether sequences with different numbers of rows run in one pass.
fn runs_ragged(books: &Books) -> bool {
    books.capacity.is_ragged() || books.held.len() <= 1
}

/// The sequences of a batch that may guess.
fn guessers(books: &Books, batch: &Batch) -> OfEach<Guesser> {
    let mut guessers = heapless::Vec::new();
    // A step with more rows spends its time on arithmetic, not on reading weights: no row is cheap.
    if batch.rows.len() > GUESSED_ROWS_MAX || !runs_ragged(books) {
        return guessers;
    }
    for (index, row) in batch.rows.iter().enumerate() {
        let Some(id) = books.slots.holder(row.owner) else { continue };
        let sequence = books.sequences.get(id);
        let guesses = sequence.asked.guessing.most > 0;
        let is_masked = !matches!(sequence.masks, MaskSource::DecodeLane { .. });
        if row.logits == Logits::Sample && guesses && !is_masked {
            let pushed = guessers.push(Guesser { id, row: index });
            assert!(pushed.is_ok(), "one row for each slot");
        }
    }
    guessers
}

/// Chooses how many guesses of one kind each wish gets. A guess takes `each` microseconds besides
/// its row. The guesses of both kinds together get at most `room` rows. `others` is true if the
/// step has sequences without guesses, which a longer step delays.
fn choose(
    books: &Books,
    batch: &Batch,
    mut wishes: OfEach<Wish>,
    each: f64,
    others: bool,
    room: usize,
) -> OfEach<usize> {
    let mut rows = Rows::default();
    batch.rows.iter().for_each(|row| rows.add(row.position.index()));
    let granted = |wishes: &OfEach<Wish>| wishes.iter().map(|wish| wish.granted).collect();
    let Some(alone) = books.cost.decode(rows).map(|time| time.as_secs_f64() * 1e6) else {
        return granted(&wishes);
    };
    let mut tokens = rows.count as f64;
    let (mut best, mut rate) = (0, GUESSES_WORTH * tokens / alone);
    let mut order = heapless::Vec::<u16, GUESSED_ROWS_MAX>::new();
    // The time if every guess is made, and the time to expect.
    let (mut longest, mut expected) = (alone, alone);
    let taken: usize = wishes.iter().map(|wish| wish.has).sum();
    let mut left = room.saturating_sub(taken);
    for count in 1..=room {
        let chances = |wish: &Wish| wish.luck.chances(wish.granted);
        // Relative to its expected tokens: one more token is worth more to a sequence with fewer.
        let gain = |wish: &Wish| chances(wish).1 / wish.tokens;
        let next = wishes
            .iter_mut()
            .enumerate()
            .filter(|(_, wish)| wish.granted < wish.most && (left > 0 || !wish.takes_room()))
            .max_by(|(_, a), (_, b)| gain(a).total_cmp(&gain(b)));
        let Some((index, wish)) = next else { break };
        let (made, kept) = chances(wish);
        left -= usize::from(wish.takes_room());
        wish.granted += 1;
        wish.tokens += kept;
        tokens += kept;
        rows.add_guesses(1);
        order.push(index as u16).expect("no more than there is room"); // below SLOTS_MAX
        let Some(time) = books.cost.hoped_decode(rows) else { break };
        let time = time + each * count as f64;
        expected += made * (time - longest).max(0.0);
        longest = time;
        let least = wishes.iter().map(|wish| wish.tokens).fold(f64::MAX, f64::min);
        let least = if others { 1.0 } else { least };
        if tokens / expected > rate && longest <= alone * least * GUESSES_OTHERS_WAIT {
            (best, rate) = (count, tokens / expected);
        }
    }
    order.iter().skip(best).for_each(|index| wishes[usize::from(*index)].granted -= 1);
    granted(&wishes)
}

/// Takes the guesses of a completed step. Those that came true count as planned rows. The cells of
/// the others become free.
pub(super) fn take(books: &mut Books, batch: &Batch, event: &mut impl FnMut(Event)) {
    if batch.rows.iter().all(|row| row.guesses.drafts == 0) {
        books.draft_luck.observe(0, 0, 0);
    }
    // A row that was dropped or failed has no samples.
    for own in batch.samples.chunk_by(|a, b| a.owner == b.owner) {
        // (Benchmarks answer without rows.)
        let Some(row) = batch.last_row(own[0].owner.slot) else { continue };
        let Guesses { granted, drafts, made, source, .. } = row.guesses;
        let most = row.guesses.most();
        let kept = own.len() - 1;
        let Some(id) = books.slots.holder(row.owner) else { continue };
        let sequence = books.sequences.get_mut(id);
        let (found, right) = if source == GuessSource::Text { (made.into(), kept) } else { (0, 0) };
        sequence.luck.observe(granted.into(), found, right);
        // If the draft model was allowed to guess, but was not asked or not ready, there is nothing
        // to learn.
        if source == GuessSource::Draft || drafts == 0 {
            sequence.draft_luck.observe(drafts.into(), made.into(), kept);
        }
        // No guess for one text (unread, or too improbable for its request) says nothing about
        // others.
        if source == GuessSource::Draft && made > 0 {
            books.draft_luck.observe(drafts.into(), made.into(), kept);
        }
        if most == 0 {
            continue;
        }
        sequence.guessed -= usize::from(most);
        sequence.planned += kept;
        let (key, cells) = (sequence.asked.key, sequence.cells());
        books.cells.truncate(row.owner.slot, cells);
        books.shares.serve(key, made.into());
        if made > 0 {
            event(Event::Guessed { id, made, kept: kept as u8 }); // at most `made`
        }
    }
}
