//! How many guesses each sequence may make in a step.
//!
//! A guess is a row that may be computed in vain. It pays while it brings the step more tokens than
//! time. The cost model knows the time of more rows, and [`Luck`] how often the guesses of a text
//! come true. So guesses are granted one by one, the most promising first, and the number wins with
//! which all texts together get the most tokens in a second. Among many streams, or in texts that
//! repeat nothing, this is none.
//!
//! Guesses from the text cost nothing but their rows. Those of a draft model take time before the
//! step, too, and come true in other texts. So each kind has its own number. Which kind a step has
//! shows only when it runs: the draft model is asked where the text has no guess.
//!
//! Whoever gains nothing by them must not wait for them: a step takes no longer than its least
//! lucky sequence gains, but for [`OTHERS_WAIT`].

use super::cost::Rows;
use super::luck::Luck;
use super::masks::MaskSource;
use super::{Event, Scheduler};
use crate::limits::GUESSED_ROWS_MAX;
use crate::ring::message::{Batch, GuessSource, Guesses};
use crate::types::{Logits, SequenceId};

/// Guesses must promise 3 % more tokens in a second, because the cost model is not exact.
const WORTH: f64 = 1.03;

/// While another sequence waits for a step and gains nothing by its guesses, they may make the step a
/// tenth longer.
const OTHERS_WAIT: f64 = 1.1;

type Guessers = heapless::Vec<Guesser, GUESSED_ROWS_MAX>;

/// A sequence that may guess.
struct Guesser {
    id: SequenceId,
    /// The index of its row in the batch.
    row: usize,
    /// The luck of the kind of guesses that is being granted.
    luck: Luck,
    most: usize,
    /// Guesses granted from the text, once these are chosen. Drafts may use their rows.
    from_text: usize,
    /// Guesses of the kind granted so far, and the tokens that it will then get.
    granted: usize,
    tokens: f64,
}

impl Guesser {
    /// Rows for the guesses of either kind.
    fn rows(&self) -> usize {
        self.from_text.max(self.granted)
    }
}

impl Scheduler {
    /// Grants guesses to the decode rows of a batch.
    pub(super) fn grant_guesses(&mut self, batch: &mut Batch) {
        let mut guessers = self.guessers(batch);
        if guessers.is_empty() {
            return;
        }
        let mut room = GUESSED_ROWS_MAX.min(self.rows_left(batch));
        // One for a prompt, and cells for the rows of the next step.
        room = room.saturating_sub(1);
        let cells = self.cells.left() + self.cells.kept();
        room = room.min(cells.saturating_sub(self.held.len()));
        let others = self.held.len() > guessers.len();
        self.choose_guesses(batch, &mut guessers, 0.0, others, room);
        let each = self.cost.draft();
        for guesser in &mut guessers {
            guesser.from_text = guesser.granted;
            guesser.luck = self.sequences.get(guesser.id).draft_luck;
            (guesser.granted, guesser.tokens) = (0, 1.0);
            if each.is_none() {
                guesser.most = 1; // it shows what they cost
            }
        }
        if self.capacity.drafts {
            self.choose_guesses(batch, &mut guessers, each.unwrap_or(0.0), others, room);
        }
        self.evict(batch, guessers.iter().map(Guesser::rows).sum());
        for Guesser { id, row, from_text, granted, .. } in guessers {
            let row = &mut batch.rows[row];
            // At most GUESSES_MAX each.
            row.guesses.granted = from_text.min(self.cells.left()) as u8;
            row.guesses.drafts = granted.min(self.cells.left()) as u8;
            batch.guessed_rows += u32::from(row.guesses.most());
            let sequence = self.sequences.get_mut(id);
            sequence.guessed += usize::from(row.guesses.most());
            let cells = sequence.cells();
            self.grow(row.owner.slot, cells);
        }
    }

    /// The sequences of a batch that may guess.
    fn guessers(&self, batch: &Batch) -> Guessers {
        let mut guessers = heapless::Vec::new();
        // The step spends its time on computing then, not on reading weights: no row is cheap.
        if batch.rows.len() > GUESSED_ROWS_MAX {
            return guessers;
        }
        // If slots have caches of their own, llama.cpp computes sequences with different numbers of
        // rows one after another.
        if self.cells.are_own() && self.held.len() > 1 {
            return guessers;
        }
        for (index, row) in batch.rows.iter().enumerate() {
            let Some(id) = self.slots.holder(row.owner) else { continue };
            let sequence = self.sequences.get(id);
            let most = usize::from(sequence.asked.guessing.most);
            let is_masked = !matches!(sequence.masks, MaskSource::DecodeLane { .. });
            if row.logits != Logits::Sample || most == 0 || is_masked {
                continue;
            }
            let luck = sequence.luck;
            let pushed = guessers.push(Guesser {
                id,
                row: index,
                luck,
                most,
                from_text: 0,
                granted: 0,
                tokens: 1.0,
            });
            assert!(pushed.is_ok(), "one row for each slot");
        }
        guessers
    }

    /// Chooses the numbers of guesses of one kind, which take `each` microseconds besides their rows.
    /// All kinds have `room` rows at most. `others` says whether sequences wait
    /// for the step that make none.
    fn choose_guesses(
        &self,
        batch: &Batch,
        guessers: &mut Guessers,
        each: f64,
        others: bool,
        room: usize,
    ) {
        let mut rows = Rows::default();
        batch.rows.iter().for_each(|row| rows.add(row.position.index()));
        let Some(alone) = self.cost.decode(rows).map(|time| time.as_secs_f64() * 1e6) else {
            return;
        };
        let mut tokens = rows.count as f64;
        let (mut best, mut rate) = (0, WORTH * tokens / alone);
        let mut order = heapless::Vec::<u16, GUESSED_ROWS_MAX>::new();
        // The time if every guess is made, and the time to expect.
        let (mut longest, mut expected) = (alone, alone);
        let taken: usize = guessers.iter().map(Guesser::rows).sum();
        let mut free = room.saturating_sub(taken);
        for count in 1..=room {
            let chances = |guesser: &Guesser| guesser.luck.chances(guesser.granted);
            // In proportion to what it has: a token more for the one with fewer is worth more.
            let gain = |guesser: &Guesser| chances(guesser).1 / guesser.tokens;
            let next = guessers
                .iter_mut()
                .enumerate()
                .filter(|(_, guesser)| guesser.granted < guesser.most)
                .filter(|(_, guesser)| guesser.granted < guesser.from_text || free > 0)
                .max_by(|(_, a), (_, b)| gain(a).total_cmp(&gain(b)));
            let Some((index, guesser)) = next else { break };
            let (made, kept) = chances(guesser);
            free -= usize::from(guesser.granted >= guesser.from_text);
            guesser.granted += 1;
            guesser.tokens += kept;
            tokens += kept;
            rows.add_guesses(1);
            order.push(index as u16).expect("no more than there is room"); // below SLOTS_MAX
            let Some(time) = self.cost.hoped_decode(rows) else { break };
            let time = time + each * count as f64;
            expected += made * (time - longest).max(0.0);
            longest = time;
            let least = guessers.iter().map(|guesser| guesser.tokens).fold(f64::MAX, f64::min);
            let least = if others { 1.0 } else { least };
            if tokens / expected > rate && longest <= alone * least * OTHERS_WAIT {
                (best, rate) = (count, tokens / expected);
            }
        }
        order.iter().skip(best).for_each(|index| guessers[usize::from(*index)].granted -= 1);
    }

    /// Takes the guesses of a step: those that came true are rows, and the cells of the others are
    /// free again.
    pub(super) fn take_guesses(&mut self, batch: &Batch, event: &mut impl FnMut(Event)) {
        // A row that was dropped or failed has no samples.
        for own in batch.samples.chunk_by(|a, b| a.owner == b.owner) {
            // (Benchmarks answer without rows.)
            let Some(row) = batch.last_row(own[0].owner.slot) else { continue };
            let Guesses { granted, drafts, made, source, .. } = row.guesses;
            let most = row.guesses.most();
            let kept = own.len() - 1;
            let Some(id) = self.slots.holder(row.owner) else { continue };
            let sequence = self.sequences.get_mut(id);
            let (found, right) =
                if source == GuessSource::Text { (made.into(), kept) } else { (0, 0) };
            sequence.luck.observe(granted.into(), found, right);
            // A draft model that may guess, but was not asked or is not ready, shows nothing.
            if source == GuessSource::Draft || drafts == 0 {
                for luck in [&mut sequence.draft_luck, &mut self.draft_luck] {
                    luck.observe(drafts.into(), made.into(), kept);
                }
            }
            if most == 0 {
                continue;
            }
            sequence.guessed -= usize::from(most);
            sequence.planned += kept;
            let (key, cells) = (sequence.asked.key, sequence.cells());
            self.cells.truncate(row.owner.slot, cells);
            self.shares.serve(key, made.into());
            if made > 0 {
                event(Event::Guessed { id, made, kept: kept as u8 }); // at most `made`
            }
        }
    }
}
