//! A hub's list of a repository's files, and names of models.
#![no_main]

use corelane::hub::{Name, read_listing};
use corelane::limits::HUB_FILES_MAX;

corelane_fuzz::target!(|bytes: &[u8]| {
    match read_listing(bytes) {
        Ok(files) => assert!(files <= HUB_FILES_MAX),
        Err(why) => assert!(!why.is_empty()),
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Name>() {
        Ok(name) => assert_eq!(name.to_string(), text),
        Err(error) => assert!(error.to_string().contains("OWNER/REPO")),
    }
});
