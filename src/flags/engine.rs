//! The flags of a model and its lanes, shared by all commands that run a model.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::ServeConfig;
use crate::hub::{self, Model, Wanted};
use crate::kernels::KernelChoice;
use crate::kernels::compute::THREADS_MAX;
use crate::limits::STEP_ROWS_MAX;
use crate::model::load::Source;
use crate::placement::{self, Claims, Placement, Topology, Wishes, cpu_quota};
use crate::types::{CacheLayout, CacheType, FlashAttention, ItlTarget};
use clap::Args;

use super::hub::{HubArgs, shown};
use super::{no_gpu, number};

/// Model, step sizes, KV cache and lanes.
#[derive(Clone, Debug, Args)]
pub struct EngineArgs {
    /// GGUF file of the model [default: the small model inside the binary]
    #[arg(short, long, value_name = "FILE", help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// A model by name.
    #[command(flatten)]
    pub hub: HubArgs,

    /// Kernels for products with the weights: auto (corelane's for the best instruction set of this
    /// processor, and llama.cpp's for weight types that corelane's do not support), llama (always
    /// llama.cpp's), or corelane's for one instruction set: amx, avx512-vnni, avx-vnni, avx2
    #[arg(long, value_name = "WHICH", default_value = "auto", help_heading = "Model")]
    kernels: KernelChoice,

    /// Most tokens in one step; never more than the larger of --ubatch-size and twice --parallel
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = ServeConfig::default().batch_rows,
        allow_negative_numbers = true,
        value_parser = number::<usize>(1, STEP_ROWS_MAX),
        help_heading = "Scheduling"
    )]
    batch_size: usize,
    /// Most tokens that llama.cpp computes at once (also -ub)
    #[arg(
        long,
        value_name = "N",
        default_value_t = ServeConfig::default().ubatch_rows,
        allow_negative_numbers = true,
        value_parser = number::<usize>(1, STEP_ROWS_MAX),
        help_heading = "Scheduling"
    )]
    ubatch_size: usize,
    /// Longest time between two tokens of a stream while a prompt is computed, kept in 99 of 100
    /// steps; 0 chooses twice the time without a prompt, but at least 60 ms
    #[arg(long, value_name = "MS", default_value_t = 0, help_heading = "Scheduling")]
    itl_target_ms: u32,
    /// Type of the cached keys: f32, f16, q8_0 or q4_0 (also -ctk)
    #[arg(long, value_name = "TYPE", default_value = "f16", help_heading = "KV cache")]
    cache_type_k: CacheType,
    /// Type of the cached values: f32, f16, q8_0 or q4_0 (also -ctv)
    #[arg(long, value_name = "TYPE", default_value = "f16", help_heading = "KV cache")]
    cache_type_v: CacheType,
    /// Flash attention: auto (on if the model allows it), on, off, or llama (on, with llama.cpp's
    /// kernel instead of corelane's, for comparison) (also -fa)
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = "KV cache")]
    flash_attn: FlashAttention,
    /// One KV cache for all requests: the default (also -kvu)
    #[arg(long, overrides_with = "no_kv_unified", help_heading = "KV cache")]
    kv_unified: bool,
    /// A KV cache for each request, with an equal share of --ctx-size; shared prefixes are copied,
    /// and prompts beside streams need a second pass over the weights (also -no-kvu)
    #[arg(long, help_heading = "KV cache")]
    no_kv_unified: bool,
    /// Keep the keys and values of all tokens also in layers with a sliding window, which takes more
    /// memory. Such a model then has no prefix store
    #[arg(long, help_heading = "KV cache")]
    swa_full: bool,
    /// Compute threads, at most one per decode core [default: the fastest number, by measurement]
    #[arg(
        short,
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = number::<usize>(1, THREADS_MAX),
        help_heading = "Lanes"
    )]
    pub threads: Option<usize>,
    /// Core of the front lane, which runs HTTP and scheduling [default: the first]
    #[arg(long, value_name = "CORE", help_heading = "Lanes")]
    front_core: Option<usize>,
    /// Cores of the decode lane, such as 1-3,6 [default: all but the front core; with fewer than
    /// four cores, all]
    #[arg(long, value_name = "CORES", value_parser = parse_cores, help_heading = "Lanes")]
    decode_cores: Option<Cores>,
    /// Seconds after which a step of the model is aborted and tried once more
    #[arg(
        long,
        value_name = "S",
        default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..=86_400),
        help_heading = "Lanes"
    )]
    step_timeout_s: u32,
    /// How long idle compute threads poll for work, from 0 (sleep at once) to 100 (4 ms)
    #[arg(
        long,
        value_name = "LEVEL",
        default_value_t = ServeConfig::default().poll,
        allow_negative_numbers = true,
        value_parser = number::<u32>(0, 100),
        help_heading = "Lanes"
    )]
    poll: u32,
    /// Refused with an explanation
    #[arg(
        long,
        visible_alias = "gpu-layers",
        hide = true,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = no_gpu
    )]
    n_gpu_layers: Option<String>,
}

/// A list of cores, as one value (clap would read a `Vec` as a repeated flag).
#[derive(Clone, Debug)]
struct Cores(Vec<usize>);

fn parse_cores(list: &str) -> Result<Cores, String> {
    placement::parse_list(list).map(Cores)
}

impl EngineArgs {
    /// The model to run, if it is a file or the built-in one. A model by name is the error.
    pub fn source(&self) -> Result<Source, Wanted> {
        match (&self.model, self.hub.wanted()) {
            (Some(path), _) => Ok(Source::File(path.clone())),
            (None, Some(wanted)) => Err(wanted),
            (None, None) => Ok(Source::BuiltIn),
        }
    }

    /// The model to run. Downloads a model by name.
    pub fn obtain(&self) -> Result<Source, String> {
        self.source().or_else(|wanted| {
            let model = hub::obtain(&self.hub.hub()?, &wanted, &mut shown());
            Ok(first_of(model.map_err(|error| error.to_string())?))
        })
    }

    /// A configuration from these flags, placed on this machine; every other setting has its
    /// default. The caller sets the rest and checks it.
    pub fn config(&self) -> Result<ServeConfig, String> {
        let wishes = Wishes {
            front_core: self.front_core,
            decode_cores: self.decode_cores.as_ref().map(|cores| cores.0.clone()),
            threads: self.threads,
        };
        Ok(self.config_on(place(&wishes)?))
    }

    /// Like [`EngineArgs::config`], but with this placement. Claims no cores.
    pub fn config_on(&self, placement: Placement) -> ServeConfig {
        ServeConfig {
            // This path still leads to the running program after an upgrade has replaced its file.
            program: Some("/proc/self/exe".into()),
            batch_rows: self.batch_size,
            ubatch_rows: self.ubatch_size.min(self.batch_size),
            itl_target: match self.itl_target_ms {
                0 => ItlTarget::Chosen,
                ms => ItlTarget::Within(Duration::from_millis(ms.into())),
            },
            step_timeout: Duration::from_secs(self.step_timeout_s.into()),
            placement,
            fixed_threads: self.threads.is_some(),
            kernels: self.kernels,
            cache: CacheLayout {
                unified: self.kv_unified || !self.no_kv_unified,
                keys: self.cache_type_k,
                values: self.cache_type_v,
                flash_attention: self.flash_attn,
                swa_full: self.swa_full,
            },
            poll: self.poll,
            ..ServeConfig::default()
        }
    }
}

/// The first file of a downloaded model. Loading it loads all shards.
pub fn first_of(mut model: Model) -> Source {
    Source::File(model.files.swap_remove(0))
}

/// Places the lanes beside other instances on this machine, and claims their cores until the
/// process ends.
fn place(wishes: &Wishes) -> Result<Placement, String> {
    let topology = Topology::read()?;
    let (mut claims, free) = Claims::of(&topology.processors());
    let placement = topology.place_beside(wishes, &free, cpu_quota())?;
    claims.keep(&if placement.pinned { placement.cores() } else { Vec::new() });
    std::mem::forget(claims);
    Ok(placement)
}
