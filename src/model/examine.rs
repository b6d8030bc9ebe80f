//! Examines a model's file before gigabytes of it are read.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::gguf::{Gguf, TensorInfo};
use super::shards::{self, others};
use crate::kernels::InstructionSet;
use crate::kernels::formats::STRIP_ROWS;
use crate::memory::gib;
use crate::types::printable::one_line;

/// Most characters of a model's name: it is in every reply.
pub(super) const NAME_CHARS_MAX: usize = 256;

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
    /// The header has a number that no model has.
    #[error("{path} says that it has {number} {what}")]
    Impossible {
        /// The file.
        path: PathBuf,
        /// What it counts.
        what: &'static str,
        /// The number, as llama.cpp reads it.
        number: i32,
    },
    /// The system refused memory for the built-in model.
    #[error("cannot place the built-in model in memory: {0}")]
    BuiltIn(std::io::Error),
}

/// Refuses a file that cannot be served, and one that takes more than `available` bytes.
///
/// # Errors
/// A sentence for a user.
pub(super) fn check_file(path: &Path, available: u64) -> Result<(), LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    // To open a pipe would wait for a writer.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(LoadError::NotAFile(path.to_owned()));
    }
    // Its header alone may take several times its size.
    let bytes = metadata.len();
    if bytes > available {
        return Err(LoadError::TooLarge { path: path.to_owned(), bytes, available });
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic).map_err(unreadable)?;
    if magic != b"GGUF" {
        let found = String::from_utf8_lossy(&magic).into_owned();
        return Err(LoadError::NotGguf { path: path.to_owned(), found });
    }
    let first = Gguf::open(path); // none if llama.cpp cannot read it
    if let Some(gguf) = &first {
        check_header(path, gguf)?;
    }
    let others_of_model = others(path).into_iter().filter_map(|file| Gguf::open(&file));
    let files = first.into_iter().chain(others_of_model);
    let tensors: Vec<_> = files.flat_map(|file| file.tensors()).collect();
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

#[cfg(test)]
mod tests {
    use llama_cpp_sys_2 as sys;

    use super::super::library;
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
}
