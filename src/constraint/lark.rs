//! Checks a Lark grammar for constructs that llguidance would silently ignore.

use serde_json::{Deserializer, Value};

use super::error::ConstraintError;
use super::regex::no_lookahead;
use super::schema;

/// Attributes that llguidance understands and corelane does not support.
const IGNORED: [&str; 1] = ["temperature"];

/// Checks the schemas inside a Lark grammar (`%json { ... }`), and adds the same options for the
/// layout of JSON as to other schemas.
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

/// Refuses attributes before a rule's body: `name[temperature=0.5]: ...`.
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
