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

/// Bytes of a text in a JSON string, without the quotes.
pub fn bytes_inside(text: &str) -> usize {
    let bytes = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        let mut out = b"[".to_vec();
        push_string_inside(&mut out, "a\"b\\\n\u{1}é");
        assert_eq!(out, "[a\\\"b\\\\\\n\\u0001é".as_bytes());
        let all: String = (0..=0x7f).map(char::from).collect();
        push_string_inside(&mut out, &all);
        assert_eq!(bytes_inside("a\"b\\\n\u{1}é") + bytes_inside(&all), out.len() - 1);
    }
}
