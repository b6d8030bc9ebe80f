//! Requests of every dialect. The first line is the path and the name of a chat template, the rest
//! the body: `/v1/chat/completions qwen3`. The name `rank` is a model that ranks.
#![no_main]

use std::cell::RefCell;
use std::collections::HashMap;

use corelane::chat::prompt::ChatModel;
use corelane::constraint::Compiler;
use corelane::prepare::{Embeds, ServedModel};
use corelane::types::Pooling;

macro_rules! templates {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../tests/templates/", $name, ".jinja")))),*]
    };
}

const TEMPLATES: [(&str, &str); 8] = templates!(
    "chatml" "command-r" "deepseek-r1" "gemma3" "gpt-oss" "llama3.1" "mistral" "qwen3"
);

thread_local! {
    static STATE: RefCell<(Compiler, HashMap<&'static str, ServedModel>)> =
        RefCell::new((corelane_fuzz::compiler(), models()));
}

fn models() -> HashMap<&'static str, ServedModel> {
    let model = |source| {
        let chat = ChatModel::new(source, "<s>", "</s>").expect("a template of the tests");
        ServedModel { chat: Some(chat), ..corelane_fuzz::served() }
    };
    let mut models: HashMap<_, _> = TEMPLATES.map(|(name, source)| (name, model(source))).into();
    let ranks = Some(Embeds::new(Pooling::Rank, 512));
    models.insert("rank", ServedModel { embeds: ranks, ..corelane_fuzz::served() });
    models
}

corelane_fuzz::target!(|bytes: &[u8]| {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let Ok(line) = std::str::from_utf8(&bytes[..end]) else { return };
    let (path, template) = line.split_once(' ').unwrap_or((line, "chatml"));
    STATE.with_borrow_mut(|(compiler, models)| {
        let Some(model) = models.get(template) else { return };
        corelane_fuzz::prepare(path, &bytes[end + 1..], model, compiler);
    });
});
