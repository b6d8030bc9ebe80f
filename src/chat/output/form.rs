//! The rows of the table of syntaxes: how a family writes calls.

use super::literal::GEMMA_QUOTE;
use super::tags::Tags;

/// How a family writes a call's name and arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The arguments are JSON.
    Json,
    /// Each argument stands between tags.
    Tagged(&'static Tags),
    /// `name{key:value}`, with strings in quotes of Gemma 4.
    Gemma,
    /// `name(key=value)`, as in Python.
    Python,
}

impl Form {
    /// The texts of the form itself, beside those of a row.
    pub fn texts(self) -> Vec<&'static str> {
        match self {
            Self::Json | Self::Python => Vec::new(),
            Self::Tagged(tags) => tags.texts(),
            Self::Gemma => vec![GEMMA_QUOTE],
        }
    }
}

/// A row of the table. The parser accepts more forms than the grammar, because models deviate from
/// their own form.
#[derive(Debug)]
pub(super) struct Syntax {
    /// The markers that start calls. Calls are written with the first one.
    pub open: &'static [&'static str],
    /// Words that may follow the marker and are not part of the call.
    pub prefix: &'static [&'static str],
    /// Separators between a name outside JSON and the arguments. Empty if calls are objects.
    pub separators: &'static [&'static str],
    /// Whether `:` and a number follow a name outside JSON.
    pub has_index: bool,
    /// Markers that may follow a call.
    pub close: &'static [&'static str],
    /// Markers that are never content.
    pub noise: &'static [&'static str],
    /// Whether an object at the start of the answer is a call, even without a marker.
    pub bare: bool,
    /// How calls are written between these markers.
    pub form: Form,
    /// The marker in `open` that stands directly before a name, if models sometimes leave out the
    /// markers before it.
    pub short_open: Option<&'static str>,

    /// The text between the marker and the first name.
    pub begin: &'static str,
    /// The text between a name and its arguments.
    pub infix: &'static str,
    /// The text between the arguments of a call and the next name. Empty if an answer has one call
    /// only.
    pub between: &'static str,
    /// The text after the last arguments.
    pub end: &'static str,
}

/// Texts that are one token in the vocabularies of some families, within markers.
pub(super) const INNER_TOKENS: &[&str] = &["｜DSML｜"];
