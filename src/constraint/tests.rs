//! Tests of constraints over the fake vocabulary, in which every byte is a token.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::thread::gettid;

use super::{Compiled, Compiler, Constraint, Matcher, stop_long_work};
use crate::limits::{
    CONSTRAINT_BYTES_MAX, CONSTRAINTS_CACHED_BYTES_MAX, CONSTRAINTS_CACHED_MAX, REGEX_BYTES_MAX,
    SCHEMA_ALTERNATIVES_MAX, SCHEMA_DEPTH_MAX, SCHEMA_PATTERNS_MAX, SCHEMA_PROPERTIES_MAX,
    SCHEMA_VALUES_MAX, SCHEMAS_MAX,
};
use crate::model::vocab::Vocab;
use crate::types::{KeyId, TokenId};

/// The fake vocabulary's tokens: the bytes, and an end token.
const N_VOCAB: usize = 257;
const END: TokenId = 256;

pub(super) fn compiler() -> Compiler {
    let vocab = Vocab::of_fake();
    assert_eq!((vocab.n_tokens(), vocab.end_tokens()), (N_VOCAB, &[END][..]));
    Compiler::new(&vocab).unwrap()
}

fn matcher(constraint: &Constraint) -> Matcher {
    Matcher::new(&compiler().compile(constraint).unwrap())
}

/// The tokens that the mask allows.
fn allowed(matcher: &mut Matcher) -> Vec<TokenId> {
    let mut logits = vec![0.0; N_VOCAB];
    matcher.mask(&mut logits);
    let left = |token: &TokenId| logits[*token as usize] == 0.0;
    (0..N_VOCAB as TokenId).filter(left).collect()
}

fn tokens(bytes: &[u8]) -> Vec<TokenId> {
    bytes.iter().map(|byte| TokenId::from(*byte)).collect()
}

/// These tokens, or the end.
fn ending(bytes: &[u8]) -> Vec<TokenId> {
    tokens(bytes).into_iter().chain([END]).collect()
}

/// Whether a matcher accepts a text, followed by an end token.
pub(super) fn accepts(compiled: &Compiled, text: &str) -> bool {
    let mut matcher = Matcher::new(compiled);
    for byte in text.bytes() {
        if !allowed(&mut matcher).contains(&TokenId::from(byte)) {
            return false;
        }
        matcher.push(TokenId::from(byte)).unwrap();
    }
    allowed(&mut matcher).contains(&END) && matcher.error().is_none()
}

fn regex(source: &str) -> Constraint {
    Constraint::Regex(source.into())
}

pub(super) fn schema(source: &str) -> Constraint {
    Constraint::JsonSchema(source.into())
}

/// The error of a constraint that is refused.
pub(super) fn refusal(constraint: &Constraint) -> String {
    match compiler().compile(constraint) {
        Ok(_) => panic!("{constraint:?} was not refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_parts_may_travel_between_threads() {
    fn sends<T: Send>() {}
    fn shares<T: Sync>() {}
    sends::<Compiler>();
    sends::<Matcher>();
    sends::<Arc<Compiled>>();
    shares::<Compiled>();
}

#[test]
fn a_mask_leaves_what_may_follow_and_nothing_else() {
    let mut matcher = matcher(&regex("ab|ac*"));
    assert_eq!(allowed(&mut matcher), tokens(b"a"));
    matcher.push(b'a'.into()).unwrap();
    assert_eq!(allowed(&mut matcher), ending(b"bc"));
    matcher.push(b'c'.into()).unwrap();
    assert_eq!(allowed(&mut matcher), ending(b"c"));
    assert!(!matcher.is_over());
    matcher.push(END).unwrap();
    assert!(matcher.is_over());
    assert_eq!(matcher.error(), None);
}

#[test]
fn a_text_that_cannot_go_on_is_over() {
    let mut matcher = matcher(&regex("ab"));
    for byte in b"ab" {
        assert!(!matcher.is_over());
        matcher.push((*byte).into()).unwrap();
    }
    assert!(matcher.is_over());
    assert_eq!(matcher.error(), None);
    assert_eq!(allowed(&mut matcher), [END]);
    // Tokens that were sampled ahead have no effect.
    matcher.push(b'x'.into()).unwrap();
    assert_eq!(matcher.error(), None);
}

#[test]
fn a_mask_touches_no_other_logits() {
    let mut matcher = matcher(&regex("[a-z]+"));
    let mut logits: Vec<f32> = (0..N_VOCAB).map(|token| token as f32).collect();
    matcher.mask(&mut logits);
    for (token, logit) in logits.iter().enumerate() {
        let expected = if (97..=122).contains(&token) { token as f32 } else { f32::NEG_INFINITY };
        assert_eq!(*logit, expected, "token {token}");
    }
}

#[test]
fn a_token_that_is_not_allowed_ends_the_choice() {
    for token in [TokenId::from(b'x'), END, -1, TokenId::MAX] {
        let mut matcher = matcher(&regex("ab"));
        assert!(matcher.push(token).is_err());
        assert!(matcher.is_over());
        assert!(matcher.error().is_some());
        assert_eq!(allowed(&mut matcher), [END]);
    }
}

#[test]
fn tokens_replayed_lead_to_the_same_place() {
    let compiled = compiler().compile(&schema(r#"{"type":"array","maxItems":3}"#)).unwrap();
    let text = br#"[1, {"a": "\n"}, "#;
    let (mut first, mut again) = (Matcher::new(&compiled), Matcher::new(&compiled));
    for byte in text {
        allowed(&mut first);
        first.push((*byte).into()).unwrap();
    }
    for byte in text {
        again.push((*byte).into()).unwrap();
    }
    assert_eq!(allowed(&mut first), allowed(&mut again));
}

#[test]
fn matchers_of_one_constraint_do_not_disturb_each_other() {
    let compiled = compiler().compile(&regex("a+b|c+d")).unwrap();
    let (mut a, mut c) = (Matcher::new(&compiled), Matcher::new(&compiled));
    a.push(b'a'.into()).unwrap();
    c.push(b'c'.into()).unwrap();
    assert_eq!(allowed(&mut a), tokens(b"ab"));
    assert_eq!(allowed(&mut c), tokens(b"cd"));
}

#[test]
fn only_a_grammar_of_ours_names_control_tokens() {
    // Two texts, a control token, a byte that no text has, and two end tokens, of
    // which one has bytes.
    let words = [&b"a"[..], b"b", b"", b"\xff", b"", b"</s>"].map(<[u8]>::to_vec);
    let mut compiler = Compiler::of_words(words.to_vec(), &[4, 5]).unwrap();
    let grammar = Constraint::Lark("start: <[*]> /[ab<\\/s>]+/".into());
    let mut matcher = Matcher::new(&compiler.compile(&grammar).unwrap());
    let masked = |matcher: &mut Matcher| {
        let mut logits = [0.0; 6];
        matcher.mask(&mut logits);
        logits.map(|logit| logit == 0.0)
    };
    assert_eq!(masked(&mut matcher), [true, true, true, true, false, false]);
    matcher.push(0).unwrap();
    assert_eq!(masked(&mut matcher), [true, true, false, false, false, false]);
    matcher.push(1).unwrap();
    assert_eq!(masked(&mut matcher), [true, true, false, false, true, true]);
}

#[test]
fn a_vocabulary_without_an_end_is_refused() {
    assert!(Compiler::of_words(vec![b"a".to_vec()], &[]).is_err());
    assert!(Compiler::of_words(vec![b"a".to_vec()], &[7, -1]).is_err());
}

#[test]
fn a_constraint_that_fails_on_the_way_ends_its_own_choice() {
    let mut compiler = compiler();
    // Its lexer has a state for every choice of the last twenty letters.
    let constraint = regex("(a|b)*a(a|b){20}c");
    let compiled = compiler.compile(&constraint).unwrap();
    let (mut matcher, mut neighbour) = (Matcher::new(&compiled), Matcher::new(&compiled));
    let mut state = 1u64;
    for _ in 0..1_000_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let letter = if state >> 63 == 0 { b'a' } else { b'b' };
        if matcher.push(letter.into()).is_err() {
            break;
        }
    }
    assert!(matcher.is_over(), "no limit was reached");
    assert!(matcher.error().is_some());
    assert_eq!(allowed(&mut matcher), [END]);
    // The other matcher goes on.
    assert_eq!(allowed(&mut neighbour), tokens(b"ab"));
    neighbour.push(b'a'.into()).unwrap();
    assert_eq!(allowed(&mut Matcher::new(&compiled)), tokens(b"ab"));
}

#[test]
fn the_last_constraints_are_remembered() {
    let mut compiler = compiler();
    let first = compiler.compile(&regex("first")).unwrap();
    assert!(Arc::ptr_eq(&first, &compiler.compile(&regex("first")).unwrap()));
    for number in 1..CONSTRAINTS_CACHED_MAX {
        compiler.compile(&regex(&format!("number {number}"))).unwrap();
    }
    // Using it again makes it the most recent.
    assert!(Arc::ptr_eq(&first, &compiler.compile(&regex("first")).unwrap()));
    for number in 0..CONSTRAINTS_CACHED_MAX {
        compiler.compile(&regex(&format!("another {number}"))).unwrap();
    }
    assert!(!Arc::ptr_eq(&first, &compiler.compile(&regex("first")).unwrap()));
}

#[test]
fn keys_do_not_share_what_is_remembered() {
    let mut compiler = compiler();
    let (alice, bob) = (KeyId::at(0), KeyId::at(1));
    let first = compiler.compile_for(alice, &regex("first"), &|| true).unwrap();
    let other = compiler.compile_for(bob, &regex("first"), &|| true).unwrap();
    assert!(!Arc::ptr_eq(&first, &other));
    other.count_mask(true);
    assert!(other.is_slow() && !first.is_slow());
    for number in 0..2 * CONSTRAINTS_CACHED_MAX {
        compiler.compile_for(bob, &regex(&format!("number {number}")), &|| true).unwrap();
    }
    let again = compiler.compile_for(alice, &regex("first"), &|| true).unwrap();
    assert!(Arc::ptr_eq(&first, &again), "the other key's constraints made room for its own");
}

#[test]
fn what_is_remembered_is_bounded_in_bytes() {
    let mut compiler = compiler();
    let first = compiler.compile(&regex("first")).unwrap();
    let comment = "#".repeat(CONSTRAINT_BYTES_MAX - 32);
    let large = |number| Constraint::Lark(format!("start: \"{number}\" {comment}"));
    for number in 0..=CONSTRAINTS_CACHED_BYTES_MAX / CONSTRAINT_BYTES_MAX {
        compiler.compile(&large(number)).unwrap();
    }
    assert!(!Arc::ptr_eq(&first, &compiler.compile(&regex("first")).unwrap()));
}

/// Each of these is refused at once. The error names the bound.
#[test]
fn whatever_is_too_much_is_refused() {
    let many =
        |n: usize, one: &dyn Fn(usize) -> String| (0..n).map(one).collect::<Vec<_>>().join(",");
    let chain =
        many(SCHEMA_DEPTH_MAX + 2, &|i| format!(r##""{i}":{{"$ref":"#/$defs/{}"}}"##, i + 1));
    let properties = many(SCHEMA_PROPERTIES_MAX + 1, &|i| format!(r#""{i}":{{}}"#));
    let values = many(SCHEMA_VALUES_MAX + 1, &|i| i.to_string());
    let alternatives = many(SCHEMA_ALTERNATIVES_MAX + 1, &|i| format!(r#"{{"const":{i}}}"#));
    let groups = many(SCHEMAS_MAX / 100 + 1, &|i| {
        format!(r#""{i}":{{"properties":{{{}}}}}"#, many(100, &|i| format!(r#""{i}":true"#)))
    });
    let patterns = many(SCHEMA_PATTERNS_MAX + 1, &|i| format!(r#""{i}":{{"pattern":"^{i}$"}}"#));
    let long_pattern = "a".repeat(REGEX_BYTES_MAX + 1);
    for (constraint, bound) in [
        (regex(&"(a|b)?".repeat(1 << 18)), REGEX_BYTES_MAX),
        (schema(&"[".repeat(10 << 20)), CONSTRAINT_BYTES_MAX),
        (Constraint::Gbnf("root ::= (".repeat(1 << 20)), CONSTRAINT_BYTES_MAX),
        (Constraint::Lark(" ".repeat(CONSTRAINT_BYTES_MAX + 1)), CONSTRAINT_BYTES_MAX),
        (
            schema(&format!(
                r##"{{"$ref":"#/$defs/0","$defs":{{{chain},"{}":{{}}}}}}"##,
                SCHEMA_DEPTH_MAX + 2
            )),
            SCHEMA_DEPTH_MAX,
        ),
        (schema(&format!(r#"{{"properties":{{{properties}}}}}"#)), SCHEMA_PROPERTIES_MAX),
        (schema(&format!(r#"{{"enum":[{values}]}}"#)), SCHEMA_VALUES_MAX),
        (schema(&format!(r#"{{"anyOf":[{alternatives}]}}"#)), SCHEMA_ALTERNATIVES_MAX),
        (schema(&format!(r#"{{"properties":{{{groups}}}}}"#)), SCHEMAS_MAX),
        (schema(&format!(r#"{{"properties":{{{patterns}}}}}"#)), SCHEMA_PATTERNS_MAX),
        (schema(&format!(r#"{{"pattern":"{long_pattern}"}}"#)), REGEX_BYTES_MAX),
    ] {
        let mut compiler = compiler();
        let error = compiler.compile(&constraint).expect_err("it is refused").to_string();
        assert!(error.contains(&bound.to_string()), "{error} does not say {bound}");
    }
}

#[test]
fn regexes_that_cannot_be_kept_are_refused() {
    for (source, named) in [
        ("", "empty"),
        ("(", "unclosed"),
        ("a\\", "incomplete"),
        ("(?=a)b", "regular expression"),
        ("a\\bb", "lookarounds"),
        ("(?P<stop>a)", "named stop"),
    ] {
        let said = refusal(&regex(source));
        assert!(said.contains(named), "{source}: {said}");
    }
}

#[test]
fn regexes_hold_for_the_whole_text() {
    let compiled = compiler().compile(&regex(r"^[A-Z]\w{2,4}/\d+$")).unwrap();
    assert!(accepts(&compiled, "Ab_1/20"));
    assert!(!accepts(&compiled, "xAb_1/20"));
    assert!(!accepts(&compiled, "A/2"));
}

#[test]
fn schemas_within_a_lark_grammar_are_checked() {
    let call = "start: \"<call>\" args \"</call>\"\nargs: %json {\"type\":\"object\",\
        \"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],\
        \"additionalProperties\":false}\n";
    let compiled = compiler().compile(&Constraint::Lark(call.into())).unwrap();
    assert!(accepts(&compiled, r#"<call>{"a": 1}</call>"#));
    assert!(!accepts(&compiled, r#"<call>{"a":  1}</call>"#), "the layout is the schemas' own");
    assert!(!accepts(&compiled, r#"<call>{}</call>"#));
    for (grammar, named) in [
        (
            "start: \"a\"\n  | %json {\"not\": {}}",
            "line 2: in %json: the JSON schema at #: \"not\"",
        ),
        ("start: %json x", "line 1: %json must be followed by"),
        ("start[temperature=0.5]: /a/", "temperature"),
        ("start: /(?P<stop>a)/", "stop"),
        ("start: other", "unknown name"),
        ("start: <|im_start|>", "control token"),
    ] {
        let said = refusal(&Constraint::Lark(grammar.into()));
        assert!(said.contains(named), "{grammar}: {said}");
    }
}

/// An ambiguous grammar: each nested `+` may match the text alone or through the one inside it, so
/// every position of the text starts and ends each of them.
const AMBIGUOUS: &str = r#"root ::= (item +++++++++++++++| "é")+ . end
item ::= "} x"* !<[66]>
end ::= "x"?"#;

#[test]
fn work_that_takes_long_is_stopped() {
    let mut compiler = Compiler::new(&Vocab::of_fake()).unwrap();
    let compiled = compiler.compile(&Constraint::Gbnf(AMBIGUOUS.into())).unwrap();
    let worker = Arc::new(AtomicI32::new(0));
    let own = worker.clone();
    let text = std::thread::spawn(move || {
        own.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        let mut matcher = Matcher::new(&compiled);
        while !matcher.is_over() {
            matcher.allowed();
            let _ = matcher.push(i32::from(b'a'));
        }
        matcher.error().map(str::to_owned)
    });
    while !text.is_finished() {
        // Stops only this thread's work. Other tests run at the same time.
        let is_it = |thread| thread == worker.load(Ordering::Relaxed);
        stop_long_work(|thread| is_it(thread).then_some(Duration::MAX));
    }
    let error = text.join().unwrap().expect("it was stopped");
    assert_eq!(error, "the next token took more than 250 ms of processor time");
}

#[test]
fn what_must_follow_is_known_and_changes_no_mask() {
    let constraint = Constraint::Regex("(left|lemon): [0-9]{2} (and so on)?".into());
    let compiled = compiler().compile(&constraint).unwrap();
    let (mut plain, mut guessing) = (Matcher::new(&compiled), Matcher::new(&compiled));
    let mut forced = Vec::new();
    for byte in b"lemon: 42 and so on" {
        let guesses = guessing.forced(99);
        assert_eq!(allowed(&mut guessing), allowed(&mut plain));
        forced.push(guesses.iter().map(|token| *token as u8 as char).collect::<String>());
        assert_eq!(guessing.forced(1).len(), guesses.len().min(1));
        plain.push(TokenId::from(*byte)).unwrap();
        guessing.push(TokenId::from(*byte)).unwrap();
    }
    assert_eq!(forced[0], "le");
    assert_eq!(forced[3], "on: ", "after lem");
    assert_eq!(forced[7], "", "any digit");
    assert_eq!(forced[9], " ", "it may end after it");
    assert_eq!(forced[12], "d so on");
    assert!(guessing.forced(99).is_empty(), "it has ended");
}
