//! Checks before llguidance reads a regular expression or a Lark grammar: what it
//! would take for something else, or ignore.

use llguidance::derivre::{RegexAst, RegexBuilder};
use serde_json::{Deserializer, Value};

use super::compile::tidy;
use super::{ConstraintError, schema};

/// What llguidance understands, and this server does not act on.
const IGNORED: [&str; 1] = ["temperature"];

/// Checks a regular expression that a whole text must match.
pub(super) fn check_regex(source: &str) -> Result<(), ConstraintError> {
    if source.is_empty() {
        return Err(ConstraintError("the regular expression is empty".into()));
    }
    check(RegexAst::Regex(source.into()), source)
}

/// Checks an expression of derivre's, which was made of `source`.
pub(super) fn check(ast: RegexAst, source: &str) -> Result<(), ConstraintError> {
    no_lookahead(source)?;
    RegexBuilder::new()
        .mk(&ast)
        .map(|_| ())
        .map_err(|error| ConstraintError(tidy(&format!("not a regular expression: {error}"))))
}

/// derivre takes a group of this name for a lookahead.
fn no_lookahead(source: &str) -> Result<(), ConstraintError> {
    if source.contains("<stop>") {
        return Err(ConstraintError("a regular expression's group may not be named stop".into()));
    }
    Ok(())
}

/// A Lark grammar with the schemas in it (`%json { ... }`) checked, and laid out
/// as a schema of its own is.
pub(super) fn checked(source: &str) -> Result<String, ConstraintError> {
    const JSON: &str = "%json";
    let mut checked = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(found) = rest.find(JSON) {
        let (before, after) = rest.split_at(found + JSON.len());
        let mut values = Deserializer::from_str(after).into_iter::<Value>();
        let line = 1 + source[..source.len() - after.len()].matches('\n').count();
        let Some(Ok(value)) = values.next() else {
            let message = format!("line {line}: {JSON} must be followed by a JSON schema");
            return Err(ConstraintError(message));
        };
        rest = &after[values.byte_offset()..];
        let schema = schema::check(value)
            .map_err(|error| ConstraintError(format!("line {line}: in {JSON}: {error}")))?;
        no_lookahead(before)?;
        no_attributes(before)?;
        checked.push_str(before);
        checked.push_str(&format!(" {schema} "));
    }
    no_lookahead(rest)?;
    no_attributes(rest)?;
    checked.push_str(rest);
    Ok(checked)
}

/// Attributes stand before a rule's body: `name[temperature=0.5]: ...`.
fn no_attributes(grammar: &str) -> Result<(), ConstraintError> {
    for name in IGNORED {
        for (at, _) in grammar.match_indices(name) {
            if grammar[at + name.len()..].trim_start().starts_with('=') {
                let message = format!("the attribute {name} is not supported in a grammar");
                return Err(ConstraintError(message));
            }
        }
    }
    Ok(())
}
