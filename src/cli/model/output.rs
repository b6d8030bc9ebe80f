//! Helpers for the output of the commands.

use std::io::Write;

/// Writes to standard output. Ignores that it is closed.
pub fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// A number of bytes in MB or GB.
pub fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
