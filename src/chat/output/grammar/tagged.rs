//! Grammars of calls whose arguments stand between tags.

use serde_json::{Value, json};

use super::rules::{Grammar, literal};
use super::schema::{choices, is_any_text, json_of};
use crate::chat::output::offered::{Members, ToolSpec, Types};
use crate::chat::output::tags::Tags;

/// Adds the rules of the parameters of the tool with this index. Returns the text of a call after
/// its name's tag.
pub(super) fn arguments(
    grammar: &mut Grammar<'_>,
    tags: &'static Tags,
    index: usize,
    tool: &ToolSpec,
) -> String {
    let root = &tool.parameters;
    let members = Members::of(root, root);
    let mut body = Vec::new();
    for (j, (name, schema, is_required)) in members.listed.iter().enumerate() {
        if grammar.is_too_long() {
            break;
        }
        let values = values(grammar, tags, schema, root);
        let rule = format!("call_{index}_{j}");
        let after = grammar.text(tags.after_value);
        let key = format!("{}{name}", tags.members[0]);
        let ways = values.into_iter().map(|(before, value)| {
            format!("{} {value} {after}", grammar.text(&format!("{key}{before}")))
        });
        let ways: Vec<String> = ways.collect();
        grammar.rule(&rule, &ways.join(" | "));
        body.push(if *is_required { rule } else { format!("{rule}?") });
    }
    if members.listed.is_empty() && members.is_open {
        let rule = format!("call_{index}_any");
        let key = format!("{} {}", grammar.text(tags.members[0]), grammar.key());
        let ways: Vec<String> = values(grammar, tags, &json!({}), root)
            .into_iter()
            .map(|(before, value)| {
                let after = grammar.text(tags.after_value);
                format!("{key} {} {value} {after}", grammar.text(before))
            })
            .collect();
        grammar.rule(&rule, &ways.join(" | "));
        body.push(format!("{rule}*"));
    }
    body.push(grammar.text(tags.end));
    body.join(" ")
}

/// The ways to write a value: the text between the parameter's name and the value, and a grammar of
/// the value and its closing tag.
fn values(
    grammar: &mut Grammar<'_>,
    tags: &'static Tags,
    schema: &Value,
    root: &Value,
) -> Vec<(&'static str, String)> {
    let end = grammar.text(&format!("{}{}", tags.after_json, tags.value_end));
    let in_json = || (tags.before_json, format!("{} {end}", json_of(schema, root)));
    if let Some(texts) = choices(schema, root) {
        let texts: Vec<String> = texts.into_iter().map(literal).collect();
        return vec![(tags.before_text, format!("( {} ) {end}", texts.join(" | ")))];
    }
    if !is_any_text(schema, root) {
        return vec![in_json()];
    }
    let text = (tags.before_text, format!("( {} )", grammar.until_shared("value", tags.value_end)));
    let is_string = Types::of_schema(schema, root) == Types::STRING;
    if is_string || tags.before_text == tags.before_json {
        vec![text]
    } else {
        // The tags show whether a value is a string.
        vec![text, in_json()]
    }
}
