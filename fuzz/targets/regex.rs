//! Regular expressions. What they allow matches in the view of the regex crate, too.
#![no_main]

use std::cell::RefCell;

use corelane::constraint::{Compiler, Constraint};

thread_local! {
    static COMPILER: RefCell<Compiler> = RefCell::new(corelane_fuzz::compiler());
}

corelane_fuzz::target!(|bytes: &[u8]| {
    let Ok(source) = std::str::from_utf8(bytes) else { return };
    let constraint = Constraint::Regex(source.to_owned());
    let compiled =
        COMPILER.with_borrow_mut(|compiler| corelane_fuzz::compile(compiler, &constraint));
    let Some(compiled) = compiled else { return };
    let Some(text) = corelane_fuzz::constrained_text(&compiled) else { return };
    if let Ok(regex) = regex::bytes::Regex::new(&format!(r"\A(?:{source})\z")) {
        assert!(regex.is_match(&text), "{:?}", String::from_utf8_lossy(&text));
    }
});
