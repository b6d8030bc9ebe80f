//! Helpers for the output of the commands.

use std::io::Write;

use corelane::types::printable::{printable, printable_json};

/// Writes to standard output text that may have names from files in it. Ignores that it is closed.
pub fn print(text: &str) {
    let _ = std::io::stdout().write_all(printable(text).as_bytes());
}

/// Writes JSON to standard output. Ignores that it is closed.
pub fn print_json(json: &serde_json::Value) {
    let _ = std::io::stdout().write_all(printable_json(&format!("{json:#}\n")).as_bytes());
}

/// A number of bytes in MB or GB.
pub fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
