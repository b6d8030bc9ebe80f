//! OpenAI's Responses API, `/v1/responses`.
//!
//! A response is kept in memory unless the request says otherwise, so that it can be read again and
//! the next request can continue it. The server's store keeps [`Stored`](super::stored::Stored); this
//! module has no state.

pub mod fields;
pub mod items;
pub mod reply;
pub mod request;
