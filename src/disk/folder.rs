//! The folder of the prefix store's files.
//!
//! Each model has a folder in it, named by its fingerprint. A page's file is named by the text up to
//! its end, and that of a state by the page and the number of tokens before it. A file is written
//! under another name and then renamed, and never changed. So after a crash, a file is whole or it
//! is not there; after a loss of power it may be cut off, which its seals show.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::format::{Fingerprint, FormatError, Head, Seals};
use crate::ring::files::FoundPage;
use crate::types::FileId;

/// The name of the file whose lock shows that a server uses the folder.
const LOCK: &str = "lock";

/// The name under which files are written.
const UNFINISHED: &str = "unfinished";

/// The options of a folder.
#[derive(Clone, Debug)]
pub struct FolderOptions {
    /// Where it is.
    pub path: PathBuf,
    /// Most bytes of all its files.
    pub bytes_max: u64,
    /// The secret from which files are encrypted.
    pub key: Option<[u8; 32]>,
}

/// See the module's description.
pub struct Folder {
    /// The folder of this model's files.
    path: PathBuf,
    seals: Seals,
    bytes_max: u64,
    /// Most bytes of one file.
    file_bytes_max: u64,
    /// The bytes of this model's files.
    bytes: u64,
    /// The files of other models, the newest first.
    others: Vec<(SystemTime, PathBuf, u64)>,
    others_bytes: u64,
    /// This model's files that have not been listed yet, the newest last.
    unlisted: Vec<(SystemTime, FileId, Listed)>,
    /// Files in the list that cannot be used.
    unusable: usize,
    buffer: Vec<u8>,
    /// Held as long as the folder is used.
    _lock: File,
}

/// The files of a page.
#[derive(Clone, Debug, Default)]
struct Listed {
    states: Vec<u32>,
    bytes: u64,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system did not give it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not what it should be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It is larger than any file of this model.
    #[error("it is larger than any file of this model")]
    TooLarge,
    /// It has another name than was written into it.
    #[error("it is the file of another text")]
    OtherText,
}

impl ReadError {
    /// Whether the file is of no use for ever, so that it should be removed.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Io(error) => error.kind() == ErrorKind::NotFound,
            Self::Format(_) | Self::TooLarge | Self::OtherText => true,
        }
    }
}

impl Folder {
    /// Opens the folder for a model whose files have at most `file_bytes_max` bytes, and makes it if
    /// it is not there. Looks at the names of its files, and removes what was being written when a
    /// server ended.
    ///
    /// # Errors
    /// A sentence for the user: it cannot be made or read, or another server uses it.
    pub fn open(
        options: &FolderOptions,
        fingerprint: Fingerprint,
        file_bytes_max: u64,
    ) -> Result<Self, String> {
        let root = &options.path;
        let failed = |error: io::Error| format!("--cache-disk {}: {error}", root.display());
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed)?;
        let lock = private().create(true).truncate(false).open(root.join(LOCK)).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let path = root.display();
            match error {
                Errno::WOULDBLOCK => format!(
                    "--cache-disk {path}: another server uses this folder; give each one its own"
                ),
                error => format!("--cache-disk {path}: it cannot be locked: {error}"),
            }
        })?;
        let name: String = fingerprint[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let path = root.join(&name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        let mut folder = Self {
            path,
            seals: Seals::new(fingerprint, options.key),
            bytes_max: options.bytes_max,
            file_bytes_max,
            bytes: 0,
            others: Vec::new(),
            others_bytes: 0,
            unlisted: Vec::new(),
            unusable: 0,
            buffer: Vec::new(),
            _lock: lock,
        };
        for entry in fs::read_dir(root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Whatever else is there belongs to somebody else.
            let is_model = entry.file_name().to_str().is_some_and(|name| is_hex(name, 16));
            if is_model && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let (path, is_own) = (entry.path(), *entry.file_name() == *name);
                match folder.look_at(&path, is_own) {
                    Err(error) if is_own => return Err(failed(error)),
                    Err(error) => {
                        tracing::warn!(folder = %path.display(), %error, "files of another model")
                    }
                    Ok(()) => {}
                }
            }
        }
        folder.others.sort_unstable_by(|(a, ..), (b, ..)| b.cmp(a));
        folder.unlisted.sort_unstable_by_key(|(used, ..)| *used);
        folder.drop_others(0).map_err(failed)?;
        Ok(folder)
    }

    /// Notes the files of a model.
    fn look_at(&mut self, path: &Path, is_own: bool) -> io::Result<()> {
        let mut pages: Vec<(SystemTime, FileId, Listed)> = Vec::new();
        let mut states = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let (name, path) = (entry.file_name(), entry.path());
            // Without following a link. It may just have gone.
            let Some(facts) = entry.metadata().ok().filter(Metadata::is_file) else { continue };
            if *name == *UNFINISHED {
                fs::remove_file(&path)?;
                continue;
            }
            let Some((file, state)) = name.to_str().and_then(parse) else { continue };
            let (used, bytes) = (facts.modified()?, facts.len());
            match (is_own, state) {
                (false, _) => {
                    self.others_bytes += bytes;
                    self.others.push((used, path, bytes));
                }
                (true, Some(state)) => states.push((file, state, bytes)),
                (true, None) => {
                    pages.push((used, file, Listed { states: Vec::new(), bytes }));
                }
            }
        }
        pages.sort_unstable_by_key(|(_, file, _)| *file);
        for (file, state, bytes) in states {
            match pages.binary_search_by_key(&file, |(_, file, _)| *file) {
                Ok(index) => {
                    pages[index].2.states.push(state);
                    pages[index].2.bytes += bytes;
                }
                // A state without its page is of no use.
                Err(_) => fs::remove_file(self.path.join(name_of(file, Some(state))))?,
            }
        }
        self.bytes += pages.iter().map(|(.., listed)| listed.bytes).sum::<u64>();
        self.unlisted.append(&mut pages);
        Ok(())
    }

    /// The bytes of this model's files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next page that an earlier server has left, the one that was used last first.
    pub fn next_page(&mut self) -> Option<FoundPage> {
        loop {
            let Some((_, file, Listed { states, bytes })) = self.unlisted.pop() else {
                let count = std::mem::take(&mut self.unusable);
                if count > 0 {
                    tracing::warn!(count, "files of --cache-disk cannot be used");
                }
                return None;
            };
            match self.head_of(file) {
                Ok(Head { parent, tokens, .. }) => {
                    return Some(FoundPage { file, parent, tokens, states, bytes });
                }
                Err(error) => {
                    let name = name_of(file, None);
                    tracing::debug!(name, %error, "a file of --cache-disk cannot be used");
                    self.unusable += 1;
                    if error.is_final() {
                        let _ = self.remove(file, &states); // it is logged
                    }
                }
            }
        }
    }

    fn head_of(&mut self, file: FileId) -> Result<Head, ReadError> {
        let most = Seals::head_bytes(crate::limits::PAGE_TOKENS_MAX) as u64;
        self.buffer.clear();
        let opened = open_plain(&self.path.join(name_of(file, None)))?;
        opened.take(most).read_to_end(&mut self.buffer)?;
        let head = self.seals.read_head(&mut self.buffer)?;
        let is_meant = head.file == file && head.state.is_none();
        let is_whole = head.parent.with(&head.tokens) == file;
        if is_meant && is_whole { Ok(head) } else { Err(ReadError::OtherText) }
    }

    /// Writes a file, and removes those of other models for which there is no longer room. Returns
    /// its bytes.
    ///
    /// # Errors
    /// If the system does not take it. Nothing is left of it then.
    pub fn write(&mut self, head: &Head, content: &[u8]) -> io::Result<u64> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.seals.write(head, content, &mut buffer);
        let written = self.put(head, &buffer);
        self.buffer = buffer;
        written
    }

    fn put(&mut self, head: &Head, bytes: &[u8]) -> io::Result<u64> {
        let count = bytes.len() as u64;
        self.drop_others(count)?;
        let unfinished = self.path.join(UNFINISHED);
        let name = self.path.join(name_of(head.file, head.state));
        let before = fs::metadata(&name).map_or(0, |facts| facts.len());
        let write = || {
            let mut file = private().create(true).truncate(true).open(&unfinished)?;
            file.write_all(bytes)?;
            fs::rename(&unfinished, &name)
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&unfinished); // it may not be there
        })?;
        self.bytes = (self.bytes + count).saturating_sub(before);
        Ok(count)
    }

    /// Removes files of other models until there is room for `count` bytes.
    fn drop_others(&mut self, count: u64) -> io::Result<()> {
        while self.bytes + self.others_bytes + count > self.bytes_max
            && let Some((_, path, bytes)) = self.others.pop()
        {
            self.others_bytes -= bytes;
            fs::remove_file(path).or_else(ignore_missing)?;
        }
        Ok(())
    }

    /// Reads a file, and notes that it was used.
    ///
    /// # Errors
    /// If it cannot be used. It should then be removed.
    pub fn read(&mut self, file: FileId, state: Option<u32>) -> Result<(Head, &[u8]), ReadError> {
        let opened = open_plain(&self.path.join(name_of(file, state)))?;
        self.buffer.clear();
        let most = self.file_bytes_max;
        (&opened).take(most + 1).read_to_end(&mut self.buffer)?;
        if self.buffer.len() as u64 > most {
            return Err(ReadError::TooLarge);
        }
        // If the system refuses that, the file counts as old.
        let _ = opened.set_modified(SystemTime::now());
        let (head, content) = self.seals.read(&mut self.buffer)?;
        let is_meant = head.file == file && head.state == state;
        if is_meant { Ok((head, content)) } else { Err(ReadError::OtherText) }
    }

    /// Removes the files of a page and of its states.
    ///
    /// # Errors
    /// The first one of the system. The other files are removed.
    pub fn remove(&mut self, file: FileId, states: &[u32]) -> io::Result<()> {
        let page = self.remove_named(&name_of(file, None));
        states.iter().fold(page, |before, state| {
            let removed = self.remove_state(file, *state);
            before.and(removed)
        })
    }

    /// Removes the file of a state.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn remove_state(&mut self, file: FileId, state: u32) -> io::Result<()> {
        self.remove_named(&name_of(file, Some(state)))
    }

    fn remove_named(&mut self, name: &str) -> io::Result<()> {
        let path = self.path.join(name);
        let bytes = fs::metadata(&path).map_or(0, |facts| facts.len());
        let removed = fs::remove_file(&path).or_else(ignore_missing);
        match &removed {
            Ok(()) => self.bytes = self.bytes.saturating_sub(bytes),
            Err(error) => tracing::warn!(name, %error, "a file of --cache-disk cannot be removed"),
        }
        removed
    }
}

/// How to write a file for its owner alone.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(NO_LINK_NO_WAIT);
    options
}

/// Opens a file to read.
pub(super) fn open_plain(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(NO_LINK_NO_WAIT).open(path)
}

/// Follows no link, and waits for no other end of a pipe.
const NO_LINK_NO_WAIT: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// The name of a page's file, or of a state's.
fn name_of(file: FileId, state: Option<u32>) -> String {
    match state {
        None => format!("{:032x}", file.0),
        Some(state) => format!("{:032x}-{state}", file.0),
    }
}

/// What a file with this name holds: the inverse of [`name_of`].
fn parse(name: &str) -> Option<(FileId, Option<u32>)> {
    let (file, state) = match name.split_once('-') {
        None => (name, None),
        Some((file, state)) => (file, Some(state.parse().ok()?)),
    };
    if !is_hex(file, 32) {
        return None;
    }
    let file = FileId(u128::from_str_radix(file, 16).ok()?);
    (name_of(file, state) == name).then_some((file, state))
}

/// Whether a name has this many hexadecimal digits and nothing else.
fn is_hex(name: &str, digits: usize) -> bool {
    name.len() == digits && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const MODEL: Fingerprint = [1; 32];

    fn open(path: &Path, model: Fingerprint) -> Result<Folder, String> {
        let options = FolderOptions { path: path.to_owned(), bytes_max: 10_000, key: None };
        Folder::open(&options, model, 4_000)
    }

    /// The page of the tokens behind a text.
    fn page(parent: FileId, tokens: &[i32]) -> Head {
        let file = parent.with(tokens);
        Head { file, parent, state: None, tokens: tokens.into(), content: 100 }
    }

    /// A page of its own.
    fn other(number: i32) -> Head {
        page(FileId(0), &[number, 2])
    }

    fn state(file: FileId, position: u32) -> Head {
        Head { file, state: Some(position), ..page(FileId(0), &[]) }
    }

    fn listed(folder: &mut Folder) -> Vec<FoundPage> {
        std::iter::from_fn(|| folder.next_page()).collect()
    }

    #[test]
    fn what_one_server_writes_the_next_one_finds() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        let mut folder = open(&path, MODEL).unwrap();
        assert_eq!(listed(&mut folder), []);
        let first = page(FileId(0), &[1, 2, 3]);
        let second = page(first.file, &[4]);
        let first_bytes = folder.write(&first, &[5; 100]).unwrap();
        folder.write(&state(first.file, 2), &[6; 100]).unwrap();
        folder.write(&second, &[7; 100]).unwrap();
        let bytes = folder.bytes();
        drop(folder);
        let mut folder = open(&path, MODEL).unwrap();
        assert_eq!(folder.bytes(), bytes);
        let mut found = listed(&mut folder);
        found.sort_by_key(|page| page.file == second.file);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].file, found[0].parent), (first.file, FileId(0)));
        assert_eq!((&*found[0].tokens, &*found[0].states), (&[1, 2, 3][..], &[2][..]));
        assert!(found[0].bytes > first_bytes);
        assert_eq!(folder.read(first.file, None).unwrap().1, [5; 100]);
        assert_eq!(folder.read(first.file, Some(2)).unwrap().1, [6; 100]);
        assert!(folder.read(FileId(9), None).is_err());
        folder.remove(first.file, &[2]).unwrap();
        folder.remove(second.file, &[]).unwrap();
        assert_eq!(folder.bytes(), 0);
        assert!(folder.read(first.file, Some(2)).is_err());
    }

    #[test]
    fn two_servers_do_not_share_a_folder() {
        let place = tempfile::tempdir().unwrap();
        let first = open(place.path(), MODEL).unwrap();
        let error = open(place.path(), [2; 32]).err().unwrap();
        assert!(
            error.ends_with("another server uses this folder; give each one its own"),
            "{error}"
        );
        drop(first);
        open(place.path(), [2; 32]).unwrap();
    }

    #[test]
    fn only_the_owner_reads_the_files() {
        let place = tempfile::tempdir().unwrap();
        let mut folder = open(&place.path().join("cache"), MODEL).unwrap();
        let page = other(7);
        folder.write(&page, &[5; 100]).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&place.path().join("cache")), 0o700);
        assert_eq!(mode(&folder.path), 0o700);
        assert_eq!(mode(&folder.path.join(name_of(page.file, None))), 0o600);
    }

    #[test]
    fn files_that_are_not_whole_are_never_used() {
        let place = tempfile::tempdir().unwrap();
        let mut folder = open(place.path(), MODEL).unwrap();
        let pages = [1, 2, 3, 4, 5].map(other);
        for page in &pages {
            folder.write(page, &[5; 100]).unwrap();
        }
        // Whole, and of a text that is not that of its name.
        folder.write(&Head { file: FileId(5), ..other(5) }, &[5; 100]).unwrap();
        let at = |number: usize| folder.path.join(name_of(pages[number - 1].file, None));
        let whole = fs::read(at(1)).unwrap();
        fs::write(at(1), &whole[..50]).unwrap(); // in the head
        fs::write(at(2), &whole).unwrap(); // of another text
        fs::write(at(3), &fs::read(at(3)).unwrap()[..200]).unwrap(); // in the content
        fs::write(folder.path.join(UNFINISHED), &whole[..70]).unwrap();
        fs::write(folder.path.join(name_of(FileId(9), Some(3))), &whole).unwrap(); // without a page
        fs::write(folder.path.join("notes.txt"), "mine").unwrap();
        drop(folder);
        let mut folder = open(place.path(), MODEL).unwrap();
        let found: Vec<FileId> = listed(&mut folder).iter().map(|page| page.file).collect();
        let [_, _, third, fourth, fifth] = pages.map(|page| page.file);
        assert_eq!(found.len(), 3, "the heads of the others are not right");
        assert!([third, fourth, fifth].iter().all(|file| found.contains(file)));
        folder.remove(fifth, &[]).unwrap();
        let error = folder.read(third, None).unwrap_err();
        assert!(matches!(error, ReadError::Format(FormatError::CutOff)), "{error}");
        folder.remove(third, &[]).unwrap();
        assert_eq!(folder.read(fourth, None).unwrap().1, [5; 100]);
        let mut left: Vec<String> = fs::read_dir(&folder.path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [name_of(fourth, None).as_str(), "notes.txt"]);
        fs::write(folder.path.join(name_of(fourth, None)), vec![0; 5000]).unwrap();
        assert!(matches!(folder.read(fourth, None), Err(ReadError::TooLarge)));
    }

    #[test]
    fn files_of_other_models_make_room() {
        let place = tempfile::tempdir().unwrap();
        let mut earlier = open(place.path(), [2; 32]).unwrap();
        for file in 1..=3 {
            earlier.write(&other(file), &[5; 2000]).unwrap();
        }
        let oldest = File::open(earlier.path.join(name_of(other(2).file, None))).unwrap();
        oldest.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let path = earlier.path.clone();
        drop(earlier);
        let mut folder = open(place.path(), MODEL).unwrap();
        assert_eq!(listed(&mut folder), [], "files of another model");
        folder.write(&other(1), &[5; 3000]).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 3);
        folder.write(&other(2), &[5; 3000]).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        assert!(!path.join(name_of(other(2).file, None)).exists(), "the oldest went first");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_with_its_path() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let error = open(&file.join("cache"), MODEL).err().unwrap();
        assert!(error.starts_with(&format!("--cache-disk {}/cache: ", file.display())), "{error}");
    }
}
