//! llama-server's `POST /slots/{id}`: saves the text of a slot in a file, brings it back, or erases it.

use serde::Serialize;

use super::super::error::ApiError;
use super::super::json::read_object;
use super::super::request::read_cache_salt;
use super::super::write::{push_json, rounded};
use crate::limits::SLOT_FILE_NAME_BYTES_MAX;
use crate::types::{SlotAction, SlotId};

/// The file of a request to save or restore a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotFile {
    /// Its name, without a folder.
    pub filename: String,
    /// The salt of the requests that may use the text.
    pub cache_salt: Option<String>,
}

/// Reads the slot in a path, of `slots`, and the `action` in a query.
pub fn read_action(id: &str, query: &str, slots: usize) -> Result<(SlotId, SlotAction), ApiError> {
    let slot = id.parse::<u16>().ok().filter(|slot| usize::from(*slot) < slots);
    let slot = slot.ok_or_else(|| {
        ApiError::field("id_slot", format!("there is no slot {id:?}; they are 0 to {}", slots - 1))
    })?;
    let given = query.split('&').find_map(|pair| pair.strip_prefix("action="));
    let action = match given {
        Some("save") => SlotAction::Save,
        Some("restore") => SlotAction::Restore,
        Some("erase") => SlotAction::Erase,
        Some(other) => {
            let message = format!("action is {other:?}; it must be save, restore or erase");
            return Err(ApiError::field("action", message));
        }
        None => {
            let message = "action is missing; the path ends with ?action=save, ?action=restore or \
                           ?action=erase";
            return Err(ApiError::field("action", message));
        }
    };
    Ok((SlotId(slot), action))
}

/// Reads the body of a request to save or restore a text.
pub fn read_file(body: &mut [u8]) -> Result<SlotFile, ApiError> {
    read_object(body, |fields| {
        let filename = fields.string("filename")?.unwrap_or_default();
        check_name(&filename).map_err(|message| ApiError::field("filename", message))?;
        Ok(SlotFile { filename, cache_salt: read_cache_salt(fields)? })
    })
}

/// Checks that a name stands for a file in the folder itself. As in llama-server, it has no
/// characters that some file system refuses.
fn check_name(name: &str) -> Result<(), String> {
    let refused = ['/', '\\', ':', '*', '?', '"', '<', '>', '|'];
    match name {
        "" => Err("filename is missing; it must be the name of a file, like \"chat.bin\"".into()),
        _ if name.len() > SLOT_FILE_NAME_BYTES_MAX => Err(format!(
            "filename has {} bytes; it may have {SLOT_FILE_NAME_BYTES_MAX}",
            name.len()
        )),
        _ if name.starts_with('.') || name.ends_with(['.', ' ']) => Err(format!(
            "filename is {name:?}; it must not begin with a dot, nor end with a dot or a space"
        )),
        _ => match name.chars().find(|c| c.is_control() || refused.contains(c)) {
            Some(c) => Err(format!(
                "filename is {name:?}; it must be a name without folders, and without {c:?}"
            )),
            None => Ok(()),
        },
    }
}

/// Writes the answer to a task that is done. `done` is the number of tokens and the bytes of the file.
/// It took `ms` milliseconds.
pub fn push_done(
    out: &mut Vec<u8>,
    (slot, action): (SlotId, SlotAction),
    filename: &str,
    done: (usize, u64),
    ms: f64,
) {
    #[derive(Serialize)]
    struct Saved<'a> {
        id_slot: u16,
        filename: &'a str,
        n_saved: usize,
        n_written: u64,
        timings: SaveTimings,
    }
    #[derive(Serialize)]
    struct SaveTimings {
        save_ms: f64,
    }
    #[derive(Serialize)]
    struct Restored<'a> {
        id_slot: u16,
        filename: &'a str,
        n_restored: usize,
        n_read: u64,
        timings: RestoreTimings,
    }
    #[derive(Serialize)]
    struct RestoreTimings {
        restore_ms: f64,
    }
    #[derive(Serialize)]
    struct Erased {
        id_slot: u16,
        n_erased: usize,
    }
    let (id_slot, (tokens, bytes), ms) = (slot.0, done, rounded(ms));
    match action {
        SlotAction::Save => {
            let timings = SaveTimings { save_ms: ms };
            push_json(
                out,
                &Saved { id_slot, filename, n_saved: tokens, n_written: bytes, timings },
            );
        }
        SlotAction::Restore => {
            let timings = RestoreTimings { restore_ms: ms };
            let (n_restored, n_read) = (tokens, bytes);
            push_json(out, &Restored { id_slot, filename, n_restored, n_read, timings });
        }
        SlotAction::Erase => push_json(out, &Erased { id_slot, n_erased: tokens }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_a_file_in_the_folder() {
        for name in ["chat.bin", "a b", "ä-1_2", "a..b"] {
            assert_eq!(check_name(name), Ok(()), "{name:?}");
        }
        let long = "x".repeat(SLOT_FILE_NAME_BYTES_MAX + 1);
        for name in
            ["", ".", "..", ".a", "a.", "a/b", "../a", "/a", "a\\b", "a\0", "a\n", "c:d", &long]
        {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_action_names_a_slot_that_there_is() {
        let read = |id, query| read_action(id, query, 4).map_err(|error| error.message);
        assert_eq!(read("3", "action=save"), Ok((SlotId(3), SlotAction::Save)));
        assert_eq!(read("0", "a=b&action=erase"), Ok((SlotId(0), SlotAction::Erase)));
        assert!(read("4", "action=save").unwrap_err().contains("0 to 3"));
        assert!(read("-1", "action=save").is_err() && read("x", "action=save").is_err());
        assert!(read("0", "").unwrap_err().contains("?action=save"));
        assert!(read("0", "action=load").unwrap_err().contains("\"load\""));
    }

    #[test]
    fn the_body_names_a_file() {
        let read = |body: &str| read_file(&mut body.as_bytes().to_vec());
        assert_eq!(read(r#"{"filename": "a"}"#).unwrap().filename, "a");
        for body in ["{}", r#"{"filename": 1}"#, r#"{"filename": "/etc/passwd"}"#, "[]", ""] {
            assert!(read(body).is_err(), "{body}");
        }
    }
}
