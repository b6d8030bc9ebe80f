//! What is checked of a world: after each step, after each turn of the engine, and at the end.

use corelane::limits::STEPS_IN_FLIGHT;
use corelane::metrics::Counter;
use regex::bytes::Regex;

use super::*;

/// The answers of a step, seen on their way to the engine.
pub(super) struct Answers {
    pub(super) rows: Vec<(Owner, usize)>,
    /// The guesses behind each row.
    pub(super) guesses: Vec<(Owner, u8)>,
    pub(super) scores: Vec<Score>,
    pub(super) samples: Vec<(Sample, Option<TokenLogprobs>)>,
    pub(super) failed: Vec<Failed>,
    pub(super) step_failed: bool,
    pub(super) aborted: bool,
}

/// An answer without the numbers of late tokens in `timings`. The reference does not know how long each
/// step takes.
pub(super) fn without_late_tokens(answer: &[u8]) -> Vec<u8> {
    thread_local! {
        static LATE: Regex = Regex::new(r#","late_[a-z_]*n":[1-9][0-9]*"#).unwrap();
    }
    LATE.with(|late| late.replace_all(answer, &b""[..]).into_owned())
}

impl World {
    /// Checks after each step, failed or not, that model and decode lane agree on the tokens of each
    /// slot, and that all of them fit.
    pub(super) fn check_cells(&mut self) {
        for slot in (0..self.capacity.slots as u16).map(SlotId) {
            let next = self.lane.next_position(slot);
            assert_eq!(self.lane.backend().tokens_in(slot), next.index(), "{slot:?}");
        }
        let held = self.lane.backend().tokens_held();
        assert!(held <= self.capacity.context_tokens as usize);
    }

    /// Tells the references the answers that the engine is about to take.
    pub(super) fn tell_references(&mut self) {
        // Those whose rows failed in one of these steps. The engine drops their later rows.
        let mut failed: HashSet<Owner> = HashSet::new();
        for answers in std::mem::take(&mut self.answers) {
            failed.extend(answers.failed.iter().map(|one| one.owner));
            for rows in answers.rows.chunk_by(|a, b| a.0 == b.0) {
                let [.., (owner, position)] = rows else { continue };
                let is_shown = !answers.step_failed && !failed.contains(owner);
                if let Some((client, choice)) = self.holder(*owner).filter(|_| is_shown) {
                    self.clients[client].reference.progress(choice, *position, self.now);
                }
            }
            for score in &answers.scores {
                if let Some((client, choice)) = self.holder(score.owner) {
                    self.count("scores", 1);
                    self.clients[client].reference.score(choice, score);
                }
            }
            for (owner, position) in answers.rows.iter().filter(|row| !failed.contains(&row.0)) {
                if let Some((client, choice)) = self.holder(*owner) {
                    self.clients[client].reference.row(choice, *position, self.now);
                }
            }
            for (owner, made) in answers.guesses.iter().filter(|(_, made)| *made > 0) {
                let samples = answers.samples.iter().filter(|(sample, _)| sample.owner == *owner);
                let Some(kept) = samples.count().checked_sub(1) else { continue };
                if let Some((client, choice)) = self.holder(*owner) {
                    self.count("guesses", u64::from(*made));
                    self.count("guesses kept", kept as u64);
                    self.clients[client].reference.guessed(choice, *made, kept);
                }
            }
            for (sample, logprobs) in &answers.samples {
                let Some((client, choice)) = self.holder(sample.owner) else {
                    self.count("unread samples", u64::from(!sample.end));
                    continue;
                };
                self.count("tokens", 1);
                self.count("ends", u64::from(sample.end));
                let reference = &mut self.clients[client].reference;
                reference.token(choice, sample, logprobs.as_ref(), self.now);
            }
            for failed in answers.failed.iter().filter(|one| one.reason == FailureReason::Step) {
                if let Some((client, choice)) = self.holder(failed.owner) {
                    self.clients[client].reference.failed(choice, answers.aborted);
                }
            }
        }
        for client in &mut self.clients {
            let is_in_progress = matches!(client.state, State::InProgress(_));
            if is_in_progress && client.reference.deadline.is_some_and(|at| at <= self.now) {
                let mut order: Vec<usize> = (0..client.sequences.len()).collect();
                order.sort_by_key(|choice| client.sequences[*choice].index());
                client.reference.expire(&order, self.now);
            }
        }
    }

    /// The client and the choice that hold a slot.
    pub(super) fn holder(&self, owner: Owner) -> Option<(usize, usize)> {
        self.owners.get(&self.engine.scheduler().holder(owner)?).copied()
    }

    /// Every reply is, so far, the reference's, byte for byte.
    pub(super) fn check_replies(&self) {
        for client in &self.clients {
            let State::InProgress(exchange) = &client.state else { continue };
            let exchange = exchange.borrow();
            let reply = without_late_tokens(&exchange.out);
            let expected = &client.reference.out[client.read..];
            let body = String::from_utf8_lossy(&client.ask.body);
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(&reply), text(expected), "POST {} {body}", client.ask.path);
            assert!(reply == expected);
            let status = |outcome: &Result<(), corelane::api::error::ApiError>| {
                outcome.as_ref().map_err(|error| error.status).copied()
            };
            let outcome = exchange.outcome.as_ref().map(status);
            assert_eq!(outcome, client.reference.outcome, "POST {} {body}", client.ask.path);
        }
    }

    /// Checks that every sequence that starts in the last planned step holds its slot.
    pub(super) fn check_starts(&self, batch: &Batch) {
        let is_held = |start: &Start| self.engine.scheduler().holder(start.owner).is_some();
        assert!(batch.starts.iter().all(is_held), "a sequence that starts holds its slot");
    }

    /// Checks the rules for every planned step.
    pub(super) fn check_plan(&self, batch: &Batch) {
        let guesses: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.most())).sum();
        assert_eq!(guesses, batch.guessed_rows);
        assert!(batch.rows.len() + guesses as usize <= self.capacity.step_rows);
        assert_eq!(batch.rows.len() as u32, batch.decode_rows + batch.prefill_rows);
        let places = batch.rows.iter().map(|row| (row.owner.slot, row.position));
        assert!(places.is_sorted(), "in the order of slots, or llama.cpp splits the step");
        let owners: HashSet<Owner> = batch.rows.iter().map(|row| row.owner).collect();
        let slots: HashSet<SlotId> = owners.iter().map(|owner| owner.slot).collect();
        assert_eq!(slots.len(), owners.len(), "one sequence for each slot");
    }

    /// Nothing more happens: every client has its reply, and nothing is held for anybody.
    pub(super) fn check_end(&mut self) {
        for client in &self.clients {
            let body = String::from_utf8_lossy(&client.ask.body);
            let is_done = matches!(client.state, State::Done);
            assert!(is_done, "nobody wakes the client of POST {} {body}", client.ask.path);
        }
        self.check_tenants();
        let is_working = |link: &Link| link.is_taken;
        assert!(!self.links.iter().flatten().any(is_working), "a connection waits for an answer");
        self.links.clear();
        self.places.check(0);
        assert!(self.engine.is_idle(), "the engine has work, and asks for no call");
        assert!(self.down.is_empty() && self.running.is_none() && self.owners.is_empty());
        assert_eq!(self.engine.scheduler().masks_asked(), 0, "the mask lane has a task");
        assert_eq!(self.budget.held(), 0, "memory is held for nobody");
        if let Some(disk) = &self.disk {
            disk.check(self.engine.scheduler());
        }
        assert_eq!(self.slots_asked, self.slots_answered, "each task with a slot has an outcome");
        let (held, kept) = self.engine.scheduler().cells();
        assert_eq!(held, 0, "a cell is held for nobody");
        assert!(self.lane.backend().tokens_held() <= kept, "what is kept is counted");
        let metrics = self.metrics.clone();
        let finished = &metrics.front.finished;
        let [stop, length, timeout, abort, error] =
            [&finished.stop, &finished.length, &finished.timeout, &finished.abort, &finished.error]
                .map(Counter::get);
        let ended = stop + length + timeout + abort + error;
        assert_eq!(ended, self.sequences_submitted, "each sequence is counted once when it ends");
        let scheduler = self.engine.scheduler().tally();
        self.count("cached", scheduler.cached_tokens);
        self.count("evicted", scheduler.evicted_tokens);
        self.count("pages stored", scheduler.stored_pages);
        self.count("restored", scheduler.restored_tokens);
        self.count("fetched", scheduler.fetched_tokens);
        self.count("states saved", scheduler.states_saved);
        self.count("states restored", scheduler.states_restored);
        self.count("preempted", scheduler.preemptions);
        self.count("retried", scheduler.retries);
        self.check_waste(stop + timeout + abort, length, error);
    }

    /// Bounds the rows and samples that were computed in vain. `cut` sequences ended before the
    /// model ended them, or with it; `whole` ones had all their tokens, and `failed` ones an error.
    ///
    /// An end that the decode lane sees costs at most one dropped row, and so does a late mask. A
    /// failure or a refused start drops the rows of the steps in flight. A stop string, a cancellation
    /// and a preemption cost at most the samples of the steps in flight.
    fn check_waste(&self, cut: u64, whole: u64, failed: u64) {
        let of = |name| self.tally.get(name).copied().unwrap_or(0);
        let in_flight = (self.capacity.step_rows * STEPS_IN_FLIGHT) as u64;
        let failed = failed + of("retried") + of("lost windows");
        let left = cut + of("preempted");
        // A sequence that left may have failed, too.
        let rows_of_left = if self.failures { in_flight } else { 1 };
        // With guesses, the decode lane may see the last token before the scheduler does.
        let whole = if self.model.guessing.most > 0 { whole } else { 0 };
        let bound =
            of("ends") + whole + of("late masks") + left * rows_of_left + failed * in_flight;
        assert!(of("rows dropped") <= bound, "{:?}", self.tally);
        let samples = 1 + u64::from(self.model.guessing.most);
        let bound = (left + failed) * STEPS_IN_FLIGHT as u64 * samples;
        assert!(of("unread samples") <= bound, "{:?}", self.tally);
    }
}
