//! Advanced sampling options travel to the decode lane and come back to be freed.

use std::sync::Arc;

use crate::support::world::capacity;
use corelane::decode::DecodeLane;
use corelane::model::StepError;
use corelane::model::fake::{END, FakeModel, FakeOptions};
use corelane::ring::message::{Batch, Start};
use corelane::sampling::AdvancedSampling;
use corelane::scheduler::{Capacity, NewSequence, Scheduler};
use corelane::types::chain::{Chain, Mirostat};
use corelane::types::{Generation, Guessing, Owner, Position, Sampling, SlotId};

/// A decode lane with one slot, for sequences of 100 tokens that never end.
fn lane() -> DecodeLane<FakeModel> {
    let model = FakeModel::new(1, 100, 32, FakeOptions::default());
    DecodeLane::new(model, 1, 100, Box::new([END]), Arc::default())
}

/// The decode lane frees nothing. It leaves the options of the slot's previous holder in the batch,
/// and the front lane drops them.
#[test]
fn what_a_slots_holder_asked_for_comes_back_with_the_next_start() {
    let mut lane = lane();
    let start = |generation, advanced| Start {
        owner: Owner { slot: SlotId(0), generation: Generation(generation) },
        source: SlotId(0),
        keep: Position(0),
        checkpoint: None,
        logits: None,
        prompt_tokens: 1,
        tokens_max: 100,
        guessing: Guessing::default(),
        sampling: Sampling::greedy(),
        advanced,
        mu: 0.0,
    };
    let asked = Arc::new(AdvancedSampling::default());
    let mut batch = Batch::default();
    batch.starts.push(start(1, Some(asked.clone()))).unwrap();
    lane.step(&mut batch);
    assert!(batch.starts[0].advanced.is_none(), "nobody was there before");
    batch.clear();
    assert_eq!(Arc::strong_count(&asked), 2, "the lane has it");
    batch.starts.push(start(2, None)).unwrap();
    lane.step(&mut batch);
    let back = batch.starts[0].advanced.take().expect("it comes back");
    assert!(Arc::ptr_eq(&back, &asked));
    drop(back);
    assert_eq!(Arc::strong_count(&asked), 1, "the lane has it no more");
}

#[test]
fn mirostat_keeps_its_state_when_a_step_fails() {
    const TOKENS: usize = 8;
    let mut scheduler = Scheduler::new(Capacity { step_rows: 32, ..capacity(1, 100) });
    let mut lane = lane();
    let mirostat = Some(Mirostat { version: 2, tau: 3.0, eta: 0.5 });
    let chain = Chain { samplers: heapless::Vec::new(), mirostat, ..Chain::default() };
    let advanced =
        Some(Arc::new(AdvancedSampling { chain: Some(chain), ..AdvancedSampling::default() }));
    let prompt = [65, 66, 67].into();
    let new =
        NewSequence { advanced, ..NewSequence::new(prompt, TOKENS as u32, Sampling::default()) };
    scheduler.admit(vec![new], |_, _| ()).unwrap();
    let mut batch = Batch::default();
    let mut states = Vec::new();
    for step in 0..100 {
        batch.clear();
        if !scheduler.schedule(&mut batch) {
            break;
        }
        if step == 3 {
            lane.backend().fail_next(StepError::Failed(-1));
        }
        lane.step(&mut batch);
        assert_eq!(batch.step_failed, step == 3);
        states.extend(batch.samples.iter().map(|sample| sample.mu));
        scheduler.complete(&mut batch, |_| ());
    }
    // The fake model never surprises, so each token moves it from 6 by 0.5 * (3 - 0).
    let expected: Vec<f32> = (1..=TOKENS).map(|n| 6.0 + 1.5 * n as f32).collect();
    assert_eq!(states.len(), TOKENS);
    for (state, expected) in states.iter().zip(&expected) {
        assert!((state - expected).abs() < 1e-3, "{states:?}");
    }
}
