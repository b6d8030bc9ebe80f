//! Lists the models in the cache, and removes them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use super::cache::{Folder, Lock};
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
    /// The number of its shards that are missing.
    pub missing: usize,
    /// The bytes of its files at all commits.
    pub bytes: u64,
    /// The time at which the newest file was written, in seconds since 1970.
    pub modified: u64,
}

/// Unfinished downloads of a repository: incomplete blobs, and complete ones that no snapshot links
/// to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The repository.
    pub name: Name,
    /// The number of files.
    pub files: usize,
    /// The bytes that are on the disk.
    pub bytes: u64,
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The number of removed files, including those whose bytes another file shares.
    pub files: usize,
    /// The bytes that this frees.
    pub bytes: u64,
}

/// All models in the cache, by name.
pub fn kept(hub: &Hub) -> Vec<Kept> {
    repositories(hub)
        .iter()
        .flat_map(|name| kept_of(&Folder::new(&hub.cache, name), name))
        .collect()
}

/// All repositories with unfinished downloads, by name.
pub fn unfinished(hub: &Hub) -> Vec<Unfinished> {
    let of = |name: Name| {
        let sizes = parts(&Folder::new(&hub.cache, &name));
        let bytes = sizes.iter().map(|part| part.bytes).sum();
        (!sizes.is_empty()).then_some(Unfinished { name, files: sizes.len(), bytes })
    };
    repositories(hub).into_iter().filter_map(of).collect()
}

/// Removes a model. Without a quant, removes all GGUF files of a repository and its unfinished
/// downloads. Blobs that another link leads to stay.
///
/// # Errors
/// If the cache has no model of this name. Without a quant, also if a process is downloading a file
/// of the repository.
pub fn remove(hub: &Hub, name: &Name) -> Result<Removed, HubError> {
    let folder = Folder::new(&hub.cache, name);
    let not_kept = || HubError::NotKept { wanted: name.to_string(), cache: hub.cache.clone() };
    if !folder.root.exists() {
        return Err(not_kept());
    }
    let _links = folder.lock_links()?;
    let meant = meant(&folder, name);
    let locks = match name.quant {
        Some(_) => HashMap::new(),
        None => lock_parts(&folder)?.ok_or_else(|| HubError::Busy(name.to_string()))?,
    };
    if meant.is_empty() && locks.is_empty() {
        return Err(not_kept());
    }
    let mut removed = Removed { files: meant.len(), bytes: 0 };
    // List the parts again: a download may have finished before its lock was taken.
    for Part { path, bytes, .. } in
        parts(&folder).iter().filter(|part| locks.contains_key(&part.sha256))
    {
        fs::remove_file(path).map_err(HubError::io("remove", path))?;
        removed.bytes += bytes;
    }
    let blobs: HashSet<PathBuf> =
        meant.iter().filter_map(|path| path.canonicalize().ok()).collect();
    for path in &meant {
        fs::remove_file(path).map_err(HubError::io("remove", path))?;
    }
    removed.bytes += remove_blobs(&folder, &blobs)?;
    folder.tidy();
    Ok(removed)
}

/// The links to the files of a model, in all snapshots.
fn meant(folder: &Folder, name: &Name) -> Vec<PathBuf> {
    let is_meant = |path: &str| match &name.quant {
        Some(quant) => is_model(path) && is_quant(path, quant),
        None => path.ends_with(".gguf"),
    };
    let mut meant = Vec::new();
    for commit in folder.commits() {
        let paths = folder.files(&commit).into_iter().filter(|path| is_meant(path));
        meant.extend(paths.map(|path| folder.file(&commit, &path)));
    }
    meant
}

/// The locks of all unfinished downloads, by their hashes. `None` if another process holds one.
fn lock_parts(folder: &Folder) -> Result<Option<HashMap<String, Lock>>, HubError> {
    let hashes: HashSet<String> = parts(folder).into_iter().map(|part| part.sha256).collect();
    let lock = |sha256: String| Ok(folder.lock(&sha256, false)?.map(|lock| (sha256, lock)));
    hashes.into_iter().map(lock).collect()
}

/// Removes the `blobs` to which no snapshot links any more. Returns their bytes.
fn remove_blobs(folder: &Folder, blobs: &HashSet<PathBuf>) -> Result<u64, HubError> {
    let (own, mut freed) = (folder.blobs().canonicalize().ok(), 0);
    // Tools that cannot make links store the file itself in the snapshot. Such files are removed
    // already.
    let is_own = |blob: &&PathBuf| blob.parent() == own.as_deref();
    for blob in blobs.difference(&folder.linked()).filter(is_own) {
        freed += fs::metadata(blob).map_or(0, |meta| meta.len());
        fs::remove_file(blob).map_err(HubError::io("remove", blob))?;
    }
    Ok(freed)
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
    /// The paths in the snapshot of `main`, or else in the newest snapshot that has any of them.
    files: Vec<String>,
    commit: String,
    blobs: BTreeMap<PathBuf, (u64, u64)>,
}

fn kept_of(folder: &Folder, name: &Name) -> Vec<Kept> {
    // The key is the quant, or the path's prefix for files without a quant.
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

/// A file of an unfinished download, incomplete or complete.
struct Part {
    sha256: String,
    path: PathBuf,
    bytes: u64,
}

/// The files of unfinished downloads. Those of huggingface_hub have a random word in their names. A
/// complete file counts if no snapshot links to it: other shards of its model are missing.
fn parts(folder: &Folder) -> Vec<Part> {
    let linked = folder.linked();
    let entries = fs::read_dir(folder.blobs()).into_iter().flatten().flatten();
    let part = |entry: fs::DirEntry| {
        let (path, name) = (entry.path(), entry.file_name().into_string().ok()?);
        let sha256 = match name.strip_suffix(".incomplete") {
            Some(stem) => stem.split('.').next()?,
            None => &name,
        };
        let is_part = is_hash(sha256, 64) && !linked.contains(&path.canonicalize().ok()?);
        let (sha256, bytes) = (sha256.to_owned(), entry.metadata().ok()?.len());
        is_part.then_some(Part { sha256, path, bytes })
    };
    entries.filter_map(part).collect()
}
