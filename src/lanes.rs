//! Starts the lanes, and connects them with links.
//!
//! The listening sockets are bound first, so a port in use is reported at once. The front lane and
//! the ops lane start next, and answer while the model loads. The calling thread loads the model.
//! Then the decode lane, the mask lane and the worker lanes start.

mod draft;
mod embed;
mod share;
mod size;
mod thread;
mod workers;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use glommio::{LocalExecutorBuilder, Placement as GlommioPlacement};
use rtrb::{Producer, RingBuffer};

use crate::api::route;
use crate::chat::named;
use crate::chat::prompt::ChatModel;
use crate::config::ServeConfig;
use crate::decode::draft::Drafter;
use crate::decode::{self, DecodeLane, calibrate, mask_lane};
use crate::limits::{
    LANE_STACK_BYTES, LANES_END_TIMEOUT, MASK_TASKS_MAX, RESPONSES_SHARE, RING_CAPACITY,
    SEQUENCE_TOKENS_MAX, SPANS_QUEUED_MAX,
};
use crate::memory;
use crate::metrics::{Metrics, State};
use crate::model::Backend;
use crate::model::fake::{FakeModel, FakeOptions, N_VOCAB};
use crate::model::llama::LlamaDecoder;
use crate::model::load::{Loaded, Source, load};
use crate::model::vocab::Vocab;
use crate::ops;
use crate::page;
use crate::placement::{BESIDE_STREAMS, LAST, Topology, pin_this_thread, yield_to_others};
use crate::prepare::ServedModel;
use crate::profile;
use crate::ring::bell::SocketBell;
use crate::ring::message::Batch;
use crate::ring::{self, LaneLink};
use crate::scheduler::Capacity;
use crate::server::listener::Address;
use crate::server::{self, Control, FrontConfig, FrontLinks, ServiceParts, kernel, listener};
use crate::systemd::{self, Watchdog};
use crate::traces::{self, Collector, Span};
use crate::types::{Calibration, ModelInfo};
pub(crate) use draft::NewDraft;
use draft::load_draft;
use size::cells_of_one;
pub(crate) use size::{capacity, context_config, guessing, spin};
use thread::{pins, spawn, start_pinned, wait_for};
use workers::{NewEmbedder, Starter, embedder};

/// Memory of the front lane's ring for buffers of files, which the lane does not use: glommio's
/// least. Its own choice, 10 MiB, exceeds the 8 MiB that users may usually lock.
const IO_MEMORY_BYTES: usize = 64 * 1024;

/// Interval at which glommio interrupts tasks of the front lane: as good as never. If its timer
/// expires before any task has run, glommio 0.9 believes that there is nothing to do, and sleeps
/// (its pull request 53 fixes that, and is in no release yet). Long tasks yield by themselves.
const PREEMPT_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Makes a lane that panics end the process: a server that accepts requests and never answers is
/// worse than none. (`panic = "abort"` would do the same, but would build every dependency a second
/// time for the tests.)
///
/// **Invariant:** a panic on a connection of the ops lane ends only that connection. It is reported
/// without a backtrace, because a coroutine's stack is too small for one.
pub fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if crate::chat::is_rendering() {
            return; // it ends one request, which says so
        }
        if profile::is_on_its_thread() {
            let reason = panic.payload_as_str().unwrap_or_default();
            tracing::error!(reason, at = ?panic.location(), "a profile failed");
            return;
        }
        if ops::is_on_a_connection() {
            let reason = panic.payload_as_str().unwrap_or_default();
            tracing::error!(reason, at = ?panic.location(), "a connection of the ops lane failed");
            return;
        }
        report(panic);
        std::process::abort();
    }));
}

/// A server. Its front lane runs; its model may still be loading.
pub struct Server {
    addresses: Vec<Address>,
    /// The model's file; `None` for the built-in model.
    path: Option<PathBuf>,
    control: Arc<Control>,
    config: ServeConfig,
    metrics: Arc<Metrics>,
    ready: Producer<ServiceParts>,
    front: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
    ops: Option<OpsLane>,
    /// The memory for requests outside the KV cache.
    request_bytes: usize,
}

/// The models of the decode lane, and their measured steps.
type Made<B> = (B, Option<Box<dyn Drafter>>, Calibration);

/// The ops lane. It runs until it is stopped.
struct OpsLane {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Binds the addresses and starts the front lane and the ops lane.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn start(config: ServeConfig) -> Result<Self, String> {
        config.check()?;
        kernel::check()?;
        kernel::allow_many_descriptors();
        let inherited = systemd::take_sockets()?;
        let hands_over = !inherited.is_empty();
        let listeners = if hands_over {
            tracing::info!(
                "the service manager gives the sockets: --host and --port have no effect"
            );
            listener::inherit(inherited)?
        } else {
            listener::bind(&config.hosts, config.port)?
        };
        let addresses = listeners.iter().map(|listener| listener.address().clone()).collect();
        let ops = config.ops_addr.as_deref().map(ops::bind).transpose()?;
        let metrics = Arc::new(Metrics::new(config.clock, route::paths().chain(page::paths())));
        let (bell, bell_socket) =
            SocketBell::new().map_err(|error| format!("cannot make a socket pair: {error}"))?;
        let control = Arc::new(Control::new(Arc::new(bell), config.keys.clone()));
        let request_bytes = memory::request_bytes(config.request_memory, memory::available_bytes());
        let (ready, ready_rx) = RingBuffer::new(1);
        let front_config = front_config(&config, request_bytes, hands_over, &metrics);
        let mut others = Vec::new();
        let spans = start_spans(&config, &metrics, &mut others)?;
        let links = FrontLinks { listeners, bell_socket, ready: ready_rx, spans };
        let front = start_front(&config, front_config, &control, links)?;
        let ops = ops.map(|bound| start_ops(&config, bound, &metrics)).transpose();
        let ops = ops.inspect_err(|_| control.drain())?; // the front lane need not stay
        Ok(Self {
            addresses,
            path: None,
            control,
            config,
            metrics,
            ready,
            front,
            others,
            ops,
            request_bytes,
        })
    }

    /// Loads a model and serves it. `progress` gets the loaded part, from 0 to 1. Returns `None` if
    /// a drain began meanwhile.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn load(
        &mut self,
        source: &Source,
        mut progress: impl FnMut(f32) + 'static,
    ) -> Result<Option<Arc<ServedModel>>, String> {
        let control = self.control.clone();
        let progress = move |done| {
            progress(done);
            !control.is_draining()
        };
        let loaded = match load(source, self.config.kernels, progress) {
            Ok(loaded) if !self.control.is_draining() => loaded,
            Err(error) if !self.control.is_draining() => return Err(error.to_string()),
            _ => return Ok(None),
        };
        if let Source::File(path) = source {
            self.path = Some(path.clone());
        }
        match self.serve_loaded(&loaded) {
            Err(_) if self.control.is_draining() => Ok(None), // the draft model's loading ended
            served => served.map(Some),
        }
    }

    /// Serves a model that is already in memory.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn serve_loaded(&mut self, loaded: &Loaded) -> Result<Arc<ServedModel>, String> {
        // With a recurrent model, llama.cpp computes sequences with different numbers of rows
        // separately.
        self.config.cache.unified &= !loaded.info.is_recurrent;
        let draft = load_draft(&self.config, loaded, self.control.clone())?;
        let slots = self.config.parallel as u32; // at most SLOTS_MAX
        let available = memory::available_bytes();
        // Both models hold a text. Their sizes are for 16 bits; the layout may need less.
        let models = [Some(loaded), draft.as_ref()].into_iter().flatten();
        let kv_bytes: u64 = models.map(|model| model.info.kv_bytes_per_token).sum();
        let kv_bytes_per_token = (kv_bytes as f64 * self.config.cache.relative_size()) as u64;
        let sized = ModelInfo { kv_bytes_per_token, ..loaded.info.clone() };
        let asked = self.config.context_tokens;
        let requests = (self.request_bytes + self.request_bytes / RESPONSES_SHARE) as u64;
        let context_tokens = memory::choose_context(asked, slots, &sized, requests, available)?;
        let abort = self.control.abort.clone();
        let context = context_config(&self.config, loaded, context_tokens, abort);
        let trained = loaded.info.context_trained.clamp(1, SEQUENCE_TOKENS_MAX as u32);
        let sequence_tokens = cells_of_one(&self.config, context_tokens).min(trained);
        let (model, vocab, info) =
            (loaded.model.clone(), loaded.vocab.clone(), loaded.info.clone());
        let embedder = embedder(&self.config, loaded, &context)?;
        let draft = draft.map(|draft| NewDraft::new(&draft, loaded, &context));
        let fixed_threads = self.config.fixed_threads;
        let make_models = move || {
            let mut model = LlamaDecoder::new(model, &context)?;
            let most = model.threads();
            // A number that the user gave is an order.
            let threads =
                if fixed_threads { calibrate::all(most) } else { calibrate::candidates(most) };
            // More rows than llama.cpp computes at once would be several passes.
            let (slots, rows) = (context.slots as usize, context.ubatch_rows as usize);
            let tokens = sequence_tokens as usize;
            let calibration = calibrate::calibrate(&mut model, slots, rows, tokens, &threads)
                .unwrap_or_else(|error| {
                    // One for embeddings alone may need no such step.
                    tracing::warn!(%error, "the model's steps cannot be measured");
                    Calibration::default()
                });
            let drafter = draft.map(|draft| draft.make(&model, |draft| draft)).transpose()?;
            Ok((model, drafter, calibration))
        };
        self.serve(vocab, info, context_tokens, sequence_tokens, make_models, embedder)
    }

    /// Serves the fake model, for tests.
    ///
    /// # Errors
    /// A sentence, as for a real model.
    pub fn load_fake(&mut self, options: FakeOptions) -> Result<Arc<ServedModel>, String> {
        let info = ModelInfo {
            name: "fake".into(),
            n_vocab: N_VOCAB,
            context_trained: 4096,
            ..ModelInfo::default()
        };
        let context_tokens = self.config.context_tokens.unwrap_or(64 * 1024);
        let sequence_tokens = context_tokens.min(info.context_trained);
        let (slots, rows) = (self.config.parallel, self.config.batch_rows);
        let abort = self.control.abort.clone();
        let make = move || {
            let fake = FakeModel::new(slots, context_tokens as usize, rows, options);
            Ok((fake.with_abort(abort), None, Calibration::default()))
        };
        let vocab = Arc::new(Vocab::of_fake());
        self.serve(vocab, info, context_tokens, sequence_tokens, make, None)
    }

    fn serve<B: crate::model::Backend>(
        &mut self,
        vocab: Arc<Vocab>,
        info: ModelInfo,
        context_tokens: u32,
        sequence_tokens: u32,
        make_models: impl FnOnce() -> Result<Made<B>, String> + Send + 'static,
        embedder: Option<NewEmbedder>,
    ) -> Result<Arc<ServedModel>, String> {
        let config = &self.config;
        let name = config.aliases.first().unwrap_or(&info.name).clone();
        let capacity = capacity(config, context_tokens, sequence_tokens);
        let reuse = capacity.reuse && !info.is_recurrent;
        let capacity = Capacity { reuse, ..capacity };
        let guessing = guessing(config, &info);
        let (front_link, decode_link) =
            ring::link(RING_CAPACITY, self.control.bell.clone(), spin(config));
        let end_tokens: Box<[_]> = vocab.end_tokens().into();
        let (slots, tokens) = (config.parallel, sequence_tokens as usize);
        let cores = pins(&config.placement);
        let metrics = self.metrics.clone();
        let looks_up = config.speculation.looks_up();
        let calibration = Arc::new(OnceLock::new());
        let measured = calibration.clone();
        let decode = start_decode(decode_link, cores, move || {
            let (model, drafter, calibration) = make_models()?;
            measured.set(calibration).expect("it is measured once");
            let lane = DecodeLane::new(model, slots, tokens, end_tokens, metrics);
            Ok(lane.with_guesses(looks_up, drafter))
        })?;
        self.others.push(decode);
        let (masks, mask_lane) =
            ring::link(MASK_TASKS_MAX, self.control.bell.clone(), Duration::ZERO);
        let (weights, metrics) = (config.weights(), self.metrics.clone());
        self.others.push(spawn("masks", LANE_STACK_BYTES, move || {
            yield_to_others(BESIDE_STREAMS);
            mask_lane::run(mask_lane, &weights, &metrics);
        })?);

        let chat = chat_model(config, &info, &vocab)?;
        let model = Arc::new(ServedModel {
            vocab,
            info,
            name,
            aliases: config.aliases.clone(),
            tags: config.tags.clone(),
            path: self.path.clone(),
            chat,
            context_tokens,
            sequence_tokens,
            slots: config.parallel,
            calibration: calibration.get().cloned().unwrap_or_default(),
            embeds: embedder.as_ref().map(|(embeds, _)| embeds.clone()),
            spm_infill: config.spm_infill,
            guessing,
            n_predict: config.n_predict,
        });
        let workers = Starter {
            config,
            bell: &self.control.bell,
            metrics: &self.metrics,
            model: &model,
            started: &mut self.others,
        };
        let workers = workers.start(embedder.map(|(_, make)| make))?;
        self.metrics.set_model(&model.name, model.info.kernels.name);
        let decode = front_link;
        let parts = ServiceParts { model: model.clone(), capacity, decode, masks, workers };
        assert!(self.ready.push(parts).is_ok(), "a server loads one model");
        self.control.bell.ring();
        // Return only when requests are served, so that the caller's first request is not answered
        // 503.
        while self.metrics.front.state() == State::Loading && !self.front.is_finished() {
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(model)
    }

    /// The addresses that it listens on.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The first IP address that it listens on.
    ///
    /// # Panics
    /// If it listens only on Unix sockets.
    pub fn address(&self) -> SocketAddr {
        let tcp = |address: &Address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        };
        self.addresses.iter().find_map(tcp).expect("it listens on an IP address")
    }

    /// A handle to end the server from any thread.
    pub fn control(&self) -> Arc<Control> {
        self.control.clone()
    }

    /// The address of the metrics, if they are on.
    pub fn ops_address(&self) -> Option<SocketAddr> {
        self.ops.as_ref().map(|ops| ops.address)
    }

    /// The metrics of all lanes.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Waits until the server has drained and every lane has ended, the ops lane last.
    ///
    /// # Errors
    /// A sentence, if a lane does not end.
    pub fn join(self) -> Result<(), String> {
        let Self { ready, front, others, ops, .. } = self;
        drop(ready);
        front.join().expect("a lane that panics ends the process");
        let began = Instant::now();
        others.iter().for_each(|lane| lane.thread().unpark()); // one waits for time to pass
        for lane in others {
            while !lane.is_finished() {
                if began.elapsed() > LANES_END_TIMEOUT {
                    let name = lane.thread().name().unwrap_or_default().to_owned();
                    return Err(format!("the {name} lane still runs after {LANES_END_TIMEOUT:?}"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            lane.join().expect("a lane that panics ends the process");
        }
        if let Some(ops) = ops {
            ops.stop.store(true, Ordering::Release);
            ops.thread.thread().unpark();
            ops.thread.join().expect("a lane that panics ends the process");
        }
        Ok(())
    }
}

/// The chat template: the user's, or the model's own. If the model's own cannot be read, that is
/// only a warning, because everything else works.
fn chat_model(
    config: &ServeConfig,
    info: &ModelInfo,
    vocab: &Vocab,
) -> Result<Option<ChatModel>, String> {
    let new = |source: &str| ChatModel::new(source, &vocab.bos_text(), &vocab.eos_text());
    if let Some(given) = &config.chat_template {
        let source = template_source(given)?;
        return new(&source).map(Some).map_err(|error| format!("--chat-template: {error}"));
    }
    let model = info.chat_template.as_deref().map(new).transpose();
    Ok(model.unwrap_or_else(|error| {
        tracing::warn!(%error, "the model's chat template cannot be used");
        None
    }))
}

/// The source of a template that the user gave: by its name, or whole.
fn template_source(given: &str) -> Result<Cow<'_, str>, String> {
    if let Some(source) = named::source(given) {
        return Ok(source.into());
    }
    // Without an expression, every prompt would be this text.
    if given.contains("{{") || given.contains("{%") {
        return Ok(given.into());
    }
    let names: Vec<&str> = named::names().collect();
    Err(format!(
        "--chat-template {given:?} is neither a template in Jinja, which has {{{{ }}}} or {{% %}}, \
         nor one of these names: {}",
        names.join(", ")
    ))
}

fn front_config(
    config: &ServeConfig,
    request_bytes: usize,
    hands_over: bool,
    metrics: &Arc<Metrics>,
) -> FrontConfig {
    FrontConfig {
        connections: config.connections,
        ping_interval: config.ping_interval,
        metrics_page: config.metrics.then_some(ops::page_of),
        page: if config.ui { page::files() } else { &[] },
        cors_origins: config.cors_origins.clone(),
        allowed_hosts: config.allowed_hosts.clone(),
        request_bytes,
        weights: config.weights(),
        share_cache: config.share_cache,
        request_timeout: config.request_timeout,
        step_timeout: config.step_timeout,
        drain: config.drain,
        hands_over,
        watchdog: Watchdog::of_environment(),
        polls: !config.placement.is_shared(),
        seed: config.seed,
        entropy: config.entropy,
        metrics: metrics.clone(),
    }
}

fn start_front(
    config: &ServeConfig,
    front_config: FrontConfig,
    control: &Arc<Control>,
    links: FrontLinks,
) -> Result<JoinHandle<()>, String> {
    let (core, pinned) = (config.placement.front_core, config.placement.pinned);
    // A polling lane yields its core to look at its sockets. If it slept for that, glommio would
    // interrupt all other cores of the process each time (`membarrier`), also those of the model.
    let spin = spin(config);
    let control = control.clone();
    // The executor is made on its own thread, which reports the result.
    let (mut outcome_tx, mut outcome) = RingBuffer::<Result<(), String>>::new(1);
    let handle = spawn("front", LANE_STACK_BYTES, move || {
        let place = if pinned { GlommioPlacement::Fixed(core) } else { GlommioPlacement::Unbound };
        let executor = LocalExecutorBuilder::new(place)
            .preempt_timer(PREEMPT_EVERY)
            .io_memory(IO_MEMORY_BYTES)
            .spin_before_park(spin)
            .make();
        match executor {
            Ok(executor) => {
                let _ = outcome_tx.push(Ok(()));
                drop(outcome_tx);
                executor.run(server::run(front_config, control, links))
            }
            Err(error) => {
                let _ = outcome_tx.push(Err(format!("cannot start the front lane: {error}")));
            }
        }
    })?;
    wait_for(&mut outcome, "the front lane")?;
    Ok(handle)
}

/// Starts the lane that sends spans, if there is a collector for them.
fn start_spans(
    config: &ServeConfig,
    metrics: &Arc<Metrics>,
    started: &mut Vec<JoinHandle<()>>,
) -> Result<Option<Producer<Span>>, String> {
    let Some(endpoint) = &config.otlp else { return Ok(None) };
    let cores = Topology::read()?.housekeeping(&config.placement);
    let pinned = config.placement.pinned;
    let collector = Collector::new(endpoint.clone(), metrics.clone());
    let (spans, ended) = RingBuffer::new(SPANS_QUEUED_MAX);
    started.push(spawn("spans", LANE_STACK_BYTES, move || {
        // On other cores, it would only be sooner.
        let _ = if pinned { pin_this_thread(&cores) } else { Ok(()) };
        yield_to_others(LAST);
        traces::run(ended, collector);
    })?);
    Ok(Some(spans))
}

fn start_ops(
    config: &ServeConfig,
    bound: ops::Bound,
    metrics: &Arc<Metrics>,
) -> Result<OpsLane, String> {
    let cores = Topology::read()?.housekeeping(&config.placement);
    let (address, metrics) = (bound.address(), metrics.clone());
    let (pinned, profiling) = (config.placement.pinned, config.profiling);
    let stop = Arc::new(AtomicBool::new(false));
    let (mut outcome_tx, mut outcome) = RingBuffer::<Result<(), String>>::new(1);
    let thread = spawn("ops", LANE_STACK_BYTES, {
        let stop = stop.clone();
        move || {
            // Threads that this one starts inherit the cores and the priority.
            let started = (if pinned { pin_this_thread(&cores) } else { Ok(()) }).and_then(|()| {
                yield_to_others(LAST);
                ops::start(bound, metrics, profiling)
            });
            match started {
                Ok(lane) => {
                    let _ = outcome_tx.push(Ok(()));
                    drop(outcome_tx);
                    lane.run(&stop);
                }
                Err(error) => {
                    let _ = outcome_tx.push(Err(error));
                }
            }
        }
    })?;
    wait_for(&mut outcome, "the ops lane")?;
    Ok(OpsLane { address, stop, thread })
}

pub(crate) fn start_decode<B: crate::model::Backend>(
    link: LaneLink<Batch>,
    cores: Vec<usize>,
    make_lane: impl FnOnce() -> Result<DecodeLane<B>, String> + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    start_pinned("decode", cores, make_lane, move |lane| decode::run(lane, link))
}
