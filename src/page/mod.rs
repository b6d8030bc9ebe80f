//! The web page at `/`: its files, in memory. Their sources are in `tools/page`.

use std::io::Write;
use std::sync::OnceLock;

use flate2::write::GzEncoder;
use flate2::{Compression, Crc};

/// One file of the page.
#[derive(Debug)]
pub struct File {
    /// Its path on the server.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Its content.
    pub content: &'static [u8],
    /// The content, compressed by gzip.
    pub gzip: Vec<u8>,
    /// A name of the content, for `ETag`. It is a weak one: the compressed content has it, too.
    pub etag: String,
}

impl File {
    /// Whether a client that sends this `If-None-Match` has the content.
    pub fn is_among(&self, known: &str) -> bool {
        known.split(',').any(|one| [&self.etag, "*"].contains(&one.trim()))
    }
}

const SOURCES: [(&str, &str, &[u8]); 4] = [
    ("/", "text/html; charset=utf-8", include_bytes!("index.html")),
    ("/ui/app.js", "text/javascript; charset=utf-8", include_bytes!("app.js")),
    ("/ui/app.css", "text/css; charset=utf-8", include_bytes!("app.css")),
    ("/ui/icon.svg", "image/svg+xml", include_bytes!("icon.svg")),
];

/// The paths of the files.
pub fn paths() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|(path, ..)| *path)
}

/// All files of the page. The first call compresses them, which takes a few milliseconds.
pub fn files() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| SOURCES.iter().map(|source| file(*source)).collect())
}

fn file((path, content_type, content): (&'static str, &'static str, &'static [u8])) -> File {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(content).expect("writing to memory cannot fail");
    let gzip = gzip.finish().expect("writing to memory cannot fail");
    let mut crc = Crc::new();
    crc.update(content);
    let etag = format!("W/\"{:x}-{:08x}\"", content.len(), crc.sum());
    File { path, content_type, content, gzip, etag }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_client_that_has_a_file_says_its_name() {
        let file = &files()[0];
        assert!(file.is_among(&file.etag) && file.is_among(&format!("\"x\", {}", file.etag)));
        assert!(file.is_among("*") && !file.is_among("W/\"0-00000000\""));
    }

    #[test]
    fn files_are_compressed_and_small() {
        let mut wire = 0;
        for file in files() {
            let mut unpacked = Vec::new();
            flate2::read::GzDecoder::new(&*file.gzip).read_to_end(&mut unpacked).unwrap();
            assert_eq!(unpacked, file.content, "{}", file.path);
            wire += file.gzip.len();
        }
        assert!(wire <= 150 * 1024, "{wire} bytes are too many for a page");
    }
}
