//! Models in several files. llama.cpp finds the other files itself if the first one's name ends
//! with `-00001-of-00003.gguf`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::gguf::{Gguf, TensorInfo};
use super::library;

/// The tensors of one type in a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeShare {
    /// The type, as ggml names it: `q4_K`.
    pub type_name: String,
    /// The number of tensors.
    pub tensors: usize,
    /// Bytes of their data.
    pub bytes: u64,
}

/// The types of a model's tensors, in all of its files, the largest share first. A file that cannot
/// be read has none.
pub fn tensor_types(path: &Path) -> Vec<TypeShare> {
    library::start();
    let mut types: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for tensor in tensors(path) {
        let (tensors, bytes) = types.entry(tensor.type_name).or_default();
        *tensors += 1;
        *bytes += tensor.bytes;
    }
    let share = |(type_name, (tensors, bytes))| TypeShare { type_name, tensors, bytes };
    let mut shares: Vec<TypeShare> = types.into_iter().map(share).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}

/// The tensors in all files of a model. A file that cannot be read has none.
pub(super) fn tensors(path: &Path) -> impl Iterator<Item = TensorInfo> {
    let files = std::iter::once(path.to_owned()).chain(others(path));
    files.filter_map(|file| Gguf::open(&file)).flat_map(|file| file.tensors())
}

/// Whether a file says that it is a later part of a model.
pub(super) fn is_later_part(gguf: &Gguf) -> bool {
    gguf.number("split.no").is_some_and(|part| part > 0)
}

/// The name of a model's first file, if this name is that of a later one.
pub(super) fn first_of(path: &Path) -> Option<String> {
    let (first, count) = path.to_str()?.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (name, part) = first.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(part) && is_number(count)).then(|| format!("{name}-00001-of-{count}.gguf"))
}

/// A model's other files, whether they exist or not.
pub fn others(path: &Path) -> Vec<PathBuf> {
    let parts = || {
        let (first, count) = path.to_str()?.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        Some((first.strip_suffix("-00001")?, count, count.parse::<u16>().ok()?))
    };
    let Some((name, count, parts)) = parts() else { return Vec::new() };
    (2..=parts).map(|part| format!("{name}-{part:05}-of-{count}.gguf").into()).collect()
}
