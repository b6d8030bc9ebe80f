//! The fingerprint of a model: a hash that tells whether cells that were written to a file belong to
//! it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ring::digest::{Context, SHA256};

use super::format::Fingerprint;

/// The beginning of a file that is read as a whole. It has the metadata, where a small change may
/// change all cells.
const HEAD_BYTES: u64 = 16 << 20;

/// A large file is read at this many places behind that.
const SAMPLES: u64 = 4096;

/// The bytes read at each place.
const SAMPLE_BYTES: usize = 1024;

/// The fingerprint of the model in these files, with a cache that `layout` describes. Reads the
/// first 16 MiB of each file, and 4 MiB at places that are evenly apart.
///
/// # Errors
/// If a file cannot be read.
pub fn fingerprint(files: &[PathBuf], layout: &str) -> io::Result<Fingerprint> {
    let mut context = Context::new(&SHA256);
    context.update(layout.as_bytes());
    for path in files {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        context.update(&length.to_le_bytes());
        let apart = (length / SAMPLES).max(SAMPLE_BYTES as u64);
        let mut sample = [0; SAMPLE_BYTES];
        let mut at = 0;
        while at < length {
            let end = sample.len().min((length - at) as usize);
            file.read_exact_at(&mut sample[..end], at)?;
            context.update(&sample[..end]);
            at += if at < HEAD_BYTES { end as u64 } else { apart };
        }
    }
    Ok(context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_or_another_layout_has_another_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let mut content = vec![1; 20_000_000];
        let first = write("first", &content);
        content[12_345_678] = 2;
        let (second, shorter) = (write("second", &content), write("shorter", &content[1..]));
        let of = |files: &[&PathBuf], layout| {
            let files: Vec<PathBuf> = files.iter().map(|file| (*file).clone()).collect();
            fingerprint(&files, layout).unwrap()
        };
        let all = [
            of(&[&first], "f16"),
            of(&[&first], "q8_0"),
            of(&[&shorter], "f16"),
            of(&[&first, &second], "f16"),
            of(&[], "f16"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other != one), "{index}");
        }
        assert_eq!(all[0], of(&[&write("copy", &vec![1; 20_000_000])], "f16"));
        assert!(fingerprint(&[folder.path().join("none")], "").is_err());
    }
}
