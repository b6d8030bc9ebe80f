//! Starts the lanes, and connects them with links.
//!
//! The listening sockets are bound first, so a port in use is reported at once. The front lane and
//! the ops lane start next, and answer while the model loads. The calling thread loads the model.
//! Then the decode lane, the mask lane and the worker lanes start.

mod context;
mod decode;
mod disk;
mod draft;
mod embed;
mod fake;
mod front;
mod outside;
mod pages;
mod panics;
mod share;
mod size;
mod thread;
mod workers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rtrb::{Producer, RingBuffer};

use self::context::{CacheSizes, checkpoint_interval, choose_caches, generates, trained};
pub use self::context::{choose_context, choose_rollback};
use self::decode::Models;
pub use self::decode::start_decode;
use self::disk::Folders;
pub use self::draft::NewDraft;
use self::draft::load_draft;
use self::front::{front_config, start_front};
use self::outside::{OpsLane, start_ops, start_spans};
use self::pages::{choose_pages, stores_prefixes};
pub use self::panics::end_on_panic;
use self::size::{Sizes, cells_of_one};
pub use self::size::{capacity, context_config, guessing, spin};
use self::thread::{pins, spawn};
use self::workers::{NewEmbedder, Starter, embedder};
use crate::api::route;
use crate::chat::chosen;
use crate::config::ServeConfig;
use crate::decode::{DecodeLane, mask_lane};
use crate::limits::{
    LANE_STACK_BYTES, LANES_END_TIMEOUT, MASK_TASKS_MAX, RESPONSES_SHARE, RING_CAPACITY,
};
use crate::memory::{Kept, KeptSizes};
use crate::metrics::{Metrics, ServerState};
use crate::model::footprint::{Footprint, footprint};
use crate::model::llama::ContextConfig;
use crate::model::load::{Loaded, Source, load};
use crate::model::vocab::Vocab;
use crate::placement::{BESIDE_STREAMS, yield_to_others};
use crate::prepare::ServedModel;
use crate::ring::bell::SocketBell;
use crate::scheduler::{Capacity, States};
use crate::server::listener::Address;
use crate::server::{Control, FrontLinks, ServiceParts, kernel, listener};
use crate::types::ModelInfo;
use crate::{memory, ops, page, ring, systemd};

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

impl Server {
    /// Binds the addresses and starts the front lane and the ops lane.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn start(config: ServeConfig) -> Result<Self, String> {
        config.check()?;
        let (io, missing) = kernel::choose_io(config.io)?;
        if let Some(missing) = missing {
            tracing::info!("the front lane uses epoll, because {missing}");
        }
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
        let front_config = front_config(&config, request_bytes, hands_over, io, &metrics);
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
        let requests = (self.request_bytes + self.request_bytes / RESPONSES_SHARE) as u64;
        let is_recurrent = loaded.info.is_recurrent;
        let mut footprint = self.footprint(loaded)?;
        // What cannot be saved cannot be shared.
        self.config.cache.unified &= !is_recurrent || footprint.state > 0;
        let draft = load_draft(&self.config, loaded, footprint.goes_back, self.control.clone())?;
        let (draft_info, available) =
            (draft.as_ref().map(|draft| &draft.info), memory::available_bytes());
        let choose = |config: &ServeConfig, footprint| {
            choose_caches(config, &loaded.info, draft_info, footprint, requests, available)
        };
        let mut caches = choose(&self.config, footprint)?;
        if caches.context_tokens < caches.window_cells {
            let CacheSizes { context_tokens, window_cells, .. } = caches;
            tracing::info!(
                context_tokens,
                window_cells,
                "the windows of all requests need more cells than the context has, so layers with a \
                 sliding window keep all; a larger --ctx-size or a smaller --parallel changes that"
            );
            self.config.cache.swa_full = true;
            footprint = Footprint::default();
            caches = choose(&self.config, footprint)?;
        }
        let CacheSizes { checkpoints, logits, rollback, context_tokens, spare, .. } = caches;
        if footprint.window > 0 {
            let of = |cells: u32| memory::gib(u64::from(cells) * footprint.window_cell as u64);
            let (gib, in_place_of) = (of(caches.window_cells), of(context_tokens));
            tracing::info!(tokens = footprint.window, gib, in_place_of, "sliding window");
        }
        let abort = self.control.abort.clone();
        let has_states = is_recurrent || footprint.window > 0;
        let stores = !has_states || checkpoints > 0; // a page is of use only before a state
        let stored = if stores { footprint } else { Footprint::default() };
        let (pages, page_bytes) = choose_pages(&self.config, stored, spare)?;
        let context = ContextConfig {
            state_bytes: footprint.state,
            rollback,
            window: footprint.window as u32, // llama.cpp's number
            stores_pages: pages.count > 0,
            ..context_config(&self.config, loaded, context_tokens, abort)
        };
        let states = has_states.then(|| {
            let interval = checkpoint_interval(footprint);
            States { checkpoints, interval, is_recurrent }
        });
        let trained = trained(&loaded.info) as u32; // at most SEQUENCE_TOKENS_MAX
        let sequence_tokens = cells_of_one(&self.config, context_tokens).min(trained);
        let (model, vocab, info) =
            (loaded.model.clone(), loaded.vocab.clone(), loaded.info.clone());
        let embedder = embedder(&self.config, loaded, &context)?;
        let draft = draft.map(|draft| NewDraft::new(&draft, loaded, &context));
        let fixed_threads = self.config.fixed_threads;
        let generates = generates(&self.config, &info);
        let make_models = move || {
            let tokens = sequence_tokens as usize;
            decode::make_models(model, &context, draft, tokens, fixed_threads, generates)
        };
        let kept = KeptSizes {
            pages: pages.count,
            page_tokens: pages.tokens,
            page_bytes,
            states: checkpoints,
            state_bytes: footprint.state,
            logits,
            n_vocab: info.n_vocab,
        };
        let folders = disk::open_folders(&self.config, &loaded.info, self.path.as_deref(), kept)?;
        let sizes = Sizes { context_tokens, sequence_tokens, states, rollback, pages, kept };
        self.serve(vocab, info, sizes, folders, make_models, embedder)
    }

    /// What llama.cpp writes for a sequence, if that is ever needed.
    fn footprint(&self, loaded: &Loaded) -> Result<Footprint, String> {
        let info = &loaded.info;
        let generates = generates(&self.config, info);
        let stores = stores_prefixes(&self.config) && generates;
        // With a sliding window, the size of the cache follows from it.
        let is_needed = stores || info.is_recurrent || (generates && info.window > 0);
        if !is_needed {
            return Ok(Footprint::default());
        }
        footprint(&loaded.model, self.config.cache).or_else(|error| {
            // A model for embeddings alone may have no such step.
            tracing::warn!(%error, "no prefix store: the size of the model's cache is not known");
            if info.is_recurrent { Err(error) } else { Ok(Footprint::default()) }
        })
    }

    fn serve<B: crate::model::Backend>(
        &mut self,
        vocab: Arc<Vocab>,
        info: ModelInfo,
        sizes: Sizes,
        folders: Option<Folders>,
        make_models: impl FnOnce() -> Result<Models<B>, String> + Send + 'static,
        embedder: Option<NewEmbedder>,
    ) -> Result<Arc<ServedModel>, String> {
        let config = &self.config;
        let name = config.aliases.first().unwrap_or(&info.name).clone();
        let Sizes { context_tokens, sequence_tokens, states, rollback, pages, kept } = sizes;
        let store_bytes = kept.pages as u64 * kept.page_bytes as u64;
        let logits = kept.logits;
        let kept = Arc::new(Kept::new(kept)?);
        let capacity = capacity(config, context_tokens, sequence_tokens);
        let files = folders.as_ref().map(|folders| folders.sizes);
        let capacity = Capacity { states, logits, pages, files, ..capacity };
        let guessing = guessing(config, &info, rollback);
        let mut files = None;
        if let Some(folders) = folders {
            let (metrics, bell) = (self.metrics.clone(), self.control.bell.clone());
            let (link, thread) = disk::start_disk(folders, kept.clone(), metrics, bell)?;
            files = Some(link);
            self.others.push(thread);
        }
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
            let models = make_models()?;
            measured.set(models.calibration).expect("it is measured once");
            let lane = DecodeLane::new(models.served, slots, tokens, end_tokens, metrics);
            let lane = lane.with_guesses(looks_up, models.drafter);
            Ok(lane.with_kept(kept))
        })?;
        self.others.push(decode);
        let (masks, mask_lane) =
            ring::link(MASK_TASKS_MAX, self.control.bell.clone(), Duration::ZERO);
        let (weights, metrics) = (config.weights(), self.metrics.clone());
        self.others.push(spawn("masks", LANE_STACK_BYTES, move || {
            yield_to_others(BESIDE_STREAMS);
            mask_lane::run(mask_lane, &weights, &metrics);
        })?);

        let (bos, eos) = (vocab.bos_text(), vocab.eos_text());
        let own_template = info.chat_template.as_deref();
        let chat = chosen::template(config.chat_template.as_deref(), own_template, &bos, &eos)?;
        let chat = chat.map(|chat| {
            chat.with_fenced_calls(config.fenced_calls)
                .with_reasoning_budget(config.reasoning_budget)
                .with_branches(states.is_some())
        });
        let sampling = config.sampling.or(info.sampling);
        let model = Arc::new(ServedModel {
            vocab,
            info,
            name,
            aliases: config.aliases.clone(),
            tags: config.tags.clone(),
            path: self.path.clone(),
            chat,
            context_tokens,
            store_bytes,
            sequence_tokens,
            slots: config.parallel,
            calibration: calibration.get().cloned().unwrap_or_default(),
            embeds: embedder.as_ref().map(|(embeds, _)| embeds.clone()),
            spm_infill: config.spm_infill,
            guessing,
            n_predict: config.n_predict,
            sampling,
            system_prompt: config.system_prompt.clone(),
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
        let parts = ServiceParts { model: model.clone(), capacity, decode, masks, files, workers };
        assert!(self.ready.push(parts).is_ok(), "a server loads one model");
        self.control.bell.ring();
        // Return only when requests are served, so that the caller's first request is not answered
        // 503.
        while self.metrics.front.state() == ServerState::Loading && !self.front.is_finished() {
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
            ops.end();
        }
        Ok(())
    }
}
