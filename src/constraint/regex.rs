//! Checks a regular expression for constructs that llguidance would misread.

use llguidance::derivre::{RegexAst, RegexBuilder};

use super::error::{ConstraintError, tidy};

/// Checks a regular expression that must match a whole text.
pub(super) fn check_whole(source: &str) -> Result<(), ConstraintError> {
    if source.is_empty() {
        return Err(ConstraintError("the regular expression is empty".into()));
    }
    check(RegexAst::Regex(source.into()), source)
}

/// Checks derivre's form of the expression `source`.
pub(super) fn check(ast: RegexAst, source: &str) -> Result<(), ConstraintError> {
    no_lookahead(source)?;
    RegexBuilder::new()
        .mk(&ast)
        .map(|_| ())
        .map_err(|error| ConstraintError(tidy(&format!("not a regular expression: {error}"))))
}

/// derivre would take a group with this name for a lookahead.
pub(super) fn no_lookahead(source: &str) -> Result<(), ConstraintError> {
    if source.contains("<stop>") {
        return Err(ConstraintError("a regular expression's group may not be named stop".into()));
    }
    Ok(())
}
