//! The folder of a repository in the cache.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};
use rustix::rand::{GetRandomFlags, getrandom};

use super::error::HubError;
use super::listing::Content;
use super::name::{Name, is_hash, is_inside};

/// The prefix of temporary file names.
const TEMPORARY: &str = ".corelane-";

/// The folder of a repository.
pub(super) struct Folder {
    pub root: PathBuf,
    locks: PathBuf,
}

/// A locked file. Dropping this unlocks it.
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

    /// The path of a complete blob.
    pub fn blob(&self, sha256: &str) -> PathBuf {
        self.blobs().join(sha256)
    }

    /// The path of an incomplete blob, which has only the first bytes of its file.
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

    /// Whether the cache has a file of a commit, with all of its bytes.
    pub fn has(&self, commit: &str, path: &str, size: u64) -> bool {
        is_file_of(&self.file(commit, path), size)
    }

    /// Whether the cache has a file's blob, with all of its bytes.
    pub fn has_blob(&self, content: &Content) -> bool {
        is_file_of(&self.blob(&content.sha256), content.size)
    }

    /// Locks a blob as huggingface_hub does, so that no other process downloads it. `None` if
    /// another process holds the lock and `wait` is false.
    pub fn lock(&self, sha256: &str, wait: bool) -> Result<Option<Lock>, HubError> {
        let path = self.locks.join(format!("{sha256}.lock"));
        let lock = || -> io::Result<_> {
            let file = self.lock_file(&path)?;
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

    /// Locks the links of the repository, so that no other corelane process links or removes its
    /// files. The lock is held for milliseconds. **Invariant:** a process that holds it waits for
    /// no blob's lock.
    pub fn lock_links(&self) -> Result<Lock, HubError> {
        let path = self.locks.join("corelane.lock");
        let lock = || -> io::Result<_> {
            let file = self.lock_file(&path)?;
            retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
            Ok(Lock(file))
        };
        lock().map_err(HubError::io("lock", &path))
    }

    fn lock_file(&self, path: &Path) -> io::Result<File> {
        fs::create_dir_all(&self.locks)?;
        File::options().create(true).append(true).open(path)
    }

    /// Opens the incomplete blob of a file, and creates it if needed. The caller holds the lock of
    /// the blob.
    pub fn open_incomplete(&self, sha256: &str) -> Result<File, HubError> {
        let _links = self.lock_links()?; // otherwise a removal could delete the folder in between
        let path = self.incomplete(sha256);
        let open = || {
            fs::create_dir_all(self.blobs())?;
            File::options().create(true).truncate(false).read(true).write(true).open(&path)
        };
        open().map_err(HubError::io("open", &path))
    }

    /// Links a blob into a snapshot, and replaces an existing link or file. The caller holds the
    /// lock of the links.
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
            let new = self.temporary()?;
            symlink(&target, &new)?; // fails if it exists
            fs::rename(&new, &link)?;
            File::open(folder)?.sync_all()
        };
        // The target is relative to the final folder, so the temporary link leads nowhere until it
        // is moved there.
        make().map_err(HubError::io("link", &link))
    }

    /// The commit of `main` at the last download.
    pub fn main(&self) -> Option<String> {
        let commit = fs::read_to_string(self.root.join("refs/main")).ok()?;
        let commit = commit.trim();
        is_hash(commit, 40).then(|| commit.to_owned())
    }

    /// Stores the commit of `main`. The caller holds the lock of the links.
    pub fn set_main(&self, commit: &str) -> Result<(), HubError> {
        if self.main().as_deref() == Some(commit) {
            return Ok(());
        }
        let refs = self.root.join("refs");
        let write = || {
            fs::create_dir_all(&refs)?;
            let new = self.temporary()?;
            File::create_new(&new)?.write_all(commit.as_bytes())?;
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

    /// The files to which the links of all snapshots lead.
    pub fn linked(&self) -> HashSet<PathBuf> {
        let mut found = HashSet::new();
        walk(&self.snapshots(), &mut |link| found.extend(link.canonicalize()));
        found
    }

    /// Removes empty folders and the temporary files of killed processes. Removes the repository's
    /// folder if it has no blob and no snapshot. The caller holds the lock of the links.
    pub fn tidy(&self) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(TEMPORARY)) {
                let _ = fs::remove_file(entry.path());
            }
        }
        prune(&self.snapshots());
        let is_gone = |folder: &Path| fs::remove_dir(folder).is_ok() || !folder.exists();
        if is_gone(&self.snapshots()) && is_gone(&self.blobs()) {
            let _ = fs::remove_dir_all(&self.root); // only refs are left
        }
    }

    /// A temporary name for a file that is renamed later. It is random, because processes in
    /// several containers may share the folder and have equal process ids.
    fn temporary(&self) -> io::Result<PathBuf> {
        let mut bytes = [0; 8];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        Ok(self.root.join(format!("{TEMPORARY}{:016x}", u64::from_ne_bytes(bytes))))
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

/// Removes empty folders.
fn prune(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            prune(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder); // refuses if it is not empty
}

fn is_file_of(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == size)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    /// A removal deletes empty folders. It may run at any moment of a download.
    #[test]
    fn links_and_removals_wait_for_each_other() {
        let cache = std::env::temp_dir().join(format!("corelane-removed-{}", std::process::id()));
        let folder = || Folder::new(&cache, &"a/b".parse().unwrap());
        let (commit, hash, path) = ("1".repeat(40), "2".repeat(64), "c/a.gguf");
        let is_over = AtomicBool::new(false);
        let remove = |folder: &Folder| {
            let _links = folder.lock_links().unwrap();
            for file in [folder.incomplete(&hash), folder.file(&commit, path)] {
                let _ = fs::remove_file(file);
            }
            folder.tidy();
        };
        let download = |folder: &Folder| -> Result<(), HubError> {
            folder.open_incomplete(&hash)?;
            let _links = folder.lock_links()?;
            folder.link(&commit, path, &hash)?;
            folder.set_main(&commit)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    remove(&folder());
                    std::thread::sleep(Duration::from_micros(50)); // lets the other thread run
                }
            });
            let done = (0..500).try_for_each(|_| download(&folder()));
            is_over.store(true, Ordering::SeqCst);
            done.unwrap();
        });
        fs::remove_dir_all(&cache).unwrap();
    }

    /// Each thread stands for a container in which the process has the id 1, on a disk whose locks
    /// have no effect.
    #[test]
    fn processes_of_the_same_number_do_not_mix_up_their_links() {
        const LINKS: usize = 300;
        let cache = std::env::temp_dir().join(format!("corelane-links-{}", std::process::id()));
        let folder = || Folder::new(&cache, &"a/b".parse().unwrap());
        let commit = "1".repeat(40);
        let (hash, path) = (|n: u8| format!("{n:064x}"), |n: u8, i: usize| format!("{n}-{i}.gguf"));
        fs::create_dir_all(folder().root).unwrap();
        std::thread::scope(|scope| {
            for n in [1, 2] {
                let (folder, commit) = (folder(), &commit);
                scope.spawn(move || {
                    for i in 0..LINKS {
                        folder.link(commit, &path(n, i), &hash(n)).unwrap();
                    }
                });
            }
        });
        for (n, i) in (0..LINKS).flat_map(|i| [(1, i), (2, i)]) {
            let target = fs::read_link(folder().file(&commit, &path(n, i))).unwrap();
            assert!(target.ends_with(hash(n)), "{}: {}", path(n, i), target.display());
        }
        fs::remove_dir_all(&cache).unwrap();
    }
}
