//! A response that is kept, and the answers about it.

use serde_json::{Value, json};

use super::fields::{json_bytes, messages_bytes};
use crate::api::error::ApiError;
use crate::chat::conversation::Message;

/// A response that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its id.
    pub id: String,
    /// The response as JSON.
    pub body: Vec<u8>,
    /// Its input, as items.
    pub input: Vec<Value>,
    /// The conversation up to its end, without instructions.
    pub messages: Vec<Message>,
}

impl Stored {
    /// About the bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let input: usize = self.input.iter().map(json_bytes).sum();
        size_of::<Self>() + self.id.len() + self.body.len() + input + messages_bytes(&self.messages)
    }
}

/// 404: no such response is kept for this key.
pub fn not_found(id: &str) -> ApiError {
    ApiError::no_such(format!(
        "there is no response {id:?}; it was never kept, or it had to make room for newer ones"
    ))
}

/// The answer to a request to cancel: only what runs in the background could be.
pub fn not_cancellable(id: &str) -> ApiError {
    ApiError::invalid(format!(
        "the response {id:?} has ended; to stop one that is being generated, close its connection"
    ))
}

/// Writes the answer to `DELETE`.
pub fn push_deleted(out: &mut Vec<u8>, id: &str) {
    push(out, &json!({"id": id, "object": "response", "deleted": true}));
}

/// Writes the input's items, as `query` asks for them: `limit`, `order` and `after`.
///
/// # Errors
/// 400 for a query of another form.
pub fn push_items(out: &mut Vec<u8>, stored: &Stored, query: &str) -> Result<(), ApiError> {
    let given = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let limit = match given("limit").map(str::parse::<usize>) {
        None => 20,
        Some(Ok(limit @ 1..=100)) => limit,
        Some(_) => {
            return Err(ApiError::field("limit", "limit must be a whole number from 1 to 100"));
        }
    };
    let descending = match given("order") {
        None | Some("desc") => true,
        Some("asc") => false,
        Some(_) => return Err(ApiError::field("order", "order must be asc or desc")),
    };
    let hex = stored.id.trim_start_matches("resp_");
    let with_id = |(index, item): (usize, &Value)| {
        let mut item = item.clone();
        if let Value::Object(fields) = &mut item {
            fields.entry("id").or_insert_with(|| format!("item_{hex}_{index}").into());
            fields.entry("type").or_insert_with(|| "message".into());
        }
        item
    };
    let mut items: Vec<Value> = stored.input.iter().enumerate().map(with_id).collect();
    if descending {
        items.reverse();
    }
    if let Some(after) = given("after") {
        let place = items.iter().position(|item| item["id"] == after);
        let place = place.ok_or_else(|| {
            ApiError::field("after", format!("after names {after:?}, which is not among the items"))
        })?;
        items.drain(..=place);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let (first, last) = (id(items.first()), id(items.last()));
    let list = json!({"object": "list", "data": items, "first_id": first, "last_id": last,
        "has_more": has_more});
    push(out, &list);
    Ok(())
}

fn push(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(out, value).expect("memory");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_pages() {
        let item = |n: usize| json!({"role": "user", "content": n.to_string()});
        let input = (0..5).map(item).collect();
        let stored = Stored { id: "resp_7".into(), body: Vec::new(), input, messages: Vec::new() };
        let page = |query: &str| {
            let mut out = Vec::new();
            push_items(&mut out, &stored, query).map_err(|error| error.message)?;
            Ok::<Value, String>(serde_json::from_slice(&out).unwrap())
        };
        let contents = |page: &Value| -> String {
            let data = page["data"].as_array().unwrap().iter();
            data.map(|item| item["content"].as_str().unwrap()).collect()
        };
        assert_eq!(contents(&page("").unwrap()), "43210");
        let first = page("order=asc&limit=2").unwrap();
        assert_eq!((contents(&first).as_str(), &first["has_more"]), ("01", &true.into()));
        let after = first["last_id"].as_str().unwrap();
        assert_eq!(after, "item_7_1");
        assert_eq!(contents(&page(&format!("order=asc&after={after}")).unwrap()), "234");
        assert!(page("limit=0").unwrap_err().contains("from 1 to 100"));
        assert!(page("order=up").unwrap_err().contains("asc or desc"));
        assert!(page("after=x").unwrap_err().contains("not among the items"));
    }
}
