//! The names of texts in the prefix store's files.

use ring::digest::{Context, SHA256};

/// A beginning of a text in the prefix store's files: a hash of its tokens and of who may use it.
/// Every file of the store has such a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u128);

impl FileId {
    /// The empty text of a tenant and a salt. See [`super::CacheScope::root`].
    pub(super) fn root(seed: &[u8; 32], tenant: u128, salt: u64) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(b"corelane scope");
        context.update(seed);
        context.update(&tenant.to_le_bytes());
        context.update(&salt.to_le_bytes());
        Self::of(context)
    }

    /// This text with some tokens behind it.
    #[must_use]
    pub fn with(self, tokens: &[i32]) -> Self {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let mut context = Context::new(&SHA256);
        context.update(&self.0.to_le_bytes());
        context.update(&bytes);
        Self::of(context)
    }

    fn of(context: Context) -> Self {
        let digest = context.finish();
        let (first, _) = digest.as_ref().split_first_chunk().expect("more than 16 bytes");
        Self(u128::from_le_bytes(*first))
    }
}
