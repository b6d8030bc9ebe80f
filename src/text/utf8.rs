//! Bytes to whole characters.

/// Holds back the bytes of a character until it is whole. Bytes that can never
/// become one are replaced by U+FFFD, as the Unicode standard (chapter 3.9,
/// "maximal subparts") and `String::from_utf8_lossy` do it.
#[derive(Debug, Default)]
pub struct Utf8Holder {
    /// The beginning of a character: at most 3 bytes.
    partial: heapless::Vec<u8, 4>,
}

impl Utf8Holder {
    /// Appends to `out` every character that `bytes` completes.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut String) {
        // Complete the partial character byte by byte: there are at most 3.
        while !self.partial.is_empty() {
            let Some((first, rest)) = bytes.split_first() else { return };
            self.partial.push(*first).expect("a character has at most 4 bytes");
            match std::str::from_utf8(&self.partial) {
                Ok(text) => {
                    out.push_str(text);
                    self.partial.clear();
                    bytes = rest;
                }
                // Still only a beginning.
                Err(error) if error.error_len().is_none() => bytes = rest,
                // This byte does not continue it: what came before is lost,
                // and the byte is looked at again on its own.
                Err(_) => {
                    out.push(char::REPLACEMENT_CHARACTER);
                    self.partial.clear();
                }
            }
        }
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            out.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            let unfinished = chunks.peek().is_none()
                && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if unfinished {
                self.partial.extend_from_slice(invalid).expect("a beginning has at most 3 bytes");
            } else {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    /// The text ends: an unfinished character becomes U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if !self.partial.is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
            self.partial.clear();
        }
    }
}
