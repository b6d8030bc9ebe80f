//! Checks a regular expression for constructs that llguidance would misread.

use llguidance::derivre::{RegexAst, RegexBuilder};

use super::error::{ConstraintError, tidy};

/// Checks a regular expression that must match a whole text.
pub(super) fn check_whole(source: &str) -> Result<(), ConstraintError> {
    if source.is_empty() {
        return Err(ConstraintError("the regular expression is empty".into()));
    }
    check(RegexAst::Regex(source.into()), source)?;
    no_hidden_lines(source)
}

/// Refuses line breaks and tabs where llguidance would change their meaning. llguidance replaces
/// them by escapes before it parses. In verbose mode they are ignored and end comments, but their
/// escapes do not. After a backslash, the replacement gives another expression, too.
fn no_hidden_lines(source: &str) -> Result<(), ConstraintError> {
    let spelled = source.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
    if spelled != source && regex_syntax::parse(&spelled) != regex_syntax::parse(source) {
        return Err(ConstraintError(
            "a regular expression may have no line breaks or tabs in verbose mode, (?x), or after \
             a backslash; write it on one line, with spaces, without comments, and with \\n and \\t"
                .into(),
        ));
    }
    Ok(())
}

/// Checks the expression `source` in the form `ast` of llguidance's engine, derivre.
pub(super) fn check(ast: RegexAst, source: &str) -> Result<(), ConstraintError> {
    no_lookahead(source)?;
    RegexBuilder::new()
        .mk(&ast)
        .map(|_| ())
        .map_err(|error| ConstraintError(tidy(&format!("not a regular expression: {error}"))))
}

/// Refuses a group named `stop`: derivre would read it as a lookahead.
pub(super) fn no_lookahead(source: &str) -> Result<(), ConstraintError> {
    if source.contains("<stop>") {
        return Err(ConstraintError("a regular expression's group may not be named stop".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_mean_what_they_say() {
        // llguidance would read `a`, with the rest in the comment, and a backslash before an n.
        for bad in ["(?x) a # first\n b", "\\\n"] {
            let error = check_whole(bad).unwrap_err();
            assert!(error.to_string().contains("may have no line breaks"), "{error}");
        }
        for good in ["(?x) a b", "a\n\tb", "[\n\t]"] {
            assert!(check_whole(good).is_ok(), "{good}");
        }
    }
}
