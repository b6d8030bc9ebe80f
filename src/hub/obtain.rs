//! Obtains a model by its name, from the hub or from the cache.

use std::path::PathBuf;

use rustix::fs::statvfs;

use super::cache::Folder;
use super::choose::{DEFAULT_QUANTS, choose, is_first_choice};
use super::client::Client;
use super::download::download;
use super::environment::Hub;
use super::error::HubError;
use super::listing::{Content, Listing};
use super::name::Wanted;
use crate::limits::HUB_TRIES_MAX;

/// A model in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its files, the first shard first.
    pub files: Vec<PathBuf>,
    /// Bytes of all files.
    pub bytes: u64,
    /// The bytes that this call downloaded.
    pub downloaded: u64,
}

/// The progress of a download.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The file that is being downloaded, by its path in the repository.
    pub file: &'a str,
    /// The bytes of these files so far, including those that an earlier download left.
    pub done: u64,
    /// The bytes of all files that have to be downloaded.
    pub total: u64,
    /// The bytes of all files of the model.
    pub model: u64,
}

/// The newest version of a model from the hub. If that fails, or if the hub must not be asked, the
/// version in the cache.
///
/// # Errors
/// If the cache has no version, either.
pub fn obtain(
    hub: &Hub,
    wanted: &Wanted,
    report: &mut dyn FnMut(Progress<'_>),
) -> Result<Model, HubError> {
    let kept = cached(hub, wanted);
    if hub.offline {
        return kept;
    }
    match (renew(hub, wanted, kept.is_ok(), report), kept) {
        (Err(error), Ok(kept)) => {
            tracing::warn!("{error}; {}", in_its_place(hub, wanted, &kept));
            Ok(kept)
        }
        (renewed, _) => renewed,
    }
}

/// The sentence that says which cached model is used instead of the hub's.
fn in_its_place(hub: &Hub, wanted: &Wanted, kept: &Model) -> String {
    let file = &kept.files[0];
    let path = file.strip_prefix(Folder::new(&hub.cache, &wanted.name).snapshots());
    let is_first = path.is_ok_and(|path| is_first_choice(&path.to_string_lossy(), wanted));
    let other = match is_first {
        true => String::new(),
        false => format!(
            ", but the hub's is another one if it has {}; add the quant to the name to choose one",
            DEFAULT_QUANTS[0]
        ),
    };
    format!("the model in the cache is used: {}{other}", file.display())
}

/// The newest version of a model from the hub.
///
/// # Errors
/// If the hub must not be asked, or if the download fails.
pub fn pull(
    hub: &Hub,
    wanted: &Wanted,
    report: &mut dyn FnMut(Progress<'_>),
) -> Result<Model, HubError> {
    let offline =
        || HubError::Offline { wanted: wanted.name.to_string(), cache: hub.cache.clone() };
    if hub.offline { Err(offline()) } else { renew(hub, wanted, false, report) }
}

/// The model in the cache: of `main`, or else of the newest commit that has all files.
///
/// # Errors
/// If there is none.
pub fn cached(hub: &Hub, wanted: &Wanted) -> Result<Model, HubError> {
    let folder = Folder::new(&hub.cache, &wanted.name);
    for commit in folder.commits() {
        let paths = folder.files(&commit);
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        if let Ok(chosen) = choose(&paths, wanted) {
            return Ok(model(&folder, &commit, &chosen, 0));
        }
    }
    let (wanted, cache) = (wanted.name.to_string(), hub.cache.clone());
    Err(match hub.offline {
        true => HubError::Offline { wanted, cache },
        false => HubError::NotKept { wanted, cache },
    })
}

fn model(folder: &Folder, commit: &str, paths: &[&str], downloaded: u64) -> Model {
    let files: Vec<PathBuf> = paths.iter().map(|path| folder.file(commit, path)).collect();
    let bytes = files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    Model { files, bytes, downloaded }
}

/// Asks the hub for the newest commit, and downloads the files that are missing.
fn renew(
    hub: &Hub,
    wanted: &Wanted,
    is_kept: bool,
    report: &mut dyn FnMut(Progress<'_>),
) -> Result<Model, HubError> {
    let client = Client::new(hub, is_kept);
    let Listing { commit, files } = client.listing(&wanted.name)?;
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let paths = choose(&paths, wanted)?;
    let mut contents = Vec::new();
    for path in &paths {
        let listed = files.iter().find(|file| file.path == *path).expect("it was chosen of these");
        contents.push(match &listed.content {
            Some(content) => content.clone(),
            None => client.content(&wanted.name, &commit, path)?,
        });
    }
    let folder = Folder::new(&hub.cache, &wanted.name);
    let chosen =
        Chosen { folder, commit: &commit, files: paths.iter().copied().zip(contents).collect() };
    let mut downloaded = 0;
    for _ in 0..HUB_TRIES_MAX {
        downloaded += chosen.download(hub, wanted, &client, report)?;
        if chosen.link()? {
            return Ok(model(&chosen.folder, &commit, &paths, downloaded));
        }
        tracing::info!("another process removed a file of {} meanwhile", wanted.name);
    }
    Err(HubError::Removed(wanted.name.to_string()))
}

/// The files of a model at a commit.
struct Chosen<'a> {
    folder: Folder,
    commit: &'a str,
    /// Paths and contents, the first shard first.
    files: Vec<(&'a str, Content)>,
}

impl Chosen<'_> {
    /// The files that the commit's snapshot does not link to.
    fn unlinked(&self) -> Vec<&(&str, Content)> {
        let is_linked =
            |(path, content): &(&str, Content)| self.folder.has(self.commit, path, content.size);
        self.files.iter().filter(|file| !is_linked(file)).collect()
    }

    /// Downloads the missing files. Returns the number of downloaded bytes, without those that an
    /// earlier download left.
    fn download(
        &self,
        hub: &Hub,
        wanted: &Wanted,
        client: &Client<'_>,
        report: &mut dyn FnMut(Progress<'_>),
    ) -> Result<u64, HubError> {
        let folder = &self.folder;
        let mut absent = self.unlinked();
        absent.retain(|(_, content)| !folder.has_blob(content));
        let total: u64 = absent.iter().map(|(_, content)| content.size).sum();
        let left: u64 = absent.iter().map(|(_, content)| left(folder, content)).sum();
        check_space(hub, total - left)?;
        let model = self.files.iter().map(|(_, content)| content.size).sum();
        let mut before = 0; // bytes of the files that are done
        if let Some((path, content)) = absent.first() {
            report(Progress { file: path, done: self::left(folder, content), total, model });
        }
        for (path, content) in absent {
            let url = client.file_url(&wanted.name, self.commit, path);
            let mut report =
                |bytes| report(Progress { file: path, done: before + bytes, total, model });
            download(client, folder, &url, content, &mut report)?;
            before += content.size;
        }
        Ok(total - left)
    }

    /// Links all files into the snapshot, and sets `main` to its commit. Returns false, and links
    /// none, if another process has removed a file meanwhile.
    fn link(&self) -> Result<bool, HubError> {
        if self.unlinked().is_empty() && self.folder.main().as_deref() == Some(self.commit) {
            return Ok(true); // without a lock, so that a read-only cache works, too
        }
        let _links = self.folder.lock_links()?;
        let unlinked = self.unlinked();
        if !unlinked.iter().all(|(_, content)| self.folder.has_blob(content)) {
            return Ok(false);
        }
        for (path, content) in unlinked {
            self.folder.link(self.commit, path, &content.sha256)?;
        }
        self.folder.set_main(self.commit)?;
        Ok(true)
    }
}

/// Bytes of a file that an earlier download left.
fn left(folder: &Folder, content: &Content) -> u64 {
    let bytes = folder.incomplete(&content.sha256).metadata().map_or(0, |meta| meta.len());
    if bytes > content.size { 0 } else { bytes }
}

/// Checks that these bytes fit on the disk.
fn check_space(hub: &Hub, needed: u64) -> Result<(), HubError> {
    std::fs::create_dir_all(&hub.cache).map_err(HubError::io("make", &hub.cache))?;
    let free = statvfs(&hub.cache).map(|disk| disk.f_bavail * disk.f_frsize);
    let free = free.map_err(|error| HubError::io("look at", &hub.cache)(error.into()))?;
    if needed > free {
        return Err(HubError::Full { folder: hub.cache.clone(), free, needed });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_says_that_the_hub_would_give_another_quant() {
        let variable = |name: &str| (name == "HOME").then(|| "/Q4_K_M".to_owned());
        let hub = Hub::new(variable, None, false).unwrap();
        let said = |name: &str, file: Option<&str>, kept: &str| {
            let wanted = Wanted { name: name.parse().unwrap(), file: file.map(str::to_owned) };
            let link = Folder::new(&hub.cache, &wanted.name).file(&"1".repeat(40), kept);
            let kept = Model { files: vec![link], bytes: 1, downloaded: 0 };
            in_its_place(&hub, &wanted, &kept)
        };
        let is_another = |said: String| said.contains("if it has Q4_K_M");
        let said_of_bf16 = said("a/m-Q4_K_M", None, "m-BF16.gguf");
        assert!(said_of_bf16.contains("m-BF16.gguf, but the hub's"), "{said_of_bf16}");
        assert!(is_another(said("a/b", None, "m-Q8_0-00001-of-00002.gguf")));
        for (name, file, kept) in [
            ("a/b", None, "m-q4_k_m.gguf"),
            ("a/b", None, "Q4_K_M/m-00001-of-00002.gguf"),
            ("a/b:BF16", None, "m-BF16.gguf"),
            ("a/b", Some("m-BF16.gguf"), "m-BF16.gguf"),
        ] {
            assert!(!is_another(said(name, file, kept)), "{name} {kept}");
        }
    }
}
