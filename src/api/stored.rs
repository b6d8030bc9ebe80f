//! A response that is kept, and the answers about it.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::turn::Turn;
use super::write::{List, Object, Written, push_json, write_json};
use crate::limits::ID_BYTES_MAX;
use crate::types::digits;

/// A response that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its id.
    pub id: String,
    /// The response as JSON. Shared, so that it can be sent after the response is forgotten.
    pub body: Arc<Vec<u8>>,
    /// Its input, as items.
    pub items: Items,
    /// The conversation up to its end, without instructions.
    pub turn: Arc<Turn>,
}

impl Stored {
    /// About the bytes of memory that it takes. Each response counts the whole conversation, though
    /// the responses of one conversation share it: any of them may be the last to need it.
    pub fn bytes(&self) -> usize {
        let own = size_of::<Self>() + 2 * self.id.len() + self.body.capacity();
        own + self.items.bytes() + self.turn.size.bytes
    }
}

/// 404: no such response is kept for this key.
pub fn not_found(id: &str) -> ApiError {
    if id.len() > ID_BYTES_MAX {
        let message = format!("there is no such response: its id has {} bytes", id.len());
        return ApiError::no_such(format!("{message}; an id has at most {ID_BYTES_MAX}"));
    }
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
    push_json(out, &json!({"id": id, "object": "response", "deleted": true}));
}

/// Counts the bytes that are written.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Items as they came, in one block of memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Items {
    /// The name of each member of each item, without its id and type, and its value as JSON.
    text: String,
    /// The ends of each member's name and value in the block.
    members: Vec<(usize, usize)>,
    places: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq)]
struct Place {
    /// The end of its members.
    end: usize,
    kind: &'static str,
    id: Option<Box<str>>,
}

impl Items {
    /// Adds an item of a type.
    ///
    /// # Errors
    /// 400 if its id is too long.
    pub fn push(&mut self, item: &Map<String, Value>, kind: &'static str) -> Result<(), ApiError> {
        let id = item.get("id").and_then(Value::as_str).filter(|id| digits::marked(id).is_none());
        let id = id.map(|id| checked_id("id", id)).transpose()?;
        let others = item.iter().filter(|(name, _)| !["id", "type"].contains(&name.as_str()));
        for (name, value) in others {
            self.text.push_str(name);
            let end_of_name = self.text.len();
            self.text.push_str(&digits::spelled(value.to_string()));
            self.members.push((end_of_name, self.text.len()));
        }
        let end = self.members.len();
        self.places.push(Place { end, kind, id: id.map(Into::into) });
        Ok(())
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The members of an item besides its id and type.
    fn members(&self, index: usize) -> impl Iterator<Item = (&str, Written<'_>)> + Clone {
        let begin = index.checked_sub(1).map_or(0, |before| self.places[before].end);
        (begin..self.places[index].end).map(|member| {
            let (end_of_name, end) = self.members[member];
            let begin = member.checked_sub(1).map_or(0, |before| self.members[before].1);
            let value = &self.text.as_bytes()[end_of_name..end];
            (&self.text[begin..end_of_name], Written(value))
        })
    }

    /// About the bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        let ids = self.places.iter().filter_map(|place| place.id.as_ref()).map(|id| id.len());
        let places = size_of_val(self.places.as_slice()) + size_of_val(self.members.as_slice());
        self.text.capacity() + places + ids.sum::<usize>()
    }
}

/// An id that is not too long.
///
/// # Errors
/// 400 with both lengths.
pub fn checked_id<'a>(name: &'static str, id: &'a str) -> Result<&'a str, ApiError> {
    if id.len() <= ID_BYTES_MAX {
        return Ok(id);
    }
    let message = format!("{name} has {} bytes; an id has at most {ID_BYTES_MAX}", id.len());
    Err(ApiError::field(name, message))
}

/// A range of a response's items, in the order of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemRange {
    items: Range<usize>,
    descending: bool,
    has_more: bool,
}

impl Stored {
    /// The range of items that `query` asks for with `limit`, `order` and `after`.
    ///
    /// # Errors
    /// 400 for a query of another form.
    pub fn range(&self, query: &str) -> Result<ItemRange, ApiError> {
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
        let count = self.items.len();
        let after = given("after").map(|after| {
            self.place_of(after).ok_or_else(|| {
                let message = format!("after names {after:.64?}, which is not among the items");
                ApiError::field("after", message)
            })
        });
        let items = match (after.transpose()?, descending) {
            (None, _) => 0..count,
            (Some(place), false) => place + 1..count,
            (Some(place), true) => 0..place,
        };
        let has_more = items.len() > limit;
        let items = match descending {
            false => items.start..items.end.min(items.start + limit),
            true => items.end.saturating_sub(limit).max(items.start)..items.end,
        };
        Ok(ItemRange { items, descending, has_more })
    }

    /// The bytes of a range's answer. Takes little time, however long the items are.
    pub fn range_bytes(&self, range: &ItemRange) -> usize {
        let mut length = Length(0);
        self.write_range(&mut length, range).expect("a number takes all");
        length.0
    }

    /// Writes a range of items.
    pub fn push_range(&self, out: &mut Vec<u8>, range: &ItemRange) {
        self.write_range(out, range).expect("memory");
    }

    fn write_range(&self, out: impl Write, range: &ItemRange) -> Result<(), serde_json::Error> {
        #[derive(Serialize)]
        struct Shown<'a, D, I> {
            object: &'a str,
            data: D,
            first_id: Option<&'a I>,
            last_id: Option<&'a I>,
            has_more: bool,
        }
        #[derive(Serialize)]
        struct Item<'a, I, M> {
            id: I,
            r#type: &'a str,
            #[serde(flatten)]
            members: M,
        }
        let ItemRange { items, descending, has_more } = range;
        let order =
            items.clone().map(|n| if *descending { items.start + items.end - 1 - n } else { n });
        let item = |index| Item {
            id: self.item_id(index),
            r#type: self.items.places[index].kind,
            members: Object(self.items.members(index)),
        };
        let (first, last) = (order.clone().next(), order.clone().next_back());
        let (first, last) = (first.map(|n| self.item_id(n)), last.map(|n| self.item_id(n)));
        let shown = Shown {
            object: "list",
            data: List(order.map(item)),
            first_id: first.as_ref(),
            last_id: last.as_ref(),
            has_more: *has_more,
        };
        write_json(out, &shown)
    }

    /// The id of an item: its own, or one made of the response's.
    fn item_id(&self, index: usize) -> String {
        let id = self.items.places[index].id.as_deref().map(str::to_owned);
        id.unwrap_or_else(|| format!("{}{index}", self.item_prefix()))
    }

    /// The place of the item with this id.
    fn place_of(&self, id: &str) -> Option<usize> {
        let made = id.strip_prefix(&self.item_prefix()).and_then(|index| index.parse().ok());
        let made = made.filter(|index| *index < self.items.len() && self.item_id(*index) == id);
        made.or_else(|| self.items.places.iter().position(|place| place.id.as_deref() == Some(id)))
    }

    fn item_prefix(&self) -> String {
        format!("item_{}_", self.id.trim_start_matches("resp_"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_pages() {
        let mut items = Items::default();
        for n in 0..5 {
            let item = json!({"role": "user", "content": n.to_string()});
            items.push(item.as_object().unwrap(), "message").unwrap();
        }
        let stored =
            Stored { id: "resp_7".into(), body: Arc::default(), items, turn: Arc::default() };
        let range = |query: &str| {
            let mut out = Vec::new();
            let range = stored.range(query).map_err(|error| error.message)?;
            stored.push_range(&mut out, &range);
            assert_eq!(out.len(), stored.range_bytes(&range));
            Ok::<Value, String>(serde_json::from_slice(&out).unwrap())
        };
        let contents = |range: &Value| -> String {
            let data = range["data"].as_array().unwrap().iter();
            data.map(|item| item["content"].as_str().unwrap()).collect()
        };
        let whole = range("").unwrap();
        assert_eq!(contents(&whole), "43210");
        assert_eq!((&whole["first_id"], &whole["has_more"]), (&"item_7_4".into(), &false.into()));
        assert_eq!(whole["data"][0]["type"], "message");
        let first = range("order=asc&limit=2").unwrap();
        assert_eq!((contents(&first).as_str(), &first["has_more"]), ("01", &true.into()));
        let after = first["last_id"].as_str().unwrap();
        assert_eq!(after, "item_7_1");
        assert_eq!(contents(&range(&format!("order=asc&after={after}")).unwrap()), "234");
        assert_eq!(contents(&range("limit=2&after=item_7_3").unwrap()), "21");
        let none = range("after=item_7_0").unwrap();
        assert_eq!((contents(&none).as_str(), &none["first_id"]), ("", &Value::Null));
        assert!(range("limit=0").unwrap_err().contains("from 1 to 100"));
        assert!(range("order=up").unwrap_err().contains("asc or desc"));
        assert!(range("after=x").unwrap_err().contains("not among the items"));
    }

    #[test]
    fn an_item_keeps_its_own_id_and_its_other_members() {
        let mut items = Items::default();
        let item = json!({"id": "msg_1", "type": "reasoning", "summary": [], "x": null});
        items.push(item.as_object().unwrap(), "reasoning").unwrap();
        let stored =
            Stored { id: "resp_7".into(), body: Arc::default(), items, turn: Arc::default() };
        let mut out = Vec::new();
        stored.push_range(&mut out, &stored.range("").unwrap());
        let range: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(range["data"][0], item);
    }
}
