//! Checks a regular expression before llguidance reads it, for what llguidance would take for
//! something else.

use llguidance::derivre::{RegexAst, RegexBuilder};

use super::error::{ConstraintError, tidy};

/// Checks a regular expression that a whole text must match.
pub(super) fn check_whole(source: &str) -> Result<(), ConstraintError> {
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
pub(super) fn no_lookahead(source: &str) -> Result<(), ConstraintError> {
    if source.contains("<stop>") {
        return Err(ConstraintError("a regular expression's group may not be named stop".into()));
    }
    Ok(())
}
