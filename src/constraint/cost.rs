//! Decides, before a constraint is compiled, whether it is known to be cheap to compile.
//!
//! If several schemas or regular expressions apply to one value, llguidance intersects them. The
//! size of an intersection can be the product of the sizes of its parts, and llguidance cannot be
//! stopped meanwhile. A constraint is known to be cheap if it is small and has no intersection. All
//! others are first tried in a separate process ([`trial`](super::trial)).

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Deserializer, Map, Value};

use super::kind::Constraint;
use crate::limits::CHEAP_POINTS_MAX;
use crate::types::digits;

/// A `format`, or a bound on a number, counts as this many points ([`CHEAP_POINTS_MAX`]), because
/// it becomes a regular expression.
const CHEAP_FORM_POINTS: usize = CHEAP_POINTS_MAX / 64;

/// Most characters and classes of each regular expression of a cheap constraint, with repetitions
/// written out.
const CHEAP_REGEX_POINTS_MAX: usize = 300;

/// Most bytes of a cheap grammar for tools, without its schemas.
const CHEAP_GRAMMAR_BYTES_MAX: usize = 16 * 1024;

/// The largest repetition in a cheap constraint.
const CHEAP_REPEAT_MAX: u64 = 32;

/// The largest `minItems` and `maxItems` of a cheap constraint.
const CHEAP_ITEMS_MAX: u64 = 64;

/// The largest `minLength` and `maxLength` of a cheap constraint.
const CHEAP_COUNT_MAX: u64 = 4096;

/// The deepest nesting of a cheap constraint's schemas.
const CHEAP_DEPTH_MAX: usize = 24;

impl Constraint {
    /// Whether compiling it is known to take at most a few milliseconds. A constraint that is too
    /// long counts as cheap, because it is refused at once. The check takes about as long as
    /// parsing the constraint.
    pub fn is_cheap(&self) -> bool {
        self.source_bytes() > self.source_bytes_max() || costliest(self).is_none()
    }
}

/// The part of a constraint that is likely to take longest, in words. `None` if the constraint is
/// known to be cheap.
pub(super) fn costliest(constraint: &Constraint) -> Option<String> {
    let mut sum = Sum::default();
    match constraint {
        Constraint::JsonObject => {}
        Constraint::JsonSchema(source) => match digits::parse(source) {
            Ok(schema) => sum.schema("", &schema, 0),
            Err(_) => sum.note(0, || "its JSON".into()),
        },
        Constraint::Regex(source) => sum.regex("the regular expression", source),
        Constraint::Gbnf(source) => sum.grammar(source),
        Constraint::Lark(source) => sum.lark(source),
    }
    if sum.points > CHEAP_POINTS_MAX {
        let points = sum.points;
        sum.note(0, || format!("its size: {points} schemas, values and names"));
    }
    sum.costliest.map(|(_, part)| part)
}

/// The sum of a constraint's parts.
#[derive(Default)]
struct Sum {
    /// Schemas, values and names, and the parts of regular expressions.
    points: usize,
    /// The part that is likely to take longest, with a cost by which parts are compared.
    costliest: Option<(usize, String)>,
}

impl Sum {
    /// Notes a part that is not known to be cheap.
    fn note(&mut self, cost: usize, part: impl FnOnce() -> String) {
        if self.costliest.as_ref().is_none_or(|(most, _)| cost > *most) {
            self.costliest = Some((cost, part()));
        }
    }

    /// Adds the schema at this JSON pointer, and those below it.
    fn schema(&mut self, at: &str, schema: &Value, depth: usize) {
        self.points += 1;
        let Value::Object(map) = schema else { return };
        if depth > CHEAP_DEPTH_MAX {
            return self.note(depth, || format!("#{at}, which is {depth} levels deep"));
        }
        self.meetings(at, map);
        for (keyword, value) in map {
            let below = || format!("{at}/{keyword}");
            match (keyword.as_str(), value) {
                (
                    "properties" | "$defs" | "definitions" | "patternProperties",
                    Value::Object(members),
                ) => {
                    // Each name is compared with the others.
                    self.points += members.len() * members.len() / 64;
                    for (name, member) in members {
                        // Names are cut to 40 characters, because the pointer is copied for each
                        // schema below.
                        let at = format!("{at}/{keyword}/{name:.40}");
                        self.schema(&at, member, depth + 1);
                    }
                }
                ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(members)) => {
                    for (index, member) in members.iter().enumerate() {
                        self.schema(&format!("{at}/{keyword}/{index}"), member, depth + 1);
                    }
                }
                ("items" | "additionalProperties" | "additionalItems", _) => {
                    self.schema(&below(), value, depth + 1);
                }
                ("enum" | "required", Value::Array(values)) => {
                    self.points +=
                        values.iter().map(|value| 1 + size_of_value(value)).sum::<usize>();
                }
                ("const", _) => self.points += 1 + size_of_value(value),
                ("pattern", Value::String(source)) => self.regex(&format!("#{}", below()), source),
                ("minItems" | "maxItems", _) => self.count(below, value, CHEAP_ITEMS_MAX),
                ("minLength" | "maxLength", _) => self.count(below, value, CHEAP_COUNT_MAX),
                ("multipleOf", _) => self.note(1, || format!("#{}", below())),
                ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "format", _) => {
                    self.points += CHEAP_FORM_POINTS
                }
                ("$ref", target) if !is_definition(target) => {
                    self.note(400, || format!("#{}, which refers to no definition", below()));
                }
                _ => {}
            }
        }
    }

    /// Notes schemas and regular expressions that apply to one value together, so that llguidance
    /// intersects them.
    fn meetings(&mut self, at: &str, map: &Map<String, Value>) {
        let has = |keyword: &&&str| map.contains_key(**keyword);
        for keyword in ["allOf", "patternProperties"] {
            if let Some(parts) = map.get(keyword) {
                let cost = 1000 + size_of_value(parts);
                let count = parts
                    .as_array()
                    .map_or_else(|| parts.as_object().map_or(0, Map::len), Vec::len);
                self.note(cost, || {
                    format!("#{at}/{keyword}, where {count} schemas can meet on one value")
                });
            }
        }
        let ways = ["anyOf", "oneOf", "$ref"].iter().filter(has).count();
        let others = map.keys().any(|keyword| restricts(keyword));
        if ways > 1 || ways == 1 && others {
            let cost = 500 + map.values().map(size_of_value).sum::<usize>();
            self.note(cost, || {
                format!("#{at}, where anyOf, oneOf or $ref stands beside other keywords")
            });
        }
        let forms = ["pattern", "format"].iter().filter(has).count();
        let lengths = ["minLength", "maxLength"].iter().any(|keyword| has(&keyword));
        if forms + usize::from(lengths) > 1 {
            let cost = 200 + map.values().map(size_of_value).sum::<usize>();
            self.note(cost, || {
                format!("#{at}, where a pattern, a format or a length meet on one text")
            });
        }
    }

    fn count(&mut self, at: impl FnOnce() -> String, count: &Value, most: u64) {
        let count = count.as_u64().unwrap_or(u64::MAX);
        if count > most {
            self.note(100, || format!("#{}, which is over {most}", at()));
        }
    }

    /// Adds a regular expression. Parsing one can take long, too: a few bytes may stand for many
    /// characters (`\w`), and a flag doubles them. So it is parsed only if it can be cheap.
    fn regex(&mut self, name: &str, source: &str) {
        if source.len() > CHEAP_REGEX_POINTS_MAX {
            return self.note(source.len(), || format!("{name}, with {} bytes", source.len()));
        }
        let mut groups = source.split("(?").skip(1);
        if !groups.all(|group| [":", "<", "P<"].iter().any(|begin| group.starts_with(begin))) {
            return self.note(50, || format!("{name}, with the flags in it"));
        }
        if self.points > CHEAP_POINTS_MAX {
            return; // the constraint is not cheap anyway
        }
        let Ok(hir) = regex_syntax::parse(source) else {
            return self.note(0, || format!("{name}, which cannot be read"));
        };
        let points = points_of(&hir);
        self.points += points.min(CHEAP_POINTS_MAX);
        if points > CHEAP_REGEX_POINTS_MAX {
            self.note(points.min(100_000), || format!("{name}, with its repetitions written out"));
        }
    }

    /// Adds a grammar of the client. No such grammar is known to be cheap, because the sizes of its
    /// rules can multiply.
    fn grammar(&mut self, source: &str) {
        self.note(0, || format!("its rules, in {} bytes", source.len()));
        self.repetitions(source);
    }

    /// Adds a grammar in Lark: its schemas, and the text around them.
    fn lark(&mut self, source: &str) {
        let mut rest = source;
        let mut text = 0;
        while let Some((before, after)) = rest.split_once("%json") {
            text += before.len();
            self.repetitions(before);
            let mut values = Deserializer::from_str(after).into_iter::<Value>();
            let Some(Ok(schema)) = values.next() else {
                return self.note(0, || "what follows %json".into());
            };
            self.schema("", &schema, 0);
            rest = &after[values.byte_offset()..];
        }
        text += rest.len();
        self.repetitions(rest);
        if text > CHEAP_GRAMMAR_BYTES_MAX {
            self.note(text, || format!("its size: {text} bytes beside its schemas"));
        }
    }

    /// Notes large repetitions (`{2,1000}`), and operators that intersect.
    fn repetitions(&mut self, grammar: &str) {
        const INSIDE_BYTES_MAX: usize = 64;
        let (mut line, mut counted) = (1, 0);
        for (at, mark) in grammar.match_indices(['{', '&', '~']) {
            line += grammar[counted..at].matches('\n').count();
            counted = at;
            let rest = &grammar[at + 1..];
            let inside = &rest[..rest.floor_char_boundary(INSIDE_BYTES_MAX)];
            let inside = inside.split('}').next().unwrap_or_default();
            let mut numbers = inside.split(',').map(|number| number.trim().parse::<u64>());
            let is_count =
                inside.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == ',');
            let is_large =
                numbers.any(|number| number.is_ok_and(|number| number > CHEAP_REPEAT_MAX));
            if mark != "{" {
                self.note(300, || format!("line {line}, where {mark} intersects"));
            } else if is_count && is_large {
                self.note(200, || format!("the repetition {{{inside:.20}}} in line {line}"));
            }
        }
    }
}

/// Whether a `$ref` refers to the whole schema or to one of its definitions. These are all counted.
/// Other places, such as `default`, may not be.
fn is_definition(target: &Value) -> bool {
    let Some(target) = target.as_str() else { return false };
    let name = ["#/$defs/", "#/definitions/"].iter().find_map(|begin| target.strip_prefix(begin));
    target == "#" || name.is_some_and(|name| !name.contains('/'))
}

/// Whether a keyword restricts values, so that it is intersected with the schemas next to it.
fn restricts(keyword: &str) -> bool {
    const OTHERS: [&str; 15] = [
        "anyOf",
        "oneOf",
        "$ref",
        "$defs",
        "definitions",
        "$schema",
        "$id",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "discriminator",
        "readOnly",
    ];
    !OTHERS.contains(&keyword)
}

/// The approximate number of numbers, names and 16-byte pieces of text in a value.
fn size_of_value(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() / 16,
        Value::Array(values) => values.iter().map(|value| 1 + size_of_value(value)).sum(),
        Value::Object(members) => members.values().map(|value| 1 + size_of_value(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// The characters and classes of a regular expression, with repetitions written out.
fn points_of(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty => 0,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Unicode(class)) => 1 + class.ranges().len() / 8,
        HirKind::Class(Class::Bytes(class)) => 1 + class.ranges().len() / 8,
        HirKind::Look(_) => 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min + 1).max(1) as usize;
            points_of(&repetition.sub).saturating_mul(times)
        }
        HirKind::Capture(capture) => points_of(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(points_of).fold(0, usize::saturating_add)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::limits::{CONSTRAINT_BYTES_MAX, REGEX_BYTES_MAX};

    fn schema(value: Value) -> Option<String> {
        costliest(&Constraint::JsonSchema(value.to_string()))
    }

    #[test]
    fn usual_schemas_are_cheap() {
        let person = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 80},
                "mail": {"type": "string", "format": "email"},
                "code": {"type": "string", "pattern": "^[A-Z]{3}-\\d{4}$"},
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 8},
                "age": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null},
                "friends": {"type": "array", "items": {"$ref": "#/$defs/p", "description": "d"}},
            },
            "required": ["name"],
            "additionalProperties": false,
            "$defs": {"p": {"type": "object", "properties": {"name": {"type": "string"}}}},
        });
        assert_eq!(schema(person), None);
        assert!(Constraint::JsonObject.is_cheap());
        assert!(Constraint::Regex(r"\d{4}-\d{2}".into()).is_cheap());
        let lark = "start: \"{\" %json {\"type\": \"object\"} /[ \\n]{1,4}/";
        assert!(Constraint::Lark(lark.into()).is_cheap());
    }

    #[test]
    fn the_costliest_part_is_named() {
        let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
        let many: Vec<Value> = (0..60).map(|n| text(&format!("[a-z]{{{n}}}"))).collect();
        let two = json!({"properties": {"a": {"allOf": [{}, {}]}, "b": {"allOf": many.clone()}}});
        let part = schema(two).unwrap();
        assert_eq!(part, "#/properties/b/allOf, where 60 schemas can meet on one value");
        for (value, part) in [
            (json!({"$ref": "#/$defs/a", "pattern": "a"}), "stands beside other keywords"),
            (json!({"anyOf": [{}], "type": "string"}), "stands beside other keywords"),
            (json!({"pattern": "a", "maxLength": 9}), "meet on one text"),
            (json!({"items": {"maxItems": 100_000}}), "#/items/maxItems, which is over"),
            (text("(a{1,90}){1,90}"), "#/pattern, with its repetitions written out"),
            (text(&"a".repeat(301)), "#/pattern, with 301 bytes"),
            (text("(?i)[!-\u{10ffff}]"), "#/pattern, with the flags in it"),
            (json!({"enum": vec!["a".repeat(100); 1000]}), "its size"),
            (json!({"patternProperties": {"a": {}}}), "#/patternProperties"),
            (
                json!({"$ref": "#/default", "default": {"allOf": many}}),
                "#/$ref, which refers to no",
            ),
            (
                json!({"$ref": "#/$defs/a/b", "$defs": {"a": {"b": {}}}}),
                "#/$ref, which refers to no",
            ),
            (json!({"anyOf": vec![json!({"minimum": 3, "maximum": 99}); 100]}), "its size"),
        ] {
            let found = schema(value).unwrap();
            assert!(found.contains(part), "{found}");
        }
        let grammar = |source: &str| costliest(&Constraint::Gbnf(source.into())).unwrap();
        assert_eq!(grammar("root ::= \"a\""), "its rules, in 12 bytes");
        assert!(grammar("root ::= \"a\"\n  [b]{1,5000}").contains("{1,5000} in line 2"));
        assert!(grammar("root ::= \"a\"{ 2,\n 5000 }").contains("in line 1"));
        assert!(costliest(&Constraint::Lark("start: /a/ & /b/".into())).is_some());
        let lark = format!("start: %json {}", json!({"allOf": [{}, {}]}));
        assert!(costliest(&Constraint::Lark(lark)).unwrap().contains("#/allOf"));
    }

    #[test]
    fn a_constraint_that_is_too_long_is_not_read() {
        for constraint in [
            Constraint::Gbnf("&".repeat(CONSTRAINT_BYTES_MAX + 1)),
            Constraint::Regex("(".repeat(REGEX_BYTES_MAX + 1)),
            Constraint::JsonSchema("[".repeat(8 << 20)),
        ] {
            assert!(constraint.is_cheap());
        }
    }
}
