//! The decode lane by itself, fed by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::support::logits_if;
use crate::support::world::{World, capacity};
use corelane::abort::StepAbort;
use corelane::decode::DecodeLane;
use corelane::decode::draft::{Draft, Drafter};
use corelane::memory::{Kept, KeptSizes};
use corelane::model::fake::{END, FakeModel, FakeOptions, N_VOCAB, STATE_BYTES, continuation};
use corelane::ring::message::{
    Batch, Failed, FailureReason, Guesses, Input, Row, Save, SaveKind, Start,
};
use corelane::scheduler::{Capacity, NewSequence, Scheduler};
use corelane::types::{
    CheckpointId, Generation, Guessing, Logits, Owner, Position, Sampling, SlotId, Threads,
};

fn lane(slots: usize) -> DecodeLane<FakeModel> {
    let model = FakeModel::new(slots, 100 * slots, 32, FakeOptions::default());
    DecodeLane::new(model, slots, 100, Box::new([END]), Arc::default())
}

fn owner(slot: u16, generation: u32) -> Owner {
    Owner { slot: SlotId(slot), generation: Generation(generation) }
}

fn start(owner: Owner, keep: u32) -> Start {
    Start {
        owner,
        source: owner.slot,
        keep: Position(keep),
        checkpoint: None,
        logits: None,
        prompt_tokens: 3,
        tokens_max: 100,
        guessing: Guessing::default(),
        sampling: Sampling::greedy(),
        advanced: None,
        mu: 0.0,
    }
}

fn row(owner: Owner, position: u32, sample: bool) -> Row {
    Row {
        owner,
        position: Position(position),
        input: Input::Token(65),
        logits: logits_if(sample),
        guesses: Guesses::default(),
    }
}

/// Records the threads that it should use.
struct Records(Arc<AtomicU16>);

impl Drafter for Records {
    fn use_threads(&mut self, threads: Threads) {
        self.0.store(threads.count, Ordering::Relaxed);
    }

    fn draft(&mut self, _wanted: &mut [Draft<'_>]) {}
}

/// On a busy machine, a draft model with more threads than the served one would be what waits.
#[test]
fn a_draft_model_has_the_threads_of_the_served_one() {
    let seen = Arc::new(AtomicU16::new(0));
    let mut lane = lane(1).with_guesses(false, Some(Box::new(Records(seen.clone()))));
    let threads = Some(Threads { count: 3, led: false });
    let mut batch = Batch { threads, ..Batch::default() };
    batch.starts.push(start(owner(0, 1), 0)).unwrap();
    batch.rows.push(row(owner(0, 1), 0, true)).unwrap();
    lane.step(&mut batch);
    assert_eq!(seen.load(Ordering::Relaxed), 3);
}

/// Of the slots that decode, those with a prompt's slot between them would be split.
#[test]
fn prompts_run_behind_those_that_decode_where_these_are_neighbours() {
    for (prompt, calls) in [(2, 2), (1, 1)] {
        let mut lane = lane(3);
        let decoding = (0..3).filter(|slot| *slot != prompt);
        let mut batch = Batch::default();
        for slot in 0..3 {
            batch.starts.push(start(owner(slot, 1), 0)).unwrap();
        }
        batch.rows.extend(decoding.clone().map(|slot| row(owner(slot, 1), 0, true)));
        lane.step(&mut batch);
        batch.clear();
        let before = lane.backend().calls();
        for slot in 0..3 {
            let rows = if slot == prompt { 0..3 } else { 1..2 };
            batch.rows.extend(rows.map(|at| row(owner(slot, 1), at, at != 0)));
        }
        // A sequence samples once.
        batch
            .rows
            .iter_mut()
            .filter(|row| row.owner.slot.0 == prompt && row.position.0 == 1)
            .for_each(|row| row.logits = Logits::None);
        lane.step(&mut batch);
        assert_eq!(lane.backend().calls() - before, calls, "the prompt is in slot {prompt}");
        assert_eq!((batch.samples.len(), batch.failed.len()), (3, 0));
        for slot in 0..3 {
            let tokens = if slot == prompt { 3 } else { 2 };
            assert_eq!(lane.backend().tokens_in(SlotId(slot)), tokens, "slot {slot}");
        }
    }
}

/// Rows before the failure keep their results. Sequences behind it restart where they stood.
#[test]
fn a_prompt_that_fails_does_not_take_those_that_decode_with_it() {
    let options = FakeOptions { fail_one_in: 3, ..FakeOptions::default() };
    let model = FakeModel::new(2, 200, 32, options);
    let mut lane = DecodeLane::new(model, 2, 100, Box::new([END]), Arc::default());
    let mut batch = Batch::default();
    batch.starts.push(start(owner(0, 1), 0)).unwrap();
    batch.rows.push(row(owner(0, 1), 0, true)).unwrap();
    lane.step(&mut batch); // the first call
    batch.clear();
    batch.starts.push(start(owner(1, 1), 0)).unwrap();
    batch.rows.push(row(owner(0, 1), 1, true)).unwrap();
    batch.rows.extend((0..3).map(|at| row(owner(1, 1), at, at == 2)));
    lane.step(&mut batch); // the second, and the third, which fails
    assert!(batch.step_failed);
    assert_eq!(batch.samples.iter().map(|sample| sample.owner).collect::<Vec<_>>(), [owner(0, 1)]);
    assert_eq!(
        batch.failed.as_slice(),
        [Failed { owner: owner(1, 1), next: Position(0), reason: FailureReason::Step }]
    );
    assert_eq!(
        (lane.next_position(SlotId(0)), lane.next_position(SlotId(1))),
        (Position(2), Position(0))
    );
}

/// Once a step's masks have taken their time, the rows of the others are undone.
#[test]
fn a_step_with_slow_masks_leaves_the_others_to_the_mask_lane() {
    let mut lane = lane(3);
    let constrained = Some(World::endless());
    let mut batch = Batch { masks_max: Some(Duration::ZERO), ..Batch::default() };
    for slot in 0..3 {
        let advanced = constrained.clone().filter(|_| slot < 2);
        batch.starts.push(Start { advanced, ..start(owner(slot, 1), 0) }).unwrap();
        batch.rows.extend((0..3).map(|at| row(owner(slot, 1), at, at == 2)));
    }
    lane.step(&mut batch);
    let sampled: Vec<_> = batch.samples.iter().map(|sample| sample.owner.slot).collect();
    assert_eq!(sampled, [SlotId(2)], "only the text without a mask");
    let failed =
        |slot| Failed { owner: owner(slot, 1), next: Position(2), reason: FailureReason::LateMask };
    assert_eq!(batch.failed.as_slice(), [failed(0), failed(1)]);
    assert_eq!(lane.backend().tokens_in(SlotId(1)), 2, "its row is undone");
    assert!(!batch.step_failed);
    // Its next row was planned before that was known.
    batch.clear();
    batch.rows.push(row(owner(1, 1), 3, true)).unwrap();
    lane.step(&mut batch);
    assert_eq!((batch.rows_dropped, batch.samples.len()), (1, 0));
    // It starts again.
    batch.clear();
    batch.starts.push(Start { advanced: constrained, ..start(owner(1, 2), 2) }).unwrap();
    batch.rows.push(row(owner(1, 2), 2, true)).unwrap();
    lane.step(&mut batch);
    assert_eq!((batch.samples.len(), batch.failed.len()), (1, 0));
}

/// An order to give up a step that comes before its last call holds for that call.
#[test]
fn a_step_is_given_up_in_its_second_call_too() {
    let options = FakeOptions { hang_one_in: 3, ..FakeOptions::default() };
    let abort: Arc<StepAbort> = Arc::default();
    let model = FakeModel::new(2, 200, 32, options).with_abort(abort.clone());
    let mut lane = DecodeLane::new(model, 2, 100, Box::new([END]), Arc::default());
    let mut batch = Batch { step: 1, ..Batch::default() };
    batch.starts.push(start(owner(0, 1), 0)).unwrap();
    batch.rows.push(row(owner(0, 1), 0, true)).unwrap();
    lane.step(&mut batch); // the first call
    batch.clear();
    batch.step = 2;
    batch.starts.push(start(owner(1, 1), 0)).unwrap();
    batch.rows.push(row(owner(0, 1), 1, true)).unwrap();
    batch.rows.extend((0..3).map(|at| row(owner(1, 1), at, at == 2)));
    abort.give_up(2);
    lane.step(&mut batch); // the second, and the third, which hangs until it is given up
    assert!(batch.aborted);
    assert_eq!(batch.samples.len(), 1, "the fake model looks for orders only where it hangs");
}

/// A prompt in another slot has taken cells of the window since the start was planned.
#[test]
fn a_start_whose_window_is_lost_falls_back_to_a_saved_state() {
    for (saves, left) in [(true, 6), (false, 0)] {
        let options = FakeOptions { window: 4, ..FakeOptions::default() };
        let sizes = KeptSizes { states: 1, state_bytes: STATE_BYTES, ..KeptSizes::default() };
        let model = FakeModel::new(2, 200, 32, options);
        let mut lane = DecodeLane::new(model, 2, 100, Box::new([END]), Arc::default())
            .with_kept(Arc::new(Kept::new(sizes).unwrap()));
        let (first, other, second) = (owner(0, 1), owner(1, 1), owner(0, 2));
        let mut batch = Batch::default();
        batch.starts.push(start(first, 0)).unwrap();
        batch.rows.extend((0..6).map(|at| row(first, at, false)));
        let (position, checkpoint) = (Position(6), CheckpointId(0));
        if saves {
            let what = SaveKind::State(checkpoint);
            let save = Save { owner: first, position, what, is_made: false };
            batch.saves.push(save).unwrap();
        }
        lane.step(&mut batch);
        assert_eq!(batch.least_left.as_slice(), [Position(0); 2]);
        for rows in [6..9, 9..12] {
            batch.clear();
            batch.rows.extend(rows.map(|at| row(first, at, false)));
            lane.step(&mut batch);
        }
        batch.clear();
        batch.starts.push(start(other, 0)).unwrap();
        batch.rows.extend((0..5).map(|at| row(other, at, false)));
        lane.step(&mut batch);
        assert!(batch.least_left[0] > Position(7), "{:?}", batch.least_left);

        batch.clear();
        batch.starts.push(start(second, 7)).unwrap();
        batch.rows.push(row(second, 7, true)).unwrap();
        lane.step(&mut batch);
        let (next, reason) = (Position(left), FailureReason::LostWindow);
        assert_eq!(batch.failed.as_slice(), [Failed { owner: second, next, reason }]);
        assert_eq!((batch.rows_dropped, lane.next_position(SlotId(0))), (1, next));
        // It goes on from there.
        let third = owner(0, 3);
        batch.clear();
        batch.starts.push(start(third, left)).unwrap();
        batch.rows.push(row(third, left, true)).unwrap();
        lane.step(&mut batch);
        assert_eq!((batch.failed.len(), batch.samples.len()), (0, 1));
    }
}

/// The prompt of a sequence is all in a slot, and the logits behind it were kept. They are the model's,
/// whatever the sampling options of the first sequence had made of them.
#[test]
fn a_sequence_with_kept_logits_samples_without_a_row() {
    for is_recurrent in [true, false] {
        sample_kept_logits(FakeOptions { is_recurrent, ..FakeOptions::default() });
    }
}

fn sample_kept_logits(options: FakeOptions) {
    let (states, state_bytes, logits, n_vocab) = (1, STATE_BYTES, 2, N_VOCAB);
    let sizes = KeptSizes { states, state_bytes, logits, n_vocab, ..KeptSizes::default() };
    let kept = Arc::new(Kept::new(sizes).unwrap());
    let model = FakeModel::new(2, 200, 32, options);
    let mut lane =
        DecodeLane::new(model, 2, 100, Box::new([END]), Arc::default()).with_kept(kept.clone());
    let (first, second, third) = (owner(0, 1), owner(1, 1), owner(1, 2));
    let (position, checkpoint, place) = (Position(3), CheckpointId(0), CheckpointId(1));
    let mut batch = Batch::default();
    let sampling = Sampling { presence_penalty: 50.0, ..Sampling::greedy() };
    batch.starts.push(Start { sampling, ..start(first, 0) }).unwrap();
    batch.rows.extend((0..3).map(|at| row(first, at, at == 2)));
    let save = |what| Save { owner: first, position, what, is_made: false };
    batch.saves.push(save(SaveKind::Logits(place))).unwrap();
    if options.is_recurrent {
        batch.saves.push(save(SaveKind::State(checkpoint))).unwrap();
    }
    lane.step(&mut batch);
    assert!(batch.saves.iter().all(|save| save.is_made), "{:?}", batch.saves);
    let text = continuation(&[65; 3], 2, 0);

    batch.clear();
    let checkpoint = options.is_recurrent.then_some(checkpoint);
    let whole = Start { checkpoint, logits: Some(place), ..start(second, 3) };
    batch.starts.push(Start { source: SlotId(0), ..whole.clone() }).unwrap();
    lane.step(&mut batch);
    let sampled: Vec<_> = batch.samples.iter().map(|one| (one.owner, one.position)).collect();
    assert_eq!((sampled, batch.failed.len()), (vec![(second, Position(2))], 0));
    assert_eq!(batch.samples[0].token, text[0]);
    batch.clear();
    batch.rows.push(Row { input: Input::Carry, ..row(second, 3, true) }).unwrap();
    lane.step(&mut batch);
    assert_eq!(batch.samples[0].token, text[1], "it goes on behind the token");

    // No logits are kept behind another number of tokens, so the sequence starts again.
    batch.clear();
    batch.rows.push(Row { input: Input::Token(text[0]), ..row(first, 3, false) }).unwrap();
    lane.step(&mut batch);
    batch.clear();
    let (owner, source, keep) = (third, SlotId(0), Position(4));
    batch.starts.push(Start { owner, source, keep, ..whole }).unwrap();
    lane.step(&mut batch);
    let failed = Failed { owner: third, next: Position(0), reason: FailureReason::Step };
    assert_eq!((batch.failed.as_slice(), batch.samples.len()), (&[failed][..], 0));
}

/// A slot holds nothing of its last owner except the prefix that its next owner reuses. (Defect 3 of
/// the old server.)
#[test]
fn a_slot_forgets_what_its_next_owner_does_not_begin_with() {
    let mut lane = lane(1);
    let mut batch = Batch::default();
    batch.starts.push(start(owner(0, 1), 0)).unwrap();
    batch.rows.extend((0..3).map(|position| row(owner(0, 1), position, false)));
    lane.step(&mut batch);
    assert_eq!(lane.backend().tokens_in(SlotId(0)), 3);
    batch.clear();
    batch.starts.push(start(owner(0, 2), 2)).unwrap();
    lane.step(&mut batch);
    assert_eq!(lane.backend().tokens_in(SlotId(0)), 2);
    assert!(batch.failed.is_empty());
    // More than there is cannot be begun with: the scheduler is told how much is.
    batch.clear();
    batch.starts.push(start(owner(0, 3), 5)).unwrap();
    batch.rows.push(row(owner(0, 3), 5, false)).unwrap();
    lane.step(&mut batch);
    let failed = Failed { owner: owner(0, 3), next: Position(2), reason: FailureReason::Step };
    assert_eq!(batch.failed.as_slice(), [failed]);
    assert_eq!(batch.rows_dropped, 1);
}

/// The decode lane compares the positions that both sides of the ring hold.
#[test]
#[should_panic(expected = "the batch is at position 5 to 5, the decode lane at 4")]
fn a_wrong_position_ends_the_process_with_both_numbers() {
    let mut scheduler = Scheduler::new(Capacity { step_rows: 32, ..capacity(1, 100) });
    let mut lane = lane(1);
    let prompt = [65, 66, 67, 68].into();
    let new = NewSequence::new(prompt, 10, Sampling::greedy());
    scheduler.admit(vec![new], |_, _| ()).unwrap();
    let mut batch = Batch::default();
    scheduler.schedule(&mut batch);
    lane.step(&mut batch);
    scheduler.complete(&mut batch, |_| ());
    batch.clear();
    scheduler.schedule(&mut batch);
    batch.rows[0].position = batch.rows[0].position.next();
    lane.step(&mut batch);
}
