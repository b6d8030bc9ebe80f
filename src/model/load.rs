//! Loads a GGUF file, or explains in one sentence why it cannot be loaded.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_sys_2 as sys;

use super::embed::n_embd_out;
use super::gguf::{Gguf, TensorInfo};
use super::llama::raw;
use super::shards::{self, others};
use super::vocab::Vocab;
use super::{builtin, checked, library};
use crate::kernels::formats::STRIP_ROWS;
use crate::kernels::ggml::{self, Packed};
use crate::kernels::{InstructionSet, KernelChoice};
use crate::limits::{LLAMA_SAMPLING_MAX, SEQUENCE_TOKENS_MAX};
use crate::memory::{available_bytes, gib};
use crate::types::defaults::SamplingDefaults;
use crate::types::printable::one_line;
use crate::types::{KernelsInfo, ModelInfo, OtherMatrices, Pooling};

/// Most characters of a model's name: it is in every reply.
const NAME_CHARS_MAX: usize = 256;

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

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the model file {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The path names a directory or another non-file.
    #[error("the model {0} is not a file; it must be a GGUF file")]
    NotAFile(PathBuf),
    /// The file is not a GGUF file.
    #[error("{path} is not a GGUF file: it begins with {found:?} instead of \"GGUF\"")]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        found: String,
    },
    /// There is not enough memory.
    #[error(
        "{path} takes {:.1} GiB of memory and {:.1} GiB are available; \
         a smaller model or a stronger quantization would fit",
        gib(*bytes),
        gib(*available)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The memory that it takes while it is loaded.
        bytes: u64,
        /// The memory available.
        available: u64,
    },
    /// A tensor has a type that llama.cpp cannot compute with.
    #[error(
        "{path} cannot be computed: its tensor {tensor} has the type {type_name}, for which llama.cpp \
         has no operation"
    )]
    NotComputable {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its type's name.
        type_name: String,
    },
    /// llama.cpp refused it.
    #[error("llama.cpp cannot load {path}{reason}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// llama.cpp's error message, with a colon before it.
        reason: String,
    },
    /// The model has no tokenizer.
    #[error("{0} has no tokenizer in it, so it cannot be prompted with text")]
    NoVocabulary(PathBuf),
    /// The file is a later part of a model in several files.
    #[error("{path} is a later part of a model in several files; name the first one: {first}")]
    LaterPart {
        /// The file.
        path: PathBuf,
        /// The first file.
        first: String,
    },
    /// The file holds something else than a model.
    #[error("{path} is {what}, and no model")]
    NoModel {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The model is of a kind that is not served.
    #[error(
        "{path} is a model with an encoder ({architecture}); corelane serves models without one"
    )]
    Encoder {
        /// The file.
        path: PathBuf,
        /// The architecture.
        architecture: String,
    },
    /// The file says that the model was trained with texts of an impossible length.
    #[error("{path} says that its context has {tokens} tokens; it must be from 1 to {}", i32::MAX)]
    NoContext {
        /// The file.
        path: PathBuf,
        /// The number.
        tokens: u32,
    },
    /// The system refused memory for the built-in model.
    #[error("cannot place the built-in model in memory: {0}")]
    BuiltIn(std::io::Error),
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

fn check_file(path: &Path, available: u64) -> Result<(), LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    // To open a pipe would wait for a writer.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(LoadError::NotAFile(path.to_owned()));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic).map_err(unreadable)?;
    if magic != b"GGUF" {
        let found = String::from_utf8_lossy(&magic).into_owned();
        return Err(LoadError::NotGguf { path: path.to_owned(), found });
    }
    if let Some(gguf) = Gguf::open(path) {
        check_header(path, &gguf)?;
    }
    let tensors: Vec<_> = shards::tensors(path).collect(); // none if llama.cpp cannot read them
    if let Some(TensorInfo { name, type_name, .. }) = tensors.iter().find(|of| !of.is_computable())
    {
        let (path, tensor) = (path.to_owned(), one_line(name, NAME_CHARS_MAX));
        return Err(LoadError::NotComputable { path, tensor, type_name: type_name.clone() });
    }
    // Check first, because the kernel would kill the process without a message. A packed matrix is
    // first read into a separate buffer, one matrix at a time, so the largest one counts twice.
    // (llama.cpp leaves some large tables of a few models in the file. They are counted here, too.)
    let padding = tensors.iter().map(padding_bytes).fold(0, u64::saturating_add);
    let largest = tensors.iter().map(|tensor| tensor.bytes).max().unwrap_or(0);
    let bytes = metadata.len() + bytes_of_others(path);
    let bytes = bytes.saturating_add(padding).saturating_add(largest);
    if bytes > available {
        return Err(LoadError::TooLarge { path: path.to_owned(), bytes, available });
    }
    Ok(())
}

/// Refuses what the header says to be no model that can be served, before gigabytes are read.
fn check_header(path: &Path, gguf: &Gguf) -> Result<(), LoadError> {
    let path = path.to_owned();
    let what = match gguf.text("general.type").as_deref() {
        Some("adapter") => "an adapter for a model (LoRA)",
        Some("mmproj") => "the part of a model that sees or hears (mmproj)",
        Some("imatrix") => "an importance matrix, which programs that quantise read",
        Some("vocab") => "a vocabulary without weights",
        _ => "",
    };
    if !what.is_empty() {
        return Err(LoadError::NoModel { path, what });
    }
    if shards::is_later_part(gguf) {
        let first =
            shards::first_of(&path).unwrap_or_else(|| "the one with 00001 in its name".into());
        return Err(LoadError::LaterPart { path, first });
    }
    let architecture = gguf.text("general.architecture").unwrap_or_default();
    if ["t5", "t5encoder"].contains(&&*architecture) {
        return Err(LoadError::Encoder { path, architecture });
    }
    if let Some(tokens) = gguf.number(&format!("{architecture}.context_length"))
        && !(1..=i32::MAX.cast_unsigned()).contains(&tokens)
    {
        return Err(LoadError::NoContext { path, tokens });
    }
    Ok(())
}

/// Bytes by which a matrix, or those of all experts, are larger packed than in the file: rows that fill up the last
/// strip, and in some types signs that the file leaves out.
fn padding_bytes(tensor: &TensorInfo) -> u64 {
    let [columns, rows, experts @ ..] = tensor.dims;
    // The sizes are those of all instruction sets.
    let kernel = InstructionSet::ALL[0].kernel(tensor.type_number.cast_signed());
    // No row is longer, so no size of a strip overflows.
    let (Some(kernel), Ok(columns)) = (kernel, u32::try_from(columns)) else { return 0 };
    if !(columns as usize).is_multiple_of(kernel.block_columns) {
        return 0; // not packed
    }
    let strip = (kernel.strip_bytes)(columns as usize) as u64;
    let strips =
        experts.iter().fold(rows.div_ceil(STRIP_ROWS as u64), |all, n| all.saturating_mul(*n));
    strips.saturating_mul(strip).saturating_sub(tensor.bytes)
}

/// Bytes by which the weights of a model are larger in memory than in its files.
pub fn bytes_added(path: &Path) -> u64 {
    shards::tensors(path).map(|tensor| padding_bytes(&tensor)).fold(0, u64::saturating_add)
}

/// Size of a model's other files.
fn bytes_of_others(path: &Path) -> u64 {
    let sizes = others(path).into_iter().filter_map(|file| fs::metadata(file).ok());
    sizes.map(|metadata| metadata.len()).sum()
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

/// The sampling that a file advises. A value that is no number, or out of the range of a flag, is left out.
fn sampling(model: &LlamaModel) -> SamplingDefaults {
    let text = |key: &str| model.meta_val_str(&format!("general.sampling.{key}")).ok();
    let float = |key, range: RangeInclusive<f32>| {
        text(key)?.parse::<f32>().ok().filter(|value| range.contains(value))
    };
    let whole = |key| text(key)?.parse::<i64>().ok();
    SamplingDefaults {
        temperature: float("temp", 0.0..=LLAMA_SAMPLING_MAX as f32),
        top_k: whole("top_k").map(|k| u32::try_from(k).unwrap_or(0)),
        top_p: float("top_p", 0.0..=1.0),
        min_p: float("min_p", 0.0..=1.0),
        repeat_penalty: float("penalty_repeat", 0.01..=10.0),
        repeat_last_n: whole("penalty_last_n")
            .map(|n| u32::try_from(n).unwrap_or(SEQUENCE_TOKENS_MAX as u32)),
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
    heads * (key + value) * 2
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

    #[test]
    fn a_file_larger_than_memory_is_refused_before_it_is_read() {
        let path = std::env::temp_dir().join(format!("corelane-large-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        std::io::Write::write_all(&mut &file, b"GGUF").unwrap();
        file.set_len(3 << 29).unwrap(); // sparse: takes no disk space
        assert!(check_file(&path, 3 << 29).is_ok());
        let error = check_file(&path, 1 << 30).unwrap_err().to_string();
        assert!(error.contains("takes 1.5 GiB of memory and 1.0 GiB are available"), "{error}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn all_files_of_a_model_count() {
        let folder = std::env::temp_dir().join(format!("corelane-parts-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let part = |n: u8| folder.join(format!("m-0000{n}-of-00003.gguf"));
        (1..=3).for_each(|n| fs::write(part(n), format!("GGUF{}", "x".repeat(n.into()))).unwrap());
        assert_eq!(bytes_of_others(&part(1)), 6 + 7);
        assert!(check_file(&part(1), 18).is_ok() && check_file(&part(1), 17).is_err());
        assert_eq!(bytes_of_others(&part(2)), 0, "llama.cpp refuses it");
        assert_eq!(bytes_of_others(Path::new("m.gguf")), 0);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A file of 18 bytes a row would take 16 times as much.
    #[test]
    fn the_rows_that_fill_up_a_strip_count() {
        let bytes_of = |kind, dims| {
            let mut header = Gguf::empty();
            header.add_tensor("blk.0.ffn_up.weight", kind, dims);
            padding_bytes(&header.tensors()[0])
        };
        // A strip of 16 rows x 18 bytes is rounded up to 320.
        assert_eq!(bytes_of(sys::GGML_TYPE_Q4_0, [32, 1, 1]), 320 - 18);
        assert_eq!(bytes_of(sys::GGML_TYPE_Q4_0, [32, 17, 3]), 3 * (640 - 17 * 18));
        assert_eq!(bytes_of(sys::GGML_TYPE_Q4_0, [64, 32, 3]), 0);
        assert_eq!(bytes_of(sys::GGML_TYPE_F32, [32, 1, 1]), 0, "not packed");
        assert_eq!(bytes_of(sys::GGML_TYPE_Q4_K, [32, 1, 1]), 0, "no whole block, so not packed");
        // 16 rows of 74 bytes; a tile has 8 x 144 of codes and a head of 160.
        assert_eq!(bytes_of(sys::GGML_TYPE_IQ2_XS, [256, 16, 1]), 8 * 144 + 192 - 16 * 74);
    }

    #[test]
    fn types_that_llama_cpp_cannot_compute_with_are_refused() {
        let path = std::env::temp_dir().join(format!("corelane-types-{}", std::process::id()));
        let check = |name, kind| {
            let mut header = Gguf::empty();
            header.add_tensor(name, kind, [256, 1, 1]);
            fs::write(&path, header.header()).unwrap();
            check_file(&path, u64::MAX).map_err(|error| error.to_string())
        };
        library::start();
        let name = "blk.0.\x1b[2Jffn_up.weight";
        for (kind, type_name) in [
            (sys::GGML_TYPE_Q8_1, "q8_1"),
            (sys::GGML_TYPE_Q8_K, "q8_K"),
            (sys::GGML_TYPE_I8, "i8"),
            (sys::GGML_TYPE_I64, "i64"),
            (sys::GGML_TYPE_F64, "f64"),
        ] {
            let error = check(name, kind).unwrap_err();
            let says = format!("blk.0. [2Jffn_up.weight has the type {type_name}, for which");
            assert!(error.contains(&says), "{error}");
        }
        assert_eq!(check("token_embd.weight", sys::GGML_TYPE_F32), Ok(()));
        assert_eq!(check("blk.0.ffn_gate_tid2eid.weight", sys::GGML_TYPE_I32), Ok(()));
        assert_eq!(check("d2t", sys::GGML_TYPE_I64), Ok(()));
        // These are multiplied with activations and added to them, number by number.
        for kind in [sys::GGML_TYPE_F16, sys::GGML_TYPE_Q4_0] {
            check("blk.0.attn_norm.weight", kind).unwrap_err();
            check("blk.0.attn_q.bias", kind).unwrap_err();
            assert_eq!(check("blk.0.attn_q.weight", kind), Ok(()));
        }
        fs::remove_file(&path).unwrap();
    }

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
