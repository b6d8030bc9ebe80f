//! A grammar as data: its rules and their expressions.

/// A grammar: its rules, indexed by number.
pub(super) struct Grammar {
    pub rules: Vec<Expr>,
    pub root: usize,
}

/// An expression: the set of texts that a rule, or a part of one, matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Expr {
    /// One character of these inclusive ranges, which ascend and do not touch.
    Chars(Vec<(char, char)>),
    /// This text, one character or longer.
    Text(String),
    /// The token with this id or, if negated, any other token.
    Token { id: u32, negated: bool },
    /// A rule, by its number.
    Rule(usize),
    /// Expressions one after another. The empty sequence is the empty text.
    Seq(Vec<Expr>),
    /// One of these alternatives; two or more.
    Any(Vec<Expr>),
    /// An expression, repeated at least and at most this many times.
    Repeat(Box<Expr>, u32, Option<u32>),
}

impl Expr {
    /// The empty text.
    pub const EMPTY: Expr = Expr::Seq(Vec::new());

    /// A sequence. A sequence of one expression is that expression.
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

    /// One of several alternatives; `options` has one or more.
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

    /// The expressions directly inside this one.
    pub fn parts(&self) -> &[Expr] {
        match self {
            Expr::Seq(parts) | Expr::Any(parts) => parts,
            Expr::Repeat(part, ..) => std::slice::from_ref(part),
            Expr::Chars(_) | Expr::Text(_) | Expr::Token { .. } | Expr::Rule(_) => &[],
        }
    }
}
