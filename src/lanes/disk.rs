//! Opens the folders of files with texts, and starts the disk lane.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ::ring::digest::{Context, SHA256};

use super::thread::spawn;
use crate::config::{FileFolder, FilesKey, ServeConfig};
use crate::disk::format::Seals;
use crate::disk::{self, DiskLane, Folder, FolderOptions, SlotFolder, fingerprint};
use crate::limits::{FILE_TASKS_MAX, LANE_STACK_BYTES};
use crate::memory::{Kept, KeptSizes, gib};
use crate::metrics::Metrics;
use crate::model::shards;
use crate::placement::{BEHIND_STREAMS, yield_to_others};
use crate::ring::bell::SocketBell;
use crate::ring::files::FileTask;
use crate::ring::{self, FrontLink};
use crate::scheduler::FileSizes;
use crate::types::ModelInfo;

const MIB: u64 = 1 << 20;

/// Fewest pages, each with a state, for which there must be room.
const FILES_MIN: u64 = 4;

/// The folders of files with texts.
pub(super) struct Folders {
    /// That of the prefix store.
    cache: Option<Folder>,
    /// That of slots' files.
    slots: Option<SlotFolder>,
    /// The sizes of files.
    pub sizes: FileSizes,
}

/// Opens the folders for a server of `config`, if it has any. The model is in the file `path` and
/// those that belong to it.
///
/// # Errors
/// A sentence for the user: a folder cannot be used, or there is no store in memory.
pub(super) fn open_folders(
    config: &ServeConfig,
    info: &ModelInfo,
    path: Option<&Path>,
    kept: KeptSizes,
) -> Result<Option<Folders>, String> {
    let ServeConfig { cache_disk, slot_save, files_key, .. } = config;
    let named = [("--cache-disk", cache_disk), ("--slot-save-path", slot_save)];
    let named = named.into_iter().find_map(|(flag, folder)| Some((flag, folder.as_ref()?)));
    let Some((flag, folder)) = named else { return Ok(None) };
    if kept.state_bytes > 0 && kept.states == 0 {
        return Err(format!(
            "{flag} {}: a model with recurrent layers or a sliding window goes on behind a saved state, \
             and this server saves none; it needs --ctx-checkpoints above 0, and memory for some",
            folder.path.display(),
        ));
    }
    if kept.pages == 0 {
        return Err(format!(
            "{flag} {}: files are read into the prefix store in memory, and this server has none; it \
             needs --cache-ram above 0, --flash-attn other than off, no --no-kv-unified and no \
             --no-cache-prompt; and for a model with a sliding window no --swa-full and a \
             --ctx-size that holds the windows of all requests",
            folder.path.display(),
        ));
    }
    let secret = files_key.as_ref().map(|FilesKey(secret)| secret.as_slice());
    let seed = seed(secret);
    let layout = format!(
        "corelane {} {:?} {} {} {} {} {} {:?}",
        env!("CARGO_PKG_VERSION"),
        config.cache,
        info.name,
        info.kernels.name,
        kept.page_tokens,
        kept.page_bytes,
        kept.state_bytes,
        seed,
    );
    let files = path.map(|path| [&[path.to_owned()], &*shards::others(path)].concat());
    let fingerprint = fingerprint(&files.unwrap_or_default(), &layout)
        .map_err(|error| format!("{flag}: the model's file cannot be read again: {error}"))?;
    let sizes = FileSizes {
        bytes_max: cache_disk.as_ref().map_or(0, |folder| folder.mib as u64 * MIB),
        page_bytes: Seals::file_bytes(kept.page_tokens, kept.page_bytes) as u64,
        state_bytes: Seals::file_bytes(0, kept.state_bytes) as u64,
        seed,
    };
    let most = sizes.page_bytes.max(sizes.state_bytes);
    let key = secret.map(|secret| sum(b"corelane encryption", secret));
    let cache = cache_disk.as_ref().map(|folder| {
        let least = FILES_MIN * (sizes.page_bytes + sizes.state_bytes);
        if sizes.bytes_max < least {
            return Err(format!(
                "--cache-disk-size is {}; a page of this model takes {:.1} MiB in a file and a \
                 state {:.1} MiB, so it must be at least {}",
                folder.mib,
                sizes.page_bytes as f64 / MIB as f64,
                if kept.states > 0 { sizes.state_bytes as f64 / MIB as f64 } else { 0.0 },
                least.div_ceil(MIB),
            ));
        }
        let (path, bytes_max) = (folder.path.clone(), sizes.bytes_max);
        let opened = Folder::open(&FolderOptions { path, bytes_max, key }, fingerprint, most)?;
        tracing::info!(
            folder = %folder.path.display(),
            gib = gib(opened.bytes()),
            of = gib(sizes.bytes_max),
            encrypted = key.is_some(),
            "prefixes on disk"
        );
        Ok(opened)
    });
    let slots = slot_save.as_ref().map(|FileFolder { path, mib }| {
        let seals = Seals::new(fingerprint, key);
        SlotFolder::open(path.clone(), *mib as u64 * MIB, seals, kept.page_tokens, most)
    });
    let folders = Folders { cache: cache.transpose()?, slots: slots.transpose()?, sizes };
    if let (Some(cache), Some(slots)) = (cache_disk, slot_save)
        && let (Ok(one), Ok(other)) = (cache.path.canonicalize(), slots.path.canonicalize())
        && one == other
    {
        return Err(format!(
            "--cache-disk and --slot-save-path are both {}; give each its own folder",
            one.display()
        ));
    }
    Ok(Some(folders))
}

/// What the names of texts begin with. With a key, nobody without it can tell from a name whether a
/// text is there.
fn seed(key: Option<&[u8]>) -> [u8; 32] {
    sum(b"corelane names", key.unwrap_or_default())
}

fn sum(purpose: &[u8], secret: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(purpose);
    context.update(secret);
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Starts the disk lane.
///
/// # Errors
/// A sentence about the thread.
pub(super) fn start_disk(
    folders: Folders,
    kept: Arc<Kept>,
    metrics: Arc<Metrics>,
    bell: Arc<SocketBell>,
) -> Result<(FrontLink<FileTask>, JoinHandle<()>), String> {
    let (front, link) = ring::link(FILE_TASKS_MAX, bell, Duration::ZERO);
    let lane = DiskLane::new(folders.cache, folders.slots, kept, metrics);
    let thread = spawn("disk", LANE_STACK_BYTES, move || {
        yield_to_others(BEHIND_STREAMS);
        disk::run(link, lane);
    })?;
    Ok((front, thread))
}
