//! Visits and checks every schema that can be reached from the root.

use std::cell::Cell;
use std::collections::HashSet;

use llguidance::derivre::RegexAst;
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

use super::{disjoint, finite, formats, values};
use crate::constraint::error::{ConstraintError, wrong_keyword};
use crate::constraint::regex;
use crate::limits::{
    REGEX_BYTES_MAX, SCHEMA_ALTERNATIVES_MAX, SCHEMA_COMPARISONS_MAX, SCHEMA_DEPTH_MAX,
    SCHEMA_PATTERNS_MAX, SCHEMA_PROPERTIES_MAX, SCHEMAS_MAX,
};

/// Patterns in one `patternProperties`. Each is compared with every other.
const SCHEMA_PATTERN_PROPERTIES_MAX: usize = 16;

/// A change to the schema, with the JSON pointer of a subschema. An edit does not change the
/// pointer of another one.
pub(super) enum Edit {
    /// Remove a keyword: one that restricts nothing and that llguidance does not know, or one that
    /// cannot be obeyed.
    Remove(String, String),
    /// Replace the format by this pattern.
    Pattern(String, String),
    /// Make `anyOf` of `oneOf`.
    AnyOf(String),
    /// Replace the subschema by one that every value fits.
    Any(String),
}

/// What happens to a keyword that cannot be obeyed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// It is an error.
    Refuse,
    /// It is edited away, so that the schema allows more.
    Loosen,
}

/// The work that the schemas of one request may take together. A request can have thousands of
/// tools.
#[derive(Debug)]
pub struct SchemaBudget {
    /// Subschemas that may be visited.
    schemas: Cell<usize>,
    /// Comparisons of values.
    comparisons: Cell<usize>,
}

impl Default for SchemaBudget {
    /// Enough for one schema that has the most of everything.
    fn default() -> Self {
        Self {
            schemas: Cell::new(SCHEMAS_MAX + SCHEMA_PATTERNS_MAX * PATTERN_COST),
            comparisons: Cell::new(SCHEMA_COMPARISONS_MAX),
        }
    }
}

impl SchemaBudget {
    /// The budget of all tools of a request.
    pub fn of_tools() -> Self {
        Self { comparisons: Cell::new(TOOL_COMPARISONS_MAX), ..Self::default() }
    }

    fn spend(&self, cost: usize) -> Result<(), ConstraintError> {
        match self.schemas.get().checked_sub(cost) {
            Some(left) => {
                self.schemas.set(left);
                Ok(())
            }
            None => {
                let message = "the JSON schemas of the request have too many parts together";
                Err(ConstraintError(message.into()))
            }
        }
    }
}

/// Checking a regular expression takes about as long as visiting 32 subschemas.
const PATTERN_COST: usize = 32;

/// Comparisons of values in the schemas of all tools of a request. They take less than a
/// millisecond, for the front lane may make them.
const TOOL_COMPARISONS_MAX: usize = 100_000;

/// Checks the schema and returns the edits it needs.
pub(super) fn walk(
    root: &Value,
    strictness: Strictness,
    budget: &SchemaBudget,
) -> Result<Vec<Edit>, ConstraintError> {
    let mut walk = Walk {
        root,
        budget,
        loosens: strictness == Strictness::Loosen,
        reached: Vec::new(),
        seen: HashSet::new(),
        patterns: 0,
        edits: Vec::new(),
    };
    walk.visit(String::new(), root, 0)?;
    match finite::endless(&walk.reached) {
        // Without the reference that is removed, it may have an end.
        Some(_) if walk.loosens && !walk.edits.is_empty() => Ok(walk.edits),
        Some(at) => Err(ConstraintError(format!(
            "the JSON schema at #{at} has no finite value: it always contains itself"
        ))),
        None => Ok(walk.edits),
    }
}

struct Walk<'a> {
    root: &'a Value,
    budget: &'a SchemaBudget,
    loosens: bool,
    /// The schemas, each with its JSON pointer.
    reached: Vec<(String, &'a Value)>,
    seen: HashSet<String>,
    patterns: usize,
    edits: Vec<Edit>,
}

impl<'a> Walk<'a> {
    fn visit(
        &mut self,
        at: String,
        schema: &'a Value,
        depth: usize,
    ) -> Result<(), ConstraintError> {
        if !self.seen.insert(at.clone()) {
            return Ok(());
        }
        match self.check_subschema(&at, schema, depth) {
            Err(_) if self.loosens => {
                self.edits.push(Edit::Any(at.clone()));
                self.reached.push((at, &Value::Bool(true)));
            }
            Err(error) => return Err(error),
            Ok(()) => self.reached.push((at, schema)),
        }
        Ok(())
    }

    fn check_subschema(
        &mut self,
        at: &str,
        schema: &'a Value,
        depth: usize,
    ) -> Result<(), ConstraintError> {
        self.budget.spend(1)?;
        if depth > SCHEMA_DEPTH_MAX {
            let message =
                format!("the JSON schema is nested deeper than {SCHEMA_DEPTH_MAX} levels");
            return Err(ConstraintError(message));
        }
        if self.seen.len() > SCHEMAS_MAX {
            let message = format!("the JSON schema has more than {SCHEMAS_MAX} subschemas");
            return Err(ConstraintError(message));
        }
        let map = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(map) => map,
            _ => {
                let message = format!("the JSON schema at #{at} must be an object or a boolean");
                return Err(ConstraintError(message));
            }
        };
        for (keyword, value) in map {
            let obeyed = self.keyword(at, keyword, value, depth);
            self.unless_loose(at, keyword, obeyed)?;
        }
        let other = if map.contains_key("prefixItems") { "prefixItems" } else { "additionalItems" };
        let tuple = check_tuple(at, map);
        self.unless_loose(at, other, tuple)?;
        let least = check_min_properties(at, map);
        self.unless_loose(at, "minProperties", least)
    }

    /// Removes a keyword that cannot be obeyed, if that is allowed.
    fn unless_loose(
        &mut self,
        at: &str,
        keyword: &str,
        obeyed: Result<(), ConstraintError>,
    ) -> Result<(), ConstraintError> {
        match obeyed {
            Err(_) if self.loosens => {
                self.edits.push(Edit::Remove(at.to_owned(), keyword.to_owned()));
                Ok(())
            }
            obeyed => obeyed,
        }
    }

    fn keyword(
        &mut self,
        at: &str,
        keyword: &str,
        value: &'a Value,
        depth: usize,
    ) -> Result<(), ConstraintError> {
        match keyword {
            // These do not restrict values.
            "title" | "description" | "default" | "examples" | "$comment" | "deprecated"
            | "readOnly" | "writeOnly" | "contentEncoding" | "contentMediaType"
            | "discriminator" => Ok(()),
            "$id" if at.is_empty() => Ok(()),
            "$schema" if at.is_empty() => self.draft(value),
            // Definitions are visited when a reference names them.
            "$defs" | "definitions" => values::object(at, keyword, value).map(|_| ()),
            "$ref" => self.reference(at, value, depth),
            "type" => values::check_types(at, value),
            "const" => values::check_literal(at, keyword, value),
            "enum" => values::check_enum(at, value),
            "anyOf" | "allOf" | "prefixItems" => self.list(at, keyword, value, depth),
            "items" if value.is_array() => self.list(at, keyword, value, depth),
            "oneOf" => {
                self.list(at, keyword, value, depth)?;
                match self.alternatives(at, value) {
                    Err(_) if self.loosens => {
                        self.edits.push(Edit::AnyOf(at.to_owned()));
                        Ok(())
                    }
                    known => known,
                }
            }
            "items" | "additionalItems" | "additionalProperties" => {
                self.visit(format!("{at}/{keyword}"), value, depth + 1)
            }
            "properties" => self.members(at, keyword, value, SCHEMA_PROPERTIES_MAX, depth),
            "patternProperties" => {
                for pattern in values::object(at, keyword, value)?.keys() {
                    self.pattern(at, keyword, pattern)?;
                }
                self.members(at, keyword, value, SCHEMA_PATTERN_PROPERTIES_MAX, depth)
            }
            "required" => values::check_names(at, keyword, value),
            "minItems" | "minLength" | "minProperties" => values::check_least(at, keyword, value),
            "maxItems" | "maxLength" | "maxProperties" => self.most(at, keyword, value),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                values::check_number(at, keyword, value).map(|_| ())
            }
            "multipleOf" => values::check_multiple(at, value),
            "pattern" => match value.as_str() {
                Some(pattern) => self.pattern(at, keyword, pattern),
                None => Err(wrong_keyword(at, keyword, "must be a string")),
            },
            "format" => self.format(at, value),
            "uniqueItems" if *value == Value::Bool(false) => {
                self.edits.push(Edit::Remove(at.to_owned(), keyword.to_owned()));
                Ok(())
            }
            _ => Err(wrong_keyword(at, keyword, "is not supported")),
        }
    }

    /// Accepts drafts in which all supported keywords have the same meaning. llguidance would
    /// ignore keywords that the named draft lacks.
    fn draft(&mut self, value: &Value) -> Result<(), ConstraintError> {
        let known = [
            "https://json-schema.org/draft/2020-12/schema",
            "https://json-schema.org/draft/2019-09/schema",
            "http://json-schema.org/draft-07/schema",
            "http://json-schema.org/draft-06/schema",
        ];
        let draft = value.as_str().unwrap_or_default().trim_end_matches('#');
        if !known.contains(&draft) {
            return Err(wrong_keyword(
                "",
                "$schema",
                format!("must be one of {}", known.join(", ")),
            ));
        }
        self.edits.push(Edit::Remove(String::new(), "$schema".into()));
        Ok(())
    }

    fn reference(&mut self, at: &str, value: &Value, depth: usize) -> Result<(), ConstraintError> {
        let wrong = |what: &str| wrong_keyword(at, "$ref", what);
        let target = value.as_str().ok_or_else(|| wrong("must be a string"))?;
        let Some(pointer) = target.strip_prefix('#').filter(|p| p.is_empty() || p.starts_with('/'))
        else {
            return Err(wrong("must begin with #/: only parts of the same schema can be used"));
        };
        if pointer == "/" || pointer.contains(['~', '%']) {
            return Err(wrong("must not have escapes (~, %) or an empty name in it"));
        }
        match self.root.pointer(pointer) {
            Some(schema) => self.visit(pointer.to_owned(), schema, depth + 1),
            None => Err(wrong(&format!("refers to {target:.100}, which is not there"))),
        }
    }

    /// Checks a list of schemas.
    fn list(
        &mut self,
        at: &str,
        keyword: &str,
        value: &'a Value,
        depth: usize,
    ) -> Result<(), ConstraintError> {
        let list = value.as_array().filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| wrong_keyword(at, keyword, "must be a list of schemas"))?;
        if list.len() > SCHEMA_ALTERNATIVES_MAX {
            let what = format!("has {} schemas; it may have {SCHEMA_ALTERNATIVES_MAX}", list.len());
            return Err(wrong_keyword(at, keyword, what));
        }
        for (index, schema) in list.iter().enumerate() {
            self.visit(format!("{at}/{keyword}/{index}"), schema, depth + 1)?;
        }
        Ok(())
    }

    /// Checks an object of schemas.
    fn members(
        &mut self,
        at: &str,
        keyword: &str,
        value: &'a Value,
        bound: usize,
        depth: usize,
    ) -> Result<(), ConstraintError> {
        let members = values::object(at, keyword, value)?;
        if members.len() > bound {
            let what = format!("has {} members; it may have {bound}", members.len());
            return Err(wrong_keyword(at, keyword, what));
        }
        for (name, schema) in members {
            let name = name.replace('~', "~0").replace('/', "~1");
            self.visit(format!("{at}/{keyword}/{name}"), schema, depth + 1)?;
        }
        Ok(())
    }

    /// Checks `oneOf`. A grammar cannot express "exactly one of", but "any of" is equivalent if no
    /// value matches two of the schemas.
    fn alternatives(&self, at: &str, value: &Value) -> Result<(), ConstraintError> {
        let options = value.as_array().map_or(&[][..], Vec::as_slice);
        match disjoint::overlap(self.root, options, &self.budget.comparisons) {
            Some((a, b)) => {
                let what = format!(
                    "is supported only where no value fits two of its schemas; numbers {a} and \
                     {b} may have values in common: give them different types, or a required \
                     property with different constants, or use anyOf"
                );
                Err(wrong_keyword(at, "oneOf", what))
            }
            None => Ok(()),
        }
    }

    /// Checks an upper bound on a count, and removes one that no output can reach.
    fn most(&mut self, at: &str, keyword: &str, value: &Value) -> Result<(), ConstraintError> {
        if !values::check_most(at, keyword, value)? {
            self.edits.push(Edit::Remove(at.to_owned(), keyword.to_owned()));
        }
        Ok(())
    }

    fn pattern(&mut self, at: &str, keyword: &str, source: &str) -> Result<(), ConstraintError> {
        self.budget.spend(PATTERN_COST)?;
        self.patterns += 1;
        if self.patterns > SCHEMA_PATTERNS_MAX {
            let what = format!("is one pattern too many; there may be {SCHEMA_PATTERNS_MAX}");
            return Err(wrong_keyword(at, keyword, what));
        }
        if source.len() > REGEX_BYTES_MAX {
            let what = format!("has {} bytes; it may have {REGEX_BYTES_MAX}", source.len());
            return Err(wrong_keyword(at, keyword, what));
        }
        // Check it in the form that llguidance will read.
        let ast = RegexAst::SearchRegex(regex_to_lark(source, "dw"));
        regex::check(ast, source)
            .map_err(|error| wrong_keyword(at, keyword, format!("is refused: {error}")))
    }

    fn format(&mut self, at: &str, value: &Value) -> Result<(), ConstraintError> {
        let name = value.as_str().ok_or_else(|| wrong_keyword(at, "format", "must be a string"))?;
        if let Some(pattern) = formats::pattern(name) {
            self.edits.push(Edit::Pattern(at.to_owned(), pattern));
            return Ok(());
        }
        if formats::KNOWN.contains(&name) {
            return Ok(());
        }
        let known = formats::KNOWN.join(", ");
        let shown: String = name.chars().take(64).collect();
        let what = format!("{shown:?} is not supported; these are: date, date-time, time, {known}");
        Err(wrong_keyword(at, "format", what))
    }
}

/// Refuses a mixture of the old keywords for tuples (`items` as a list, `additionalItems`) and the
/// new ones (`prefixItems`, `items`). llguidance would ignore one of them.
fn check_tuple(at: &str, map: &Map<String, Value>) -> Result<(), ConstraintError> {
    let old = map.get("items").is_some_and(Value::is_array);
    if map.contains_key("additionalItems") && !old {
        return Err(wrong_keyword(
            at,
            "additionalItems",
            "has a meaning only where items is a list",
        ));
    }
    if map.contains_key("prefixItems") && old {
        return Err(wrong_keyword(at, "prefixItems", "cannot be combined with a list of items"));
    }
    Ok(())
}

/// Checks `minProperties`. A key that is not a named property may be generated twice, but counts
/// once. So only named properties can satisfy the minimum.
fn check_min_properties(at: &str, map: &Map<String, Value>) -> Result<(), ConstraintError> {
    let least = map.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
    let required = map.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    let closed = map.get("additionalProperties") == Some(&Value::Bool(false))
        && !map.contains_key("patternProperties");
    if least <= required || (closed && least == required + 1) {
        return Ok(());
    }
    let what = "is supported only up to the number of required properties, or one more where \
                additionalProperties is false and there are no patternProperties";
    Err(wrong_keyword(at, "minProperties", what))
}
