//! Chat templates, as they stand in a model's file. The source may be followed by a NUL and the
//! body of a chat.
#![no_main]

use std::cell::RefCell;

use corelane::chat::prompt::ChatModel;
use corelane::constraint::Compiler;
use corelane::prepare::ServedModel;

const CHAT: &str = r#"{"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"},
    {"role":"assistant","content":"c"},{"role":"user","content":"d"}]}"#;

thread_local! {
    static COMPILER: RefCell<Compiler> = RefCell::new(corelane_fuzz::compiler());
}

corelane_fuzz::target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (source, body) = text.split_once('\0').unwrap_or((text, CHAT));
    let Ok(chat) = ChatModel::new(source, "<s>", "</s>") else { return };
    let model = ServedModel { chat: Some(chat), ..corelane_fuzz::served() };
    COMPILER.with_borrow_mut(|compiler| {
        corelane_fuzz::prepare("/v1/chat/completions", body.as_bytes(), &model, compiler);
    });
});
