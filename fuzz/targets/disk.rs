//! A file of the prefix store: any bytes, and a file that was written and then changed.
#![no_main]

use corelane::disk::format::{Head, Seals};
use corelane::types::FileId;

const FINGERPRINT: [u8; 32] = [7; 32];

corelane_fuzz::target!(|bytes: &[u8]| {
    let [kind, change, rest @ ..] = bytes else { return };
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
