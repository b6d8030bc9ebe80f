//! The format of the prefix store's files: one page, or one state.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `corelane` |
//! | 4 | the version of this format |
//! | 4 | 1 for a page, 2 for a state |
//! | 32 | the fingerprint of the model and of the cache's layout |
//! | 16 | the name of the text up to the end of the page |
//! | 16 | the name of the text before the page |
//! | 4 | for a state, the number of tokens before it |
//! | 4 | `n`, the number of the page's tokens |
//! | 8 | `m`, the bytes of the cells or of the state |
//! | 12 | a random nonce |
//! | 4 `n` | the tokens |
//! | 16 | a seal of all of this |
//! | `m` | the cells or the state, as llama.cpp writes them |
//! | 16 | a seal of that, and of the first seal |
//!
//! The file of a slot has one after another: the pages of its text, and the states behind their
//! tokens.
//!
//! Numbers are little-endian. The tokens and the content are encrypted with AES-256-GCM, and a seal
//! is its tag. Without a secret, the key is the fingerprint: then a seal shows damage, and hides
//! nothing. SHA-256 would do for that, but it took three times as long to bring a text back
//! (`perf/runs/intel-xeon/hybrid/2026-11-29-disk.txt`).

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::limits::PAGE_TOKENS_MAX;
use crate::types::{FileId, TokenId};

const MAGIC: &[u8; 8] = b"corelane";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 108;

/// The bytes of a file that tell its length.
pub const FIRST_BYTES: usize = FIXED_BYTES;

const SEAL_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;

/// A hash of what the content of files depends on: the model, and the layout of its cache.
pub type Fingerprint = [u8; 32];

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The text up to the end of the page.
    pub file: FileId,
    /// The text before the page.
    pub parent: FileId,
    /// The tokens before the state; `None` for a page.
    pub state: Option<u32>,
    /// The tokens of the page; none for a state.
    pub tokens: Box<[TokenId]>,
    /// The bytes of the cells or of the state.
    pub content: u64,
}

/// Why a file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It is not of this format, or of another version of it.
    #[error("it is no file of this version's prefix store")]
    Unknown,
    /// It belongs to another model, or to another layout of the cache.
    #[error("it belongs to another model or another layout of the cache")]
    OtherModel,
    /// It has fewer bytes than it should.
    #[error("it is cut off")]
    CutOff,
    /// Its bytes were changed, or it was encrypted with another key.
    #[error("its bytes are not those that were written")]
    Changed,
}

/// How files are sealed.
pub struct Seals {
    fingerprint: Fingerprint,
    key: LessSafeKey,
    random: SystemRandom,
}

impl Seals {
    /// Seals for files of this model, which `key` keeps secret if there is one.
    pub fn new(fingerprint: Fingerprint, key: Option<[u8; 32]>) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &key.unwrap_or(fingerprint));
        let key = LessSafeKey::new(key.expect("AES-256 has keys of 32 bytes"));
        Self { fingerprint, key, random: SystemRandom::new() }
    }

    /// The bytes before the content.
    pub fn head_bytes(tokens: usize) -> usize {
        FIXED_BYTES + 4 * tokens + SEAL_BYTES
    }

    /// The bytes of a whole file.
    pub fn file_bytes(tokens: usize, content: usize) -> usize {
        Self::head_bytes(tokens) + content + SEAL_BYTES
    }

    /// The bytes of a file that begins with these [`FIRST_BYTES`] bytes, and those before its
    /// content. The numbers may be wrong: no seal was checked.
    pub fn lengths(first: &[u8; FIRST_BYTES]) -> (u64, usize) {
        let mut fields = Fields(&first[FIXED_BYTES - NONCE_BYTES - 12..]);
        let (count, content) = (fields.u32(), fields.u64());
        let (count, content) = (count.unwrap_or_default(), content.unwrap_or_default());
        let head = Self::head_bytes((count as usize).min(PAGE_TOKENS_MAX));
        (content.saturating_add((head + SEAL_BYTES) as u64), head)
    }

    /// Writes a file into `to`, whose old content is dropped.
    pub fn write(&self, head: &Head, content: &[u8], to: &mut Vec<u8>) {
        let Head { file, parent, state, tokens, .. } = head;
        to.clear();
        to.extend(MAGIC);
        to.extend(VERSION.to_le_bytes());
        to.extend(if state.is_some() { 2u32 } else { 1 }.to_le_bytes());
        to.extend(self.fingerprint);
        to.extend(file.0.to_le_bytes());
        to.extend(parent.0.to_le_bytes());
        to.extend(state.unwrap_or_default().to_le_bytes());
        to.extend((tokens.len() as u32).to_le_bytes()); // at most PAGE_TOKENS_MAX
        to.extend((content.len() as u64).to_le_bytes());
        let mut nonce = [0; NONCE_BYTES];
        self.random.fill(&mut nonce).expect("the kernel gives random bytes");
        to.extend(nonce);
        to.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
        let seal = self.seal(to, FIXED_BYTES, nonce, &[]);
        to.extend(seal);
        let start = to.len();
        to.extend(content);
        let seal = self.seal(to, start, second(nonce), &seal);
        to.extend(seal);
    }

    /// The seal of `bytes`, those from `start` on encrypted, and of `before`.
    fn seal(
        &self,
        bytes: &mut [u8],
        start: usize,
        nonce: [u8; NONCE_BYTES],
        before: &[u8],
    ) -> [u8; SEAL_BYTES] {
        let (plain, secret) = bytes.split_at_mut(start);
        let plain = if before.is_empty() { &*plain } else { before };
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(plain), secret);
        let tag = tag.expect("a page is shorter than 64 GiB");
        tag.as_ref().try_into().expect("16 bytes")
    }

    /// Reads what stands before the content. `bytes` may end anywhere behind that.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn read_head(&self, bytes: &mut [u8]) -> Result<Head, FormatError> {
        let mut fields = Fields(bytes);
        if fields.take()? != *MAGIC || fields.u32()? != VERSION {
            return Err(FormatError::Unknown);
        }
        let kind = fields.u32()?;
        if fields.take()? != self.fingerprint {
            return Err(FormatError::OtherModel);
        }
        let (file, parent) = (FileId(fields.u128()?), FileId(fields.u128()?));
        let (position, count, content) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let nonce = fields.take()?;
        let state = match kind {
            1 => None,
            2 => Some(position),
            _ => return Err(FormatError::Unknown),
        };
        let count = count as usize;
        if count > PAGE_TOKENS_MAX || (count == 0) != state.is_some() {
            return Err(FormatError::Changed);
        }
        let head = bytes.get_mut(..Self::head_bytes(count)).ok_or(FormatError::CutOff)?;
        let (sealed, seal) = head.split_at_mut(FIXED_BYTES + 4 * count);
        let tokens = self.open(sealed, FIXED_BYTES, nonce, &[], seal)?;
        let token = |bytes: &[u8; 4]| TokenId::from_le_bytes(*bytes);
        let tokens = tokens.as_chunks().0.iter().map(token).collect();
        Ok(Head { file, parent, state, tokens, content })
    }

    /// Reads a whole file: what it holds, and its content, which stands in `bytes`.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn read<'a>(&self, bytes: &'a mut [u8]) -> Result<(Head, &'a [u8]), FormatError> {
        let head = self.read_head(bytes)?;
        let start = Self::head_bytes(head.tokens.len());
        let content = usize::try_from(head.content).map_err(|_| FormatError::CutOff)?;
        let end = start.checked_add(content).ok_or(FormatError::CutOff)?;
        let nonce = Fields(&bytes[FIXED_BYTES - NONCE_BYTES..]).take()?;
        let (before, rest) = bytes.split_at_mut(start);
        let seal = &before[start - SEAL_BYTES..];
        let (sealed, end) = rest.split_at_mut_checked(end - start).ok_or(FormatError::CutOff)?;
        let (last, more) = end.split_at_checked(SEAL_BYTES).ok_or(FormatError::CutOff)?;
        if !more.is_empty() {
            return Err(FormatError::Changed);
        }
        let content = self.open(sealed, 0, second(nonce), seal, last)?;
        Ok((head, content))
    }

    /// Checks the seal of `bytes` and of `before`, and decrypts those from `start` on.
    fn open<'a>(
        &self,
        bytes: &'a mut [u8],
        start: usize,
        nonce: [u8; NONCE_BYTES],
        before: &[u8],
        seal: &[u8],
    ) -> Result<&'a [u8], FormatError> {
        let (plain, secret) = bytes.split_at_mut(start);
        let plain = if before.is_empty() { &*plain } else { before };
        let tag = seal.try_into().expect("16 bytes");
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.key.open_in_place_separate_tag(nonce, Aad::from(plain), tag, secret, 0..);
        opened.map(|secret| &*secret).map_err(|_| FormatError::Changed)
    }
}

/// The nonce of a file's content. It differs from that of its tokens.
fn second(mut nonce: [u8; NONCE_BYTES]) -> [u8; NONCE_BYTES] {
    nonce[0] ^= 1;
    nonce
}

/// The numbers at the beginning of a file, one after another.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(FormatError::CutOff)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32, FormatError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, FormatError> {
        self.take().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Result<u128, FormatError> {
        self.take().map(u128::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seals(key: Option<u8>) -> Seals {
        Seals::new([7; 32], key.map(|byte| [byte; 32]))
    }

    fn page() -> Head {
        let (file, parent) = (FileId(1 << 100), FileId(3));
        Head { file, parent, state: None, tokens: [5, -6, 70_000].into(), content: 6 }
    }

    fn written(head: &Head, key: Option<u8>) -> Vec<u8> {
        let mut bytes = vec![9; 3];
        seals(key).write(head, b"abcdef", &mut bytes);
        bytes
    }

    #[test]
    fn what_is_written_is_read_again() {
        let state = Head { state: Some(70), tokens: Box::default(), ..page() };
        for (head, key) in
            [(page(), None), (page(), Some(1)), (state.clone(), None), (state, Some(1))]
        {
            let mut bytes = written(&head, key);
            assert_eq!(bytes.len(), Seals::file_bytes(head.tokens.len(), 6));
            let first = &mut bytes.clone()[..Seals::head_bytes(head.tokens.len())];
            assert_eq!(seals(key).read_head(first), Ok(head.clone()));
            assert_eq!(seals(key).read(&mut bytes), Ok((head, &b"abcdef"[..])));
        }
    }

    #[test]
    fn an_encrypted_file_shows_neither_tokens_nor_content() {
        let has = |key, part: &[u8]| written(&page(), key).windows(part.len()).any(|w| w == part);
        assert!(has(Some(1), b"corelane"));
        assert!(!has(Some(1), b"abcdef") && !has(Some(1), &70_000i32.to_le_bytes()));
        assert_ne!(written(&page(), Some(1)), written(&page(), Some(1)), "other nonces");
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        for key in [None, Some(1)] {
            let whole = written(&page(), key);
            for bit in 0..8 * whole.len() {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(seals(key).read(&mut bytes).is_err(), "bit {bit}");
            }
            for length in 0..whole.len() {
                assert!(seals(key).read(&mut whole[..length].to_vec()).is_err(), "{length} bytes");
            }
        }
    }

    #[test]
    fn the_error_says_what_is_wrong() {
        let error = |bytes: &[u8], seals: &Seals| seals.read(&mut bytes.to_vec()).unwrap_err();
        let plain = written(&page(), None);
        let other = Seals::new([8; 32], None);
        assert_eq!(error(&plain, &other), FormatError::OtherModel);
        assert_eq!(error(&plain, &seals(Some(1))), FormatError::Changed);
        assert_eq!(error(&written(&page(), Some(1)), &seals(None)), FormatError::Changed);
        assert_eq!(error(&written(&page(), Some(1)), &seals(Some(2))), FormatError::Changed);
        assert_eq!(error(&plain[..plain.len() - 1], &seals(None)), FormatError::CutOff);
        assert_eq!(error(b"corelane", &seals(None)), FormatError::CutOff);
        let newer = [&plain[..8], &2u32.to_le_bytes(), &plain[12..]].concat();
        assert_eq!(error(&newer, &seals(None)), FormatError::Unknown);
    }
}
