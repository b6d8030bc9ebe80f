//! Decodes bytes into whole characters.

/// Holds back the bytes of a character until it is complete. Invalid bytes become U+FFFD, as in the
/// Unicode standard (chapter 3.9, "maximal subparts") and in `String::from_utf8_lossy`.
#[derive(Debug, Default)]
pub struct Utf8Holder {
    /// The start of a character, at most 3 bytes.
    partial: heapless::Vec<u8, 4>,
}

impl Utf8Holder {
    /// Appends every character that `bytes` completes to `out`.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut String) {
        // Complete the partial character byte by byte; it has at most 3 bytes.
        while !self.partial.is_empty() {
            let Some((first, rest)) = bytes.split_first() else { return };
            self.partial.push(*first).expect("a character has at most 4 bytes");
            match std::str::from_utf8(&self.partial) {
                Ok(text) => {
                    out.push_str(text);
                    self.partial.clear();
                    bytes = rest;
                }
                // Still incomplete.
                Err(error) if error.error_len().is_none() => bytes = rest,
                // This byte does not continue the character. Replace the partial character, and
                // read the byte again on its own.
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

    /// Ends the text: an incomplete character becomes U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if !self.partial.is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
            self.partial.clear();
        }
    }
}
