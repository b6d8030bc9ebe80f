//! Finds the tokens that a constraint forces next, without moving the parser.
//!
//! llguidance can force bytes itself (`force_bytes`), but that moves its parser: the caller must
//! then append these bytes, in tokens that llguidance chooses. A token that the grammar names by
//! its id would then become bytes that no token of the vocabulary has, and nothing could follow. It
//! also forces as many bytes as it can, bounded only by limits that end the text. So the search
//! here tries bytes, as the computation of a mask does, and takes them all back.

use llguidance::TokenParser;
use llguidance::derivre::NextByte;
use llguidance::earley::ParserRecognizer;
use llguidance::toktrie::{Recognizer, TokTrie};

use crate::limits::{CONSTRAINT_STEP_FUEL, FORCED_ITEMS_MAX};

/// Most forced bytes that are searched for.
const FORCED_BYTES_MAX: usize = 64;

/// The tokens that must come next, each as long as possible, at most `most`. `end` is a token that
/// ends a text.
///
/// **Invariant:** the parser allows the same texts after this call as before it.
pub(super) fn tokens(parser: &mut TokenParser, end: u32, most: usize) -> Vec<u32> {
    let spent = |parser: &TokenParser| parser.parser.lexer_stats().total_fuel_spent as u64;
    // Each mask renews the fuel. Without fuel a text fails, so this spends at most half of it.
    let fuel = (CONSTRAINT_STEP_FUEL / 2).saturating_sub(parser.last_step_stats().lexer_cost);
    let fuel_max = spent(parser) + fuel;
    // A token that is named by its id is written as llguidance does it: the byte 0xFF, which no
    // text has, and the id in brackets.
    let (mut bytes, mut tokens) = (Vec::new(), Vec::new());
    while bytes.len() < FORCED_BYTES_MAX && tokens.len() <= most && spent(parser) < fuel_max {
        // If the text may end here, nothing is forced.
        if is_valid(parser, tokens.iter().copied().chain([end])) {
            break;
        }
        let Some(next) = next_after(parser, &bytes) else { break };
        bytes.extend(next);
        tokens = split(parser.token_env.tok_trie(), &bytes);
    }
    tokens.truncate(most);
    // The vocabulary may lack a token for a byte.
    if is_valid(parser, tokens.iter().copied()) { tokens } else { Vec::new() }
}

/// Whether all of these tokens may come next.
fn is_valid(parser: &mut TokenParser, tokens: impl Iterator<Item = u32>) -> bool {
    let tokens: Vec<u32> = tokens.collect();
    parser.validate_tokens_raw(&tokens).is_ok_and(|valid| valid == tokens.len())
}

/// The byte or the token that must follow these bytes, if it is the only one.
fn next_after(parser: &mut TokenParser, bytes: &[u8]) -> Option<Vec<u8>> {
    let n_vocab = parser.token_env.tok_trie().vocab_size() as u32; // ids are 32 bits wide
    parser.parser.with_recognizer(|recognizer| {
        recognizer.trie_started("forced");
        let before = recognizer.stats_mut().all_items;
        let is_there = bytes.iter().all(|byte| recognizer.try_push_byte(*byte));
        let next = if is_there { only_next(recognizer, n_vocab) } else { None };
        let items = recognizer.stats_mut().all_items - before;
        recognizer.trie_finished(); // removes the bytes again
        next.filter(|_| items <= FORCED_ITEMS_MAX)
    })
}

/// The byte or the token that must come next, if it is the only one.
fn only_next(recognizer: &mut ParserRecognizer<'_>, n_vocab: u32) -> Option<Vec<u8>> {
    let state = recognizer.lexer_state();
    let byte = match recognizer.lexer_mut().next_byte(state) {
        NextByte::ForcedByte(byte) => byte,
        _ => only((0..=u8::MAX).filter(|byte| recognizer.byte_allowed(*byte)))?,
    };
    if byte != TokTrie::SPECIAL_TOKEN_MARKER {
        return Some(vec![byte]);
    }
    if !recognizer.try_push_byte(byte) {
        return None;
    }
    let lexer = recognizer.lexer();
    let possible = lexer.possible_lexemes(recognizer.lexer_state());
    let sets = lexer.lexer_spec().token_range_lexemes(possible);
    let set = only(sets.into_iter())?;
    let id = only((0..n_vocab).filter(|id| set.contains_token(*id)))?;
    Some([&[byte], format!("[{id}]").as_bytes()].concat())
}

fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}

/// The tokens of forced bytes: those named by their ids, and the longest ones between them.
fn split(trie: &TokTrie, bytes: &[u8]) -> Vec<u32> {
    let mut tokens = Vec::new();
    let mut pieces = bytes.split(|byte| *byte == TokTrie::SPECIAL_TOKEN_MARKER);
    tokens.extend(trie.greedy_tokenize(pieces.next().unwrap_or_default()));
    for piece in pieces {
        let close = piece.iter().position(|byte| *byte == b']').expect("an id in brackets");
        let id = std::str::from_utf8(&piece[1..close]).ok().and_then(|id| id.parse().ok());
        tokens.push(id.expect("an id in brackets"));
        tokens.extend(trie.greedy_tokenize(&piece[close + 1..]));
    }
    tokens
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::constraint::{Compiled, Compiler, Constraint, Matcher};
    use crate::limits::GUESSES_MAX;
    use crate::random::mix;
    use crate::types::TokenId;

    /// The vocabulary's tokens: an end, control tokens, all bytes, and these words.
    const END: TokenId = 0;
    const CONTROL: [TokenId; 2] = [1, 2];
    const WORDS: [&str; 16] = [
        "ab", "abc", "bc", "ing", "{\"", "\":", "\": ", "name", "\"name\"", "}\n", "true", "tr",
        "ue", "null", ", ", "abc", // a second token with the same bytes
    ];
    const ING: TokenId = 3 + 256 + 3;

    fn words() -> Vec<Vec<u8>> {
        let control = [vec![], vec![], vec![]].into_iter();
        let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
        control.chain(bytes).chain(WORDS.map(|word| word.as_bytes().to_vec())).collect()
    }

    fn compiler() -> Compiler {
        Compiler::of_words(words(), &[END]).unwrap()
    }

    fn allowed(matcher: &mut Matcher) -> Vec<TokenId> {
        let mut logits = vec![0.0; words().len()];
        matcher.mask(&mut logits);
        let left = |token: &TokenId| logits[*token as usize] == 0.0;
        (0..logits.len() as TokenId).filter(left).collect()
    }

    /// A matcher that has taken in these tokens, without guesses.
    fn after(compiled: &Compiled, tokens: &[TokenId]) -> Matcher {
        let mut matcher = Matcher::new(compiled);
        tokens.iter().for_each(|token| matcher.push(*token).unwrap());
        matcher
    }

    /// Checks that only the text of the guesses can follow `before`.
    fn only_these(compiled: &Compiled, before: &[TokenId], guesses: &[TokenId]) {
        let words = words();
        let mut text = before.to_vec();
        for (index, guess) in guesses.iter().enumerate() {
            let found = allowed(&mut after(compiled, &text));
            assert!(found.contains(guess), "{guess} after {text:?}, of {found:?}");
            let is_named = |token: &&TokenId| words[**token as usize].is_empty();
            let rest = guesses[index..].iter().take_while(|token| !is_named(token));
            let rest: Vec<u8> = rest.flat_map(|token| words[*token as usize].clone()).collect();
            for token in found {
                let word = &words[token as usize];
                let fits = token == *guess
                    || !word.is_empty() && (rest.starts_with(word) || word.starts_with(&rest));
                assert!(fits, "{token} or {guess} after {text:?}");
            }
            text.push(*guess);
        }
    }

    /// Generates a random text of a constraint twice, with and without guesses before each mask.
    /// Returns the number of guesses.
    fn walk(compiled: &Compiled, mut seed: u64, steps: usize) -> usize {
        let (mut plain, mut guessing) = (Matcher::new(compiled), Matcher::new(compiled));
        let (mut text, mut made) = (Vec::new(), 0);
        for _ in 0..steps {
            let guesses = guessing.forced(GUESSES_MAX);
            made += guesses.len();
            only_these(compiled, &text, &guesses);
            let found = allowed(&mut plain);
            assert_eq!(allowed(&mut guessing), found, "after {text:?}");
            seed = mix(seed.wrapping_add(1));
            // Long texts sometimes end, and often use the guessed token.
            let token = match guesses.first() {
                Some(guess) if !seed.is_multiple_of(3) => *guess,
                _ if seed.is_multiple_of(5) && found.contains(&END) => END,
                _ => found[(seed >> 8) as usize % found.len()],
            };
            assert_eq!(guessing.push(token), plain.push(token), "after {text:?}");
            assert_eq!((guessing.error(), guessing.is_over()), (plain.error(), plain.is_over()));
            if token == END || plain.is_over() {
                break;
            }
            text.push(token);
        }
        made
    }

    fn spelled(tokens: &[TokenId]) -> String {
        let words = words();
        let text = |token: &TokenId| match words[*token as usize].as_slice() {
            [] => format!("<{token}>"),
            word => String::from_utf8_lossy(word).into_owned(),
        };
        tokens.iter().map(text).collect::<Vec<_>>().join("_")
    }

    fn guessed(constraint: &Constraint, before: &[TokenId]) -> String {
        let compiled = compiler().compile(constraint).unwrap();
        spelled(&after(&compiled, before).forced(GUESSES_MAX))
    }

    #[test]
    fn a_token_named_by_its_id_is_guessed_and_followed() {
        let gbnf = Constraint::Gbnf(format!("root ::= \"abc\" <[{ING}]> \"x\" [yz]"));
        assert_eq!(guessed(&gbnf, &[]), "abc_ing_x");
        assert_eq!(guessed(&gbnf, &[3 + TokenId::from(b'a')]), "bc_ing_x");
        let [first, second] = CONTROL;
        let lark = |source: String| guessed(&Constraint::Lark(source), &[]);
        assert_eq!(lark(format!("start: <[{first}]> \"abc\" <[{second}]> /[0-9]/")), "<1>_abc_<2>");
        for several in [
            format!("<[{first}-{second}]>"),
            format!("<[{first},{second}]>"),
            format!("<[^{first}]>"),
            "<[*]>".to_owned(),
            format!("( <[{first}]> | <[{second}]> )"),
            format!("( <[{first}]> | \"x\" )"),
            format!("<[{first}]>?"),
        ] {
            assert_eq!(lark(format!("start: \"ab\" {several} \"c\"")), "ab", "{several}");
        }
    }

    #[test]
    fn nothing_is_guessed_where_a_text_may_end() {
        assert_eq!(guessed(&Constraint::Lark("start: \"ab\" (\"c\" \"true\")?".into()), &[]), "ab");
        let ab = 3 + 256;
        let lark = Constraint::Lark("start: \"ab\" (\"c\" \"true\")?".into());
        assert_eq!(guessed(&lark, &[ab]), "");
        assert_eq!(guessed(&lark, &[ab, 3 + TokenId::from(b'c')]), "true");
    }

    /// llguidance may force the whole text at once, which takes more items than a step may use.
    #[test]
    fn a_long_forced_text_is_guessed_in_pieces() {
        let rule = "root ::= (item <[262]>){6000}\nitem ::= [a] | [a]";
        let compiled = compiler().compile(&Constraint::Gbnf(rule.into())).unwrap();
        let (mut matcher, mut text) = (Matcher::new(&compiled), Vec::new());
        for _ in 0..300 {
            let guesses = matcher.forced(GUESSES_MAX);
            assert!(!guesses.is_empty());
            for guess in guesses {
                assert_eq!(allowed(&mut matcher), [guess]);
                matcher.push(guess).unwrap();
                text.push(guess);
            }
        }
        assert!(text.len() > 1000 && matcher.error().is_none(), "{:?}", matcher.error());
    }

    #[test]
    fn guesses_change_no_mask() {
        let schema = r#"{"type":"object","properties":{"name":{"enum":["abc","abd"]},"ing":{
            "type":"array","items":{"type":"boolean"},"minItems":2},"n":{"type":"integer"},
            "s":{"type":"string","pattern":"^ab+c$"}},"required":["name","ing"],
            "additionalProperties":false}"#;
        let mut constraints = vec![
            Constraint::JsonObject,
            Constraint::JsonSchema(schema.into()),
            Constraint::JsonSchema(r#"{"const":{"name":[null,true,"abc"]}}"#.into()),
            Constraint::Regex("(left|lemon): [0-9]{2} (and so on)?".into()),
            Constraint::Regex("(abc|ab)(ing)*true".into()),
            Constraint::Gbnf("root ::= (\"abc\" <[262]> | \"ab\" !<[262]>)+ \"x\"?".into()),
            Constraint::Gbnf("root ::= <[259]> <[260]>? [a-c]* <[274]>".into()),
        ];
        let lark = [
            "start: <[1]> \"abc\" <[2]> \"x\"",
            "start: \"abc\" <[262]> \"x\"",
            "start: \"ab\" <[260,274]> ( \"true\" <[1]> )* <[2]>",
            "start: (<[*]> \"bc\")* <[^1,2]> <[2]>",
            "start: <[3-262]> \"name\"",
            "start: TEXT <[1]> \"\\n{\\\"name\\\": \\\"abc\\\"}\\n\" <[2]>\nTEXT: /(.|\\n)*/",
            "start: ( TEXT | until \"{\" \"abc\" \"}\" )\nTEXT: /(.|\\n)*/\n\
             until[lazy]: TEXT ( \"<abc>\" )",
            "start: \"a\" item \"c\"\nitem[suffix=\"b\"]: /[a-z]*/",
            "start: \"a\" item \"c\"\nitem[max_tokens=3]: /[a-z]*/",
            "start: <[1]> %json {\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"abc\"}},\
             \"required\":[\"name\"],\"additionalProperties\":false} \"}\\n\" <[2]>",
        ];
        constraints.extend(lark.map(|source| Constraint::Lark(source.into())));
        let mut made = 0;
        for constraint in constraints {
            let compiled = compiler().compile(&constraint).unwrap();
            made += (0..40).map(|seed| walk(&compiled, seed, 60)).sum::<usize>();
        }
        assert!(made > 5_000, "{made} guesses");
    }

    /// An expression of GBNF, with tokens named by their ids.
    fn expression() -> impl Strategy<Value = String> {
        let id = || 3 + 90..3 + 256 + WORDS.len();
        let leaf = prop_oneof![
            prop::sample::select(WORDS.to_vec())
                .prop_map(|word| serde_json::Value::from(word).to_string()),
            id().prop_map(|id| format!("<[{id}]>")),
            id().prop_map(|id| format!("!<[{id}]>")),
            Just("[a-c]".to_owned()),
            Just("\"a\"".to_owned()),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} {b}")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} | {b})")),
                inner.clone().prop_map(|a| format!("({a})?")),
                inner.clone().prop_map(|a| format!("({a})*")),
                inner.prop_map(|a| format!("({a}){{2,3}}")),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn guesses_change_no_mask_of_any_grammar(rule in expression(), seed in any::<u64>()) {
            let constraint = Constraint::Gbnf(format!("root ::= {rule} \"x\""));
            // Some grammars are refused, such as those that confuse texts with tokens.
            if let Ok(compiled) = compiler().compile(&constraint) {
                for turn in 0..4 {
                    walk(&compiled, seed ^ turn, 40);
                }
            }
        }
    }
}
