//! Texts that models write, correct or not, and the parts that they are split into.

use super::samples::{Whole, offered, parse, written};
use super::{Parser, ParserOptions, Part, ReasoningSyntax, ToolSyntax};
use crate::limits::{MARKER_SPACE_BYTES_MAX, TOOL_HEAD_BYTES_MAX};

fn content(text: &str) -> Whole {
    Whole::content(text)
}

fn reasoning(text: &str) -> Whole {
    Whole::reasoning(text)
}

fn call(name: &str, arguments: &str) -> Whole {
    Whole::call(name, arguments)
}

fn read(tools: ToolSyntax, text: &str) -> Vec<Whole> {
    let reasoning = match tools {
        ToolSyntax::CommandR => ReasoningSyntax::Cohere,
        ToolSyntax::Gemma => ReasoningSyntax::Gemma,
        ToolSyntax::Seed => ReasoningSyntax::Seed,
        _ => ReasoningSyntax::Think,
    };
    let options = ParserOptions { offered: offered(), ..splitting(reasoning) };
    parse(&ParserOptions { tools: Some(tools), ..options }, [text])
}

/// Options that split reasoning off.
fn splitting(syntax: ReasoningSyntax) -> ParserOptions {
    ParserOptions { reasoning: true, reasoning_syntax: Some(syntax), ..Default::default() }
}

fn read_reasoning(is_open: bool, text: &str) -> Vec<Whole> {
    let options = splitting(ReasoningSyntax::Think);
    parse(&ParserOptions { reasoning_is_open: is_open, ..options }, [text])
}

/// What is written at a limit ends the reasoning, and the answer or a call may follow.
#[test]
fn reasoning_that_is_ended_is_whole() {
    for syntax in ReasoningSyntax::ALL {
        let options = ParserOptions { reasoning_is_open: true, ..splitting(syntax) };
        let end = options.reasoning_end().unwrap();
        for text in [end.text, end.next] {
            let whole = parse(&options, [&*format!("Hm.{text}Yes.")]);
            assert_eq!(whole, [reasoning("Hm."), content("Yes.")], "{syntax:?}");
        }
    }
    for has_tools in [false, true] {
        let options = ParserOptions {
            tools: Some(ToolSyntax::Harmony),
            offered: offered().filter(|_| has_tools),
            ..splitting(ReasoningSyntax::Think)
        };
        let end = options.reasoning_end().unwrap();
        let answer = format!("{}Hm.{}Yes.", end.opener, end.next);
        assert_eq!(parse(&options, [&*answer]), [reasoning("Hm."), content("Yes.")]);
        let again = format!("{}Hm.{}{}No.{}Yes.", end.opener, end.text, end.opener, end.next);
        let whole = parse(&options, [&*again]);
        let expected = [reasoning("Hm.No."), content("Yes.")];
        assert!(!has_tools || whole == expected, "{whole:?}");
    }
}

#[test]
fn what_a_grammar_forces_is_read_as_calls() {
    let calls = [("weather", r#"{"city": "Graz"}"#), ("now", "{}")];
    for syntax in ToolSyntax::ALL {
        let (before, parts) = match syntax {
            ToolSyntax::Llama3 => ("<think>Hm.</think>", vec![reasoning("Hm.")]),
            ToolSyntax::Harmony => (
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant",
                vec![reasoning("Hm.")],
            ),
            _ => ("I look.\n", vec![content("I look.")]),
        };
        let number = if syntax.row().between.is_empty() { 1 } else { 2 };
        let text = format!("{before}{}", written(syntax, &calls[..number]));
        let expected_calls = calls[..number].iter().map(|(name, text)| call(name, text));
        let expected: Vec<Whole> = parts.into_iter().chain(expected_calls).collect();
        assert_eq!(read(syntax, &text), expected, "{syntax:?}");
    }
}

#[test]
fn reasoning_is_set_apart_with_the_space_around_it() {
    let parts = [reasoning("Let me see."), content("Yes.")];
    assert_eq!(read_reasoning(false, "\n<think>\nLet me see.\n</think>\n\nYes."), parts);
    assert_eq!(read_reasoning(true, "Let me see.\n</think>\n\nYes."), parts);
    assert_eq!(read_reasoning(true, "\nLet me see.</think>Yes."), parts);
    assert_eq!(read_reasoning(false, "<think>\n\n</think>\n\nYes."), [content("Yes.")]);
    // The end marker of another family is text.
    assert_eq!(
        parse(&splitting(ReasoningSyntax::Mistral), ["[THINK]a</think>b[/THINK]c"]),
        [reasoning("a</think>b"), content("c")]
    );
    assert_eq!(read_reasoning(true, "Cut o"), [reasoning("Cut o")]);
    assert_eq!(read_reasoning(true, "Cut </thi"), [reasoning("Cut </thi")]);
}

#[test]
fn reasoning_begins_only_where_a_message_or_a_block_does() {
    let text = "A <think> is a tag.";
    assert_eq!(read_reasoning(false, text), [content(text)]);
    let options = ParserOptions::default();
    let text = "<think>Hm.</think>Yes. \n";
    assert_eq!(parse(&options, [text]), [content(text)]);
    let again = format!(
        "<think>a</think>{}<think>b</think>",
        written(ToolSyntax::Hermes, &[("now", "{}")])
    );
    let parts = [reasoning("a"), call("now", "{}"), reasoning("b")];
    assert_eq!(read(ToolSyntax::Hermes, &again), parts);
}

#[test]
fn the_markers_of_other_templates_are_text() {
    for syntax in ReasoningSyntax::ALL {
        let text = format!("{}a{}b", syntax.opener(), syntax.closer());
        for other in [None].into_iter().chain(ReasoningSyntax::ALL.map(Some)) {
            let reasoning_syntax = other;
            let options = ParserOptions { reasoning: true, reasoning_syntax, ..Default::default() };
            let parts = match other == Some(syntax) {
                true => vec![reasoning("a"), content("b")],
                false => vec![content(&text)],
            };
            assert_eq!(parse(&options, [text.as_str()]), parts, "{syntax:?} for {other:?}");
            assert_eq!(options.reads(syntax.opener().as_bytes()), other == Some(syntax));
            // A prompt that ends inside reasoning has the same family's markers.
            if let Some(other) = other.filter(|other| *other != syntax) {
                let options = ParserOptions { reasoning_is_open: true, ..options.clone() };
                let text = format!("a{}b{}c", syntax.closer(), other.closer());
                let thought = format!("a{}b", syntax.closer());
                let parts = [reasoning(&thought), content("c")];
                assert_eq!(parse(&options, [text.as_str()]), parts, "{syntax:?} for {other:?}");
            }
        }
    }
}

#[test]
fn reasoning_that_stays_in_the_content_is_as_written_and_calls_nothing() {
    let called = written(ToolSyntax::Hermes, &[("now", "{}")]);
    let reasoning_syntax = Some(ReasoningSyntax::Think);
    let tools = Some(ToolSyntax::Hermes);
    let options = ParserOptions { tools, reasoning_syntax, ..Default::default() };
    let thought = format!(" <think>\n{called}\n</think>\n\n");
    let parts = [content(thought.trim_end()), call("now", "{}")];
    assert_eq!(parse(&options, [format!("{thought}{called}").as_str()]), parts);
    let text = format!("{thought}Yes.");
    assert_eq!(parse(&options, [text.as_str()]), [content(&text)]);
    let options = ParserOptions { reasoning_is_open: true, ..options.clone() };
    let text = format!("\nHm, {called}</think> Yes.");
    assert_eq!(parse(&options, [text.as_str()]), [content(&text)]);
}

#[test]
fn calls_are_read_as_models_vary_them() {
    use ToolSyntax::*;
    let cases = [
        // Without spaces; an escaped name; an id; arguments with braces in strings.
        (
            Hermes,
            r#"<tool_call>{"id":1,"name":"n\u006fw","arguments":{"a":"}\"]"}}</tool_call>"#,
            vec![call("now", r#"{"a":"}\"]"}"#)],
        ),
        // Arguments before the name; none at all; two calls in one block.
        (
            Hermes,
            r#"<tool_call>{"arguments": [1], "name": "a"}{"name": "b"}</tool_call>"#,
            vec![call("a", "[1]"), call("b", "{}")],
        ),
        // Without the closing brace or the closing marker.
        (
            Hermes,
            "<tool_call>{\"name\":\"a\",\"arguments\":{}\n</tool_call>",
            vec![call("a", "{}")],
        ),
        (Hermes, r#"<tool_call>{"name":"a","arguments":{}}"#, vec![call("a", "{}")]),
        // Text between calls and after them.
        (
            Hermes,
            r#"<tool_call>{"name":"a"}</tool_call> Then <tool_call>{"name":"b"}</tool_call>!"#,
            vec![call("a", "{}"), content("Then"), call("b", "{}"), content("!")],
        ),
        (
            Llama3,
            r#"<|python_tag|>{"type": "function", "name": "a", "parameters": {}}"#,
            vec![call("a", "{}")],
        ),
        (
            Llama3,
            r#"{"name": "a", "parameters": {}}; {"name": "b", "parameters": {"c": 1}}"#,
            vec![call("a", "{}"), call("b", r#"{"c": 1}"#)],
        ),
        (
            MistralList,
            r#"[TOOL_CALLS] [{"name": "a", "arguments": {}, "id": "abcdef123"}]"#,
            vec![call("a", "{}")],
        ),
        (
            MistralNamed,
            r#"[TOOL_CALLS]a[CALL_ID]abcdef123[ARGS]{"b": 1}[TOOL_CALLS]c{}"#,
            vec![call("a", r#"{"b": 1}"#), call("c", "{}")],
        ),
        (
            DeepSeek,
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>a\n```json\n{}\n```<｜tool▁call▁end｜>",
            vec![call("a", "{}")],
        ),
        (
            CommandR,
            "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>",
            vec![reasoning("Hm."), content("Yes.")],
        ),
        (Granite, r#"<tool_call>[{"name": "a", "arguments": {}}]"#, vec![call("a", "{}")]),
    ];
    for (syntax, text, parts) in cases {
        assert_eq!(read(syntax, text), parts, "{syntax:?} {text}");
    }
}

#[test]
fn what_is_no_call_is_content_as_written() {
    use ToolSyntax::*;
    let texts = [
        (Hermes, "Write <tool_call> and </tool_call> around it."),
        (Hermes, r#"<tool_call>{"name": 5, "arguments": {}}"#),
        (Hermes, r#"<tool_call>{"name": "", "arguments": {}}"#),
        (Hermes, r#"<tool_call>{"arguments": {}}</tool_call>"#),
        (Hermes, r#"<tool_call>{"name": "a", "arguments": maybe}"#),
        (Hermes, r#"<tool_call>{"arguments": 1, "arguments": 2, "name": "a"}"#),
        (Hermes, "a \n <tool_call> \n b"),
        // Cut off before the arguments.
        (Hermes, "<tool_ca"),
        (Hermes, r#"<tool_call>{"name": "a", "argum"#),
        (MistralNamed, "[TOOL_CALLS]a[AR"),
        // Answers that are JSON or code.
        (Llama3, r#"{"name": "Ada", "born": 1815}"#),
        (Llama3, r#"{"name": "Ada"}"#),
        (Llama3, r#"  {"a": 1}"#),
        (Llama3, r#"As JSON: {"name": "a", "parameters": {}}"#),
        (Llama3, "<|python_tag|>print(1)"),
        (MistralNamed, "[TOOL_CALLS] none today {}"),
        (CommandRFenced, "Action: wait."),
    ];
    for (syntax, text) in texts {
        assert_eq!(read(syntax, text), [content(text)], "{syntax:?}");
    }
}

#[test]
fn arguments_that_are_cut_off_are_what_there_is_of_them() {
    let text = r#"<tool_call>{"name": "a", "arguments": {"b": "</tool_call>"#;
    assert_eq!(read(ToolSyntax::Hermes, text), [call("a", r#"{"b": "</tool_call>"#)]);
    let text = r#"<tool_call>{"name": "a", "arguments": {"b": 1}, "id": "x"#;
    let parts = [call("a", r#"{"b": 1}"#), content(r#", "id": "x"#)];
    assert_eq!(read(ToolSyntax::Hermes, text), parts);
}

/// The limit of tokens was reached within a call, before anything could be told of it.
#[test]
fn the_head_of_a_call_that_was_cut_off_is_dropped() {
    let cut = |tools, text: &str| {
        let options = ParserOptions { offered: offered(), ..splitting(ReasoningSyntax::Think) };
        let mut parser = Parser::new(ParserOptions { tools: Some(tools), ..options });
        let mut content = String::new();
        let mut take = |part: Part<'_>| match part {
            Part::Content(text) => content.push_str(text),
            other => panic!("{other:?}"),
        };
        parser.push(text, &mut take);
        parser.finish(true, &mut take);
        content
    };
    for text in [
        "I look.\n<tool_call>\n{\"name\": ",
        "I look.<tool_call>",
        "I look.\n<tool_call>\n{\"name\": \"no",
    ] {
        assert_eq!(cut(ToolSyntax::Hermes, text), "I look.", "{text}");
    }
    assert_eq!(cut(ToolSyntax::Harmony, "<|channel|>commentary to=functions.no"), "");
    // No call has begun.
    for text in ["{\"name\": ", "a <tool", "a < b"] {
        assert_eq!(cut(ToolSyntax::Hermes, text), text);
    }
}

#[test]
fn a_call_too_long_before_its_arguments_is_content() {
    let name = "a".repeat(TOOL_HEAD_BYTES_MAX);
    let text = format!(r#"<tool_call>{{"name": "{name}", "arguments": {{}}}}"#);
    let options = ParserOptions { tools: Some(ToolSyntax::Hermes), ..Default::default() };
    assert_eq!(parse(&options, [text.as_str()]), [content(&text)]);
    // Letter by letter: `parse` checks the length of the text held back.
    assert_eq!(parse(&options, text.split_inclusive(|_: char| true)), [content(&text)]);
}

#[test]
fn space_before_a_marker_is_dropped_up_to_the_bound() {
    let space = " ".repeat(MARKER_SPACE_BYTES_MAX + 2);
    let text = format!("a{space}{}", written(ToolSyntax::Hermes, &[("now", "{}")]));
    let options = ParserOptions { tools: Some(ToolSyntax::Hermes), ..Default::default() };
    let parts = [content("a  "), call("now", "{}")];
    assert_eq!(parse(&options, [text.as_str()]), parts);
    assert_eq!(parse(&options, text.split_inclusive(|_: char| true)), parts);
}

#[test]
fn harmony_messages_go_where_their_channel_says() {
    let text = "<|channel|>analysis<|message|>Hm.<|end|>\
                <|start|>assistant<|channel|>commentary<|message|>I look.<|end|>\
                <|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>";
    let parts = [reasoning("Hm."), content("I look."), call("now", "{}")];
    assert_eq!(read(ToolSyntax::Harmony, text), parts);

    let options = ParserOptions { tools: Some(ToolSyntax::Harmony), ..Default::default() };
    let text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant\
                <|channel|>final<|message|>Yes.";
    assert_eq!(parse(&options, [text]), [content("<|channel|>analysis<|message|>Hm.<|end|>Yes.")]);

    for text in ["Hello.", "<|channel|>song<|message|>La.", "assist", "<|channel|>fi"] {
        assert_eq!(read(ToolSyntax::Harmony, text), [content(text)]);
    }
    // The end of a message is missing, and a call is cut off.
    let text = " to=functions.now<|message|>{\"a\"<|channel|>final<|message|>Yes.";
    assert_eq!(read(ToolSyntax::Harmony, text), [call("now", "{\"a\""), content("Yes.")]);
}
