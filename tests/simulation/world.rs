//! The whole engine on one thread, with made-up time: JSON bodies go in, the bytes of replies come
//! out, and each is compared with its [`Reference`].
//!
//! prepare -> engine -> scheduler -> ring -> decode lane (fake model) -> ring -> text -> reply
//!
//! Everything that happens is an event at a moment: a request arrives, a client reads or leaves, a
//! step ends, the engine asked to be called. A seed decides all of it, so a seed is one run.

mod checks;
mod connections;
mod disk;
mod faults;
mod kept;
mod keys;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use corelane::api::reply::Restored;
use corelane::api::route;
use corelane::api::stored::Stored;
use corelane::chat::prompt::ChatModel;
use corelane::clock::Micros;
use corelane::constraint::Compiler;
use corelane::decode::{DecodeLane, mask_lane};
use corelane::engine::Engine;
use corelane::engine::budget::Budget;
use corelane::engine::exchange::SharedExchange;
use corelane::engine::job::Job;
use corelane::http::head::Method;
use corelane::limits::{GUESSES_MAX, REQUEST_MEMORY_BYTES, RING_CAPACITY};
use corelane::metrics::Metrics;
use corelane::model::StepError;
use corelane::model::fake::{
    END, FakeModel, FakeOptions, STATE_BYTES, continuation_with, page_bytes,
};
use corelane::model::vocab::Vocab;
use corelane::prepare::{self, Envelope, Prepared, ServedModel, Step};
use corelane::ring::bell::SocketBell;
use corelane::ring::message::{
    Batch, Failed, FailureReason, MaskTask, Sample, Score, Start, TokenLogprobs,
};
use corelane::ring::{self, LaneLink};
use corelane::scheduler::{Capacity, FileSizes, Pages, SequenceId, States};
use corelane::server::places::{Place, Places};
use corelane::server::responses::Responses;
use corelane::types::{CacheScope, Guessing, ItlTarget, KeyId, Owner, PageId, SlotId, TokenId};

use crate::drafter::drafter;
use crate::kept::kept;
use crate::reference::Reference;
use crate::request::{Ask, Kept, Requests, TEMPLATE};
use crate::support::{Random, mask_lane as new_mask_lane, served_model};

use checks::{Answers, without_late_tokens};
use connections::Link;
use disk::{Disk, Files};
pub use faults::Fault;
use keys::Tenants;

/// A step that takes longer is given up.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// More events than any seed needs.
const EVENTS_MAX: usize = 200_000;

/// Bytes of texts in which characters have one to four bytes.
const PHRASES: &[&[u8]] = &[b"a", b"be", "é".as_bytes(), "🦀".as_bytes(), "…".as_bytes(), b"stop"];

/// Counts of a run, by name.
pub type Tally = BTreeMap<&'static str, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Occurrence {
    /// A client sends a request.
    Arrive,
    /// A connection's task reads it.
    Read(usize),
    /// The body of a request has been prepared.
    Submit(usize),
    /// A connection's task runs.
    Poll(usize),
    /// A key is removed, and another one takes its place.
    ChangeKey,
    /// A client closes its connection.
    Leave(usize),
    /// The decode lane has run its step.
    StepEnds,
    /// The mask lane has computed its mask.
    MaskEnds,
    /// The disk lane has done its job.
    FileEnds,
    /// The engine's task runs.
    Pump,
}

/// A client with a request.
struct Client {
    ask: Ask,
    /// Its connection.
    link: usize,
    tenant: KeyId,
    state: State,
    woken: Arc<Flag>,
    /// It reads late.
    stalls: bool,
    /// Bytes that it has read.
    read: usize,
    reference: Reference,
    sequences: Vec<SequenceId>,
}

enum State {
    /// Its body is being prepared.
    Preparing(Box<Job>),
    /// The engine has it.
    InProgress(SharedExchange),
    Done,
}

/// A waker that remembers that it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// See the module's description.
pub struct World {
    random: Random,
    fault: Option<Fault>,
    now: Micros,
    events: BinaryHeap<Reverse<(Micros, u64, Occurrence)>>,
    model: ServedModel,
    options: FakeOptions,
    capacity: Capacity,
    budget: Rc<Budget>,
    metrics: Arc<Metrics>,
    requests: Requests,
    clients: Vec<Client>,
    places: Rc<Places>,
    /// The connections. `None` for those that were closed.
    links: Vec<Option<Link>>,
    responses: Responses,
    /// The most bytes of a key's responses.
    response_bytes: usize,
    /// All that were kept, oldest first.
    kept: Vec<Kept>,
    tenants: Tenants,
    /// The client and the choice of each sequence.
    owners: HashMap<SequenceId, (usize, usize)>,
    engine: Engine,
    /// The engine's task is about to run.
    pump_is_due: bool,
    /// Tasks with slots, and those that have an outcome.
    slots_asked: u64,
    slots_answered: u64,
    lane: DecodeLane<FakeModel>,
    link: LaneLink<Batch>,
    /// Steps that wait for the one that runs.
    down: VecDeque<Box<Batch>>,
    running: Option<Running>,
    compiler: Option<Compiler>,
    mask_link: LaneLink<MaskTask>,
    /// Tasks of the mask lane. It computes the first.
    masks: VecDeque<Box<MaskTask>>,
    /// The disk lane, if there is one.
    disk: Option<Disk>,
    answers: Vec<Answers>,
    /// Steps may fail or hang.
    failures: bool,
    /// The time to copy a page of the prefix store.
    page_took: Duration,
    /// Requests that are still to arrive.
    to_come: usize,
    /// The time between two arrivals, at most.
    pause_us: usize,
    /// The slots that were cleared last, for [`Fault::SlotFreedTwice`].
    cleared: Vec<SlotId>,
    wakes: usize,
    sequences_submitted: u64,
    tally: Tally,
}

/// The step that runs.
struct Running {
    batch: Box<Batch>,
    took: Duration,
    fails: Option<StepError>,
}

/// The files of a server that has ended, and the texts that its clients know.
pub struct Left {
    files: Files,
    requests: Requests,
}

impl World {
    /// A world that does as `seed` says, after an earlier one of this seed if that has left
    /// something.
    pub fn new(seed: u64, fault: Option<Fault>, left: Option<Left>) -> Self {
        let mut random = Random::new(seed);
        let slots = random.within(1, 8);
        let is_recurrent = random.one_in(3);
        let has_window = !is_recurrent && random.one_in(3);
        let has_states = is_recurrent || has_window;
        let returns = random.one_in(4);
        // Long enough that saved states and stored pages are worth it.
        let longest = if has_states || returns { 500 } else { 120 };
        let sequence_tokens = random.within(24, longest) as u32;
        let target = Duration::from_micros(random.within(100, 30_000) as u64);
        let targets = [ItlTarget::Chosen, ItlTarget::Within(target)];
        let capacity = Capacity {
            slots,
            step_rows: slots + random.within(0, 60),
            itl_target: targets[random.within(0, 1)],
            context_tokens: sequence_tokens * random.within(1, if returns { 2 } else { 6 }) as u32,
            sequence_tokens,
            queue_sequences: random.within(2, 30),
            queue_tokens: random.within(if returns { 1000 } else { 100 }, 3000),
            reuse: returns || !random.one_in(4),
            states: None,
            logits: random.within(0, 8),
            pages: Pages::default(),
            files: None,
            own_cells: !returns && random.one_in(3) && !has_window,
            looks_up: true,
            drafts: !random.one_in(3),
            weights: (0..random.within(1, if returns { 1 } else { 3 }))
                .map(|_| random.within(1, 5) as f64)
                .collect(),
        };
        let options = FakeOptions {
            end_one_in: if random.one_in(4) { 0 } else { random.within(2, 60) as u64 },
            is_recurrent,
            window: if has_window { random.within(1, 100) } else { 0 },
            rollback: random.within(0, 8),
            phrases: random.one_in(2).then_some(PHRASES),
            ..FakeOptions::default()
        };
        let (checkpoints, interval) = (random.within(0, 8), random.within(8, 100));
        let states = States { checkpoints, interval, is_recurrent };
        let has_store = returns || (!capacity.own_cells && !random.one_in(3));
        let pages = if has_store { random.within(1, 60) } else { 0 };
        let pages = Pages { count: pages, tokens: random.within(if returns { 8 } else { 1 }, 40) };
        let kept = kept(pages, states.checkpoints, capacity.logits);
        let has_files = pages.count > 0 && capacity.reuse && (returns || random.one_in(2));
        let page_bytes = page_bytes(pages.tokens) as u64;
        // Otherwise only clients save texts.
        let writes = returns || !random.one_in(4);
        let sizes = FileSizes {
            bytes_max: if writes { page_bytes * random.within(3, 400) as u64 } else { 0 },
            page_bytes,
            state_bytes: STATE_BYTES as u64,
            seed: [7; 32],
        };
        let (files, requests) = left.map(|Left { files, requests }| (files, requests)).unzip();
        let files_link = has_files.then(|| Disk::new(kept.clone(), files.unwrap_or_default()));
        let (disk, files) = files_link.unzip();
        let capacity = Capacity {
            states: has_states.then_some(states),
            pages,
            files: has_files.then_some(sizes),
            ..capacity
        };
        let guesses = (!is_recurrent || options.rollback > 0) && !random.one_in(3);
        let most = if is_recurrent { options.rollback } else { GUESSES_MAX };
        let context = capacity.context_tokens as usize;
        let drafter = drafter(&mut random, seed, options, slots, context);
        let vocab = Arc::new(Vocab::of_fake());
        let model = ServedModel {
            vocab: vocab.clone(),
            chat: Some(ChatModel::new(TEMPLATE, "", "").unwrap()),
            slots,
            context_tokens: capacity.context_tokens,
            guessing: Guessing {
                most: if guesses { random.within(1, most) as u8 } else { 0 },
                ..Guessing::default()
            },
            ..served_model(sequence_tokens)
        };
        let metrics = Arc::new(Metrics::default());
        let budget = Budget::new(REQUEST_MEMORY_BYTES, &capacity.weights);
        let (bell, _) = SocketBell::new().unwrap();
        let (front, link) = ring::link(RING_CAPACITY, Arc::new(bell), Duration::ZERO);
        let fake = FakeModel::new(slots, context, capacity.step_rows, options);
        let ends = Box::new([END]);
        let (masks, mask_link) = new_mask_lane();
        // Phrases have characters that the pattern has not.
        let constrains = options.phrases.is_none() && random.one_in(4);
        let response_bytes = random.within(2_000, 20_000);
        let keys = capacity.weights.len();
        let engine = Engine::new(vocab.clone(), capacity.clone(), front, masks, metrics.clone());
        let engine = match files {
            Some(files) => engine.with_files(files),
            None => engine,
        };
        Self {
            fault,
            now: Micros(1_000),
            events: BinaryHeap::new(),
            requests: requests
                .unwrap_or_else(|| Requests::new(sequence_tokens as usize, constrains, returns)),
            clients: Vec::new(),
            places: Places::new(random.within(4, 80)),
            links: Vec::new(),
            responses: Responses::new(keys * response_bytes, &vec![1.0; keys]),
            response_bytes,
            kept: Vec::new(),
            tenants: Tenants::new(&mut random, capacity.weights.len(), slots),
            owners: HashMap::new(),
            engine,
            disk,
            slots_asked: 0,
            slots_answered: 0,
            pump_is_due: false,
            lane: DecodeLane::new(fake, slots, sequence_tokens as usize, ends, Arc::default())
                .with_guesses(true, Some(drafter))
                .with_kept(kept),
            link,
            down: VecDeque::new(),
            running: None,
            compiler: constrains.then(|| Compiler::new(&vocab).unwrap()),
            mask_link,
            masks: VecDeque::new(),
            answers: Vec::new(),
            failures: random.one_in(3),
            page_took: Duration::from_micros([0, 300, 3_000][random.within(0, 2)]),
            to_come: random.within(5, 60),
            pause_us: [2_000, 20_000, 200_000][random.within(0, 2)],
            cleared: Vec::new(),
            wakes: 0,
            sequences_submitted: 0,
            tally: Tally::default(),
            model,
            options,
            capacity,
            budget,
            metrics,
            random,
        }
    }

    /// Runs until nothing more can happen, and checks that nothing is left over. Returns what the
    /// next server of this seed finds, if this one has files.
    pub fn run(mut self) -> (Tally, Option<Left>) {
        self.after(Duration::ZERO, Occurrence::Arrive);
        self.take_file_jobs();
        for _ in 0..EVENTS_MAX {
            if !self.happen() {
                self.check_end();
                let requests = self.requests;
                let left = self.disk.map(|disk| Left { files: disk.files, requests });
                return (self.tally, left);
            }
        }
        panic!("{EVENTS_MAX} events, and no end");
    }

    fn after(&mut self, time: Duration, occurrence: Occurrence) {
        // Events of one moment come in any order.
        let order = self.random.next();
        self.events.push(Reverse((self.now + time, order, occurrence)));
    }

    fn count(&mut self, name: &'static str, count: u64) {
        *self.tally.entry(name).or_default() += count;
    }

    fn within_us(&mut self, low: usize, high: usize) -> Duration {
        Duration::from_micros(self.random.within(low, high) as u64)
    }

    /// Lets the next event happen. False when there is none.
    fn happen(&mut self) -> bool {
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        let wake = if self.pump_is_due { None } else { self.engine.wake_at() };
        let give_up = self.engine.running_step().map(|(_, began)| began + STEP_TIMEOUT);
        let Some(next) = [event, wake, give_up].into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        if wake == Some(next) {
            let late = if self.random.one_in(4) { self.within_us(0, 500) } else { Duration::ZERO };
            self.pump_is_due = true;
            self.after(late, Occurrence::Pump);
        } else if give_up == Some(next) {
            self.give_up_step();
        } else if let Some(Reverse((.., occurrence))) = self.events.pop() {
            match occurrence {
                Occurrence::Arrive => self.arrive(),
                Occurrence::Read(link) => self.read(link),
                Occurrence::Submit(client) => self.submit(client),
                Occurrence::Poll(client) => self.poll(client),
                Occurrence::ChangeKey => self.change_key(),
                Occurrence::Leave(client) => self.leave(client),
                Occurrence::StepEnds => self.end_step(),
                Occurrence::MaskEnds => self.end_mask(),
                Occurrence::FileEnds => self.end_file_job(),
                Occurrence::Pump => self.pump(),
            }
        }
        self.engine.check();
        self.check_places();
        self.wake_clients();
        true
    }

    /// The engine's task is woken.
    fn kick(&mut self) {
        if !self.pump_is_due {
            self.pump_is_due = true;
            let late = if self.random.one_in(4) { self.within_us(0, 500) } else { Duration::ZERO };
            self.after(late, Occurrence::Pump);
        }
    }

    /// A request has come on a connection.
    fn ask(&mut self, link: usize) {
        self.count("requests", 1);
        if self.disk.is_some() && self.random.one_in(3) {
            self.ask_slot();
        }
        let before = self.any_kept();
        // Sometimes the key that has the response, if it was not removed since.
        let tenant = match &before {
            Some(kept) if self.random.one_in(2) && self.lets_in(kept.tenant) => kept.tenant,
            _ => self.any_tenant(),
        };
        let options = self.options;
        let ask = self.requests.next(&mut self.random, before.as_ref(), |random, prompt| {
            stop_string(random, &continuation_with(&options, prompt, 40))
        });
        let envelope = Envelope {
            route: route::find(Method::Post, ask.path).unwrap(),
            number: self.random.next(),
            seed: self.random.next(),
            key: self.id_of(tenant),
            priority_min: i32::MIN,
            cache: self.cache_of(tenant),
            timeout: None,
            received: self.now,
            created: 1_795_000_000,
        };
        let is_there = ask.continues.as_ref().is_none_or(|id| self.find_kept(tenant, id));
        let mut compiler = self.compiler.take();
        let (world, model) = (&*self, &self.model);
        let mut prepare = || -> Result<Box<Job>, u16> {
            let now = time::OffsetDateTime::UNIX_EPOCH;
            let read = envelope.route.action.read_body().unwrap();
            let mut request = read(&mut ask.body.clone()).map_err(|error| error.status)?;
            if !world.continue_kept(tenant, &mut request) {
                return Err(400);
            }
            loop {
                let compiler = compiler.as_mut();
                match prepare::advance(request, &envelope, model, compiler, 1, &|| true, now) {
                    Ok(Step::Done(Prepared::Job(job))) => return Ok(job),
                    Ok(Step::More(rest)) => request = rest,
                    Ok(_) => panic!("a request for text"),
                    Err(error) => return Err(error.status),
                }
            }
        };
        let (prepared, twin) = (prepare(), prepare());
        self.compiler = compiler;
        let is_right = ask.fits && is_there;
        let body = String::from_utf8_lossy(&ask.body);
        assert_eq!(prepared.as_ref().err(), (!is_right).then_some(&400), "{} {body}", ask.path);
        self.count("continued", u64::from(is_right && ask.continues.is_some()));
        self.count("not found", u64::from(!is_there));
        let (Ok(mut job), Ok(twin)) = (prepared, twin) else {
            self.count("wrong", 1);
            self.links[link] = None;
            return;
        };
        let reference = Reference::new(&ask, &self.options, twin.reply, self.now);
        self.break_job(&mut job);
        for sequence in &mut job.sequences {
            let tokens = sequence.prompt.len();
            let branches = [0, 0, 0].map(|_| self.random.within(0, tokens) as u32);
            let slot = self.random.within(0, 3 * self.capacity.slots) as u16;
            sequence.slot = self.random.one_in(4).then_some(SlotId(slot));
            sequence.branches = branches.into_iter().take(self.random.within(0, 3)).collect();
        }
        let client = self.clients.len();
        self.clients.push(Client {
            ask,
            link,
            tenant,
            state: State::Preparing(job),
            woken: Arc::default(),
            stalls: self.random.one_in(8),
            read: 0,
            reference,
            sequences: Vec::new(),
        });
        let long = if self.random.one_in(5) { self.within_us(0, 30_000) } else { Duration::ZERO };
        self.after(long, Occurrence::Submit(client));
        if self.random.one_in(5) {
            let time = self.within_us(0, 300_000);
            self.after(time, Occurrence::Leave(client));
        }
    }

    fn submit(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let State::Preparing(job) = std::mem::replace(&mut client.state, State::Done) else {
            return; // it has left
        };
        let tenant = client.tenant;
        if !self.lets_in(tenant) {
            self.count("removed", 1);
            self.answered(index);
            return;
        }
        let client = &mut self.clients[index];
        let sequences = job.sequences.len();
        let tokens: usize = job.sequences.iter().map(|sequence| sequence.prompt.len()).sum();
        let hold = self.budget.hold(Some(job.sequences[0].key));
        match self.engine.submit(*job, hold, self.now) {
            Ok(exchange) => {
                client.sequences = exchange.borrow().sequences.clone();
                for (choice, id) in client.sequences.iter().enumerate() {
                    self.owners.insert(*id, (index, choice));
                }
                client.state = State::InProgress(exchange);
                client.reference.admitted(self.now);
                self.sequences_submitted += sequences as u64;
                self.kick();
                self.after(Duration::ZERO, Occurrence::Poll(index));
            }
            Err(error) if error.status == 400 => {
                // More than the queue ever takes.
                let Capacity { queue_sequences, queue_tokens, .. } = self.capacity;
                let is_much = sequences > queue_sequences || tokens > queue_tokens;
                assert!(is_much, "{}", error.message);
                self.count("refused", 1);
                self.answered(index);
            }
            Err(error) => {
                assert_eq!(error.status, 429, "{}", error.message);
                self.count("refused", 1);
                self.answered(index);
            }
        }
    }

    /// The connection's task runs: it takes bytes, and ends with the reply.
    fn poll(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let State::InProgress(exchange) = &client.state else { return };
        let mut exchange = exchange.borrow_mut();
        let read = without_late_tokens(&exchange.out).len();
        client.read += read;
        exchange.out.clear();
        let outcome = exchange.outcome.take();
        let stored = exchange.stored.take();
        if outcome.is_none() {
            exchange.waker = Some(Waker::from(client.woken.clone()));
        }
        drop(exchange);
        self.count("bytes", read as u64);
        let name = match outcome {
            None => return,
            Some(Ok(())) => "served",
            Some(Err(error)) if error.status == 504 => "late",
            Some(Err(error)) if error.status == 401 => "ended with its key",
            Some(Err(_)) => "failed",
        };
        self.count(name, 1);
        if name == "served" {
            self.keep(index, stored);
        }
        self.end(index);
        self.answered(index);
    }

    fn leave(&mut self, index: usize) {
        let client = &mut self.clients[index];
        match &client.state {
            State::Done => return,
            State::Preparing(_) => client.state = State::Done,
            State::InProgress(_) => self.end(index),
        }
        let link = self.clients[index].link;
        self.links[link] = None;
        self.count("left", 1);
    }

    /// The connection is done with its exchange.
    fn end(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let State::InProgress(exchange) = std::mem::replace(&mut client.state, State::Done) else {
            unreachable!("it is in progress");
        };
        self.engine.cancel(&exchange.borrow());
        assert_eq!(Rc::strong_count(&exchange), 1, "the engine holds an exchange that has ended");
        for id in std::mem::take(&mut client.sequences) {
            self.owners.remove(&id);
        }
        self.kick();
    }

    fn wake_clients(&mut self) {
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            if matches!(client.state, State::Done) || !client.woken.0.swap(false, Ordering::Relaxed)
            {
                continue;
            }
            self.wakes += 1;
            if self.fault == Some(Fault::LostWakeUp) && self.wakes.is_multiple_of(7) {
                continue;
            }
            let stalls = client.stalls;
            let late = if stalls { self.within_us(0, 500_000) } else { self.within_us(0, 300) };
            self.after(late, Occurrence::Poll(index));
        }
    }

    /// The decode lane takes its next step.
    fn begin_step(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some(mut batch) = self.down.pop_front() else { return };
        self.break_batch(&mut batch);
        let (decode, prefill) = (batch.decode_rows as usize, batch.prefill_rows as usize);
        let mut took = Duration::from_micros((300 + 700 * decode + 200 * prefill) as u64);
        took += self.copies(&batch);
        if self.random.one_in(20) {
            took *= 5;
        }
        let fails = (self.failures && self.random.one_in(40)).then(|| {
            let errors = [StepError::Failed(-1), StepError::NoRoom, StepError::Aborted];
            errors[self.random.within(0, 2)]
        });
        // One that hangs ends when it is given up, and not before.
        if fails != Some(StepError::Aborted) || batch.rows.is_empty() {
            self.after(took, Occurrence::StepEnds);
        }
        self.running = Some(Running { batch, took, fails });
    }

    /// The time that a step spends on copies of pages.
    fn copies(&self, batch: &Batch) -> Duration {
        self.page_took * (batch.loads.len() + batch.stores.len()) as u32
    }

    /// The watchdog: the running step has taken too long.
    fn give_up_step(&mut self) {
        let running = self.running.as_ref().expect("the engine says that a step runs");
        assert_eq!(running.fails, Some(StepError::Aborted), "given up, though it does not hang");
        self.count("hung steps", 1);
        self.end_step();
    }

    fn end_step(&mut self) {
        let Running { mut batch, took, fails } = self.running.take().expect("a step runs");
        if let Some(error) = fails.filter(|_| !batch.rows.is_empty()) {
            self.lane.backend().fail_next(error);
        }
        // The lane measures real time, so the limit here is none, or no time at all.
        batch.masks_max = self.random.one_in(30).then_some(Duration::ZERO);
        self.lane.step(&mut batch);
        let failed = batch.failed.iter().filter(|one| one.reason != FailureReason::LateMask);
        let failed: Vec<Failed> = failed.copied().collect();
        self.count("late masks", (batch.failed.len() - failed.len()) as u64);
        // A late mask may have taken the tokens that a sequence was to start with, and other rows the
        // window behind them.
        let is_lost = |one: &&Failed| one.reason == FailureReason::LostWindow;
        let has_windows = !batch.least_left.is_empty();
        let may_fail = |start: &Start| start.source != start.owner.slot || has_windows;
        let is_start = |one: &Failed| {
            let mut starts = batch.starts.iter();
            starts.any(|start| start.owner == one.owner && may_fail(start))
        };
        assert!(self.failures || failed.iter().all(is_start), "no step lacks room");
        self.count("lost windows", failed.iter().filter(is_lost).count() as u64);
        let from_logits = batch.starts.iter().filter(|start| start.logits.is_some());
        self.count("starts from logits", from_logits.count() as u64);
        let copies = self.copies(&batch);
        batch.pages_us = copies.as_micros() as u32;
        batch.decode_us = (took - copies).as_micros() as u32;
        let guesses: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.made)).sum();
        (batch.guess_us, batch.sample_us) = (10 * guesses, 0); // of another clock
        for mask in batch.samples.iter_mut().filter_map(|sample| sample.mask.as_mut()) {
            mask.us = if self.random.one_in(30) { 20_000 } else { 100 };
        }
        self.check_cells();
        self.count("steps", 1);
        self.count("failed steps", u64::from(batch.step_failed));
        self.count("rows", batch.rows.len() as u64);
        self.count("rows dropped", u64::from(batch.rows_dropped));
        let logprobs =
            |sample: &Sample| Some(batch.logprobs[usize::from(sample.logprobs?)].clone());
        let rows = batch.rows.iter().map(|row| (row.owner, row.position.index()));
        self.answers.push(Answers {
            rows: rows.collect(),
            guesses: batch.rows.iter().map(|row| (row.owner, row.guesses.made)).collect(),
            scores: batch.scores.to_vec(),
            step_failed: batch.step_failed,
            samples: batch.samples.iter().map(|sample| (*sample, logprobs(sample))).collect(),
            failed,
            aborted: batch.aborted,
        });
        self.link.send(batch);
        self.begin_step();
        self.kick();
    }

    /// The mask lane begins a mask.
    fn begin_mask(&mut self) {
        let slow = self.random.one_in(3);
        let took = if slow { self.within_us(1_000, 50_000) } else { self.within_us(1, 300) };
        let first = self.masks.front_mut().expect("there is a task");
        first.cost.us = took.as_micros() as u32;
        self.after(took, Occurrence::MaskEnds);
    }

    fn end_mask(&mut self) {
        let mut task = self.masks.pop_front().expect("it was begun");
        self.count("masks", u64::from(task.sequence.is_some()));
        while !mask_lane::compute(&mut task) {}
        self.mask_link.send(task);
        if !self.masks.is_empty() {
            self.begin_mask();
        }
        self.kick();
    }

    /// Tells the references of sequences that were started and preempted in one turn of the engine.
    fn tell_preempted(&mut self) {
        for client in &mut self.clients {
            let State::InProgress(exchange) = &client.state else { continue };
            if exchange.borrow().started == Some(self.now) && client.sequences.len() == 1 {
                client.reference.begin(self.now);
            }
        }
    }

    /// The engine's task runs.
    fn pump(&mut self) {
        self.pump_is_due = false;
        self.tell_references();
        self.engine.pump(self.now);
        self.take_slot_outcomes();
        let mut last = None;
        while let Some(batch) = self.link.try_receive() {
            self.check_plan(&batch);
            self.check_prefixes(&batch);
            // (A second plan of this turn may have preempted a sequence of the first; see below.)
            let scheduler = self.engine.scheduler();
            for start in &batch.starts {
                let Some(id) = scheduler.holder(start.owner) else { continue };
                let Some((client, choice)) = self.owners.get(&id) else { continue };
                self.clients[*client].reference.start(*choice, start.owner.slot, self.now);
            }
            self.down.extend(last.replace(batch));
        }
        let scheduler = self.engine.scheduler();
        for id in scheduler.running() {
            let Some((client, choice)) = self.owners.get(id) else { continue };
            let restored = Restored {
                tokens: scheduler.restored_tokens(*id) as u64,
                fetched: scheduler.fetched_tokens(*id) as u64,
            };
            let cached = (scheduler.cached_tokens(*id), restored);
            self.clients[*client].reference.count_cached(*choice, cached);
        }
        self.tell_preempted();
        if let Some(batch) = last {
            self.check_starts(&batch);
            self.down.push_back(batch);
        }
        let is_free = self.masks.is_empty();
        self.masks.extend(std::iter::from_fn(|| self.mask_link.try_receive()));
        if is_free && !self.masks.is_empty() {
            self.begin_mask();
        }
        self.take_file_jobs();
        self.begin_step();
        self.check_replies();
        let late = self.engine.wake_at().filter(|at| *at <= self.now);
        assert_eq!(late, None, "at {:?} the engine asks to be called in the past", self.now);
    }
}

/// A stop string, of the text that is to come or of another one.
fn stop_string(random: &mut Random, tokens: &[TokenId]) -> Option<String> {
    let bytes: Vec<u8> = tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect();
    let text: Vec<char> = String::from_utf8_lossy(&bytes).chars().collect();
    if text.is_empty() || random.one_in(5) {
        return Some("never".to_owned());
    }
    let start = random.within(0, text.len() - 1);
    let end = random.within(start + 1, (start + 5).min(text.len()));
    let stop: String = text[start..end].iter().collect();
    // A stop string of U+FFFD would match bytes that are no character.
    (!stop.contains(char::REPLACEMENT_CHARACTER)).then_some(stop)
}
