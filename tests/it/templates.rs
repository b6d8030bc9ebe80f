//! Chat templates: the prompts of `tests/templates/cases.json`, which
//! transformers' own renderer made (`make.py` there), against ours.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use corelane::chat::named;
use corelane::chat::{Chat, ChatTemplate, TemplateError, Value};
use llama_cpp_sys_2 as sys;
use serde::Deserialize;
use time::{Date, Month, OffsetDateTime};

#[derive(Deserialize)]
struct Document {
    now: String,
    tokens: BTreeMap<String, (String, String)>, // bos and eos of each template
    conversations: BTreeMap<String, Conversation>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Conversation {
    messages: Value,
    #[serde(default)]
    tools: Value,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    conversation: String,
    add_generation_prompt: bool,
    #[serde(default)]
    kwargs: BTreeMap<String, Value>,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// The prompt.
    Expected(String),
    /// The message of the template's own `raise_exception`.
    Raises(String),
    /// Python's message, which is not ours.
    Fails(String),
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates")
}

fn document() -> Document {
    let text = fs::read_to_string(folder().join("cases.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The time at which the cases were made.
fn now() -> OffsetDateTime {
    let date = Date::from_calendar_date(2026, Month::July, 4).unwrap();
    date.with_hms(9, 5, 8).unwrap().assume_utc()
}

fn template(name: &str, tokens: &BTreeMap<String, (String, String)>) -> ChatTemplate {
    let source = fs::read_to_string(folder().join(format!("{name}.jinja"))).unwrap();
    let (bos, eos) = &tokens[name];
    ChatTemplate::new(&source, bos, eos).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The difference between a rendering and the expected one, if there is one.
fn compare(outcome: &Outcome, rendered: Result<String, TemplateError>) -> Result<(), String> {
    match (outcome, rendered) {
        (Outcome::Expected(expected), Ok(prompt)) if *expected == prompt => Ok(()),
        (Outcome::Expected(expected), Ok(prompt)) => {
            let same = expected.chars().zip(prompt.chars()).take_while(|(a, b)| a == b).count();
            let from = same.saturating_sub(60);
            let near = |text: &str| text.chars().skip(from).take(160).collect::<String>();
            Err(format!("expected ...{:?}\n     got ...{:?}", near(expected), near(&prompt)))
        }
        (Outcome::Expected(_), Err(error)) => Err(error.to_string()),
        (Outcome::Raises(message), Err(TemplateError::Raised(raised))) if *message == raised => {
            Ok(())
        }
        (Outcome::Raises(message), rendered) => Err(format!("not {message:?} but {rendered:?}")),
        (Outcome::Fails(_), Err(TemplateError::Failed { line: Some(_), .. })) => Ok(()),
        (Outcome::Fails(message), rendered) => Err(format!("not like {message:?}: {rendered:?}")),
    }
}

#[test]
fn prompts_are_those_of_transformers() {
    let document = document();
    assert_eq!(document.now, "2026-07-04T09:05:08", "the time of `now` above");
    assert!(document.cases.len() >= 60 && document.tokens.len() >= 14, "there are cases");
    let templates: BTreeMap<&str, ChatTemplate> =
        document.tokens.keys().map(|name| (&**name, template(name, &document.tokens))).collect();
    let mut wrong = Vec::new();
    for case in &document.cases {
        let conversation = &document.conversations[&case.conversation];
        let rendered = templates[&*case.template].render(&Chat {
            messages: conversation.messages.clone(),
            tools: conversation.tools.clone(),
            add_generation_prompt: case.add_generation_prompt,
            kwargs: case.kwargs.clone(),
            now: now(),
        });
        if let Err(difference) = compare(&case.outcome, rendered) {
            let kwargs: Vec<&String> = case.kwargs.keys().collect();
            wrong.push(format!(
                "{} / {} {kwargs:?}: {difference}",
                case.template, case.conversation
            ));
        }
    }
    let total = document.cases.len();
    assert!(wrong.is_empty(), "{} of {total} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// A conversation is the client's: nothing in it may end the process.
#[test]
fn no_shape_of_messages_ends_the_process() {
    let document = document();
    let shapes = [
        r"[]",
        r"null",
        r#""text""#,
        r"5",
        r"[null, 1, [], {}]",
        r#"[{"role": "user", "content": null}]"#,
        r#"[{"role": "user", "content": ""}, {"role": "assistant", "content": "", "tool_calls": []}]"#,
        r#"[{"role": 5, "content": {"a": {"b": []}}}]"#,
        r#"[{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [null, {"function": 1}]}]"#,
        r#"[{"role": "system", "content": []}, {"role": "tool", "content": [[]], "tool_call_id": -1e300}]"#,
    ];
    for name in document.tokens.keys() {
        let template = template(name, &document.tokens);
        for messages in shapes {
            for tools in ["null", "[]", "[{}]", "[1]", r#"[{"function": {"parameters": 1}}]"#] {
                let rendered = template.render(&Chat {
                    messages: serde_json::from_str(messages).unwrap(),
                    tools: serde_json::from_str(tools).unwrap(),
                    add_generation_prompt: true,
                    kwargs: BTreeMap::new(),
                    now: now(),
                });
                let engine = matches!(rendered, Err(TemplateError::Engine(_)));
                assert!(!engine, "{name} with {messages} and {tools}: {rendered:?}");
            }
        }
    }
}

/// The prompt that llama.cpp's own code makes.
fn of_llama(name: &str, turns: &[(&str, &str)], answer: bool) -> String {
    let text = |text: &str| CString::new(text).unwrap();
    let name = text(name);
    let texts: Vec<_> = turns.iter().map(|(role, said)| (text(role), text(said))).collect();
    let messages: Vec<_> = texts
        .iter()
        .map(|(role, said)| sys::llama_chat_message { role: role.as_ptr(), content: said.as_ptr() })
        .collect();
    let mut prompt = vec![0u8; 4096];
    // SAFETY: all pointers are to NUL-terminated texts that live longer; the buffer has this size.
    let length = unsafe {
        sys::llama_chat_apply_template(
            name.as_ptr(),
            messages.as_ptr(),
            messages.len(),
            answer,
            prompt.as_mut_ptr().cast(),
            prompt.len() as i32,
        )
    };
    prompt.truncate(usize::try_from(length).expect("it knows the name"));
    String::from_utf8(prompt).unwrap()
}

#[test]
fn named_templates_are_llama_cpps() {
    let conversations: &[&[(&str, &str)]] = &[
        &[("user", "Hi")],
        &[("system", " Be brief. "), ("user", "Hi\n")],
        &[("user", "Hi"), ("assistant", " Hello "), ("user", "And?")],
        &[
            ("system", "Be brief."),
            ("user", " a "),
            ("assistant", "b"),
            ("user", "c"),
            ("assistant", "d"),
            ("user", "e"),
        ],
    ];
    let (mut wrong, mut names) = (Vec::new(), 0);
    for name in named::names() {
        names += 1;
        let template = ChatTemplate::new(&named::source(name).unwrap(), "", "").unwrap();
        for turns in conversations {
            for answer in [false, true] {
                // Always written by llama.cpp's code after a user's last turn.
                if name == "rwkv-world" && !answer {
                    continue;
                }
                let message = |(role, said): &(&str, &str)| {
                    Value::from_pairs([("role", Value::from(*role)), ("content", (*said).into())])
                };
                let ours = template.render(&Chat {
                    messages: turns.iter().map(message).collect(),
                    tools: Value::UNDEFINED,
                    add_generation_prompt: answer,
                    kwargs: BTreeMap::new(),
                    now: now(),
                });
                let (ours, theirs) = (ours.unwrap(), of_llama(name, turns, answer));
                if ours != theirs {
                    wrong.push(format!("{name}, {answer}:\n{ours:?}\n{theirs:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // SAFETY: with no room for names, only their number is returned.
    let all = unsafe { sys::llama_chat_builtin_templates(std::ptr::null_mut(), 0) };
    assert_eq!(names, all, "llama.cpp knows others");
}
