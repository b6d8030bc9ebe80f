//! Rungs 0 to 2: the work of the decode lane, run on the calling thread.

use std::time::{Duration, Instant};

use corelane::decode::DecodeLane;
use corelane::decode::calls::Calls;
use corelane::decode::sampler::argmax;
use corelane::model::{Backend, DecodeRow, StepError};
use corelane::ring::message::{Batch, Input, Row, Sample, Start};
use corelane::types::{Logits, Position, SlotId, TokenId};

use super::measure::{Measured, Phase, Watch};
use super::workload::{Texts, Workload};

/// A step of rung 0.
struct BareStep {
    clears: Vec<SlotId>,
    starts: Vec<Start>,
    calls: [BareCall; Calls::MOST],
}

/// The rows of one model call, and a flag for each row that is a carry. A carry is a row whose
/// token is the one that its sequence sampled in the step before.
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
    DecodeRow { token, position: row.position, slot: row.owner.slot, logits: row.logits }
}

/// Rung 0: calls `llama_decode` in a bare loop over the recorded batches and takes the largest
/// logit.
///
/// Rows are written into llama.cpp's own batch on this rung too, because `llama_decode` requires
/// it.
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
            model.start(start.owner.slot, start.source, start.keep, None); // it saves no states
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
            for (index, row) in
                call.rows.iter().enumerate().filter(|(_, row)| row.logits == Logits::Sample)
            {
                let token = largest(model.logits(index), end_tokens);
                last[row.slot.index()] = token;
                texts.0[request_of.get(row.slot)].push(token);
            }
        }
        let any = |carries| step.calls.iter().any(|call| call.carries.contains(&carries));
        let phase = match (any(true), any(false)) {
            (false, _) => &mut prefill,
            (true, false) => &mut decode,
            (true, true) => continue, // a mixed step counts as neither
        };
        phase.steps += 1;
        phase.rows += step.calls.iter().map(|call| call.rows.len() as u64).sum::<u64>();
        phase.time += began.elapsed();
    }
    let measured = Measured { prefill, decode, model: computing, ..watch.stop() };
    Ok((texts, measured))
}

/// Rung 1: takes batches, and writes the samples into them.
pub fn executor(
    model: &mut impl Backend,
    workload: &Workload,
    mut batches: Vec<Box<Batch>>,
    end_tokens: &[TokenId],
) -> Result<(Texts, Measured), String> {
    let mut last = vec![0; workload.capacity.slots];
    let mut rows = Vec::with_capacity(corelane::limits::STEP_ROWS_MAX);
    let mut computing = Duration::ZERO;
    let watch = Watch::start();
    for batch in &mut batches {
        for slot in &batch.clears {
            model.truncate(*slot, Position(0));
        }
        for start in &batch.starts {
            model.start(start.owner.slot, start.source, start.keep, None); // it saves no states
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
            for (index, row) in rows.filter(|(_, row)| row.logits == Logits::Sample) {
                let token = largest(model.logits(index), end_tokens);
                last[row.owner.slot.index()] = token;
                let sample = Sample::plain(row, token);
                batch.samples.push(sample).expect("one sample for each slot");
            }
        }
    }
    let measured = Measured { model: computing, ..watch.stop() };
    Ok((texts_of(workload, &batches), measured))
}

/// Rung 2: the decode lane's real step, with its checks and its sampler.
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

/// The token with the largest logit, except end-of-generation tokens.
fn largest(logits: &mut [f32], end_tokens: &[TokenId]) -> TokenId {
    for token in end_tokens {
        logits[*token as usize] = f32::NEG_INFINITY; // end tokens are ids of the vocabulary
    }
    argmax(logits) as TokenId // below n_vocab, which is an i32
}

/// The sampled tokens in completed batches, by request.
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

/// The request in each slot. Requests start in order.
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

    use super::*;
    use crate::ladder::workload::tests::workload;
    use corelane::model::fake::{FakeModel, FakeOptions};
    use corelane::scheduler::Scheduler;

    /// Some prompts begin while other sequences decode. The decode lane calls the model twice in
    /// such a step, and rungs 0 and 1 must do so too.
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
