//! Models by name. In: a name such as `ggml-org/gemma-3-1b-it-GGUF:Q4_K_M`. Out: the path of a GGUF
//! file. If the cache does not have the newest version, it is downloaded from a hub:
//! huggingface.co, or the hub in `HF_ENDPOINT`.
//!
//! The cache has the layout of huggingface_hub's cache, so that tools share downloaded files:
//!
//! ```text
//! HF_HOME/hub/models--OWNER--REPO/blobs/SHA256                 a file's bytes
//!                                /blobs/SHA256.incomplete      its first bytes, to be resumed
//!                                /snapshots/COMMIT/FILE.gguf   a link to the blob
//!                                /refs/main                    the newest commit
//! HF_HOME/hub/.locks/models--OWNER--REPO/SHA256.lock           held by the process that downloads
//!                                      /corelane.lock         held while links are made or removed
//! ```
//!
//! **Invariant:** a link of a snapshot leads to a whole file. A blob gets its name only after its
//! size and its SHA-256 are checked. Then all shards of a model are linked, and last, `refs/main`
//! is written. If another process removes a file in between, this is noticed while `corelane.lock`
//! is held, and the file is downloaded again.

mod cache;
mod choose;
mod client;
mod download;
mod environment;
mod error;
mod kept;
mod listing;
mod name;
mod obtain;
mod tries;

pub use environment::{Hub, Patience};
pub use error::HubError;
pub use kept::{Kept, Removed, Unfinished, kept, remove, unfinished};
pub use name::{Name, Wanted};
pub use obtain::{Model, Progress, cached, obtain, pull};

/// Reads a hub's list of a repository's files, for the fuzzer. Returns the number of files.
///
/// # Errors
/// A phrase that says what is wrong.
pub fn read_listing(body: &[u8]) -> Result<usize, String> {
    listing::Listing::read(body).map(|listing| listing.files.len())
}
