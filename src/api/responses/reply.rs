//! Writes the reply of `/v1/responses`, whole or as events.

use std::io::Write;
use std::sync::Arc;

use super::fields::ResponseFields;
use super::stored::Stored;
use crate::api::logprobs::TokenList;
use crate::api::reply::{Delta, FinishReason, Reply, ReplyContext, ReplyOptions, Summary, Usage};
use crate::api::write::{push_string, push_string_inside};
use crate::chat::conversation::{Content, Message, Role, ToolCall};
use crate::chat::output::{Parser, Part};
use crate::clock::Micros;

/// The reply of one request.
#[derive(Debug)]
pub struct ResponsesReply {
    options: ReplyOptions,
    fields: Box<ResponseFields>,
    /// `resp_` and digits.
    id: String,
    model: String,
    created: u64,
    /// `None` only while it is being fed.
    parser: Option<Parser>,
    items: Vec<Item>,
    /// The number of the next event.
    sequence: u64,
    /// Log-probabilities whose text has not come yet.
    logprobs: TokenList,
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
    logprobs: TokenList,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Message,
    Reasoning,
    Call { name: String },
}

impl ResponsesReply {
    /// A reply without any text yet.
    ///
    /// # Panics
    /// If the request was not one of this dialect.
    pub fn new(mut options: ReplyOptions, context: &ReplyContext) -> Self {
        Self {
            fields: options.response.take().expect("this dialect's requests have them"),
            id: context.id.clone(),
            model: context.model.clone(),
            created: context.created,
            parser: Some(Parser::new(options.parser.clone())),
            options,
            items: Vec::new(),
            sequence: 0,
            logprobs: TokenList::default(),
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
            self.begin_event(name, out);
            self.push_place(index, out);
            if !is_call {
                out.extend_from_slice(b",\"content_index\":0");
            }
            out.extend_from_slice(b",\"delta\":\"");
            push_string_inside(out, text);
            out.push(b'"');
            if is_message {
                out.extend_from_slice(b",\"logprobs\":");
                self.logprobs.push(out);
            }
            end_event(out);
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
        self.items.push(Item { kind, text: String::new(), logprobs: TokenList::default() });
        if !self.options.stream {
            return;
        }
        if self.sequence == 0 {
            for name in ["response.created", "response.in_progress"] {
                self.begin_event(name, out);
                out.extend_from_slice(b",\"response\":");
                self.push_response(None, out);
                end_event(out);
            }
        }
        self.begin_event("response.output_item.added", out);
        write!(out, ",\"output_index\":{index},\"item\":").expect("memory");
        self.push_item(index, "in_progress", out);
        end_event(out);
        if !is_call {
            self.push_part_event("response.content_part.added", index, out);
        }
    }

    /// Ends the last item, if there is one.
    fn end_item(&mut self, out: &mut Vec<u8>) {
        let Some(index) = self.items.len().checked_sub(1).filter(|_| self.options.stream) else {
            return;
        };
        let item = &self.items[index];
        let (name, field) = match item.kind {
            Kind::Message => ("response.output_text.done", "text"),
            Kind::Reasoning => ("response.reasoning_text.done", "text"),
            Kind::Call { .. } => ("response.function_call_arguments.done", "arguments"),
        };
        self.begin_event(name, out);
        self.push_place(index, out);
        let item = &self.items[index];
        write!(out, ",\"{field}\":").expect("memory");
        push_string(out, &item.text);
        match &item.kind {
            Kind::Call { name } => {
                out.extend_from_slice(b",\"name\":");
                push_string(out, name);
            }
            Kind::Message => {
                out.extend_from_slice(b",\"content_index\":0,\"logprobs\":");
                item.logprobs.push(out);
            }
            Kind::Reasoning => out.extend_from_slice(b",\"content_index\":0"),
        }
        end_event(out);
        if !self.items[index].is_call() {
            self.push_part_event("response.content_part.done", index, out);
        }
        self.begin_event("response.output_item.done", out);
        write!(out, ",\"output_index\":{index},\"item\":").expect("memory");
        let status = self.status_of(index);
        self.push_item(index, status, out);
        end_event(out);
    }

    /// `completed`, or `incomplete` for the last item of a text that was cut off.
    fn status_of(&self, index: usize) -> &'static str {
        let cut = matches!(self.finish, Some(FinishReason::Length | FinishReason::Timeout));
        if cut && index + 1 == self.items.len() { "incomplete" } else { "completed" }
    }

    fn push_part_event(&mut self, name: &str, index: usize, out: &mut Vec<u8>) {
        self.begin_event(name, out);
        self.push_place(index, out);
        out.extend_from_slice(b",\"content_index\":0,\"part\":");
        self.items[index].push_content(out);
        end_event(out);
    }

    /// Writes the start of an event, up to its own members.
    fn begin_event(&mut self, name: &str, out: &mut Vec<u8>) {
        let number = self.sequence;
        self.sequence += 1;
        write!(out, "event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":{number}")
            .expect("memory");
    }

    fn push_place(&self, index: usize, out: &mut Vec<u8>) {
        write!(out, ",\"output_index\":{index},\"item_id\":\"").expect("memory");
        self.push_item_id(index, out);
        out.push(b'"');
    }

    fn push_item_id(&self, index: usize, out: &mut Vec<u8>) {
        let prefix = match self.items[index].kind {
            Kind::Message => "msg",
            Kind::Reasoning => "rs",
            Kind::Call { .. } => "fc",
        };
        write!(out, "{prefix}_{}_{index}", self.digits()).expect("memory");
    }

    fn digits(&self) -> &str {
        self.id.trim_start_matches("resp_")
    }

    fn push_item(&self, index: usize, status: &str, out: &mut Vec<u8>) {
        let item = &self.items[index];
        out.extend_from_slice(b"{\"id\":\"");
        self.push_item_id(index, out);
        // A new item has no content yet.
        let has_content = status != "in_progress";
        match &item.kind {
            Kind::Message => {
                out.extend_from_slice(
                    b"\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[",
                );
            }
            Kind::Reasoning => {
                out.extend_from_slice(b"\",\"type\":\"reasoning\",\"summary\":[],\"content\":[");
            }
            Kind::Call { name } => {
                write!(
                    out,
                    "\",\"type\":\"function_call\",\"call_id\":\"call_{}_{index}\"",
                    self.digits()
                )
                .expect("memory");
                out.extend_from_slice(b",\"name\":");
                push_string(out, name);
                out.extend_from_slice(b",\"arguments\":");
                push_string(out, &item.text);
            }
        }
        if !item.is_call() {
            if has_content {
                item.push_content(out);
            }
            out.push(b']');
        }
        write!(out, ",\"status\":\"{status}\"}}").expect("memory");
    }

    /// Writes the response's object: with its output and `usage` at the end, and before that
    /// without.
    fn push_response(&self, usage: Option<Usage>, out: &mut Vec<u8>) {
        let status = match (usage, self.finish) {
            (None, _) => "in_progress",
            (_, Some(FinishReason::Length | FinishReason::Timeout)) => "incomplete",
            _ => "completed",
        };
        out.extend_from_slice(b"{\"id\":");
        push_string(out, &self.id);
        write!(
            out,
            ",\"object\":\"response\",\"created_at\":{},\"status\":\"{status}\",\"error\":null,\
             \"incomplete_details\":",
            self.created
        )
        .expect("memory");
        out.extend_from_slice(match status {
            "incomplete" => b"{\"reason\":\"max_output_tokens\"}",
            _ => b"null",
        });
        out.extend_from_slice(b",\"model\":");
        push_string(out, &self.model);
        out.push(b',');
        out.extend_from_slice(self.fields.echo.as_bytes());
        out.extend_from_slice(b",\"output\":[");
        for index in 0..usage.map_or(0, |_| self.items.len()) {
            if index > 0 {
                out.push(b',');
            }
            self.push_item(index, self.status_of(index), out);
        }
        out.extend_from_slice(b"],\"usage\":");
        match usage {
            Some(usage) => push_usage(usage, self.reasoning_tokens, out),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
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
                    arguments: serde_json::from_str(&item.text)
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

    /// Writes the part that holds the text.
    fn push_content(&self, out: &mut Vec<u8>) {
        let kind = if self.kind == Kind::Message { "output_text" } else { "reasoning_text" };
        write!(out, "{{\"type\":\"{kind}\",\"text\":").expect("memory");
        push_string(out, &self.text);
        if self.kind == Kind::Message {
            out.extend_from_slice(b",\"annotations\":[],\"logprobs\":");
            self.logprobs.push(out);
        }
        out.push(b'}');
    }
}

fn end_event(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n\n");
}

fn push_usage(usage: Usage, reasoning_tokens: u64, out: &mut Vec<u8>) {
    let Usage { prompt_tokens, cached_tokens, completion_tokens } = usage;
    write!(
        out,
        "{{\"input_tokens\":{prompt_tokens},\"input_tokens_details\":{{\"cached_tokens\":\
         {cached_tokens},\"cache_write_tokens\":0}},\"output_tokens\":{completion_tokens},\
         \"output_tokens_details\":{{\"reasoning_tokens\":{reasoning_tokens}}},\
         \"total_tokens\":{}}}",
        prompt_tokens + completion_tokens
    )
    .expect("memory");
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
        self.logprobs.extend(delta.logprobs, false);
        self.finish = delta.finish;
        let mut parser = self.parser.take().expect("it is put back");
        let mut thought = false;
        let mut push = |part: Part<'_>| {
            thought |= matches!(part, Part::Reasoning(_));
            self.push_part(part, out);
        };
        parser.push(delta.text, &mut push);
        if delta.finish.is_some() {
            parser.finish(&mut push);
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
        self.push_response(Some(summary.usage), &mut body);
        if self.options.stream {
            let cut = matches!(self.finish, Some(FinishReason::Length | FinishReason::Timeout));
            let name = if cut { "response.incomplete" } else { "response.completed" };
            self.begin_event(name, out);
            out.extend_from_slice(b",\"response\":");
            out.extend_from_slice(&body);
            end_event(out);
        } else {
            out.extend_from_slice(&body);
        }
        if self.fields.store {
            let mut turn = std::mem::take(&mut self.fields.turn);
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
    use crate::api::responses::turn::Turn;
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
            echo: "\"store\":true".into(),
            store: true,
            turn: Turn::new(&[Message::default()]),
            ..ResponseFields::default()
        };
        let response = Some(Box::new(fields));
        ResponsesReply::new(
            ReplyOptions { choices: 1, stream, parser, response, ..Default::default() },
            &context,
        )
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
