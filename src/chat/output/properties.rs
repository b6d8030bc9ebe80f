//! Properties that hold for every text of every family, cut into pieces of any size.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::json;

use super::samples::{Whole, offered, parse, written};
use super::{ParserOptions, ReasoningSyntax, ToolSyntax};

fn options() -> impl Strategy<Value = ParserOptions> {
    let tools = option::weighted(0.9, select(ToolSyntax::ALL.to_vec()));
    let syntax = option::weighted(0.9, select(ReasoningSyntax::ALL.to_vec()));
    (any::<bool>(), syntax, any::<bool>(), tools, any::<bool>()).prop_map(
        |(reasoning, reasoning_syntax, reasoning_is_open, tools, fenced_calls)| ParserOptions {
            reasoning,
            reasoning_syntax,
            reasoning_is_open,
            tools,
            offered: offered(),
            fenced_calls,
        },
    )
}

/// A word that occurs in the text once.
const WORD: &str = "WORD";

/// Fragments of a hostile text of a family.
fn fragments(tools: Option<ToolSyntax>) -> Vec<String> {
    let mut fragments: Vec<&str> = vec![
        WORD,
        WORD,
        WORD,
        "\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        " ",
        "\n",
        "é",
        "<",
        "{}",
        "12",
        r#"{"a": "}\"{", "b": [1]}"#,
        "'",
        "(",
        ")",
        "=",
        ":",
        "a=",
        "\\",
        "True",
        "```",
        "```json\n",
        "\n{\"name\": \"now\", \"arguments\": {\"a\": \"WORD\"}}",
        "\n{\"name\": \"weather\", \"arguments\": {\"city\": \"WORD\"}}\n```",
        "{\"name\": \"weather\", \"arguments\": {\"town\": \"WORD\"}}",
        "<|end|>",
        "<|start|>assistant",
        "<|channel|>final",
        "<|channel|>analysis<|message|>",
        "<|message|>",
    ];
    fragments.extend(ReasoningSyntax::ALL.iter().flat_map(|s| [s.opener(), s.closer()]));
    let mut fragments: Vec<String> = fragments.into_iter().map(str::to_owned).collect();
    if let Some(tools) = tools {
        let row = tools.row();
        let parts = [row.open, row.prefix, row.separators, row.close, row.noise].concat();
        // The text after this marker is a call's id, which is dropped.
        let parts = parts.into_iter().filter(|part| *part != "[CALL_ID]");
        let parts =
            parts.chain(row.form.texts()).chain([row.begin, row.infix, row.between, row.end]);
        fragments.extend(parts.filter(|part| !part.is_empty()).map(str::to_owned));
        fragments.push(written(tools, &[(WORD, "{\"a\": 1}")]));
        fragments.push(format!("{}{}{WORD}{}", row.open[0], row.begin, row.infix));
        for key in ["city", "days", "note", "places", "extra"] {
            for value in [json!(WORD), json!([WORD]), json!(1), json!({WORD: [true]})] {
                let arguments = json!({key: value}).to_string();
                fragments.push(written(tools, &[("weather", &arguments)]));
            }
        }
    }
    fragments
}

/// The text of the picked fragments, and the words in it.
fn text_of(tools: Option<ToolSyntax>, picks: &[Index]) -> (String, Vec<String>) {
    let fragments = fragments(tools);
    let (mut text, mut words) = (String::new(), Vec::new());
    for (i, pick) in picks.iter().enumerate() {
        let fragment = pick.get(&fragments);
        if fragment.contains(WORD) {
            words.push(format!("w{i}w"));
        }
        text.push_str(&fragment.replace(WORD, &format!("w{i}w")));
    }
    (text, words)
}

/// The text of all parts.
fn shown(parts: &[Whole]) -> String {
    let text = |part: &Whole| match part {
        Whole::Content(text) | Whole::Reasoning(text) => text.clone(),
        Whole::Call(name, arguments) => format!("{name}{arguments}"),
    };
    parts.iter().map(text).collect()
}

/// Cuts `text` into pieces of these numbers of characters.
fn cut<'a>(text: &'a str, lengths: &[usize]) -> Vec<&'a str> {
    let (mut rest, mut pieces) = (text, Vec::new());
    for length in lengths.iter().cycle() {
        let end = rest.char_indices().nth(*length).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// `parse` itself checks that no part is empty, that calls are numbered, and that the text held
    /// back is bounded.
    #[test]
    fn however_a_text_is_cut_its_parts_are_the_same_and_no_word_is_lost(
        options in options(),
        picks in vec(any::<Index>(), 0..30),
        lengths in vec(1usize..12, 1..8),
    ) {
        let (text, words) = text_of(options.tools, &picks);
        let whole = parse(&options, [text.as_str()]);
        prop_assert_eq!(&parse(&options, cut(&text, &[1])), &whole, "{:?}", text);
        prop_assert_eq!(&parse(&options, cut(&text, &lengths)), &whole, "{:?}", text);
        let shown = shown(&whole);
        for word in words {
            prop_assert!(shown.contains(&word), "{} of {:?} is not in {:?}", word, text, whole);
        }
    }

    #[test]
    fn a_text_without_markers_is_content_as_it_stands(
        options in options(),
        text in "[a-z \\n}\\]\",:é😀]{1,100}",
        lengths in vec(1usize..12, 1..8),
    ) {
        let options = ParserOptions { reasoning_is_open: false, ..options };
        prop_assert_eq!(parse(&options, cut(&text, &lengths)), [Whole::content(&text)]);
    }

    #[test]
    fn no_text_makes_it_panic(options in options(), text in any::<String>()) {
        let whole = parse(&options, [text.as_str()]);
        prop_assert_eq!(parse(&options, cut(&text, &[1])), whole);
    }
}
