//! The name of a model, as a user writes it.

use std::fmt;
use std::str::FromStr;

use super::error::HubError;

/// Bytes of the owner, the repository or the quant in a model's name. huggingface.co allows 96.
const HUB_NAME_BYTES_MAX: usize = 96;

/// Bytes of a file's path in a repository.
const HUB_PATH_BYTES_MAX: usize = 512;

/// `OWNER/REPO` or `OWNER/REPO:QUANT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    owner: String,
    repo: String,
    /// A part of the file's name, such as `Q4_K_M`.
    pub quant: Option<String>,
}

/// A model that a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: Name,
    /// The path of its file in the repository, instead of a quant.
    pub file: Option<String>,
}

impl From<Name> for Wanted {
    fn from(name: Name) -> Self {
        Self { name, file: None }
    }
}

impl Name {
    /// The repository: `OWNER/REPO`.
    pub fn repo(&self) -> String {
        format!("{}/{}", self.owner, self.repo)
    }

    /// The repository's folder in the cache.
    pub(super) fn folder(&self) -> String {
        format!("models--{}--{}", self.owner, self.repo)
    }

    /// The name of the repository in this folder; `None` if the folder is not that of a model.
    pub(super) fn of_folder(folder: &str) -> Option<Self> {
        let (owner, repo) = folder.strip_prefix("models--")?.split_once("--")?;
        format!("{owner}/{repo}").parse().ok()
    }

    /// The name of the same repository with this quant.
    pub(super) fn with_quant(&self, quant: Option<String>) -> Self {
        Self { quant, ..self.clone() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.repo)?;
        self.quant.as_ref().map_or(Ok(()), |quant| write!(f, ":{quant}"))
    }
}

impl FromStr for Name {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let wrong = || HubError::Name(text.to_owned());
        let (id, quant) = match text.split_once(':') {
            Some((id, quant)) => (id, Some(quant)),
            None => (text, None),
        };
        let (owner, repo) = id.split_once('/').ok_or_else(wrong)?;
        let is_good = is_part(owner) && is_part(repo) && quant.is_none_or(is_part);
        let name = Self { owner: owner.into(), repo: repo.into(), quant: quant.map(str::to_owned) };
        if is_good { Ok(name) } else { Err(wrong()) }
    }
}

/// Whether this is a valid part of a name, by the hub's rules. Such a part is also safe in a URL
/// and in the name of a folder, where `--` stands for the slash.
fn is_part(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_good = |c: char| is_word(c) || c == '-' || c == '.';
    (1..=HUB_NAME_BYTES_MAX).contains(&part.len())
        && part.chars().all(is_good)
        && part.starts_with(is_word)
        && part.ends_with(is_word)
        && !part.contains("--")
        && !part.contains("..")
}

/// Whether a file's path in a repository stays in the folder of its snapshot.
pub(super) fn is_inside(path: &str) -> bool {
    let is_good = |part: &str| !matches!(part, "" | "." | "..");
    path.len() <= HUB_PATH_BYTES_MAX
        && path.split('/').all(is_good)
        && !path.contains(|c: char| c == '\\' || c.is_control())
}

/// Whether this is a hash of this number of hexadecimal digits, in lower case. Hashes become names
/// of files.
pub(super) fn is_hash(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_an_owner_a_repository_and_a_quant() {
        let name: Name = "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M".parse().unwrap();
        assert_eq!(name.repo(), "ggml-org/gemma-3-1b-it-GGUF");
        assert_eq!(name.quant.as_deref(), Some("Q4_K_M"));
        assert_eq!(name.folder(), "models--ggml-org--gemma-3-1b-it-GGUF");
        assert_eq!(Name::of_folder(&name.folder()), Some(name.with_quant(None)));
        for wrong in [
            "", "a", "a/", "/b", "a/b/c", "a/b:", "a/b:c:d", "a/..", "../b", "a/.b", "a/b-",
            "a/b--c", "a b/c", "a/b?c", "a/b#c", "a/%2e", "a/b:../c", "ä/b",
        ] {
            let error = wrong.parse::<Name>().unwrap_err().to_string();
            assert!(error.contains("OWNER/REPO"), "{wrong}: {error}");
        }
        assert!(format!("a/{}", "b".repeat(HUB_NAME_BYTES_MAX + 1)).parse::<Name>().is_err());
        for other in ["models--a", "datasets--a--b", "models--a--..", "models--a--b--c", ".locks"] {
            assert_eq!(Name::of_folder(other), None, "{other}");
        }
    }

    #[test]
    fn paths_that_leave_the_snapshot_are_refused() {
        for good in ["a.gguf", "Q4_K_M/a-00001-of-00002.gguf", "..a/b..", ".gitattributes", "a b"] {
            assert!(is_inside(good), "{good}");
        }
        let long = "a".repeat(HUB_PATH_BYTES_MAX + 1);
        for bad in
            ["", "/a", "a/", "..", "../a", "a/../b", "a//b", "./a", "a\\b", "a\0", "a\n", &long]
        {
            assert!(!is_inside(bad), "{bad}");
        }
        assert!(is_hash("0123456789abcdef", 16) && !is_hash("0123456789ABCDEF", 16));
    }

    proptest! {
        #[test]
        fn what_is_a_name_is_a_folder_and_back(text in "[a-zA-Z0-9._/:-]{1,30}") {
            if let Ok(name) = text.parse::<Name>() {
                prop_assert_eq!(name.to_string(), text);
                prop_assert!(is_inside(&name.folder()) && !name.folder().contains('/'));
                prop_assert_eq!(Name::of_folder(&name.folder()), Some(name.with_quant(None)));
            }
        }

        #[test]
        fn a_path_inside_stays_inside(path in ".{0,40}") {
            let is_normal = |part| matches!(part, std::path::Component::Normal(_));
            let stays = std::path::Path::new(&path).components().all(is_normal);
            prop_assert!(!is_inside(&path) || stays);
        }
    }
}
