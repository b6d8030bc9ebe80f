//! Texts in the notations that are not JSON, as models vary them, and the parts that they are split
//! into.

use serde_json::Value;

use super::samples::{Whole, calling, parse};
use super::{ParserOptions, ReasoningSyntax, ToolSyntax};

fn content(text: &str) -> Whole {
    Whole::content(text)
}

fn call(name: &str, arguments: &str) -> Whole {
    Whole::call(name, arguments)
}

/// Reads a text whole and in pieces of one to five characters.
fn read(options: &ParserOptions, text: &str) -> Vec<Whole> {
    let whole = parse(options, [text]);
    for size in 1..6 {
        let letters: Vec<&str> = text.split_inclusive(|_: char| true).collect();
        let pieces: Vec<String> = letters.chunks(size).map(|chunk| chunk.concat()).collect();
        assert_eq!(parse(options, pieces.iter().map(String::as_str)), whole, "{size} {text}");
    }
    whole
}

/// Checks that a text is a call of `weather` with these arguments.
fn check(syntax: ToolSyntax, text: &str, arguments: &str) {
    let parts = read(&calling(syntax), text);
    let [Whole::Call(name, found)] = &parts[..] else { panic!("{text} is {parts:?}") };
    assert_eq!(name, "weather", "{text}");
    let parsed = |text: &str| serde_json::from_str::<Value>(text).expect(text);
    assert_eq!(parsed(found), parsed(arguments), "{text}");
}

const ALL: &str = r#"{"city": "a <b> \"c\"\n\n12 é", "days": 3, "hourly": true, "note": null,
    "places": [{"name": "x", "sea": false}], "extra": {"a": "<"}}"#;

#[test]
fn values_have_the_types_of_the_schema() {
    let text = |open: &str, value: &str, close: &str| {
        format!("{open}{}{close}", value.replace("CITY", "a <b> \"c\"\n\n12 é"))
    };
    check(
        ToolSyntax::QwenCoder,
        &text(
            "<tool_call>\n<function=weather>\n",
            "<parameter=city>\nCITY\n</parameter>\n<parameter=days>\n3\n</parameter>\n\
             <parameter=hourly>\nTrue\n</parameter>\n<parameter=note>\nnull\n</parameter>\n\
             <parameter=places>\n[{\"name\": \"x\", \"sea\": false}]\n</parameter>\n\
             <parameter=extra>\n{\"a\": \"<\"}\n</parameter>\n",
            "</function>\n</tool_call>",
        ),
        ALL,
    );
    for [line, end] in [["\n", "\n"], ["", ""]] {
        let members = [
            ("city", "CITY"),
            ("days", " 3 "),
            ("hourly", "true"),
            ("note", "null"),
            ("places", "[{'name': 'x', 'sea': False}]"),
            ("extra", "{\"a\": \"<\"}"),
        ];
        let members: String = members
            .iter()
            .map(|(key, value)| {
                format!("<arg_key>{key}</arg_key>{line}<arg_value>{value}</arg_value>{end}")
            })
            .collect();
        let text = text(&format!("<tool_call>weather{line}"), &members, "</tool_call>");
        check(ToolSyntax::Glm, &text, ALL);
        check(ToolSyntax::GlmLines, &text, ALL);
    }
    let members = [
        ("city", "true", "CITY"),
        ("days", "false", "3"),
        ("hourly", "false", "true"),
        ("note", "false", "null"),
        ("places", "false", "[{\"name\": \"x\", \"sea\": false}]"),
        ("extra", "false", "{\"a\": \"<\"}"),
    ];
    let dsml = |(key, is_string, value): &(&str, &str, &str)| {
        format!(
            "<｜DSML｜parameter name=\"{key}\" string=\"{is_string}\">{value}</｜DSML｜parameter>\n"
        )
    };
    let minimax = |(key, _, value): &(&str, &str, &str)| {
        format!("<parameter name=\"{key}\">{value}</parameter>\n")
    };
    let all: String = members.iter().map(dsml).collect();
    check(
        ToolSyntax::Dsml,
        &text(
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n",
            &all,
            "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        ),
        ALL,
    );
    let all: String = members.iter().map(minimax).collect();
    check(
        ToolSyntax::MiniMax,
        &text(
            "<minimax:tool_call>\n<invoke name=\"weather\">\n",
            &all,
            "</invoke>\n</minimax:tool_call>",
        ),
        ALL,
    );
    check(
        ToolSyntax::Gemma,
        &text(
            "<|tool_call>call:weather{",
            "city:<|\"|>CITY<|\"|>,days:3,hourly:true,note:null,\
             places:[{name:<|\"|>x<|\"|>,sea:false}],extra:{a:<|\"|><<|\"|>}",
            "}<tool_call|>",
        ),
        ALL,
    );
    check(
        ToolSyntax::Lfm2,
        &text(
            "<|tool_call_start|>[weather(",
            r#"city='a <b> "c"\n\n12 é', days=3, hourly=True, note=None,
               places=[{'name': "x", 'sea': False}], extra={"a": '<'}"#,
            ")]<|tool_call_end|>",
        ),
        ALL,
    );
}

#[test]
fn a_value_is_what_its_type_makes_of_the_text() {
    let cases = [
        ("city", "12", r#""12""#),
        ("city", "{\"a\": 1}", r#""{\"a\": 1}""#),
        ("city", "\nx\n", r#""\nx\n""#),
        ("city", "", r#""""#),
        ("days", "None", "null"),
        ("days", "three", r#""three""#),
        ("hourly", "False", "false"),
        ("places", "none", r#""none""#),
        ("places", "[(1, 'a')]", r#"[[1, "a"]]"#),
        // `null` or a string.
        ("note", "12", r#""12""#),
        ("note", "None", r#""None""#),
        ("note", "\"a\"", r#""a""#),
        // Anything, known or unknown.
        ("extra", "12", "12"),
        ("extra", "True", r#""True""#),
        ("extra", "[1, 2", r#""[1, 2""#),
        ("town", "a b", r#""a b""#),
        ("town", "[1]", "[1]"),
    ];
    for (key, text, value) in cases {
        let json = format!("{{\"{key}\": {value}}}");
        let lines = format!("<parameter={key}>\n{text}\n</parameter>\n</function>");
        let calls = [
            (
                ToolSyntax::QwenCoder,
                format!("<tool_call>\n<function=weather>\n{lines}\n</tool_call>"),
            ),
            (ToolSyntax::QwenCoder, format!("<function=weather>{lines}</tool_call>")),
            (
                ToolSyntax::MiniMax,
                format!(
                    "<minimax:tool_call><invoke name=\"weather\"><parameter name=\"{key}\">{text}\
                     </parameter></invoke></minimax:tool_call>"
                ),
            ),
            (
                ToolSyntax::DsmlCalls,
                format!(
                    "<｜DSML｜tool_calls><｜DSML｜invoke name=\"weather\">\
                     <｜DSML｜parameter name=\"{key}\">{text}</｜DSML｜parameter></｜DSML｜invoke>"
                ),
            ),
        ];
        for (syntax, text) in calls {
            assert_eq!(read(&calling(syntax), &text), [call("weather", &json)], "{text}");
        }
    }
}

#[test]
fn calls_in_other_notations_are_read_as_models_vary_them() {
    use ToolSyntax::*;
    let now = || call("now", "{}");
    let cases = [
        // Without closing tags, and without any parameter.
        (QwenCoder, "<tool_call><function=now></function>", vec![now()]),
        (QwenCoder, "<tool_call>\n<function=now>\n</tool_call>", vec![]),
        (
            QwenCoder,
            "<function=now>\n<parameter=a>\n1\n</parameter>\n</tool_call>\nDone.",
            vec![call("now", r#"{"a": 1}"#), content("Done.")],
        ),
        (
            QwenCoder,
            "Hm.\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n<function=now></function>",
            vec![content("Hm."), now(), now()],
        ),
        (
            QwenCoder,
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
            vec![now()],
        ),
        // Cut off.
        (
            QwenCoder,
            "<function=weather>\n<parameter=city>\nGraz\n</para",
            vec![call("weather", "{\"city\": \"Graz\\n</para")],
        ),
        (
            QwenCoder,
            "<function=weather>\n<parameter=days>\n12",
            vec![call("weather", "{\"days\": 12")],
        ),
        (
            QwenCoder,
            "<function=weather>\n<parameter=places>\n[{\"name\": \"a",
            vec![call("weather", r#"{"places": [{"name": "a"#)],
        ),
        (
            QwenCoder,
            "<function=weather>\n<parameter=extra>\na",
            vec![call("weather", r#"{"extra": "a"#)],
        ),
        (
            Seed,
            "<seed:tool_call>\n<function=weather>\n<parameter=city>\nGraz</parameter>\n</function>\n</seed:tool_call>",
            vec![call("weather", r#"{"city": "\nGraz"}"#)],
        ),
        (GlmLines, "<tool_call>now\n</tool_call>\n<tool_call>now</tool_call>", vec![now(), now()]),
        (Glm, "<tool_call>now</tool_call>", vec![now()]),
        (
            MiniMax,
            "\n<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n<invoke name=\"now\">\n\
             <parameter name=\"a\">1</parameter>\n</invoke>\n</minimax:tool_call>",
            vec![now(), call("now", r#"{"a": 1}"#)],
        ),
        (
            Dsml,
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"now\">\n{\"a\": 1}\n</｜DSML｜invoke>\n\
             </｜DSML｜function_calls>",
            vec![call("now", r#"{"a": 1}"#)],
        ),
        (
            Gemma,
            "<|tool_call>call:now{}<tool_call|><|tool_call>call:now{a:1}",
            vec![now(), call("now", r#"{"a": 1}"#)],
        ),
        (Gemma, "<|tool_call>call:now{a:<|\"|>x", vec![call("now", r#"{"a": "x"#)]),
        (
            Lfm2,
            "<|tool_call_start|>[now(), now(a=1)]<|tool_call_end|>Checking.",
            vec![now(), call("now", r#"{"a": 1}"#), content("Checking.")],
        ),
        (Lfm2, "<|tool_call_start|>now()<|tool_call_end|>", vec![now()]),
        (
            Lfm2,
            "<|tool_call_start|>[{\"name\": \"now\", \"arguments\": {}}]<|tool_call_end|>",
            vec![now()],
        ),
        (Lfm2, "<|tool_call_start|>[now(a='x", vec![call("now", r#"{"a": "x"#)]),
        (
            Kimi,
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:3\
             <|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>now:4\
             <|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
            vec![now(), now()],
        ),
        (NemotronList, "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]", vec![now()]),
    ];
    for (syntax, text, parts) in cases {
        let parts = if parts.is_empty() { vec![content(text)] } else { parts };
        assert_eq!(read(&calling(syntax), text), parts, "{syntax:?} {text}");
    }
}

#[test]
fn what_is_no_call_in_another_notation_is_content() {
    use ToolSyntax::*;
    let texts = [
        (QwenCoder, "Write <tool_call> or <function=name> around it."),
        (QwenCoder, "<function=now>\nand more"),
        (QwenCoder, "<tool_call>\n<function=no"),
        (Glm, "<tool_call>hello there</tool_call>"),
        (MiniMax, "<minimax:tool_call>\n<invoke name=now>"),
        (Dsml, "<｜DSML｜function_calls>\n<invoke name=\"now\">"),
        (Gemma, "<|tool_call>call:now(a=1)"),
        (Lfm2, "<|tool_call_start|>[now, later]"),
        (Kimi, "<|tool_call_begin|>functions.now:x<|tool_call_argument_begin|>{}"),
    ];
    for (syntax, text) in texts {
        assert_eq!(read(&calling(syntax), text), [content(text)], "{syntax:?}");
    }
}

#[test]
fn control_tokens_that_are_markers_are_text() {
    use ToolSyntax::*;
    let tokens: [(ToolSyntax, &[&str]); 8] = [
        (QwenCoder, &["<tool_call>", "</tool_call>"]),
        (Seed, &["<seed:tool_call>", "</seed:tool_call>"]),
        (Glm, &["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]),
        (MiniMax, &["<minimax:tool_call>", "</minimax:tool_call>"]),
        (Dsml, &["｜DSML｜"]),
        (Gemma, &["<|tool_call>", "<tool_call|>", "<|\"|>"]),
        (Lfm2, &["<|tool_call_start|>", "<|tool_call_end|>"]),
        (
            Kimi,
            &[
                "<|tool_calls_section_begin|>",
                "<|tool_call_begin|>",
                "<|tool_call_argument_begin|>",
                "<|tool_call_end|>",
                "<|tool_calls_section_end|>",
            ],
        ),
    ];
    for (syntax, texts) in tokens {
        for text in texts {
            assert!(calling(syntax).reads(text.as_bytes()), "{syntax:?} {text}");
            let other = ParserOptions { tools: Some(Llama3), ..Default::default() };
            assert!(!other.reads(text.as_bytes()), "{text}");
        }
        assert!(!calling(syntax).reads(b"<|im_end|>"), "{syntax:?}");
    }
    let reasoning_syntax = Some(ReasoningSyntax::Gemma);
    let thinking = ParserOptions { reasoning_syntax, ..Default::default() };
    assert!(thinking.reads(b"<|channel>") && thinking.reads(b"<channel|>"));
}

#[test]
fn a_long_value_of_unknown_type_is_a_string() {
    let long = "12".repeat(50_000);
    let text = format!("<function=weather><parameter=extra>{long}</parameter></function>");
    let json = format!("{{\"extra\": \"{long}\"}}");
    let options = calling(ToolSyntax::QwenCoder);
    assert_eq!(parse(&options, text.split_inclusive(|_: char| true)), [call("weather", &json)]);
}

#[test]
fn fenced_and_bare_objects_are_calls_of_offered_tools_alone() {
    let fenced = ParserOptions { fenced_calls: true, ..calling(ToolSyntax::Hermes) };
    let graz = r#"{"name": "weather", "arguments": {"city": "Graz"}}"#;
    let called = || call("weather", r#"{"city": "Graz"}"#);
    let cases = [
        (format!("```json\n{graz}\n```"), vec![called()]),
        (format!("```\n{graz}\n```\nI wait."), vec![called(), content("I wait.")]),
        (graz.to_owned(), vec![called()]),
        // With the outer braces doubled, and closed by as many or by one more.
        (format!("{{{graz}}}"), vec![called()]),
        (format!("```json\n{{{graz}}}}}\n```\nI wait."), vec![called(), content("I wait.")]),
        (format!("{graz}\n{graz}\n"), vec![called(), called()]),
        (
            format!("I look:\n\n```json\n{graz}\n```\n\n```json\n{graz}\n```"),
            vec![content("I look:"), called(), called()],
        ),
        (format!("{graz}\n```rust\nx\n```"), vec![called(), content("```rust\nx\n```")]),
    ];
    for (text, parts) in cases {
        assert_eq!(read(&fenced, &text), parts, "{text}");
        // Without leave, all is content.
        let options = calling(ToolSyntax::Hermes);
        assert_eq!(read(&options, &text), [content(&text)], "{text}");
    }
    let long = format!(r#"{{"name": "now", "arguments": {{"a": "{}"}}}}"#, "x".repeat(70_000));
    assert_eq!(parse(&fenced, long.split_inclusive(|_: char| true)), [content(&long)]);
    let answers = [
        r#"{"name": "other", "arguments": {}}"#,
        r#"{"name": "weather", "arguments": {"town": "Graz"}}"#,
        r#"{"name": "weather", "arguments": {"city": "Graz", "x": 1}}"#,
        r#"{"name": "weather", "arguments": "Graz"}"#,
        r#"{"name": "weather", "arguments": {"city": "Graz"}, "why": 1}"#,
        r#"{"name": "weather", "arguments": {"city": "Gr"#,
        r#"{"name": "weather"}"#,
        r#"{"x": 1}"#,
        "```json\n{\"name\": \"Ada\", \"born\": 1815}\n```\n",
        "```rust\nfn main() {}\n```",
        "Use `now`:\n`now`, or\n``` and {\n",
        r#"As JSON: {"name": "now", "arguments": {}}"#,
        "  {",
        "`",
    ];
    for text in answers {
        assert_eq!(read(&fenced, text), [content(text)], "{text}");
    }
}
