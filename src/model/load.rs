//! Loads a GGUF file, or explains in one sentence why it cannot be loaded.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_sys_2 as sys;

use super::embed::n_embd_out;
pub use super::examine::{LoadError, bytes_added};
use super::examine::{NAME_CHARS_MAX, check_file};
use super::gguf::{Gguf, TensorInfo};
use super::llama::raw;
use super::shards;
use super::vocab::Vocab;
use super::{builtin, checked, library};
use crate::kernels::ggml::{self, Packed};
use crate::kernels::{InstructionSet, KernelChoice};
use crate::limits::{SEQUENCE_TOKENS_MAX, TEMPERATURE_MAX};
use crate::memory::available_bytes;
use crate::types::defaults::SamplingDefaults;
use crate::types::printable::one_line;
use crate::types::{KernelsInfo, ModelInfo, OtherMatrices, Pooling};

/// The source of the served model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The model inside the binary.
    BuiltIn,
    /// A GGUF file.
    File(PathBuf),
}

/// The weights of a model.
pub type Weights = Arc<LlamaModel>;

/// A model in memory, without a context yet.
pub struct Loaded {
    /// The weights.
    pub model: Weights,
    /// Its vocabulary.
    pub vocab: Arc<Vocab>,
    /// Its properties.
    pub info: ModelInfo,
    /// The instruction set of our kernels; `None` means llama.cpp's compute everything.
    pub kernels: Option<InstructionSet>,
}

/// Loads a model and packs its weights for `kernels`. Calls `progress` with the fraction done, from
/// 0 to 1; if it returns `false`, loading ends with an error.
///
/// # Errors
/// See [`LoadError`]; each is one sentence for a user.
pub fn load(
    source: &Source,
    kernels: KernelChoice,
    progress: impl FnMut(f32) -> bool + 'static,
) -> Result<Loaded, LoadError> {
    let backend = library::start();
    let Some(set) = checked::kernels(kernels) else {
        return load_source(backend, source, progress);
    };
    let (loaded, packed) = ggml::packing(|| load_source(backend, source, progress));
    let mut loaded = loaded?;
    loaded.kernels = Some(set);
    loaded.info.kernels = KernelsInfo {
        name: set.name(),
        matrices: packed.matrices.iter().sum(),
        bytes: packed.bytes as u64,
        bytes_added: (packed.bytes - packed.file_bytes) as u64,
        others: other_matrices(source, set, &packed),
    };
    Ok(loaded)
}

const _: () = assert!(sys::GGML_TYPE_COUNT as usize <= ggml::TYPES_MAX);

/// The matrices of a model that are not packed, by type.
fn other_matrices(source: &Source, set: InstructionSet, packed: &Packed) -> Vec<OtherMatrices> {
    let tensors = match source {
        Source::BuiltIn => {
            Gguf::from_bytes(builtin::GGUF).map_or_else(Vec::new, |file| file.tensors())
        }
        Source::File(path) => shards::tensors(path).collect(),
    };
    let is_matrix = |tensor: &TensorInfo| {
        tensor.dims[1] > 1 && tensor.name.ends_with(".weight") && !tensor.name.contains("conv")
    };
    let mut counts = BTreeMap::<u32, (String, usize)>::new();
    for tensor in tensors.into_iter().filter(is_matrix) {
        counts.entry(tensor.type_number).or_insert((tensor.type_name, 0)).1 += 1;
    }
    let other = |(number, (type_name, count)): (u32, (String, usize))| {
        let count = count - packed.matrices[number as usize].min(count);
        let has_kernel = set.kernel(number.cast_signed()).is_some();
        (count > 0).then_some(OtherMatrices { type_name, count, has_kernel })
    };
    counts.into_iter().filter_map(other).collect()
}

/// Reads the properties of a model without its weights. Takes milliseconds.
///
/// # Errors
/// As for [`load`].
pub fn outline(source: &Source) -> Result<ModelInfo, LoadError> {
    let backend = library::start();
    let params = LlamaModelParams::default().with_use_mmap(false).with_no_alloc(true);
    match source {
        Source::File(path) => {
            check_file(path, u64::MAX)?;
            Ok(open(backend, path, path, params)?.1)
        }
        Source::BuiltIn => {
            let image = builtin::Image::new().map_err(LoadError::BuiltIn)?;
            Ok(open(backend, &image.path(), Path::new("the built-in model"), params)?.1)
        }
    }
}

fn load_source(
    backend: &LlamaBackend,
    source: &Source,
    progress: impl FnMut(f32) -> bool + 'static,
) -> Result<Loaded, LoadError> {
    match source {
        Source::File(path) => {
            check_file(path, available_bytes())?;
            load_path(backend, path, path, progress)
        }
        Source::BuiltIn => {
            let image = builtin::Image::new().map_err(LoadError::BuiltIn)?;
            load_path(backend, &image.path(), Path::new("the built-in model"), progress)
        }
    }
}

fn load_path(
    backend: &LlamaBackend,
    path: &Path,
    shown: &Path,
    progress: impl FnMut(f32) -> bool + 'static,
) -> Result<Loaded, LoadError> {
    // Read the file rather than mapping it. Pages of a mapped file can be evicted, and then come
    // from the disk in the middle of a step. Packing also copies the weights, so a mapped file
    // would hold them in memory twice.
    let params = LlamaModelParams::default().with_use_mmap(false).with_progress_callback(progress);
    let (model, info) = open(backend, path, shown, params)?;
    let model = Arc::new(model);
    let vocab = Arc::new(Vocab::of_llama(model.clone()));
    Ok(Loaded { model, vocab, info, kernels: None })
}

fn open(
    backend: &LlamaBackend,
    path: &Path,
    shown: &Path,
    params: LlamaModelParams,
) -> Result<(LlamaModel, ModelInfo), LoadError> {
    let loaded = library::guarded(|| LlamaModel::load_from_file(backend, path, &params));
    let model = loaded
        .map_err(|_| LoadError::Refused { path: shown.to_owned(), reason: library::error() })?;
    if model.n_vocab() <= 0 || vocab_type(&model) == sys::LLAMA_VOCAB_TYPE_NONE {
        return Err(LoadError::NoVocabulary(shown.to_owned()));
    }
    // SAFETY: the model is live.
    let (has_encoder, tokens) = unsafe {
        (sys::llama_model_has_encoder(raw(&model)), sys::llama_model_n_ctx_train(raw(&model)))
    };
    if has_encoder {
        let architecture = model.meta_val_str("general.architecture").unwrap_or_default();
        let architecture = one_line(&architecture, NAME_CHARS_MAX);
        return Err(LoadError::Encoder { path: shown.to_owned(), architecture });
    }
    if tokens < 1 {
        let tokens = tokens.cast_unsigned();
        return Err(LoadError::NoContext { path: shown.to_owned(), tokens });
    }
    // The binding panics at negative numbers.
    // SAFETY: the model is live.
    let counts = unsafe {
        [
            ("heads", sys::llama_model_n_head(raw(&model))),
            ("heads of keys and values", sys::llama_model_n_head_kv(raw(&model))),
            ("layers", sys::llama_model_n_layer(raw(&model))),
        ]
    };
    if let Some((what, number)) = counts.into_iter().find(|(_, number)| *number < 0) {
        return Err(LoadError::Impossible { path: shown.to_owned(), what, number });
    }
    let info = describe(&model, shown, path);
    Ok((model, info))
}

fn describe(model: &LlamaModel, path: &Path, file: &Path) -> ModelInfo {
    let file_name = || path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into());
    // A file's text could add lines to a log, a terminal or a configuration.
    let shown = |text: String| one_line(&text, NAME_CHARS_MAX);
    let n_embd = usize::try_from(model.n_embd()).unwrap_or(0);
    let ranks = has_ranking_head(file);
    ModelInfo {
        name: shown(model.meta_val_str("general.name").unwrap_or_else(|_| file_name())),
        architecture: shown(model.meta_val_str("general.architecture").unwrap_or_default()),
        quantization: quantization(model),
        modified: if path == file { modified(file) } else { 0 },
        n_params: model.n_params(),
        size_bytes: model.size(),
        vocab_type: vocab_type(model),
        n_vocab: usize::try_from(model.n_vocab()).unwrap_or(0),
        n_embd,
        n_embd_out: n_embd_out(model),
        n_head: model.n_head(),
        context_trained: model.n_ctx_train(),
        kv_bytes_per_token: kv_bytes_per_token(model, n_embd, file),
        pooling: pooling(model).filter(|pooling| *pooling != Pooling::Rank || ranks),
        ranks,
        sampling: sampling(model),
        // (LlamaModel::chat_template passes a pointer to a name that it has freed.)
        rank_template: model.meta_val_str("tokenizer.chat_template.rerank").ok(),
        sees_ahead: meta(model, "attention.causal").is_some_and(|causal| causal == "false"),
        chat_template: model.chat_template(None).ok().and_then(|t| t.to_string().ok()),
        // SAFETY: the model is live.
        window: u32::try_from(unsafe { sys::llama_model_n_swa(raw(model)) }).unwrap_or(0),
        is_recurrent: model.is_recurrent() || model.is_hybrid(),
        kernels: KernelsInfo::default(),
    }
}

/// The sampling that a file advises. A value that is no number, or that a request may not have, is left out.
fn sampling(model: &LlamaModel) -> SamplingDefaults {
    let text = |key: &str| model.meta_val_str(&format!("general.sampling.{key}")).ok();
    let float = |key, range: RangeInclusive<f32>| {
        text(key)?.parse::<f32>().ok().filter(|value| range.contains(value))
    };
    let whole = |key| text(key)?.parse::<i64>().ok();
    SamplingDefaults {
        temperature: float("temp", 0.0..=TEMPERATURE_MAX as f32),
        top_k: whole("top_k").map(|k| k.clamp(0, i32::MAX.into()) as u32),
        top_p: float("top_p", 0.0..=1.0),
        min_p: float("min_p", 0.0..=1.0),
        repeat_penalty: float("penalty_repeat", 0.01..=10.0),
        repeat_last_n: whole("penalty_last_n")
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX).min(SEQUENCE_TOKENS_MAX as u32)),
        ..SamplingDefaults::default()
    }
}

/// The time at which a file was last written, in seconds since 1970; 0 if the system does not
/// report it.
fn modified(file: &Path) -> u64 {
    let modified = fs::metadata(file).and_then(|metadata| metadata.modified());
    let since = modified.map(|time| time.duration_since(UNIX_EPOCH).unwrap_or_default());
    since.map_or(0, |since| since.as_secs())
}

/// llama.cpp's number for the kind of vocabulary.
fn vocab_type(model: &LlamaModel) -> u32 {
    // SAFETY: the model is live, and so is its vocabulary.
    unsafe { sys::llama_vocab_type(sys::llama_model_get_vocab(raw(model))) }
}

/// The format of most of the model's weights, as its file's name usually has it: `Q4_K_M`.
fn quantization(model: &LlamaModel) -> String {
    // SAFETY: the model is live; the name is a constant of llama.cpp.
    let name = unsafe { CStr::from_ptr(sys::llama_ftype_name(sys::llama_model_ftype(raw(model)))) };
    let name = name.to_string_lossy();
    let name = name.trim_start_matches("all ").trim_end_matches(" (guessed)");
    [(" - Small", "_S"), (" - Medium", "_M"), (" - Large", "_L")]
        .iter()
        .fold(name.to_owned(), |name, (long, short)| name.replace(long, short))
}

/// A metadata value under the model's architecture.
fn meta(model: &LlamaModel, key: &str) -> Option<String> {
    let architecture = model.meta_val_str("general.architecture").ok()?;
    model.meta_val_str(&format!("{architecture}.{key}")).ok()
}

/// The pooling in the model's metadata, by GGUF's numbers. 0 (none) counts as absent, because
/// models for text have it, too.
fn pooling(model: &LlamaModel) -> Option<Pooling> {
    match meta(model, "pooling_type")?.as_str() {
        "1" => Some(Pooling::Mean),
        "2" => Some(Pooling::Cls),
        "3" => Some(Pooling::Last),
        "4" => Some(Pooling::Rank),
        _ => None,
    }
}

/// Whether a model's files have a ranking head. Without one, llama.cpp would use the first number
/// of a vector as the score.
fn has_ranking_head(file: &Path) -> bool {
    shards::tensors(file).any(|tensor| ["cls.weight", "cls.output.weight"].contains(&&*tensor.name))
}

/// Bytes of keys and values of one token in all layers, with 2 bytes per number.
fn kv_bytes_per_token(model: &LlamaModel, n_embd: usize, file: &Path) -> u64 {
    let number = |key: &str| meta(model, key)?.parse::<u64>().ok();
    let head = n_embd as u64 / u64::from(model.n_head().max(1));
    let key = number("attention.key_length").unwrap_or(head);
    let value = number("attention.value_length").unwrap_or(head);
    // A recurrent layer has no cache. Some files say that every fourth layer has attention, others
    // how many heads each layer has.
    let layers = u64::from(model.n_layer()) / number("full_attention_interval").unwrap_or(1).max(1);
    let architecture = model.meta_val_str("general.architecture").unwrap_or_default();
    let heads = heads_of_layers(file, &architecture);
    let heads = heads.unwrap_or_else(|| layers * u64::from(model.n_head_kv()));
    heads.saturating_mul(key.saturating_add(value)).saturating_mul(2)
}

/// The key-value heads of all layers together, if the file has a number for each layer. (llama.cpp
/// reports only that of the first layer, which is 0 where it is recurrent.)
fn heads_of_layers(file: &Path, architecture: &str) -> Option<u64> {
    let heads = Gguf::open(file)?.integers(&format!("{architecture}.attention.head_count_kv"))?;
    Some(heads.iter().filter_map(|heads| u64::try_from(*heads).ok()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in models whose first layers are recurrent.
    #[test]
    fn layers_may_have_different_numbers_of_heads() {
        let mut header = Gguf::empty();
        header.set_integers("lfm2.attention.head_count_kv", &[0, 0, 8, 0, 8]);
        header.set_number("llama.attention.head_count_kv", 8);
        let path = std::env::temp_dir().join(format!("corelane-heads-{}", std::process::id()));
        fs::write(&path, header.header()).unwrap();
        assert_eq!(heads_of_layers(&path, "lfm2"), Some(16));
        assert_eq!(heads_of_layers(&path, "llama"), None);
        fs::remove_file(&path).unwrap();
    }
}
