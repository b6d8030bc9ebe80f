//! Starts the worker lanes: the prepare lanes and the embed lane.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::embed::EmbedLane;
use super::size::embed_config;
use super::thread::{pins, spawn, start_pinned};
use crate::clock::utc_now;
use crate::config::ServeConfig;
use crate::limits::{
    COMPILE_STACK_BYTES, EMBEDDING_TOKENS_MAX, LANE_STACK_BYTES, PREPARE_SHORT_BYTES_MAX,
    TEXT_BYTES_MAX, TOKENISE_STACK_PER_BYTE,
};
use crate::memory::Stack;
use crate::metrics::{Metrics, WorkerMetrics};
use crate::model::embed::Embedder;
use crate::model::llama::ContextConfig;
use crate::model::load::Loaded;
use crate::placement::{BEHIND_STREAMS, BESIDE_STREAMS, yield_to_others};
use crate::prepare::lane::{self, PrepareTask, SharedTables};
use crate::prepare::worker::{self, Worker, WorkerLink};
use crate::prepare::{Embeds, Lane, ServedModel, Texts};
use crate::ring::bell::SocketBell;
use crate::server::Workers;
use crate::types::Pooling;

/// Stack of the first prepare lane.
const PREPARE_SHORT_STACK_BYTES: usize =
    LANE_STACK_BYTES + PREPARE_SHORT_BYTES_MAX * TOKENISE_STACK_PER_BYTE;

/// Stack of the second prepare lane. Mapped, and not touched before it is needed.
const PREPARE_STACK_BYTES: usize = TEXT_BYTES_MAX * TOKENISE_STACK_PER_BYTE;

/// Makes an embedder on the thread that will use it.
pub(super) type MakeEmbedder = Box<dyn FnOnce() -> Result<Embedder, String> + Send>;

/// The facts of an embed lane, and its embedder.
pub(super) type NewEmbedder = (Embeds, MakeEmbedder);

/// The embedder of a model that makes embeddings, or ranks, beside this context. A text is computed
/// in one go, so its memory is allocated at the start.
///
/// # Errors
/// A sentence for the user about a model that cannot rank.
pub(super) fn embedder(
    config: &ServeConfig,
    loaded: &Loaded,
    context: &ContextConfig,
) -> Result<Option<NewEmbedder>, String> {
    let Some(pooling) = config.pooling.or(loaded.info.pooling) else { return Ok(None) };
    if pooling == Pooling::Rank && !loaded.info.ranks {
        return Err(format!(
            "{} has no ranking head, which --pooling rank needs: the tensor cls.weight or \
             cls.output.weight",
            loaded.info.name
        ));
    }
    let tokens = loaded.info.context_trained.clamp(1, EMBEDDING_TOKENS_MAX as u32);
    let context = embed_config(context, tokens);
    let embeds = Embeds {
        matryoshka: config.matryoshka,
        query_prefix: config.query_prefix.clone(),
        document_prefix: config.document_prefix.clone(),
        ..Embeds::new(pooling, tokens as usize)
    };
    let model = loaded.model.clone();
    let make: MakeEmbedder = Box::new(move || Embedder::new(model, pooling, &context));
    Ok(Some((embeds, make)))
}

/// Everything that a worker lane starts with.
pub(super) struct Starter<'a> {
    pub config: &'a ServeConfig,
    /// Wakes the front lane.
    pub bell: &'a Arc<SocketBell>,
    pub metrics: &'a Arc<Metrics>,
    pub model: &'a Arc<ServedModel>,
    /// The threads of all lanes.
    pub started: &'a mut Vec<JoinHandle<()>>,
}

impl Starter<'_> {
    /// Starts the prepare lanes, and the embed lane if the model makes embeddings.
    pub fn start(mut self, embed: Option<MakeEmbedder>) -> Result<Workers, String> {
        let tables = SharedTables::default();
        Ok(Workers {
            short: self.start_short()?,
            long: self.start_long()?,
            compile: self
                .start_compile("prepare-compile", Lane::Compile, tables.clone(), |m| &m.compile)?,
            trial: self.start_compile("prepare-trial", Lane::Trial, tables, |m| &m.trial)?,
            embed: embed.map(|make| self.start_embed(make)).transpose()?,
        })
    }

    fn link<T>(&self) -> (WorkerLink<T>, Worker<T>) {
        worker::link(self.bell.clone(), &self.config.weights(), self.metrics.clock)
    }

    fn start_short(&mut self) -> Result<WorkerLink<PrepareTask>, String> {
        let (link, worker) = self.link();
        let (model, metrics) = (self.model.clone(), self.metrics.clone());
        let run = move || {
            worker.run(|task, wanted| {
                let began = metrics.clock.now();
                let outcome = lane::prepare(task, Lane::Short, &model, None, wanted, utc_now());
                metrics.prepare.time_us.observe(metrics.clock.now().since(began));
                outcome
            });
        };
        self.started.push(spawn("prepare", PREPARE_SHORT_STACK_BYTES, run)?);
        Ok(link)
    }

    fn start_long(&mut self) -> Result<WorkerLink<PrepareTask>, String> {
        let (link, worker) = self.link();
        let (model, metrics) = (self.model.clone(), self.metrics.clone());
        let run = move || {
            yield_to_others(BEHIND_STREAMS);
            let stack = Stack::of_this_thread(PREPARE_STACK_BYTES);
            worker.run(|task, wanted| {
                let began = metrics.clock.now();
                let outcome = lane::prepare(task, Lane::Long, &model, None, wanted, utc_now());
                metrics.prepare_long.time_us.observe(metrics.clock.now().since(began));
                // A word of a megabyte makes llama.cpp touch half a gigabyte of it.
                stack.give_back();
                outcome
            });
        };
        self.started.push(spawn("prepare-long", PREPARE_STACK_BYTES, run)?);
        Ok(link)
    }

    /// Starts a lane that compiles. It makes the tables at once, so that no request waits for them.
    fn start_compile(
        &mut self,
        name: &str,
        here: Lane,
        tables: SharedTables,
        own: fn(&Metrics) -> &WorkerMetrics,
    ) -> Result<WorkerLink<PrepareTask>, String> {
        let (link, worker) = self.link();
        let (model, metrics) = (self.model.clone(), self.metrics.clone());
        let program = self.config.program.clone();
        let run = move || {
            yield_to_others(BESIDE_STREAMS);
            let mut compiler = lane::compiler(&tables, &model, program);
            worker.run(|task, wanted| {
                let (began, now) = (metrics.clock.now(), utc_now());
                let compiler = Some(&mut compiler);
                let outcome = lane::prepare(task, here, &model, compiler, wanted, now);
                own(&metrics).time_us.observe(metrics.clock.now().since(began));
                outcome
            });
        };
        self.started.push(spawn(name, COMPILE_STACK_BYTES, run)?);
        Ok(link)
    }

    fn start_embed(&mut self, make: MakeEmbedder) -> Result<WorkerLink<Box<Texts>>, String> {
        let (link, worker) = self.link();
        let metrics = self.metrics.clone();
        // The compute threads, which `make` starts, inherit the priority.
        let make = || {
            yield_to_others(BESIDE_STREAMS);
            make()
        };
        let run = move |embedder: Embedder| {
            let mut lane = EmbedLane::new(embedder, metrics);
            worker.run(|texts, wanted| lane.compute(texts, wanted));
        };
        self.started.push(start_pinned("embed", pins(&self.config.placement), make, run)?);
        Ok(link)
    }
}
