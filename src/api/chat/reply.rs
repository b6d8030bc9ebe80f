//! Writes the reply of `/v1/chat/completions`, whole or as a stream.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::api::logprobs::push_tokens;
use crate::api::openai::Head;
use crate::api::reply::{
    Delta, FinishReason, PromptFacts, PromptProgress, Reply, ReplyContext, ReplyOptions, Summary,
};
use crate::api::write::{List, Spelled, WrittenList};
use crate::chat::output::{Parser, Part};
use crate::clock::Micros;
use crate::types::TokenId;

/// The reply of one request.
#[derive(Debug)]
pub struct ChatReply {
    options: ReplyOptions,
    /// The response's id without its prefix, for the ids of tool calls.
    id: String,
    head: Head,
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
    logprobs: WrittenList,
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
    pub fn new(options: ReplyOptions, facts: PromptFacts, context: &ReplyContext) -> Self {
        let object = if options.stream { "chat.completion.chunk" } else { "chat.completion" };
        let choice = |_| Choice {
            parser: Parser::new(facts.parser.clone()),
            begun: false,
            calls_begun: 0,
            said: Said::default(),
            finish: None,
        };
        let choices = (0..facts.choices).map(choice).collect();
        let id = context.id.trim_start_matches("chatcmpl-").to_owned();
        Self { options, id, head: Head::new(object, context), choices }
    }

    /// Writes the event that names the role of a stream's message.
    fn push_role(&self, index: usize, out: &mut Vec<u8>) {
        let Said { content, reasoning, calls, .. } = &self.choices[index].said;
        // As OpenAI's server: a message that begins with a call has no content yet.
        let has_content = !content.is_empty() || (reasoning.is_empty() && calls.is_empty());
        let delta = Message {
            role: Some("assistant"),
            content: Some(has_content.then_some("")),
            ..Message::default()
        };
        let choice = Shown { delta: Some(delta), ..Shown::of(index) };
        self.head.push_event(&self.options, &choice, None, out);
    }

    /// A whole choice, or the part since a stream's last event.
    fn shown(&self, index: usize) -> Shown<'_> {
        let choice = &self.choices[index];
        let Said { content, reasoning, calls, tokens, logprobs } = &choice.said;
        let (stream, has_calls) = (self.options.stream, !calls.is_empty());
        let text = Some(content.as_str()).filter(|content| !content.is_empty());
        let mut message = Message {
            role: None,
            content: text.map(Some),
            reasoning_content: Some(reasoning.as_str()).filter(|text| !text.is_empty()),
            tool_calls: has_calls.then_some(Calls { reply: self, choice: index, calls }),
        };
        if !stream {
            message.role = Some("assistant");
            // A message that only calls tools has `null`.
            let is_silent = !has_calls && reasoning.is_empty();
            message.content = Some(text.or(is_silent.then_some("")));
        }
        let (delta, message) = if stream { (Some(message), None) } else { (None, Some(message)) };
        Shown {
            delta,
            message,
            logprobs: self.options.logprobs.then_some(Logprobs { content: logprobs, refusal: () }),
            tokens: self.options.return_tokens.then_some(tokens),
            finish_reason: match choice.finish {
                Some(FinishReason::Stop) if choice.calls_begun > 0 => Some("tool_calls"),
                reason => reason.map(FinishReason::as_str),
            },
            ..Shown::of(index)
        }
    }
}

/// A choice, or a part of one.
#[derive(Serialize)]
struct Shown<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message<'a>>,
    logprobs: Option<Logprobs<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<&'a [TokenId]>,
    finish_reason: Option<&'static str>,
}

impl Shown<'_> {
    fn of(index: usize) -> Self {
        let (delta, message, logprobs, tokens, finish_reason) = (None, None, None, None, None);
        Self { index, delta, message, logprobs, tokens, finish_reason }
    }
}

#[derive(Default, Serialize)]
struct Message<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Calls<'a>>,
}

#[derive(Serialize)]
struct Logprobs<'a> {
    content: &'a WrittenList,
    refusal: (),
}

/// Tool calls of a choice.
struct Calls<'a> {
    reply: &'a ChatReply,
    choice: usize,
    calls: &'a [Call],
}

impl Serialize for Calls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a, I> {
            #[serde(skip_serializing_if = "Option::is_none")]
            index: Option<usize>,
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<I>,
            #[serde(skip_serializing_if = "Option::is_none")]
            r#type: Option<&'static str>,
            function: Function<'a>,
        }
        #[derive(Serialize)]
        struct Function<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            name: Option<&'a str>,
            arguments: &'a str,
        }
        let Self { reply, choice, calls } = self;
        serializer.collect_seq(calls.iter().map(|Call { index, name, arguments }| Shown {
            index: reply.options.stream.then_some(*index),
            id: name.as_ref().map(|_| {
                Spelled(fmt::from_fn(move |f| write!(f, "call_{}_{choice}_{index}", reply.id)))
            }),
            r#type: name.as_ref().map(|_| "function"),
            function: Function { name: name.as_deref(), arguments },
        }))
    }
}

impl Reply for ChatReply {
    fn options(&self) -> &ReplyOptions {
        &self.options
    }

    fn push_delta(&mut self, index: usize, delta: Delta<'_>, out: &mut Vec<u8>) {
        let choice = &mut self.choices[index];
        choice.take(&delta);
        if !self.options.stream || (choice.said.is_empty() && delta.finish.is_none()) {
            return;
        }
        // Many clients expect the role in an event of its own. It leaves together with the text.
        if !std::mem::replace(&mut choice.begun, true) {
            self.push_role(index, out);
        }
        let summary = delta.summary.as_ref();
        self.head.push_event(&self.options, &self.shown(index), summary, out);
        self.choices[index].said.clear();
    }

    fn push_progress(&mut self, index: usize, progress: &PromptProgress, out: &mut Vec<u8>) {
        let choice = Shown { delta: Some(Message::default()), ..Shown::of(index) };
        self.head.push_progress(&self.options, &choice, progress, out);
    }

    fn push_end(&mut self, summary: Summary, _: Micros, out: &mut Vec<u8>) {
        if self.options.stream {
            return self.head.push_stream_end(&self.options, &summary, out);
        }
        let choices = List((0..self.choices.len()).map(|index| self.shown(index)));
        self.head.push_whole(choices, &summary, out);
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
        if let Some(finish) = delta.finish {
            parser.finish(finish != FinishReason::Stop, &mut take);
        }
        self.said.tokens.extend_from_slice(delta.tokens);
        push_tokens(&mut self.said.logprobs, delta.logprobs, false);
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
        let facts = PromptFacts { choices: 1, parser, ..Default::default() };
        ChatReply::new(ReplyOptions { stream, ..Default::default() }, facts, &context)
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
