//! Chooses the files of a repository for a model's name, by llama.cpp's rules.

use super::error::HubError;
use super::name::Wanted;

/// The quants that are taken if the user names none, the first choice first.
pub(super) const DEFAULT_QUANTS: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// Parts of the names of files that accompany a model: encoders of images, statistics, drafts.
const BESIDE: [&str; 6] = ["mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"];

/// Most names in an error, so that it stays readable.
const SHOWN_MAX: usize = 20;

/// One file of a model that consists of several files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard<'a> {
    /// The path up to `-00001-of-00003.gguf`.
    pub prefix: &'a str,
    /// The number of the file, from 1.
    pub number: u32,
    /// The number of files of the model.
    pub count: u32,
}

/// The files of the model, the first shard first.
///
/// # Errors
/// If no file fits, or if shards are missing. The error names the files or quants that the
/// repository has.
pub(super) fn choose<'a>(paths: &[&'a str], wanted: &Wanted) -> Result<Vec<&'a str>, HubError> {
    let repo = wanted.name.repo();
    if let Some(file) = &wanted.file {
        let found = paths.iter().find(|path| *path == file);
        let no_file =
            || HubError::NoFile { repo: repo.clone(), file: file.clone(), found: ggufs(paths) };
        return whole(paths, found.ok_or_else(no_file)?, repo);
    }
    let firsts = || {
        let is_first = |path: &&&str| shard(path).is_none_or(|shard| shard.number == 1);
        paths.iter().filter(|path| is_model(path)).filter(is_first)
    };
    let of = |quant: &str| {
        let exact = firsts().find(|path| is_quant(path, quant));
        exact.or_else(|| firsts().find(|path| mentions(path, quant)))
    };
    let found = match &wanted.name.quant {
        Some(quant) => of(quant),
        None => DEFAULT_QUANTS.into_iter().find_map(of).or_else(|| firsts().next()),
    };
    match (found, &wanted.name.quant) {
        (Some(path), _) => whole(paths, path, repo),
        (None, Some(quant)) if firsts().next().is_some() => {
            let mut known: Vec<String> =
                firsts().map(|path| quant_of(path).unwrap_or_else(|| (*path).to_owned())).collect();
            known.dedup();
            Err(HubError::NoQuant { repo, quant: quant.clone(), found: list(&known) })
        }
        (None, _) => Err(HubError::NoGguf { repo, found: list(paths) }),
    }
}

/// Whether this file is the first choice for `wanted`, whatever other files the repository has.
pub(super) fn is_first_choice(path: &str, wanted: &Wanted) -> bool {
    let quant = DEFAULT_QUANTS[0];
    let is_named = wanted.file.is_some() || wanted.name.quant.is_some();
    is_named || is_quant(path, quant) || mentions(path, quant)
}

/// All files of the model that this one belongs to.
fn whole<'a>(paths: &[&'a str], path: &'a str, repo: String) -> Result<Vec<&'a str>, HubError> {
    let Some(Shard { prefix, count, .. }) = shard(path) else { return Ok(vec![path]) };
    let of_model = |path: &&str| {
        let shard = shard(path).filter(|shard| shard.prefix == prefix && shard.count == count);
        shard.map(|shard| shard.number)
    };
    let mut files: Vec<(u32, &str)> =
        paths.iter().filter_map(|path| Some((of_model(path)?, *path))).collect();
    files.sort_unstable();
    files.dedup();
    if files.len() == count as usize {
        return Ok(files.into_iter().map(|(_, path)| path).collect());
    }
    Err(HubError::Shards { repo, file: path.into(), found: files.len(), count: count as usize })
}

/// The prefix and the number of a shard; `None` if the file is a whole model.
pub(super) fn shard(path: &str) -> Option<Shard<'_>> {
    let (rest, count) = path.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (prefix, number) = rest.rsplit_once('-')?;
    let read = |digits: &str| (digits.len() == 5).then(|| digits.parse().ok()).flatten();
    let (number, count): (u32, u32) = (read(number)?, read(count)?);
    (1..=count).contains(&number).then_some(Shard { prefix, number, count })
}

/// Whether this is the GGUF file of a model. Files that accompany a model ([`BESIDE`]) are not.
pub(super) fn is_model(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    file.ends_with(".gguf") && !BESIDE.iter().any(|part| file.contains(part))
}

/// The quant in a file's name, in capitals: `Q4_K_M`, `UD-IQ2_XXS`, `BF16`.
pub(super) fn quant_of(path: &str) -> Option<String> {
    let stem = shard(path).map_or(path.strip_suffix(".gguf")?, |shard| shard.prefix);
    let file = stem.rsplit('/').next().unwrap_or_default().to_ascii_uppercase();
    let (before, last) = file.rsplit_once(['-', '.']).unwrap_or(("", &file));
    let digits = ["IQ", "TQ", "Q", "BF", "MXFP", "NVFP", "F"]
        .iter()
        .find_map(|kind| last.strip_prefix(kind))?;
    let is_word = last.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || !is_word {
        return None;
    }
    let is_dynamic = before.ends_with("-UD") || before == "UD";
    Some(if is_dynamic { format!("UD-{last}") } else { last.to_owned() })
}

/// Whether the quant of a file is this one.
pub(super) fn is_quant(path: &str, quant: &str) -> bool {
    quant_of(path).is_some_and(|known| known.eq_ignore_ascii_case(quant))
}

/// Whether a path contains this word, for file names that do not end with a quant.
fn mentions(path: &str, word: &str) -> bool {
    let (path, word) = (path.to_ascii_lowercase(), word.to_ascii_lowercase());
    path.match_indices(&word).any(|(at, _)| {
        let before = path[..at].chars().next_back();
        let after = path[at + word.len()..].chars().next();
        !before.is_some_and(|c| c.is_ascii_alphanumeric()) && matches!(after, Some('.' | '-' | '/'))
    })
}

fn ggufs(paths: &[&str]) -> String {
    let ggufs: Vec<&str> = paths.iter().filter(|path| path.ends_with(".gguf")).copied().collect();
    list(&ggufs)
}

fn list(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = names.iter().take(SHOWN_MAX).map(AsRef::as_ref).collect();
    match names.len() {
        0 => "none".into(),
        count if count > SHOWN_MAX => {
            format!("{} and {} more", shown.join(", "), count - SHOWN_MAX)
        }
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 9] = [
        "README.md",
        "m-BF16.gguf",
        "m-IQ4_NL.gguf",
        "m-Q8_0.gguf",
        "m-UD-Q4_K_M.gguf",
        "m-q4_k_m.gguf",
        "mmproj-m-f16.gguf",
        "F32/m-F32-00002-of-00002.gguf",
        "F32/m-F32-00001-of-00002.gguf",
    ];

    fn chosen(paths: &[&str], name: &str, file: Option<&str>) -> Result<String, String> {
        let wanted = Wanted { name: name.parse().unwrap(), file: file.map(str::to_owned) };
        choose(paths, &wanted).map(|files| files.join(" ")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_is_q4_k_m_then_q8_0_then_the_first() {
        assert_eq!(chosen(&PATHS, "a/b", None).unwrap(), "m-q4_k_m.gguf");
        assert_eq!(chosen(&PATHS[..4], "a/b", None).unwrap(), "m-Q8_0.gguf");
        assert_eq!(chosen(&PATHS[..3], "a/b", None).unwrap(), "m-BF16.gguf");
        assert_eq!(chosen(&["mmproj.gguf", "z.gguf"], "a/b", None).unwrap(), "z.gguf");
    }

    #[test]
    fn a_quant_is_found_in_any_case() {
        let of = |quant: &str| chosen(&PATHS, &format!("a/b:{quant}"), None);
        assert_eq!(of("q8_0").unwrap(), "m-Q8_0.gguf");
        assert_eq!(of("ud-q4_k_m").unwrap(), "m-UD-Q4_K_M.gguf");
        let shards = "F32/m-F32-00001-of-00002.gguf F32/m-F32-00002-of-00002.gguf";
        assert_eq!(of("f32").unwrap(), shards);
        // BF16 does not count as F16, and the encoder of images is no model.
        let error = of("F16").unwrap_err();
        assert_eq!(
            error,
            "a/b has no file for \"F16\"; it has BF16, IQ4_NL, Q8_0, UD-Q4_K_M, Q4_K_M, F32"
        );
        assert_eq!(chosen(&["q5/m.gguf"], "a/b:Q5", None).unwrap(), "q5/m.gguf");
    }

    #[test]
    fn a_file_is_taken_by_its_path_with_its_shards() {
        let of = |file: &str| chosen(&PATHS, "a/b:Q8_0", Some(file));
        assert_eq!(of("m-BF16.gguf").unwrap(), "m-BF16.gguf");
        assert!(of("F32/m-F32-00002-of-00002.gguf").unwrap().starts_with("F32/m-F32-00001"));
        let error = of("m-Q2_K.gguf").unwrap_err();
        assert!(
            error.contains("no file \"m-Q2_K.gguf\"") && error.contains("m-BF16.gguf"),
            "{error}"
        );
        let error = chosen(&PATHS[..8], "a/b", Some(PATHS[7])).unwrap_err();
        assert!(error.contains("1 of the 2 files"), "{error}");
    }

    #[test]
    fn a_repository_without_a_model_says_what_it_has() {
        let error = chosen(&["config.json", "model.safetensors"], "a/b", None).unwrap_err();
        assert!(error.contains("no GGUF file of a model; it has config.json, model.s"), "{error}");
        assert!(chosen(&[], "a/b:Q4_0", None).unwrap_err().ends_with("it has none"));
        let many: Vec<String> = (0..50).map(|n| format!("{n}.bin")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(chosen(&many, "a/b", None).unwrap_err().ends_with("and 30 more"));
    }

    #[test]
    fn quants_are_read_from_names() {
        for (path, quant) in [
            ("a/b/Qwen3-0.6B-Q4_K_M.gguf", Some("Q4_K_M")),
            ("gpt-oss-20b-mxfp4.gguf", Some("MXFP4")),
            ("model.f16.gguf", Some("F16")),
            ("m-UD-IQ2_XXS-00001-of-00003.gguf", Some("UD-IQ2_XXS")),
            ("Qwen3.gguf", None),
            ("gemma-3-1b-it.gguf", None),
            ("m-00001-of-00002.gguf", None),
            ("Q4_0.bin", None),
        ] {
            assert_eq!(quant_of(path).as_deref(), quant, "{path}");
        }
        for wrong in ["m-00003-of-00002.gguf", "m-0001-of-0002.gguf", "m-00000-of-00001.gguf"] {
            assert_eq!(shard(wrong), None, "{wrong}");
        }
    }
}
