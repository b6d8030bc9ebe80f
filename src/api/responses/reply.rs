//! Writes the reply of `/v1/responses`, whole or as events.

use std::cell::Cell;
use std::fmt::{self, Display};
use std::sync::Arc;

use serde::Serialize;

use super::fields::ResponseFields;
use crate::api::logprobs::push_tokens;
use crate::api::reply::{
    Delta, FinishReason, MakeReply, PromptFacts, Reply, ReplyContext, ReplyOptions, Summary, Usage,
};
use crate::api::stored::Stored;
use crate::api::turn::Turn;
use crate::api::write::{List, Object, Spelled, Written, WrittenList, push_json, push_named_event};
use crate::chat::conversation::{Content, Message, Role, ToolCall};
use crate::chat::output::{Parser, Part};
use crate::clock::Micros;
use crate::types::digits;

/// The reply of one request.
#[derive(Debug)]
pub struct ResponsesReply {
    options: ReplyOptions,
    fields: Box<ResponseFields>,
    /// The request's messages.
    turn: Turn,
    /// `resp_` and digits.
    id: String,
    model: String,
    created: u64,
    /// `None` only while it is being fed.
    parser: Option<Parser>,
    items: Vec<Item>,
    /// The number of the next event.
    sequence: Cell<u64>,
    /// Log-probabilities whose text has not come yet.
    logprobs: WrittenList,
    reasoning_tokens: u64,
    finish: Option<FinishReason>,
    stored: Option<Box<Stored>>,
}

/// An item of the output.
#[derive(Debug)]
struct Item {
    kind: Kind,
    /// The text, or the arguments of a call.
    text: String,
    logprobs: WrittenList,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Message,
    Reasoning,
    Call { name: String },
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
        self.size()
    }
}

impl ResponsesReply {
    /// A reply without any text yet.
    pub fn new(
        mut fields: Box<ResponseFields>,
        options: ReplyOptions,
        facts: PromptFacts,
        context: &ReplyContext,
    ) -> Self {
        for (name, json) in &mut fields.echo {
            if let Some(value) = facts.defaults.json(name) {
                *json = value.into_bytes().into();
            }
        }
        Self {
            fields,
            turn: facts.turn,
            id: context.id.clone(),
            model: context.model.clone(),
            created: context.created,
            parser: Some(Parser::new(facts.parser)),
            options,
            items: Vec::new(),
            sequence: Cell::new(0),
            logprobs: WrittenList::default(),
            reasoning_tokens: 0,
            finish: None,
            stored: None,
        }
    }

    fn push_part(&mut self, part: Part<'_>, out: &mut Vec<u8>) {
        match part {
            Part::Content(text) => self.push_text(Kind::Message, text, out),
            Part::Reasoning(text) => self.push_text(Kind::Reasoning, text, out),
            Part::ToolCallBegin { name, .. } => {
                self.end_item(out);
                self.begin_item(Kind::Call { name: name.into() }, out);
            }
            Part::ToolCallArguments { delta, .. } => self.push_more(delta, out),
        }
    }

    /// Appends text of one kind to the last item, or starts a new one.
    fn push_text(&mut self, kind: Kind, text: &str, out: &mut Vec<u8>) {
        if self.items.last().is_none_or(|item| item.kind != kind) {
            self.end_item(out);
            self.begin_item(kind, out);
        }
        self.push_more(text, out);
    }

    fn push_more(&mut self, text: &str, out: &mut Vec<u8>) {
        let index = self.items.len().saturating_sub(1);
        let Some(item) = self.items.last_mut() else { return };
        item.text.push_str(text);
        let name = match item.kind {
            Kind::Message => "response.output_text.delta",
            Kind::Reasoning => "response.reasoning_text.delta",
            Kind::Call { .. } => "response.function_call_arguments.delta",
        };
        let (is_message, is_call) = (item.kind == Kind::Message, item.is_call());
        if self.options.stream && !text.is_empty() {
            let content_index = (!is_call).then_some(0);
            let logprobs = is_message.then_some(&self.logprobs);
            let delta = Some(text);
            self.push_event(
                name,
                &Change { content_index, delta, logprobs, ..self.at(index) },
                out,
            );
        }
        let Self { items, logprobs, .. } = self;
        match items.last_mut() {
            Some(item) if is_message => item.logprobs.append(logprobs),
            _ => logprobs.clear(),
        }
    }

    fn begin_item(&mut self, kind: Kind, out: &mut Vec<u8>) {
        let index = self.items.len();
        let is_call = matches!(kind, Kind::Call { .. });
        self.items.push(Item { kind, text: String::new(), logprobs: WrittenList::default() });
        if !self.options.stream {
            return;
        }
        if self.sequence.get() == 0 {
            for name in ["response.created", "response.in_progress"] {
                self.push_event(name, &Whole { response: self.response(None) }, out);
            }
        }
        let item = self.item(index, "in_progress");
        self.push_event("response.output_item.added", &Added { output_index: index, item }, out);
        if !is_call {
            self.push_part_event("response.content_part.added", index, out);
        }
    }

    /// Ends the last item, if there is one.
    fn end_item(&self, out: &mut Vec<u8>) {
        let Some(index) = self.items.len().checked_sub(1).filter(|_| self.options.stream) else {
            return;
        };
        let Item { kind, text, logprobs } = &self.items[index];
        let (at, text, content_index) = (self.at(index), Some(text.as_str()), Some(0));
        let (name, end) = match kind {
            Kind::Message => (
                "response.output_text.done",
                Change { text, content_index, logprobs: Some(logprobs), ..at },
            ),
            Kind::Reasoning => {
                ("response.reasoning_text.done", Change { text, content_index, ..at })
            }
            Kind::Call { name } => (
                "response.function_call_arguments.done",
                Change { arguments: text, name: Some(self.fields.namespaces.split(name).1), ..at },
            ),
        };
        self.push_event(name, &end, out);
        if content_index == end.content_index {
            self.push_part_event("response.content_part.done", index, out);
        }
        let item = self.item(index, self.status_of(index));
        self.push_event("response.output_item.done", &Added { output_index: index, item }, out);
    }

    /// `completed`, or `incomplete` for the last item of a text that was cut off.
    fn status_of(&self, index: usize) -> &'static str {
        let cut = matches!(self.finish, Some(FinishReason::Length | FinishReason::Timeout));
        if cut && index + 1 == self.items.len() { "incomplete" } else { "completed" }
    }

    fn push_part_event(&self, name: &str, index: usize, out: &mut Vec<u8>) {
        let part = Some(self.items[index].content());
        self.push_event(name, &Change { content_index: Some(0), part, ..self.at(index) }, out);
    }

    fn push_event(&self, name: &str, body: &impl Serialize, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        struct Event<'a, T> {
            sequence_number: u64,
            #[serde(flatten)]
            body: &'a T,
        }
        let sequence_number = self.sequence.replace(self.sequence.get() + 1);
        push_named_event(out, name, &Event { sequence_number, body });
    }

    /// An event at the place of an item, without a change.
    fn at(&self, index: usize) -> Change<'_, impl Serialize> {
        Change {
            output_index: index,
            item_id: Spelled(self.item_id(index)),
            text: None,
            arguments: None,
            name: None,
            content_index: None,
            delta: None,
            part: None,
            logprobs: None,
        }
    }

    fn item_id(&self, index: usize) -> impl Display {
        let prefix = match self.items[index].kind {
            Kind::Message => "msg",
            Kind::Reasoning => "rs",
            Kind::Call { .. } => "fc",
        };
        fmt::from_fn(move |f| write!(f, "{prefix}_{}_{index}", self.digits()))
    }

    fn digits(&self) -> &str {
        self.id.trim_start_matches("resp_")
    }

    fn item<'a>(&'a self, index: usize, status: &'a str) -> impl Serialize {
        #[derive(Serialize)]
        struct Shown<'a, I, C> {
            id: I,
            r#type: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            role: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            summary: Option<[(); 0]>,
            #[serde(skip_serializing_if = "Option::is_none")]
            call_id: Option<C>,
            #[serde(skip_serializing_if = "Option::is_none")]
            namespace: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            name: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            arguments: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            content: Option<List<Option<Text<'a>>>>,
            status: &'a str,
        }
        let item = &self.items[index];
        let call_id = fmt::from_fn(move |f| write!(f, "call_{}_{index}", self.digits()));
        let (mut role, mut summary, mut called) = (None, None, None);
        let r#type = match &item.kind {
            Kind::Message => {
                role = Some("assistant");
                "message"
            }
            Kind::Reasoning => {
                summary = Some([]);
                "reasoning"
            }
            Kind::Call { name } => {
                called = Some(self.fields.namespaces.split(name));
                "function_call"
            }
        };
        // A new item has no content yet.
        let content = (status != "in_progress").then(|| item.content());
        Shown {
            id: Spelled(self.item_id(index)),
            r#type,
            role,
            summary,
            call_id: called.map(|_| Spelled(call_id)),
            namespace: called.and_then(|(namespace, _)| namespace),
            name: called.map(|(_, name)| name),
            arguments: called.map(|_| item.text.as_str()),
            content: (!item.is_call()).then_some(List(content)),
            status,
        }
    }

    /// The response's object: with its output and `usage` at the end, and before that without.
    fn response(&self, usage: Option<Usage>) -> impl Serialize {
        #[derive(Serialize)]
        struct Shown<'a, E, O> {
            id: &'a str,
            object: &'a str,
            created_at: u64,
            status: &'a str,
            error: (),
            incomplete_details: Option<Details>,
            model: &'a str,
            #[serde(flatten)]
            echo: E,
            output: O,
            usage: Option<Tokens>,
        }
        #[derive(Serialize)]
        struct Details {
            reason: &'static str,
        }
        let cut = matches!(self.finish, Some(FinishReason::Length | FinishReason::Timeout));
        let is_cut = usage.is_some() && cut;
        let status = match usage {
            None => "in_progress",
            Some(_) if cut => "incomplete",
            Some(_) => "completed",
        };
        let echo = self.fields.echo.iter();
        let output = 0..usage.map_or(0, |_| self.items.len());
        Shown {
            id: &self.id,
            object: "response",
            created_at: self.created,
            status,
            error: (),
            incomplete_details: is_cut.then_some(Details { reason: "max_output_tokens" }),
            model: &self.model,
            echo: Object(echo.map(|(name, json)| (name, Written(json)))),
            output: List(output.map(|index| self.item(index, self.status_of(index)))),
            usage: usage.map(|usage| Tokens::new(usage, self.reasoning_tokens)),
        }
    }

    /// The output as a message of the conversation.
    fn message(&self) -> Message {
        let mut message = Message { role: Role::Assistant, ..Message::default() };
        for (index, item) in self.items.iter().enumerate() {
            match &item.kind {
                Kind::Message => message.content = Content::Text(item.text.clone()),
                Kind::Reasoning => message.reasoning = Some(item.text.clone()),
                Kind::Call { name } => message.tool_calls.push(ToolCall {
                    id: format!("call_{}_{index}", self.digits()),
                    name: name.clone(),
                    arguments: digits::parse(&item.text)
                        .unwrap_or_else(|_| item.text.as_str().into()),
                }),
            }
        }
        message
    }
}

impl Item {
    fn is_call(&self) -> bool {
        matches!(self.kind, Kind::Call { .. })
    }

    /// The part that holds the text.
    fn content(&self) -> Text<'_> {
        let is_message = self.kind == Kind::Message;
        Text {
            r#type: if is_message { "output_text" } else { "reasoning_text" },
            text: &self.text,
            annotations: is_message.then_some([]),
            logprobs: is_message.then_some(&self.logprobs),
        }
    }
}

#[derive(Clone, Copy, Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<[(); 0]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<&'a WrittenList>,
}

/// The members of an event about the whole response.
#[derive(Serialize)]
struct Whole<T> {
    response: T,
}

/// Those of an event about a whole item.
#[derive(Serialize)]
struct Added<T> {
    output_index: usize,
    item: T,
}

/// Those of the other events.
#[derive(Serialize)]
struct Change<'a, I> {
    output_index: usize,
    item_id: I,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<&'a WrittenList>,
}

/// `usage`.
#[derive(Serialize)]
struct Tokens {
    input_tokens: u64,
    input_tokens_details: Input,
    output_tokens: u64,
    output_tokens_details: Output,
    total_tokens: u64,
}

#[derive(Serialize)]
struct Input {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Serialize)]
struct Output {
    reasoning_tokens: u64,
}

impl Tokens {
    fn new(usage: Usage, reasoning_tokens: u64) -> Self {
        let Usage { prompt_tokens, cached_tokens, completion_tokens } = usage;
        Self {
            input_tokens: prompt_tokens,
            input_tokens_details: Input { cached_tokens, cache_write_tokens: 0 },
            output_tokens: completion_tokens,
            output_tokens_details: Output { reasoning_tokens },
            total_tokens: prompt_tokens + completion_tokens,
        }
    }
}

impl Reply for ResponsesReply {
    fn options(&self) -> &ReplyOptions {
        &self.options
    }

    /// The last event repeats the whole text.
    fn keeps_text(&self) -> bool {
        true
    }

    fn push_delta(&mut self, _: usize, delta: Delta<'_>, out: &mut Vec<u8>) {
        push_tokens(&mut self.logprobs, delta.logprobs, false);
        self.finish = delta.finish;
        let mut parser = self.parser.take().expect("it is put back");
        let mut thought = false;
        let mut push = |part: Part<'_>| {
            thought |= matches!(part, Part::Reasoning(_));
            self.push_part(part, out);
        };
        parser.push(delta.text, &mut push);
        if let Some(finish) = delta.finish {
            parser.finish(finish != FinishReason::Stop, &mut push);
        }
        self.parser = Some(parser);
        self.reasoning_tokens += u64::from(thought);
        if delta.finish.is_some() {
            if self.items.is_empty() {
                self.begin_item(Kind::Message, out);
            }
            self.end_item(out);
        }
    }

    fn push_end(&mut self, summary: Summary, _: Micros, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        push_json(&mut body, &self.response(Some(summary.usage)));
        if self.options.stream {
            let cut = matches!(self.finish, Some(FinishReason::Length | FinishReason::Timeout));
            let name = if cut { "response.incomplete" } else { "response.completed" };
            self.push_event(name, &Whole { response: Written(&body) }, out);
        } else {
            out.extend_from_slice(&body);
        }
        if self.fields.store {
            let mut turn = std::mem::take(&mut self.turn);
            turn.push(&self.message());
            let items = std::mem::take(&mut self.fields.items);
            let (id, body) = (self.id.clone(), Arc::new(body));
            let stored = Stored { id, body, items, turn: Arc::new(turn) };
            self.stored = Some(Box::new(stored));
        }
    }

    fn take_stored(&mut self) -> Option<Box<Stored>> {
        self.stored.take()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::chat::output::{ParserOptions, ReasoningSyntax, ToolSyntax};

    const SAID: &str = "<think>\nHm.\n</think>\n\nI add.\n\
        <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3}}\n</tool_call>";

    fn reply(stream: bool) -> ResponsesReply {
        let context = ReplyContext {
            id: "resp_1".into(),
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
        let fields = ResponseFields {
            echo: vec![("store".into(), b"true"[..].into())],
            store: true,
            ..ResponseFields::default()
        };
        let turn = Turn::new(&[Message::default()]);
        let facts = PromptFacts { choices: 1, parser, turn, ..Default::default() };
        let options = ReplyOptions { stream, ..Default::default() };
        ResponsesReply::new(Box::new(fields), options, facts, &context)
    }

    fn say(reply: &mut ResponsesReply, pieces: &[&str], finish: FinishReason) -> String {
        let mut out = Vec::new();
        for text in pieces {
            reply.push_delta(0, Delta { text, ..Delta::default() }, &mut out);
        }
        let finish = Some(finish);
        reply.push_delta(0, Delta { finish, ..Delta::default() }, &mut out);
        let usage = Usage { prompt_tokens: 7, cached_tokens: 4, completion_tokens: 9 };
        reply.push_end(Summary { usage, ..Summary::default() }, Micros(0), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_whole_response_has_an_item_of_each_kind() {
        let mut reply = reply(false);
        let text = say(&mut reply, &[SAID], FinishReason::Stop);
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&response["status"], &response["store"]), (&"completed".into(), &true.into()));
        let output = &response["output"];
        assert_eq!(output[0]["content"][0], json!({"type": "reasoning_text", "text": "Hm."}));
        assert_eq!(output[1]["content"][0]["text"].as_str().unwrap().trim(), "I add.");
        let call = json!({"id": "fc_1_2", "type": "function_call", "call_id": "call_1_2",
            "name": "add", "arguments": "{\"a\": 3}", "status": "completed"});
        assert_eq!(output[2], call);
        assert_eq!(response["usage"]["total_tokens"], 16);

        let stored = reply.take_stored().unwrap();
        assert_eq!((stored.id.as_str(), &*stored.body), ("resp_1", &text.into_bytes()));
        let mut next = Turn::default();
        next.follow(stored.turn).unwrap();
        let said = &next.messages_before()[1];
        assert_eq!((said.role, said.reasoning.as_deref()), (Role::Assistant, Some("Hm.")));
        assert_eq!(said.tool_calls[0].arguments, json!({"a": 3}));
        assert!(reply.take_stored().is_none());
    }

    #[test]
    fn events_come_in_the_order_that_clients_want() {
        let mut reply = reply(true);
        let pieces: Vec<&str> = SAID.split_inclusive(' ').collect();
        let out = say(&mut reply, &pieces, FinishReason::Stop);
        let (mut names, mut arguments, mut last) = (Vec::new(), String::new(), Value::Null);
        for (number, event) in out.split_terminator("\n\n").enumerate() {
            let (name, data) = event.strip_prefix("event: ").unwrap().split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!((&data["type"], &data["sequence_number"]), (&name.into(), &number.into()));
            if name == "response.function_call_arguments.delta" {
                arguments.push_str(data["delta"].as_str().unwrap());
            }
            names.push(name.trim_start_matches("response.").to_owned());
            last = data;
        }
        names.dedup();
        let text = |kind: &str| {
            [
                "output_item.added",
                "content_part.added",
                &format!("{kind}.delta"),
                &format!("{kind}.done"),
                "content_part.done",
                "output_item.done",
            ]
            .map(str::to_owned)
            .to_vec()
        };
        let call = [
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed",
        ];
        let expected = [
            vec!["created".to_owned(), "in_progress".to_owned()],
            text("reasoning_text"),
            text("output_text"),
            call.map(str::to_owned).to_vec(),
        ];
        assert_eq!(names, expected.concat());
        assert_eq!(arguments, "{\"a\": 3}");
        let stored = reply.take_stored().unwrap();
        assert_eq!(last["response"], serde_json::from_slice::<Value>(&stored.body).unwrap());
    }

    #[test]
    fn a_text_that_is_cut_off_is_incomplete_and_an_empty_one_is_a_message() {
        let text = say(&mut reply(false), &["Once"], FinishReason::Length);
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
        assert_eq!(response["output"][0]["status"], "incomplete");
        let text = say(&mut reply(false), &[], FinishReason::Stop);
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(response["output"][0]["content"][0]["text"], "");
        let events = say(&mut reply(true), &[], FinishReason::Stop);
        assert!(events.starts_with("event: response.created\n"), "{events}");
    }
}
