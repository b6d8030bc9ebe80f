//! Writes the reply of `/v1/chat/completions`, whole or as a stream.

use std::io::Write;

use crate::api::logprobs::TokenList;
use crate::api::openai::{
    push_event_end, push_progress_end, push_stream_end, push_timings, push_tokens, push_usage,
};
use crate::api::reply::{
    Delta, FinishReason, PromptProgress, Reply, ReplyContext, ReplyOptions, Summary,
};
use crate::api::write::{push_string, push_string_inside};
use crate::chat::output::{Parser, Part};
use crate::clock::Micros;
use crate::types::TokenId;

/// The reply of one request.
#[derive(Debug)]
pub struct ChatReply {
    options: ReplyOptions,
    /// For the ids of tool calls.
    id: String,
    /// `{"id":…,"object":…,"created":…,"model":…,"choices":[`
    prefix: Vec<u8>,
    choices: Vec<Choice>,
}

/// The output of one choice: all of it, or the part that a stream has not sent yet.
#[derive(Debug)]
struct Choice {
    parser: Parser,
    /// Whether an event has named the role.
    begun: bool,
    /// Tool calls so far, sent or not.
    calls_begun: usize,
    said: Said,
    finish: Option<FinishReason>,
}

/// A message, or a part of one.
#[derive(Debug, Default)]
struct Said {
    content: String,
    reasoning: String,
    calls: Vec<Call>,
    tokens: Vec<TokenId>,
    logprobs: TokenList,
}

#[derive(Debug, Default)]
struct Call {
    index: usize,
    /// Sent once, with the call's id.
    name: Option<String>,
    arguments: String,
}

impl ChatReply {
    /// A reply without any text yet.
    pub fn new(options: ReplyOptions, context: &ReplyContext) -> Self {
        let object = if options.stream { "chat.completion.chunk" } else { "chat.completion" };
        let mut prefix = b"{\"id\":".to_vec();
        push_string(&mut prefix, &context.id);
        write!(prefix, ",\"object\":\"{object}\",\"created\":{},\"model\":", context.created)
            .expect("memory");
        push_string(&mut prefix, &context.model);
        prefix.extend_from_slice(b",\"choices\":[");
        let choice = |_| Choice {
            parser: Parser::new(options.parser.clone()),
            begun: false,
            calls_begun: 0,
            said: Said::default(),
            finish: None,
        };
        let choices = (0..options.choices).map(choice).collect();
        Self { options, id: context.id.clone(), prefix, choices }
    }

    /// Writes the event that names the role of a stream's message.
    fn push_role(&self, index: usize, out: &mut Vec<u8>) {
        let Said { content, reasoning, calls, .. } = &self.choices[index].said;
        // As OpenAI's server: a message that begins with a call has no content yet.
        let has_content = !content.is_empty() || (reasoning.is_empty() && calls.is_empty());
        let content = if has_content { "\"\"" } else { "null" };
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&self.prefix);
        write!(
            out,
            "{{\"index\":{index},\"delta\":{{\"role\":\"assistant\",\"content\":{content}}},\
             \"logprobs\":null,\"finish_reason\":null}}"
        )
        .expect("memory");
        push_event_end(&self.options, None, out);
    }

    /// Writes a whole choice, or the part since a stream's last event.
    fn push_choice(&self, index: usize, out: &mut Vec<u8>) {
        let choice = &self.choices[index];
        let Said { content, reasoning, calls, tokens, logprobs } = &choice.said;
        let kind = if self.options.stream { "delta" } else { "message" };
        write!(out, "{{\"index\":{index},\"{kind}\":{{").expect("memory");
        // A message that only calls tools has `null`; a delta has its new text.
        if self.options.stream {
            if !content.is_empty() {
                push_field(out, "content", content);
            }
        } else {
            out.extend_from_slice(b"\"role\":\"assistant\",");
            if !content.is_empty() || (calls.is_empty() && reasoning.is_empty()) {
                push_field(out, "content", content);
            } else {
                out.extend_from_slice(b"\"content\":null,");
            }
        }
        if !reasoning.is_empty() {
            push_field(out, "reasoning_content", reasoning);
        }
        if !calls.is_empty() {
            out.extend_from_slice(b"\"tool_calls\":[");
            for call in calls {
                self.push_call(index, call, out);
            }
            end_list(out, b"],");
        }
        end_list(out, b"}");
        out.extend_from_slice(b",\"logprobs\":");
        if self.options.logprobs {
            out.extend_from_slice(b"{\"content\":");
            logprobs.push(out);
            out.extend_from_slice(b",\"refusal\":null}");
        } else {
            out.extend_from_slice(b"null");
        }
        push_tokens(&self.options, tokens, out);
        out.extend_from_slice(b",\"finish_reason\":");
        match choice.finish {
            Some(FinishReason::Stop) if choice.calls_begun > 0 => push_string(out, "tool_calls"),
            Some(reason) => push_string(out, reason.as_str()),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    }

    fn push_call(&self, choice: usize, call: &Call, out: &mut Vec<u8>) {
        out.push(b'{');
        if self.options.stream {
            write!(out, "\"index\":{},", call.index).expect("memory");
        }
        if call.name.is_some() {
            out.extend_from_slice(b"\"id\":\"call_");
            push_string_inside(out, self.id.trim_start_matches("chatcmpl-"));
            write!(out, "_{choice}_{}\",\"type\":\"function\",", call.index).expect("memory");
        }
        out.extend_from_slice(b"\"function\":{");
        if let Some(name) = &call.name {
            push_field(out, "name", name);
        }
        push_field(out, "arguments", &call.arguments);
        end_list(out, b"}},");
    }
}

impl Reply for ChatReply {
    fn options(&self) -> &ReplyOptions {
        &self.options
    }

    fn push_delta(&mut self, index: usize, delta: Delta<'_>, out: &mut Vec<u8>) {
        let Self { options, choices, .. } = self;
        let choice = &mut choices[index];
        choice.take(&delta);
        if !options.stream || (choice.said.is_empty() && delta.finish.is_none()) {
            return;
        }
        // Many clients expect the role in an event of its own. It leaves together with the text.
        if !std::mem::replace(&mut choice.begun, true) {
            self.push_role(index, out);
        }
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&self.prefix);
        self.push_choice(index, out);
        push_event_end(&self.options, delta.summary.as_ref(), out);
        self.choices[index].said.clear();
    }

    fn push_progress(&mut self, index: usize, progress: &PromptProgress, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&self.prefix);
        write!(
            out,
            "{{\"index\":{index},\"delta\":{{}},\"logprobs\":null,\"finish_reason\":null}}"
        )
        .expect("memory");
        push_progress_end(&self.options, progress, out);
    }

    fn push_end(&mut self, summary: Summary, _: Micros, out: &mut Vec<u8>) {
        let Self { options, prefix, choices, .. } = self;
        if options.stream {
            return push_stream_end(options, prefix, &summary, out);
        }
        out.extend_from_slice(prefix);
        for index in 0..choices.len() {
            if index > 0 {
                out.push(b',');
            }
            self.push_choice(index, out);
        }
        out.extend_from_slice(b"],\"usage\":");
        push_usage(out, summary.usage);
        push_timings(out, &summary);
        out.push(b'}');
    }
}

impl Choice {
    /// Appends text to the field that it belongs to.
    fn take(&mut self, delta: &Delta<'_>) {
        let Self { parser, said, calls_begun, .. } = self;
        let mut take = |part: Part<'_>| match part {
            Part::Content(text) => said.content.push_str(text),
            Part::Reasoning(text) => said.reasoning.push_str(text),
            Part::ToolCallBegin { index, name } => {
                *calls_begun = index + 1;
                said.calls.push(Call { index, name: Some(name.into()), ..Call::default() });
            }
            Part::ToolCallArguments { index, delta } => match said.calls.last_mut() {
                Some(call) if call.index == index => call.arguments.push_str(delta),
                _ => said.calls.push(Call { index, name: None, arguments: delta.into() }),
            },
        };
        parser.push(delta.text, &mut take);
        if delta.finish.is_some() {
            parser.finish(&mut take);
        }
        self.said.tokens.extend_from_slice(delta.tokens);
        self.said.logprobs.extend(delta.logprobs, false);
        self.finish = delta.finish;
    }
}

impl Said {
    /// Whether there is nothing to send. Log-probabilities wait for their text.
    fn is_empty(&self) -> bool {
        self.content.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }

    /// Forgets everything; it has been sent. Its memory stays for the next token.
    fn clear(&mut self) {
        let Self { content, reasoning, calls, tokens, logprobs } = self;
        [content, reasoning].into_iter().for_each(String::clear);
        calls.clear();
        tokens.clear();
        logprobs.clear();
    }
}

fn push_field(out: &mut Vec<u8>, name: &str, text: &str) {
    write!(out, "\"{name}\":\"").expect("memory");
    push_string_inside(out, text);
    out.extend_from_slice(b"\",");
}

/// Replaces the comma after the last element by `end`.
fn end_list(out: &mut Vec<u8>, end: &[u8]) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.extend_from_slice(end);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::chat::output::{ParserOptions, ReasoningSyntax, ToolSyntax};
    use crate::clock::Micros;

    const CALL: &str = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3}}\n</tool_call>";

    fn reply(stream: bool, parser: ParserOptions) -> ChatReply {
        let context = ReplyContext {
            id: "chatcmpl-1".into(),
            model: "m".into(),
            created: 5,
            received: Micros(0),
            prompt_tokens: 2,
        };
        ChatReply::new(ReplyOptions { choices: 1, stream, parser, ..Default::default() }, &context)
    }

    fn delta(text: &str, finish: Option<FinishReason>) -> Delta<'_> {
        Delta { text, finish, ..Delta::default() }
    }

    fn whole(parser: ParserOptions, text: &str) -> Value {
        let (mut reply, mut out) = (reply(false, parser), Vec::new());
        reply.push_delta(0, delta(text, Some(FinishReason::Stop)), &mut out);
        assert!(out.is_empty());
        reply.push_end(Summary::default(), Micros(0), &mut out);
        let mut answer: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&answer["object"], &answer["model"]), (&"chat.completion".into(), &"m".into()));
        answer["choices"][0].take()
    }

    /// Returns each event's `delta`, and the finish reason.
    fn streamed(parser: ParserOptions, texts: &[&str]) -> (Vec<Value>, Value) {
        let (mut reply, mut out) = (reply(true, parser), Vec::new());
        for text in texts {
            reply.push_delta(0, delta(text, None), &mut out);
        }
        reply.push_delta(0, delta("", Some(FinishReason::Stop)), &mut out);
        reply.push_end(Summary::default(), Micros(0), &mut out);
        let out = String::from_utf8(out).unwrap();
        let mut events: Vec<&str> = out.split_terminator("\n\n").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"));
        let event = |event: &&str| -> Value {
            let event: Value = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(event["object"], "chat.completion.chunk");
            event["choices"][0].clone()
        };
        let events: Vec<Value> = events.iter().map(event).collect();
        let reason = events.last().unwrap()["finish_reason"].clone();
        (events.into_iter().map(|mut event| event["delta"].take()).collect(), reason)
    }

    fn with_tools() -> ParserOptions {
        ParserOptions {
            reasoning: true,
            reasoning_syntax: Some(ReasoningSyntax::Think),
            tools: Some(ToolSyntax::Hermes),
            ..Default::default()
        }
    }

    #[test]
    fn a_message_has_its_content_and_what_was_thought() {
        let choice = whole(ParserOptions::default(), "Hi <there>");
        assert_eq!(choice["message"], json!({"role": "assistant", "content": "Hi <there>"}));
        assert_eq!((&choice["finish_reason"], &choice["logprobs"]), (&"stop".into(), &Value::Null));
        let choice = whole(with_tools(), "<think>\nHm.\n</think>\n\nHi");
        assert_eq!(choice["message"]["content"], "Hi");
        assert!(choice["message"]["reasoning_content"].as_str().unwrap().contains("Hm."));
        assert_eq!(whole(ParserOptions::default(), "")["message"]["content"], "");
    }

    #[test]
    fn a_message_that_calls_has_no_content() {
        let choice = whole(with_tools(), CALL);
        assert_eq!(choice["finish_reason"], "tool_calls");
        assert_eq!(choice["message"]["content"], Value::Null);
        let call = &choice["message"]["tool_calls"][0];
        assert_eq!((&call["type"], &call["id"]), (&"function".into(), &"call_1_0_0".into()));
        assert_eq!(call["function"], json!({"name": "add", "arguments": "{\"a\": 3}"}));
    }

    #[test]
    fn a_stream_says_once_whose_message_it_is() {
        let (deltas, reason) = streamed(ParserOptions::default(), &["Hi", "", " there"]);
        assert_eq!(deltas[0], json!({"role": "assistant", "content": ""}));
        assert_eq!(deltas[1], json!({"content": "Hi"}));
        assert_eq!(deltas[2], json!({"content": " there"}));
        assert_eq!(deltas[3], json!({}));
        assert_eq!((deltas.len(), reason), (4, "stop".into()));
    }

    #[test]
    fn the_arguments_of_a_call_are_streamed() {
        let pieces: Vec<String> = CALL.chars().map(String::from).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let (deltas, reason) = streamed(with_tools(), &pieces);
        assert_eq!(reason, "tool_calls");
        assert_eq!(deltas[0], json!({"role": "assistant", "content": null}));
        let calls: Vec<&Value> = deltas.iter().filter_map(|d| d["tool_calls"].get(0)).collect();
        assert_eq!(calls[0]["function"]["name"], "add");
        assert!(calls[1..].iter().all(|call| call.get("id").is_none() && call["index"] == 0));
        let arguments = calls.iter().filter_map(|call| call["function"]["arguments"].as_str());
        assert_eq!(arguments.collect::<String>(), "{\"a\": 3}");
        assert!(calls.len() > 3, "they come as they are said");
    }
}
