//! Continuous batching, in a sentence: a request joins the next step, and leaves when it ends.

use std::sync::Arc;

use corelane::decode::DecodeLane;
use corelane::model::fake::{END, FakeModel, FakeOptions, continuation};
use corelane::ring::message::Batch;
use corelane::scheduler::{Capacity, Event, NewSequence, Pages, Scheduler};
use corelane::types::{ItlTarget, Sampling, TokenId};

/// A fake model that never ends a text, for steps of at most 32 rows.
fn fake(slots: usize, sequence_tokens: usize) -> FakeModel {
    FakeModel::new(slots, sequence_tokens, 32, FakeOptions::default())
}

/// Defect 1 of the old server: a batch ran to its end, so an arrival waited for the slowest.
#[test]
fn a_request_joins_the_next_step_and_leaves_when_it_ends() {
    let capacity = Capacity {
        slots: 4,
        step_rows: 32,
        itl_target: ItlTarget::Chosen,
        context_tokens: 1000,
        sequence_tokens: 500,
        queue_sequences: 10,
        queue_tokens: 1000,
        reuse: true,
        states: None,
        logits: 0,
        pages: Pages::default(),
        files: None,
        own_cells: false,
        looks_up: true,
        drafts: false,
        weights: vec![1.0],
    };
    let mut scheduler = Scheduler::new(capacity);
    let mut lane = DecodeLane::new(fake(4, 500), 4, 500, Box::new([END]), Arc::default());
    let sequence = |prompt: &str, max_tokens| {
        let prompt = prompt.bytes().map(TokenId::from).collect();
        NewSequence::new(prompt, max_tokens, Sampling::greedy())
    };
    let mut long = None;
    scheduler.admit(vec![sequence("long", 400)], |_, id| long = Some(id)).unwrap();
    let mut batch = Batch::default();
    for _ in 0..10 {
        batch.clear();
        assert!(scheduler.schedule(&mut batch));
        lane.step(&mut batch);
        scheduler.complete(&mut batch, |_| ());
    }
    let mut short = None;
    scheduler.admit(vec![sequence("hi", 3)], |_, id| short = Some(id)).unwrap();
    let mut tokens = Vec::new();
    for step in 0..3 {
        batch.clear();
        assert!(scheduler.schedule(&mut batch));
        assert_eq!(batch.starts.len(), usize::from(step == 0), "it joins the very next step");
        lane.step(&mut batch);
        scheduler.complete(&mut batch, |event| match event {
            Event::Token { id, token, is_last, .. } if Some(id) == short => {
                tokens.push(token);
                assert_eq!(is_last, step == 2);
            }
            Event::Token { .. } => {}
            Event::Score { .. } | Event::Guessed { .. } => unreachable!("none was asked for"),
            Event::Finished(id, finish) => panic!("{id:?} ended with {finish:?}"),
        });
    }
    assert_eq!(tokens, continuation(&"hi".bytes().map(TokenId::from).collect::<Vec<_>>(), 3, 0));
    assert_eq!(scheduler.running_count(), 1, "the long one runs on, the short one has left");
}
