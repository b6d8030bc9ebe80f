//! Grammars of calls in the notations of Python (LFM2) and of Gemma 4.

use serde_json::{Value, json};

use super::rules::{Grammar, literal};
use super::schema::{choices, is_any_text, json_of};
use crate::chat::output::literal::GEMMA_QUOTE;
use crate::chat::output::offered::{Members, ToolSpec, Types, resolve};

/// How keys and values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notation {
    Gemma,
    Python,
}

/// Lists and objects within each other that keep the form of their schema. Deeper ones are only of
/// its types.
const DEPTH_MAX: usize = 16;

/// Adds the rules of the arguments of the tool with this index. Returns the text of a call after its
/// opening bracket.
pub(super) fn arguments(
    grammar: &mut Grammar<'_>,
    notation: Notation,
    index: usize,
    tool: &ToolSpec,
) -> String {
    let root = &tool.parameters;
    let name = format!("call_{index}");
    let mut writer = Writer { grammar, notation, root, name: &name, references: Vec::new() };
    let members = writer.members(&name, root, DEPTH_MAX);
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

/// Writes the rules of one tool.
struct Writer<'w, 'g> {
    grammar: &'w mut Grammar<'g>,
    notation: Notation,
    /// The tool's schema.
    root: &'w Value,
    /// The start of the names of all rules.
    name: &'w str,
    /// The targets of `$ref` that have rules. A schema may refer to itself, and many to one.
    references: Vec<&'w str>,
}

impl<'w> Writer<'w, '_> {
    /// The members of an object, without its brackets: in the schema's order, those that are not
    /// required may be left out.
    fn members(&mut self, name: &str, schema: &'w Value, depth: usize) -> String {
        let members = Members::of(schema, self.root);
        let (comma, separator) = (self.notation.comma(), self.notation.separator());
        if members.listed.is_empty() {
            let value = match self.notation {
                Notation::Gemma => any_gemma(self.grammar).to_owned(),
                Notation::Python => python(Types::ANY, &json!({}), self.root),
            };
            let member = format!("{} {} {value}", self.grammar.key(), literal(separator));
            let any = format!("( {member} ( {comma} {member} )* )?");
            return if members.is_open { any } else { String::new() };
        }
        let first_required = members.listed.iter().position(|(_, _, is_required)| *is_required);
        // From the last member to the first: `rest` is what may follow another member, `first` what
        // may follow the bracket.
        let (mut first, mut rest) = (String::new(), String::new());
        for (i, (key, schema, is_required)) in members.listed.iter().enumerate().rev() {
            if self.grammar.is_too_long() {
                break;
            }
            let member = format!("{name}_{i}");
            let value = self.value(&member, schema, depth);
            let key = self.grammar.text(&format!("{key}{separator}"));
            self.grammar.rule(&member, &format!("{key} {value}"));
            let alone = format!("{member} {rest}");
            if first_required.is_none_or(|required| i <= required) {
                let start = format!("{name}_{i}_first");
                let body = match (*is_required, first.is_empty()) {
                    (true, _) => alone,
                    (false, true) => format!("( {alone} )?"),
                    (false, false) => format!("{alone} | {first}"),
                };
                self.grammar.rule(&start, &body);
                first = start;
            }
            let option = if *is_required { "" } else { "?" };
            let after = format!("{name}_{i}_on");
            self.grammar.rule(&after, &format!("( {comma} {member} ){option} {rest}"));
            rest = after;
        }
        first
    }

    /// A value of a schema. Rules that it needs have names that begin with `name`.
    fn value(&mut self, name: &str, schema: &'w Value, depth: usize) -> String {
        let types = Types::of_schema(schema, self.root);
        if self.notation == Notation::Python {
            return python(types, schema, self.root);
        }
        let quote = self.grammar.text(GEMMA_QUOTE);
        if let Some(texts) = choices(schema, self.root) {
            let texts: Vec<String> = texts.into_iter().map(literal).collect();
            return format!("{quote} ( {} ) {quote}", texts.join(" | "));
        }
        if Types::SCALAR.has(types) {
            return json_of(schema, self.root);
        }
        if depth == 0 || self.grammar.is_too_long() {
            return gemma(self.grammar, types);
        }
        match schema["$ref"].as_str() {
            Some(target) => self.reference(target, schema, types, depth),
            None => self.nested(name, schema, types, depth),
        }
    }

    /// A value of the schema that `schema` refers to.
    fn reference(
        &mut self,
        target: &'w str,
        schema: &'w Value,
        types: Types,
        depth: usize,
    ) -> String {
        let found = resolve(schema, self.root);
        if found.get("$ref").is_some() {
            return gemma(self.grammar, types);
        }
        if let Some(known) = self.references.iter().position(|known| *known == target) {
            return format!("{}_ref_{known}", self.name);
        }
        let rule = format!("{}_ref_{}", self.name, self.references.len());
        self.references.push(target);
        let value = self.value(&rule, found, depth - 1);
        self.grammar.rule(&rule, &value);
        rule
    }

    /// A value that may be a string, a list or an object.
    fn nested(&mut self, name: &str, schema: &'w Value, types: Types, depth: usize) -> String {
        if let Some(options) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            let ways = options.iter().enumerate().map(|(i, option)| {
                let rule = format!("{name}_way_{i}");
                self.value(&rule, option, depth - 1)
            });
            let ways: Vec<String> = ways.collect();
            return format!("( {} )", ways.join(" | "));
        }
        if types == Types::ARRAY && schema.get("items").is_some() {
            let rule = format!("{name}_item");
            let item = self.value(&rule, &schema["items"], depth - 1);
            self.grammar.rule(&rule, &item);
            return format!("\"[\" ( {rule} ( \",\" {rule} )* )? \"]\"");
        }
        if types == Types::OBJECT {
            return format!("\"{{\" {} \"}}\"", self.members(name, schema, depth - 1));
        }
        gemma(self.grammar, types)
    }
}

/// A value in Python. Lists and objects are JSON, which Python's notation resembles, and strings
/// have JSON's quotes. Truth values are Python's.
fn python(types: Types, schema: &Value, root: &Value) -> String {
    let json = json_of(schema, root);
    if types == Types::BOOLEAN {
        return "( \"True\" | \"False\" )".to_owned();
    }
    if types == Types::ANY {
        let words = " | \"True\" | \"False\" | \"None\"";
        return format!("( {json}{} )", if is_any_text(schema, root) { words } else { "" });
    }
    if types.has(Types::NULL) { format!("( {json} | \"None\" )") } else { json }
}

/// Any value of one of these types, as Gemma 4 writes it.
fn gemma(grammar: &mut Grammar<'_>, types: Types) -> String {
    let mut ways = Vec::new();
    if types.has(Types::STRING) {
        let quote = grammar.text(GEMMA_QUOTE);
        ways.push(format!("{quote} ( {} )", grammar.until_shared("quoted", GEMMA_QUOTE)));
    }
    let names = [(Types::NUMBER, "number"), (Types::BOOLEAN, "boolean"), (Types::NULL, "null")];
    let names = names.into_iter().filter(|(one, _)| types.has(*one)).map(|(_, name)| name);
    let names: Vec<&str> = names.collect();
    if !names.is_empty() {
        ways.push(format!("%json {}", json!({ "type": names })));
    }
    if types.has(Types::ARRAY) {
        let any = any_gemma(grammar);
        ways.push(format!("\"[\" ( {any} ( \",\" {any} )* )? \"]\""));
    }
    if types.has(Types::OBJECT) {
        let member = format!("{} \":\" {}", grammar.key(), any_gemma(grammar));
        ways.push(format!("\"{{\" ( {member} ( \",\" {member} )* )? \"}}\""));
    }
    format!("( {} )", ways.join(" | "))
}

/// The rule of any value of Gemma 4. It refers to itself.
fn any_gemma(grammar: &mut Grammar<'_>) -> &'static str {
    if grammar.is_first("any") {
        let body = gemma(grammar, Types::ANY);
        grammar.rule("any", &body);
    }
    "any"
}
