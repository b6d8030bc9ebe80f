//! Constrained texts from the built-in model's vocabulary. Each token is chosen at random among
//! those that the mask allows. Every such text is valid.

use crate::support::Random;
use crate::support::schemas::Schemas;
use corelane::constraint::{Compiler, Constraint, Matcher};
use corelane::kernels::KernelChoice;
use corelane::model::load::{Source, load};
use corelane::model::vocab::Vocab;
use corelane::types::TokenId;
use regex::Regex;
use serde_json::{Value, json};

/// Tokens after which a walk is given up: nothing makes it end.
const STEPS_MAX: usize = 3000;

struct World {
    vocab: std::sync::Arc<Vocab>,
    compiler: Compiler,
    random: Random,
    logits: Vec<f32>,
}

/// How a walk ended.
enum Walk {
    Complete(String),
    TooLong,
}

impl World {
    fn new(seed: u64) -> Self {
        let vocab = load(&Source::BuiltIn, KernelChoice::Auto, |_| true)
            .expect("the built-in model loads")
            .vocab;
        let compiler = Compiler::new(&vocab).unwrap();
        let logits = vec![0.0; vocab.n_tokens()];
        Self { vocab, compiler, random: Random::new(seed), logits }
    }

    /// One random text. Half of the time a token that closes something is taken,
    /// where there is one; texts would seldom end otherwise.
    fn walk(&mut self, constraint: &Constraint) -> Walk {
        let compiled = self.compiler.compile(constraint);
        let compiled = compiled.unwrap_or_else(|error| panic!("{error}: {constraint:?}"));
        let mut matcher = Matcher::new(&compiled);
        let mut text = Vec::new();
        for _ in 0..STEPS_MAX {
            self.logits.fill(0.0);
            matcher.mask(&mut self.logits);
            let is_allowed = |token: &TokenId| self.logits[*token as usize] == 0.0;
            let allowed: Vec<TokenId> =
                (0..self.logits.len() as TokenId).filter(is_allowed).collect();
            assert!(!allowed.is_empty(), "nothing is allowed after {}", lossy(&text));
            let vocab = &self.vocab;
            let ends = |token: TokenId| vocab.end_tokens().contains(&token);
            let closes = |token: TokenId| {
                let first = vocab.bytes_of(token).first();
                ends(token) || first.is_some_and(|byte| b"\"]},".contains(byte))
            };
            let closing: Vec<TokenId> = allowed.iter().copied().filter(|t| closes(*t)).collect();
            let among =
                if !closing.is_empty() && self.random.one_in(2) { &closing } else { &allowed };
            let token = among[self.random.within(0, among.len() - 1)];
            if ends(token) {
                assert_eq!(matcher.error(), None, "after {}", lossy(&text));
                return Walk::Complete(String::from_utf8(text).expect("the text is UTF-8"));
            }
            let bytes = self.vocab.bytes_of(token);
            assert!(!bytes.is_empty(), "the control token {token} is allowed");
            text.extend_from_slice(bytes);
            matcher.push(token).unwrap();
        }
        Walk::TooLong
    }

    /// Walks under a schema, and checks every text with a validator of JSON Schema;
    /// how many there were.
    fn check(&mut self, schema: &Value, walks: usize) -> usize {
        let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
        let constraint = Constraint::JsonSchema(schema.to_string());
        // A schema that always contains itself has no finite text. It is refused.
        match self.compiler.compile(&constraint) {
            Err(error) if error.to_string().contains("has no finite value") => return 0,
            _ => {}
        }
        let mut checked = 0;
        for _ in 0..walks {
            let Walk::Complete(text) = self.walk(&constraint) else { continue };
            let value: Value = match serde_json::from_str(&text) {
                Ok(value) => value,
                // JSON has numbers that a double has not.
                Err(error) if error.to_string().contains("number out of range") => continue,
                Err(error) => panic!("{error}: {text}"),
            };
            if let Err(error) = validator.validate(&value) {
                panic!("{error}\n{text}\n{schema}");
            }
            checked += 1;
        }
        checked
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[test]
fn every_text_under_a_schema_validates() {
    let schemas = [
        json!({"type": "object"}),
        json!({"type": "string", "minLength": 3, "maxLength": 20}),
        json!({"type": "string", "pattern": "^[A-Z][a-z]{1,8}( [A-Z][a-z]{1,8})?$"}),
        json!({"type": "integer", "minimum": -12, "exclusiveMaximum": 345}),
        json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5}),
        json!({"type": "integer", "multipleOf": 7, "minimum": -50, "maximum": 500}),
        json!({"enum": ["a", "ab", 1, null, [1, {"a": true}], {"x": "y"}]}),
        json!({"const": {"quoted \" \\ name": "line\nbreak"}}),
        json!({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 5}),
        json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}],
            "items": false, "minItems": 1}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
            "items": [{"type": "null"}], "additionalItems": {"const": 0}}),
        json!({"type": ["string", "null", "integer"]}),
        json!({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}},
            "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}),
        json!({"type": "object", "patternProperties": {"^n_": {"type": "integer"}},
            "properties": {"n_a": {"minimum": 5}, "b": {"type": "null"}},
            "additionalProperties": false}),
        json!({"type": "object", "minProperties": 1, "additionalProperties": false,
            "properties": {"a": {"type": "null"}, "b": {"type": "null"}}}),
        json!({"type": "object", "required": ["unnamed"], "maxProperties": 3}),
        // As Pydantic writes a tagged union.
        json!({"$defs": {
            "Cat": {"properties": {"kind": {"const": "cat", "title": "Kind", "type": "string"},
                "lives": {"maximum": 9, "minimum": 1, "title": "Lives", "type": "integer"}},
                "required": ["kind", "lives"], "title": "Cat", "type": "object"},
            "Dog": {"properties": {"kind": {"const": "dog", "title": "Kind", "type": "string"},
                "name": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null}},
                "required": ["kind"], "title": "Dog", "type": "object"}},
            "properties": {"pet": {"discriminator": {"mapping": {"cat": "#/$defs/Cat",
                "dog": "#/$defs/Dog"}, "propertyName": "kind"},
                "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}},
            "required": ["pet"], "title": "Owner", "type": "object"}),
        // A tree.
        json!({"type": "object", "properties": {"name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}},
            "required": ["name", "children"], "additionalProperties": false}),
    ];
    let mut world = World::new(1);
    for schema in schemas {
        let checked = world.check(&schema, 20);
        assert!(checked >= 10, "{checked} texts of 20 under {schema}");
    }
}

#[test]
fn formats_hold() {
    let mut world = World::new(2);
    for format in ["date", "time", "date-time", "uuid", "ipv4", "ipv6"] {
        let schema = json!({"type": "string", "format": format});
        assert!(world.check(&schema, 100) >= 90, "{format}");
    }
}

#[test]
fn every_text_under_a_thousand_random_schemas_validates() {
    let mut world = World::new(3);
    let mut random = Random::new(4);
    let (mut walks, mut checked) = (0, 0);
    for _ in 0..1000 {
        let schema = Schemas(&mut random).whole();
        walks += 3;
        checked += world.check(&schema, 3);
    }
    assert!(checked * 10 >= walks * 9, "{checked} texts of {walks} came to an end and were read");
}

#[test]
fn every_text_under_a_regex_matches_it() {
    let mut world = World::new(5);
    for source in [
        "yes|no|maybe",
        r"[A-Z][a-z]+ [A-Z][a-z]+",
        r"\d{4}-\d{2}-\d{2}",
        r"(?i)hello,? world!{1,3}",
        r"[^a-z\n]{1,20}",
        r"\w+@\w+\.(com|org)",
        r"(a|b)*abb",
        r"é+漢?🦀{2}",
        r#""([^"\\]|\\["\\/bfnrt])*""#,
    ] {
        let whole = Regex::new(&format!("^(?:{source})$")).unwrap();
        let mut complete = 0;
        for _ in 0..20 {
            if let Walk::Complete(text) = world.walk(&Constraint::Regex(source.into())) {
                assert!(whole.is_match(&text), "{text:?} does not match {source}");
                complete += 1;
            }
        }
        assert!(complete >= 10, "{complete} texts of 20 under {source}");
    }
}

/// llama.cpp's grammars of JSON and of lists, and one with line ends that white
/// space must leave over.
#[test]
fn every_text_under_a_gbnf_grammar_is_of_it() {
    let mut world = World::new(6);
    let json_grammar = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" ["\\bfnrt] )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9])? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;
    let sums = r#"
root ::= (sum "\n"){1,3}
sum  ::= term ([-+] term)*
term ::= [0-9]{1,4} ws | "(" ws sum ")" ws
ws   ::= [ \n]{0,2}
"#;
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_object());
    let balanced = |text: &str| {
        let depth = text.chars().try_fold(0i32, |depth, c| match c {
            '(' => Some(depth + 1),
            ')' if depth == 0 => None,
            ')' => Some(depth - 1),
            _ => Some(depth),
        });
        depth == Some(0) && text.ends_with('\n')
    };
    let list = Regex::new("^(- [^\n]+\n){1,}$").unwrap();
    let is_list = |text: &str| list.is_match(text);
    type Check<'a> = &'a dyn Fn(&str) -> bool;
    let grammars: [(&str, Check<'_>); 3] = [
        (json_grammar, &is_json),
        (sums, &balanced),
        ("root ::= item+\n# a list\nitem ::= \"- \" [^\\n]{1,40} \"\\n\"", &is_list),
    ];
    for (grammar, is_right) in grammars {
        let mut complete = 0;
        for _ in 0..20 {
            if let Walk::Complete(text) = world.walk(&Constraint::Gbnf(grammar.into())) {
                assert!(is_right(&text), "{text:?} under {grammar}");
                complete += 1;
            }
        }
        assert!(complete >= 10, "{complete} texts of 20 under {grammar}");
    }
}
