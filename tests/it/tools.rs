//! Tool calls under the grammar of each chat template, over a vocabulary in which the markers of all
//! families are single tokens, and over one in which they are text. Each token is chosen at random
//! among those that the mask allows, with guesses and without.

use std::fs;
use std::path::Path;

use corelane::chat::conversation::{Content, Conversation, Message, Role, Tool, ToolChoice};
use corelane::chat::output::{Parser, Part};
use corelane::chat::prompt::{ChatModel, ChatPrompt, Tokens};
use corelane::constraint::{Compiler, Constraint, Matcher};
use corelane::limits::GUESSES_MAX;
use corelane::types::TokenId;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::support::Random;

/// The markers of all families, as special tokens.
const MARKERS: [&str; 57] = [
    "<tool_call>",
    "</tool_call>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|tool|>",
    "<|/tool|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|call|>",
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<function=",
    "<parameter=",
    "</parameter>",
    "</function>",
    "<seed:tool_call>",
    "</seed:tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "｜DSML｜",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<|tool_call_start|>",
    "<seed:think>",
    "</seed:think>",
    "<|channel>",
    "<channel|>",
];

/// The markers that begin reasoning, and those that end it.
const THINKS: [[&str; 2]; 5] = [
    ["<|channel>", "<channel|>"],
    ["<think>", "</think>"],
    ["[THINK]", "[/THINK]"],
    ["<|START_THINKING|>", "<|END_THINKING|>"],
    ["<seed:think>", "</seed:think>"],
];

/// Words of more than one byte, as a real vocabulary has them.
const WORDS: [&str; 12] = [
    "{\"",
    "\": \"",
    "\", \"",
    "\"}",
    "name",
    "arguments",
    "parameters",
    "weather",
    "city",
    "now",
    "}\n",
    "assistant",
];

/// Templates of families that `tests/templates` lacks: their markers are enough.
const MORE: [(&str, &str); 17] = [
    ("mistral-named", "{{ tools }}[TOOL_CALLS]name[ARGS] [THINK]"),
    ("deepseek-v3", "{{ tools }}<｜tool▁calls▁begin｜>```json"),
    ("deepseek-v3.1", "{{ tools }}<｜tool▁calls▁begin｜></think>"),
    ("command-a", "{{ tools }}<|START_ACTION|><|START_THINKING|>"),
    ("phi-4-mini", "{{ tools }}<|tool|><|/tool|>"),
    ("qwen3-coder", "{{ tools }}<tool_call>\n<function=name>\n<parameter=key>"),
    ("qwen3.5", "{{ tools }}<tool_call>\n<function=name>\n<parameter=key></think>"),
    ("seed-oss", "{{ tools }}<seed:tool_call><function=name><seed:think>"),
    ("glm-4.5", "{{ tools }}<tool_call>name\n<arg_key>key</arg_key>\n<arg_value><think>"),
    ("glm-4.7", "{{ tools }}<tool_call>name<arg_key>key</arg_key><arg_value><think>"),
    ("kimi-k2", "{{ tools }}<|tool_calls_section_begin|><|tool_call_begin|>"),
    ("minimax-m2", "{{ tools }}<minimax:tool_call><invoke name=><think>"),
    ("deepseek-v3.2", "{{ tools }}<｜DSML｜function_calls></think>"),
    ("deepseek-v4", "{{ tools }}<｜DSML｜tool_calls></think>"),
    ("gemma-4", "{{ tools }}<|tool_call>call:name{}<tool_call|><|channel>thought\n<channel|>"),
    ("lfm2", "{{ tools }}<|tool_call_start|>[name(key=1)]<|tool_call_end|>"),
    ("nemotron", "{{ tools }}<TOOLCALL>[{}]</TOOLCALL><think>"),
];

fn templates() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "jinja"));
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).unwrap())
    };
    let more = MORE.map(|(name, source)| (name.to_owned(), source.to_owned()));
    let mut all: Vec<_> = paths.map(read).chain(more).collect();
    all.sort();
    all
}

/// Harmony's markers end a message wherever they stand, so its models have them as tokens.
fn only_tokens(source: &str) -> bool {
    source.contains("<|channel|>")
}

struct Vocabulary {
    /// An end token, the bytes, the words, and markers if they are tokens.
    texts: Vec<&'static [u8]>,
    compiler: Compiler,
}

impl Vocabulary {
    fn new(markers: &[&'static str]) -> Self {
        static BYTES: [u8; 256] = {
            let mut bytes = [0; 256];
            let mut byte = 0;
            while byte < 256 {
                bytes[byte] = byte as u8;
                byte += 1;
            }
            bytes
        };
        let bytes = BYTES.chunks(1).chain(WORDS.map(str::as_bytes));
        let texts: Vec<&[u8]> = [&b""[..]].into_iter().chain(bytes).collect();
        let mut words: Vec<Vec<u8>> = texts.iter().map(|text| text.to_vec()).collect();
        words.resize(texts.len() + markers.len(), Vec::new());
        let compiler = Compiler::of_words(words, &[END]).unwrap();
        let markers = markers.iter().map(|marker| marker.as_bytes());
        Self { texts: texts.into_iter().chain(markers).collect(), compiler }
    }

    fn token(&self, text: &str) -> Option<u32> {
        let found = self.texts.iter().rposition(|other| *other == text.as_bytes());
        found.map(|token| token as u32)
    }

    /// The first token of a marker.
    fn first_of(&self, marker: &str) -> TokenId {
        self.token(marker).map_or(1 + TokenId::from(marker.as_bytes()[0]), |token| token as TokenId)
    }
}

const END: TokenId = 0;

fn conversation(choice: ToolChoice, parallel: bool) -> Conversation {
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}},
        "required": ["city"], "additionalProperties": false});
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tool = |name: &str, parameters: Value| Tool {
        name: name.into(),
        definition: json!({"type": "function",
            "function": {"name": name, "description": "d", "parameters": parameters}}),
        parameters,
        is_strict: true,
    };
    let user = Message {
        role: Role::User,
        content: Content::Text("Weather in Graz?".into()),
        ..Message::default()
    };
    Conversation {
        messages: vec![user],
        tools: vec![tool("weather", city), tool("now", none)],
        tool_choice: choice,
        parallel_tool_calls: parallel,
        ..Conversation::default()
    }
}

/// Walks at random through the grammar of a prompt, with guesses before each mask and without.
/// Returns the text, if it ended in time.
fn walk(vocabulary: &mut Vocabulary, prompt: &ChatPrompt, seed: u64) -> Option<String> {
    let lark = prompt.grammars.first().cloned().expect("there are tools");
    let compiled = vocabulary.compiler.compile(&Constraint::Lark(lark)).unwrap();
    let (mut plain, mut guessing) = (Matcher::new(&compiled), Matcher::new(&compiled));
    let mut random = Random::new(seed);
    let mut text = Vec::new();
    let count = vocabulary.texts.len();
    let allowed = |matcher: &mut Matcher| -> Vec<TokenId> {
        let mut logits = vec![0.0; count];
        matcher.mask(&mut logits);
        (0..count as TokenId).filter(|token| logits[*token as usize] == 0.0).collect()
    };
    // Text that is free goes on with one of these, byte by byte if they are no tokens.
    let mut wanted: Vec<TokenId> = Vec::new();
    for _ in 0..600 {
        let guesses = guessing.forced(GUESSES_MAX);
        let found = allowed(&mut plain);
        assert_eq!(allowed(&mut guessing), found, "after {}", String::from_utf8_lossy(&text));
        if let Some(guess) = guesses.first() {
            assert!(found.contains(guess) && !found.contains(&END), "{guess} of {found:?}");
            let is_named = *guess as usize >= 1 + 256 + WORDS.len();
            assert!(!is_named || found == [*guess], "{guess} of {found:?}");
        }
        if wanted.is_empty() && found.len() > 40 && random.one_in(2) {
            let markers = MARKERS.into_iter().chain(["\"", "\"", "Action: ```json"]);
            let marker = markers.collect::<Vec<_>>()[random.within(0, MARKERS.len() + 2)];
            wanted = match vocabulary.token(marker) {
                Some(token) => vec![token as TokenId],
                None => marker.bytes().rev().map(|byte| 1 + TokenId::from(byte)).collect(),
            };
        }
        let token = match (wanted.pop(), guesses.first()) {
            (Some(token), _) if found.contains(&token) => token,
            (_, Some(guess)) if !random.one_in(3) => *guess,
            _ if found.contains(&END) && random.one_in(8) => END,
            _ => found[random.within(0, found.len() - 1)],
        };
        if token == END {
            return String::from_utf8(text).ok();
        }
        guessing.push(token).unwrap();
        plain.push(token).unwrap();
        text.extend(vocabulary.texts[token as usize]);
        assert_eq!((guessing.error(), guessing.is_over()), (plain.error(), plain.is_over()));
        assert_eq!(plain.error(), None, "after {}", String::from_utf8_lossy(&text));
        if plain.is_over() {
            return String::from_utf8(text).ok();
        }
    }
    None
}

/// The calls in an answer, and whether it has reasoning and content.
#[derive(Default)]
struct Answer {
    calls: Vec<(String, String)>,
    reasons: bool,
    content: String,
}

fn read(prompt: &ChatPrompt, text: &str) -> Answer {
    let mut answer = Answer::default();
    let mut parser = Parser::new(prompt.parser.clone());
    let mut out = |part: Part<'_>| match part {
        Part::Content(text) => answer.content.push_str(text),
        Part::Reasoning(_) => answer.reasons = true,
        Part::ToolCallBegin { name, .. } => answer.calls.push((name.into(), String::new())),
        Part::ToolCallArguments { delta, .. } => answer.calls.last_mut().unwrap().1.push_str(delta),
    };
    parser.push(text, &mut out);
    parser.finish(false, &mut out);
    answer
}

fn check_calls(calls: &[(String, String)], what: &str) {
    for (name, arguments) in calls {
        let arguments: Value = serde_json::from_str(arguments).expect(what);
        match name.as_str() {
            "weather" => assert!(arguments["city"].is_string(), "{what}"),
            "now" => assert_eq!(arguments, json!({}), "{what}"),
            name => panic!("there is no tool {name}: {what}"),
        }
    }
}

#[test]
fn a_required_call_is_made_on_every_template_and_guesses_change_nothing() {
    let named = ToolChoice::Named("weather".into());
    for markers in [&MARKERS[..], &[]] {
        let mut vocabulary = Vocabulary::new(markers);
        for (name, source) in templates() {
            if only_tokens(&source) && markers.is_empty() {
                continue;
            }
            let model = ChatModel::new(&source, "<s>", "</s>").unwrap();
            let mut whole = 0;
            for (choice, parallel) in
                [(ToolChoice::Required, true), (ToolChoice::Required, false), (named.clone(), true)]
            {
                let of_text = |text: &str| vocabulary.token(text);
                let tokens = Tokens { guard: &str::to_owned, of_text: &of_text };
                let conversation = conversation(choice.clone(), parallel);
                let now = OffsetDateTime::UNIX_EPOCH;
                let prompt = match model.prompt(&conversation, true, now, &tokens) {
                    Ok(prompt) => prompt,
                    Err(error) => panic!("{name}: {error}"),
                };
                for seed in 0..12 {
                    let Some(text) = walk(&mut vocabulary, &prompt, seed) else { continue };
                    whole += 1;
                    let what = format!("{name} {choice:?} {text:?}\n{:?}", prompt.grammars);
                    let answer = read(&prompt, &text);
                    assert!(!answer.calls.is_empty(), "no call: {what}");
                    assert!(parallel || answer.calls.len() == 1, "several calls: {what}");
                    assert_eq!(answer.content.trim(), "", "{what}");
                    check_calls(&answer.calls, &what);
                    if let ToolChoice::Named(name) = &choice {
                        assert_eq!(answer.calls.len(), 1, "{what}");
                        assert_eq!(answer.calls[0].0, *name, "{what}");
                    }
                    let thinks = THINKS.as_flattened().iter().any(|marker| source.contains(marker));
                    let thinks = thinks || source.contains("<|channel|>");
                    assert!(thinks || !answer.reasons, "the template has no reasoning: {what}");
                }
            }
            assert!(whole > 5, "{name}: {whole} of 36 answers ended in time");
        }
    }
}

#[test]
fn calls_that_are_optional_are_well_formed_and_guesses_change_nothing() {
    for markers in [&MARKERS[..], &[]] {
        let mut vocabulary = Vocabulary::new(markers);
        let mut called = 0;
        for (name, source) in templates() {
            if only_tokens(&source) && markers.is_empty() {
                continue;
            }
            let model = ChatModel::new(&source, "<s>", "</s>").unwrap();
            for has_form in [false, true] {
                let of_text = |text: &str| vocabulary.token(text);
                let tokens = Tokens { guard: &str::to_owned, of_text: &of_text };
                let mut conversation = conversation(ToolChoice::Auto, true);
                conversation.form = has_form.then(|| {
                    json!({"type": "object", "properties": {"x": {"type": "integer"}},
                        "required": ["x"], "additionalProperties": false})
                });
                let now = OffsetDateTime::UNIX_EPOCH;
                let Ok(prompt) = model.prompt(&conversation, true, now, &tokens) else {
                    assert!(has_form, "{name}: calls in plain JSON beside a form are refused");
                    continue;
                };
                for seed in 0..12 {
                    let Some(text) = walk(&mut vocabulary, &prompt, seed) else { continue };
                    let answer = read(&prompt, &text);
                    let what = format!("{name} {text:?}\n{:?}", prompt.grammars);
                    check_calls(&answer.calls, &what);
                    called += usize::from(!answer.calls.is_empty());
                    if has_form && answer.calls.is_empty() {
                        let form: Value = serde_json::from_str(&answer.content).expect(&what);
                        assert!(form["x"].is_i64() || form["x"].is_u64() || form["x"].is_f64());
                    }
                }
            }
        }
        assert!(called > 40, "{called} answers call a tool");
    }
}

/// A grammar may begin an answer with the markers of its own template alone.
#[test]
fn no_answer_begins_with_a_marker_of_another_template() {
    let mut vocabulary = Vocabulary::new(&MARKERS);
    for (name, source) in templates() {
        let model = ChatModel::new(&source, "<s>", "</s>").unwrap();
        let of_text = |text: &str| vocabulary.token(text);
        let tokens = Tokens { guard: &str::to_owned, of_text: &of_text };
        let conversation = conversation(ToolChoice::Required, true);
        let now = OffsetDateTime::UNIX_EPOCH;
        let prompt = model.prompt(&conversation, true, now, &tokens).unwrap();
        let lark = prompt.grammars[0].clone();
        let compiled = vocabulary.compiler.compile(&Constraint::Lark(lark)).unwrap();
        for [opener, _] in THINKS {
            let mut logits = vec![0.0; vocabulary.texts.len()];
            Matcher::new(&compiled).mask(&mut logits);
            let begins = logits[vocabulary.first_of(opener) as usize] == 0.0;
            let is_open = prompt.parser.reasoning_is_open;
            let own = THINKS.iter().find(|pair| pair.iter().any(|marker| source.contains(marker)));
            let expected = !is_open && own.is_some_and(|[own, _]| *own == opener);
            assert_eq!(begins, expected, "{name} {opener}\n{:?}", prompt.grammars);
            let is_own = own.is_some_and(|[own, _]| *own == opener);
            assert_eq!(prompt.parser.reads(opener.as_bytes()), is_own, "{name} {opener}");
        }
    }
}
