//! JSON schemas. What they allow is JSON.
#![no_main]

use std::cell::RefCell;

use corelane::constraint::{Compiler, Constraint};

thread_local! {
    static COMPILER: RefCell<Compiler> = RefCell::new(corelane_fuzz::compiler());
}

corelane_fuzz::target!(|bytes: &[u8]| {
    let Ok(source) = std::str::from_utf8(bytes) else { return };
    let constraint = Constraint::JsonSchema(source.to_owned());
    let compiled =
        COMPILER.with_borrow_mut(|compiler| corelane_fuzz::compile(compiler, &constraint));
    let Some(compiled) = compiled else { return };
    if let Some(text) = corelane_fuzz::constrained_text(&compiled) {
        let json = serde_json::from_slice::<serde_json::Value>(&text);
        // JSON has no largest number, and f64 has one.
        let is_json =
            json.as_ref().map_or_else(|e| e.to_string().contains("out of range"), |_| true);
        assert!(is_json, "{json:?}: {:?}", String::from_utf8_lossy(&text));
    }
});
