//! The models in the cache: which there are, and how to remove one.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::cache::{Folder, walk};
use super::choose::{is_model, is_quant, quant_of, shard};
use super::environment::Hub;
use super::error::HubError;
use super::name::{Name, is_hash};

/// A model in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name, with the quant if its file has one.
    pub name: Name,
    /// The paths of its files in the repository.
    pub files: Vec<String>,
    /// Files that it should have, and that are not there.
    pub missing: usize,
    /// Bytes of its files, of all commits.
    pub bytes: u64,
    /// When the newest of them was written, in seconds since 1970.
    pub modified: u64,
}

/// Downloads of a repository that did not come to their end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The repository.
    pub name: Name,
    /// Files.
    pub files: usize,
    /// Bytes that are there.
    pub bytes: u64,
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Files, shared ones included.
    pub files: usize,
    /// Bytes that are free again.
    pub bytes: u64,
}

/// All models in the cache, by name.
pub fn kept(hub: &Hub) -> Vec<Kept> {
    repositories(hub)
        .iter()
        .flat_map(|name| kept_of(&Folder::new(&hub.cache, name), name))
        .collect()
}

/// All repositories with downloads that did not come to their end, by name.
pub fn unfinished(hub: &Hub) -> Vec<Unfinished> {
    let of = |name: Name| {
        let sizes = parts(&Folder::new(&hub.cache, &name));
        let bytes = sizes.iter().map(|part| part.bytes).sum();
        (!sizes.is_empty()).then_some(Unfinished { name, files: sizes.len(), bytes })
    };
    repositories(hub).into_iter().filter_map(of).collect()
}

/// Removes a model, or without a quant all GGUF files of a repository and its unfinished downloads.
/// Bytes that another file refers to stay.
///
/// # Errors
/// If nothing has this name, or a process is downloading a file of the repository.
pub fn remove(hub: &Hub, name: &Name) -> Result<Removed, HubError> {
    let folder = Folder::new(&hub.cache, name);
    let is_meant = |path: &str| match &name.quant {
        Some(quant) => is_model(path) && is_quant(path, quant),
        None => path.ends_with(".gguf"),
    };
    let mut meant: Vec<PathBuf> = Vec::new();
    for commit in folder.commits() {
        let paths = folder.files(&commit).into_iter().filter(|path| is_meant(path));
        meant.extend(paths.map(|path| folder.file(&commit, &path)));
    }
    let parts = if name.quant.is_none() { parts(&folder) } else { Vec::new() };
    if meant.is_empty() && parts.is_empty() {
        let (wanted, cache) = (name.to_string(), hub.cache.clone());
        return Err(HubError::NotKept { wanted, cache });
    }
    let mut locks = Vec::new(); // held until the files are gone
    let hashes: HashSet<&str> = parts.iter().map(|part| part.sha256.as_str()).collect();
    for sha256 in hashes {
        locks.push(folder.lock(sha256, false)?.ok_or_else(|| HubError::Busy(name.to_string()))?);
    }
    let mut removed = Removed { files: meant.len(), bytes: 0 };
    for Part { path, bytes, .. } in &parts {
        fs::remove_file(path).map_err(HubError::io("remove", path))?;
        removed.bytes += bytes;
    }
    let blobs: HashSet<PathBuf> =
        meant.iter().filter_map(|path| path.canonicalize().ok()).collect();
    for path in &meant {
        fs::remove_file(path).map_err(HubError::io("remove", path))?;
    }
    removed.bytes += remove_blobs(&folder, blobs)?;
    prune(&folder.snapshots());
    if !folder.snapshots().exists() && is_empty(&folder.blobs()) {
        let _ = fs::remove_dir_all(&folder.root); // only refs are left
    }
    Ok(removed)
}

/// Removes the blobs that no snapshot refers to any more.
fn remove_blobs(folder: &Folder, mut blobs: HashSet<PathBuf>) -> Result<u64, HubError> {
    walk(&folder.snapshots(), &mut |link| {
        if let Ok(blob) = link.canonicalize() {
            blobs.remove(&blob);
        }
    });
    let (own, mut freed) = (folder.blobs().canonicalize().ok(), 0);
    // A tool that cannot make links has put the bytes into the snapshot, and these are gone already.
    for blob in blobs.into_iter().filter(|blob| blob.parent() == own.as_deref()) {
        freed += fs::metadata(&blob).map_or(0, |meta| meta.len());
        fs::remove_file(&blob).map_err(HubError::io("remove", &blob))?;
    }
    Ok(freed)
}

/// Removes empty folders.
fn prune(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            prune(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder); // refuses if it is not empty
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}

fn repositories(hub: &Hub) -> Vec<Name> {
    let entries = fs::read_dir(&hub.cache).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| Name::of_folder(entry.file_name().to_str()?);
    let mut names: Vec<Name> = entries.filter_map(name).collect();
    names.sort_by_key(|name| name.to_string().to_ascii_lowercase());
    names
}

/// The files of one model, in all snapshots.
#[derive(Default)]
struct Found {
    /// The paths in the newest snapshot that has one of them.
    files: Vec<String>,
    commit: String,
    blobs: BTreeMap<PathBuf, (u64, u64)>,
}

fn kept_of(folder: &Folder, name: &Name) -> Vec<Kept> {
    // The quant, and the path where that is all that there is.
    let mut models: BTreeMap<(Option<String>, String), Found> = BTreeMap::new();
    for commit in folder.commits() {
        for path in folder.files(&commit).into_iter().filter(|path| is_model(path)) {
            let quant = quant_of(&path);
            let key = shard(&path).map_or(path.as_str(), |shard| shard.prefix);
            let key = if quant.is_some() { String::new() } else { key.to_owned() };
            let found = models.entry((quant, key)).or_default();
            found.commit.is_empty().then(|| found.commit.clone_from(&commit));
            let link = folder.file(&commit, &path);
            if let (Ok(blob), Ok(meta)) = (link.canonicalize(), link.metadata()) {
                let time = meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                found.blobs.insert(blob, (meta.len(), time.map_or(0, |time| time.as_secs())));
            }
            if found.commit == commit {
                found.files.push(path);
            }
        }
    }
    let kept = models.into_iter().map(|((quant, _), Found { files, blobs, .. })| {
        let count = shard(&files[0]).map_or(1, |shard| shard.count as usize);
        Kept {
            name: name.with_quant(quant),
            missing: count.saturating_sub(files.len()),
            bytes: blobs.values().map(|(bytes, _)| bytes).sum(),
            modified: blobs.values().map(|(_, modified)| *modified).max().unwrap_or(0),
            files,
        }
    });
    kept.collect()
}

/// The first bytes of a file.
struct Part {
    sha256: String,
    path: PathBuf,
    bytes: u64,
}

/// Unfinished downloads. Those of huggingface_hub have a random word in their names.
fn parts(folder: &Folder) -> Vec<Part> {
    let entries = fs::read_dir(folder.blobs()).into_iter().flatten().flatten();
    let part = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let sha256 = name.strip_suffix(".incomplete")?.split('.').next()?;
        let is_part = is_hash(sha256, 64);
        let (sha256, bytes) = (sha256.to_owned(), entry.metadata().ok()?.len());
        is_part.then_some(Part { sha256, path: entry.path(), bytes })
    };
    entries.filter_map(part).collect()
}
