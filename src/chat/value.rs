//! Turns JSON into the values that a chat template sees.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Object, ObjectRepr, Serde};
use serde_json::Value as Json;

use crate::types::digits::marked;

/// The template's form of a value.
pub fn template_value(value: &Json) -> Value {
    match value {
        Json::String(text) => match marked(text) {
            Some(number) => digits(number),
            None => Value::from(text.as_str()),
        },
        Json::Array(values) => values.iter().map(template_value).collect(),
        Json::Object(fields) => Value::from_pairs(
            fields.iter().map(|(name, value)| (name.as_str(), template_value(value))),
        ),
        Json::Null | Json::Bool(_) | Json::Number(_) => Value::from(Serde(value)),
    }
}

/// A number that neither a double nor 64 bits can hold.
fn digits(number: &str) -> Value {
    match number.parse::<i128>() {
        Ok(number) => Value::from(number),
        Err(_) => Value::from_object(Digits(number.to_owned())),
    }
}

/// A number as its text. Templates print it, and cannot calculate with it.
pub struct Digits(pub String);

impl Digits {
    /// Whether it is written as an integer.
    pub fn is_integer(&self) -> bool {
        !self.0.contains(['.', 'e', 'E'])
    }
}

impl Object for Digits {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

impl fmt::Debug for Digits {
    /// The text alone: templates print this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};

    use super::super::python;
    use super::*;
    use crate::types::digits::parse;

    fn rendered(template: &str, json: &str) -> String {
        let mut environment = Environment::new();
        python::install(&mut environment);
        let x = template_value(&parse(json).unwrap());
        environment.render_str(template, context! { x }).unwrap()
    }

    #[test]
    fn a_template_prints_every_digit() {
        let long = "-".to_owned() + &"1234567890".repeat(9);
        for number in
            ["1e400", "3.141592653589793238462643", "123456789012345678901234567890", &long]
        {
            for template in ["{{ x }}", "{{ x | tojson }}", "{{ x | string }}", "{{ '' ~ x }}"] {
                assert_eq!(rendered(template, number), number, "{template}");
            }
            let json = format!(r#"{{"a": [{number}, "b"], "c": null}}"#);
            assert_eq!(rendered("{{ x | tojson }}", &json), json);
            assert_eq!(rendered("{{ x.a }}", &json), format!("[{number}, 'b']"));
            let kinds = "{{ x is number }}{{ x is string }}{{ x is mapping }}{{ x is iterable }}";
            assert_eq!(rendered(kinds, number), "TrueFalseFalseFalse", "{number}");
            let is_integer = rendered("{{ x is integer and not x is float }}", number);
            assert_eq!(is_integer == "True", !number.contains(['.', 'e']), "{number}");
        }
    }

    #[test]
    fn values_are_those_of_json() {
        let json =
            r#"{"z": 1.0, "a": [true, null, -5, 18446744073709551615, "x"], "e": {}, "l": []}"#;
        assert_eq!(rendered("{{ x | tojson }}", json), json);
    }
}
