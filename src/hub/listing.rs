//! A hub's list of the files of a repository.

use serde::Deserialize;

use super::name::{is_hash, is_inside};
use crate::limits::HUB_FILES_MAX;

/// The files of a commit.
#[derive(Debug)]
pub(super) struct Listing {
    /// The commit: 40 hexadecimal digits.
    pub commit: String,
    /// All files, in the hub's order.
    pub files: Vec<Listed>,
}

/// A file of the list.
#[derive(Debug)]
pub(super) struct Listed {
    /// Its path in the repository, which stays inside the folder of a snapshot.
    pub path: String,
    /// Its size and hash. The lists of some mirrors do not have them.
    pub content: Option<Content>,
}

/// The size and hash by which a file is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// Bytes.
    pub size: u64,
    /// SHA-256, as 64 hexadecimal digits.
    pub sha256: String,
}

#[derive(Deserialize)]
struct Answer {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Listing {
    /// Reads the answer of `/api/models/OWNER/REPO/revision/main?blobs=true`.
    ///
    /// # Errors
    /// The end of a sentence that begins with "the hub's answer".
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let answer: Answer = serde_json::from_slice(body)
            .map_err(|error| format!("is not a list of files: {error}"))?;
        if !is_hash(&answer.sha, 40) {
            return Err(format!("names the commit {:?}; it must be 40 hex digits", answer.sha));
        }
        let count = answer.siblings.len();
        if count > HUB_FILES_MAX {
            return Err(format!("lists {count} files; at most {HUB_FILES_MAX} are read"));
        }
        let files = answer.siblings.into_iter().map(listed).collect::<Result<_, _>>()?;
        Ok(Self { commit: answer.sha, files })
    }
}

fn listed(Sibling { rfilename: path, lfs }: Sibling) -> Result<Listed, String> {
    if !is_inside(&path) {
        return Err(format!("names the file {path:?}, which leaves the folder of the model"));
    }
    let content = lfs.map(|Lfs { sha256, size }| match is_hash(&sha256, 64) {
        true => Ok(Content { size, sha256 }),
        false => Err(format!("gives {path} the SHA-256 {sha256:?}; it must be 64 hex digits")),
    });
    Ok(Listed { content: content.transpose()?, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn read(siblings: &str) -> Result<Listing, String> {
        let commit = &SHA[..40];
        Listing::read(
            format!(r#"{{"id":"a/b","sha":"{commit}","siblings":[{siblings}]}}"#).as_bytes(),
        )
    }

    #[test]
    fn a_list_has_paths_sizes_and_hashes() {
        let file = format!(
            r#"{{"rfilename":"a.gguf","size":9,"blobId":"x","lfs":{{"sha256":"{SHA}","size":9,"pointerSize":1}}}}"#
        );
        let listing = read(&format!(r#"{{"rfilename":"README.md"}},{file}"#)).unwrap();
        assert_eq!((listing.commit.as_str(), listing.files.len()), (&SHA[..40], 2));
        assert_eq!(listing.files[0].content, None);
        assert_eq!(listing.files[1].path, "a.gguf");
        assert_eq!(listing.files[1].content, Some(Content { size: 9, sha256: SHA.into() }));
    }

    #[test]
    fn a_list_that_cannot_be_trusted_is_refused() {
        let lfs =
            |hash: &str| format!(r#"{{"rfilename":"a","lfs":{{"sha256":"{hash}","size":1}}}}"#);
        for (siblings, why) in [
            (r#"{"rfilename":"../../x"}"#.to_owned(), "leaves the folder"),
            (r#"{"rfilename":"/etc/passwd"}"#.to_owned(), "leaves the folder"),
            (lfs("../../../x"), "64 hex digits"),
            (lfs(&SHA.to_uppercase()), "64 hex digits"),
            (r#"{"rfilename":1}"#.to_owned(), "not a list of files"),
        ] {
            let error = read(&siblings).unwrap_err();
            assert!(error.contains(why), "{siblings}: {error}");
        }
        let no_commit = Listing::read(br#"{"sha":"main","siblings":[]}"#).unwrap_err();
        assert!(no_commit.contains("40 hex digits"), "{no_commit}");
        let many = vec![r#"{"rfilename":"a"}"#; HUB_FILES_MAX + 1].join(",");
        assert!(read(&many).unwrap_err().contains("10001 files"));
    }
}
