//! Random answers under the grammar of each family: whatever a grammar accepts is read as calls
//! whose arguments fit the tools.

use llguidance::Matcher;
use llguidance::api::TopLevelGrammar;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::accepted::{Vocabulary, each};
use super::samples::{Whole, calling, parse, tools};
use super::{CallRule, ParserOptions, ReasoningSyntax, ToolSyntax};

/// Tokens of an answer. A longer one is given up.
const TOKENS_MAX: usize = 400;

/// A generator of numbers: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

/// An answer of random tokens among those that the grammar allows. `None` if it does not end.
fn walk(
    vocabulary: &Vocabulary,
    lark: &str,
    seeds: &[String],
    random: &mut Random,
) -> Option<String> {
    let grammar = TopLevelGrammar::from_lark(lark.to_owned());
    let mut matcher = Matcher::new(vocabulary.factory.create_parser(grammar));
    let (mut text, mut wanted) = (Vec::new(), Vec::new());
    for _ in 0..TOKENS_MAX {
        if matcher.is_stopped() {
            return String::from_utf8(text).ok();
        }
        let mask = matcher.compute_mask_or_eos().unwrap();
        let end = 256 + u32::try_from(vocabulary.markers.len()).unwrap();
        let allowed: Vec<u32> = (0..end).filter(|token| mask.is_allowed(*token)).collect();
        if allowed.is_empty() || (mask.is_allowed(end) && random.below(8) == 0) {
            return String::from_utf8(text).ok();
        }
        // Text is free here: head for one of the seeds, or write a letter.
        if wanted.is_empty() && allowed.len() > 40 {
            let seed = &seeds[random.below(seeds.len())];
            wanted.extend(vocabulary.tokens(seed).into_iter().rev());
        }
        let next = wanted.pop().filter(|token| allowed.contains(token));
        let token = next.unwrap_or_else(|| {
            wanted.clear();
            allowed[random.below(allowed.len())]
        });
        match usize::try_from(token).unwrap().checked_sub(256) {
            Some(marker) => text.extend(vocabulary.markers[marker].bytes()),
            None => text.push(u8::try_from(token).unwrap()),
        }
        matcher.consume_token(token).unwrap();
    }
    None
}

/// Whether a value can be the argument `key` of the tool `weather`.
fn fits(key: &str, value: &Value) -> bool {
    match key {
        "city" => value.is_string(),
        "days" => value.is_number(),
        "kind" => value == "rain" || value == "sun",
        "hourly" => value.is_boolean(),
        "note" => value.is_string() || value.is_null(),
        "places" => value.as_array().is_some_and(|places| places.iter().all(is_place)),
        "other" => value.is_null() || is_place(value),
        "extra" => true,
        _ => false,
    }
}

fn is_place(place: &Value) -> bool {
    let known = |(key, value): (&String, &Value)| match key.as_str() {
        "name" => value.is_string(),
        "at" => value.is_number(),
        "sea" => value.is_boolean(),
        "next" => is_place(value),
        _ => false,
    };
    place["name"].is_string() && place.as_object().unwrap().iter().all(known)
}

/// Checks the calls among `parts`, and returns their number.
fn check(parts: &[Whole], what: &str) -> usize {
    let mut calls = 0;
    for part in parts {
        let Whole::Call(name, arguments) = part else { continue };
        calls += 1;
        serde_json::from_str::<IgnoredAny>(arguments).expect(what);
        // JSON allows numbers and escapes for which `Value` has no room.
        let Ok(arguments) = serde_json::from_str::<Value>(arguments) else { continue };
        let members = arguments.as_object().expect(what);
        match name.as_str() {
            "weather" => {
                assert!(members.contains_key("city"), "{what}");
                for (key, value) in members {
                    assert!(fits(key, value), "{key}: {what}");
                }
            }
            "now" => {}
            _ => panic!("there is no tool {name}: {what}"),
        }
    }
    calls
}

/// Texts to write where text is free: markers, quotes, and words of other types.
fn seeds(syntax: ToolSyntax) -> Vec<String> {
    let row = syntax.row();
    let mut seeds: Vec<&str> = [row.open, row.close].concat();
    seeds.extend(row.form.texts().into_iter().chain(row.form.texts()));
    seeds.extend(["\"", "\"", "12", "null", "{\"a\": [1]}", "'\\", "\n", "<", "é", "}"]);
    seeds.retain(|seed| !seed.is_empty());
    seeds.into_iter().map(str::to_owned).collect()
}

#[test]
fn whatever_a_grammar_accepts_is_read_as_calls_that_fit_the_tools() {
    let tools = tools();
    each(|syntax, vocabulary| {
        // Harmony's markers end a message wherever they stand, so its models have them as tokens.
        if syntax == ToolSyntax::Harmony && vocabulary.markers.is_empty() {
            return;
        }
        let (seeds, mut random) = (seeds(syntax), Random(random_seed(syntax)));
        let (mut whole, mut called) = (0, 0);
        for choice in [CallRule::Auto, CallRule::Required, CallRule::Named("weather".into())] {
            for (parallel, reasoning) in [(false, None), (true, Some(ReasoningSyntax::Think))] {
                let reasoning = reasoning.filter(|_| syntax != ToolSyntax::Harmony);
                let lark =
                    vocabulary.grammar_with(&tools, &choice, parallel, reasoning, false, None);
                let options = ParserOptions { reasoning_syntax: reasoning, ..calling(syntax) };
                for _ in 0..8 {
                    let Some(text) = walk(vocabulary, &lark, &seeds, &mut random) else { continue };
                    let parts = parse(&options, [text.as_str()]);
                    let what = format!("{syntax:?} {text:?} is {parts:?}\n{lark}");
                    let calls = check(&parts, &what);
                    assert!(calls > 0 || choice == CallRule::Auto, "no call: {what}");
                    assert!(calls <= 1 || parallel, "several calls: {what}");
                    whole += 1;
                    called += usize::from(calls > 0);
                }
            }
        }
        assert!(whole > 10 && called > 5, "{syntax:?}: {whole} answers, {called} with calls");
    });
}

fn random_seed(syntax: ToolSyntax) -> u64 {
    let index = ToolSyntax::ALL.iter().position(|one| *one == syntax).unwrap();
    0x9e37_79b9_7f4a_7c15 ^ (u64::try_from(index).unwrap() << 20)
}
