//! The parts of a request that its response needs.

use super::items::Items;
use super::turn::Turn;

/// The parts of a request that its response repeats, or that are kept with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseFields {
    /// Members of the response's object, as JSON.
    pub echo: Vec<(String, Box<[u8]>)>,
    /// Whether the response is kept.
    pub store: bool,
    /// The input, as items. None if the response is not kept.
    pub items: Items,
    /// The id of the response that this one continues, until its turns are found.
    pub previous: Option<String>,
    /// Whether the messages of the turns before are still to be put into the conversation.
    pub continues: bool,
    /// Messages at the start of the conversation that come from `instructions`. They are not kept.
    pub instructions: usize,
    /// The request's own messages, after the turns before.
    pub turn: Turn,
}

impl ResponseFields {
    /// About the bytes of memory that they take. Turns before count in full: they stay while this
    /// request runs, even if nothing else needs them any longer.
    pub fn bytes(&self) -> usize {
        let echo =
            self.echo.iter().map(|member| size_of_val(member) + member.0.len() + member.1.len());
        size_of::<Self>() + echo.sum::<usize>() + self.items.bytes() + self.turn.size.bytes
    }
}
