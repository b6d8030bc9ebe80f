//! Turns a word into a Glushkov automaton, which has a state for each character of the expression.
//! The automata show which words can run on into one another.
//!
//! Like the lexer, an automaton reads bytes: the first byte of a character's UTF-8 stands for the
//! character. It counts repetitions only as none, one or many. Both simplifications can report a
//! collision that does not exist, but never miss one.

use super::grammar::{Expr, Grammar};
use crate::constraint::error::ConstraintError;
use crate::limits::GBNF_WORK_MAX;

/// A set of first bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bytes([u64; 4]);

impl Bytes {
    fn of(ranges: &[(char, char)]) -> Self {
        let mut bytes = Self::default();
        for (first, last) in ranges {
            // A larger character never has a smaller first byte.
            for byte in first_byte(*first)..=first_byte(*last) {
                bytes.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
            }
        }
        bytes
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| a & b != 0)
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a |= b;
        }
    }
}

fn first_byte(c: char) -> u8 {
    let mut utf8 = [0; 4];
    c.encode_utf8(&mut utf8);
    utf8[0]
}

/// The steps left of [`GBNF_WORK_MAX`].
pub(super) struct Work(usize);

impl Work {
    pub(super) fn new() -> Self {
        Self(GBNF_WORK_MAX)
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), ConstraintError> {
        match self.0.checked_sub(steps) {
            Some(left) => {
                self.0 = left;
                Ok(())
            }
            None => Err(ConstraintError(format!(
                "the grammar is too complex: it takes more than {GBNF_WORK_MAX} steps to find its \
                 words"
            ))),
        }
    }
}

/// The automaton of a word.
#[derive(Default)]
pub(super) struct Automaton {
    states: Vec<State>,
    first: Vec<usize>,
    /// Whether the word may be empty.
    pub(super) nullable: bool,
}

#[derive(Clone, Default)]
struct State {
    /// The bytes that lead into this state.
    bytes: Bytes,
    next: Vec<usize>,
    /// Whether the word may end here.
    is_last: bool,
}

/// A part of an automaton, with its first and last states.
struct Part {
    first: Vec<usize>,
    last: Vec<usize>,
    nullable: bool,
}

impl Automaton {
    /// The automaton of an expression that has no recursion and no tokens.
    pub(super) fn of(
        expr: &Expr,
        grammar: &Grammar,
        work: &mut Work,
    ) -> Result<Self, ConstraintError> {
        let mut automaton = Self::default();
        let part = automaton.add(expr, grammar, work)?;
        for state in part.last {
            automaton.states[state].is_last = true;
        }
        automaton.first = part.first;
        automaton.nullable = part.nullable;
        Ok(automaton)
    }

    /// The bytes with which the word may start.
    pub(super) fn first_bytes(&self) -> Bytes {
        let mut bytes = Bytes::default();
        for state in &self.first {
            bytes.add(&self.states[*state].bytes);
        }
        bytes
    }

    fn add(
        &mut self,
        expr: &Expr,
        grammar: &Grammar,
        work: &mut Work,
    ) -> Result<Part, ConstraintError> {
        work.spend(1)?;
        match expr {
            Expr::Chars(ranges) => self.state(Bytes::of(ranges), work),
            Expr::Text(text) => {
                let mut whole = Part::empty();
                for c in text.chars() {
                    let next = self.state(Bytes::of(&[(c, c)]), work)?;
                    whole = self.then(whole, next, work)?;
                }
                Ok(whole)
            }
            Expr::Rule(number) => self.add(&grammar.rules[*number], grammar, work),
            Expr::Seq(items) => {
                let mut whole = Part::empty();
                for item in items {
                    let next = self.add(item, grammar, work)?;
                    whole = self.then(whole, next, work)?;
                }
                Ok(whole)
            }
            Expr::Any(options) => {
                let mut whole = Part { first: Vec::new(), last: Vec::new(), nullable: false };
                for option in options {
                    let option = self.add(option, grammar, work)?;
                    whole.first.extend(option.first);
                    whole.last.extend(option.last);
                    whole.nullable |= option.nullable;
                }
                Ok(whole)
            }
            Expr::Repeat(inner, least, most) => {
                let mut inner = self.add(inner, grammar, work)?;
                if *most != Some(1) {
                    self.connect(&inner.last, &inner.first, work)?;
                }
                inner.nullable |= *least == 0;
                Ok(inner)
            }
            Expr::Token { .. } => unreachable!("a word has no tokens in it"),
        }
    }

    fn state(&mut self, bytes: Bytes, work: &mut Work) -> Result<Part, ConstraintError> {
        work.spend(1)?;
        let state = self.states.len();
        self.states.push(State { bytes, ..State::default() });
        Ok(Part { first: vec![state], last: vec![state], nullable: false })
    }

    fn then(&mut self, a: Part, b: Part, work: &mut Work) -> Result<Part, ConstraintError> {
        self.connect(&a.last, &b.first, work)?;
        let mut whole = Part { first: a.first, last: b.last, nullable: a.nullable && b.nullable };
        if a.nullable {
            whole.first.extend(b.first);
        }
        if b.nullable {
            whole.last.extend(a.last);
        }
        Ok(whole)
    }

    fn connect(
        &mut self,
        from: &[usize],
        to: &[usize],
        work: &mut Work,
    ) -> Result<(), ConstraintError> {
        work.spend(from.len() * to.len())?;
        for state in from {
            self.states[*state].next.extend(to);
        }
        Ok(())
    }
}

impl Part {
    fn empty() -> Self {
        Self { first: Vec::new(), last: Vec::new(), nullable: true }
    }
}

/// The conflicts of two words that the lexer looks for at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meeting {
    /// Both words match some text.
    pub(super) same: bool,
    /// At an end of the first word, a byte that may follow it also continues the second word.
    pub(super) second_runs_on: bool,
    /// At an end of the second word, a byte that may follow it also continues the first word.
    pub(super) first_runs_on: bool,
}

/// Follows both automata over all common texts. `after_a` and `after_b` are the bytes that may
/// follow each word.
pub(super) fn meet(
    (a, after_a): (&Automaton, &Bytes),
    (b, after_b): (&Automaton, &Bytes),
    work: &mut Work,
) -> Result<Meeting, ConstraintError> {
    let mut meeting = Meeting::default();
    work.spend(a.states.len() * b.states.len() / 64 + 1)?;
    let mut seen = vec![false; a.states.len() * b.states.len()];
    let mut todo = Vec::new();
    let mut reach = |todo: &mut Vec<(usize, usize)>, from_a: &[usize], from_b: &[usize]| {
        for p in from_a {
            for q in from_b {
                let seen = &mut seen[p * b.states.len() + q];
                if !*seen && a.states[*p].bytes.meets(&b.states[*q].bytes) {
                    *seen = true;
                    todo.push((*p, *q));
                }
            }
        }
    };
    work.spend(a.first.len() * b.first.len())?;
    reach(&mut todo, &a.first, &b.first);
    while let Some((p, q)) = todo.pop() {
        let (p, q) = (&a.states[p], &b.states[q]);
        work.spend(1 + p.next.len() * q.next.len() + p.next.len() + q.next.len())?;
        let runs_on = |state: &State, automaton: &Automaton, after: &Bytes| {
            state.next.iter().any(|next| automaton.states[*next].bytes.meets(after))
        };
        meeting.same |= p.is_last && q.is_last;
        meeting.second_runs_on |= p.is_last && runs_on(q, b, after_a);
        meeting.first_runs_on |= q.is_last && runs_on(p, a, after_b);
        reach(&mut todo, &p.next, &q.next);
    }
    Ok(meeting)
}
