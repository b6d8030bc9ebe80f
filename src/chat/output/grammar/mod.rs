//! Builds a grammar that makes a model call tools, in llguidance's Lark dialect.
//!
//! In: a request's tools and its `tool_choice`. Out: the grammar's text. The
//! [`Parser`](super::Parser) can read every call that the grammar accepts, and the call's arguments
//! obey the tool's JSON schema.
//!
//! If calls are only permitted, the text is free until a call starts: at a marker or, in a syntax
//! without markers, at text that starts like a call. From there on the text must be a whole call,
//! and the answer ends after it. If the request has a JSON schema for the answer, an answer either
//! obeys it or consists of calls.
//!
//! A tool's arguments obey its schema in JSON. In other notations they have the schema's members and
//! their types; a text between tags or in Gemma's quotes has no escapes, so it is free up to the
//! closing marker.
//!
//! A grammar accepts only the special tokens that it names. This one names the tokens of reasoning
//! and of answers of the model's own template, and no others.
//!
//! - `schema`: schemas of tools and of their members.
//! - `tagged`, `notation`: arguments that are not JSON.

mod notation;
mod rules;
mod schema;
mod tagged;

use serde_json::Value;

use self::notation::Notation;
use self::rules::{Grammar, literal};
use self::schema::{schema_of_object, without_annotations};
use super::form::{Form, Syntax};
use super::offered::ToolSpec;
use super::reasoning::ReasoningSyntax;
use super::syntax::ToolSyntax;

/// The calls that an answer must have: OpenAI's `tool_choice`, except `none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallRule {
    /// Any number, including none.
    Auto,
    /// At least one.
    Required,
    /// One call of this function.
    Named(String),
}

/// The other inputs of a grammar.
pub struct GrammarOptions<'a> {
    /// Whether an answer may have more than one call.
    pub parallel: bool,
    /// The markers of the model's reasoning, if it may reason before it answers.
    pub reasoning: Option<ReasoningSyntax>,
    /// Whether the prompt ends inside a block of reasoning, so that the answer starts in it.
    pub reasoning_is_open: bool,
    /// The JSON schema of an answer without calls.
    pub form: Option<&'a Value>,
    /// The id of the token whose text is exactly this, special or not.
    pub token: &'a dyn Fn(&str) -> Option<u32>,
}

impl ToolSyntax {
    /// A grammar for answers to a request with `tools`. `None` if `choice` leaves no tool: `tools`
    /// is empty, or no tool has the chosen name.
    pub fn grammar(
        self,
        tools: &[ToolSpec],
        choice: &CallRule,
        options: &GrammarOptions<'_>,
    ) -> Option<String> {
        let chosen = |tool: &&ToolSpec| match choice {
            CallRule::Named(name) => tool.name == *name,
            CallRule::Auto | CallRule::Required => true,
        };
        let tools: Vec<&ToolSpec> = tools.iter().filter(chosen).collect();
        if tools.is_empty() {
            return None;
        }
        let mut grammar = Grammar {
            row: self.row(),
            reasoning: options.reasoning,
            token: options.token,
            rules: String::new(),
            shared: Vec::new(),
        };
        grammar.rule("TEXT", "/(.|\\n)*/");
        grammar.rule("SPACE", "/[ \\n]{1,4}/");
        let parallel = options.parallel && !matches!(choice, CallRule::Named(_));
        grammar.calls(&tools, parallel);
        let is_free = *choice == CallRule::Auto;
        let form = options.form.map(|schema| format!("%json {}", without_annotations(schema)));
        if self == ToolSyntax::Harmony {
            grammar.messages(is_free, form.as_deref());
        } else {
            grammar.answer(is_free, form.as_deref());
            grammar.start(options);
        }
        Some(grammar.rules)
    }
}

impl Grammar<'_> {
    /// Adds the rule `more`: one call or several, from the first call's name on.
    fn calls(&mut self, tools: &[&ToolSpec], parallel: bool) {
        for (i, tool) in tools.iter().enumerate() {
            if self.is_too_long() {
                return;
            }
            let head = match self.row.has_index {
                true => {
                    self.rule_once("INDEX", "/[0-9]{1,4}/");
                    let name = literal(&format!("{}:", tool.name));
                    format!("{name} INDEX {}", self.text(self.row.infix))
                }
                false => self.text(&format!("{}{}", tool.name, self.row.infix)),
            };
            let arguments = match self.row.form {
                Form::Json => format!("%json {}", schema_of_object(&tool.parameters)),
                Form::Tagged(tags) => tagged::arguments(self, tags, i, tool),
                Form::Gemma => notation::arguments(self, Notation::Gemma, i, tool),
                Form::Python => notation::arguments(self, Notation::Python, i, tool),
            };
            self.rule(&format!("call_{i}"), &format!("{head} {arguments}"));
        }
        let names: Vec<String> = (0..tools.len()).map(|i| format!("call_{i}")).collect();
        self.rule("call", &names.join(" | "));
        let Syntax { between, end, .. } = self.row;
        let parallel = parallel && !between.is_empty();
        let last = self.end_of_calls(parallel);
        let body = match between.strip_prefix(end).filter(|_| parallel && !end.is_empty()) {
            // White space after a call does not decide whether another call follows.
            Some(next) => format!("call {last} ( {} call {last} )*", self.text(next.trim_start())),
            None if parallel => format!("call ( {} call )* {last}", self.text(between)),
            None => format!("call {last}"),
        };
        self.rule("more", &body);
    }

    /// The text behind the last call. Some models write a line break there before they end. It is
    /// allowed, because otherwise the line break could only be the start of another call.
    fn end_of_calls(&mut self, may_go_on: bool) -> String {
        let mut parts = self.parts(self.row.end);
        match parts.pop() {
            None => {}
            Some(last) if !may_go_on => parts.push(last),
            Some(token) if token.starts_with('<') => parts.extend([token, "SPACE?".into()]),
            // One lexeme, as the longer text before another call is.
            Some(text) => {
                self.rule("LAST", &format!("{text} /[ \\n]{{0,4}}/"));
                parts.push("LAST".into());
            }
        }
        parts.join(" ")
    }

    /// Adds the rule `answer`: calls in free text, calls alone, or calls instead of a form.
    fn answer(&mut self, is_free: bool, form: Option<&str>) {
        let begin = self.text(self.row.begin);
        // Some tokenizers put a space before a list.
        let space = if self.row.begin.starts_with('[') { "SPACE?" } else { "" };
        let calls = format!("{space} {begin} more");
        if !is_free || form.is_some() {
            let open = if self.row.bare { String::new() } else { self.text(self.row.open[0]) };
            let form = form.filter(|_| is_free).map(|form| format!("| SPACE? {form}"));
            let form = form.unwrap_or_default();
            self.rule("answer", &format!("SPACE? {open} {calls} {form}"));
            return;
        }
        let opened = self.until("opened", self.row.open[0]);
        let mut answers = vec!["TEXT".to_owned(), format!("{opened} {calls}")];
        if let Some(short) = self.row.short_open {
            answers.push(format!("{} more", self.until("opened_short", short)));
        }
        if self.row.bare {
            // Lazy: text that starts like a call is a call, not free text.
            self.rule("bare[lazy]", &format!("SPACE? {begin}"));
            answers.push("bare more".to_owned());
        }
        let noise: Vec<String> = self.row.noise.iter().filter_map(|n| self.one_token(n)).collect();
        let before = if noise.is_empty() {
            String::new()
        } else {
            format!("( TEXT ( {} ) )*", noise.join(" | "))
        };
        self.rule("answer", &format!("{before} ( {} )", answers.join(" | ")));
    }

    /// Adds the rule `start`: reasoning, then the answer.
    fn start(&mut self, options: &GrammarOptions<'_>) {
        let Some(syntax) = options.reasoning else { return self.rule("start", "answer") };
        let closed = self.until("closed", syntax.closer());
        if options.reasoning_is_open {
            return self.rule("start", &format!("( {closed} ) answer"));
        }
        let opened = self.after("thinks", "", syntax.opener());
        self.rule("start", &format!("( ( {opened} ) ( {closed} ) )? answer"));
    }

    /// Adds the rule `start` of harmony: messages on channels, the last of which may be a call.
    fn messages(&mut self, is_free: bool, form: Option<&str>) {
        let body = self.until("body", "<|end|>");
        let channel = self.text("<|channel|>");
        let message = self.text("<|message|>");
        let next = self.text("<|start|>assistant");
        // Comments (channel `commentary`) are text of the answer. An answer with a schema has no
        // comments.
        let comments = is_free && form.is_none();
        let names = if comments { "( \"analysis\" | \"commentary\" )" } else { "\"analysis\"" };
        self.rule("before", &format!("{channel} {names} {message} ( {body} ) {next}"));
        let call = format!("{channel} {} more", self.text(self.row.begin));
        if is_free {
            let last = format!("{channel} \"final\" {message} {}", form.unwrap_or("TEXT"));
            self.rule("start", &format!("before* ( {last} | {call} )"));
        } else {
            self.rule("start", &format!("before? {call}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> Vec<ToolSpec> {
        let schema = json!({"properties": {"city": {"type": "string"}}});
        vec![
            ToolSpec { name: "weather".into(), parameters: schema },
            ToolSpec { name: "now".into(), parameters: Value::Null },
        ]
    }

    fn grammar(syntax: ToolSyntax, choice: CallRule, reasoning: bool) -> String {
        let token = |text: &str| (text == "<tool_call>" || text == "</think>").then_some(7u32);
        let options = GrammarOptions {
            parallel: true,
            reasoning: reasoning.then_some(ReasoningSyntax::Think),
            reasoning_is_open: false,
            form: None,
            token: &token,
        };
        syntax.grammar(&tools(), &choice, &options).unwrap()
    }

    #[test]
    fn markers_that_are_tokens_are_written_as_tokens() {
        let lark = grammar(ToolSyntax::Hermes, CallRule::Required, false);
        assert!(lark.contains(r#"answer: SPACE? <[7]>  "\n{\"name\": \"" more"#), "{lark}");
        let more = r#"more: call LAST ( <[7]> "\n{\"name\": \"" call LAST )*"#;
        assert!(lark.contains(more), "{lark}");
        assert!(lark.contains(r#"LAST: "}\n</tool_call>" /[ \n]{0,4}/"#), "{lark}");
        let lark = grammar(ToolSyntax::Hermes, CallRule::Auto, true);
        assert!(lark.contains("( TEXT | TEXT <[7]> "), "{lark}");
        assert!(lark.contains("thinks[lazy]:  ( \"<think>\" )"), "{lark}");
        assert!(lark.contains("start: ( ( thinks ) ( TEXT <[7]> ) )? answer"), "{lark}");
    }

    #[test]
    fn arguments_are_bound_to_the_schema_of_the_tool_called() {
        let lark = grammar(ToolSyntax::Llama3, CallRule::Required, false);
        let schema = r#"{"type":"object","properties":{"city":{"type":"string"}}}"#;
        let head = r#"call_0: "weather\", \"parameters\": " %json "#;
        assert!(lark.contains(head), "{lark}");
        let (_, schema_of_weather) = lark.split_once(head).unwrap();
        let written = schema_of_weather.lines().next().unwrap();
        let value: Value = serde_json::from_str(written).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(schema).unwrap());
        assert!(
            lark.contains(r#"call_1: "now\", \"parameters\": " %json {"type":"object"}"#),
            "{lark}"
        );
    }

    #[test]
    fn a_named_tool_is_the_only_one_and_is_called_once() {
        let lark = grammar(ToolSyntax::Hermes, CallRule::Named("now".into()), false);
        assert!(!lark.contains("weather") && !lark.contains("call )*"), "{lark}");
        let options = GrammarOptions {
            parallel: true,
            reasoning: None,
            reasoning_is_open: false,
            form: None,
            token: &|_| None,
        };
        let none = CallRule::Named("never".into());
        assert_eq!(ToolSyntax::Hermes.grammar(&tools(), &none, &options), None);
        assert_eq!(ToolSyntax::Hermes.grammar(&[], &CallRule::Auto, &options), None);
    }
}
