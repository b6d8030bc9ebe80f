//! The parts of an assistant's message.

/// A piece of an assistant's message, never empty. Consecutive pieces of one kind belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Text for the user.
    Content(&'a str),
    /// The model's reasoning.
    Reasoning(&'a str),
    /// A tool call starts.
    ToolCallBegin {
        /// Its index among the message's calls, from 0.
        index: usize,
        /// The function called.
        name: &'a str,
    },
    /// More of the arguments of the last call.
    ToolCallArguments {
        /// Its index among the message's calls, from 0.
        index: usize,
        /// JSON text, as the model wrote it or translated from its own notation; all deltas together
        /// are the whole value.
        delta: &'a str,
    },
}
