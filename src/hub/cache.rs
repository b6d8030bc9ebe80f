//! The folder of a repository in the cache.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};

use super::error::HubError;
use super::listing::Content;
use super::name::{Name, is_hash, is_inside};

/// The folder of a repository.
pub(super) struct Folder {
    pub root: PathBuf,
    locks: PathBuf,
}

/// A blob that no other process downloads meanwhile, until this is dropped.
pub(super) struct Lock(#[expect(dead_code, reason = "closing it unlocks it")] File);

impl Folder {
    /// The folder of a name's repository, which may not exist yet.
    pub fn new(cache: &Path, name: &Name) -> Self {
        let folder = name.folder();
        Self { root: cache.join(&folder), locks: cache.join(".locks").join(folder) }
    }

    /// The folder of all blobs.
    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// The place of a whole file.
    pub fn blob(&self, sha256: &str) -> PathBuf {
        self.blobs().join(sha256)
    }

    /// The place of its first bytes.
    pub fn incomplete(&self, sha256: &str) -> PathBuf {
        self.blobs().join(format!("{sha256}.incomplete"))
    }

    /// The link to a file of a commit.
    pub fn file(&self, commit: &str, path: &str) -> PathBuf {
        self.snapshots().join(commit).join(path)
    }

    /// The folder of all snapshots.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// Whether a file of a commit is here, with all of its bytes.
    pub fn has(&self, commit: &str, path: &str, size: u64) -> bool {
        is_file_of(&self.file(commit, path), size)
    }

    /// Whether the bytes of a file are here, all of them.
    pub fn has_blob(&self, content: &Content) -> bool {
        is_file_of(&self.blob(&content.sha256), content.size)
    }

    /// Locks a blob as huggingface_hub does. `None` if another process holds the lock and `wait` is
    /// false.
    pub fn lock(&self, sha256: &str, wait: bool) -> Result<Option<Lock>, HubError> {
        let path = self.locks.join(format!("{sha256}.lock"));
        let lock = || -> io::Result<_> {
            fs::create_dir_all(&self.locks)?;
            let file = File::options().create(true).append(true).open(&path)?;
            match retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
                Ok(()) => return Ok(Some(Lock(file))),
                Err(Errno::WOULDBLOCK) if wait => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            tracing::info!("another process downloads the same file; waiting for it");
            retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
            Ok(Some(Lock(file)))
        };
        lock().map_err(HubError::io("lock", &path))
    }

    /// Links a blob into a snapshot, in place of whatever was there.
    pub fn link(&self, commit: &str, path: &str, sha256: &str) -> Result<(), HubError> {
        assert!(is_hash(commit, 40) && is_inside(path), "checked when the list was read");
        let link = self.file(commit, path);
        let up = "../".repeat(2 + path.matches('/').count());
        let target = PathBuf::from(format!("{up}blobs/{sha256}"));
        let make = || {
            let folder = link.parent().expect("it is in a snapshot");
            fs::create_dir_all(folder)?;
            if fs::read_link(&link).is_ok_and(|there| there == target) {
                return Ok(());
            }
            let new = self.temporary();
            symlink(&target, &new)?;
            fs::rename(&new, &link)?;
            File::open(folder)?.sync_all()
        };
        // The temporary link lies in another folder, and nobody follows it there.
        make().map_err(HubError::io("link", &link))
    }

    /// The newest commit that is here, as far as somebody asked the hub.
    pub fn main(&self) -> Option<String> {
        let commit = fs::read_to_string(self.root.join("refs/main")).ok()?;
        let commit = commit.trim();
        is_hash(commit, 40).then(|| commit.to_owned())
    }

    /// Remembers the newest commit.
    pub fn set_main(&self, commit: &str) -> Result<(), HubError> {
        if self.main().as_deref() == Some(commit) {
            return Ok(());
        }
        let (refs, new) = (self.root.join("refs"), self.temporary());
        let write = || {
            fs::create_dir_all(&refs)?;
            fs::write(&new, commit)?;
            fs::rename(&new, refs.join("main"))
        };
        write().map_err(HubError::io("write", &refs))
    }

    /// The commits that have snapshots: that of `main` first, then the newest.
    pub fn commits(&self) -> Vec<String> {
        let entries = fs::read_dir(self.snapshots()).into_iter().flatten().flatten();
        let mut commits: Vec<_> = entries
            .filter_map(|entry| {
                let commit = entry.file_name().into_string().ok()?;
                let changed = entry.metadata().and_then(|meta| meta.modified()).ok()?;
                is_hash(&commit, 40).then_some((changed, commit))
            })
            .collect();
        commits.sort_unstable_by(|a, b| b.cmp(a));
        let main = self.main();
        let mut commits: Vec<String> = commits.into_iter().map(|(_, commit)| commit).collect();
        commits.sort_by_key(|commit| Some(commit) != main.as_ref()); // stable
        commits
    }

    /// The paths of a snapshot's files, sorted. Links that lead nowhere are left out.
    pub fn files(&self, commit: &str) -> Vec<String> {
        let root = self.snapshots().join(commit);
        let mut found = Vec::new();
        walk(&root, &mut |path| {
            let path = path.strip_prefix(&root).ok().and_then(Path::to_str);
            found.extend(path.filter(|path| is_inside(path)).map(str::to_owned));
        });
        found.retain(|path| root.join(path).is_file());
        found.sort_unstable();
        found
    }

    /// A name that nobody else uses, for what is then moved to its place.
    fn temporary(&self) -> PathBuf {
        let path = self.root.join(format!(".corelane-{}", std::process::id()));
        let _ = fs::remove_file(&path); // left behind by a process of this number
        path
    }
}

/// Calls `found` with each file and link below a folder. Links to folders are not followed.
pub(super) fn walk(folder: &Path, found: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found),
            _ => found(&entry.path()),
        }
    }
}

fn is_file_of(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == size)
}
