//! Reads the constraints on a text: OpenAI's `response_format`, llama-server's `grammar` and
//! `json_schema`, vLLM's `guided_*`.

use crate::api::value::Value;

use super::error::ApiError;
use super::json::{Fields, keep, wrong};
use crate::constraint::Constraint;
use crate::limits::GUIDED_CHOICES_MAX;
use crate::types::digits;

/// A constraint, and the field that asked for it.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedConstraint {
    /// The field of the request, for errors.
    pub field: &'static str,
    /// The constraint itself.
    pub constraint: Constraint,
}

/// Reads the one of these fields that the request has.
///
/// # Errors
/// 400 if there are two, or if one has the wrong form.
pub fn read_constraint(fields: &Fields<'_, '_>) -> Result<Option<RequestedConstraint>, ApiError> {
    let mut found: Option<RequestedConstraint> = None;
    let mut take = |field: &'static str, constraint| match (constraint, &found) {
        (None, _) => Ok(()),
        (Some(_), Some(RequestedConstraint { field: other, .. })) => {
            Err(ApiError::field(field, format!("{field} and {other} cannot be given together")))
        }
        (Some(constraint), None) => {
            found = Some(RequestedConstraint { field, constraint });
            Ok(())
        }
    };
    take("response_format", read_response_format(fields)?)?;
    for name in ["json_schema", "guided_json"] {
        take(name, read_schema(name, fields)?)?;
    }
    let text = |name, make: fn(String) -> Constraint| {
        Ok(fields.string(name)?.filter(|text| !text.is_empty()).map(make))
    };
    take("grammar", text("grammar", Constraint::Gbnf)?)?;
    take("guided_grammar", text("guided_grammar", Constraint::Gbnf)?)?;
    take("regex", text("regex", Constraint::Regex)?)?;
    take("guided_regex", text("guided_regex", Constraint::Regex)?)?;
    take("guided_choice", read_choices(fields)?)?;
    Ok(found)
}

fn read_response_format(fields: &Fields<'_, '_>) -> Result<Option<Constraint>, ApiError> {
    const NAME: &str = "response_format";
    let Some(format) = fields.object(NAME)? else { return Ok(None) };
    match format.string("type")?.as_deref() {
        Some("text") => Ok(None),
        // llama-server takes a schema here, too.
        Some("json_object") => Ok(Some(match format.get("schema")? {
            Some(schema) => of_schema(NAME, &schema)?,
            None => Constraint::JsonObject,
        })),
        Some("json_schema") => {
            let inner = format.object("json_schema")?;
            let schema = inner.map(|inner| inner.get("schema")).transpose()?.flatten();
            let schema = schema.or(format.get("schema")?);
            let schema = schema.ok_or_else(|| {
                ApiError::field(NAME, "response_format.json_schema must have a schema")
            })?;
            of_schema(NAME, &schema).map(Some)
        }
        Some("regex") => text_of(&format, "regex", "pattern").map(Constraint::Regex).map(Some),
        Some("grammar") => text_of(&format, "grammar", "grammar").map(Constraint::Gbnf).map(Some),
        _ => {
            let message = "response_format must have the type text, json_object or json_schema";
            Err(ApiError::field(NAME, message))
        }
    }
}

/// Reads the field that this type of response format requires.
fn text_of(format: &Fields<'_, '_>, kind: &str, name: &'static str) -> Result<String, ApiError> {
    format.string(name)?.ok_or_else(|| {
        let message = format!("response_format of the type {kind} must have a {name}, a string");
        ApiError::field("response_format", message)
    })
}

/// Reads a schema; clients of vLLM send it as text, too.
fn read_schema(
    name: &'static str,
    fields: &Fields<'_, '_>,
) -> Result<Option<Constraint>, ApiError> {
    let Some(value) = fields.get(name)? else { return Ok(None) };
    if let Some(text) = value.as_str() {
        return Ok(Some(Constraint::JsonSchema(text.to_owned())));
    }
    of_schema(name, &value).map(Some)
}

/// Builds a constraint from a schema as JSON.
pub(super) fn of_schema(name: &'static str, value: &Value<'_, '_>) -> Result<Constraint, ApiError> {
    if !value.is_object() && !value.is_bool() {
        return Err(wrong(name, "a JSON schema, an object", value));
    }
    Ok(Constraint::JsonSchema(digits::rounded(keep(name, value)?).to_string()))
}

/// Reads `guided_choice`: the text must be one of these.
fn read_choices(fields: &Fields<'_, '_>) -> Result<Option<Constraint>, ApiError> {
    const NAME: &str = "guided_choice";
    let Some(value) = fields.get(NAME)? else { return Ok(None) };
    let expected = || wrong(NAME, "an array of strings", &value);
    let array = value.as_array().ok_or_else(expected)?;
    if array.is_empty() || array.len() > GUIDED_CHOICES_MAX {
        let message = format!("{NAME} must have 1 to {GUIDED_CHOICES_MAX} strings");
        return Err(ApiError::field(NAME, message));
    }
    let quote = |element: Value<'_, '_>| {
        let text = element.as_str().ok_or_else(expected)?;
        let quoted = serde_json::to_string(text).expect("a string is JSON");
        // Lark would treat these characters as special, even within quotes.
        Ok(quoted.replace('<', "\\u003c").replace('%', "\\u0025").replace('=', "\\u003d"))
    };
    let texts = array.iter().map(quote).collect::<Result<Vec<_>, ApiError>>()?;
    Ok(Some(Constraint::Lark(format!("start: {}\n", texts.join(" | ")))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json::read_object;

    fn read(body: &str) -> Result<Option<Constraint>, String> {
        let read = read_object(&mut body.as_bytes().to_vec(), read_constraint);
        let found = read.map_err(|error| error.message)?;
        Ok(found.map(|requested| requested.constraint))
    }

    #[test]
    fn every_apis_field_says_the_same() {
        let schema = Constraint::JsonSchema(r#"{"type":"integer"}"#.into());
        for body in [
            r#"{"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"integer"}}}}"#,
            r#"{"response_format":{"type":"json_object","schema":{"type":"integer"}}}"#,
            r#"{"json_schema":{"type":"integer"}}"#,
            r#"{"guided_json":{"type":"integer"}}"#,
            r#"{"guided_json":"{\"type\":\"integer\"}"}"#,
        ] {
            assert_eq!(read(body), Ok(Some(schema.clone())), "{body}");
        }
        assert_eq!(
            read(r#"{"response_format":{"type":"json_object"}}"#),
            Ok(Some(Constraint::JsonObject))
        );
        assert_eq!(read(r#"{"regex":"a+"}"#), Ok(Some(Constraint::Regex("a+".into()))));
        let choice = Constraint::Lark("start: \"a\\\"\" | \"b\"\n".into());
        assert_eq!(read(r#"{"guided_choice":["a\"","b"]}"#), Ok(Some(choice)));
        let any = Constraint::JsonSchema("{}".into());
        assert_eq!(read(r#"{"json_schema":{}}"#), Ok(Some(any)), "llama-server: any JSON");
        for nothing in [r#"{}"#, r#"{"response_format":{"type":"text"}}"#, r#"{"grammar":""}"#] {
            assert_eq!(read(nothing), Ok(None), "{nothing}");
        }
    }

    #[test]
    fn two_of_them_are_refused() {
        let error = read(r#"{"regex":"a","guided_choice":["a"]}"#).unwrap_err();
        assert_eq!(error, "guided_choice and regex cannot be given together");
        assert!(read(r#"{"guided_choice":[]}"#).unwrap_err().contains("1 to 256 strings"));
        for kind in ["regex", "grammar"] {
            let body = format!(r#"{{"response_format":{{"type":"{kind}","value":"a"}}}}"#);
            assert!(read(&body).unwrap_err().contains(&format!("of the type {kind} must have")));
        }
        assert!(read(r#"{"json_schema":7}"#).unwrap_err().contains("a JSON schema, an object"));
    }
}
