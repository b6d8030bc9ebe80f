//! Conversations that are kept and continued. A control character (RS) separates requests: a body for
//! `/v1/responses`, after a digit that says which of the last kept responses it continues, if any, and
//! a line with the query of a page.
#![no_main]

use std::sync::Arc;

use corelane::api::asked::Request;
use corelane::api::responses::request::read;
use corelane::api::responses::stored::Stored;
use corelane::chat::conversation::Message;
use corelane::limits::{ID_BYTES_MAX, MESSAGES_MAX};
use serde_json::Value;

corelane_fuzz::target!(|bytes: &[u8]| {
    let mut kept: Vec<(Stored, Vec<Message>)> = Vec::new();
    for request in bytes.split(|byte| *byte == 0x1e) {
        let Some((which, rest)) = request.split_first() else { continue };
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let (query, body) =
            (String::from_utf8_lossy(&rest[..end]), &rest[(end + 1).min(rest.len())..]);
        let previous = kept.len().checked_sub(1 + usize::from(which.wrapping_sub(b'0')));
        kept.extend(answer(body, previous.map(|at| &kept[at])));
        let Some((stored, _)) = kept.last() else { continue };
        page(stored, &query);
    }
});

/// Keeps the response to a body, with its whole conversation.
fn answer(
    body: &[u8],
    previous: Option<&(Stored, Vec<Message>)>,
) -> Option<(Stored, Vec<Message>)> {
    let chat = read(&mut body.to_vec()).ok()?;
    let own = chat.conversation.messages.clone();
    let mut request = Request::Chat(Box::new(chat));
    assert!(request.previous().is_none_or(|id| id.len() <= ID_BYTES_MAX));
    let before = match (request.previous().is_some(), previous) {
        (true, Some((stored, messages))) => {
            request.continue_from(&stored.turn).ok()?;
            messages.as_slice()
        }
        (true, None) => return None, // 404
        (false, _) => &[],
    };
    assert!(request.bytes() >= request.text_bytes(), "what it takes in memory");
    let Request::Chat(mut chat) = request else { unreachable!("it is a chat") };
    chat.join_turns();
    let fields = chat.generation.reply.response.take()?;
    let (instructions, own) = own.split_at(fields.instructions);
    let whole = [before, own].concat();
    assert!(whole.len() <= MESSAGES_MAX);
    assert_eq!(chat.conversation.messages, [instructions, &whole].concat());
    let (items, turn) = (fields.items, Arc::new(fields.turn));
    let stored = Stored { id: "resp_1f".into(), body: Arc::default(), items, turn };
    fields.store.then_some((stored, whole))
}

/// A page of a response's items is JSON, and as long as was counted.
fn page(stored: &Stored, query: &str) {
    let Ok(page) = stored.page(query) else { return };
    let mut answer = Vec::new();
    stored.push_page(&mut answer, &page);
    assert_eq!(answer.len(), stored.page_bytes(&page));
    let answer: Value = serde_json::from_slice(&answer).expect("a page is JSON");
    let data = answer["data"].as_array().expect("a list");
    assert_eq!(answer["first_id"], data.first().map_or(Value::Null, |item| item["id"].clone()));
    assert_eq!(answer["last_id"], data.last().map_or(Value::Null, |item| item["id"].clone()));
}
