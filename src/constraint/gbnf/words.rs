//! Chooses the words of a grammar: the parts that the lexer reads as one lexeme.
//!
//! The lexer takes the longest of the words that may come next. That is correct only if no such
//! word can continue with text that may also follow another word or itself: it would run on. So
//! this starts with the largest parts without recursion, and splits those that can run on, until
//! none can. A single character never runs on.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use llguidance::toktrie::SimpleVob;

use super::automaton::{Automaton, Bytes, Work, meet};
use super::grammar::{Expr, Grammar};
use crate::constraint::error::ConstraintError;

/// A grammar of words.
pub(super) struct Worded {
    pub(super) words: Vec<Expr>,
    /// The remaining rules, by number.
    pub(super) rules: BTreeMap<usize, Node>,
}

/// A rule, or a part of one, after its words were chosen.
pub(super) enum Node {
    Word(usize),
    Token { id: u32, negated: bool },
    Rule(usize),
    Seq(Vec<Node>),
    Any(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

/// Chooses the words of a grammar.
pub(super) fn choose(grammar: &Grammar) -> Result<Worded, ConstraintError> {
    let regular = regular_rules(grammar);
    let mut broken = HashSet::new();
    let mut work = Work::new();
    loop {
        let worded = Wording::new(grammar, &regular, &broken).run();
        if matches!(worded.rules[&grammar.root], Node::Word(_)) {
            return Ok(worded); // a single word with nothing after it
        }
        let run_on = Neighbours::new(grammar, &worded, &mut work)?.run_on(&mut work)?;
        if run_on.is_empty() {
            return Ok(worded);
        }
        broken.extend(run_on.into_iter().map(|word| worded.words[word].clone()));
    }
}

/// Rules that have no recursion and no tokens, including in the rules that they use.
fn regular_rules(grammar: &Grammar) -> Vec<bool> {
    let mut regular = vec![false; grammar.rules.len()];
    loop {
        let mut changed = false;
        for (number, body) in grammar.rules.iter().enumerate() {
            if !regular[number] && is_regular(body, &regular) {
                regular[number] = true;
                changed = true;
            }
        }
        if !changed {
            return regular;
        }
    }
}

fn is_regular(expr: &Expr, rules: &[bool]) -> bool {
    match expr {
        Expr::Token { .. } => false,
        Expr::Rule(number) => rules[*number],
        _ => expr.parts().iter().all(|part| is_regular(part, rules)),
    }
}

/// Replaces expressions by words, as large as allowed.
struct Wording<'a> {
    grammar: &'a Grammar,
    regular: &'a [bool],
    /// Expressions that must be split.
    broken: &'a HashSet<Expr>,
    words: Vec<Expr>,
    numbers: HashMap<Expr, usize>,
    /// Rules not yet done.
    todo: Vec<usize>,
}

impl<'a> Wording<'a> {
    fn new(grammar: &'a Grammar, regular: &'a [bool], broken: &'a HashSet<Expr>) -> Self {
        let todo = vec![grammar.root];
        Self { grammar, regular, broken, words: Vec::new(), numbers: HashMap::new(), todo }
    }

    fn run(mut self) -> Worded {
        let mut rules = BTreeMap::new();
        while let Some(number) = self.todo.pop() {
            if let Entry::Vacant(rule) = rules.entry(number) {
                rule.insert(self.node(&self.grammar.rules[number]));
            }
        }
        Worded { words: self.words, rules }
    }

    fn can_be_word(&self, expr: &Expr) -> bool {
        is_regular(expr, self.regular) && !self.broken.contains(expr)
    }

    fn word(&mut self, expr: &Expr) -> Node {
        if *expr == Expr::EMPTY {
            return Node::Seq(Vec::new());
        }
        if let Some(number) = self.numbers.get(expr) {
            return Node::Word(*number);
        }
        let number = self.words.len();
        self.words.push(expr.clone());
        self.numbers.insert(expr.clone(), number);
        Node::Word(number)
    }

    fn node(&mut self, expr: &Expr) -> Node {
        if self.can_be_word(expr) {
            return self.word(expr);
        }
        match expr {
            Expr::Chars(_) => unreachable!("a character is never broken up"),
            Expr::Text(text) => {
                let one = |c| Expr::Chars(vec![(c, c)]);
                Node::Seq(text.chars().map(|c| self.word(&one(c))).collect())
            }
            Expr::Token { id, negated } => Node::Token { id: *id, negated: *negated },
            Expr::Rule(number) => {
                self.todo.push(*number);
                Node::Rule(*number)
            }
            Expr::Seq(items) => self.sequence(items),
            Expr::Any(options) => self.alternatives(options),
            Expr::Repeat(inner, least, most) => self.repetition(inner, *least, *most),
        }
    }

    /// Joins neighbours into one word where allowed.
    fn sequence(&mut self, items: &[Expr]) -> Node {
        let mut nodes = Vec::new();
        let mut rest = items;
        while !rest.is_empty() {
            let run = rest.iter().take_while(|item| is_regular(item, self.regular)).count();
            let (run, others) = rest.split_at(run.max(1));
            rest = others;
            let whole = Expr::seq(run.to_vec());
            if self.can_be_word(&whole) {
                nodes.push(self.word(&whole));
            } else {
                nodes.extend(run.iter().map(|item| self.node(item)));
            }
        }
        Node::Seq(nodes)
    }

    /// Joins alternatives that may be words into one word.
    fn alternatives(&mut self, options: &[Expr]) -> Node {
        let (words, others) = self.split(options);
        let mut nodes = Vec::new();
        if !words.is_empty() {
            let whole = Expr::any(words.clone());
            if self.can_be_word(&whole) {
                nodes.push(self.word(&whole));
            } else {
                nodes.extend(words.iter().map(|option| self.node(option)));
            }
        }
        nodes.extend(others.iter().map(|option| self.node(option)));
        Node::Any(nodes)
    }

    /// In `(word | other)*`, a word may follow itself and run on. `word* (other word*)*` has the
    /// same texts, and no word follows itself.
    fn repetition(&mut self, inner: &Expr, least: u32, most: Option<u32>) -> Node {
        if let (Expr::Any(options), 0 | 1, None) = (inner, least, most) {
            let (words, others) = self.split(options);
            if !words.is_empty() && !others.is_empty() {
                let word = Expr::any(words);
                let words = word.clone().repeat(0, None);
                let turn = Expr::seq([Expr::any(others), words.clone()]);
                let begin = match least {
                    0 => words,
                    _ => Expr::any([word.repeat(1, None), turn.clone()]),
                };
                return self.node(&Expr::seq([begin, turn.repeat(0, None)]));
            }
        }
        Node::Repeat(Box::new(self.node(inner)), least, most)
    }

    /// Separates alternatives without recursion from the others.
    fn split(&self, options: &[Expr]) -> (Vec<Expr>, Vec<Expr>) {
        options.iter().cloned().partition(|option| is_regular(option, self.regular))
    }
}

/// The order of words: which words may follow each other, and which ones the lexer looks for at the
/// same time.
struct Neighbours<'a> {
    worded: &'a Worded,
    automata: Vec<Automaton>,
    /// Rules that may be empty, and the first words of each rule.
    nullable: Vec<bool>,
    first: Vec<SimpleVob>,
    /// The words that may follow each rule and each word.
    after_rule: Vec<SimpleVob>,
    after_word: Vec<SimpleVob>,
    root: usize,
}

impl<'a> Neighbours<'a> {
    fn new(
        grammar: &Grammar,
        worded: &'a Worded,
        work: &mut Work,
    ) -> Result<Self, ConstraintError> {
        let automata = worded.words.iter().map(|word| Automaton::of(word, grammar, work));
        let automata = automata.collect::<Result<Vec<_>, _>>()?;
        let (words, rules) = (worded.words.len(), grammar.rules.len());
        let none = SimpleVob::alloc(words);
        let mut neighbours = Self {
            worded,
            automata,
            nullable: vec![false; rules],
            first: vec![none.clone(); rules],
            after_rule: vec![none.clone(); rules],
            after_word: vec![none; words],
            root: grammar.root,
        };
        neighbours.find_first(work)?;
        neighbours.find_after(work)?;
        Ok(neighbours)
    }

    fn find_first(&mut self, work: &mut Work) -> Result<(), ConstraintError> {
        loop {
            let mut changed = false;
            for (number, node) in &self.worded.rules {
                let mut first = self.first[*number].clone();
                let nullable = self.begin(node, &mut first, work)?;
                changed |= nullable != self.nullable[*number] || first != self.first[*number];
                self.nullable[*number] = nullable;
                self.first[*number] = first;
            }
            if !changed {
                return Ok(());
            }
        }
    }

    /// Adds the words that may start a node. Returns whether the node may be empty.
    fn begin(
        &self,
        node: &Node,
        first: &mut SimpleVob,
        work: &mut Work,
    ) -> Result<bool, ConstraintError> {
        work.spend(1 + first.len() / 64)?;
        Ok(match node {
            Node::Word(word) => {
                first.set(*word, true);
                self.automata[*word].nullable
            }
            Node::Token { .. } => false,
            Node::Rule(number) => {
                first.or(&self.first[*number]);
                self.nullable[*number]
            }
            Node::Seq(nodes) => {
                for node in nodes {
                    if !self.begin(node, first, work)? {
                        return Ok(false);
                    }
                }
                true
            }
            Node::Any(nodes) => {
                let mut nullable = false;
                for node in nodes {
                    nullable |= self.begin(node, first, work)?;
                }
                nullable
            }
            Node::Repeat(node, least, _) => self.begin(node, first, work)? || *least == 0,
        })
    }

    fn find_after(&mut self, work: &mut Work) -> Result<(), ConstraintError> {
        let worded = self.worded;
        loop {
            let before = (self.after_rule.clone(), self.after_word.clone());
            work.spend(before.0.len() + before.1.len())?;
            for (number, node) in &worded.rules {
                let after = self.after_rule[*number].clone();
                self.follow(node, &after, work)?;
            }
            if before == (self.after_rule.clone(), self.after_word.clone()) {
                return Ok(());
            }
        }
    }

    /// Records that the words `after` may follow the node.
    fn follow(
        &mut self,
        node: &Node,
        after: &SimpleVob,
        work: &mut Work,
    ) -> Result<(), ConstraintError> {
        work.spend(1 + after.len() / 64)?;
        match node {
            Node::Word(word) => self.after_word[*word].or(after),
            Node::Token { .. } => {}
            Node::Rule(number) => self.after_rule[*number].or(after),
            Node::Seq(nodes) => {
                let mut after = after.clone();
                for node in nodes.iter().rev() {
                    self.follow(node, &after, work)?;
                    let mut first = SimpleVob::alloc(after.len());
                    if self.begin(node, &mut first, work)? {
                        first.or(&after);
                    }
                    after = first;
                }
            }
            Node::Any(nodes) => {
                for node in nodes {
                    self.follow(node, after, work)?;
                }
            }
            Node::Repeat(node, _, most) => {
                let mut after = after.clone();
                if *most != Some(1) {
                    self.begin(node, &mut after, work)?;
                }
                self.follow(node, &after, work)?;
            }
        }
        Ok(())
    }

    /// The words that can run on into the text after them.
    fn run_on(&self, work: &mut Work) -> Result<HashSet<usize>, ConstraintError> {
        let next: Vec<Bytes> = self.after_word.iter().map(|after| self.bytes_of(after)).collect();
        // The words that the lexer looks for together: at the start, and after each word. If two
        // words match the same text, then after both of them.
        let mut together = self.after_word.clone();
        together.push(self.first[self.root].clone());
        let mut met = HashSet::new();
        let mut run_on = HashSet::new();
        loop {
            let mut same = Vec::new();
            for set in &together {
                let set: Vec<usize> = set.iter().map(|word| word as usize).collect();
                work.spend(set.len() * set.len() + 1)?;
                for (i, a) in set.iter().enumerate() {
                    for b in &set[i..] {
                        if !met.insert((*a, *b)) {
                            continue;
                        }
                        let (first, second) = (&self.automata[*a], &self.automata[*b]);
                        let meeting = meet((first, &next[*a]), (second, &next[*b]), work)?;
                        if meeting.second_runs_on {
                            run_on.insert(*b);
                        }
                        if meeting.first_runs_on {
                            run_on.insert(*a);
                        }
                        if meeting.same && a != b {
                            same.push((*a, *b));
                        }
                    }
                }
            }
            if same.is_empty() {
                return Ok(run_on);
            }
            for (a, b) in same {
                let mut both = together[a].clone();
                both.or(&together[b]);
                together[a] = both.clone();
                together[b] = both;
            }
        }
    }

    fn bytes_of(&self, words: &SimpleVob) -> Bytes {
        let mut bytes = Bytes::default();
        for word in words.iter() {
            bytes.add(&self.automata[word as usize].first_bytes());
        }
        bytes
    }
}
