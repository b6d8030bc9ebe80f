//! Loads the model once, and runs the rungs on it one after another.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use super::check;
use super::counts::Counts;
use super::endpoint::{self, Interface, text_and_tokens};
use super::inner;
use super::pipe::{self, Pipe, Waiter};
use super::rung::{Allocations, Ladder, RungRun};
use super::workload::{Queue, STOP, Texts, Workload};
use crate::generator::prompts::Prompts;
use corelane::api::route;
use corelane::clock::Clock;
use corelane::config::ServeConfig;
use corelane::decode::DecodeLane;
use corelane::engine::Engine;
use corelane::lanes;
use corelane::limits::{BATCHES, RING_CAPACITY};
use corelane::metrics::Metrics;
use corelane::model::llama::{ContextConfig, LlamaDecoder};
use corelane::model::load::Loaded;
use corelane::placement::pin_this_thread;
use corelane::prepare::ServedModel;
use corelane::ring::{self, bell::SocketBell};
use corelane::scheduler::Scheduler;
use corelane::text::TextStream;
use corelane::text::stop::StopStrings;
use corelane::types::{Calibration, ItlTarget, TokenId};

/// Expected bytes of text per token. A text that needs more grows.
const TOKEN_BYTES: usize = 8;

/// The loaded model, the workload, and the reference tokens.
pub struct Stage {
    pub(super) loaded: Loaded,
    pub(super) config: ServeConfig,
    context_tokens: u32,
    pub(super) workload: Workload,
    pub(super) seed: u64,
    reference: OnceLock<Texts>,
}

impl Stage {
    /// Loads the model and prepares the workload.
    pub fn set(ladder: &Ladder) -> Result<Self, String> {
        let loaded = corelane::model::load::load(&ladder.source, ladder.config.kernels, |_| true)
            .map_err(|error| error.to_string())?;
        let sequence_tokens = ladder.prompt_tokens as u64 + u64::from(ladder.gen_tokens);
        let trained = loaded.info.context_trained;
        if sequence_tokens > u64::from(trained) {
            return Err(format!(
                "--prompt-tokens and --gen-tokens are {sequence_tokens} together; this model \
                 takes {trained}"
            ));
        }
        // llama.cpp rounds each sequence's cache up to 256 cells.
        let cells = sequence_tokens.next_multiple_of(256) * ladder.concurrency as u64;
        let context_tokens = u32::try_from(cells).map_err(|_| "too many tokens".to_owned())?;
        let config = ServeConfig {
            parallel: ladder.concurrency,
            context_tokens: Some(context_tokens),
            // A prompt's share of a step would otherwise depend on measured step times. Every rung
            // must make the same steps.
            itl_target: ItlTarget::Unbounded,
            fixed_threads: true, // the inner rungs measure none
            cache_prompt: false,
            drain: Duration::ZERO,
            ..ladder.config.clone()
        };
        config.check()?;
        let workload = Workload {
            prompts: prompts(ladder, loaded.vocab.n_tokens())?,
            gen_tokens: ladder.gen_tokens,
            concurrency: ladder.concurrency,
            guessing: lanes::guessing(&config, &loaded.info, 0),
            capacity: lanes::capacity(&config, context_tokens, context_tokens.min(trained)),
        };
        let reference = OnceLock::new();
        let seed = ladder.seed;
        Ok(Self { loaded, config, context_tokens, workload, seed, reference })
    }

    /// The model's name.
    pub fn model_name(&self) -> String {
        self.loaded.info.name.clone()
    }

    /// Runs one rung, after a warm-up that is not measured.
    pub fn run(&self, rung: usize) -> Result<RungRun, String> {
        // CPU time is counted by thread name, so the thread has the name of the lane that it stands
        // for.
        let (lane, core) = match rung {
            0..=2 => ("decode", self.config.placement.decode_cores.last()),
            3..=7 => ("front", Some(&self.config.placement.front_core)),
            _ => ("client", None),
        };
        let mut result = Err("the lane did not end".to_owned());
        thread::scope(|scope| {
            let body = || {
                core.map_or(Ok(()), |core| pin_this_thread(&[*core]))?;
                match rung {
                    0..=2 => self.run_inner(rung),
                    3 => self.run_rings(),
                    4 | 5 => self.run_scheduler(rung),
                    6 | 7 => self.run_endpoint(rung),
                    8 | 9 => self.run_server(rung),
                    _ => self.run_client(),
                }
            };
            let builder = thread::Builder::new().name(lane.into());
            let builder = builder.stack_size(corelane::limits::LANE_STACK_BYTES);
            result = match builder.spawn_scoped(scope, body) {
                Ok(handle) => handle.join().expect("a lane that panics ends the process"),
                Err(error) => Err(format!("cannot start a thread: {error}")),
            };
        });
        let run = RungRun { rung, ..result? };
        if run.tokens != self.workload.tokens() {
            return Err(format!(
                "{} tokens were generated, not {}",
                run.tokens,
                self.workload.tokens()
            ));
        }
        Ok(run)
    }

    fn context_config(&self) -> ContextConfig {
        lanes::context_config(&self.config, &self.loaded, self.context_tokens, Arc::default())
    }

    fn context(&self) -> Result<LlamaDecoder, String> {
        let config = self.context_config();
        LlamaDecoder::new(self.loaded.model.clone(), &config)
    }

    fn lane<B: corelane::model::Backend>(&self, backend: B) -> DecodeLane<B> {
        let end_tokens = self.loaded.vocab.end_tokens().into();
        let tokens = self.workload.capacity.sequence_tokens as usize;
        DecodeLane::new(backend, self.config.parallel, tokens, end_tokens, new_metrics())
    }

    /// Compares the tokens of a rung with those of the lowest rung that ran, and returns their
    /// number.
    fn check_tokens(&self, texts: Texts, recorded: bool) -> Result<u64, String> {
        check::tokens(self.reference.get_or_init(|| texts.clone()), &texts, recorded)?;
        Ok(texts.tokens())
    }

    /// Compares the texts of a rung with the tokens of the lowest rung that ran.
    pub(super) fn check_texts<'a>(
        &self,
        texts: impl Iterator<Item = &'a str>,
    ) -> Result<(), String> {
        let reference = self.reference.get().expect("a rung of tokens ran first");
        check::texts(reference, |token| self.loaded.vocab.bytes_of(token), texts)
    }

    fn run_inner(&self, rung: usize) -> Result<RungRun, String> {
        let warm_up = self.workload.warm_up();
        let mut scheduler = Scheduler::new(self.workload.capacity.clone());
        let first = warm_up.record(&mut scheduler);
        let all = self.workload.record(&mut scheduler);
        // A batch without rows only clears slots, and the decode lane does not count it as a step.
        let steps = Some(all.iter().filter(|batch| !batch.rows.is_empty()).count() as u64);
        let end_tokens = self.loaded.vocab.end_tokens();
        let mut model = self.context()?;
        let (texts, measured) = match rung {
            0 => {
                inner::backend(&mut model, &warm_up, &first, end_tokens)?;
                inner::backend(&mut model, &self.workload, &all, end_tokens)?
            }
            1 => {
                inner::executor(&mut model, &warm_up, first, end_tokens)?;
                inner::executor(&mut model, &self.workload, all, end_tokens)?
            }
            _ => {
                let mut lane = self.lane(model);
                inner::sampler(&mut lane, &warm_up, first)?;
                inner::sampler(&mut lane, &self.workload, all)?
            }
        };
        let per_token = measured.allocations as f64 / self.workload.tokens() as f64;
        let allocations = Allocations { front: None, decode: Some(per_token) };
        let tokens = self.check_tokens(texts, true)?;
        let model_time = Some(measured.model);
        Ok(RungRun { tokens, measured, steps, allocations, model_time, ..RungRun::default() })
    }

    /// Starts a decode lane in the same way as the server does.
    fn pipe(&self) -> Result<Pipe, String> {
        let metrics = new_metrics();
        let (waiter, bell) = Waiter::new(!self.config.placement.is_shared(), metrics.clone())?;
        let (link, decode_link) = ring::link(RING_CAPACITY, bell, lanes::spin(&self.config));
        let cores = self.config.placement.decode_cores.clone();
        let (model, config) = (self.loaded.model.clone(), self.context_config());
        let looks_up = self.config.speculation.looks_up();
        let end_tokens: Box<[TokenId]> = self.loaded.vocab.end_tokens().into();
        let (slots, tokens) =
            (self.config.parallel, self.workload.capacity.sequence_tokens as usize);
        let decode = lanes::start_decode(decode_link, cores, {
            let metrics = metrics.clone();
            move || {
                let backend = LlamaDecoder::new(model, &config)?;
                let lane = DecodeLane::new(backend, slots, tokens, end_tokens, metrics);
                Ok(lane.with_guesses(looks_up, None))
            }
        })?;
        Ok(Pipe { link, waiter, decode, metrics })
    }

    fn run_rings(&self) -> Result<RungRun, String> {
        let mut pipe = self.pipe()?;
        let warm_up = self.workload.warm_up();
        let mut scheduler = Scheduler::new(self.workload.capacity.clone());
        pipe::rings(&mut pipe, &warm_up, warm_up.record(&mut scheduler));
        let batches = self.workload.record(&mut scheduler);
        let counts = Counts::read(&pipe.metrics);
        let (texts, measured) = pipe::rings(&mut pipe, &self.workload, batches);
        let counts = counts.until_now(&pipe.metrics);
        pipe.end();
        Ok(counts.complete(RungRun {
            tokens: self.check_tokens(texts, true)?,
            measured,
            ..RungRun::default()
        }))
    }

    fn run_scheduler(&self, rung: usize) -> Result<RungRun, String> {
        let mut pipe = self.pipe()?;
        let mut scheduler = Scheduler::new(self.workload.capacity.clone());
        let mut spare = (0..BATCHES).map(|_| Box::default()).collect();
        let vocab = &self.loaded.vocab;
        let mut texts = Texts::new(&self.workload);
        let mut streams: Vec<TextStream> = Vec::new();
        let mut said: Vec<String> = Vec::new();
        let warm_up = self.workload.warm_up();
        let mut first = Queue::new(&warm_up, |_, _| ());
        pipe::scheduler(&mut pipe, &mut scheduler, &mut first, &mut spare);
        if rung == 5 {
            let stops = StopStrings::new(vec![STOP.to_owned()]);
            let requests = self.workload.prompts.len();
            streams = (0..requests).map(|_| TextStream::new(stops.clone())).collect();
            let room = self.workload.gen_tokens as usize * TOKEN_BYTES;
            said = (0..requests).map(|_| String::with_capacity(room)).collect();
        }
        let counts = Counts::read(&pipe.metrics);
        let mut queue = Queue::new(&self.workload, |request, token| {
            texts.0[request].push(token);
            if let Some(stream) = streams.get_mut(request) {
                stream.push(vocab.bytes_of(token), &mut said[request]);
            }
        });
        let measured = pipe::scheduler(&mut pipe, &mut scheduler, &mut queue, &mut spare);
        let counts = counts.until_now(&pipe.metrics);
        pipe.end();
        let tokens = self.check_tokens(texts, false)?;
        if rung == 5 {
            self.check_texts(said.iter().map(String::as_str))?;
        }
        Ok(counts.complete(RungRun { tokens, measured, ..RungRun::default() }))
    }

    fn run_endpoint(&self, rung: usize) -> Result<RungRun, String> {
        let Pipe { link, mut waiter, decode, metrics } = self.pipe()?;
        let model = Arc::new(ServedModel {
            vocab: self.loaded.vocab.clone(),
            info: self.loaded.info.clone(),
            name: self.loaded.info.name.clone(),
            aliases: Vec::new(),
            tags: Vec::new(),
            path: None,
            chat: None,
            embeds: None,
            slots: self.workload.capacity.slots,
            calibration: Calibration::default(),
            context_tokens: self.workload.capacity.context_tokens,
            sequence_tokens: self.workload.capacity.sequence_tokens,
            spm_infill: false,
            guessing: self.workload.guessing,
            store_bytes: 0,
            n_predict: None,
            sampling: corelane::types::defaults::SamplingDefaults::default(),
            system_prompt: None,
        });
        let capacity = self.workload.capacity.clone();
        // No text here is constrained, so the mask lane would have nothing to do.
        let (bell, _) = SocketBell::new().map_err(|error| error.to_string())?;
        let (masks, _) = ring::link(1, Arc::new(bell), Duration::ZERO);
        let mut engine = Engine::new(model.vocab.clone(), capacity, link, masks, metrics.clone());
        let interface =
            if rung == 6 { Interface::Endpoint } else { Interface::handler(&self.workload) };
        let warm_up = self.workload.warm_up();
        endpoint::engine(&mut engine, &mut waiter, &interface, &model, &warm_up)?;
        let counts = Counts::read(&metrics);
        let (responses, measured) =
            endpoint::engine(&mut engine, &mut waiter, &interface, &model, &self.workload)?;
        let counts = counts.until_now(&metrics);
        drop(engine);
        decode.join().expect("a lane that panics ends the process");
        let answers = responses.iter().map(|response| text_and_tokens(interface.body(response)?));
        let answers = answers.collect::<Result<Vec<_>, _>>()?;
        self.check_texts(answers.iter().map(|(text, _)| text.as_str()))?;
        let tokens = answers.iter().map(|(_, tokens)| tokens).sum();
        Ok(counts.complete(RungRun { tokens, measured, ..RungRun::default() }))
    }
}

fn new_metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new(Clock::start(), route::paths()))
}

/// Draws prompts in the same way as `corelane bench serve`.
fn prompts(ladder: &Ladder, n_vocab: usize) -> Result<Vec<Vec<TokenId>>, String> {
    let mut prompts = Prompts::new(n_vocab as u32, ladder.seed)?; // n_vocab is an i32 in llama.cpp
    let signed = |prompt: Vec<u32>| prompt.into_iter().map(u32::cast_signed).collect();
    Ok((0..ladder.requests).map(|_| signed(prompts.draw(ladder.prompt_tokens))).collect())
}
