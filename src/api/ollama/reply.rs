//! Writes the replies of `/api/chat` and `/api/generate`: one JSON object, or a line for each piece.

use serde::Serialize;

use crate::api::logprobs::push_tokens;
use crate::api::model::time;
use crate::api::reply::{
    Delta, FinishReason, PromptFacts, Reply, ReplyContext, ReplyOptions, Summary,
};
use crate::api::write::{List, Written, WrittenList, push_json};
use crate::chat::output::{Parser, Part};
use crate::clock::Micros;

/// The reply of one request.
#[derive(Debug)]
pub struct OllamaReply {
    options: ReplyOptions,
    form: Form,
    received: Micros,
    model: String,
    created_at: String,
    parser: Parser,
    content: String,
    thinking: String,
    /// Calls that are not sent yet. Text may still be added to the last one.
    calls: Vec<Call>,
    /// The number of calls that the text has begun.
    calls_begun: usize,
    logprobs: WrittenList,
    finish: Option<FinishReason>,
}

/// The place of the text in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In a `message`.
    Chat,
    /// In `response`.
    Generate,
}

#[derive(Debug)]
struct Call {
    index: usize,
    name: String,
    arguments: String,
}

impl OllamaReply {
    /// A reply without any text yet.
    pub fn new(
        form: Form,
        options: ReplyOptions,
        facts: PromptFacts,
        context: &ReplyContext,
    ) -> Self {
        Self {
            parser: Parser::new(facts.parser),
            options,
            form,
            received: context.received,
            model: context.model.clone(),
            created_at: time(context.created),
            content: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            calls_begun: 0,
            logprobs: WrittenList::default(),
            finish: None,
        }
    }

    fn take(&mut self, delta: &Delta<'_>) {
        let Self { parser, content, thinking, calls, calls_begun, .. } = self;
        let mut take = |part: Part<'_>| match part {
            Part::Content(text) => content.push_str(text),
            Part::Reasoning(text) => thinking.push_str(text),
            Part::ToolCallBegin { index, name } => {
                *calls_begun = index + 1;
                calls.push(Call { index, name: name.into(), arguments: String::new() });
            }
            Part::ToolCallArguments { delta, .. } => {
                if let Some(call) = calls.last_mut() {
                    call.arguments.push_str(delta);
                }
            }
        };
        parser.push(delta.text, &mut take);
        if let Some(finish) = delta.finish {
            parser.finish(finish != FinishReason::Stop, &mut take);
        }
        push_tokens(&mut self.logprobs, delta.logprobs, false);
        self.finish = delta.finish;
    }

    /// Writes the text so far, with the first `calls` of the calls.
    fn push_text(&mut self, calls: usize, end: Option<End>, out: &mut Vec<u8>) {
        // Arguments that were cut off are not JSON, and have no other place here.
        let is_whole =
            |call: &&Call| serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_ok();
        let whole = self.calls[..calls].iter().filter(is_whole);
        let said = Said {
            role: None,
            content: None,
            response: None,
            thinking: Some(self.thinking.as_str()).filter(|thinking| !thinking.is_empty()),
            tool_calls: whole.clone().next().map(|_| List(whole.map(Call::shown))),
        };
        let (role, content) = (Some("assistant"), Some(self.content.as_str()));
        let (message, said) = match self.form {
            Form::Chat => (Some(Said { role, content, ..said }), None),
            Form::Generate => (None, Some(Said { response: content, ..said })),
        };
        let line = Line {
            model: &self.model,
            created_at: &self.created_at,
            message,
            said,
            logprobs: self.options.logprobs.then_some(&self.logprobs),
            done: end.is_some(),
            end,
        };
        push_json(out, &line);
        if self.options.stream {
            out.push(b'\n');
        }
        self.calls.drain(..calls);
        self.content.clear();
        self.thinking.clear();
        self.logprobs.clear();
    }
}

/// A line of a stream, or a whole answer.
#[derive(Serialize)]
struct Line<'a, C> {
    model: &'a str,
    created_at: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Said<'a, C>>,
    #[serde(flatten)]
    said: Option<Said<'a, C>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<&'a WrittenList>,
    done: bool,
    #[serde(flatten)]
    end: Option<End>,
}

#[derive(Serialize)]
struct Said<'a, C> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<C>,
}

/// The counts and times of a request, in nanoseconds.
#[derive(Serialize)]
struct End {
    done_reason: &'static str,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: u64,
    prompt_eval_duration: u128,
    eval_count: u64,
    eval_duration: u128,
}

impl Call {
    fn shown(&self) -> impl Serialize {
        #[derive(Serialize)]
        struct Shown<'a> {
            function: Function<'a>,
        }
        #[derive(Serialize)]
        struct Function<'a> {
            index: usize,
            name: &'a str,
            arguments: Written<'a>,
        }
        let Self { index, name, arguments } = self;
        let arguments = Written(arguments.as_bytes());
        Shown { function: Function { index: *index, name, arguments } }
    }
}

impl Reply for OllamaReply {
    fn options(&self) -> &ReplyOptions {
        &self.options
    }

    fn push_delta(&mut self, _: usize, delta: Delta<'_>, out: &mut Vec<u8>) {
        self.take(&delta);
        // A call is sent whole, as Ollama does: once the next one begins, or the text ends.
        let open = usize::from(delta.finish.is_none());
        let calls = self.calls.len().saturating_sub(open);
        let is_empty = self.content.is_empty() && self.thinking.is_empty() && calls == 0;
        if !self.options.stream || is_empty {
            return;
        }
        self.push_text(calls, None, out);
    }

    fn push_end(&mut self, summary: Summary, now: Micros, out: &mut Vec<u8>) {
        let Summary { usage, timings, .. } = summary;
        let end = End {
            done_reason: match self.finish {
                Some(FinishReason::Stop) | None => "stop",
                Some(FinishReason::Length | FinishReason::Timeout) => "length",
            },
            total_duration: 1000 * now.since(self.received),
            load_duration: 0,
            prompt_eval_count: usage.prompt_tokens,
            prompt_eval_duration: timings.prefill.as_nanos(),
            eval_count: usage.completion_tokens,
            eval_duration: timings.decode.as_nanos(),
        };
        self.push_text(self.calls.len(), Some(end), out);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::reply::Usage;
    use crate::chat::output::{ParserOptions, ReasoningSyntax, ToolSyntax};

    const SAID: &str = "<think>\nHm.\n</think>\n\nI add.\n\
        <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3}}\n</tool_call>\n\
        <tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>";

    fn reply(form: Form, stream: bool) -> OllamaReply {
        let context = ReplyContext {
            id: "1".into(),
            model: "m".into(),
            created: 1_700_000_000,
            received: Micros(1000),
            prompt_tokens: 7,
        };
        let parser = ParserOptions {
            reasoning: true,
            reasoning_syntax: Some(ReasoningSyntax::Think),
            tools: Some(ToolSyntax::Hermes),
            ..Default::default()
        };
        let facts = PromptFacts { choices: 1, parser, ..Default::default() };
        OllamaReply::new(form, ReplyOptions { stream, ..Default::default() }, facts, &context)
    }

    fn lines(form: Form, stream: bool, pieces: &[&str]) -> Vec<Value> {
        let (mut reply, mut out) = (reply(form, stream), Vec::new());
        for text in pieces {
            reply.push_delta(0, Delta { text, ..Delta::default() }, &mut out);
        }
        let finish = Some(FinishReason::Stop);
        reply.push_delta(0, Delta { finish, ..Delta::default() }, &mut out);
        let usage = Usage { prompt_tokens: 7, cached_tokens: 4, completion_tokens: 9 };
        reply.push_end(Summary { usage, ..Summary::default() }, Micros(3000), &mut out);
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.ends_with('\n'), stream);
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_whole_reply_is_one_object() {
        let [answer] = &lines(Form::Chat, false, &[SAID])[..] else { panic!("one line") };
        assert_eq!(answer["created_at"], "2023-11-14T22:13:20Z");
        let call = |index, name: &str, arguments| json!({"function": {"index": index, "name": name, "arguments": arguments}});
        let calls = json!([call(0, "add", json!({"a": 3})), call(1, "sub", json!({}))]);
        let message = &answer["message"];
        assert_eq!((&message["thinking"], &message["tool_calls"]), (&"Hm.".into(), &calls));
        assert_eq!(message["content"].as_str().unwrap().trim(), "I add.");
        assert_eq!((&answer["done"], &answer["done_reason"]), (&true.into(), &"stop".into()));
        assert_eq!(
            (&answer["eval_count"], &answer["total_duration"]),
            (&9.into(), &2_000_000.into())
        );
    }

    #[test]
    fn a_stream_has_a_line_for_each_piece_and_whole_calls() {
        let pieces: Vec<&str> = SAID.split_inclusive(' ').collect();
        let lines = lines(Form::Chat, true, &pieces);
        let text = |name: &str| {
            lines.iter().filter_map(|line| line["message"][name].as_str()).collect::<String>()
        };
        assert_eq!((text("thinking").trim(), text("content").trim()), ("Hm.", "I add."));
        let calls: Vec<&Value> = lines
            .iter()
            .filter_map(|line| line["message"]["tool_calls"].as_array())
            .flatten()
            .collect();
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[0]["function"]["arguments"], json!({"a": 3}));
        let done: Vec<&Value> = lines.iter().map(|line| &line["done"]).collect();
        assert_eq!(done.iter().filter(|done| **done == true).count(), 1);
        assert_eq!(*done[done.len() - 1], true);
    }

    #[test]
    fn a_generated_text_is_the_response() {
        let lines = lines(Form::Generate, true, &["Hi", " you"]);
        let texts: Vec<&Value> = lines.iter().map(|line| &line["response"]).collect();
        assert_eq!(texts, ["Hi", " you", ""]);
    }
}
