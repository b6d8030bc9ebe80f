//! A scheduler with the fake model, in made-up time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use corelane::constraint::{Compiler, Constraint};
use corelane::decode::{DecodeLane, mask_lane};
use corelane::fair::Line;
use corelane::limits::MASK_TASKS_MAX;
use corelane::model::fake::{END, FakeModel, FakeOptions};
use corelane::model::vocab::Vocab;
use corelane::ring::message::{Batch, MaskTask};
use corelane::sampling::AdvancedSampling;
use corelane::scheduler::{
    Capacity, Event, NewSequence, Pages, Phase, Scheduler, SequenceId, SlotView,
};
use corelane::types::{ItlTarget, KeyId, Sampling, TokenId};

pub fn capacity(slots: usize, sequence_tokens: u32) -> Capacity {
    Capacity {
        slots,
        step_rows: 512,
        itl_target: ItlTarget::Chosen,
        context_tokens: slots as u32 * sequence_tokens,
        sequence_tokens,
        queue_sequences: 1000,
        queue_tokens: 1 << 20,
        reuse: true,
        states: None,
        logits: 0,
        pages: Pages::default(),
        files: None,
        own_cells: false,
        looks_up: true,
        drafts: false,
        weights: vec![1.0],
    }
}

/// The scheduler and a model that takes as long as a real one would: 20 ms for a
/// step, 10 for each row that decodes, 5 for each of a prompt.
pub struct World {
    pub scheduler: Scheduler,
    pub lane: DecodeLane<FakeModel>,
    pub now: Duration,
    pub served: HashMap<SequenceId, Served>,
    pub next_text: u64,
    /// The longest step with a decode row.
    pub longest: Duration,
    /// The time of a copy from one slot to another.
    pub copy: Duration,
    /// How many times faster a step is than said above.
    pub faster: u32,
    /// The time of each mask of a key's texts, in microseconds.
    pub masks: HashMap<KeyId, u32>,
    /// Tasks that wait for the mask lane, and the one that it computes until a time.
    mask_line: Line<Box<MaskTask>, MASK_TASKS_MAX>,
    masking: Option<(Duration, Box<MaskTask>)>,
    pub last: Planned,
}

/// The last plan, and the work that there was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planned {
    pub waiting: usize,
    pub running: usize,
    /// Behind their prompts, and without a row.
    pub idle: usize,
    pub decode_rows: u32,
    pub prefill_rows: u32,
    /// Sequences with more of their prompt to come than the step has.
    pub prompts_left: usize,
    /// Sequences with several rows in the step.
    pub prompts: usize,
    /// Copies from one slot to another.
    pub copies: usize,
}

#[derive(Clone, Debug)]
pub struct Served {
    pub key: KeyId,
    pub arrived: Duration,
    pub first_token: Option<Duration>,
    pub last_token: Option<Duration>,
    pub longest_gap: Duration,
    /// Tokens of its prompt that were scored.
    pub scores: u32,
    pub tokens: u32,
    pub ended: bool,
}

impl World {
    pub fn new(capacity: Capacity) -> Self {
        let (slots, tokens) = (capacity.slots, capacity.sequence_tokens as usize);
        let context = capacity.context_tokens as usize;
        let model = FakeModel::new(slots, context, capacity.step_rows, FakeOptions::default());
        Self {
            mask_line: Line::new(&capacity.weights),
            masking: None,
            lane: DecodeLane::new(model, slots, tokens, Box::new([END]), Arc::default()),
            scheduler: Scheduler::new(capacity),
            now: Duration::ZERO,
            served: HashMap::new(),
            next_text: 0,
            longest: Duration::ZERO,
            copy: Duration::ZERO,
            faster: 1,
            masks: HashMap::new(),
            last: Planned::default(),
        }
    }

    /// A prompt that nobody has sent before.
    pub fn text(&mut self, tokens: usize) -> Arc<[TokenId]> {
        self.next_text += 1;
        let mut hash = self.next_text;
        let mut token = || {
            hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (hash >> 40) as TokenId % 200
        };
        (0..tokens).map(|_| token()).collect()
    }

    pub fn send(&mut self, new: NewSequence) -> Option<SequenceId> {
        let key = new.key;
        let mut sent = None;
        self.scheduler.admit(vec![new], |_, id| sent = Some(id)).ok()?;
        let served = Served {
            key,
            arrived: self.now,
            first_token: None,
            last_token: None,
            longest_gap: Duration::ZERO,
            scores: 0,
            tokens: 0,
            ended: false,
        };
        self.served.insert(sent?, served);
        sent
    }

    pub fn request(&mut self, prompt_tokens: usize, max_tokens: u32) -> NewSequence {
        NewSequence::new(self.text(prompt_tokens), max_tokens, Sampling::greedy())
    }

    pub fn planned(&self, batch: &Batch) -> Planned {
        let is_in = |view: &SlotView, wanted| view.held.is_some_and(|(_, state)| state == wanted);
        let has_row = |slot: usize| batch.rows.iter().any(|row| row.owner.slot.index() == slot);
        let decoding =
            |(slot, view): &(usize, SlotView)| is_in(view, Phase::Decode) && !has_row(*slot);
        let slots = || self.scheduler.slots();
        Planned {
            waiting: self.scheduler.waiting_count(),
            running: self.scheduler.running_count(),
            idle: slots().enumerate().filter(decoding).count(),
            decode_rows: batch.decode_rows,
            prefill_rows: batch.prefill_rows,
            prompts_left: slots().filter(|view| is_in(view, Phase::Prefill)).count(),
            prompts: batch.rows.chunk_by(|a, b| a.owner == b.owner).filter(|r| r.len() > 1).count(),
            copies: batch.starts.iter().filter(|s| s.source != s.owner.slot).count(),
        }
    }

    /// A constraint that no text comes to the end of.
    pub fn endless() -> Arc<AdvancedSampling> {
        let mut compiler = Compiler::new(&Vocab::of_fake()).unwrap();
        let constraint = Constraint::Regex("[ -~]{3000}".into());
        let constraint = Some(compiler.compile(&constraint).unwrap());
        Arc::new(AdvancedSampling { constraint, ..AdvancedSampling::default() })
    }

    /// The mask lane works until now.
    fn mask(&mut self) {
        while let Some(task) = self.scheduler.next_mask() {
            self.mask_line.push(task.key, task.cost.us as usize, task);
        }
        let mut free = self.now;
        loop {
            if let Some((end, task)) = self.masking.take_if(|(end, _)| *end <= self.now) {
                free = end;
                self.mask_line.serve(task.key, task.cost.us.into());
                self.scheduler.masked(task);
            }
            if self.masking.is_some() {
                return;
            }
            let Some((_, mut task)) = self.mask_line.pop() else { return };
            while !mask_lane::compute(&mut task) {}
            task.cost.us = self.masks.get(&task.key).copied().unwrap_or(0);
            let took = Duration::from_micros(task.cost.us.into());
            self.masking = Some((free + took, task));
        }
    }

    /// Runs one step; false when there is nothing to do.
    pub fn step(&mut self) -> bool {
        let mut batch = Batch::default();
        self.mask();
        while !self.scheduler.schedule(&mut batch) {
            let Some((end, _)) = &self.masking else { return false };
            self.now = *end;
            self.mask();
        }
        self.last = self.planned(&batch);
        batch.masks_max = None; // the lane measures real time
        self.lane.step(&mut batch);
        let copies = self.last.copies as u32 * self.copy.as_micros() as u32;
        let took = 20_000 + 10_000 * batch.decode_rows + 5_000 * batch.prefill_rows + copies;
        let took = took / self.faster;
        batch.decode_us = took;
        batch.sample_us = 0;
        for sample in &mut batch.samples {
            let Some(id) = self.scheduler.holder(sample.owner) else { continue };
            let Some(mask) = &mut sample.mask else { continue };
            mask.us = self.masks.get(&self.served[&id].key).copied().unwrap_or(0);
            batch.sample_us += mask.us;
        }
        let took = Duration::from_micros((took + batch.sample_us).into());
        self.now += took;
        if batch.decode_rows > 0 {
            self.longest = self.longest.max(took);
        }
        let now = self.now;
        let served = &mut self.served;
        self.scheduler.complete(&mut batch, |event| match event {
            Event::Token { id, is_last, .. } => {
                let served = served.get_mut(&id).expect("it was sent");
                served.first_token.get_or_insert(now);
                if let Some(last) = served.last_token.replace(now) {
                    served.longest_gap = served.longest_gap.max(now - last);
                }
                served.tokens += 1;
                served.ended = is_last;
            }
            Event::Guessed { .. } => {}
            Event::Score { id, .. } => served.get_mut(&id).expect("it was sent").scores += 1,
            Event::Finished(id, _) => served.get_mut(&id).expect("it was sent").ended = true,
        });
        self.scheduler.check();
        true
    }
}
