//! Writes the reply of `/v1/messages`, whole or as events.

use std::fmt;

use serde::Serialize;

use crate::api::reply::{
    Delta, FinishReason, PromptFacts, Reply, ReplyContext, ReplyOptions, Summary, Usage,
};
use crate::api::write::{List, Spelled, Written, push_json, push_named_event};
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
    pub fn new(options: ReplyOptions, facts: PromptFacts, context: &ReplyContext) -> Self {
        Self {
            id: context.id.clone(),
            model: context.model.clone(),
            prompt_tokens: context.prompt_tokens,
            parser: Some(Parser::new(facts.parser)),
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
        let delta = match block.kind {
            Kind::Text => More::Text { text },
            Kind::Thinking => More::Thinking { thinking: text },
            Kind::ToolUse { .. } => More::Input { partial_json: text },
        };
        let index = self.begun - 1;
        push_named_event(out, "content_block_delta", &Event::Delta { index, delta });
    }

    fn begin_block(&mut self, out: &mut Vec<u8>) {
        if !self.options.stream {
            return;
        }
        if self.begun == 0 {
            self.begin_message(out);
        }
        let block = &self.blocks[self.blocks.len() - 1];
        let start = Start { index: self.begun, content_block: block.shown(&self.id) };
        push_named_event(out, "content_block_start", &start);
        self.begun += 1;
    }

    fn end_block(&mut self, out: &mut Vec<u8>) {
        if self.options.stream && self.blocks.pop().is_some() {
            let index = self.begun - 1;
            push_named_event(out, "content_block_stop", &Event::Stop { index });
        }
    }

    fn begin_message(&self, out: &mut Vec<u8>) {
        let usage = Usage { prompt_tokens: self.prompt_tokens, ..Usage::default() };
        push_named_event(out, "message_start", &Message { message: self.message(usage) });
    }

    /// Whether the last block is a tool call.
    fn has_called(&self) -> bool {
        self.blocks.last().is_some_and(|block| matches!(block.kind, Kind::ToolUse { .. }))
    }

    fn message(&self, usage: Usage) -> impl Serialize {
        #[derive(Serialize)]
        struct Shown<'a, C> {
            id: &'a str,
            r#type: &'a str,
            role: &'a str,
            model: &'a str,
            content: C,
            #[serde(flatten)]
            end: End<'a>,
            usage: Tokens,
        }
        let blocks = if self.options.stream { &[][..] } else { &self.blocks };
        Shown {
            id: &self.id,
            r#type: "message",
            role: "assistant",
            model: &self.model,
            content: List(blocks.iter().map(|block| block.shown(&self.id))),
            end: self.end(self.has_called()),
            usage: usage.into(),
        }
    }

    fn end(&self, called: bool) -> End<'_> {
        let stop_reason = match (self.finish, &self.stop_word) {
            (None, _) => None,
            (Some(FinishReason::Stop), Some(_)) => Some("stop_sequence"),
            (Some(FinishReason::Stop), None) if called => Some("tool_use"),
            (Some(FinishReason::Stop), None) => Some("end_turn"),
            // Anthropic has no stop reason for a timeout. It cuts the text off, as a length does.
            (Some(FinishReason::Length | FinishReason::Timeout), _) => Some("max_tokens"),
        };
        End { stop_reason, stop_sequence: self.stop_word.as_deref() }
    }
}

#[derive(Serialize)]
struct Message<T> {
    message: T,
}

#[derive(Serialize)]
struct Start<T> {
    index: usize,
    content_block: T,
}

/// The members of other events, besides their type.
#[derive(Serialize)]
#[serde(untagged)]
enum Event<'a> {
    Delta { index: usize, delta: More<'a> },
    Stop { index: usize },
    End { delta: End<'a>, usage: Tokens },
}

/// More of a block.
#[derive(Serialize)]
#[serde(tag = "type")]
enum More<'a> {
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: &'a str },
    #[serde(rename = "input_json_delta")]
    Input { partial_json: &'a str },
}

#[derive(Serialize)]
struct End<'a> {
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'a str>,
}

#[derive(Serialize)]
struct Tokens {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: usage.cached_tokens,
            output_tokens: usage.completion_tokens,
        }
    }
}

impl Block {
    fn shown<'a>(&'a self, id: &'a str) -> impl Serialize + 'a {
        #[derive(Serialize)]
        #[serde(tag = "type", rename_all = "snake_case")]
        enum Shown<'a, I> {
            Text { text: &'a str },
            Thinking { signature: &'a str, thinking: &'a str },
            ToolUse { id: I, name: &'a str, input: Written<'a> },
        }
        let text = self.text.as_str();
        match &self.kind {
            Kind::Text => Shown::Text { text },
            Kind::Thinking => Shown::Thinking { signature: "", thinking: text },
            Kind::ToolUse { index, name } => {
                let id = id.trim_start_matches("msg_");
                // An input that was cut off is not valid JSON; send an empty object.
                let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
                Shown::ToolUse {
                    id: Spelled(fmt::from_fn(move |f| write!(f, "toolu_{id}_{index}"))),
                    name,
                    input: Written(if is_json { text } else { "{}" }.as_bytes()),
                }
            }
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
        if let Some(finish) = delta.finish {
            parser.finish(finish != FinishReason::Stop, &mut take);
        }
        self.parser = Some(parser);
        self.finish = delta.finish;
        self.stop_word = delta.stop_word.map(str::to_owned);
    }

    fn push_end(&mut self, summary: Summary, _: Micros, out: &mut Vec<u8>) {
        if !self.options.stream {
            return push_json(out, &self.message(summary.usage));
        }
        if self.begun == 0 {
            self.begin_message(out); // the text was empty
        }
        let called = self.has_called();
        self.end_block(out);
        let usage = summary.usage.into();
        let end = Event::End { delta: self.end(called), usage };
        push_named_event(out, "message_delta", &end);
        push_named_event(out, "message_stop", &());
    }
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
        let facts = PromptFacts { choices: 1, parser, ..Default::default() };
        MessagesReply::new(ReplyOptions { stream, ..Default::default() }, facts, &context)
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
    fn a_number_of_any_length_is_passed_on_as_the_model_wrote_it() {
        let input = r#"{"a": 1e400, "b": [123456789012345678901234567890]}"#;
        let said = SAID.replace(r#"{"a": 3}"#, input);
        let (mut reply, mut out) = (reply(false), Vec::new());
        reply.push_delta(0, delta(&said, Some(FinishReason::Stop)), &mut out);
        reply.push_end(summary(), Micros(0), &mut out);
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains(&format!("\"input\":{input}")), "{out}");
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
