//! Tests of GBNF grammars over the fake vocabulary.

use llguidance::toktrie::{TokRxInfo, TokTrie};

use super::super::tests::{accepts, compiler, refusal};
use super::super::{Compiler, Constraint, Matcher};
use super::grammar::{Expr, Grammar};
use super::parse;
use crate::limits::{GBNF_DEPTH_MAX, GBNF_REPEAT_MAX, GBNF_RULES_MAX, GBNF_WORK_MAX};

/// Asserts that the grammar allows each text of `allowed`, and none of `forbidden`.
#[track_caller]
fn check(grammar: &str, allowed: &[&str], forbidden: &[&str]) {
    let compiled = compiler().compile(&Constraint::Gbnf(grammar.into())).unwrap();
    for text in allowed {
        assert!(accepts(&compiled, text), "{text:?} is not allowed");
    }
    for text in forbidden {
        assert!(!accepts(&compiled, text), "{text:?} is allowed");
    }
}

#[test]
fn the_format_means_what_its_readme_says() {
    check(r#"root ::= "yes" | "no""#, &["yes", "no"], &["", "ye", "yesno"]);
    check(r#"root ::= "a" "b"? [0-9]* "c"+"#, &["ac", "abc", "a01cc"], &["a", "abbc", "ba"]);
    check(
        "root ::= [a-c]{2} [x]{1,2} [y]{2,}",
        &["abxyy", "ccxxyyy"],
        &["axyy", "abxxxyy", "abxy"],
    );
    check("root ::= [^a-c\\n]+", &["xyz", "é漢🦀"], &["a", "xb", "x\n"]);
    check("root ::= [a\\-\\]] [-x] [x-]", &["a-x", "]x-", "--x"], &["bxx"]);
    check("root ::= \"\\x41\\u00e9\\U0001F980\\t\\\"\\\\\"", &["Aé🦀\t\"\\"], &["A"]);
    check("root ::= . [ぁ-ゟ]", &["xあ", "\nん", "漢ゟ"], &["x", "あx"]);
    check(
        "root ::= (\"a\" | \"b\"\n\n # a comment\n \"c\")+ # end\n",
        &["abca", "bc"],
        &["b", "c"],
    );
    check("root ::= \"a\" |\n  \"b\"\n", &["a", "b"], &["ab"]);
    check("root ::= \"a\" ()? \"\" (\"\" | \"b\") # \n", &["a", "ab"], &["b"]);
    check("root ::= a-1 b\r\na-1 ::= \"x\"\r\n\r\nb ::= \"y\"", &["xy"], &["x", "y"]);
    check("root ::= \"a\"{0} \"b\"{0,0} \"c\"", &["c"], &["ac", "bc"]);
    check("root ::= \"a\\x7f\"", &["a\u{7f}"], &["a"]);
}

#[test]
fn rules_may_contain_themselves() {
    let nested = r#"root ::= "(" root ")" | "x""#;
    check(nested, &["x", "((x))"], &["(x", "x)", "()"]);
    check(r#"root ::= root "," "x" | "x""#, &["x", "x,x,x"], &["x,", ""]);
    check("root ::= ([ab] root)?", &["", "abba"], &["c"]);
    check("root ::= a\na ::= \"x\" b\nb ::= \"y\" | \"z\" a", &["xy", "xzxy"], &["x", "xz"]);
}

/// An older form of llama.cpp's JSON grammar. Its white space rule is recursive.
const JSON: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= ([ \t\n] ws)?
"#;

#[test]
fn json_in_gbnf() {
    check(
        JSON,
        &["{}", r#"{"a": [1, -2.5e3, "x\n\u00e9漢"], "b": {"c": null}}"#, "{ \"a\" :[ ]\n}\n"],
        &["[]", r#"{"a"}"#, r#"{"a":1,}"#, r#"{"a":"\x"}"#, ""],
    );
}

/// A word that runs on: `num` would consume the line end that `root` requires.
#[test]
fn white_space_before_a_line_end_does_not_swallow_it() {
    let arithmetic = r#"
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"#;
    check(
        arithmetic,
        &["1+2=x\n", "(a1 *3) -4 = 5 \n\n", "1=1\n2=2\n"],
        &["1=1", "1+=2\n", "=1\n"],
    );
}

#[test]
fn text_between_elements_is_not_cut_off() {
    let xml = r#"
root ::= "<" name ">" ([^<] | root)* "</" name ">"
name ::= [a-z]+
"#;
    check(xml, &["<a></a>", "<a>x <b>y</b> z</a>"], &["<a>", "<a><</a>", "x"]);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let deep = format!("root ::= {}", "(".repeat(GBNF_DEPTH_MAX + 1));
    let many: String = (0..=GBNF_RULES_MAX).map(|i| format!("r{i} ::= \"a\"\n")).collect();
    let often = format!("root ::= \"a\"{{{}}}", GBNF_REPEAT_MAX + 1);
    for (grammar, said) in [
        ("", "no rule root"),
        ("a ::= \"x\"", "no rule root"),
        (
            "root ::= \"x\"\n\nroot ::= \"y\"",
            "line 3 of the grammar: the rule root is defined twice",
        ),
        ("root ::= a\n", "line 1 of the grammar: there is no rule a"),
        ("root ::= \"x\"\nb = \"y\"", "line 2 of the grammar: expected ::="),
        ("root ::= \"x\n", "ends within a text"),
        ("root ::= [a", "ends within a text or a class"),
        ("root ::= \"\\q\"", "there is no escape \\q"),
        ("root ::= \"\\u12\"", "expected 4 hexadecimal digits"),
        ("root ::= \"\\uD800\"", "D800 is not the code of a character"),
        ("root ::= [z-a]", "backwards"),
        ("root ::= []", "has none in it"),
        ("root ::= (\"a\"", "expected )"),
        ("root ::= \"a\")", "did not expect ')'"),
        ("root ::= *", "nothing before * to repeat"),
        ("root ::= \"a\"{2,1}", "backwards"),
        ("root ::= \"a\"{,2}", "expected a number of times"),
        ("root ::= a_b", "did not expect '_'"),
        ("root ::= <think>", "no token <think>"),
        ("root ::= <[256]>", "no token <[256]>"), // the end token
        ("root ::= <[9999]>", "no token <[9999]>"),
        ("root ::= !x", "expected a token"),
        (deep.as_str(), "deeper than 64"),
        (many.as_str(), "more than 512 rules"),
        (often.as_str(), "65536 at most"),
    ] {
        let error = refusal(&Constraint::Gbnf(grammar.into()));
        assert!(error.contains(said), "{grammar}: {error}");
    }
    assert_eq!((GBNF_DEPTH_MAX, GBNF_RULES_MAX, GBNF_REPEAT_MAX), (64, 512, 65536));
}

#[test]
fn a_grammar_that_takes_too_long_to_cut_into_words_is_refused() {
    // Thirty rules, each with the next one twice, describe a billion characters.
    let mut grammar = String::from("root ::= \"(\" root \")\" | r0\n");
    for i in 0..30 {
        grammar += &format!("r{i} ::= r{} r{}\n", i + 1, i + 1);
    }
    grammar += "r30 ::= [a-z]+\n";
    let error = refusal(&Constraint::Gbnf(grammar));
    assert!(error.contains(&GBNF_WORK_MAX.to_string()), "{error}");
}

#[test]
fn a_grammar_without_any_text_is_refused() {
    for grammar in ["root ::= root", "root ::= \"a\" root"] {
        let compiled = compiler().compile(&Constraint::Gbnf(grammar.into()));
        // The second one can start but never end; the limit on tokens ends its text.
        assert_eq!(compiled.is_err(), grammar == "root ::= root", "{grammar}");
    }
}

#[test]
fn tokens_may_be_named() {
    let words = ["a", "b", "<think>", "</think>", ""].map(|word| word.as_bytes().to_vec());
    let mut compiler = Compiler::of_words(words.to_vec(), &[4]).unwrap();
    let allows = |compiler: &mut Compiler, grammar: &str, tokens: &[i32]| {
        let compiled = compiler.compile(&Constraint::Gbnf(grammar.into())).unwrap();
        let mut matcher = Matcher::new(&compiled);
        tokens.iter().all(|token| {
            let mut logits = [0.0; 5];
            matcher.mask(&mut logits);
            let allowed = logits[*token as usize] == 0.0;
            allowed && matcher.push(*token).is_ok()
        })
    };
    for grammar in [
        "root ::= <think> thought </think> [ab]+\nthought ::= !</think>*",
        "root ::= <[2]> thought <[3]> [ab]+\nthought ::= !<[3]>*",
    ] {
        assert!(allows(&mut compiler, grammar, &[2, 0, 1, 2, 3, 0, 4]), "{grammar}");
        assert!(allows(&mut compiler, grammar, &[2, 3, 1, 1, 4]), "{grammar}");
        assert!(!allows(&mut compiler, grammar, &[0]), "{grammar}");
        assert!(!allows(&mut compiler, grammar, &[2, 4]), "{grammar}");
        assert!(!allows(&mut compiler, grammar, &[2, 3, 4]), "{grammar}");
        assert!(!allows(&mut compiler, grammar, &[2, 3, 3]), "{grammar}");
    }
}

/// Matches a text by exhaustive search: for each start of an expression, all its possible ends.
struct Reference<'a> {
    grammar: &'a Grammar,
    text: &'a [char],
}

impl Reference<'_> {
    fn matches(&self) -> bool {
        // These grammars recurse only after a character.
        let depth = 2 * (self.text.len() + 1);
        self.ends(&Expr::Rule(self.grammar.root), 0, depth).contains(&self.text.len())
    }

    fn ends(&self, expr: &Expr, from: usize, depth: usize) -> Vec<usize> {
        let mut ends = match expr {
            Expr::Chars(ranges) => {
                let fits = |c: &&char| ranges.iter().any(|(a, b)| (a..=b).contains(c));
                self.text.get(from).filter(fits).map(|_| from + 1).into_iter().collect()
            }
            Expr::Text(text) => {
                let text: Vec<char> = text.chars().collect();
                let fits = self.text[from..].starts_with(&text);
                if fits { vec![from + text.len()] } else { Vec::new() }
            }
            Expr::Token { .. } => unreachable!("no tokens here"),
            Expr::Rule(_) if depth == 0 => Vec::new(),
            Expr::Rule(number) => self.ends(&self.grammar.rules[*number], from, depth - 1),
            Expr::Seq(items) => {
                items.iter().fold(vec![from], |ends, item| self.all_ends(item, &ends, depth))
            }
            Expr::Any(options) => {
                options.iter().flat_map(|option| self.ends(option, from, depth)).collect()
            }
            Expr::Repeat(inner, least, most) => {
                let mut ends = vec![from];
                for _ in 0..*least {
                    ends = self.all_ends(inner, &ends, depth);
                }
                let more = most.map_or(self.text.len(), |most| (most - least) as usize);
                for _ in 0..more {
                    let next = self.all_ends(inner, &ends, depth);
                    ends.extend(next);
                    ends.sort_unstable();
                    ends.dedup();
                }
                ends
            }
        };
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    fn all_ends(&self, expr: &Expr, from: &[usize], depth: usize) -> Vec<usize> {
        let mut ends: Vec<usize> =
            from.iter().flat_map(|from| self.ends(expr, *from, depth)).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}

/// Random grammars of two rules over two letters. The first rule may be recursive.
struct Made(u64);

impl Made {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % n
    }

    fn expr(&mut self, depth: u32) -> String {
        if depth == 0 {
            let leaves = ["[a]", "[b]", "[ab]", "\"a\"", "\"ab\"", "\"ba\"", "b", "b"];
            return leaves[self.below(leaves.len() as u64) as usize].into();
        }
        match self.below(6) {
            0 | 1 => format!("{} {}", self.expr(depth - 1), self.expr(depth - 1)),
            2 => format!("({} | {})", self.expr(depth - 1), self.expr(depth - 1)),
            3 => {
                let times = ["*", "+", "?", "{1,2}"][self.below(4) as usize];
                format!("({}){times}", self.expr(depth - 1))
            }
            4 => format!("(\"a\" root {})?", self.expr(depth - 1)),
            _ => self.expr(0),
        }
    }
}

/// A grammar that is split into words allows the same texts as the grammar itself.
#[test]
fn the_texts_allowed_are_the_grammars_own_no_more_and_no_less() {
    let mut texts = vec![String::new()];
    for length in 0..4 {
        let longest: Vec<String> = texts.iter().filter(|t| t.len() == length).cloned().collect();
        texts.extend(longest.iter().flat_map(|t| [format!("{t}a"), format!("{t}b")]));
    }
    let words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let trie = TokTrie::from(&TokRxInfo::new(256, 255), &words);
    let mut compiler = compiler();
    let mut made = Made(1);
    let mut recursive = 0;
    for _ in 0..150 {
        let source = format!("root ::= {}\nb ::= \"b\" [ab]?\n", made.expr(3));
        recursive += usize::from(source.matches("root").count() > 1);
        let grammar = parse::parse(&source, &trie).unwrap();
        let compiled = compiler.compile(&Constraint::Gbnf(source.clone())).unwrap();
        for text in &texts {
            let chars: Vec<char> = text.chars().collect();
            let expected = Reference { grammar: &grammar, text: &chars }.matches();
            assert_eq!(accepts(&compiled, text), expected, "{text:?} under\n{source}");
        }
    }
    assert!(recursive > 20, "{recursive} grammars contain themselves");
}

/// llguidance overflowed its stack for the first one. One mask of the second one took 10 s.
#[test]
fn deep_grammars_are_refused() {
    let cycle = |rules: usize, groups: usize| -> String {
        let rule = |n: usize| {
            let close = format!("c{})*", (n + 1) % rules).repeat(groups);
            format!("c{n}::={}[a-z]{close}\n", "(".repeat(groups))
        };
        format!("root ::= c0\n{}", (0..rules).map(rule).collect::<String>())
    };
    let chain = |rules: usize, groups: usize| -> String {
        let rule = |n: usize| {
            let (open, close) = ("(".repeat(groups), "\"x\"){0,9}".repeat(groups));
            format!("r{n}::={open}r{}{close}\n", n + 1)
        };
        let rules_text: String = (0..rules).map(rule).collect();
        format!("root ::= r0\n{rules_text}r{rules}::=[a-z]\n")
    };
    for grammar in [cycle(50, 60), chain(40, 60), chain(60, 24)] {
        let said = refusal(&Constraint::Gbnf(grammar));
        assert!(said.contains("nested more than 256 levels deep"), "{said}");
    }
    for grammar in [cycle(3, 2), chain(20, 1)] {
        compiler().compile(&Constraint::Gbnf(grammar)).unwrap();
    }
}
