//! What guesses bring on recorded texts.
//!
//! A record is a prompt and the answer that some model gave to it. The model at hand computes every
//! row at its real cost, but the token that it says next is the record's. So the speed is that of
//! this model with the record's text, and guesses come true as often as they would have.
//!
//! The scheduler, the rings and the decode lane are the server's. The rounds without guesses and
//! those with them take turns.

mod client;
pub mod record;
mod round;
pub mod table;

use std::sync::Arc;

use super::ladder::pipe::{self, Pipe, Waiter};
use client::Clients;
use corelane::clock::Clock;
use corelane::config::ServeConfig;
use corelane::decode::DecodeLane;
use corelane::lanes::{self, NewDraft};
use corelane::limits::{BATCHES, RING_CAPACITY};
use corelane::memory::available_bytes;
use corelane::metrics::Metrics;
use corelane::model::footprint::footprint;
use corelane::model::llama::{ContextConfig, LlamaDecoder};
use corelane::model::load::Loaded;
use corelane::ring;
use corelane::scheduler::{Scheduler, States};
use corelane::types::{Guessing, TokenId};
use record::{Record, Replayed};
pub use round::{Replay, Round, Run};

/// Runs the replay. Calls `tell` with each run.
///
/// # Errors
/// A sentence for the user.
pub fn run(
    replay: &Replay,
    loaded: &Loaded,
    draft: Option<&Loaded>,
    mut tell: impl FnMut(&Run),
) -> Result<Vec<Round>, String> {
    let streams = replay.concurrency + usize::from(!replay.beside.is_empty());
    let all: Arc<[Record]> = [replay.records.as_slice(), &replay.beside].concat().into();
    let longest = all.iter().map(|record| record.tokens.len()).max().unwrap_or(0);
    let trained = loaded.info.context_trained as usize;
    if longest > trained {
        return Err(format!("a record has {longest} tokens; this model takes {trained}"));
    }
    // llama.cpp rounds each sequence's cache up to 256 cells.
    let cells = longest.next_multiple_of(256) * streams;
    let context_tokens = u32::try_from(cells).map_err(|_| "too many tokens".to_owned())?;
    let config = ServeConfig {
        parallel: streams,
        context_tokens: Some(context_tokens),
        cache_prompt: false,
        ..replay.config.clone()
    };
    config.check()?;
    let mut capacity = lanes::capacity(&config, context_tokens, context_tokens.min(trained as u32));
    let mut context = lanes::context_config(&config, loaded, context_tokens, Arc::default());
    let mut guessing = config.guessing;
    if loaded.info.is_recurrent {
        let footprint = footprint(&loaded.model, config.cache)?;
        context.rollback = lanes::choose_rollback(&config, footprint, available_bytes());
        guessing = lanes::guessing(&config, &loaded.info, context.rollback);
        capacity.states = Some(States { checkpoints: 0, interval: usize::MAX, is_recurrent: true });
    }
    if guessing.most == 0 {
        return Err("this model makes no guesses, because it cannot forget a wrong one".into());
    }
    let draft = draft.map(|draft| NewDraft::new(draft, loaded, &context));
    let draft = draft.map(|draft| (draft, replay.draft_accept));
    let mut pipe = start(&config, loaded, context, draft, longest, all)?;
    let mut scheduler = Scheduler::new(capacity);
    let mut spare = (0..BATCHES).map(|_| Box::default()).collect();
    let mut rounds = Vec::new();
    let mut measure = |guessing| {
        let mut clients = Clients::new(replay, guessing);
        pipe::scheduler(&mut pipe, &mut scheduler, &mut clients, &mut spare);
        clients.result()
    };
    measure(guessing); // a warm-up, in which the scheduler learns the time of steps
    for round in 0..replay.rounds {
        let mut runs = [Run::default(), Run::default()];
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for arm in order {
            runs[arm] = measure([Guessing::default(), guessing][arm]);
            tell(&runs[arm]);
        }
        rounds.push(runs);
    }
    pipe.end();
    Ok(rounds)
}

/// Starts a decode lane in the same way as the server does.
fn start(
    config: &ServeConfig,
    loaded: &Loaded,
    context: ContextConfig,
    draft: Option<(NewDraft, f64)>,
    longest: usize,
    records: Arc<[Record]>,
) -> Result<Pipe, String> {
    let metrics = Arc::new(Metrics::new(Clock::start(), std::iter::empty()));
    let (waiter, bell) = Waiter::new(!config.placement.is_shared(), metrics.clone())?;
    let (link, decode_link) = ring::link(RING_CAPACITY, bell, lanes::spin(config));
    let end_tokens: Box<[TokenId]> = loaded.vocab.end_tokens().into();
    let (slots, model) = (config.parallel, loaded.model.clone());
    let looks_up = config.speculation.looks_up();
    let decode = lanes::start_decode(decode_link, config.placement.decode_cores.clone(), {
        let metrics = metrics.clone();
        move || {
            let model = LlamaDecoder::new(model, &context)?;
            let drafter = draft.map(|(draft, accept)| {
                draft.make(&model, |draft| {
                    Replayed::new(draft, records.clone(), slots).right_in(accept)
                })
            });
            let drafter = drafter.transpose()?;
            let model = Replayed::new(model, records, slots);
            let lane = DecodeLane::new(model, slots, longest, end_tokens, metrics);
            Ok(lane.with_guesses(looks_up, drafter))
        }
    })?;
    Ok(Pipe { link, waiter, decode, metrics })
}
