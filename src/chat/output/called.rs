//! A call as it was read: its name, and the place of its arguments.

use std::ops::Range;

use super::literal::Bracket;
use super::tags::Tags;

/// A call up to its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub name: String,
    pub arguments: Arguments,
    /// Whether it is the first call of a JSON array.
    pub in_list: bool,
    /// The number of bytes read.
    pub end: usize,
}

/// The place of a call's arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arguments {
    /// They start at `end`; more of the call's object follows them.
    InObject,
    /// They start at `end`; nothing follows them.
    Alone,
    /// They came before the name. The call has been read to the end of its object.
    Before(Range<usize>),
    /// The call has no arguments, and has been read to the end of its object.
    Absent,
    /// They start at `end`, between tags.
    Tagged(&'static Tags),
    /// They start at `end`, after this bracket, in another notation than JSON.
    Literal(Bracket),
}
