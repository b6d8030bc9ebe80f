//! Writes JSON strings.

/// Appends a JSON string.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing a string to memory cannot fail");
}

/// Appends the inside of a JSON string, without its quotes.
pub fn push_string_inside(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    push_string(out, text);
    out.pop();
    out.remove(start);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        let mut out = b"[".to_vec();
        push_string_inside(&mut out, "a\"b\\\n\u{1}é");
        assert_eq!(out, "[a\\\"b\\\\\\n\\u0001é".as_bytes());
    }
}
