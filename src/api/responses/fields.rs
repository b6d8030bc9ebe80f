//! The parts of a request that its response needs.

use std::collections::HashMap;

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
    /// The tools in namespaces.
    pub namespaces: Namespaces,
}

/// The tools that came within namespaces. The model knows them by names that contain the
/// namespace, and the client gets both parts.
#[derive(Debug, Default)]
pub struct Namespaces(HashMap<String, (String, String)>);

impl Namespaces {
    /// The name by which the model knows a tool. A namespace may end with the underscores that
    /// separate it from the name.
    pub fn join(namespace: &str, name: &str) -> String {
        let is_apart = namespace.ends_with('_') || name.starts_with('_');
        format!("{namespace}{}{name}", if is_apart { "" } else { "__" })
    }

    /// Adds a tool, and returns the name by which the model knows it.
    pub fn add(&mut self, namespace: &str, name: &str) -> String {
        let joined = Self::join(namespace, name);
        self.0.insert(joined.clone(), (namespace.to_owned(), name.to_owned()));
        joined
    }

    /// The namespace and the name of a tool that the model calls.
    pub fn split<'a>(&'a self, joined: &'a str) -> (Option<&'a str>, &'a str) {
        match self.0.get(joined) {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, joined),
        }
    }

    fn bytes(&self) -> usize {
        let entry = |(joined, (namespace, name)): (&String, &(String, String))| {
            4 * size_of::<String>() + joined.len() + namespace.len() + name.len()
        };
        self.0.iter().map(entry).sum()
    }
}

impl ResponseFields {
    /// About the bytes of memory that they take.
    pub fn size(&self) -> usize {
        let echo = self.echo.iter();
        let echo = echo.map(|member| size_of_val(member) + member.0.len() + member.1.len());
        size_of::<Self>() + echo.sum::<usize>() + self.items.bytes() + self.namespaces.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_in_a_namespace_has_one_name_and_two_parts() {
        let mut namespaces = Namespaces::default();
        for (namespace, name, joined) in [
            ("mcp__browser", "open", "mcp__browser__open"),
            ("mcp__browser__", "close", "mcp__browser__close"),
            ("mcp__mail", "_search", "mcp__mail_search"),
        ] {
            assert_eq!(namespaces.add(namespace, name), joined);
            assert_eq!(namespaces.split(joined), (Some(namespace), name));
        }
        assert_eq!(namespaces.split("shell"), (None, "shell"));
    }
}
