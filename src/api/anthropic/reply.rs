//! Writes the reply of `/v1/messages`, whole or as events.

use std::io::Write;

use crate::api::reply::{Delta, FinishReason, Reply, ReplyContext, ReplyOptions, Summary, Usage};
use crate::api::write::{push_string, push_string_inside};
use crate::chat::output::{Parser, Part};
use crate::clock::Micros;

/// The reply of one request.
#[derive(Debug)]
pub struct MessagesReply {
    options: ReplyOptions,
    id: String,
    model: String,
    prompt_tokens: u64,
    /// `None` only while it is being fed.
    parser: Option<Parser>,
    /// The blocks of a whole reply. A stream keeps its last block only, without the text.
    blocks: Vec<Block>,
    /// Blocks that the stream has started.
    begun: usize,
    finish: Option<FinishReason>,
    stop_word: Option<String>,
}

/// A content block.
#[derive(Debug)]
struct Block {
    kind: Kind,
    /// Text, thinking, or the JSON of a tool's input.
    text: String,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Text,
    Thinking,
    ToolUse { index: usize, name: String },
}

impl MessagesReply {
    /// A reply without any text yet.
    pub fn new(options: ReplyOptions, context: &ReplyContext) -> Self {
        Self {
            id: context.id.clone(),
            model: context.model.clone(),
            prompt_tokens: context.prompt_tokens,
            parser: Some(Parser::new(options.parser.clone())),
            options,
            blocks: Vec::new(),
            begun: 0,
            finish: None,
            stop_word: None,
        }
    }

    /// Appends text of one kind to the last block, or starts a new block.
    fn push_text(&mut self, kind: Kind, text: &str, out: &mut Vec<u8>) {
        if self.blocks.last().is_none_or(|block| block.kind != kind) {
            self.end_block(out);
            self.blocks.push(Block { kind, text: String::new() });
            self.begin_block(out);
        }
        self.push_more(text, out);
    }

    fn push_more(&mut self, text: &str, out: &mut Vec<u8>) {
        let Some(block) = self.blocks.last_mut() else { return };
        if !self.options.stream {
            return block.text.push_str(text);
        }
        if text.is_empty() {
            return;
        }
        let (kind, field) = match block.kind {
            Kind::Text => ("text_delta", "text"),
            Kind::Thinking => ("thinking_delta", "thinking"),
            Kind::ToolUse { .. } => ("input_json_delta", "partial_json"),
        };
        let index = self.begun - 1;
        write!(
            out,
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\
             \"delta\":{{\"type\":\"{kind}\",\"{field}\":\""
        )
        .expect("memory");
        push_string_inside(out, text);
        out.extend_from_slice(b"\"}}\n\n");
    }

    fn begin_block(&mut self, out: &mut Vec<u8>) {
        if !self.options.stream {
            return;
        }
        if self.begun == 0 {
            self.begin_message(out);
        }
        let index = self.begun;
        self.begun += 1;
        write!(
            out,
            "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":{index},\
             \"content_block\":"
        )
        .expect("memory");
        push_block(out, &self.id, &self.blocks[self.blocks.len() - 1]);
        out.extend_from_slice(b"}\n\n");
    }

    fn end_block(&mut self, out: &mut Vec<u8>) {
        if self.options.stream && self.blocks.pop().is_some() {
            let index = self.begun - 1;
            write!(
                out,
                "event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":{index}}}\n\n"
            )
            .expect("memory");
        }
    }

    fn begin_message(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":",
        );
        let usage = Usage { prompt_tokens: self.prompt_tokens, ..Usage::default() };
        self.push_message(usage, out);
        out.extend_from_slice(b"}\n\n");
    }

    /// Whether the last block is a tool call.
    fn has_called(&self) -> bool {
        self.blocks.last().is_some_and(|block| matches!(block.kind, Kind::ToolUse { .. }))
    }

    fn push_message(&self, usage: Usage, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":");
        push_string(out, &self.id);
        out.extend_from_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
        push_string(out, &self.model);
        out.extend_from_slice(b",\"content\":[");
        for (index, block) in self.blocks.iter().enumerate().filter(|_| !self.options.stream) {
            if index > 0 {
                out.push(b',');
            }
            push_block(out, &self.id, block);
        }
        out.extend_from_slice(b"],");
        self.push_stop(self.has_called(), out);
        out.extend_from_slice(b",\"usage\":");
        push_usage(out, usage);
        out.push(b'}');
    }

    fn push_stop(&self, called: bool, out: &mut Vec<u8>) {
        let reason = match (self.finish, &self.stop_word) {
            (None, _) => "null",
            (Some(FinishReason::Stop), Some(_)) => "\"stop_sequence\"",
            (Some(FinishReason::Stop), None) if called => "\"tool_use\"",
            (Some(FinishReason::Stop), None) => "\"end_turn\"",
            // Anthropic has no stop reason for a timeout. It cuts the text off, as a length does.
            (Some(FinishReason::Length | FinishReason::Timeout), _) => "\"max_tokens\"",
        };
        write!(out, "\"stop_reason\":{reason},\"stop_sequence\":").expect("memory");
        match &self.stop_word {
            Some(word) => push_string(out, word),
            None => out.extend_from_slice(b"null"),
        }
    }
}

impl Reply for MessagesReply {
    fn options(&self) -> &ReplyOptions {
        &self.options
    }

    fn push_delta(&mut self, _: usize, delta: Delta<'_>, out: &mut Vec<u8>) {
        let mut parser = self.parser.take().expect("it was put back");
        let mut take = |part: Part<'_>| match part {
            Part::Content(text) => self.push_text(Kind::Text, text, out),
            Part::Reasoning(text) => self.push_text(Kind::Thinking, text, out),
            Part::ToolCallBegin { index, name } => {
                self.push_text(Kind::ToolUse { index, name: name.into() }, "", out);
            }
            Part::ToolCallArguments { delta, .. } => self.push_more(delta, out),
        };
        parser.push(delta.text, &mut take);
        if delta.finish.is_some() {
            parser.finish(&mut take);
        }
        self.parser = Some(parser);
        self.finish = delta.finish;
        self.stop_word = delta.stop_word.map(str::to_owned);
    }

    fn push_end(&mut self, summary: Summary, _: Micros, out: &mut Vec<u8>) {
        if !self.options.stream {
            return self.push_message(summary.usage, out);
        }
        if self.begun == 0 {
            self.begin_message(out); // the text was empty
        }
        let called = self.has_called();
        self.end_block(out);
        out.extend_from_slice(
            b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{",
        );
        self.push_stop(called, out);
        out.extend_from_slice(b"},\"usage\":");
        push_usage(out, summary.usage);
        out.extend_from_slice(b"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    }
}

fn push_block(out: &mut Vec<u8>, id: &str, block: &Block) {
    match &block.kind {
        Kind::Text => {
            out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
            push_string(out, &block.text);
        }
        Kind::Thinking => {
            out.extend_from_slice(b"{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":");
            push_string(out, &block.text);
        }
        Kind::ToolUse { index, name } => {
            out.extend_from_slice(b"{\"type\":\"tool_use\",\"id\":\"toolu_");
            push_string_inside(out, id.trim_start_matches("msg_"));
            write!(out, "_{index}\",\"name\":").expect("memory");
            push_string(out, name);
            // An input that was cut off is not valid JSON; send an empty object.
            let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&block.text).is_ok();
            let input = if is_json { &block.text } else { "{}" };
            write!(out, ",\"input\":{input}").expect("memory");
        }
    }
    out.push(b'}');
}

fn push_usage(out: &mut Vec<u8>, usage: Usage) {
    let Usage { prompt_tokens, cached_tokens, completion_tokens } = usage;
    write!(
        out,
        "{{\"input_tokens\":{},\"cache_creation_input_tokens\":0,\
         \"cache_read_input_tokens\":{cached_tokens},\"output_tokens\":{completion_tokens}}}",
        prompt_tokens.saturating_sub(cached_tokens)
    )
    .expect("memory");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::chat::output::{ParserOptions, ReasoningSyntax, ToolSyntax};
    use crate::clock::Micros;

    const SAID: &str = "<think>\nHm.\n</think>\n\nI add.\n\
        <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3}}\n</tool_call>";

    fn reply(stream: bool) -> MessagesReply {
        let context = ReplyContext {
            id: "msg_1".into(),
            model: "m".into(),
            created: 5,
            received: Micros(0),
            prompt_tokens: 7,
        };
        let parser = ParserOptions {
            reasoning: true,
            reasoning_syntax: Some(ReasoningSyntax::Think),
            tools: Some(ToolSyntax::Hermes),
            ..Default::default()
        };
        MessagesReply::new(
            ReplyOptions { choices: 1, stream, parser, ..Default::default() },
            &context,
        )
    }

    fn summary() -> Summary {
        let usage = Usage { prompt_tokens: 7, cached_tokens: 4, completion_tokens: 9 };
        Summary { usage, ..Summary::default() }
    }

    fn delta(text: &str, finish: Option<FinishReason>) -> Delta<'_> {
        Delta { text, finish, ..Delta::default() }
    }

    #[test]
    fn a_whole_message_has_a_block_of_each_kind() {
        let (mut reply, mut out) = (reply(false), Vec::new());
        reply.push_delta(0, delta(SAID, Some(FinishReason::Stop)), &mut out);
        reply.push_end(summary(), Micros(0), &mut out);
        let message: Value = serde_json::from_slice(&out).unwrap();
        let kinds: Vec<&Value> =
            message["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
        assert_eq!(kinds, ["thinking", "text", "tool_use"]);
        let call = json!({"type": "tool_use", "id": "toolu_1_0", "name": "add", "input": {"a": 3}});
        assert_eq!(message["content"][2], call);
        assert_eq!(message["stop_reason"], "tool_use");
        let usage = json!({"input_tokens": 3, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 4, "output_tokens": 9});
        assert_eq!(message["usage"], usage);
    }

    #[test]
    fn events_come_in_the_order_that_clients_want() {
        let (mut reply, mut out) = (reply(true), Vec::new());
        for piece in SAID.split_inclusive(' ') {
            reply.push_delta(0, delta(piece, None), &mut out);
        }
        reply.push_delta(0, delta("", Some(FinishReason::Stop)), &mut out);
        reply.push_end(summary(), Micros(0), &mut out);
        let out = String::from_utf8(out).unwrap();
        let mut names = Vec::new();
        let mut input = String::new();
        for event in out.split_terminator("\n\n") {
            let (name, data) = event.strip_prefix("event: ").unwrap().split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(data["type"], name);
            input.push_str(data["delta"]["partial_json"].as_str().unwrap_or_default());
            names.push(name.to_owned());
        }
        names.dedup();
        let block = ["content_block_start", "content_block_delta", "content_block_stop"];
        let expected =
            [&["message_start"][..], &block, &block, &block, &["message_delta", "message_stop"]];
        assert_eq!(names, expected.concat());
        assert_eq!(input, "{\"a\": 3}");
    }

    #[test]
    fn a_stop_sequence_is_named() {
        let (mut reply, mut out) = (reply(false), Vec::new());
        let stop_word = Some("END");
        reply.push_delta(0, Delta { stop_word, ..delta("Hi", Some(FinishReason::Stop)) }, &mut out);
        reply.push_end(summary(), Micros(0), &mut out);
        let message: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&message["stop_reason"], &message["stop_sequence"]),
            (&"stop_sequence".into(), &"END".into())
        );
    }
}
