//! Turns JSON into the values that a chat template sees.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Object, ObjectRepr, Serde};
use serde_json::Value as Json;

use crate::types::digits::marked;

/// The template's form of a value that it prints.
pub fn template_value(value: &Json) -> Value {
    convert(value, digits)
}

/// The template's form of a variable, with which it may calculate: a number with a fraction is the
/// nearest double, if there is one.
pub fn template_variable(value: &Json) -> Value {
    convert(value, |number| match number.parse::<f64>() {
        Ok(double) if double.is_finite() && number.contains(['.', 'e', 'E']) => double.into(),
        _ => digits(number),
    })
}

/// `number` converts the numbers that neither a double nor 64 bits can hold.
fn convert(value: &Json, number: fn(&str) -> Value) -> Value {
    match value {
        Json::String(text) => match marked(text) {
            Some(digits) => number(digits),
            None => Value::from(text.as_str()),
        },
        Json::Array(values) => values.iter().map(|value| convert(value, number)).collect(),
        Json::Object(fields) => Value::from_pairs(
            fields.iter().map(|(name, value)| (name.as_str(), convert(value, number))),
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
    fn a_template_compares_its_variables() {
        let template = "{{ x < 0 }} {{ x == 1 }} {{ [x, 0] | max }} {{ x + 1 }}";
        let rendered = |json: &str| {
            let mut environment = Environment::new();
            python::install(&mut environment);
            let x = template_variable(&parse(json).unwrap());
            environment.render_str(template, context! { x }).unwrap()
        };
        assert_eq!(rendered("1.0000000000000000000"), "False True 1.0 2.0");
        assert_eq!(rendered("-0.50000000000000000001"), "True False 0 0.5");
        let long = "123456789012345678901234567890";
        assert_eq!(rendered(long), format!("False False {long} {}1", &long[..29]));
    }

    #[test]
    fn values_are_those_of_json() {
        let json =
            r#"{"z": 1.0, "a": [true, null, -5, 18446744073709551615, "x"], "e": {}, "l": []}"#;
        assert_eq!(rendered("{{ x | tojson }}", json), json);
    }
}
