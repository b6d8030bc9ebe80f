//! The hub and the cache, from the environment variables that huggingface_hub reads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::{HeaderValue, Uri};

use super::error::HubError;

/// Time for a hub's answer.
const HUB_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for the hub's answer if the model is in the cache. It is short, because the server's start
/// waits for it.
const HUB_ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest silence in the middle of a file. Then the connection counts as broken.
const HUB_SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time before the second try. It doubles for each further try.
const HUB_FIRST_DELAY: Duration = Duration::from_secs(1);

/// A hub, and the folder for its models.
#[derive(Clone)]
pub struct Hub {
    /// Its address, without a slash at its end.
    pub endpoint: String,
    /// The secret of the user's account there.
    pub token: Option<String>,
    /// The folder of the cache.
    pub cache: PathBuf,
    /// True if the hub must not be asked.
    pub offline: bool,
    /// The timeouts.
    pub patience: Patience,
}

/// The timeouts of a hub.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The time for an answer, if the model is in the cache.
    pub ask: Duration,
    /// The time for an answer, if the model is not in the cache.
    pub answer: Duration,
    /// The longest silence in the middle of a file.
    pub silence: Duration,
    /// The time before the second try.
    pub first_delay: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            ask: HUB_ASK_TIMEOUT,
            answer: HUB_ANSWER_TIMEOUT,
            silence: HUB_SILENCE_TIMEOUT,
            first_delay: HUB_FIRST_DELAY,
        }
    }
}

impl Hub {
    /// The hub that the variables name. `token` and `offline` are the user's flags.
    ///
    /// # Errors
    /// If a variable is invalid, or no folder for the cache is known.
    pub fn new(
        variable: impl Fn(&str) -> Option<String>,
        token: Option<&str>,
        offline: bool,
    ) -> Result<Self, HubError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let endpoint = variable("HF_ENDPOINT").unwrap_or("https://huggingface.co".into());
        // Checked before the URL is parsed, because a malformed URL may contain a password, too.
        if endpoint.contains('@') {
            return Err(HubError::EndpointSecret);
        }
        let uri = endpoint.parse::<Uri>().ok();
        let is_good = |uri: &Uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
                && uri.query().is_none()
        };
        if !uri.as_ref().is_some_and(is_good) {
            return Err(HubError::Endpoint(endpoint));
        }
        let home = home(&variable)?;
        let cache = folder(&variable, "HF_HUB_CACHE")?;
        let cache = cache.or(folder(&variable, "HUGGINGFACE_HUB_CACHE")?);
        let offline = offline || variable("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value));
        Ok(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: find_token(&variable, token, &home)?,
            cache: cache.unwrap_or_else(|| home.join("hub")),
            offline,
            patience: Patience::default(),
        })
    }
}

/// The folder that all tools for the hub share.
fn home(variable: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, HubError> {
    if let Some(home) = folder(variable, "HF_HOME")? {
        return Ok(home);
    }
    let cache = folder(variable, "XDG_CACHE_HOME")?;
    let cache = cache.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")));
    cache.map(|cache| cache.join("huggingface")).ok_or(HubError::NoHome)
}

/// The path in a variable. A `~` at its beginning is replaced by `HOME`, in case no shell has done
/// so.
fn folder(
    variable: &impl Fn(&str) -> Option<String>,
    name: &str,
) -> Result<Option<PathBuf>, HubError> {
    let Some(path) = variable(name) else { return Ok(None) };
    let below_home = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
        _ => return Ok(Some(path.into())),
    };
    let home = variable("HOME").ok_or(HubError::NoHome)?;
    Ok(Some(PathBuf::from(home).join(below_home)))
}

/// The token of the flag, of the variable, or of the file that `hf auth login` writes.
fn find_token(
    variable: &impl Fn(&str) -> Option<String>,
    flag: Option<&str>,
    home: &Path,
) -> Result<Option<String>, HubError> {
    let file = folder(variable, "HF_TOKEN_PATH")?.unwrap_or_else(|| home.join("token"));
    let token = flag.map(str::to_owned).or_else(|| variable("HF_TOKEN"));
    let token = token.or_else(|| std::fs::read_to_string(&file).ok()); // most users have none
    let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
    match token {
        Some(token) if HeaderValue::try_from(&token).is_err() => Err(HubError::Token(file)),
        token => Ok(token),
    }
}

/// Reads a switch as huggingface_hub does.
fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&value.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(variables: &[(&str, &str)]) -> Result<Hub, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Hub::new(variable, None, false).map_err(|error| error.to_string())
    }

    #[test]
    fn the_cache_is_where_other_tools_have_it() {
        let folder = |variables: &[_]| hub(variables).unwrap().cache.display().to_string();
        let home = ("HOME", "/h");
        assert_eq!(folder(&[home]), "/h/.cache/huggingface/hub");
        assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "/x")]), "/x/huggingface/hub");
        let all = [home, ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")];
        assert_eq!(folder(&all[..3]), "/f/hub");
        assert_eq!(folder(&all), "/c");
        assert_eq!(folder(&[home, ("HF_HOME", "")]), "/h/.cache/huggingface/hub", "empty is unset");
        assert!(hub(&[]).err().unwrap().contains("HF_HOME can name one"));
    }

    #[test]
    fn a_tilde_is_the_home() {
        let home = std::env::temp_dir().join(format!("corelane-tilde-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("secret"), "of-file").unwrap();
        let variable = ("HOME", home.to_str().unwrap());
        let cache = |name, path| hub(&[variable, (name, path)]).unwrap().cache;
        assert_eq!(cache("HF_HOME", "~/x"), home.join("x/hub"));
        assert_eq!(cache("HF_HOME", "~"), home.join("hub"));
        assert_eq!(cache("HF_HUB_CACHE", "~//x"), home.join("x"));
        assert_eq!(cache("XDG_CACHE_HOME", "~/x"), home.join("x/huggingface/hub"));
        assert_eq!(cache("HF_HUB_CACHE", "/a/~/b"), Path::new("/a/~/b"));
        assert_eq!(cache("HF_HUB_CACHE", "~a/b"), Path::new("~a/b"), "another user's");
        let with_token = hub(&[variable, ("HF_TOKEN_PATH", "~/secret")]).unwrap();
        assert_eq!(with_token.token.as_deref(), Some("of-file"));
        assert!(hub(&[("HF_HOME", "~/x")]).err().unwrap().contains("HOME is not set"));
        std::fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn the_endpoint_is_an_address() {
        let endpoint = |value| hub(&[("HOME", "/h"), ("HF_ENDPOINT", value)]);
        assert_eq!(hub(&[("HOME", "/h")]).unwrap().endpoint, "https://huggingface.co");
        assert_eq!(endpoint("http://mirror:8080/hf/").unwrap().endpoint, "http://mirror:8080/hf");
        for wrong in ["mirror", "ftp://mirror", "https://", "http://a b", "http://a?b"] {
            let error = endpoint(wrong).err().unwrap();
            assert!(error.contains("http:// or https://"), "{wrong}: {error}");
        }
        for secret in [
            "https://me:s3cret@mirror",
            "https://me:s3/cret@mirror/hf",
            "me:s3cret@mirror",
            "ftp://me:s3cret@mirror?a",
            "https://mirror?token=s3cret",
        ] {
            let error = endpoint(secret).err().unwrap();
            assert!(error.starts_with("HF_ENDPOINT ") && !error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn the_token_is_the_flags_the_variables_or_the_files() {
        let home = std::env::temp_dir().join(format!("corelane-token-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("token"), "of-file\n").unwrap();
        let path = home.to_str().unwrap();
        let hf_home = ("HF_HOME", path);
        assert_eq!(hub(&[hf_home]).unwrap().token.as_deref(), Some("of-file"));
        let variable = hub(&[hf_home, ("HF_TOKEN", " of-variable ")]).unwrap();
        assert_eq!(variable.token.as_deref(), Some("of-variable"));
        let of = |name: &str| (name == "HF_HOME").then(|| path.to_owned());
        let flag = Hub::new(of, Some("of-flag"), false).unwrap();
        assert_eq!(flag.token.as_deref(), Some("of-flag"));
        let error = hub(&[hf_home, ("HF_TOKEN", "a\nb")]).err().unwrap();
        assert!(error.contains("HF_TOKEN") && !error.contains("a\nb"), "{error}");
        std::fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn offline_is_a_switch() {
        let offline = |value| hub(&[("HOME", "/h"), ("HF_HUB_OFFLINE", value)]).unwrap().offline;
        assert!(["1", "ON", "yes", "True"].into_iter().all(offline));
        assert!(!["0", "", "false", "no"].into_iter().any(offline));
    }
}
