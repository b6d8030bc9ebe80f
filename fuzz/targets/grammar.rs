//! Grammars in GBNF. What they allow can be written.
#![no_main]

use std::cell::RefCell;

use corelane::constraint::{Compiler, Constraint};

thread_local! {
    static COMPILER: RefCell<Compiler> = RefCell::new(corelane_fuzz::compiler());
}

corelane_fuzz::target!(|bytes: &[u8]| {
    let Ok(source) = std::str::from_utf8(bytes) else { return };
    let constraint = Constraint::Gbnf(source.to_owned());
    let compiled =
        COMPILER.with_borrow_mut(|compiler| corelane_fuzz::compile(compiler, &constraint));
    let Some(compiled) = compiled else { return };
    corelane_fuzz::constrained_text(&compiled);
});
