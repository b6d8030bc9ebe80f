//! JSON schemas made at random.

use serde_json::{Map, Value, json};

use super::Random;

/// Schemas made at random, of everything that is supported.
pub struct Schemas<'a>(pub &'a mut Random);

impl Schemas<'_> {
    /// One that is a whole, with definitions.
    pub fn whole(&mut self) -> Value {
        let mut schema = self.any(3);
        let leaf = self.leaf();
        let definitions = json!({
            "leaf": leaf,
            "list": {"type": "object", "properties": {"value": self.any(1), "next": {
                "anyOf": [{"type": "null"}, {"$ref": "#/$defs/list"}]}},
                "required": ["value"], "additionalProperties": false},
            "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
        });
        schema["$defs"] = definitions;
        schema
    }

    fn any(&mut self, depth: usize) -> Value {
        if depth == 0 {
            return self.leaf();
        }
        match self.0.within(0, 5) {
            0 => self.array(depth),
            1 | 2 => self.object(depth),
            3 => {
                let options: Vec<Value> =
                    (0..self.0.within(2, 3)).map(|_| self.any(depth - 1)).collect();
                json!({"anyOf": options})
            }
            4 => {
                let names = ["leaf", "list", "tree"];
                json!({"$ref": format!("#/$defs/{}", names[self.0.within(0, 2)])})
            }
            _ => self.leaf(),
        }
    }

    fn leaf(&mut self) -> Value {
        let low = self.0.within(0, 2000) as i64 - 1000;
        let high = low + self.0.within(0, 1500) as i64;
        match self.0.within(0, 9) {
            0 => json!({"type": "string"}),
            1 => {
                let least = self.0.within(0, 5);
                let most = least + self.0.within(0, 9);
                json!({"type": "string", "minLength": least, "maxLength": most})
            }
            2 => {
                let patterns =
                    ["^[a-z]{2,5}$", r"^\d{3}-\d{4}$", "^(foo|bar)+$", "[A-Z]", r"^[^\s\\]{1,8}$"];
                json!({"type": "string", "pattern": patterns[self.0.within(0, 4)]})
            }
            3 => {
                let formats = ["date", "time", "date-time", "uuid", "ipv4", "ipv6"];
                json!({"type": "string", "format": formats[self.0.within(0, 5)]})
            }
            4 => json!({"type": "integer", "minimum": low, "maximum": high}),
            5 => json!({"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": high + 2}),
            6 => {
                let (low, high) = (low as f64 / 4.0, high as f64 / 2.0 + 600.0);
                json!({"type": "number", "minimum": low, "maximum": high})
            }
            7 => json!({"type": (["boolean", "null"][self.0.within(0, 1)])}),
            8 => {
                let values = [json!("x"), json!("xy"), json!(low), json!(null), json!([1, "a"])];
                json!({"enum": values[..self.0.within(1, 5)]})
            }
            _ => json!({"const": {"k": low, "l": ["é", true]}}),
        }
    }

    fn array(&mut self, depth: usize) -> Value {
        let least = self.0.within(0, 2);
        let mut schema = json!({"type": "array", "items": self.any(depth - 1), "minItems": least,
            "maxItems": least + self.0.within(0, 2)});
        if self.0.one_in(3) {
            let prefix: Vec<Value> =
                (0..self.0.within(1, 2)).map(|_| self.any(depth - 1)).collect();
            schema["prefixItems"] = Value::from(prefix);
        }
        schema
    }

    fn object(&mut self, depth: usize) -> Value {
        let names = ["a", "name", "two words", "é\"\\", "a/b~c"];
        let mut properties = Map::new();
        let mut required = Vec::new();
        for name in &names[..self.0.within(0, 5)] {
            properties.insert((*name).into(), self.any(depth - 1));
            if self.0.one_in(2) {
                required.push(*name);
            }
        }
        let additional = match self.0.within(0, 3) {
            0 => json!(true),
            1 => self.leaf(),
            _ => json!(false),
        };
        json!({"type": "object", "properties": properties, "required": required,
            "additionalProperties": additional})
    }
}
