//! Test helpers: writes tool calls as models do, and collects the parser's parts.

use super::syntax::ToolSyntax;
use super::{Parser, ParserOptions, Part};
use crate::limits::TOOL_HEAD_BYTES_MAX;

/// A part of a message, joined from its pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    Content(String),
    Reasoning(String),
    /// A name and arguments.
    Call(String, String),
}

impl Whole {
    pub fn content(text: &str) -> Self {
        Self::Content(text.to_owned())
    }

    pub fn reasoning(text: &str) -> Self {
        Self::Reasoning(text.to_owned())
    }

    pub fn call(name: &str, arguments: &str) -> Self {
        Self::Call(name.to_owned(), arguments.to_owned())
    }
}

/// Writes calls in the family's form, with the marker.
pub(super) fn written(syntax: ToolSyntax, calls: &[(&str, &str)]) -> String {
    let row = syntax.row();
    let open = if row.bare { "" } else { row.open[0] };
    let call = |(name, arguments): &(&str, &str)| format!("{name}{}{arguments}", row.infix);
    let calls: Vec<String> = calls.iter().map(call).collect();
    format!("{open}{}{}{}", row.begin, calls.join(row.between), row.end)
}

/// Parses `pieces` and joins the parts.
pub(super) fn parse<'a>(
    options: ParserOptions,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<Whole> {
    let mut parts = Vec::new();
    let mut parser = Parser::new(options);
    for piece in pieces {
        parser.push(piece, &mut |part| collect(&mut parts, part));
        assert!(parser.held() < TOOL_HEAD_BYTES_MAX, "{} bytes are held", parser.held());
    }
    parser.finish(&mut |part| collect(&mut parts, part));
    parts
}

fn collect(parts: &mut Vec<Whole>, part: Part<'_>) {
    let calls = parts.iter().filter(|part| matches!(part, Whole::Call(..))).count();
    match part {
        Part::Content(text) => {
            assert!(!text.is_empty());
            match parts.last_mut() {
                Some(Whole::Content(whole)) => whole.push_str(text),
                _ => parts.push(Whole::content(text)),
            }
        }
        Part::Reasoning(text) => {
            assert!(!text.is_empty());
            match parts.last_mut() {
                Some(Whole::Reasoning(whole)) => whole.push_str(text),
                _ => parts.push(Whole::reasoning(text)),
            }
        }
        Part::ToolCallBegin { index, name } => {
            assert_eq!(index, calls);
            assert!(!name.is_empty());
            parts.push(Whole::call(name, ""));
        }
        Part::ToolCallArguments { index, delta } => {
            assert!(!delta.is_empty());
            assert_eq!(index + 1, calls);
            let Some(Whole::Call(_, arguments)) = parts.last_mut() else {
                panic!("arguments follow {:?}", parts.last());
            };
            arguments.push_str(delta);
        }
    }
}
