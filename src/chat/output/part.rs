//! The parts of an assistant's message.

/// A piece of an assistant's message. The pieces of one kind that follow each other
/// belong together. None is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Text for the user.
    Content(&'a str),
    /// Text that the model thinks with.
    Reasoning(&'a str),
    /// A tool call begins.
    ToolCallBegin {
        /// Its place among the calls of the message, from 0.
        index: usize,
        /// The function called.
        name: &'a str,
    },
    /// More of the arguments of the call that began last.
    ToolCallArguments {
        /// Its place among the calls of the message, from 0.
        index: usize,
        /// JSON text, as the model wrote it; whole only together with all the others.
        delta: &'a str,
    },
}
