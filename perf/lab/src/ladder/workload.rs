//! The work of every rung: the same prompts. Rungs 0 to 3 also get the same batches, recorded from
//! the real scheduler.

use super::requests::Requests;
use corelane::clock::Micros;
use corelane::limits::{SEQUENCES_MAX, STEPS_IN_FLIGHT};
use corelane::ring::message::{Batch, Sample};
use corelane::scheduler::{Capacity, Event, NewSequence, Scheduler};
use corelane::types::{Guessing, Logits, Sampling, TokenId};

/// Requests of equal length, with a fixed number in flight.
#[derive(Clone, Debug)]
pub struct Workload {
    /// One prompt per request.
    pub prompts: Vec<Vec<TokenId>>,
    /// Tokens that each request generates.
    pub gen_tokens: u32,
    /// Number of requests in flight.
    pub concurrency: usize,
    /// How the requests guess, from rung 4 on. The batches of rungs 0 to 3 are recorded before anybody
    /// knows which guesses come true.
    pub guessing: Guessing,
    /// The scheduler's limits.
    pub capacity: Capacity,
}

/// A stop string that no text contains. From rung 5 on, the server still searches for it.
pub const STOP: &str = "\u{1}never\u{1}";

/// Most tokens of a warm-up prompt.
const WARM_UP_TOKENS: usize = 64;

impl Workload {
    /// Greedy sampling without an end of generation, so that the number of tokens is known.
    pub fn sampling() -> Sampling {
        Sampling { ignore_eos: true, ..Sampling::greedy() }
    }

    /// Number of tokens that the whole workload generates.
    pub fn tokens(&self) -> u64 {
        self.prompts.len() as u64 * u64::from(self.gen_tokens)
    }

    /// The scheduler's input for a request.
    pub fn sequence(&self, request: usize) -> NewSequence {
        let prompt = self.prompts[request].as_slice().into();
        let guessing = self.guessing;
        NewSequence { guessing, ..NewSequence::new(prompt, self.gen_tokens, Self::sampling()) }
    }

    /// A short workload for warming up: the first requests, one for each that runs at once.
    ///
    /// Prompts are cut to 64 tokens, because long ones would take half of the ladder's time.
    pub fn warm_up(&self) -> Workload {
        let first = self.prompts.iter().take(self.concurrency);
        let short = |prompt: &Vec<TokenId>| prompt[..prompt.len().min(WARM_UP_TOKENS)].to_vec();
        Workload { prompts: first.map(short).collect(), ..self.clone() }
    }

    /// Records the batches that the scheduler plans for this workload.
    ///
    /// A new request starts as soon as one ends, and each step is planned while the previous one
    /// runs.
    pub fn record(&self, scheduler: &mut Scheduler) -> Vec<Box<Batch>> {
        let workload = Workload { guessing: Guessing::default(), ..self.clone() };
        let mut queue = Queue::new(&workload, |_, _| ());
        let mut batches: Vec<Box<Batch>> = Vec::new();
        let mut completed = 0;
        queue.fill(scheduler);
        while !queue.is_done() {
            while batches.len() < completed + STEPS_IN_FLIGHT {
                let mut batch = Box::<Batch>::default();
                if !scheduler.schedule(&mut batch) {
                    break;
                }
                batches.push(batch);
            }
            let mut answered = answer(&batches[completed]);
            completed += 1;
            scheduler.complete(&mut answered, |event| queue.on_event(event, Micros(0)));
            queue.fill(scheduler);
        }
        batches
    }
}

/// The answer of a model that always samples the same token.
fn answer(batch: &Batch) -> Batch {
    let mut answered = Batch::default();
    for row in batch.rows.iter().filter(|row| row.logits == Logits::Sample) {
        let sample = Sample::plain(row, 0);
        answered.samples.push(sample).expect("one sample for each slot");
    }
    answered
}

/// Runs the requests of a workload in a closed loop: when one ends, the next begins.
///
/// Calls `on_token` with the index of a request and its next token.
pub struct Queue<'a, F> {
    workload: &'a Workload,
    next: usize,
    running: usize,
    requests: Vec<usize>, // [SEQUENCES_MAX], by SequenceId::index
    on_token: F,
}

impl<'a, F: FnMut(usize, TokenId)> Queue<'a, F> {
    /// Creates a queue in which no request has started.
    pub fn new(workload: &'a Workload, on_token: F) -> Self {
        Self { workload, next: 0, running: 0, requests: vec![0; SEQUENCES_MAX], on_token }
    }
}

impl<F: FnMut(usize, TokenId)> Requests for Queue<'_, F> {
    fn fill(&mut self, scheduler: &mut Scheduler) {
        while self.running < self.workload.concurrency && self.next < self.workload.prompts.len() {
            let (request, requests) = (self.next, &mut self.requests);
            let new = vec![self.workload.sequence(request)];
            let admitted = scheduler.admit(new, |_, id| requests[id.index()] = request);
            admitted.expect("fewer requests run than the queue holds");
            self.next += 1;
            self.running += 1;
        }
    }

    fn on_event(&mut self, event: Event, _: Micros) {
        match event {
            Event::Token { id, token, is_last, .. } => {
                (self.on_token)(self.requests[id.index()], token);
                self.running -= usize::from(is_last);
            }
            Event::Guessed { .. } => {}
            Event::Score { .. } => unreachable!("the workload asks for none"),
            Event::Finished(..) => self.running -= 1,
        }
    }

    fn is_done(&self) -> bool {
        self.running == 0 && self.next == self.workload.prompts.len()
    }
}

/// The tokens that each request generated, for comparing the rungs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts(pub Vec<Vec<TokenId>>);

impl Texts {
    /// Creates empty lists with capacity for all tokens of a workload.
    pub fn new(workload: &Workload) -> Self {
        let room = || Vec::with_capacity(workload.gen_tokens as usize);
        Self(workload.prompts.iter().map(|_| room()).collect())
    }

    /// The fraction of requests that begin with the same token in both.
    ///
    /// The same batches give the same tokens. Different batches of the same prompts round
    /// differently, which seldom changes a first token.
    pub fn agreement(&self, other: &Texts) -> f64 {
        let pairs = self.0.iter().zip(&other.0);
        let equal = pairs.filter(|(a, b)| !a.is_empty() && a.first() == b.first()).count();
        equal as f64 / self.0.len() as f64
    }

    /// Number of tokens of all requests.
    pub fn tokens(&self) -> u64 {
        self.0.iter().map(|text| text.len() as u64).sum()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use corelane::scheduler::Pages;

    use super::*;

    pub fn workload(requests: usize, concurrency: usize, prompt: usize) -> Workload {
        Workload {
            prompts: vec![vec![1; prompt]; requests],
            gen_tokens: 5,
            concurrency,
            guessing: Guessing::default(),
            capacity: Capacity {
                slots: concurrency,
                step_rows: 64,
                itl_target: corelane::types::ItlTarget::Chosen,
                context_tokens: 1024,
                sequence_tokens: 256,
                queue_sequences: 16,
                queue_tokens: 1024,
                reuse: false,
                states: None,
                logits: 0,
                pages: Pages::default(),
                files: None,
                own_cells: false,
                looks_up: true,
                drafts: false,
                weights: vec![1.0],
            },
        }
    }

    #[test]
    fn requests_of_equal_length_run_in_waves() {
        let workload = workload(8, 4, 3);
        let batches = workload.record(&mut Scheduler::new(workload.capacity.clone()));
        // Two waves, each with one step of prompts and four steps of one row per sequence.
        assert_eq!(batches.len(), 10);
        let rows: Vec<usize> = batches.iter().map(|batch| batch.rows.len()).collect();
        assert_eq!(rows, [12, 4, 4, 4, 4, 12, 4, 4, 4, 4]);
    }

    #[test]
    fn a_warm_up_has_a_request_for_each_that_runs_at_once_and_is_short() {
        let lengths = |requests, prompt| {
            let warm_up = workload(requests, 4, prompt).warm_up();
            warm_up.prompts.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(lengths(8, 9), [9; 4]);
        assert_eq!(lengths(3, 200), [WARM_UP_TOKENS; 3]);
    }

    #[test]
    fn every_request_is_recorded_whole() {
        let workload = workload(7, 3, 40);
        let batches = workload.record(&mut Scheduler::new(workload.capacity.clone()));
        let rows: usize = batches.iter().map(|batch| batch.rows.len()).sum();
        let samples =
            batches.iter().flat_map(|batch| &batch.rows).filter(|row| row.logits == Logits::Sample);
        assert_eq!(samples.count() as u64, workload.tokens());
        assert_eq!(rows, 7 * (40 + 4), "each token but the last is a row");
    }
}
