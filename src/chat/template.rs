//! A chat template, compiled once and rendered for each conversation.
//!
//! In: the template's source, and a conversation. Out: the prompt's text. Templates are Jinja, are
//! part of the model, and are written for the renderer of transformers. This module behaves like
//! `chat_template_utils.py` of transformers 5.23, including the spaces that `tojson` writes.
//! `tests/templates` compares both.
//!
//! The operator chooses the template, but clients send the conversation. For every conversation,
//! rendering takes bounded time and memory.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::io;
use std::iter::once;
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Template, UndefinedBehavior, Value};
use time::OffsetDateTime;

use super::python;
use super::strftime::strftime;
use super::translate::translate;
use crate::limits::TEXT_BYTES_MAX;

/// Most bytes of a chat template's source. The longest one of known models has 20,000.
const CHAT_TEMPLATE_BYTES_MAX: usize = 256 * 1024;

/// Most minijinja instructions for one prompt. A message takes 100 to 300.
const CHAT_TEMPLATE_FUEL: u64 = 4_000_000;

/// Deepest nesting of a chat template, as minijinja counts it: a loop is 1, the call of a macro 4.
/// minijinja's own bound, for 2 MiB of stack, is 500.
const CHAT_TEMPLATE_RECURSION_MAX: usize = 200;

/// The template's name in minijinja. Without `.html`, so that nothing is escaped.
const NAME: &str = "chat";

/// The fields in which clients send an assistant's reasoning. Most templates read the first one,
/// those of gpt-oss the second one.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Most characters of a template in an error.
const EXCERPT_CHARS_MAX: usize = 80;

/// The inputs of a template.
#[derive(Clone, Debug)]
pub struct Chat {
    /// The messages, oldest first: a list of maps.
    pub messages: Value,
    /// The tools: a list of maps. None or undefined without tools.
    pub tools: Value,
    /// Whether the prompt ends with the header of the assistant's next message.
    pub add_generation_prompt: bool,
    /// `chat_template_kwargs`: more variables for the template. They may replace `bos_token`,
    /// `eos_token` and `documents`, but none of the fields here.
    pub kwargs: BTreeMap<String, Value>,
    /// The time for `strftime_now`.
    pub now: OffsetDateTime,
}

/// A model's chat template. Immutable, shared by the lanes.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of the model's tokens; empty if the model
    /// has none.
    ///
    /// # Errors
    /// The mistake in the source, and its line.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        if source.len() > CHAT_TEMPLATE_BYTES_MAX {
            return Err(TemplateError::Large { bytes: source.len() });
        }
        let mut environment = Environment::new();
        // Debug mode copies the source into each error. Our errors name line and expression.
        environment.set_debug(false);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_fuel(Some(CHAT_TEMPLATE_FUEL));
        environment.set_recursion_limit(CHAT_TEMPLATE_RECURSION_MAX);
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
        python::install(&mut environment);
        environment.add_function("raise_exception", raise_exception);

        let source = translate(source);
        // Compiling may panic, as rendering may; see `guarded`.
        let added = guarded(|| environment.add_template_owned(NAME, source.clone()))?;
        added.map_err(|error| explain(&error, &source))?;
        Ok(Self { environment, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// Whether the template mentions `variable` as a whole word. A template that does not mention
    /// `tools` would silently ignore a client's tools.
    pub fn mentions(&self, variable: &str) -> bool {
        // `undeclared_variables` does not work here: Llama's templates may set `tools` first.
        let template = self.template();
        let source = template.source();
        let in_word = |c: char| c.is_alphanumeric() || c == '_';
        source.match_indices(variable).any(|(at, _)| {
            !source[..at].ends_with(in_word) && !source[at + variable.len()..].starts_with(in_word)
        })
    }

    /// Renders the prompt of a conversation, at most [`TEXT_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// If the template refuses the conversation or fails.
    pub fn render(&self, chat: &Chat) -> Result<String, TemplateError> {
        let template = self.template();
        let context = self.context(chat);
        let mut prompt = Bounded(Vec::new());
        let rendered = guarded(|| template.render_captured_to(context, &mut prompt).map(drop))?;
        rendered.map_err(|error| explain(&error, template.source()))?;
        Ok(String::from_utf8(prompt.0).expect("it was written as strings"))
    }

    fn template(&self) -> Template<'_, '_> {
        self.environment.get_template(NAME).expect("`new` added it")
    }

    fn context(&self, chat: &Chat) -> Value {
        let none = Value::from(());
        let now = chat.now;
        let strftime_now = Value::from_function(move |format: String| strftime(&format, now));
        let tools = if chat.tools.is_undefined() { none.clone() } else { chat.tools.clone() };
        let defaults = [
            ("bos_token", Value::from(&self.bos)),
            ("eos_token", Value::from(&self.eos)),
            ("documents", none),
        ];
        let fixed = [
            ("messages", with_reasoning(&chat.messages)),
            ("tools", tools),
            ("add_generation_prompt", Value::from(chat.add_generation_prompt)),
            ("strftime_now", strftime_now),
        ];
        let kwargs = chat.kwargs.iter().map(|(name, value)| (name.as_str(), value.clone()));
        // Of several entries with one name, the last one counts.
        Value::from_pairs(defaults.into_iter().chain(kwargs).chain(fixed))
    }
}

/// Copies each assistant's reasoning to all of the fields that templates read.
fn with_reasoning(messages: &Value) -> Value {
    let Ok(list) = messages.try_iter() else { return messages.clone() };
    list.map(|message| {
        let mut fields = REASONING_FIELDS.iter().filter_map(|name| message.get_attr(name).ok());
        let reasoning = fields.find(|value| !value.is_undefined() && !value.is_none());
        let pairs = message.as_object().and_then(|object| object.try_iter_pairs());
        match (reasoning, pairs) {
            (Some(reasoning), Some(pairs)) => Value::from_pairs(
                once((Value::from("thinking"), reasoning.clone()))
                    .chain(pairs)
                    .chain(once((Value::from("reasoning_content"), reasoning))),
            ),
            _ => message,
        }
    })
    .collect()
}

/// Why a template cannot be compiled or rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template refused with `raise_exception`, with this message.
    #[error("{0}")]
    Raised(String),
    /// The source is not valid Jinja.
    #[error("the chat template is wrong{}: {message}", at(.line))]
    Syntax {
        /// The line, from 1.
        line: Option<usize>,
        /// The mistake.
        message: String,
    },
    /// The template cannot render this conversation.
    #[error("the chat template failed{}: {message}", at(.line))]
    Failed {
        /// The line, from 1.
        line: Option<usize>,
        /// The cause.
        message: String,
    },
    /// Rendering took too many instructions.
    #[error("the chat template takes more than {} instructions for this", CHAT_TEMPLATE_FUEL)]
    Endless,
    /// The prompt is too long.
    #[error("the prompt has more than {} bytes", TEXT_BYTES_MAX)]
    Long,
    /// The source is too long.
    #[error("the chat template has {bytes} bytes; it may have {}", CHAT_TEMPLATE_BYTES_MAX)]
    Large {
        /// The length of the source.
        bytes: usize,
    },
    /// The template engine panicked: a bug in it or in corelane.
    #[error("the template engine failed: {0}")]
    Engine(String),
}

fn at(line: &Option<usize>) -> String {
    line.map(|line| format!(" at line {line}")).unwrap_or_default()
}

/// The template's own refusal, inside minijinja's error.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn explain(error: &Error, source: &str) -> TemplateError {
    let mut cause = error.source();
    while let Some(found) = cause {
        if let Some(Raised(message)) = found.downcast_ref::<Raised>() {
            return TemplateError::Raised(message.clone());
        }
        cause = found.source();
    }
    let line = error.line();
    let mut message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.kind() {
        ErrorKind::OutOfFuel => return TemplateError::Endless,
        ErrorKind::WriteFailure => return TemplateError::Long,
        ErrorKind::SyntaxError => return TemplateError::Syntax { line, message },
        _ => {}
    }
    if let Some(expression) = error.range().and_then(|range| source.get(range)) {
        let words: Vec<&str> = expression.split_whitespace().collect();
        let excerpt: String = words.join(" ").chars().take(EXCERPT_CHARS_MAX).collect();
        message.push_str(&format!(", in `{excerpt}`"));
    }
    TemplateError::Failed { line, message }
}

/// The prompt so far.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > TEXT_BYTES_MAX - self.0.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

thread_local! {
    static RENDERING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside the template engine. The panic hook calls this, because a panic
/// there ends one request and not the process.
pub fn is_rendering() -> bool {
    RENDERING.get()
}

/// Runs the template engine and catches its panics. minijinja 3.0.5 panics on some templates (a
/// `break` inside `with`, `loop.cycle()`), in branches that a client can choose.
///
/// **Invariant:** a panic leaves no value half-changed: rendering does not change a template's
/// environment, and all other values are dropped.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, TemplateError> {
    RENDERING.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    RENDERING.set(false);
    result.map_err(|panic| TemplateError::Engine(reason(&*panic).to_owned()))
}

fn reason(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::{Date, Month};

    use super::*;

    fn value(json: &serde_json::Value) -> Value {
        serde_json::from_str(&json.to_string()).unwrap()
    }

    fn chat(messages: &serde_json::Value) -> Chat {
        let date = Date::from_calendar_date(2026, Month::July, 4).unwrap();
        Chat {
            messages: value(messages),
            tools: Value::UNDEFINED,
            add_generation_prompt: true,
            kwargs: BTreeMap::new(),
            now: date.with_hms(9, 5, 8).unwrap().assume_utc(),
        }
    }

    fn render(source: &str) -> Result<String, TemplateError> {
        let template = ChatTemplate::new(source, "<s>", "</s>")?;
        template.render(&chat(&json!([{"role": "user", "content": "Hi"}])))
    }

    #[test]
    fn a_template_sees_messages_tokens_and_the_time() {
        let source = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}\
                      {{ eos_token }} {{ tools is none }} {{ documents is none }} \
                      {{ add_generation_prompt }} {{ strftime_now('%Y-%m-%d') }} {{ enable is defined }}";
        assert_eq!(render(source).unwrap(), "<s>user: Hi</s> True True True 2026-07-04 False");
    }

    #[test]
    fn kwargs_hide_tokens_and_not_the_conversation() {
        let template =
            ChatTemplate::new("{{ bos_token }}{{ messages | length }}{{ mood }}", "<s>", "")
                .unwrap();
        let mut chat = chat(&json!([]));
        for (name, value) in [("bos_token", "!"), ("messages", "abc"), ("mood", "calm")] {
            chat.kwargs.insert(name.to_owned(), Value::from(value));
        }
        assert_eq!(template.render(&chat).unwrap(), "!0calm");
    }

    #[test]
    fn reasoning_stands_under_each_name_that_templates_read() {
        let source =
            "{% for m in messages %}{{ m.thinking }},{{ m.reasoning_content }};{% endfor %}";
        let template = ChatTemplate::new(source, "", "").unwrap();
        let messages = json!([
            {"reasoning": "a"}, {"thinking": "b", "reasoning": "c"}, {"reasoning_content": "d"},
            {"reasoning_content": null, "thinking": null}, {"content": "e"},
        ]);
        assert_eq!(template.render(&chat(&messages)).unwrap(), "a,a;b,b;d,d;None,None;,;");
    }

    #[test]
    fn maps_keep_the_order_in_which_they_came() {
        let template = ChatTemplate::new("{{ messages[0] | tojson }}", "", "").unwrap();
        let mut chat = chat(&json!([]));
        chat.messages = serde_json::from_str(r#"[{"z": 1, "a": {"y": 2, "b": 3}}]"#).unwrap();
        assert_eq!(template.render(&chat).unwrap(), r#"{"z": 1, "a": {"y": 2, "b": 3}}"#);
    }

    #[test]
    fn what_a_template_raises_is_passed_on_as_it_is() {
        let source = "{% macro check(m) %}{{ raise_exception('No \"' ~ m.role ~ '\" & co!') }}\
                      {% endmacro %}\n{{ check(messages[0]) }}";
        let error = render(source).unwrap_err();
        assert_eq!(error, TemplateError::Raised("No \"user\" & co!".into()));
        assert_eq!(error.to_string(), "No \"user\" & co!");
    }

    #[test]
    fn a_failure_says_where() {
        let error = render("\n\n{{ messages[3].role }}").unwrap_err();
        assert!(matches!(error, TemplateError::Failed { line: Some(3), .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("the chat template failed at line 3: "), "{text}");
        assert!(text.contains("[3].role"), "{text}");

        let error = ChatTemplate::new("a\n{% if %}", "", "").err().expect("no condition");
        assert!(matches!(error, TemplateError::Syntax { line: Some(2), .. }), "{error:?}");
        let error = render("{{ 'a' + 1 }}").unwrap_err();
        assert!(error.to_string().contains("at line 1"), "{error}");
        assert!(render("{{ nothing.at.all }}").is_err());
        assert_eq!(render("{{ nothing }}{{ messages[0].nothing }}").unwrap(), "");
    }

    #[test]
    fn rendering_is_bounded() {
        let loops = "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}\
                     {% endfor %}{% endfor %}{% endfor %}";
        assert_eq!(render(loops).unwrap_err(), TemplateError::Endless);
        assert_eq!(render("{{ 'x' * 2000000 }}").unwrap_err(), TemplateError::Long);
        let error = render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").unwrap_err();
        assert!(error.to_string().contains("recursion limit"), "{error}");
        let large = "x".repeat(CHAT_TEMPLATE_BYTES_MAX + 1);
        assert!(matches!(ChatTemplate::new(&large, "", ""), Err(TemplateError::Large { .. })));
    }

    #[test]
    fn a_panic_of_the_engine_ends_one_rendering() {
        let result = guarded(|| -> u32 { panic!("the engine's") });
        assert_eq!(result, Err(TemplateError::Engine("the engine's".into())));
        assert!(!is_rendering());
        assert!(guarded(is_rendering).unwrap());
    }

    #[test]
    fn a_template_says_what_it_mentions() {
        let source = "{% if custom_tools is defined %}{% set tools = custom_tools %}{% endif %}\
                      {{ tools }}{{ message.tool_calls }}";
        let template = ChatTemplate::new(source, "", "").unwrap();
        assert!(template.mentions("tools"));
        assert!(template.mentions("tool_calls"));
        assert!(!template.mentions("tool"));
        assert!(!template.mentions("enable_thinking"));
    }
}
