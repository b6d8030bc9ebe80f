//! Rungs 0 to 2: what runs on the decode lane, without a lane.

use std::time::{Duration, Instant};

use crate::decode::DecodeLane;
use crate::decode::calls::Calls;
use crate::decode::sampler::argmax;
use crate::model::{Backend, DecodeRow, StepError};
use crate::ring::message::{Batch, Input, Row, Sample, Start};
use crate::types::{Position, SlotId, TokenId};

use super::measure::{Measured, Phase, Watch};
use super::workload::{Texts, Workload};

/// A step of rung 0.
struct BareStep {
    clears: Vec<SlotId>,
    starts: Vec<Start>,
    calls: [BareCall; Calls::MOST],
}

/// Rows for the model, and which of them carry.
struct BareCall {
    rows: Vec<DecodeRow>,
    carries: Vec<bool>,
}

fn bare_steps(batches: &[Box<Batch>], ragged: bool) -> Vec<BareStep> {
    let step = |batch: &Batch| {
        let calls = Calls::of(&batch.rows, ragged);
        BareStep {
            clears: batch.clears.to_vec(),
            starts: batch.starts.to_vec(),
            calls: std::array::from_fn(|call| {
                let rows = || calls.rows(&batch.rows, call);
                BareCall {
                    carries: rows().map(|row| row.input == Input::Carry).collect(),
                    rows: rows().map(|row| row_for_model(row, 0)).collect(),
                }
            }),
        }
    };
    batches.iter().map(|batch| step(batch)).collect()
}

fn row_for_model(row: &Row, carry: TokenId) -> DecodeRow {
    let token = match row.input {
        Input::Token(token) => token,
        Input::Carry => carry,
    };
    DecodeRow { token, position: row.position, slot: row.owner.slot, sample: row.sample }
}

/// Rung 0: `llama_decode` in a bare loop over the recorded batches, and the
/// largest logit. Rows are written into llama.cpp's own batch on this rung, too: it
/// can be called in no other way.
pub fn backend(
    model: &mut impl Backend,
    workload: &Workload,
    batches: &[Box<Batch>],
    end_tokens: &[TokenId],
) -> Result<(Texts, Measured), String> {
    let mut steps = bare_steps(batches, model.runs_ragged());
    let mut texts = Texts::new(workload);
    let mut last = vec![0; workload.capacity.slots];
    let mut request_of = Requests::new(workload);
    let (mut prefill, mut decode) = (Phase::default(), Phase::default());
    let mut computing = Duration::ZERO;
    let watch = Watch::start();
    for step in &mut steps {
        let began = Instant::now();
        for slot in &step.clears {
            model.truncate(*slot, Position(0));
        }
        for start in &step.starts {
            model.start(start.owner.slot, start.source, start.keep);
            request_of.start(start.owner.slot);
        }
        for call in step.calls.iter_mut().filter(|call| !call.rows.is_empty()) {
            for (row, carries) in call.rows.iter_mut().zip(&call.carries) {
                if *carries {
                    row.token = last[row.slot.index()];
                }
            }
            let called = Instant::now();
            model.decode(&call.rows).map_err(failed)?;
            computing += called.elapsed();
            for (index, row) in call.rows.iter().enumerate().filter(|(_, row)| row.sample) {
                let token = largest(model.logits(index), end_tokens);
                last[row.slot.index()] = token;
                texts.0[request_of.get(row.slot)].push(token);
            }
        }
        let any = |carries| step.calls.iter().any(|call| call.carries.contains(&carries));
        let phase = match (any(true), any(false)) {
            (false, _) => &mut prefill,
            (true, false) => &mut decode,
            (true, true) => continue, // of both, and so of neither
        };
        phase.steps += 1;
        phase.rows += step.calls.iter().map(|call| call.rows.len() as u64).sum::<u64>();
        phase.time += began.elapsed();
    }
    let measured = Measured { prefill, decode, model: computing, ..watch.stop() };
    Ok((texts, measured))
}

/// Rung 1: batches in, batches out.
pub fn executor(
    model: &mut impl Backend,
    workload: &Workload,
    mut batches: Vec<Box<Batch>>,
    end_tokens: &[TokenId],
) -> Result<(Texts, Measured), String> {
    let mut last = vec![0; workload.capacity.slots];
    let mut rows = Vec::with_capacity(crate::limits::STEP_ROWS_MAX);
    let mut computing = Duration::ZERO;
    let watch = Watch::start();
    for batch in &mut batches {
        for slot in &batch.clears {
            model.truncate(*slot, Position(0));
        }
        for start in &batch.starts {
            model.start(start.owner.slot, start.source, start.keep);
        }
        let calls = Calls::of(&batch.rows, model.runs_ragged());
        for call in 0..Calls::MOST {
            let row = |row: &Row| row_for_model(row, last[row.owner.slot.index()]);
            rows.clear();
            rows.extend(calls.rows(&batch.rows, call).map(row));
            if rows.is_empty() {
                continue;
            }
            let called = Instant::now();
            model.decode(&rows).map_err(failed)?;
            computing += called.elapsed();
            let rows = calls.rows(&batch.rows, call).enumerate();
            for (index, row) in rows.filter(|(_, row)| row.sample) {
                let token = largest(model.logits(index), end_tokens);
                let owner = row.owner;
                last[owner.slot.index()] = token;
                let sample =
                    Sample { owner, token, end: false, broken: false, logprobs: None, mu: 0.0 };
                batch.samples.push(sample).expect("one sample for each slot");
            }
        }
    }
    let measured = Measured { model: computing, ..watch.stop() };
    Ok((texts_of(workload, &batches), measured))
}

/// Rung 2: the decode lane's own step, with its checks and its sampler.
pub fn sampler<B: Backend>(
    lane: &mut DecodeLane<B>,
    workload: &Workload,
    mut batches: Vec<Box<Batch>>,
) -> Result<(Texts, Measured), String> {
    let watch = Watch::start();
    for batch in &mut batches {
        lane.step(batch);
    }
    let measured = watch.stop();
    let computing = batches.iter().map(|batch| Duration::from_micros(batch.decode_us.into())).sum();
    let measured = Measured { model: computing, ..measured };
    Ok((texts_of(workload, &batches), measured))
}

/// The token with the largest logit, of those that do not end the text.
fn largest(logits: &mut [f32], end_tokens: &[TokenId]) -> TokenId {
    for token in end_tokens {
        logits[*token as usize] = f32::NEG_INFINITY; // a token of the vocabulary
    }
    argmax(logits) as TokenId // below n_vocab, which is an i32
}

/// The tokens that answered batches brought.
pub fn texts_of(workload: &Workload, batches: &[Box<Batch>]) -> Texts {
    let mut texts = Texts::new(workload);
    let mut request_of = Requests::new(workload);
    for batch in batches {
        for start in &batch.starts {
            request_of.start(start.owner.slot);
        }
        for sample in &batch.samples {
            texts.0[request_of.get(sample.owner.slot)].push(sample.token);
        }
    }
    texts
}

/// Which request holds a slot: they start in order.
struct Requests {
    of_slot: Vec<usize>,
    next: usize,
}

impl Requests {
    fn new(workload: &Workload) -> Self {
        Self { of_slot: vec![0; workload.capacity.slots], next: 0 }
    }

    fn start(&mut self, slot: SlotId) {
        self.of_slot[slot.index()] = self.next;
        self.next += 1;
    }

    fn get(&self, slot: SlotId) -> usize {
        self.of_slot[slot.index()]
    }
}

fn failed(error: StepError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::workload::tests::workload;
    use super::*;
    use crate::model::fake::{FakeModel, FakeOptions};
    use crate::scheduler::Scheduler;

    /// Prompts that begin while others decode: the decode lane calls the model twice for
    /// such a step, and rungs 0 and 1 must do the same.
    #[test]
    fn every_rung_calls_the_model_as_often() {
        let workload = workload(12, 4, 40);
        let record = || workload.record(&mut Scheduler::new(workload.capacity.clone()));
        let model = || FakeModel::new(4, 1024, 64, FakeOptions::default());

        let mut bare = model();
        backend(&mut bare, &workload, &record(), &[]).unwrap();
        let mut in_and_out = model();
        executor(&mut in_and_out, &workload, record(), &[]).unwrap();
        let mut lane = DecodeLane::new(model(), 4, 256, Box::default(), Arc::default());
        sampler(&mut lane, &workload, record()).unwrap();

        let calls = lane.backend().calls();
        assert!(calls > record().len() as u64, "no step has both, so this would show nothing");
        assert_eq!((bare.calls(), in_and_out.calls()), (calls, calls));
    }
}
