//! Pages of a mapped file that nobody needs any more.

use std::ffi::c_void;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::mm::{Advice, madvise};

/// Takes the pages of `path` out of this process, wherever it is mapped to be read.
/// They come back, one by one, when somebody reads them.
///
/// llama.cpp reads all of a model's file when it loads it, and copies what its kernels
/// want in another order; of the copied part no page is ever read again.
pub fn let_go(path: &Path) {
    let (Ok(file), Ok(maps)) = (fs::metadata(path), fs::read_to_string("/proc/self/maps")) else {
        return; // without, it only takes more memory
    };
    for range in maps.lines().filter_map(|line| shared_range(line, file.ino())) {
        let (start, length) = (range.start, range.end - range.start);
        // SAFETY: a shared mapping of a file that nobody writes: what is let go is read
        // from the file again.
        let result = unsafe { madvise(start as *mut c_void, length, Advice::LinuxDontNeed) };
        if let Err(error) = result {
            tracing::debug!(%error, "the model's pages stay");
        }
    }
}

/// The addresses of a line of `/proc/self/maps`, if it is a shared, read-only mapping
/// of this file: `start-end r--s offset device inode path`.
fn shared_range(line: &str, inode: u64) -> Option<std::ops::Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (addresses, access) = (fields.next()?, fields.next()?);
    let is_it = access == "r--s" && fields.nth(2)?.parse() == Ok(inode);
    let (start, end) = addresses.split_once('-')?;
    let address = |hex| usize::from_str_radix(hex, 16).ok();
    is_it.then_some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_mappings_of_the_file_are_meant() {
        let line =
            |access, inode| format!("7f00a000-7f00c000 {access} 00000000 fd:01 {inode}   /m.gguf");
        assert_eq!(shared_range(&line("r--s", 42), 42), Some(0x7f00_a000..0x7f00_c000));
        assert_eq!(shared_range(&line("r--s", 43), 42), None);
        assert_eq!(shared_range(&line("rw-s", 42), 42), None);
        assert_eq!(shared_range(&line("r--p", 42), 42), None);
        assert_eq!(shared_range("7f00a000-7f00c000 rw-p 00000000 00:00 0", 42), None);
    }
}
