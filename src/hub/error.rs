//! The reasons why a model cannot be obtained by its name.

use std::path::PathBuf;
use std::time::Duration;

/// Each error's message is one sentence for a user.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The name does not have the right form.
    #[error(
        "{0:?} is not the name of a model; it must be OWNER/REPO or OWNER/REPO:QUANT, such as \
         ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"
    )]
    Name(String),
    /// `HF_ENDPOINT` is no address.
    #[error(
        "HF_ENDPOINT is {:?}; it must be http:// or https:// and a host, without a query, such as \
         https://huggingface.co",
        without_secrets(.0)
    )]
    Endpoint(String),
    /// `HF_ENDPOINT` has a password, which is not repeated here.
    #[error(
        "HF_ENDPOINT must have no user name and no password (it contains an @), because logs show it; \
         put the token for a hub into HF_TOKEN"
    )]
    EndpointSecret,
    /// The token cannot be sent.
    #[error(
        "the token for the hub has a character that no token has; see --hf-token, HF_TOKEN and \
         {0}"
    )]
    Token(PathBuf),
    /// There is no place for the cache.
    #[error("there is no folder for models, because HOME is not set; HF_HOME can name one")]
    NoHome,
    /// The model is not in the cache, and the hub may not be asked.
    #[error(
        "{wanted} is not in {cache}, and the hub is not asked because of --offline or \
         HF_HUB_OFFLINE; corelane model list shows the models that are there"
    )]
    Offline {
        /// The model.
        wanted: String,
        /// The folder of the cache.
        cache: PathBuf,
    },
    /// The model is not in the cache.
    #[error("{wanted} is not in {cache}; corelane model list shows the models that are there")]
    NotKept {
        /// The model.
        wanted: String,
        /// The folder of the cache.
        cache: PathBuf,
    },
    /// The connection failed, or the answer could not be read.
    #[error("the hub cannot be reached at {url}: {source}")]
    Unreachable {
        /// The URL that was asked for.
        url: String,
        /// The error of the connection.
        source: Box<ureq::Error>,
    },
    /// A download ended too early.
    #[error("{url} broke off after {bytes} of {size} bytes: {reason}")]
    BrokenOff {
        /// The URL.
        url: String,
        /// Bytes of the file so far.
        bytes: u64,
        /// Bytes of the whole file.
        size: u64,
        /// The error of the connection.
        reason: String,
    },
    /// The hub is overloaded or broken, or answered with an unexpected status.
    #[error("{url} answers {status}{}{said}", wait(*.after))]
    Status {
        /// The URL.
        url: String,
        /// The status.
        status: u16,
        /// The hub's own words, with a colon before them.
        said: String,
        /// How long the hub asks to wait.
        after: Option<Duration>,
    },
    /// Status 401.
    #[error(
        "the hub does not show {url} {} (401): check the spelling; a private or gated model needs \
         a token of an account that may read it, in HF_TOKEN or --hf-token",
        if *.with_token { "to the owner of this token" } else { "without a token" }
    )]
    NotShown {
        /// The URL.
        url: String,
        /// Whether a token was sent.
        with_token: bool,
    },
    /// Status 403.
    #[error(
        "the hub refuses {url} (403){said}; if the model is gated, accept its terms on its page, and \
         set HF_TOKEN to a token of that account"
    )]
    Refused {
        /// The URL.
        url: String,
        /// The hub's own words, with a colon before them.
        said: String,
    },
    /// Status 404.
    #[error(
        "there is no {url} (404): check the spelling of the owner, the repository and the file"
    )]
    NotFound {
        /// The URL.
        url: String,
    },
    /// There are too many redirections, or one must not be followed.
    #[error("{url} leads to {to:?}, {reason}")]
    Redirect {
        /// The URL.
        url: String,
        /// The target of the redirection.
        to: String,
        /// The reason why it is not followed.
        reason: &'static str,
    },
    /// The hub's answer does not have the expected form.
    #[error("the hub's answer at {url} {reason}")]
    Answer {
        /// The URL.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The repository has no GGUF file.
    #[error("{repo} has no GGUF file of a model; it has {found}")]
    NoGguf {
        /// The repository.
        repo: String,
        /// The files that it has.
        found: String,
    },
    /// No file has this quant.
    #[error("{repo} has no file for {quant:?}; it has {found}")]
    NoQuant {
        /// The repository.
        repo: String,
        /// The quant.
        quant: String,
        /// The quants that it has.
        found: String,
    },
    /// There is no such file.
    #[error("{repo} has no file {file:?}; its GGUF files are {found}")]
    NoFile {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
        /// The GGUF files that it has.
        found: String,
    },
    /// Shards are missing.
    #[error("{repo} has {found} of the {count} files of {file}")]
    Shards {
        /// The repository.
        repo: String,
        /// One of the files.
        file: String,
        /// The number of files that the repository has.
        found: usize,
        /// The number of files of the model.
        count: usize,
    },
    /// The hub sends a file of another size than it lists.
    #[error("the hub lists {file} with {said} bytes, but sends {sent}")]
    Size {
        /// The file.
        file: String,
        /// The size in the hub's list.
        said: u64,
        /// The size that was sent, in words.
        sent: String,
    },
    /// The bytes do not have the hash of the repository's file.
    #[error(
        "{file} came damaged: its SHA-256 is {found} and should be {expected}; its bytes are thrown \
         away"
    )]
    Damaged {
        /// The file.
        file: String,
        /// The SHA-256 of the bytes that came.
        found: String,
        /// The SHA-256 in the hub's list.
        expected: String,
    },
    /// The disk is too full.
    #[error(
        "{folder} has {:.1} GB free, and the download needs {:.1} GB; corelane model rm frees space, \
         and HF_HOME names another folder",
        *free as f64 / 1e9,
        *needed as f64 / 1e9
    )]
    Full {
        /// The folder of the cache.
        folder: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// Another process removed files of the model after each download.
    #[error("another process removes files of {0} while they are downloaded")]
    Removed(String),
    /// The model is being downloaded and cannot be removed.
    #[error("a process downloads a file of {0} at the moment, so nothing was removed")]
    Busy(String),
    /// An operation on a file or folder of the cache failed.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// The operation, as a verb.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A URL that may be shown: without the query, which may contain a signature, and without a
/// password.
pub(super) fn without_secrets(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = bare.split_once("//") else { return bare.to_owned() };
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}//{host}{path}")
}

/// The time that a hub asks to wait, as a part of a sentence.
fn wait(after: Option<Duration>) -> String {
    after.map_or(String::new(), |after| format!(" and asks to wait {} s", after.as_secs()))
}

impl HubError {
    /// Whether the same request may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        use ureq::Error as Net;
        match self {
            Self::BrokenOff { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Unreachable { source, .. } => matches!(
                **source,
                Net::Io(_) | Net::Timeout(_) | Net::Protocol(_) | Net::ConnectionFailed
            ),
            _ => false,
        }
    }

    /// How long the hub asks to wait.
    pub(super) fn after(&self) -> Option<Duration> {
        match self {
            Self::Status { after, .. } => *after,
            _ => None,
        }
    }

    /// Makes an error from a system error about this path.
    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, shown) in [
            ("https://cdn.example/a/b?Signature=s3cret&Expires=1", "https://cdn.example/a/b"),
            ("https://me:s3cret@cdn.example:81/a@b#s3cret", "https://cdn.example:81/a@b"),
            ("//me:s3cret@cdn/a", "//cdn/a"),
            ("/a/b?s3cret", "/a/b"),
            ("https://huggingface.co", "https://huggingface.co"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }
}
