//! Grammars of calls in the notations of Python (LFM2) and of Gemma 4.

use serde_json::{Value, json};

use super::schema::{choices, is_any_text, json_of};
use super::{Grammar, ToolSpec, literal};
use crate::chat::output::literal::GEMMA_QUOTE;
use crate::chat::output::offered::{Members, Types, resolve};

/// How keys and values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notation {
    Gemma,
    Python,
}

/// Lists and objects within each other that keep the form of their schema. Deeper ones may be any
/// value.
const DEPTH_MAX: usize = 4;

/// Adds the rules of the arguments of the tool with this index. Returns the text of a call after its
/// opening bracket.
pub(super) fn arguments(
    grammar: &mut Grammar<'_>,
    notation: Notation,
    index: usize,
    tool: &ToolSpec,
) -> String {
    let root = &tool.parameters;
    let members = members(grammar, notation, &format!("call_{index}"), root, root, DEPTH_MAX);
    format!("{members} {}", literal(notation.closer()))
}

impl Notation {
    fn closer(self) -> &'static str {
        match self {
            Self::Gemma => "}",
            Self::Python => ")",
        }
    }

    fn separator(self) -> &'static str {
        match self {
            Self::Gemma => ":",
            Self::Python => "=",
        }
    }

    fn comma(self) -> &'static str {
        match self {
            Self::Gemma => "\",\"",
            Self::Python => "\", \"",
        }
    }
}

/// The members of an object, without its brackets: in the schema's order, those that are not
/// required may be left out.
fn members(
    grammar: &mut Grammar<'_>,
    notation: Notation,
    name: &str,
    schema: &Value,
    root: &Value,
    depth: usize,
) -> String {
    let members = Members::of(schema, root);
    let (comma, separator) = (notation.comma(), notation.separator());
    if members.listed.is_empty() {
        if !members.is_open {
            return String::new();
        }
        let (value, key) = (any_value(grammar, notation), grammar.key());
        let member = format!("{key} {} {value}", literal(separator));
        return format!("( {member} ( {comma} {member} )* )?");
    }
    // From the last member to the first: `rest` is what may follow another member, `first` what may
    // follow the bracket.
    let (mut first, mut rest) = (String::new(), String::new());
    for (i, (key, schema, is_required)) in members.listed.iter().enumerate().rev() {
        let value = value(grammar, notation, &format!("{name}_{i}"), schema, root, depth);
        let member = format!("{name}_{i}");
        grammar.rule(&member, &format!("{} {value}", grammar.text(&format!("{key}{separator}"))));
        let alone = format!("{member} {rest}");
        first = match (*is_required, first.is_empty()) {
            (true, _) => alone,
            (false, true) => format!("( {alone} )?"),
            (false, false) => format!("( {alone} | {first} )"),
        };
        let option = if *is_required { "" } else { "?" };
        let after = format!("{name}_{i}_on");
        grammar.rule(&after, &format!("( {comma} {member} ){option} {rest}"));
        rest = after;
    }
    first
}

/// A value of a schema. Rules that it needs have names that begin with `name`.
fn value(
    grammar: &mut Grammar<'_>,
    notation: Notation,
    name: &str,
    schema: &Value,
    root: &Value,
    depth: usize,
) -> String {
    let types = Types::of_schema(schema, root);
    match notation {
        Notation::Python => python_value(types, schema, root),
        Notation::Gemma => gemma_value(grammar, name, types, schema, root, depth),
    }
}

/// A list or an object may be JSON, and a string has JSON's quotes. Truth values are Python's.
fn python_value(types: Types, schema: &Value, root: &Value) -> String {
    let json = json_of(schema, root);
    if types == Types::BOOLEAN {
        return "( \"True\" | \"False\" )".to_owned();
    }
    if types == Types::ANY && is_any_text(schema, root) {
        return format!("( {json} | \"True\" | \"False\" | \"None\" )");
    }
    let is_nullable = types.has(Types::NULL) && types != Types::ANY;
    if is_nullable { format!("( {json} | \"None\" )") } else { json }
}

fn gemma_value(
    grammar: &mut Grammar<'_>,
    name: &str,
    types: Types,
    schema: &Value,
    root: &Value,
    depth: usize,
) -> String {
    let quote = grammar.text(GEMMA_QUOTE);
    if let Some(texts) = choices(schema, root) {
        let texts: Vec<String> = texts.into_iter().map(literal).collect();
        return format!("{quote} ( {} ) {quote}", texts.join(" | "));
    }
    let schema = resolve(schema, root);
    let options = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    if let Some(options) = options.filter(|_| depth > 0) {
        let option = |(i, option): (usize, &Value)| {
            value(grammar, Notation::Gemma, &format!("{name}_way_{i}"), option, root, depth - 1)
        };
        let options: Vec<String> = options.iter().enumerate().map(option).collect();
        return format!("( {} )", options.join(" | "));
    }
    if Types::SCALAR.has(types) {
        return json_of(schema, root);
    }
    if types == Types::ARRAY && depth > 0 && schema.get("items").is_some() {
        let rule = format!("{name}_item");
        let item = value(grammar, Notation::Gemma, &rule, &schema["items"], root, depth - 1);
        grammar.rule(&rule, &item);
        return format!("\"[\" ( {rule} ( \",\" {rule} )* )? \"]\"");
    }
    if types == Types::OBJECT && depth > 0 {
        let members = members(grammar, Notation::Gemma, name, schema, root, depth - 1);
        return format!("\"{{\" {members} \"}}\"");
    }
    gemma_types(grammar, types)
}

/// Any value of one of these types.
fn gemma_types(grammar: &mut Grammar<'_>, types: Types) -> String {
    let mut ways = Vec::new();
    if types.has(Types::STRING) {
        ways.push(text(grammar));
    }
    let names = [(Types::NUMBER, "number"), (Types::BOOLEAN, "boolean"), (Types::NULL, "null")];
    let names = names.into_iter().filter(|(one, _)| types.has(*one)).map(|(_, name)| name);
    let names: Vec<&str> = names.collect();
    if !names.is_empty() {
        ways.push(format!("%json {}", json!({ "type": names })));
    }
    if types.has(Types::ARRAY) {
        let any = any_value(grammar, Notation::Gemma);
        ways.push(format!("\"[\" ( {any} ( \",\" {any} )* )? \"]\""));
    }
    if types.has(Types::OBJECT) {
        let member = format!("{} \":\" {}", grammar.key(), any_value(grammar, Notation::Gemma));
        ways.push(format!("\"{{\" ( {member} ( \",\" {member} )* )? \"}}\""));
    }
    format!("( {} )", ways.join(" | "))
}

/// A string of Gemma 4.
fn text(grammar: &mut Grammar<'_>) -> String {
    let (quote, rest) = (grammar.text(GEMMA_QUOTE), grammar.until_shared("quoted", GEMMA_QUOTE));
    format!("{quote} ( {rest} )")
}

/// The rule of any value.
fn any_value(grammar: &mut Grammar<'_>, notation: Notation) -> String {
    if notation == Notation::Python {
        return python_value(Types::ANY, &Value::Object(Default::default()), &Value::Null);
    }
    // The rule refers to itself, so its name is known before its body.
    if grammar.is_first("any") {
        let body = gemma_types(grammar, Types::ANY);
        grammar.rule("any", &body);
    }
    "any".to_owned()
}
