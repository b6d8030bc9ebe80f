//! Tests with llguidance which texts each grammar accepts and which it rejects.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use super::form::{Form, INNER_TOKENS};
use super::samples::written;
use super::{CallRule, GrammarOptions, ReasoningSyntax, ToolSpec, ToolSyntax};

/// A vocabulary of all bytes, some of a family's markers and an end token.
pub(super) struct Vocabulary {
    syntax: ToolSyntax,
    pub markers: Vec<&'static str>, // token 256 + index
    pub factory: ParserFactory,
}

impl Vocabulary {
    fn new(syntax: ToolSyntax, markers: Vec<&'static str>) -> Self {
        let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        // llguidance marks a special token by a first byte that never occurs in text.
        let special = |text: &str| [&[TokTrie::SPECIAL_TOKEN_MARKER][..], text.as_bytes()].concat();
        words.extend(markers.iter().map(|marker| special(marker)));
        words.push(special("<|end of all|>"));
        let n_vocab = u32::try_from(words.len()).unwrap();
        let info = TokRxInfo::new(n_vocab, n_vocab - 1);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)));
        let mut factory = ParserFactory::new_simple(&env).unwrap();
        factory.quiet();
        Self { syntax, markers, factory }
    }

    pub fn token(&self, text: &str) -> Option<u32> {
        let index = self.markers.iter().position(|marker| *marker == text)?;
        Some(256 + u32::try_from(index).unwrap())
    }

    pub fn tokens(&self, text: &str) -> Vec<u32> {
        let (mut tokens, mut at) = (Vec::new(), 0);
        while at < text.len() {
            let rest = &text.as_bytes()[at..];
            let marker = self.markers.iter().find(|marker| rest.starts_with(marker.as_bytes()));
            tokens.push(marker.map_or(u32::from(rest[0]), |marker| self.token(marker).unwrap()));
            at += marker.map_or(1, |marker| marker.len());
        }
        tokens
    }

    /// The grammar for `small_tools`, of a model that does not reason.
    fn grammar(&self, choice: &CallRule, parallel: bool) -> String {
        self.grammar_with(&small_tools(), choice, parallel, None, false, None)
    }

    /// Like `grammar`, with the markers of reasoning, whether it is open, and a schema for answers
    /// that call no tool.
    pub fn grammar_with(
        &self,
        tools: &[ToolSpec],
        choice: &CallRule,
        parallel: bool,
        reasoning: Option<ReasoningSyntax>,
        reasoning_is_open: bool,
        form: Option<&Value>,
    ) -> String {
        let token = |text: &str| self.token(text);
        let options =
            GrammarOptions { parallel, reasoning, reasoning_is_open, form, token: &token };
        self.syntax.grammar(tools, choice, &options).unwrap()
    }

    /// Whether the grammar accepts a text as the start of an answer, and as a whole answer.
    fn judge(&self, lark: &str, text: &str) -> (bool, bool) {
        let grammar = TopLevelGrammar::from_lark(lark.to_owned());
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        assert!(!matcher.is_error(), "{:?}\n{lark}", matcher.get_error());
        let tokens = self.tokens(text);
        let taken = matcher.try_consume_tokens(&tokens).unwrap();
        let begins = taken == tokens.len();
        let ends = matcher.is_stopped() || matcher.is_accepting().unwrap();
        (begins, begins && ends)
    }
}

/// Runs a test for each family, with its markers as text and as tokens.
pub(super) fn each(test: impl Fn(ToolSyntax, &Vocabulary)) {
    for syntax in ToolSyntax::ALL {
        let row = syntax.row();
        let mut markers = [row.open, row.separators, row.close, row.noise, INNER_TOKENS].concat();
        markers.extend(row.form.texts());
        markers.extend(ReasoningSyntax::ALL.iter().flat_map(|s| [s.opening_token(), s.closer()]));
        let is_token = |marker: &str| {
            let has_bars = marker.contains("｜DSML｜") && marker.len() > "｜DSML｜".len();
            let is_tag = marker.ends_with('>') && marker.starts_with('<') && !has_bars;
            is_tag || marker.starts_with('[') || marker == "｜DSML｜"
        };
        markers.retain(|marker| is_token(marker));
        markers.sort_unstable();
        markers.dedup();
        test(syntax, &Vocabulary::new(syntax, Vec::new()));
        test(syntax, &Vocabulary::new(syntax, markers));
    }
}

/// Tools whose grammars compile fast.
fn small_tools() -> Vec<ToolSpec> {
    let city = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": false,
    });
    vec![
        ToolSpec { name: "weather".into(), parameters: city },
        ToolSpec { name: "now".into(), parameters: Value::Null },
    ]
}

const GRAZ: (&str, &str) = ("weather", r#"{"city": "Graz"}"#);

#[test]
fn calls_are_let_through_whole_and_with_their_schema_alone() {
    each(|syntax, vocabulary| {
        let named = CallRule::Named("weather".into());
        for choice in [CallRule::Auto, CallRule::Required, named.clone()] {
            let lark = vocabulary.grammar(&choice, false);
            let judge = |text: &str| vocabulary.judge(&lark, text);
            let text = written(syntax, &[GRAZ]);
            assert_eq!(judge(&text), (true, true), "{syntax:?} {text}\n{lark}");
            let mut wrong = vec![("other", "{}"), ("weather", "{}"), ("weather", r#"{"x": 1}"#)];
            let number = ("weather", r#"{"city": 5}"#);
            // Between tags, any text is a string.
            let is_string = matches!(syntax.row().form, Form::Tagged(_));
            wrong.extend((!is_string).then_some(number));
            for wrong in wrong {
                let text = written(syntax, &[wrong]);
                assert!(!judge(&text).0, "{syntax:?} {text}\n{lark}");
            }
            let twice = format!("{text}{text}");
            assert!(!judge(&twice).0, "{syntax:?} {twice}\n{lark}");
            let now = written(syntax, &[("now", r#"{"a": [1]}"#)]);
            assert_eq!(judge(&now).1, choice != named, "{syntax:?} {now}\n{lark}");
        }
    });
}

#[test]
fn text_is_free_unless_a_call_is_required() {
    each(|syntax, vocabulary| {
        let text = match syntax {
            ToolSyntax::Harmony => "<|channel|>final<|message|>Hello, <tool_ca",
            _ => "Hello, <tool_ca",
        };
        let lark = vocabulary.grammar(&CallRule::Auto, true);
        assert_eq!(vocabulary.judge(&lark, text), (true, true), "{syntax:?}\n{lark}");
        let begun = format!("{}x", syntax.row().open[0]);
        assert!(!vocabulary.judge(&lark, &begun).0, "{syntax:?}\n{lark}");
        let lark = vocabulary.grammar(&CallRule::Required, true);
        assert!(!vocabulary.judge(&lark, text).0, "{syntax:?}\n{lark}");
        assert!(!vocabulary.judge(&lark, "").1, "{syntax:?}\n{lark}");
    });
}

#[test]
fn what_is_no_call_may_have_to_have_a_form() {
    let form = json!({"type": "object", "properties": {"x": {"type": "integer"}},
        "required": ["x"], "additionalProperties": false});
    each(|syntax, vocabulary| {
        if syntax.is_bare() {
            return; // such requests are refused
        }
        let said = |text: &str| match syntax {
            ToolSyntax::Harmony => format!("<|channel|>final<|message|>{text}"),
            _ => text.to_owned(),
        };
        let call = written(syntax, &[GRAZ]);
        for (choice, is_free) in [(CallRule::Auto, true), (CallRule::Required, false)] {
            let lark =
                vocabulary.grammar_with(&small_tools(), &choice, true, None, false, Some(&form));
            let judge = |text: &str| vocabulary.judge(&lark, text);
            assert_eq!(judge(&call), (true, true), "{syntax:?} {call}\n{lark}");
            assert_eq!(judge(&said("{\"x\": 7}")).1, is_free, "{syntax:?}\n{lark}");
            for wrong in ["Hello", "{\"x\": true"] {
                assert!(!judge(&said(wrong)).0, "{syntax:?} {wrong}\n{lark}");
            }
        }
    });
}

#[test]
fn several_calls_need_leave() {
    each(|syntax, vocabulary| {
        if syntax.row().between.is_empty() {
            return;
        }
        let text = written(syntax, &[GRAZ, ("now", "{}"), GRAZ]);
        for choice in [CallRule::Auto, CallRule::Required] {
            let lark = vocabulary.grammar(&choice, true);
            assert_eq!(vocabulary.judge(&lark, &text), (true, true), "{syntax:?}\n{lark}");
            // Some models write a line break before they end. It must not force another call.
            let spaced = [format!("{text}\n"), format!("{}\n", written(syntax, &[GRAZ]))];
            for text in spaced.iter().filter(|_| !syntax.row().end.is_empty()) {
                let judged = vocabulary.judge(&lark, text);
                assert_eq!(judged, (true, true), "{syntax:?} {text:?}\n{lark}");
            }
            let lark = vocabulary.grammar(&choice, false);
            assert!(!vocabulary.judge(&lark, &text).0, "{syntax:?}\n{lark}");
        }
    });
}

#[test]
fn a_model_may_think_before_it_calls() {
    each(|syntax, vocabulary| {
        let call = written(syntax, &[GRAZ]);
        if syntax == ToolSyntax::Harmony {
            let before = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
            for choice in [CallRule::Auto, CallRule::Required] {
                let lark = vocabulary.grammar(&choice, true);
                let text = format!("{before}{call}");
                assert_eq!(vocabulary.judge(&lark, &text), (true, true), "{lark}");
            }
            return;
        }
        for choice in [CallRule::Auto, CallRule::Required] {
            for markers in ReasoningSyntax::ALL {
                let open = format!("Hm {{ {}\n\n{call}", markers.closer());
                let lark = vocabulary.grammar_with(
                    &small_tools(),
                    &choice,
                    true,
                    Some(markers),
                    true,
                    None,
                );
                assert_eq!(vocabulary.judge(&lark, &open), (true, true), "{syntax:?}\n{lark}");
                let lark = vocabulary.grammar_with(
                    &small_tools(),
                    &choice,
                    true,
                    Some(markers),
                    false,
                    None,
                );
                for text in [format!("{}{open}", markers.opener()), call.clone()] {
                    assert_eq!(vocabulary.judge(&lark, &text), (true, true), "{text}\n{lark}");
                }
            }
        }
    });
}

#[test]
fn a_call_that_is_required_cannot_be_thought_away_with_markers_of_another_family() {
    each(|syntax, vocabulary| {
        for choice in [CallRule::Required, CallRule::Named("weather".into())] {
            for own in [None].into_iter().chain(ReasoningSyntax::ALL.map(Some)) {
                let lark = vocabulary.grammar_with(&small_tools(), &choice, true, own, false, None);
                let others = ReasoningSyntax::ALL.into_iter().filter(|other| Some(*other) != own);
                for other in others {
                    // Its first letter may be that of a call or of another marker.
                    let (begins, _) = vocabulary.judge(&lark, other.opener());
                    assert!(!begins, "{syntax:?} {own:?} {other:?}\n{lark}");
                }
            }
        }
    });
}
