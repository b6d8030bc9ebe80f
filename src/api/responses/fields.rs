//! The parts of a request that its response needs.

use crate::api::stored::Items;

/// Members of an object, as JSON.
pub type Members = Vec<(String, Box<[u8]>)>;

/// The parts of a request that its response repeats, or that are kept with it.
#[derive(Debug, Default)]
pub struct ResponseFields {
    /// Members of the response's object.
    pub echo: Members,
    /// Whether the response is kept.
    pub store: bool,
    /// The input, as items. None if the response is not kept.
    pub items: Items,
}

impl ResponseFields {
    /// About the bytes of memory that they take.
    pub fn size(&self) -> usize {
        let echo = self.echo.iter();
        let echo = echo.map(|member| size_of_val(member) + member.0.len() + member.1.len());
        size_of::<Self>() + echo.sum::<usize>() + self.items.bytes()
    }
}
