//! A file of the prefix store: any bytes, and a file that was written and then changed. The file of a
//! slot: any pages and states one after another.
#![no_main]

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use corelane::disk::SlotFolder;
use corelane::disk::format::{Head, Seals};
use corelane::types::FileId;

const FINGERPRINT: [u8; 32] = [7; 32];

/// The empty text.
const ROOT: FileId = FileId(5);

/// Most tokens of a page.
const PAGE_TOKENS: usize = 4;

/// Most pages and states of a file.
const PARTS_MAX: usize = 100;

thread_local! {
    static FOLDER: RefCell<SlotFolder> = RefCell::new(
        SlotFolder::open(folder(), u64::MAX, Seals::new(FINGERPRINT, None), PAGE_TOKENS, 4096)
            .expect("it can be made")
    );
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("corelane-fuzz-{}", std::process::id()))
}

/// Lists and reads a file of pages and states. Two bytes tell what each of them is.
fn list(parts: &[u8]) {
    let (seals, path) = (Seals::new(FINGERPRINT, None), folder().join("file"));
    let (mut parent, mut tokens) = (ROOT, 0u32);
    let (mut file, mut part) = (Vec::new(), Vec::new());
    for pair in parts.chunks_exact(2).take(PARTS_MAX) {
        let number = pair[1];
        let page = |parent: FileId, count: u8| {
            let tokens: Box<[i32]> = (0..count).map(i32::from).collect();
            Head { file: parent.with(&tokens), parent, state: None, tokens, content: 3 }
        };
        let head = match pair[0] % 8 {
            0..=3 => page(parent, PAGE_TOKENS as u8),
            4 => page(parent, number % 6),
            5 => page(FileId(number.into()), PAGE_TOKENS as u8),
            6 => Head {
                file: parent,
                state: Some(tokens.saturating_sub(u32::from(number % 6))),
                ..page(ROOT, 0)
            },
            _ => {
                file.push(number);
                continue;
            }
        };
        seals.write(&head, &[number; 3], &mut part);
        file.extend(&part);
        if head.state.is_none() {
            (parent, tokens) = (head.file, tokens + head.tokens.len() as u32);
        }
    }
    FOLDER.with_borrow_mut(|folder| {
        std::fs::write(&path, &file).expect("it can be written");
        if folder.begin_list(Path::new("file")).is_err() {
            return;
        }
        let (mut pages, mut last) = (0, ROOT);
        while let Ok((found, bytes)) = folder.list(ROOT) {
            assert_eq!(bytes, file.len() as u64);
            for page in &found {
                assert!(page.parent == last && page.tokens.len() <= PAGE_TOKENS);
                assert!(folder.read(page.file, None).is_some_and(|read| read.is_ok()));
                for state in &page.states {
                    assert!(folder.read(page.file, Some(*state)).is_some_and(|read| read.is_ok()));
                }
                (pages, last) = (pages + 1, page.file);
            }
            if found.is_empty() {
                break;
            }
        }
        assert!(pages <= PARTS_MAX);
    });
    std::fs::remove_file(&path).expect("it was written");
}

corelane_fuzz::target!(|bytes: &[u8]| {
    let [kind, change, rest @ ..] = bytes else { return };
    if change % 8 == 0 {
        list(rest); // seldom, for files are slow
    }
    let seals = Seals::new(FINGERPRINT, (kind & 1 == 1).then_some([9; 32]));
    let mut raw = rest.to_vec();
    if let Ok((head, content)) = seals.read(&mut raw) {
        assert_eq!(head.content, content.len() as u64);
    }
    // A page has tokens, and a state has none.
    let (tokens, content) = rest.split_at(rest.len().min(usize::from(kind >> 1)));
    let head = Head {
        file: FileId(1),
        parent: FileId(2),
        state: tokens.is_empty().then_some(u32::from(*change)),
        tokens: tokens.iter().map(|byte| i32::from(*byte)).collect(),
        content: content.len() as u64,
    };
    let mut file = Vec::new();
    seals.write(&head, content, &mut file);
    let mut whole = file.clone();
    let (read, found) = seals.read(&mut whole).expect("it was written so");
    assert!(read == head && found == content);
    let mut longer = [&file[..], &[*change]].concat();
    assert!(seals.read(&mut longer).is_err(), "a byte behind its end");
    // Any other bit makes it another file.
    let sum: usize = rest.iter().map(|byte| usize::from(*byte)).sum();
    let (at, bit) = ((sum * 31 + usize::from(*change)) % file.len(), sum % 8);
    file[at] ^= 1 << bit;
    assert!(seals.read(&mut file).is_err(), "bit {bit} of byte {at}");
    file.truncate(at);
    assert!(seals.read(&mut file).is_err(), "cut off at {at}");
});
