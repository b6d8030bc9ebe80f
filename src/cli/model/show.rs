//! `corelane model show`.

use std::path::{Path, PathBuf};

use clap::Args;
use corelane::hub::{Name, Wanted, cached};
use corelane::model::load::{Source, outline};
use corelane::model::shards::{TypeShare, tensor_types};
use corelane::types::{ModelInfo, Pooling};

use super::output::{megabytes, print, print_json};
use corelane::flags::hub::new_hub;

/// The number of tokens for which the table states the memory of the KV cache.
const TOKENS: u64 = 2048;

const EXAMPLES: &str = "\
Examples:
  corelane model show qwen3-0.6b-q4_k_m.gguf
  corelane model show ggml-org/gemma-3-1b-it-GGUF:Q8_0      a name in corelane model list
  corelane model show --json qwen3-0.6b-q4_k_m.gguf

It reads the beginning of the file, not the weights. corelane doctor -m FILE says whether the model
fits into memory.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// File, or the name of a downloaded model
    #[arg(value_name = "FILE.gguf|OWNER/REPO[:QUANT]")]
    model: String,
    /// File of the repository, instead of QUANT
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the properties of a model.
pub fn run(args: &ShowArgs) -> Result<(), String> {
    let path = args.path()?;
    let info = outline(&Source::File(path.clone())).map_err(|error| error.to_string())?;
    let types = tensor_types(&path);
    match args.json {
        true => print_json(&to_json(&path, &info, &types)),
        false => print(&text(&path, &info, &types)),
    }
    Ok(())
}

impl ShowArgs {
    /// The path of the file, or of the first file of a downloaded model.
    fn path(&self) -> Result<PathBuf, String> {
        let path = PathBuf::from(&self.model);
        let name: Result<Name, _> = self.model.parse();
        match name {
            Ok(name) if !path.exists() && !self.model.ends_with(".gguf") => {
                let wanted = Wanted { name, file: self.file.clone() };
                let model = cached(&new_hub(None, false)?, &wanted);
                Ok(model.map_err(|error| error.to_string())?.files.swap_remove(0))
            }
            _ => Ok(path),
        }
    }
}

fn pooling(info: &ModelInfo) -> Option<&'static str> {
    info.pooling.map(|pooling| match pooling {
        Pooling::Mean => "mean",
        Pooling::Cls => "cls",
        Pooling::Last => "last",
        Pooling::None => "none",
        Pooling::Rank => "rank",
    })
}

fn text(path: &Path, info: &ModelInfo, types: &[TypeShare]) -> String {
    let share = |share: &TypeShare| {
        let TypeShare { type_name, tensors, bytes } = share;
        format!("{tensors} {type_name} ({})", megabytes(*bytes))
    };
    let types: Vec<String> = types.iter().map(share).collect();
    let tokens = TOKENS.min(info.context_trained.into());
    let yes_no = |is: bool| if is { "yes" } else { "no" };
    let most = if info.window > 0 { "at most " } else { "" };
    let cache = megabytes(tokens * info.kv_bytes_per_token);
    let rows = [
        ("name", info.name.clone()),
        ("file", path.display().to_string()),
        ("architecture", info.architecture.clone()),
        ("parameters", format!("{:.1} M", info.n_params as f64 / 1e6)),
        ("quantization", info.quantization.clone()),
        ("weights", megabytes(info.size_bytes)),
        ("tensors", types.join(", ")),
        ("context", format!("{} tokens", info.context_trained)),
        ("KV cache", format!("{most}{cache} for {tokens} tokens, in f16")),
        ("sliding window", if info.window > 0 { info.window.to_string() } else { "none".into() }),
        ("vocabulary", format!("{} tokens", info.n_vocab)),
        ("embedding", format!("{} numbers", info.n_embd_out)),
        ("pooling", pooling(info).unwrap_or("none").into()),
        ("chat template", yes_no(info.chat_template.is_some()).into()),
    ];
    rows.iter().map(|(key, value)| format!("{key:<14} {value}\n")).collect()
}

fn to_json(path: &Path, info: &ModelInfo, types: &[TypeShare]) -> serde_json::Value {
    let share = |share: &TypeShare| serde_json::json!({"type": share.type_name, "tensors": share.tensors, "bytes": share.bytes});
    serde_json::json!({
        "name": info.name,
        "file": path,
        "architecture": info.architecture,
        "parameters": info.n_params,
        "quantization": info.quantization,
        "weight_bytes": info.size_bytes,
        "tensors": types.iter().map(share).collect::<Vec<_>>(),
        "context_tokens": info.context_trained,
        "kv_bytes_per_token": info.kv_bytes_per_token,
        "sliding_window_tokens": info.window,
        "vocabulary_tokens": info.n_vocab,
        "embedding_numbers": info.n_embd_out,
        "pooling": pooling(info),
        "chat_template": info.chat_template,
    })
}
