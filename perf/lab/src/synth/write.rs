//! The two passes over the disk: drawing the weights, and quantising them.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use llama_cpp_sys_2 as sys;

use super::quant::Quant;
use super::shape::Shape;
use super::tensors::Tensor;
use super::weights::{Content, Weights};
use corelane::model::gguf::Gguf;
use corelane::model::library;

/// Numbers of a synthetic model that a thread draws and writes at once.
const PIECE_ELEMENTS: u64 = 1 << 20;

const _: () = assert!(PIECE_ELEMENTS.is_multiple_of(2), "weights are drawn in pairs");

/// Bytes of a tensor that the quantiser holds at once.
const QUANT_BUFFER_BYTES: usize = 256 * 1024 * 1024;

/// The unquantised file: its header and its pieces.
pub(super) struct Layout {
    header: Vec<u8>,
    tensors: Vec<Placed>,
    pieces: Vec<Piece>,
    file_bytes: u64,
}

struct Placed {
    tensor: Tensor,
    source: Source,
    /// The offset of its data in the file.
    offset: u64,
}

enum Source {
    /// f16, 2 bytes each.
    Random(Weights),
    /// f32, small.
    Whole(Vec<u8>),
}

/// A part of a tensor, small enough to be held in memory.
struct Piece {
    tensor: usize,
    first: u64,
    elements: u64,
}

impl Layout {
    /// The layout of a model with this shape; `header` has its metadata.
    pub fn new(shape: &Shape, seed: u64, mut header: Gguf) -> Self {
        let mut tensors = Vec::new();
        for (number, tensor) in shape.tensors().into_iter().enumerate() {
            let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let (kind, source) = match &tensor.content {
                Content::Random { deviation } => {
                    let weights = Weights::new(seed, number as u64, *deviation);
                    (sys::GGML_TYPE_F16, Source::Random(weights))
                }
                Content::Constant(value) => {
                    let values = vec![*value; tensor.elements() as usize]; // one row, so bounded
                    (sys::GGML_TYPE_F32, Source::Whole(floats(&values)))
                }
                Content::Given(values) => (sys::GGML_TYPE_F32, Source::Whole(floats(values))),
            };
            let offset = header.add_tensor(&tensor.name, kind, tensor.dims);
            tensors.push(Placed { tensor, source, offset });
        }
        let file_bytes = header.file_bytes_min().next_multiple_of(32); // ggml pads to 32 bytes
        let header = header.header();
        let pieces = pieces(&tensors);
        let begin = header.len() as u64;
        tensors.iter_mut().for_each(|placed| placed.offset += begin);
        Self { header, tensors, pieces, file_bytes }
    }

    /// Writes the file with `threads` threads, including the calling one. Reports the number of
    /// weights written to `progress`.
    ///
    /// # Errors
    /// The first error of any thread.
    pub fn draw(
        &self,
        file: &File,
        threads: usize,
        mut progress: impl FnMut(u64),
    ) -> io::Result<()> {
        file.set_len(self.file_bytes)?;
        file.write_all_at(&self.header, 0)?;
        let next = AtomicUsize::new(0);
        let drawn = AtomicU64::new(0);
        let work = |report: &mut dyn FnMut(u64)| -> io::Result<()> {
            let mut buffer = vec![0u8; 2 * PIECE_ELEMENTS as usize]; // 2 MiB
            while let Some(piece) = self.pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                let written = self.write_piece(piece, &mut buffer, file);
                if written.is_err() {
                    next.store(self.pieces.len(), Ordering::Relaxed); // makes the other threads stop
                    return written;
                }
                let before = drawn.fetch_add(piece.elements, Ordering::Relaxed);
                report(before + piece.elements);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let help = || work(&mut |_| ());
            let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(help)).collect();
            let own = work(&mut progress);
            let others = helpers.into_iter().map(|helper| helper.join().expect("no panic in it"));
            others.fold(own, Result::and)
        })?;
        progress(drawn.into_inner()); // another thread may have drawn the last piece
        Ok(())
    }

    fn write_piece(&self, piece: &Piece, buffer: &mut [u8], file: &File) -> io::Result<()> {
        let placed = &self.tensors[piece.tensor];
        match &placed.source {
            Source::Random(weights) => {
                let bytes = &mut buffer[..2 * piece.elements as usize];
                weights.fill(piece.first, bytes);
                file.write_all_at(bytes, placed.offset + 2 * piece.first)
            }
            Source::Whole(bytes) => file.write_all_at(bytes, placed.offset),
        }
    }
}

fn pieces(tensors: &[Placed]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (tensor, placed) in tensors.iter().enumerate() {
        let total = placed.tensor.elements();
        if matches!(placed.source, Source::Whole(_)) {
            pieces.push(Piece { tensor, first: 0, elements: total });
            continue;
        }
        let mut first = 0;
        while first < total {
            let elements = PIECE_ELEMENTS.min(total - first);
            pieces.push(Piece { tensor, first, elements });
            first += elements;
        }
    }
    pieces
}

/// An importance matrix in which all columns are as important.
struct Importances {
    list: Vec<sys::llama_model_imatrix_data>,
    /// What the list points to.
    _of_list: (Vec<CString>, Vec<f32>),
}

impl Importances {
    fn of(plan: &Layout) -> Self {
        let columns = |placed: &Placed| {
            let [columns, _, experts] = placed.tensor.dims;
            usize::try_from(columns * experts).expect("a tensor's columns fit in memory")
        };
        let ones = vec![1.0; plan.tensors.iter().map(columns).max().unwrap_or(0)];
        let mut names = Vec::new();
        let mut list = Vec::new();
        for placed in &plan.tensors {
            let name = CString::new(placed.tensor.name.as_str()).expect("our names have no NUL");
            let (name_at, data) = (name.as_ptr(), ones.as_ptr());
            list.push(sys::llama_model_imatrix_data { name: name_at, data, size: columns(placed) });
            names.push(name);
        }
        let end = sys::llama_model_imatrix_data { name: ptr::null(), data: ptr::null(), size: 0 };
        list.push(end);
        Self { list, _of_list: (names, ones) }
    }
}

/// Quantises the file `from`, which follows `plan`, into the file `to`, with llama.cpp. Reports the
/// number of weights done to `progress`.
///
/// # Errors
/// llama.cpp's last message, with a colon before it.
pub(super) fn quantise(
    from: &Path,
    to: &Path,
    quant: &Quant,
    threads: usize,
    plan: &Layout,
    mut progress: impl FnMut(u64) + 'static,
) -> Result<(), String> {
    let path = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes());
    let (Ok(from), Ok(to)) = (path(from), path(to)) else {
        return Err(": a path has a NUL in it".into());
    };
    // SAFETY: returns plain data; no preconditions.
    let mut params = unsafe { sys::llama_model_quantize_default_params() };
    params.nthread = i32::try_from(threads).unwrap_or(1);
    params.ftype = quant.ftype;
    params.max_buf_size = QUANT_BUFFER_BYTES;

    let importances = Importances::of(plan);
    if quant.has_importances() {
        params.imatrix = importances.list.as_ptr();
    }

    let size_of = |placed: &Placed| (placed.tensor.name.clone(), placed.tensor.elements());
    let sizes: HashMap<String, u64> = plan.tensors.iter().map(size_of).collect();
    let (mut done, mut current) = (0, 0);
    let listener = move |line: &str| {
        let Some(elements) = tensor_begun(line).and_then(|name| sizes.get(name)) else { return };
        done += std::mem::replace(&mut current, *elements);
        progress(done);
    };
    // SAFETY: both paths are NUL-terminated, the parameters are initialised, and all of them
    // outlive the call, and so do the importances.
    let code = library::listening(listener, || unsafe {
        sys::llama_model_quantize(from.as_ptr(), to.as_ptr(), &raw const params)
    });
    if code == 0 { Ok(()) } else { Err(library::error()) }
}

/// The tensor that llama.cpp's quantiser reports as started: `[   1/ 310] token_embd.weight  - [
/// 1024, 151936, …`.
fn tensor_begun(line: &str) -> Option<&str> {
    let (count, rest) = line.strip_prefix('[')?.split_once(']')?;
    count.contains('/').then(|| rest.split_whitespace().next())?
}

/// A temporary file beside another file, under a unique name. It is removed unless it is renamed to
/// the other file.
pub(super) struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// Chooses the name. There is no file yet.
    pub fn beside(out: &Path) -> Self {
        Self { path: temporary_path(out) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the empty file, for reading and writing.
    pub fn create(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&self.path)
    }

    /// Removes the name. The file lives on where it is open.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    /// Renames the file to its final name, replacing the file there.
    pub fn rename(self, out: &Path) -> io::Result<()> {
        fs::rename(&self.path, out)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Usually already renamed or removed.
        let _ = self.remove();
    }
}

/// The path of the incomplete file while `synth` writes `out`. A process that is stopped midway
/// removes this file.
pub fn temporary_path(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantisers_lines_are_understood() {
        let line = "[   1/ 310] token_embd.weight     - [ 1024, 151936,     1,     1], type =";
        assert_eq!(tensor_begun(line), Some("token_embd.weight"));
        for other in ["", "[x", "[x] y", "llama_model_loader: - kv", "converting to q4_K .. "] {
            assert_eq!(tensor_begun(other), None, "{other:?}");
        }
    }
}
