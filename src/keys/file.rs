//! Reads a key file. Each line has a plain key, or `key NAME:SECRET[:WEIGHT[:PRIORITY]]`.
//!
//! Errors name lines and never show a secret.

use super::key::ApiKey;
use crate::limits::{KEY_BYTES_MAX, KEY_FILE_BYTES_MAX, KEYS_MAX};

/// A key, and where it was given: `line 3`.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// The key.
    pub key: ApiKey,
    /// Where it was given.
    pub place: String,
}

/// Reads the content of a key file. Blanks around a line, empty lines, lines that begin with `#`
/// and a byte order mark are skipped.
///
/// # Errors
/// A sentence, if there is no key, if there are too many, if two are equal, or if a line is not a
/// key.
pub fn read_file(content: &[u8]) -> Result<Vec<Given>, String> {
    if content.len() > KEY_FILE_BYTES_MAX {
        return Err(format!("it has more than {KEY_FILE_BYTES_MAX} bytes"));
    }
    let content = content.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(content);
    let mut given = Vec::new();
    for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let place = format!("line {}", index + 1);
        let key = read_line(line).map_err(|error| format!("{place}: {error}"))?;
        given.push(Given { key, place });
    }
    match given.len() {
        // An empty file must not open the server to clients without a key.
        0 => Err("it has no API key; it must have one in each line".into()),
        1..=KEYS_MAX => distinct(given),
        many => Err(format!("it has {many} keys; there may be {KEYS_MAX}")),
    }
}

fn read_line(line: &[u8]) -> Result<ApiKey, String> {
    if line.len() > KEY_BYTES_MAX {
        return Err(format!("it has {} bytes; a key may have {KEY_BYTES_MAX}", line.len()));
    }
    let begins = |rest: &&[u8]| rest.first().is_none_or(u8::is_ascii_whitespace);
    let named = line.strip_prefix(b"key").filter(begins);
    let text = named.unwrap_or(line).trim_ascii();
    if !text.iter().all(u8::is_ascii_graphic) {
        return Err("a key has visible ASCII characters alone, and no blanks".into());
    }
    let text = std::str::from_utf8(text).expect("it is ASCII");
    match named {
        Some(_) => text.parse(),
        None => Ok(ApiKey::plain(text)),
    }
}

/// Checks that no two keys have a secret or a name in common.
///
/// # Errors
/// A sentence with both places.
pub fn distinct(given: Vec<Given>) -> Result<Vec<Given>, String> {
    for (index, later) in given.iter().enumerate() {
        for earlier in &given[..index] {
            let (one, other) = (&earlier.key, &later.key);
            let what = if one.secret == other.secret {
                "secret"
            } else if one.name.is_some() && one.name == other.name {
                "name"
            } else {
                continue;
            };
            let (earlier, later) = (&earlier.place, &later.place);
            return Err(format!("{earlier} and {later} have the same {what}"));
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_key_whatever_editor_wrote_it() {
        let content = b"\xEF\xBB\xBF# of an editor\r\nalpha\r\n\n  beta:1  \r\nkey \tcarol:s:2:-3";
        let given = read_file(content).unwrap();
        let carol = ApiKey {
            name: Some("carol".into()),
            secret: "s".into(),
            weight: 2.0,
            priority_min: -3,
        };
        let expected = [
            (ApiKey::plain("alpha"), "line 2"),
            (ApiKey::plain("beta:1"), "line 4"),
            (carol, "line 5"),
        ];
        assert_eq!(given, expected.map(|(key, place)| Given { key, place: place.into() }));
    }

    #[test]
    fn what_is_no_list_of_keys_is_refused_without_a_secret() {
        let long = vec![b'Q'; KEY_BYTES_MAX + 1];
        let many: String = (0..=KEYS_MAX).map(|number| format!("Q{number}\n")).collect();
        let large = vec![b'\n'; KEY_FILE_BYTES_MAX + 1];
        for (content, why) in [
            (&b""[..], "it has no API key"),
            (b" \r\n# Q3\n\n", "it has no API key"),
            (b"Q1\n\0\0\0", "line 2: a key has visible ASCII characters alone"),
            (b"Q1\nQ 2\n", "line 2: a key has"),
            (b"Q1\nQ\xFF\xFE\n", "line 2: a key has"),
            (b"\xFF\xFEQ\0", "line 1: a key has"),
            (b"Q1\rQ2", "line 1: a key has"),
            ("Q\u{feff}".as_bytes(), "line 1: a key has"),
            (b"key \n", "line 1: it must be NAME:SECRET"),
            (b"Q1\nkey alice:", "line 2: it must be NAME:SECRET"),
            (b"key Q:Q:0", "line 1: the weight must be"),
            (b"Q1\nQ2\n\nQ1\n", "line 1 and line 4 have the same secret"),
            (b"Q1\nkey a:Q1\n", "line 1 and line 2 have the same secret"),
            (b"key a:Q1\nkey a:Q2\n", "line 1 and line 2 have the same name"),
            (&long, "line 1: it has 4097 bytes; a key may have 4096"),
            (many.as_bytes(), "it has 257 keys; there may be 256"),
            (&large, "it has more than 2097152 bytes"),
        ] {
            let error = read_file(content).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
            assert!(!error.contains('Q'), "{error}");
        }
    }
}
