//! The progress of a reader in a text that is still growing.

/// The result of reading a part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This number of bytes was read; 0 if only the state has changed.
    Taken(usize),
    /// More text must come first.
    More,
    /// This number of bytes was read, and the last of them ends the arguments.
    End(usize),
    /// The text goes on in a way that no arguments do. It was not read.
    Broken,
}
