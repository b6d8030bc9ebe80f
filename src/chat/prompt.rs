//! Turns a conversation into a prompt with the model's own template, and chooses how the model's
//! answer is parsed.

use std::sync::Arc;

use minijinja::Value;
use minijinja::value::Serde;
use serde_json::json;
use time::OffsetDateTime;

use super::branches;
use super::conversation::{Content, Conversation, Message, Role, Tool, ToolChoice, UNLIMITED};
use super::generic;
use super::ids::{name_calls, short_id};
use super::mended::{mended, strictly};
use super::output::grammar::{CallRule, GrammarOptions};
use super::output::{OfferedTools, ParserOptions, ReasoningSyntax, ToolSpec, ToolSyntax};
use super::probe::{NEEDLE, has_system, shows_none, wants_parts};
use super::template::{Chat, ChatTemplate, TemplateError};
use super::value::{template_value, template_variable};

/// A chat model: its template, and the template's properties.
pub struct ChatModel {
    template: ChatTemplate,
    /// The template's source, for `/props`.
    pub source: String,
    /// The syntax of its tool calls, if the template supports tools. Otherwise tools get the
    /// [`generic`] form.
    tools: Option<ToolSyntax>,
    /// The markers of its reasoning, if it has any.
    reasoning: Option<ReasoningSyntax>,
    /// Whether the template shows a system message.
    has_system: bool,
    /// Whether the template knows the role `developer`.
    knows_developer: bool,
    /// Whether the template needs content as a list of parts, and cannot print a plain text.
    wants_parts: bool,
    /// Whether the template shows an answer without text as the word `None`.
    shows_none: bool,
    /// Whether a JSON object without a marker may be a call.
    fenced_calls: bool,
    /// The most tokens of reasoning of a request that does not say.
    reasoning_budget: Option<u32>,
    /// Whether to find the branches of prompts.
    finds_branches: bool,
}

/// The tokens of reasoning for each effort, for templates that do not know efforts: those of
/// Gemini's API.
const EFFORTS: [(&str, u32); 7] = [
    ("none", 0),
    ("minimal", 1024),
    ("low", 1024),
    ("medium", 8192),
    ("high", 24_576),
    ("xhigh", UNLIMITED),
    ("max", UNLIMITED),
];

/// The parts of a vocabulary that a prompt needs.
pub struct Tokens<'a> {
    /// Marks a client's text, so that it has no control token.
    pub guard: &'a dyn Fn(&str) -> String,
    /// Finds the token whose text is exactly the argument, for the grammar of tool calls.
    pub of_text: &'a dyn Fn(&str) -> Option<u32>,
}

/// A prompt, and how to parse the generated text.
#[derive(Clone, Debug)]
pub struct ChatPrompt {
    /// The text. The template's special tokens are written out; texts of the client are guarded.
    pub text: String,
    /// How to split the answer.
    pub parser: ParserOptions,
    /// Grammars in llguidance's Lark, if tools may be called. The first one obeys the schemas of all
    /// tools, the second one only those of strict tools. It is for schemas that are too large, or
    /// that no value fits.
    pub grammars: Vec<String>,
    /// Whether the answer may do without a grammar: no tool must be called, and none is strict.
    pub is_free: bool,
    /// The most tokens of reasoning, if that has a limit.
    pub reasoning_budget: Option<u32>,
    /// The places in the text where later prompts will probably part from it, in bytes: another
    /// conversation with the same system message and tools, another last question, another answer.
    pub branches: Vec<usize>,
    /// The template's error, if it refused the conversation until that was
    /// mended.
    pub refused: Option<TemplateError>,
}

/// Why a conversation has no prompt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The template refused it, or failed.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A tool call could not be told from an answer in JSON.
    #[error(
        "this model calls tools in plain JSON, which cannot be told from an answer in JSON; set \
         tool_choice to none or required"
    )]
    FormLikeCalls,
    /// The answer cannot continue at the end of the last message.
    #[error(
        "this model's chat template does not end with the last message, so it cannot be continued"
    )]
    NotContinuable,
}

impl ChatModel {
    /// A model with this template. `bos` and `eos` are the texts of its tokens.
    ///
    /// # Errors
    /// The template's error.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let template = ChatTemplate::new(source, bos, eos)?;
        Ok(Self {
            tools: ToolSyntax::of_template(source).filter(|_| template.mentions("tools")),
            reasoning: ReasoningSyntax::of_template(source),
            knows_developer: template.mentions("developer"),
            wants_parts: wants_parts(&template),
            has_system: has_system(&template),
            shows_none: shows_none(&template),
            source: source.to_owned(),
            template,
            fenced_calls: true,
            reasoning_budget: None,
            finds_branches: false,
        })
    }

    /// Sets the most tokens of reasoning of a request that does not say. The default is no limit.
    pub fn with_reasoning_budget(self, reasoning_budget: Option<u32>) -> Self {
        Self { reasoning_budget, ..self }
    }

    /// Sets whether to find the places where later prompts will probably part from a prompt
    /// ([`ChatPrompt::branches`]). The default is `false`: it takes more renderings.
    pub fn with_branches(self, finds_branches: bool) -> Self {
        Self { finds_branches, ..self }
    }

    /// Sets whether a JSON object without a marker, bare or in a code fence, is a call if it is one
    /// of an offered tool. The default is `true`.
    pub fn with_fenced_calls(self, fenced_calls: bool) -> Self {
        Self { fenced_calls, ..self }
    }

    /// The abilities of the template itself, with the names of llama.cpp's `caps`. Tools also work
    /// with templates that do not support them.
    pub fn abilities(&self) -> [(&'static str, bool); 6] {
        [
            ("tools", self.tools.is_some()),
            ("tool_calls", self.tools.is_some()),
            ("system_role", self.has_system),
            ("string_content", !self.wants_parts),
            ("typed_content", self.wants_parts),
            ("reasoning_effort", self.template.mentions("reasoning_effort")),
        ]
    }

    /// Renders the prompt of a conversation.
    ///
    /// **Invariant:** only the template's own text can be a control token. Every text of the
    /// client that the template sees is guarded.
    ///
    /// # Errors
    /// See [`ChatError`].
    pub fn prompt(
        &self,
        conversation: &Conversation,
        split_reasoning: bool,
        now: OffsetDateTime,
        tokens: &Tokens,
    ) -> Result<ChatPrompt, ChatError> {
        let has_tools = conversation.tool_choice != ToolChoice::None;
        if conversation.tool_choice == ToolChoice::Auto
            && conversation.form.is_some()
            && self.tools.is_some_and(ToolSyntax::is_bare)
        {
            return Err(ChatError::FormLikeCalls);
        }
        let continues_final = conversation.continue_final_message;
        let mut shown = conversation.clone();
        shown.map_texts(tokens.guard);
        let Conversation { mut messages, tools: shown_tools, mut template_kwargs, .. } = shown;
        let reasoning_budget = self.reasoning_budget(conversation);
        if reasoning_budget == Some(0) {
            template_kwargs.insert("enable_thinking".to_owned(), false.into());
        }
        let is_system = |m: &Message| matches!(m.role, Role::System | Role::Developer);
        if !self.has_system && messages.iter().any(is_system) {
            messages = mended(messages, false);
        }
        if self.tools.is_none() {
            messages = generic::write_calls(messages);
            if has_tools {
                generic::describe_tools(&mut messages, &shown_tools, self.has_system);
            }
        }
        if self.tools == Some(ToolSyntax::Kimi) {
            name_calls(&mut messages);
        }
        if continues_final {
            mark(messages.last_mut())?;
        }
        let kwarg = |(name, value): (&String, &_)| (name.clone(), template_variable(value));
        let mut chat = Chat {
            messages: Value::UNDEFINED,
            tools: match self.tools {
                Some(_) if has_tools => tools(&shown_tools),
                _ => Value::UNDEFINED,
            },
            add_generation_prompt: !continues_final && !conversation.without_generation_prompt,
            kwargs: template_kwargs.iter().map(kwarg).collect(),
            now,
        };
        let kept = if self.finds_branches { messages.clone() } else { Vec::new() };
        let (mut text, refused) = self.rendered(&mut chat, messages)?;
        let mut branches = self.branches(&mut chat, kept, &text);
        if continues_final {
            text.truncate(text.rfind(NEEDLE).ok_or(ChatError::NotContinuable)?);
            branches.retain(|place| *place <= text.len());
        }
        let reasoning_is_open = self.reasoning.is_some_and(|syntax| syntax.is_open(&text));
        // Harmony's answers have channels with and without tools, so it always needs its parser.
        let tools = match self.tools {
            syntax @ Some(ToolSyntax::Harmony) => syntax,
            syntax if has_tools => Some(syntax.unwrap_or(generic::SYNTAX)),
            _ => None,
        };
        let offered = if has_tools { &conversation.tools[..] } else { &[] };
        let specs: Vec<ToolSpec> = offered.iter().map(spec).collect();
        let grammar = |specs: &[ToolSpec]| {
            let syntax = tools?;
            let choice = match &conversation.tool_choice {
                ToolChoice::Required => CallRule::Required,
                ToolChoice::Named(name) => CallRule::Named(name.clone()),
                ToolChoice::Auto | ToolChoice::None => CallRule::Auto,
            };
            let parallel = conversation.parallel_tool_calls;
            let may_reason = !matches!(choice, CallRule::Named(_)) || reasoning_is_open;
            let reasoning = self.reasoning.filter(|_| may_reason);
            let form = conversation.form.as_ref();
            let token = tokens.of_text;
            let options = GrammarOptions { parallel, reasoning, reasoning_is_open, form, token };
            // A model that may call a tool writes free text until it starts a call.
            if has_tools { syntax.grammar(specs, &choice, &options) } else { None }
        };
        let mut grammars: Vec<String> = grammar(&specs).into_iter().collect();
        if offered.iter().any(|tool| !tool.is_strict) {
            let loose: Vec<ToolSpec> = offered.iter().map(loose_spec).collect();
            grammars.extend(grammar(&loose));
        }
        let is_free = conversation.tool_choice == ToolChoice::Auto
            && conversation.form.is_none()
            && !offered.iter().any(|tool| tool.is_strict);
        let parser = ParserOptions {
            reasoning: split_reasoning,
            reasoning_syntax: self.reasoning,
            reasoning_is_open,
            tools,
            offered: has_tools.then(|| Arc::new(OfferedTools::new(&specs))),
            // An answer with a form is JSON itself.
            fenced_calls: self.fenced_calls && has_tools && conversation.form.is_none(),
        };
        Ok(ChatPrompt { text, parser, grammars, is_free, reasoning_budget, branches, refused })
    }

    /// The most tokens of reasoning: the request's own limit, or that of its effort, or the
    /// server's.
    fn reasoning_budget(&self, conversation: &Conversation) -> Option<u32> {
        let effort = || {
            let effort = conversation.template_kwargs.get("reasoning_effort")?.as_str()?;
            let found = EFFORTS.iter().find(|(name, _)| *name == effort);
            found.filter(|_| !self.template.mentions("reasoning_effort")).map(|(_, tokens)| *tokens)
        };
        let tokens = conversation.reasoning_budget.or_else(effort).or(self.reasoning_budget);
        tokens.filter(|tokens| *tokens != UNLIMITED)
    }

    /// The places in the prompt of `messages`, in bytes, where later prompts will probably part
    /// from it.
    fn branches(&self, chat: &mut Chat, messages: Vec<Message>, text: &str) -> Vec<usize> {
        if messages.is_empty() {
            return Vec::new();
        }
        let mut shared = |messages| {
            let (other, _) = self.rendered(chat, messages).ok()?;
            Some(branches::common(text, &other))
        };
        let mut places: Vec<usize> = branches::others(&messages).filter_map(&mut shared).collect();
        chat.add_generation_prompt = false;
        places.extend(
            self.rendered(chat, messages).ok().map(|(other, _)| branches::common(text, &other)),
        );
        places
    }

    /// Renders messages as they are or, if the template refuses them, mended. Returns the prompt,
    /// and the error of the template if it refused.
    fn rendered(
        &self,
        chat: &mut Chat,
        messages: Vec<Message>,
    ) -> Result<(String, Option<TemplateError>), TemplateError> {
        let mut render = |messages: &[Message]| {
            chat.messages = messages.iter().map(|message| self.message(message)).collect();
            self.template.render(chat)
        };
        let refused = match render(&messages) {
            Err(error @ (TemplateError::Raised(_) | TemplateError::Failed { .. })) => error,
            rendered => return Ok((rendered?, None)),
        };
        let messages = mended(messages, self.has_system);
        if let Ok(text) = render(&messages) {
            return Ok((text, Some(refused)));
        }
        match render(&strictly(messages)) {
            Ok(text) => Ok((text, Some(refused))),
            // The error about the client's own messages says most.
            Err(_) => Err(refused),
        }
    }

    /// Converts a message to the template's form.
    fn message(&self, message: &Message) -> Value {
        let role = match message.role {
            Role::Developer if !self.knows_developer => Role::System,
            role => role,
        };
        let content = match &message.content {
            Content::None if !self.shows_none => Value::from(()),
            content if self.wants_parts => {
                let part = |text: &str| json!({"type": "text", "text": text});
                let parts: Vec<_> = match content {
                    Content::Parts(parts) => parts.iter().map(|text| part(text)).collect(),
                    content => vec![part(&content.text())],
                };
                Value::from(Serde(parts))
            }
            content => Value::from(content.text()),
        };
        let is_mistral =
            matches!(self.tools, Some(ToolSyntax::MistralList | ToolSyntax::MistralNamed));
        let id = |id: &str| if is_mistral { short_id(id) } else { id.to_owned() };
        let mut fields = vec![("role", Value::from(role.as_str())), ("content", content)];
        if let Some(reasoning) = &message.reasoning {
            fields.push(("reasoning_content", Value::from(reasoning.as_str())));
        }
        if !message.tool_calls.is_empty() {
            let call = |call: &super::conversation::ToolCall| {
                let name = Value::from(call.name.as_str());
                let function = [("name", name), ("arguments", template_value(&call.arguments))];
                Value::from_pairs([
                    ("id", Value::from(id(&call.id))),
                    ("type", Value::from("function")),
                    ("function", Value::from_pairs(function)),
                ])
            };
            let calls: Value = message.tool_calls.iter().map(call).collect();
            fields.push(("tool_calls", calls));
        }
        let call_id = message.tool_call_id.as_deref().map(id);
        for (name, text) in [("name", message.name.clone()), ("tool_call_id", call_id)] {
            if let Some(text) = text {
                fields.push((name, Value::from(text)));
            }
        }
        Value::from_pairs(fields)
    }
}

/// Appends [`NEEDLE`] to the last message, to find the place in the prompt where the model
/// continues.
fn mark(last: Option<&mut Message>) -> Result<(), ChatError> {
    match last.map(|message| &mut message.content) {
        Some(Content::Text(text)) => text.push_str(NEEDLE),
        Some(Content::Parts(parts)) if !parts.is_empty() => {
            parts.last_mut().expect("it is not empty").push_str(NEEDLE);
        }
        _ => return Err(ChatError::NotContinuable),
    }
    Ok(())
}

fn tools(tools: &[Tool]) -> Value {
    tools.iter().map(|tool| template_value(&tool.definition)).collect()
}

fn spec(tool: &Tool) -> ToolSpec {
    ToolSpec { name: tool.name.clone(), parameters: tool.parameters.clone() }
}

/// A tool that takes any object, unless it is strict.
fn loose_spec(tool: &Tool) -> ToolSpec {
    let any = || ToolSpec { name: tool.name.clone(), parameters: json!({"type": "object"}) };
    if tool.is_strict { spec(tool) } else { any() }
}

#[cfg(test)]
mod tests {
    use super::super::conversation::ToolCall;
    use super::*;

    const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

    fn conversation(messages: &[(Role, &str)]) -> Conversation {
        let message = |(role, text): &(Role, &str)| Message {
            role: *role,
            content: Content::Text((*text).into()),
            ..Message::default()
        };
        Conversation { messages: messages.iter().map(message).collect(), ..Conversation::default() }
    }

    fn prompt(source: &str, conversation: &Conversation) -> Result<ChatPrompt, ChatError> {
        let model = ChatModel::new(source, "", "").unwrap();
        let tokens = Tokens { guard: &str::to_owned, of_text: &|_| None };
        model.prompt(conversation, true, OffsetDateTime::UNIX_EPOCH, &tokens)
    }

    #[test]
    fn prompts_part_behind_the_system_before_the_question_and_before_the_answer() {
        let talk = conversation(&[
            (Role::System, "Be brief."),
            (Role::User, "Hi"),
            (Role::Assistant, "Hello"),
            (Role::User, "How are you?"),
        ]);
        let model = ChatModel::new(CHATML, "", "").unwrap();
        let tokens = Tokens { guard: &str::to_owned, of_text: &|_| None };
        let prompt = |model: &ChatModel| {
            model.prompt(&talk, true, OffsetDateTime::UNIX_EPOCH, &tokens).unwrap()
        };
        assert!(prompt(&model).branches.is_empty());
        let ChatPrompt { text, branches, .. } = prompt(&model.with_branches(true));
        let before: Vec<&str> = branches.iter().map(|place| &text[..*place]).collect();
        let system = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n";
        let question = format!(
            "{system}Hi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\n"
        );
        assert_eq!(before, [system, &question, &format!("{question}How are you?<|im_end|>\n")]);
    }

    #[test]
    fn the_branches_of_a_continued_answer_are_within_its_prompt() {
        let mut talk = conversation(&[(Role::User, "Hi"), (Role::Assistant, "Hello")]);
        talk.continue_final_message = true;
        let model = ChatModel::new(CHATML, "", "").unwrap().with_branches(true);
        let tokens = Tokens { guard: &str::to_owned, of_text: &|_| None };
        let prompt = model.prompt(&talk, true, OffsetDateTime::UNIX_EPOCH, &tokens).unwrap();
        assert!(prompt.branches.iter().all(|place| *place <= prompt.text.len()));
    }

    #[test]
    fn a_developer_is_a_system_where_the_template_knows_no_better() {
        let talk = conversation(&[(Role::Developer, "Be brief."), (Role::User, "Hi")]);
        let text = prompt(CHATML, &talk).unwrap().text;
        assert!(text.starts_with("<|im_start|>system\nBe brief.<|im_end|>\n"), "{text}");
        assert!(text.ends_with("<|im_start|>assistant\n"), "{text}");
    }

    #[test]
    fn parts_are_one_text_where_the_template_wants_one() {
        let mut talk = conversation(&[(Role::User, "")]);
        talk.messages[0].content = Content::Parts(vec!["a".into(), "b".into()]);
        assert!(prompt(CHATML, &talk).unwrap().text.contains("user\na\nb<|im_end|>"));
        let parts =
            "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}";
        assert_eq!(prompt(parts, &talk).unwrap().text, "[a][b]");
        assert_eq!(prompt(parts, &conversation(&[(Role::User, "c")])).unwrap().text, "[c]");
    }

    #[test]
    fn the_last_message_is_continued() {
        let mut talk = conversation(&[(Role::User, "Hi"), (Role::Assistant, "Hello, ")]);
        talk.continue_final_message = true;
        let text = prompt(CHATML, &talk).unwrap().text;
        assert!(text.ends_with("<|im_start|>assistant\nHello, "), "{text}");
    }

    /// Holds for any end of the message, and any text that the template adds after it.
    #[test]
    fn an_answer_is_continued_at_its_end() {
        for begun in ["<", "|", "e", "im_end", "Hello, \n", "  "] {
            let mut talk = conversation(&[(Role::User, "Hi"), (Role::Assistant, begun)]);
            talk.continue_final_message = true;
            let text = prompt(CHATML, &talk).unwrap().text;
            assert!(text.ends_with(&format!("<|im_start|>assistant\n{begun}")), "{text}");
        }
        let mut talk = conversation(&[(Role::User, "Hi"), (Role::Assistant, "")]);
        talk.messages[1].content = Content::None;
        talk.continue_final_message = true;
        assert_eq!(prompt(CHATML, &talk).unwrap_err(), ChatError::NotContinuable);
    }

    /// Gemma's template refuses a system message.
    #[test]
    fn a_template_without_tools_gets_them_as_text() {
        let no_system = "{% for m in messages %}{% if m.role == 'system' %}\
            {{ raise_exception('no system') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
        for source in [CHATML, no_system] {
            let mut talk = conversation(&[(Role::User, "Hi")]);
            talk.tool_choice = ToolChoice::Auto;
            let definition = json!({"type": "function", "function": {"name": "add"}});
            talk.tools = vec![Tool {
                name: "add".into(),
                parameters: json!({}),
                is_strict: false,
                definition,
            }];
            let prompt = prompt(source, &talk).unwrap();
            assert!(prompt.text.contains("{\"name\":\"add\"}"), "{}", prompt.text);
            assert_eq!(prompt.parser.tools, Some(ToolSyntax::Hermes));
            assert!(!prompt.grammars.is_empty());
        }
    }

    /// Turns must alternate after one system message, as for Gemma and Mistral.
    const STRICT: &str = "{% set turns = messages %}\
        {% if messages[0].role == 'system' %}[{{ messages[0].content }}]\
        {% set turns = messages[1:] %}{% endif %}\
        {% for m in turns %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
        {{ raise_exception('turns must alternate') }}{% endif %}\
        {{ m.role[0] }}:{{ m.content + ';' }}{% endfor %}";

    #[test]
    fn a_strict_template_gets_turns_that_alternate() {
        let plain = conversation(&[(Role::System, "a"), (Role::User, "b")]);
        let plain = prompt(STRICT, &plain).unwrap();
        assert_eq!((plain.text.as_str(), plain.refused), ("[a]u:b;", None));
        let mut talk = conversation(&[
            (Role::System, "a"),
            (Role::Developer, "b"),
            (Role::User, "c"),
            (Role::System, "d"),
            (Role::Assistant, ""),
            (Role::User, "e"),
            (Role::User, "f"),
        ]);
        talk.messages[4].content = Content::None;
        talk.messages[4].reasoning = Some("Hm.".into());
        let mended = prompt(STRICT, &talk).unwrap();
        assert_eq!(mended.text, "[a\n\nb]u:c\n\nd;a:;u:e\n\nf;");
        assert_eq!(mended.refused, Some(TemplateError::Raised("turns must alternate".into())));
        let hopeless = prompt("{{ raise_exception('never') }}", &talk).unwrap_err();
        assert_eq!(hopeless.to_string(), "never");
    }

    #[test]
    fn a_system_message_that_the_template_hides_joins_the_question() {
        let hides = "{% for m in messages if m.role != 'system' %}{{ m.content }};{% endfor %}";
        let talk = conversation(&[(Role::System, "Be brief."), (Role::User, "Hi")]);
        assert_eq!(prompt(hides, &talk).unwrap().text, "Be brief.\n\nHi;");
    }

    #[test]
    fn an_answer_without_text_is_never_the_word_none() {
        let mut talk = conversation(&[(Role::User, "Hi"), (Role::Assistant, "")]);
        talk.messages[1].content = Content::None;
        talk.messages[1].reasoning = Some("Hm.".into());
        let text = prompt(CHATML, &talk).unwrap().text;
        assert!(text.contains("assistant\n<|im_end|>"), "{text}");
    }

    #[test]
    fn a_call_of_kimi_has_its_name_and_number_as_its_id() {
        let call = |id: &str, name: &str| {
            let call = ToolCall { id: id.into(), name: name.into(), arguments: json!({}) };
            Message { role: Role::Assistant, tool_calls: vec![call], ..Message::default() }
        };
        let result = |id: &str| Message {
            role: Role::Tool,
            tool_call_id: Some(id.into()),
            ..Message::default()
        };
        let mut messages = conversation(&[(Role::User, "Hi")]);
        messages.messages.extend([call("a", "f"), result("a"), call("b", "g"), result("b")]);
        let source = "{% if tools %}{% endif %}{% for m in messages %}{{ m.tool_call_id or '' }}\
            {% for call in m.tool_calls %}<|tool_calls_section_begin|>{{ call.id }}{% endfor %}\
            {% endfor %}";
        let text = prompt(source, &messages).unwrap().text;
        let marker = "<|tool_calls_section_begin|>";
        let expected =
            format!("{marker}functions.f:0functions.f:0{marker}functions.g:1functions.g:1");
        assert_eq!(text, expected);
    }

    #[test]
    fn the_parser_knows_the_tools_and_whether_objects_may_be_calls() {
        let mut talk = conversation(&[(Role::User, "Hi")]);
        talk.tools = vec![Tool {
            name: "add".into(),
            parameters: json!({}),
            is_strict: false,
            definition: json!({}),
        }];
        let parser = prompt(CHATML, &talk).unwrap().parser;
        assert!(!parser.fenced_calls && parser.offered.is_none(), "no tools are shown");
        talk.tool_choice = ToolChoice::Auto;
        let parser = prompt(CHATML, &talk).unwrap().parser;
        assert!(parser.fenced_calls && parser.offered.unwrap().has("add"));
        let model = ChatModel::new(CHATML, "", "").unwrap().with_fenced_calls(false);
        let tokens = Tokens { guard: &str::to_owned, of_text: &|_| None };
        let now = OffsetDateTime::UNIX_EPOCH;
        assert!(!model.prompt(&talk, true, now, &tokens).unwrap().parser.fenced_calls);
        talk.form = Some(json!({"type": "object"}));
        assert!(!prompt(CHATML, &talk).unwrap().parser.fenced_calls, "the answer is JSON");
    }

    #[test]
    fn a_template_may_begin_to_think_itself() {
        let source = "{{ messages[0].content }}<think>\n";
        assert!(
            prompt(source, &conversation(&[(Role::User, "Hi")])).unwrap().parser.reasoning_is_open
        );
    }
}
