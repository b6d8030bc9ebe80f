//! Makes synthetic models: GGUF files with the shape, the types and the vocabulary size of a known
//! model, and random weights. Such a model is as fast as the real one and needs no download; its
//! text is meaningless.
//!
//! In: a [`Request`]. Out: a file that every llama.cpp program loads. Equal requests give equal
//! bytes.
//!
//! The weights are drawn as f16 into a file without a name. llama.cpp's own quantiser turns it into
//! the model, and chooses tensor types as for the real one. No step holds the whole model in
//! memory. The file gets its name when it is complete.

mod quant;
mod shape;
mod tensors;
mod vocabulary;
mod weights;
mod write;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

pub use self::quant::{QUANTS, Quant};
pub use self::shape::{Architecture, SHAPES, Shape};
pub use self::write::temporary_path;
use self::write::{Layout, Temporary};
use corelane::model::gguf::Gguf;
pub use corelane::model::gguf::TensorInfo;
use corelane::model::{builtin, library};

/// The model to make.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model's dimensions.
    pub shape: Shape,
    /// The types of its tensors.
    pub quant: &'static Quant,
    /// The seed of the weights.
    pub seed: u64,
    /// The file to write.
    pub out: PathBuf,
    /// Replace `out` if it exists.
    pub force: bool,
    /// Compute threads, 1 or more. They do not affect the file.
    pub threads: usize,
}

/// The model that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// Bytes of the file.
    pub bytes: u64,
    /// Its tensors, as read back from the file.
    pub tensors: Vec<TensorInfo>,
}

/// The progress of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current stage.
    pub stage: Stage,
    /// Weights done in this stage.
    pub done: u64,
    /// Weights in all.
    pub total: u64,
}

/// The two stages of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Drawing random weights.
    Drawing,
    /// Quantising them with llama.cpp.
    Quantising,
}

/// Why no model was made. Each is one sentence for a user.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// The shape is invalid, or the quantisation cannot pack it.
    #[error("{0}")]
    Impossible(String),
    /// The file exists.
    #[error("{0} exists already; --force replaces it")]
    Exists(PathBuf),
    /// The path is a directory.
    #[error("cannot write {0}: it is a folder; name a file, such as model.gguf")]
    Folder(PathBuf),
    /// The file cannot be written.
    #[error("cannot write {path}: {source}")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The disk has too little space.
    #[error(
        "cannot write {path}: making it takes {} MB of disk, and {} MB are free there",
        .needed.div_ceil(1_000_000),
        .free / 1_000_000
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Most bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// llama.cpp could not quantise.
    #[error("llama.cpp could not quantise the weights{0}")]
    Quantise(String),
    /// The written file cannot be read back.
    #[error("cannot write {0}: the file is incomplete after writing; is the disk full?")]
    Torn(PathBuf),
}

/// Makes a synthetic model and reports its progress to `progress`.
///
/// # Errors
/// See [`SynthError`]. An earlier file at `request.out` is then unchanged, and no other file is
/// left.
pub fn synth(
    request: &Request,
    mut progress: impl FnMut(Progress) + 'static,
) -> Result<Made, SynthError> {
    library::start();
    let Request { shape, quant, out, .. } = request;
    let builtin = Gguf::from_bytes(builtin::GGUF).expect("the built-in model is a GGUF file");
    let known = vocabulary::Known::of(&builtin);
    shape.check(quant, known.n_tokens()).map_err(SynthError::Impossible)?;
    check_out(out, request.force)?;
    check_space(out, shape, quant)?;
    let plan = Layout::new(shape, request.seed, header(request, &builtin, &known));

    let unwritable = |source| SynthError::Unwritable { path: out.clone(), source };
    let temporary = Temporary::beside(out);
    let drawn = temporary.create().map_err(unwritable)?;
    if !quant.is_plain() {
        // From here on, only the open file holds the disk space. However the process ends, no
        // gigabytes stay behind.
        temporary.remove().map_err(unwritable)?;
    }
    let total = shape.elements();
    plan.draw(&drawn, request.threads, |done| {
        progress(Progress { stage: Stage::Drawing, done, total });
    })
    .map_err(unwritable)?;
    if !quant.is_plain() {
        let source = open_path(&drawn);
        write::quantise(&source, temporary.path(), quant, request.threads, &plan, move |done| {
            progress(Progress { stage: Stage::Quantising, done, total });
        })
        .map_err(|reason| match free_space(out) {
            // llama.cpp reports a failed write without its cause.
            Ok(free) if free < 1 << 20 => unwritable(ErrorKind::StorageFull.into()),
            _ => SynthError::Quantise(reason),
        })?;
    }
    drop(drawn);
    let made = read_back(temporary.path()).ok_or_else(|| SynthError::Torn(out.clone()))?;
    if !request.force && out.symlink_metadata().is_ok() {
        return Err(SynthError::Exists(out.clone())); // it was created in the meantime
    }
    temporary.rename(out).map_err(unwritable)?;
    Ok(made)
}

/// Checks, before the work, that the final rename can succeed.
fn check_out(out: &Path, force: bool) -> Result<(), SynthError> {
    match out.symlink_metadata() {
        Ok(_) if out.is_dir() => Err(SynthError::Folder(out.to_owned())),
        Ok(_) if !force => Err(SynthError::Exists(out.to_owned())),
        _ if out.file_name().is_none() => Err(SynthError::Folder(out.to_owned())),
        _ => Ok(()),
    }
}

/// Checks that the disk has room. An estimate: other processes may fill it later.
fn check_space(out: &Path, shape: &Shape, quant: &Quant) -> Result<(), SynthError> {
    let free = free_space(out)
        .map_err(|source| SynthError::Unwritable { path: out.to_owned(), source })?;
    let elements = shape.elements();
    let packed = if quant.is_plain() { 0 } else { quant.bytes_max(elements) };
    let needed = 2 * elements + packed;
    if needed > free {
        return Err(SynthError::NoSpace { path: out.to_owned(), needed, free });
    }
    Ok(())
}

/// Free bytes on the disk of `out`.
fn free_space(out: &Path) -> io::Result<u64> {
    let folder = match out.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let space = rustix::fs::statvfs(folder)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

/// `LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID`
const SIGMOID: u32 = 2;

/// The metadata of the model, without its tensors.
fn header(request: &Request, builtin: &Gguf, known: &vocabulary::Known) -> Gguf {
    let Request { shape, seed, .. } = request;
    let mut header = Gguf::empty();
    header.adopt(builtin, "tokenizer.");
    known.extend(shape.vocab, &mut header);
    let has_experts = shape.experts[0] > 0;
    let architecture = match shape.architecture {
        Architecture::Qwen3 if has_experts => "qwen3moe",
        Architecture::Qwen3 => "qwen3",
        Architecture::Llama => "llama",
        Architecture::Lfm2 if has_experts => "lfm2moe",
        Architecture::Lfm2 => "lfm2",
        Architecture::Qwen35 if has_experts => "qwen35moe",
        Architecture::Qwen35 => "qwen35",
        Architecture::Gemma3 => "gemma3",
        Architecture::Gemma4 => "gemma4",
        Architecture::GptOss => "gpt-oss",
    };
    header.set_text("general.architecture", architecture);
    header.set_text("general.name", &shape.title());
    let description =
        format!("Random weights (seed {seed}) for measuring speed. The text is meaningless.");
    header.set_text("general.description", &description);
    // The type of the f16 file; the quantiser sets its own.
    header.set_number("general.file_type", quant::F16.ftype);
    header.set_number("general.quantization_version", 2);
    let key = |name: &str| format!("{architecture}.{name}");
    let head_size = match shape.architecture {
        Architecture::Gemma4 => tensors::GLOBAL_HEAD_SIZE,
        _ => shape.head_size,
    };
    for (name, value) in [
        ("block_count", shape.layers),
        ("context_length", shape.context),
        ("embedding_length", shape.width),
        ("feed_forward_length", shape.ffn),
        ("attention.head_count", shape.heads),
        ("attention.key_length", head_size),
        ("attention.value_length", head_size),
    ] {
        header.set_number(&key(name), value);
    }
    if matches!(shape.architecture, Architecture::Lfm2 | Architecture::Gemma4) {
        header.set_integers(&key("attention.head_count_kv"), &shape.kv_heads_of_blocks());
    } else {
        header.set_number(&key("attention.head_count_kv"), shape.kv_heads);
    }
    if shape.architecture == Architecture::Lfm2 {
        header.set_number(&key("shortconv.l_cache"), tensors::CONVOLUTION.len() as u32);
        header.set_number(&key("vocab_size"), shape.vocab);
    }
    if shape.architecture == Architecture::Qwen35 {
        let [key_heads, heads, size] = shape.delta;
        header.set_integers(&key("rope.dimension_sections"), &tensors::ROTATED_PAIRS);
        for (name, value) in [
            ("rope.dimension_count", tensors::ROTATED),
            ("full_attention_interval", shape.attention[0] + 1),
            ("ssm.conv_kernel", tensors::DELTA_CONVOLUTION.len() as u32),
            ("ssm.state_size", size),
            ("ssm.group_count", key_heads),
            ("ssm.time_step_rank", heads),
            ("ssm.inner_size", heads * size),
        ] {
            header.set_number(&key(name), value);
        }
    }
    if has_experts {
        let [experts, chosen, ffn] = shape.experts;
        header.set_number(&key("expert_count"), experts);
        header.set_number(&key("expert_used_count"), chosen);
        header.set_number(&key("expert_feed_forward_length"), ffn);
        match shape.architecture {
            Architecture::Qwen35 => {
                header.set_number(&key("expert_shared_feed_forward_length"), shape.ffn);
            }
            Architecture::Lfm2 => {
                header.set_number(&key("leading_dense_block_count"), shape.dense);
                header.set_number(&key("expert_gating_func"), SIGMOID);
            }
            _ => (),
        }
    }
    if shape.window[0] > 0 {
        let [window, pattern] = shape.window;
        header.set_number(&key("attention.sliding_window"), window);
        if shape.architecture == Architecture::Gemma4 {
            let has_window = |layer| i32::from(shape.has_window(layer));
            let pattern: Vec<i32> = (0..shape.layers).map(has_window).collect();
            header.set_integers(&key("attention.sliding_window_pattern"), &pattern);
            for (name, value) in [
                ("attention.key_length_swa", shape.head_size),
                ("attention.value_length_swa", shape.head_size),
                ("rope.dimension_count", tensors::GLOBAL_HEAD_SIZE),
                ("rope.dimension_count_swa", shape.head_size),
                ("embedding_length_per_layer_input", 0),
            ] {
                header.set_number(&key(name), value);
            }
            header.set_float(&key("final_logit_softcapping"), 30.0);
        } else {
            header.set_number(&key("attention.sliding_window_pattern"), pattern);
        }
    }
    header.set_float(&key("attention.layer_norm_rms_epsilon"), shape.rms_epsilon);
    header.set_float(&key("rope.freq_base"), shape.rope_base);
    if shape.architecture == Architecture::Llama {
        header.set_number(&key("rope.dimension_count"), shape.head_size);
        header.set_number(&key("vocab_size"), shape.vocab);
    }
    header
}

/// A path to an open file, which may have no name. Valid while the file is open.
fn open_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Reads the file back; `None` if it is incomplete. (llama.cpp's quantiser does not check its last
/// writes.)
fn read_back(path: &Path) -> Option<Made> {
    let header = Gguf::open(path)?;
    let bytes = path.metadata().ok()?.len();
    (bytes >= header.file_bytes_min()).then(|| Made { bytes, tensors: header.tensors() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_cut_is_noticed() {
        let path = std::env::temp_dir().join(format!("corelane-torn-{}", std::process::id()));
        let verdict = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let verdict = read_back(&path).is_some();
            std::fs::remove_file(&path).unwrap();
            verdict
        };
        let whole = builtin::GGUF;
        assert!(verdict(whole));
        for length in [0, 100, whole.len() / 2, whole.len() - 64] {
            assert!(!verdict(&whole[..length]), "{length} bytes");
        }
        // A disk that fills up midway leaves a file without a header.
        assert!(!verdict(&vec![0; whole.len()]));
    }
}
