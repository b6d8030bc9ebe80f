//! The markers that a parser looks for.

use std::sync::Arc;

use super::channels;
use super::offered::OfferedTools;
use super::reasoning::{ReasoningEnd, ReasoningSyntax};
use super::rows;
use super::syntax::ToolSyntax;

/// The markers that a [`Parser`](super::Parser) looks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParserOptions {
    /// Whether blocks of reasoning become [`Part::Reasoning`](super::Part::Reasoning). If not, they
    /// stay in the content as written. Either way, a call inside reasoning does not count.
    pub reasoning: bool,
    /// The markers of reasoning; `None` leaves all markers in the content.
    pub reasoning_syntax: Option<ReasoningSyntax>,
    /// Whether the prompt ends inside a block of reasoning ([`ReasoningSyntax::is_open`]).
    pub reasoning_is_open: bool,
    /// The syntax of tool calls; `None` leaves them in the content.
    pub tools: Option<ToolSyntax>,
    /// The tools on offer, if there are any. Some syntaxes do not show the type of a value; their schemas do.
    pub offered: Option<Arc<OfferedTools>>,
    /// Whether a JSON object without a marker, bare or in a code fence, is a call if it is one of
    /// an offered tool. Holds for [`ToolSyntax::Hermes`] only.
    pub fenced_calls: bool,
}

impl ParserOptions {
    /// How reasoning ends at a limit, if the model reasons.
    pub fn reasoning_end(&self) -> Option<ReasoningEnd> {
        if self.tools == Some(ToolSyntax::Harmony) {
            return Some(channels::reasoning_end(self.offered.is_some()));
        }
        self.reasoning_syntax.map(ReasoningSyntax::end)
    }

    /// Whether a control token with this spelling is a marker, or a part of one.
    pub fn reads(&self, spelling: &[u8]) -> bool {
        let Ok(spelling) = std::str::from_utf8(spelling) else { return false };
        let row = self.tools.map_or(&rows::NONE, |tools| tools.row());
        let harmony = (self.tools == Some(ToolSyntax::Harmony)).then_some(channels::MARKERS);
        let texts = [row.begin, row.infix, row.between, row.end];
        let reasoning = self.reasoning_syntax.map(|syntax| [syntax.opener(), syntax.closer()]);
        let own = row.form.texts();
        let lists = [row.open, row.prefix, row.separators, row.close, row.noise, &texts, &own];
        let all = lists.into_iter().chain(harmony.unwrap_or_default().iter().copied());
        let mut markers = all.flatten().chain(reasoning.iter().flatten());
        !spelling.is_empty() && markers.any(|marker| marker.contains(spelling))
    }
}
