//! Servers behind a router, in made-up time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use corelane::limits::{QUEUE_SEQUENCES, QUEUE_TOKENS};
use corelane::ring::message::{Batch, Sample};
use corelane::scheduler::{Capacity, Event, NewSequence, Pages, Scheduler, SequenceId};
use corelane::types::{ItlTarget, KeyId, Logits, Sampling, TokenId};

use crate::step_us;

/// Requests that a server runs at once.
pub const SLOTS: usize = 8;
/// Rows of a step.
pub const STEP_ROWS: usize = 256;
/// Tokens of the longest request. The longest of the trace has 4,169.
const SEQUENCE_TOKENS: u32 = 4_608;

/// API keys of equal weight. The first one sends half of all requests.
pub const KEYS: u16 = 4;

/// SGLang's gateway follows a prefix if it is this part of the prompt.
const CACHE_THRESHOLD: f64 = 0.3;
/// It balances instead if the numbers of requests of two servers differ by more than this factor,
/// and by more than the router's number.
const BALANCE_REL: f64 = 1.5;

/// A request.
#[derive(Clone, Copy)]
pub struct Request {
    pub at_us: u64,
    pub prompt_tokens: usize,
    pub output_tokens: u32,
    /// The place of its API key.
    pub key: u16,
    /// The text that three quarters of its prompt are the beginning of.
    pub text: Option<usize>,
}

impl Request {
    fn shared_tokens(&self) -> usize {
        if self.text.is_some() { self.prompt_tokens * 3 / 4 } else { 0 }
    }

    /// The tokens of the prompt. `number` tells it from the others.
    fn prompt(&self, number: usize) -> Vec<TokenId> {
        let shared = self.shared_tokens();
        let text = self.text.unwrap_or_default() as TokenId;
        let token = |at| if at < shared { -1 - text } else { number as TokenId };
        (0..self.prompt_tokens).map(token).collect()
    }
}

/// How a server is chosen for a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Router {
    RoundRobin,
    LeastLoad,
    /// Balances at this difference between the numbers of requests of two servers.
    CacheAware(usize),
}

impl Router {
    pub const ALL: [Self; 4] =
        [Self::RoundRobin, Self::LeastLoad, Self::CacheAware(64), Self::CacheAware(SLOTS)];

    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round robin",
            Self::LeastLoad => "least load",
            Self::CacheAware(64..) => "cache aware",
            Self::CacheAware(_) => "cache aware, balanced",
        }
    }
}

/// The results of a run.
pub struct Run {
    /// The time to the first token of each request, in seconds; infinite for a refused one.
    pub ttft_s: Vec<f64>,
    /// The part of the prompt tokens that was in the KV caches.
    pub cached: f64,
}

/// Servers and their router.
pub struct Fleet {
    router: Router,
    servers: Vec<Server>,
    next: usize,
}

struct Server {
    scheduler: Scheduler,
    batch: Box<Batch>,
    /// The time that the running step takes, in microseconds; `None` while the server is idle.
    running_us: Option<u32>,
    /// The number of the request of each sequence.
    requests: HashMap<SequenceId, usize>,
    /// Tokens of the longest prompt that it got of each text.
    texts: HashMap<usize, usize>,
    /// Tokens of all prompts that it got, without those that it had got before.
    known_tokens: usize,
}

impl Fleet {
    pub fn new(servers: usize, router: Router) -> Self {
        let servers = (0..servers).map(|_| Server::new()).collect();
        Self { router, servers, next: 0 }
    }

    /// Runs all requests, which are in order of time, to their ends.
    pub fn run(mut self, requests: Vec<Request>) -> Run {
        let (mut first_us, mut refused) = (vec![None; requests.len()], 0);
        let mut steps: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new(); // (end, server)
        let mut arrivals = requests.iter().enumerate().peekable();
        loop {
            let step = steps.peek().map(|Reverse((end, _))| *end);
            let arrives = arrivals.next_if(|(_, new)| step.is_none_or(|end| new.at_us <= end));
            let (now, server) = if let Some((number, request)) = arrives {
                let server = self.choose(request);
                refused += usize::from(!self.servers[server].take(number, request));
                (request.at_us, server)
            } else if let Some(Reverse((end, server))) = steps.pop() {
                self.servers[server].end_step(|number| {
                    first_us[number].get_or_insert(end);
                });
                (end, server)
            } else {
                break;
            };
            if let Some(took) = self.servers[server].begin_step() {
                steps.push(Reverse((now + took, server)));
            }
        }
        let unanswered = first_us.iter().filter(|first| first.is_none()).count();
        assert_eq!(unanswered, refused, "every other request has been answered");
        let ttft = |(request, first): (&Request, Option<u64>)| match first {
            Some(first) => (first - request.at_us) as f64 / 1e6,
            None => f64::INFINITY,
        };
        let tokens: usize = requests.iter().map(|request| request.prompt_tokens).sum();
        let cached: u64 =
            self.servers.iter().map(|server| server.scheduler.tally().cached_tokens).sum();
        Run {
            ttft_s: requests.iter().zip(first_us).map(ttft).collect(),
            cached: cached as f64 / tokens as f64,
        }
    }

    fn choose(&mut self, request: &Request) -> usize {
        match self.router {
            Router::RoundRobin => {
                self.next = (self.next + 1) % self.servers.len();
                self.next
            }
            Router::LeastLoad => self.first_by(|server| server.requests.len()),
            Router::CacheAware(differ) => self.choose_by_prefix(request, differ),
        }
    }

    fn choose_by_prefix(&self, request: &Request, differ: usize) -> usize {
        let loads = || self.servers.iter().map(|server| server.requests.len());
        let (least, most) = (loads().min().unwrap_or(0), loads().max().unwrap_or(0));
        if most - least > differ && most as f64 > least as f64 * BALANCE_REL {
            return self.first_by(|server| server.requests.len());
        }
        let best = self.first_by(|server| Reverse(server.prefix_tokens(request)));
        let prefix = self.servers[best].prefix_tokens(request);
        if prefix as f64 > CACHE_THRESHOLD * request.prompt_tokens as f64 {
            best
        } else {
            self.first_by(|server| server.known_tokens)
        }
    }

    /// The first server with the smallest `key`.
    fn first_by<K: Ord>(&self, key: impl Fn(&Server) -> K) -> usize {
        let all = 0..self.servers.len();
        all.min_by_key(|index| key(&self.servers[*index])).expect("there is a server")
    }
}

impl Server {
    fn new() -> Self {
        let capacity = Capacity {
            slots: SLOTS,
            step_rows: STEP_ROWS,
            itl_target: ItlTarget::Chosen,
            context_tokens: SLOTS as u32 * SEQUENCE_TOKENS,
            sequence_tokens: SEQUENCE_TOKENS,
            queue_sequences: QUEUE_SEQUENCES,
            queue_tokens: QUEUE_TOKENS,
            reuse: true,
            states: None,
            logits: 0,
            pages: Pages::default(),
            files: None,
            own_cells: false,
            looks_up: true,
            drafts: false,
            weights: vec![1.0; usize::from(KEYS)],
        };
        Self {
            scheduler: Scheduler::new(capacity),
            batch: Box::default(),
            running_us: None,
            requests: HashMap::new(),
            texts: HashMap::new(),
            known_tokens: 0,
        }
    }

    /// The tokens of the prompt that the router knows it to have.
    fn prefix_tokens(&self, request: &Request) -> usize {
        let known = request.text.and_then(|text| self.texts.get(&text));
        known.map_or(0, |tokens| request.shared_tokens().min(*tokens))
    }

    /// Takes a request. Returns false if the queue is full.
    fn take(&mut self, number: usize, request: &Request) -> bool {
        self.known_tokens += request.prompt_tokens - self.prefix_tokens(request);
        if let Some(text) = request.text {
            let known = self.texts.entry(text).or_default();
            *known = request.shared_tokens().max(*known);
        }
        let prompt = request.prompt(number).into();
        let new = NewSequence {
            key: KeyId::at(request.key),
            ..NewSequence::new(prompt, request.output_tokens, Sampling::greedy())
        };
        let requests = &mut self.requests;
        let admitted = self.scheduler.admit(vec![new], |_, id| {
            requests.insert(id, number);
        });
        admitted.is_ok()
    }

    /// Begins the next step, if none runs and there is one. Returns the time that it takes, in
    /// microseconds.
    fn begin_step(&mut self) -> Option<u64> {
        if self.running_us.is_some() || !self.scheduler.schedule(&mut self.batch) {
            return None;
        }
        let Batch { decode_rows, prefill_rows, .. } = *self.batch;
        // A step that only clears slots does not run the model.
        let is_empty = self.batch.rows.is_empty();
        self.running_us = Some(if is_empty { 0 } else { step_us(decode_rows, prefill_rows) });
        self.running_us.map(u64::from)
    }

    /// Ends the running step. Calls `generated` with the number of each request that got a token.
    fn end_step(&mut self, mut generated: impl FnMut(usize)) {
        let batch = &mut *self.batch;
        for row in batch.rows.iter().filter(|row| row.logits == Logits::Sample) {
            let sample = Sample::plain(row, 0);
            batch.samples.push(sample).expect("one for each slot");
        }
        batch.decode_us = self.running_us.take().expect("a step runs");
        let requests = &mut self.requests;
        self.scheduler.complete(batch, |event| {
            let Event::Token { id, is_last, .. } = event else { panic!("{event:?}") };
            generated(requests[&id]);
            if is_last {
                requests.remove(&id);
            }
        });
        batch.clear();
    }
}
