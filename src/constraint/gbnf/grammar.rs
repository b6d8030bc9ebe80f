//! A grammar in memory: its rules and the expressions in them.

/// A grammar: its rules, by number.
pub(super) struct Grammar {
    pub rules: Vec<Expr>,
    pub root: usize,
}

/// The texts that a rule, or a part of one, matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Expr {
    /// One character of these ranges (inclusive, ascending, apart).
    Chars(Vec<(char, char)>),
    /// These characters, one at least.
    Text(String),
    /// The token with this id; or, negated, any other.
    Token { id: u32, negated: bool },
    /// A rule, by its number.
    Rule(usize),
    /// One after another. The empty text is a sequence of nothing.
    Seq(Vec<Expr>),
    /// Any one of them, two at least.
    Any(Vec<Expr>),
    /// So often at least, so often at most.
    Repeat(Box<Expr>, u32, Option<u32>),
}

impl Expr {
    /// The empty text.
    pub const EMPTY: Expr = Expr::Seq(Vec::new());

    /// A sequence; one of one expression is that expression.
    pub fn seq(items: impl IntoIterator<Item = Expr>) -> Expr {
        let mut flat = Vec::new();
        for item in items {
            match item {
                Expr::Seq(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        if flat.len() == 1 { flat.remove(0) } else { Expr::Seq(flat) }
    }

    /// Alternatives, of which there is one at least.
    pub fn any(options: impl IntoIterator<Item = Expr>) -> Expr {
        let mut flat = Vec::new();
        for option in options {
            match option {
                Expr::Any(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        assert!(!flat.is_empty(), "there is an alternative");
        if flat.len() == 1 { flat.remove(0) } else { Expr::Any(flat) }
    }

    pub fn repeat(self, least: u32, most: Option<u32>) -> Expr {
        match (least, most) {
            _ if self == Expr::EMPTY => self,
            (_, Some(0)) => Expr::EMPTY,
            (1, Some(1)) => self,
            _ => Expr::Repeat(Box::new(self), least, most),
        }
    }

    /// The expressions that it is made of.
    pub fn parts(&self) -> &[Expr] {
        match self {
            Expr::Seq(parts) | Expr::Any(parts) => parts,
            Expr::Repeat(part, ..) => std::slice::from_ref(part),
            Expr::Chars(_) | Expr::Text(_) | Expr::Token { .. } | Expr::Rule(_) => &[],
        }
    }
}
