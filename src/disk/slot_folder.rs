//! The folder of the slots' files: texts that clients save by name, and bring back.
//!
//! The file of a slot has the pages of its text and the states behind them, each as in a
//! file of its own ([`super::format`]). It is written under another name, and gets its own when it is
//! complete. A file that a client brought back stays open, and its pages are read when a request
//! needs them.
//!
//! The files are in the folder itself, or in one for each tenant.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::folder::{ReadError, open_plain, private};
use super::format::{FIRST_BYTES, FormatError, Head, Seals};
use crate::limits::{FILES_LISTED, SLOT_FILES_MAX, SLOT_FILES_OPEN};
use crate::ring::files::FoundPage;
use crate::types::FileId;

const MIB: u64 = 1 << 20;

/// What the name of a file begins with until it is complete. No name of a client begins with a dot.
const UNFINISHED: &str = ".unfinished-";

/// Longer than any server takes to add a page to a file.
const UNFINISHED_TIME: Duration = Duration::from_secs(3600);

/// A file is synced after each of these bytes. If it were synced once at its end, reads of other
/// clients would wait for all of it.
const SYNC_BYTES: u64 = 32 * MIB;

/// The name of a tenant's folder is its number in this many hexadecimal digits: see
/// `server::connection::slots`.
const TENANT_DIGITS: usize = 32;

/// See the module's description.
pub struct SlotFolder {
    path: PathBuf,
    bytes_max: u64,
    seals: Seals,
    /// Most tokens of a page.
    page_tokens: usize,
    /// Most bytes of one page or state in a file.
    part_bytes_max: u64,
    unfinished: Option<Unfinished>,
    /// The file that is being listed.
    listed: Option<Listed>,
    /// Files that were brought back, in that order.
    open: VecDeque<Open>,
    buffer: Vec<u8>,
}

/// A file that is being written.
struct Unfinished {
    file: File,
    /// Its name until it is complete, and its name then.
    path: PathBuf,
    name: PathBuf,
    bytes: u64,
    /// Those of them that the disk has.
    synced: u64,
    /// Bytes that it may have.
    room: u64,
}

/// How far a file is listed.
struct Listed {
    open: Open,
    bytes: u64,
    /// Where its next page begins.
    from: u64,
    /// The tokens before it.
    tokens: usize,
    /// The text up to the last page, and the tokens of this page. None, if there is none.
    last: Option<(FileId, usize)>,
}

/// A file that was brought back.
struct Open {
    file: File,
    /// The folder that it is in.
    folder: PathBuf,
    /// Where its pages and states are: the first byte, and the number of bytes.
    parts: HashMap<(FileId, Option<u32>), (u64, u64)>,
}

/// Why the file of a slot cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SlotFileError {
    /// There is none with this name.
    #[error("there is no such file")]
    Missing,
    /// It was saved for others.
    #[error("it has a text of another cache_salt; send the one that its requests had")]
    OtherSalt,
    /// The folder has no room.
    #[error(
        "the files of slots would take more than the {} MiB of --slot-save-size; remove some",
        .0 / MIB
    )]
    NoRoom(u64),
    /// The folder has too many files.
    #[error("there are {SLOT_FILES_MAX} files of slots, which is the limit; remove some")]
    TooMany,
    /// The system refused it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not what it should be.
    #[error(transparent)]
    Part(#[from] ReadError),
}

impl From<FormatError> for SlotFileError {
    fn from(error: FormatError) -> Self {
        Self::Part(error.into())
    }
}

impl SlotFolder {
    /// Opens the folder, and makes it if it is not there. Its files take at most `bytes_max` bytes.
    /// A page has at most `page_tokens` tokens, and a page or a state `part_bytes_max` bytes.
    ///
    /// # Errors
    /// A sentence for the user: it cannot be made or read.
    pub fn open(
        path: PathBuf,
        bytes_max: u64,
        seals: Seals,
        page_tokens: usize,
        part_bytes_max: u64,
    ) -> Result<Self, String> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        let read = made.and_then(|()| used(&path));
        read.map_err(|error| format!("--slot-save-path {}: {error}", path.display()))?;
        let (unfinished, listed, open, buffer) = (None, None, VecDeque::new(), Vec::new());
        Ok(Self {
            path,
            bytes_max,
            seals,
            page_tokens,
            part_bytes_max,
            unfinished,
            listed,
            open,
            buffer,
        })
    }

    /// Begins to write a file with this path in the folder.
    ///
    /// # Errors
    /// If there is no room for it, or the system refuses it.
    pub fn begin(&mut self, path: &Path) -> Result<(), SlotFileError> {
        self.end(false)?; // there is none
        self.close_removed();
        let name = self.path.join(path);
        let folder = name.parent().unwrap_or(&self.path);
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let (bytes, count) = used(&self.path)?;
        let before = fs::symlink_metadata(&name).ok();
        if count >= SLOT_FILES_MAX && before.is_none() {
            return Err(SlotFileError::TooMany);
        }
        let replaced = before.map_or(0, |facts| facts.len());
        let room = (self.bytes_max + replaced).saturating_sub(bytes);
        // Two servers may share the folder.
        let number = RandomState::new().build_hasher().finish();
        let path = folder.join(format!("{UNFINISHED}{number:016x}"));
        let file = private().create_new(true).open(&path)?;
        self.unfinished = Some(Unfinished { file, path, name, bytes: 0, synced: 0, room });
        Ok(())
    }

    /// Closes open files that were removed or replaced, so that they take no room on the disk.
    fn close_removed(&mut self) {
        let is_there = |open: &Open| open.file.metadata().is_ok_and(|facts| facts.nlink() > 0);
        self.open.retain(is_there);
    }

    /// Adds a page or a state to the file that is being written. Returns its bytes.
    ///
    /// # Errors
    /// If there is no room for it, or the system refuses it.
    pub fn add(&mut self, head: &Head, content: &[u8]) -> Result<u64, SlotFileError> {
        let unfinished = self.unfinished.as_mut().expect("a file was begun");
        self.seals.write(head, content, &mut self.buffer);
        let bytes = self.buffer.len() as u64;
        if unfinished.bytes + bytes > unfinished.room {
            return Err(SlotFileError::NoRoom(self.bytes_max));
        }
        unfinished.file.write_all(&self.buffer)?;
        unfinished.bytes += bytes;
        if unfinished.bytes - unfinished.synced >= SYNC_BYTES {
            unfinished.file.sync_data()?;
            unfinished.synced = unfinished.bytes;
        }
        Ok(bytes)
    }

    /// Ends the file that is being written, and gives it its name if it is to be kept. Then the disk
    /// has it. Returns its bytes.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn end(&mut self, keep: bool) -> Result<u64, SlotFileError> {
        let Some(Unfinished { file, path, name, bytes, .. }) = self.unfinished.take() else {
            return Ok(0);
        };
        if keep {
            let kept = file.sync_data().and_then(|()| fs::rename(&path, &name));
            kept.inspect_err(|_| drop(fs::remove_file(&path)))?;
            File::open(name.parent().unwrap_or(&self.path))?.sync_all()?; // the name
        } else {
            fs::remove_file(&path)?;
        }
        Ok(bytes)
    }

    /// Begins to list the pages in the file with this path in the folder. From then on, they are read
    /// from there.
    ///
    /// # Errors
    /// If there is none, or the system refuses it.
    pub fn begin_list(&mut self, path: &Path) -> Result<(), SlotFileError> {
        let path = self.path.join(path);
        let file = open_plain(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => SlotFileError::Missing,
            _ => error.into(),
        })?;
        let all = file.metadata()?;
        if !all.is_file() {
            return Err(SlotFileError::Missing);
        }
        if all.len() == 0 {
            return Err(FormatError::CutOff.into());
        }
        self.close_removed();
        let is_other = |open: &Open| {
            let facts = open.file.metadata();
            facts.is_ok_and(|facts| (facts.dev(), facts.ino()) != (all.dev(), all.ino()))
        };
        self.open.retain(is_other);
        if self.open.len() >= SLOT_FILES_OPEN {
            // The oldest file of the folder with the most makes room.
            let count = |of: &Path| self.open.iter().filter(|open| open.folder == of).count();
            let oldest =
                (0..self.open.len()).rev().max_by_key(|index| count(&self.open[*index].folder));
            self.open.remove(oldest.expect("it is not empty"));
        }
        let folder = path.parent().unwrap_or(&self.path).to_owned();
        let open = Open { file, folder, parts: HashMap::new() };
        self.listed = Some(Listed { open, bytes: all.len(), from: 0, tokens: 0, last: None });
        Ok(())
    }

    /// The next pages of the file that is being listed, and the bytes of the file. `root` is the empty
    /// text of those who may use it. No pages if it has no more.
    ///
    /// # Errors
    /// If it cannot be used. It is closed then.
    pub fn list(&mut self, root: FileId) -> Result<(Vec<FoundPage>, u64), SlotFileError> {
        let Some(mut listed) = self.listed.take() else { return Err(SlotFileError::Missing) };
        let (bytes, mut pages) = (listed.bytes, Vec::new());
        while listed.from < bytes && self.list_next(root, &mut listed, &mut pages)? {}
        if pages.is_empty() {
            self.open.push_back(listed.open);
        } else {
            self.listed = Some(listed);
        }
        Ok((pages, bytes))
    }

    /// Lists the next page or state of a file. Returns false if there are enough pages for now.
    fn list_next(
        &mut self,
        root: FileId,
        listed: &mut Listed,
        pages: &mut Vec<FoundPage>,
    ) -> Result<bool, SlotFileError> {
        let (mut first, from) = ([0; FIRST_BYTES], listed.from);
        let left = listed.bytes - from;
        listed.open.file.read_exact_at(&mut first, from).map_err(cut_off)?;
        let (bytes, head_bytes) = Seals::lengths(&first);
        if bytes > self.part_bytes_max {
            return Err(ReadError::TooLarge.into());
        }
        if bytes > left {
            return Err(FormatError::CutOff.into());
        }
        self.buffer.resize(head_bytes, 0);
        listed.open.file.read_exact_at(&mut self.buffer, from).map_err(cut_off)?;
        let Head { file, parent, state, tokens, .. } = self.seals.read_head(&mut self.buffer)?;
        match state {
            None if pages.len() == FILES_LISTED => return Ok(false),
            None => {
                let (before, is_whole) = match listed.last {
                    None if parent != root => return Err(SlotFileError::OtherSalt),
                    None => (root, true),
                    Some((last, count)) => (last, count == self.page_tokens),
                };
                let goes_on = parent == before && is_whole && tokens.len() <= self.page_tokens;
                if !goes_on || parent.with(&tokens) != file {
                    return Err(ReadError::OtherText.into());
                }
                listed.tokens += tokens.len();
                listed.last = Some((file, tokens.len()));
                let (states, bytes) = (Vec::new(), 0); // they count in no limit of the store
                pages.push(FoundPage { file, parent, tokens, states, bytes });
            }
            Some(position) => {
                // States follow their page.
                let last = pages.last_mut().filter(|last| last.file == file);
                let last = last.ok_or(ReadError::OtherText)?;
                let before = listed.tokens - last.tokens.len();
                if !(before + 1..=listed.tokens).contains(&(position as usize)) {
                    return Err(ReadError::OtherText.into());
                }
                last.states.push(position);
            }
        }
        listed.open.parts.insert((file, state), (from, bytes));
        listed.from += bytes;
        Ok(true)
    }

    /// Reads a page or a state from an open file. `None` if no open file has it.
    pub fn read(
        &mut self,
        id: FileId,
        state: Option<u32>,
    ) -> Option<Result<(Head, &[u8]), ReadError>> {
        let listed = self.listed.iter().map(|listed| &listed.open);
        let found = self
            .open
            .iter()
            .chain(listed)
            .rev()
            .find_map(|open| Some((&open.file, *open.parts.get(&(id, state))?)));
        let (file, (from, bytes)) = found?;
        self.buffer.resize(usize::try_from(bytes).expect("it was compared with a limit"), 0);
        let read = file.read_exact_at(&mut self.buffer, from).map_err(cut_off);
        let read = read.and_then(|()| Ok(self.seals.read(&mut self.buffer)?));
        Some(read.and_then(|(head, content)| {
            let is_meant = head.file == id && head.state == state;
            if is_meant { Ok((head, content)) } else { Err(ReadError::OtherText) }
        }))
    }

    /// Forgets a page or a state. A file closes with its last one.
    pub fn forget(&mut self, id: FileId, state: Option<u32>) {
        if let Some(listed) = &mut self.listed {
            listed.open.parts.remove(&(id, state));
        }
        self.open.retain_mut(|open| {
            open.parts.remove(&(id, state));
            !open.parts.is_empty()
        });
    }
}

impl Drop for SlotFolder {
    fn drop(&mut self) {
        drop(self.end(false)); // nobody can be told
    }
}

fn cut_off(error: io::Error) -> ReadError {
    match error.kind() {
        ErrorKind::UnexpectedEof => FormatError::CutOff.into(),
        _ => ReadError::Io(error),
    }
}

/// The bytes and the number of the files in the folder and in those of tenants. Removes what servers
/// that were killed have left of files that they wrote.
fn used(path: &Path) -> io::Result<(u64, usize)> {
    let (mut bytes, mut count) = (0, 0);
    let mut add = |entry: &fs::DirEntry, facts: &fs::Metadata| {
        let is_unfinished =
            entry.file_name().to_str().is_some_and(|name| name.starts_with(UNFINISHED));
        let age = facts.modified().ok().and_then(|at| at.elapsed().ok());
        if is_unfinished
            && age.is_some_and(|age| age > UNFINISHED_TIME)
            && fs::remove_file(entry.path()).is_ok()
        {
            return;
        }
        (bytes, count) = (bytes + facts.len(), count + 1);
    };
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Ok(facts) = entry.metadata() else { continue }; // it has just gone
        if !facts.is_dir() {
            add(&entry, &facts);
        } else if entry.file_name().to_str().is_some_and(is_tenant)
            && let Ok(entries) = fs::read_dir(entry.path())
        {
            for entry in entries.flatten() {
                entry
                    .metadata()
                    .iter()
                    .filter(|facts| !facts.is_dir())
                    .for_each(|facts| add(&entry, facts));
            }
        }
    }
    Ok((bytes, count))
}

fn is_tenant(name: &str) -> bool {
    name.len() == TENANT_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ROOT: FileId = FileId(7);

    fn open(path: &Path) -> SlotFolder {
        SlotFolder::open(path.to_owned(), 100_000, Seals::new([1; 32], None), 4, 4_000).unwrap()
    }

    fn page(parent: FileId, tokens: &[i32]) -> Head {
        let file = parent.with(tokens);
        Head { file, parent, state: None, tokens: tokens.into(), content: 50 }
    }

    fn state(file: FileId, position: u32) -> Head {
        Head { file, state: Some(position), ..page(FileId(0), &[]) }
    }

    fn save(folder: &mut SlotFolder, path: &str, parts: &[Head]) {
        folder.begin(Path::new(path)).unwrap();
        for (number, head) in parts.iter().enumerate() {
            folder.add(head, &[number as u8; 50]).unwrap();
        }
        folder.end(true).unwrap();
    }

    /// The pages of a text, each of four tokens.
    fn text(first: i32, pages: usize) -> Vec<Head> {
        let mut all: Vec<Head> = Vec::new();
        for number in 0..pages as i32 {
            let parent = all.last().map_or(ROOT, |last| last.file);
            all.push(page(parent, &[first, number, 2, 3]));
        }
        all
    }

    fn list(folder: &mut SlotFolder, path: &str) -> Result<Vec<FoundPage>, SlotFileError> {
        folder.begin_list(Path::new(path))?;
        let mut all = Vec::new();
        loop {
            let (pages, _) = folder.list(ROOT)?;
            assert!(pages.len() <= FILES_LISTED);
            if pages.is_empty() {
                return Ok(all);
            }
            all.extend(pages);
        }
    }

    #[test]
    fn a_text_that_is_saved_is_listed_in_pieces_and_read() {
        let place = tempfile::tempdir().unwrap();
        let mut folder = open(&place.path().join("a/b"));
        let mut parts = text(1, 2 * FILES_LISTED);
        let (last, middle) = (parts.last().unwrap().file, parts[9].file);
        parts.push(page(last, &[9]));
        parts.insert(10, state(middle, 38));
        parts.insert(11, state(middle, 40));
        save(&mut folder, "x/y", &parts);
        let found = list(&mut folder, "x/y").unwrap();
        assert_eq!(found.len(), 2 * FILES_LISTED + 1);
        assert_eq!(found[9].states, [38, 40]);
        assert_eq!(folder.read(parts[9].file, None).unwrap().unwrap().1, [9; 50]);
        assert_eq!(folder.read(middle, Some(40)).unwrap().unwrap().1, [11; 50]);
        assert!(folder.read(middle, Some(39)).is_none());
        folder.forget(middle, Some(40));
        assert!(folder.read(middle, Some(40)).is_none());
        // The file of this name is replaced. The old one stays open until another file is saved.
        save(&mut folder, "x/y", &text(2, 1));
        assert!(folder.read(middle, None).is_some());
        save(&mut folder, "x/z", &text(3, 1));
        assert!(folder.read(middle, None).is_none());
        let file = place.path().join("a/b/x/y").metadata().unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let mut folder = open(place.path());
        let whole = text(1, 2);
        let (first, second) = (whole[0].clone(), whole[1].clone());
        let cases = [
            ("a text of others", vec![page(FileId(8), &[1, 2, 3, 4])]),
            ("an end without a beginning", vec![second.clone()]),
            ("two beginnings", vec![first.clone(), page(ROOT, &[9, 9, 9, 9])]),
            ("a page behind a short one", {
                let short = page(ROOT, &[1]);
                vec![short.clone(), page(short.file, &[2])]
            }),
            ("a long page", vec![page(ROOT, &[1, 2, 3, 4, 5])]),
            ("another name", vec![Head { file: FileId(3), ..first.clone() }]),
            ("a state without a page", vec![state(first.file, 2)]),
            ("a state of another page", vec![first.clone(), second.clone(), state(first.file, 2)]),
            ("a state before its page", vec![first.clone(), second.clone(), state(second.file, 4)]),
            ("a state behind its page", vec![first.clone(), state(first.file, 5)]),
        ];
        for (what, parts) in cases {
            save(&mut folder, "a", &parts);
            assert!(list(&mut folder, "a").is_err(), "{what}");
            assert!(folder.open.is_empty() && folder.listed.is_none(), "{what}");
        }
        fs::write(place.path().join("empty"), "").unwrap();
        assert!(list(&mut folder, "empty").is_err());
        assert!(matches!(list(&mut folder, "none"), Err(SlotFileError::Missing)));
        save(&mut folder, "a", &whole);
        let bytes = fs::read(place.path().join("a")).unwrap();
        for cut in 1..bytes.len() {
            fs::write(place.path().join("cut"), &bytes[..cut]).unwrap();
            let is_whole_page = cut == bytes.len() / 2;
            assert_eq!(list(&mut folder, "cut").is_ok(), is_whole_page, "{cut}");
        }
    }

    #[test]
    fn a_tenant_closes_its_own_files_for_new_ones() {
        let place = tempfile::tempdir().unwrap();
        let mut folder = open(place.path());
        save(&mut folder, "one", &text(-1, 1));
        list(&mut folder, "one").unwrap();
        for number in 0..2 * SLOT_FILES_OPEN as i32 {
            let path = format!("many/{number}");
            save(&mut folder, &path, &text(number, 1));
            list(&mut folder, &path).unwrap();
            list(&mut folder, &path).unwrap(); // takes no second place
        }
        assert_eq!(folder.open.len(), SLOT_FILES_OPEN);
        assert!(folder.read(text(-1, 1)[0].file, None).is_some());
        assert!(folder.read(text(0, 1)[0].file, None).is_none());
        assert!(folder.read(text(2 * SLOT_FILES_OPEN as i32 - 1, 1)[0].file, None).is_some());
    }

    #[test]
    fn a_page_is_read_as_long_as_one_file_has_it() {
        let place = tempfile::tempdir().unwrap();
        let mut folder = open(place.path());
        let shared = text(1, 3);
        for name in ["a", "b"] {
            save(&mut folder, name, &shared);
            list(&mut folder, name).unwrap();
        }
        fs::remove_file(place.path().join("b")).unwrap();
        save(&mut folder, "c", &text(2, 1));
        assert_eq!(folder.open.len(), 1);
        assert!(folder.read(shared[2].file, None).is_some());
    }

    #[test]
    fn nothing_is_left_of_what_does_not_end() {
        let place = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(place.path()).unwrap().count();
        let mut folder = open(place.path());
        folder.begin(Path::new("a")).unwrap();
        folder.add(&text(1, 1)[0], &[0; 50]).unwrap();
        assert_eq!(names(), 1);
        drop(folder);
        assert_eq!(names(), 0);
        // A server that was killed long ago.
        let left = place.path().join(".unfinished-1");
        fs::write(&left, [0; 90_000]).unwrap();
        let mut folder = open(place.path());
        assert_eq!(names(), 1, "it may belong to a server that runs");
        let old = std::time::SystemTime::now() - 2 * UNFINISHED_TIME;
        File::options().write(true).open(&left).unwrap().set_modified(old).unwrap();
        save(&mut folder, "a", &text(1, 1));
        assert_eq!(names(), 1);
        assert!(place.path().join("a").exists());
    }

    #[test]
    fn other_folders_neither_count_nor_stop_a_server() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("lost+found")).unwrap();
        fs::write(place.path().join("lost+found/a"), [0; 200_000]).unwrap();
        let mut folder = open(place.path());
        save(&mut folder, "a", &text(1, 1));
        let tenant = format!("{:032x}", 5);
        save(&mut folder, &format!("{tenant}/a"), &text(1, 1));
        let bytes = place.path().join("a").metadata().unwrap().len();
        assert_eq!(used(place.path()).unwrap(), (2 * bytes, 2));
        folder.begin(Path::new("large")).unwrap();
        let large = Head { content: 99_900, ..text(1, 1)[0].clone() };
        let refused = folder.add(&large, &[0; 99_900]);
        assert!(matches!(refused, Err(SlotFileError::NoRoom(100_000))), "{refused:?}");
        folder.end(false).unwrap();
    }
}
