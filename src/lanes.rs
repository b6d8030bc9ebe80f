//! Starts the lanes and wires the rings between them.
//!
//! The listening socket is bound first, so a port in use is known at once; the
//! front lane starts next, and answers 503 while the model loads; then the
//! model is loaded on the calling thread, and the decode lane and the prepare
//! lane start.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement as GlommioPlacement};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::config::ServeConfig;
use crate::decode::{self, DecodeLane};
use crate::front::prepare::{self, Serving};
use crate::front::{self, Control, FrontConfig, Ready, Report, kernel, listener};
use crate::limits::{SEQUENCE_TOKENS_MAX, SPIN_BEFORE_PARK};
use crate::model::fake::{FakeModel, FakeOptions};
use crate::model::llama::{ContextConfig, LlamaBackend};
use crate::model::load::{Loaded, Source, load};
use crate::model::vocab::Vocab;
use crate::placement::pin_this_thread;
use crate::ring::bell::SocketBell;
use crate::ring::{self, DecodeLink};
use crate::scheduler::Capacity;
use crate::types::ModelInfo;

/// A server whose front lane runs, and whose model may still be loading.
pub struct Server {
    address: SocketAddr,
    control: Arc<Control>,
    config: ServeConfig,
    ready: Producer<Ready>,
    front: JoinHandle<Report>,
    others: Vec<JoinHandle<()>>,
}

/// What became of loading.
#[derive(Clone, Debug)]
pub struct Served {
    /// The model.
    pub info: ModelInfo,
    /// The name that clients see.
    pub name: String,
    /// KV cells.
    pub context_tokens: u32,
    /// Tokens that one request may have.
    pub sequence_tokens: u32,
}

impl Server {
    /// Binds the address and starts the front lane.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn start(config: ServeConfig) -> Result<Self, String> {
        config.check()?;
        kernel::check()?;
        let listener = listener::bind(&config.host, config.port)?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let (bell, bell_socket) =
            SocketBell::new().map_err(|error| format!("cannot make a socket pair: {error}"))?;
        let control = Arc::new(Control::new(Arc::new(bell)));
        let (ready, ready_rx) = RingBuffer::new(1);
        let front = start_front(&config, &control, listener, bell_socket, ready_rx)?;
        Ok(Self { address, control, config, ready, front, others: Vec::new() })
    }

    /// Loads a model, and serves it. `progress` is told how far loading is,
    /// from 0 to 1.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn load(
        &mut self,
        source: &Source,
        progress: impl FnMut(f32) + 'static,
    ) -> Result<Served, String> {
        let Loaded { model, vocab, info } = load(source, progress).map_err(|e| e.to_string())?;
        let context_tokens = self.choose_context(&info)?;
        let context = ContextConfig {
            context_tokens,
            slots: self.config.parallel as u32, // at most SLOTS_MAX
            step_rows: self.config.batch_rows as u32, // at most STEP_ROWS_MAX
            ubatch_rows: self.config.ubatch_rows as u32,
            decode_cores: self.config.placement.decode_cores.clone(),
            poll: self.config.poll,
        };
        let sequence_tokens = context_tokens.min(info.context_trained.max(1));
        self.serve(vocab, info, context_tokens, sequence_tokens, move || {
            LlamaBackend::new(model, &context)
        })
    }

    /// Serves the fake model, for tests.
    ///
    /// # Errors
    /// A sentence, as for a real model.
    pub fn load_fake(&mut self, options: FakeOptions) -> Result<Served, String> {
        let info = ModelInfo { name: "fake".into(), context_trained: 4096, ..ModelInfo::default() };
        let context_tokens = self.config.context_tokens.unwrap_or(64 * 1024);
        let sequence_tokens = context_tokens.min(info.context_trained);
        let (slots, rows) = (self.config.parallel, self.config.batch_rows);
        self.serve(Arc::new(Vocab::of_fake()), info, context_tokens, sequence_tokens, move || {
            Ok(FakeModel::new(slots, sequence_tokens as usize, rows, options))
        })
    }

    fn serve<B: crate::model::Backend>(
        &mut self,
        vocab: Arc<Vocab>,
        info: ModelInfo,
        context_tokens: u32,
        sequence_tokens: u32,
        make_backend: impl FnOnce() -> Result<B, String> + Send + 'static,
    ) -> Result<Served, String> {
        let config = &self.config;
        let name = config.alias.clone().unwrap_or_else(|| info.name.clone());
        let capacity = Capacity {
            slots: config.parallel,
            // More rows than llama.cpp computes at once would only be split.
            step_rows: config.batch_rows.min(config.ubatch_rows).max(config.parallel),
            prefill_tokens_beside_decode: config.prefill_rows,
            context_tokens,
            sequence_tokens,
            queue_sequences: crate::limits::QUEUE_SEQUENCES,
        };
        let spin = if config.placement.is_shared() { Duration::ZERO } else { SPIN_BEFORE_PARK };
        let (front_link, decode_link) = ring::link(self.control.bell.clone(), spin);
        let end_tokens: Box<[_]> = vocab.end_tokens().into();
        let (slots, tokens) = (config.parallel, sequence_tokens as usize);
        let cores = config.placement.decode_cores.clone();
        let decode = start_decode(decode_link, cores, move || {
            Ok(DecodeLane::new(make_backend()?, slots, tokens, end_tokens))
        })?;
        self.others.push(decode);

        let serving = Arc::new(Serving {
            vocab,
            info: info.clone(),
            name: name.clone(),
            sequence_tokens,
            n_predict: config.n_predict,
        });
        let (prepare, run) = prepare::lane(serving.clone(), self.control.bell.clone());
        self.others.push(spawn("prepare", run)?);
        let ready = Ready { serving, capacity, link: front_link, prepare };
        assert!(self.ready.push(ready).is_ok(), "a server loads one model");
        self.control.bell.ring();
        Ok(Served { info, name, context_tokens, sequence_tokens })
    }

    /// The KV cache's size in tokens: what was asked for, or what eight
    /// requests of usual length need; refused when memory does not hold it.
    fn choose_context(&self, info: &ModelInfo) -> Result<u32, String> {
        const USUAL_SEQUENCE_TOKENS: u32 = 2048;
        let trained = info.context_trained.clamp(1, SEQUENCE_TOKENS_MAX as u32);
        let slots = self.config.parallel as u32; // at most SLOTS_MAX
        let usual = trained.min(USUAL_SEQUENCE_TOKENS).saturating_mul(slots);
        let available = available_memory_bytes();
        let fits = available / 10 * 9 / info.kv_bytes_per_token.max(1);
        let usual = u64::from(usual.min(SEQUENCE_TOKENS_MAX as u32)).min(fits) as u32; // min of a u32
        let tokens = self.config.context_tokens.unwrap_or(usual);
        if u64::from(tokens) > fits {
            return Err(format!(
                "--ctx-size {tokens} needs {:.1} GiB of memory for the KV cache, and {:.1} GiB \
                 are available; at most {fits} tokens fit",
                gib(u64::from(tokens) * info.kv_bytes_per_token),
                gib(available),
            ));
        }
        if tokens < 2 * slots {
            return Err(format!(
                "{tokens} tokens of context are too few for {slots} sequences; memory holds no \
                 more: lower --parallel"
            ));
        }
        Ok(tokens)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle to end it with, from any thread.
    pub fn control(&self) -> Arc<Control> {
        self.control.clone()
    }

    /// Waits until it has drained and every lane has ended; tells what the
    /// front lane did.
    pub fn join(self) -> Report {
        let Self { ready, front, others, .. } = self;
        drop(ready);
        let report = front.join().expect("a lane that panics ends the process");
        for lane in others {
            lane.join().expect("a lane that panics ends the process");
        }
        report
    }
}

fn start_front(
    config: &ServeConfig,
    control: &Arc<Control>,
    listener: TcpListener,
    bell_socket: std::os::unix::net::UnixStream,
    ready: Consumer<Ready>,
) -> Result<JoinHandle<Report>, String> {
    let front_config = FrontConfig {
        api_keys: config.api_keys.clone(),
        drain: config.drain,
        polls: !config.placement.is_shared(),
        entropy: config.entropy,
    };
    let core = config.placement.front_core;
    let control = control.clone();
    // The executor is made on its own thread; whether that worked is told back.
    let (mut outcome_tx, mut outcome) = RingBuffer::<Result<(), String>>::new(1);
    let handle = spawn("front", move || {
        let executor = LocalExecutorBuilder::new(GlommioPlacement::Fixed(core)).make();
        match executor {
            Ok(executor) => {
                let _ = outcome_tx.push(Ok(()));
                drop(outcome_tx);
                executor.run(front::run(front_config, control, listener, bell_socket, ready))
            }
            Err(error) => {
                let _ = outcome_tx.push(Err(format!("cannot start the front lane: {error}")));
                Report::default()
            }
        }
    })?;
    wait_for(&mut outcome, "the front lane")?;
    Ok(handle)
}

fn start_decode<B: crate::model::Backend>(
    link: DecodeLink,
    cores: Vec<usize>,
    make_lane: impl FnOnce() -> Result<DecodeLane<B>, String> + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let (mut outcome_tx, mut outcome) = RingBuffer::<Result<(), String>>::new(1);
    let handle = spawn("decode", move || {
        // Pinned first, so that the memory it touches is near its core. ggml
        // pins this thread, too, when it makes its pool: to the last core.
        let last = &cores[cores.len() - 1..];
        let lane = pin_this_thread(last).and_then(|()| make_lane());
        match lane {
            Ok(lane) => {
                let _ = outcome_tx.push(Ok(()));
                drop(outcome_tx);
                decode::run(lane, link);
            }
            Err(error) => {
                let _ = outcome_tx.push(Err(error));
            }
        }
    })?;
    wait_for(&mut outcome, "the decode lane")?;
    Ok(handle)
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, String> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(run).map_err(|error| format!("cannot start the {name} lane: {error}"))
}

/// Waits, at start-up only, for a new lane to say how its start went.
fn wait_for(outcome: &mut Consumer<Result<(), String>>, lane: &str) -> Result<(), String> {
    loop {
        if let Ok(outcome) = outcome.pop() {
            return outcome;
        }
        if outcome.is_abandoned() && outcome.is_empty() {
            return Err(format!("{lane} ended before it began"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// `MemAvailable`, or no bound when the kernel does not tell.
fn available_memory_bytes() -> u64 {
    let read = || {
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    read().map_or(u64::MAX / 2, |kib| kib * 1024)
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}
