//! Downloads one file, checks it and moves it to its blob's path.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use ureq::Body;
use ureq::http::Response;

use super::cache::Folder;
use super::client::Client;
use super::error::HubError;
use super::listing::Content;

/// A try that brought at least this many bytes counts as progress.
const HUB_PROGRESS_BYTES: u64 = 1024 * 1024;

/// Bytes of a file that are read and hashed at once.
const HUB_READ_BYTES: usize = 256 * 1024;

/// Downloads the blob of a file. Resumes an earlier download, if there is one. Calls `report` with
/// the number of bytes so far.
///
/// # Errors
/// The bytes so far stay for the next download, unless they are wrong.
pub(super) fn download(
    client: &Client<'_>,
    folder: &Folder,
    url: &str,
    content: &Content,
    report: &mut dyn FnMut(u64),
) -> Result<(), HubError> {
    let _lock = folder.lock(&content.sha256, true)?;
    if folder.has_blob(content) {
        return Ok(()); // another process has downloaded it meanwhile
    }
    let mut partial = Partial::open(folder, content)?;
    let is_resumed = partial.length > 0;
    partial.fill(client, url, content, report)?;
    if let Err(error) = partial.check(url, content) {
        partial.restart()?;
        if !is_resumed {
            return Err(error);
        }
        tracing::warn!("{error}; some bytes are from an earlier download, so it begins again");
        partial.fill(client, url, content, report)?;
        if let Err(error) = partial.check(url, content) {
            partial.restart()?;
            return Err(error);
        }
    }
    partial.become_blob(&folder.blob(&content.sha256))
}

/// An incomplete blob: the first bytes of a file.
struct Partial {
    path: PathBuf,
    file: File,
    /// The hash of the bytes so far.
    hash: Context,
    /// The number of bytes so far.
    length: u64,
}

impl Partial {
    /// Opens the incomplete blob, and reads its bytes to hash them.
    fn open(folder: &Folder, content: &Content) -> Result<Self, HubError> {
        let path = folder.incomplete(&content.sha256);
        let file = folder.open_incomplete(&content.sha256)?;
        let mut partial = Self { path, file, hash: Context::new(&SHA256), length: 0 };
        let mut buffer = vec![0; HUB_READ_BYTES];
        loop {
            let read = partial.file.read(&mut buffer);
            match read.map_err(HubError::io("read", &partial.path))? {
                0 => break,
                n => partial.count(&buffer[..n]),
            }
        }
        if partial.length > content.size {
            partial.restart()?;
        }
        Ok(partial)
    }

    fn count(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
    }

    /// Drops all bytes.
    fn restart(&mut self) -> Result<(), HubError> {
        self.hash = Context::new(&SHA256);
        self.length = 0;
        self.file.set_len(0).map_err(HubError::io("empty", &self.path))
    }

    /// Downloads the missing bytes.
    fn fill(
        &mut self,
        client: &Client<'_>,
        url: &str,
        content: &Content,
        report: &mut dyn FnMut(u64),
    ) -> Result<(), HubError> {
        let mut tries = client.tries();
        while self.length < content.size {
            let before = self.length;
            let got = client
                .file(url, before)
                .and_then(|response| self.take(response, url, content.size, report));
            if let Err(error) = got {
                if self.length >= before + HUB_PROGRESS_BYTES {
                    tries.progress();
                }
                tries.wait_after(error)?;
            }
        }
        Ok(())
    }

    /// Adds the bytes of one response.
    fn take(
        &mut self,
        mut response: Response<Body>,
        url: &str,
        size: u64,
        report: &mut dyn FnMut(u64),
    ) -> Result<(), HubError> {
        self.align(&response, url, size)?;
        let lies = |sent: String| HubError::Size { file: url.to_owned(), said: size, sent };
        let missing = size - self.length;
        if let Some(sent) = response.body().content_length().filter(|sent| *sent != missing) {
            return Err(lies(format!("{} bytes", self.length + sent)));
        }
        let mut reader = response.body_mut().as_reader();
        let mut buffer = vec![0; HUB_READ_BYTES];
        loop {
            let n = match reader.read(&mut buffer) {
                Ok(0) if self.length == size => return Ok(()),
                Ok(0) => return Err(self.broken_off(url, size, "the connection was closed")),
                Ok(n) => n,
                Err(error) => return Err(self.broken_off(url, size, &error.to_string())),
            };
            if self.length + n as u64 > size {
                self.restart()?;
                return Err(lies("more than that".into()));
            }
            // Written at its position and not at the end of the file: on file systems without
            // working locks, another process may write the same bytes.
            let written = self.file.write_all_at(&buffer[..n], self.length);
            written.map_err(HubError::io("write", &self.path))?;
            self.count(&buffer[..n]);
            report(self.length);
        }
    }

    /// Checks that the response's body begins where the file ends. With status 200 the body begins
    /// at byte 0, so the file is emptied.
    fn align(&mut self, response: &Response<Body>, url: &str, size: u64) -> Result<(), HubError> {
        let range = response.headers().get("content-range").and_then(|range| range.to_str().ok());
        let expected = format!("bytes {}-{}/{size}", self.length, size - 1);
        match response.status().as_u16() {
            206 if range == Some(&expected) => Ok(()),
            200 => {
                if self.length > 0 {
                    tracing::info!("the hub sends only whole files, so the download begins again");
                    self.restart()?;
                }
                Ok(())
            }
            _ => {
                let reason = format!("the rest was asked for, and {range:?} came");
                let error = self.broken_off(url, size, &reason);
                self.restart()?;
                Err(error)
            }
        }
    }

    fn broken_off(&self, url: &str, size: u64, reason: &str) -> HubError {
        let (url, reason) = (url.to_owned(), reason.to_owned());
        HubError::BrokenOff { url, bytes: self.length, size, reason }
    }

    /// Compares the hash of the bytes with the hub's.
    fn check(&self, url: &str, content: &Content) -> Result<(), HubError> {
        assert_eq!(self.length, content.size, "it was filled");
        let hash = self.hash.clone().finish();
        let found: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let (file, expected) = (url.to_owned(), content.sha256.clone());
        let there = self.file.metadata().map_err(HubError::io("look at", &self.path))?.len();
        let is_good = found == expected && there == content.size;
        if is_good { Ok(()) } else { Err(HubError::Damaged { file, found, expected }) }
    }

    /// Moves the file to the path of the complete blob, after its bytes are on the disk.
    fn become_blob(self, blob: &Path) -> Result<(), HubError> {
        let folder = blob.parent().expect("it is in a folder");
        let place = || {
            self.file.sync_all()?;
            fs::rename(&self.path, blob)?;
            File::open(folder)?.sync_all()
        };
        place().map_err(HubError::io("place", blob))
    }
}
