//! The parts of a request that its response needs.

use super::reply::ResponsesReply;
use crate::api::reply::{MakeReply, PromptFacts, Reply, ReplyContext, ReplyOptions};
use crate::api::stored::Items;

/// The parts of a request that its response repeats, or that are kept with it.
#[derive(Debug, Default)]
pub struct ResponseFields {
    /// Members of the response's object, as JSON.
    pub echo: Vec<(String, Box<[u8]>)>,
    /// Whether the response is kept.
    pub store: bool,
    /// The input, as items. None if the response is not kept.
    pub items: Items,
}

impl MakeReply for ResponseFields {
    fn make(
        self: Box<Self>,
        options: ReplyOptions,
        facts: PromptFacts,
        context: &ReplyContext,
    ) -> Box<dyn Reply> {
        Box::new(ResponsesReply::new(self, options, facts, context))
    }

    fn bytes(&self, _choices: usize) -> usize {
        let echo =
            self.echo.iter().map(|member| size_of_val(member) + member.0.len() + member.1.len());
        size_of::<Self>() + echo.sum::<usize>() + self.items.bytes()
    }
}
