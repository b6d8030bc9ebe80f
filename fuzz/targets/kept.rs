//! Conversations that are kept and continued. A control character (RS) separates requests: a body for
//! `/v1/responses`, after a digit that says which of the last kept responses it continues, if any, and
//! a line with the query of a page.
#![no_main]

use corelane::api::asked::Request;
use corelane::api::reply::{PromptFacts, ReplyContext, Summary};
use corelane::api::request::GenerationRequest;
use corelane::api::responses::request::read;
use corelane::api::stored::Stored;
use corelane::chat::conversation::{Message, Role};
use corelane::clock::Micros;
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
    let turns = chat.turns.take()?;
    let (instructions, own) = own.split_at(turns.instructions);
    let mut whole = [before, own].concat();
    assert!(whole.len() <= MESSAGES_MAX);
    assert_eq!(chat.conversation.messages, [instructions, &whole].concat());
    let GenerationRequest { make_reply, reply, .. } = chat.generation;
    let facts = PromptFacts { turn: turns.own, ..PromptFacts::default() };
    let context = ReplyContext {
        id: "resp_1f".into(),
        model: "fake".into(),
        created: 0,
        received: Micros(0),
        prompt_tokens: 1,
    };
    let mut reply = make_reply.make(reply, facts, &context);
    reply.push_end(Summary::default(), Micros(0), &mut Vec::new());
    whole.push(Message { role: Role::Assistant, ..Message::default() }); // which says nothing
    reply.take_stored().map(|stored| (*stored, whole))
}

/// A page of a response's items is JSON, and as long as was counted.
fn page(stored: &Stored, query: &str) {
    let Ok(range) = stored.range(query) else { return };
    let mut answer = Vec::new();
    stored.push_range(&mut answer, &range);
    assert_eq!(answer.len(), stored.range_bytes(&range));
    let answer: Value = serde_json::from_slice(&answer).expect("a page is JSON");
    let data = answer["data"].as_array().expect("a list");
    assert_eq!(answer["first_id"], data.first().map_or(Value::Null, |item| item["id"].clone()));
    assert_eq!(answer["last_id"], data.last().map_or(Value::Null, |item| item["id"].clone()));
}
