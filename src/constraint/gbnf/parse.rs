//! Reads a grammar in llama.cpp's format.

use std::collections::HashMap;

use llguidance::toktrie::TokTrie;

use super::grammar::{Expr, Grammar};
use crate::constraint::error::ConstraintError;
use crate::limits::{GBNF_DEPTH_MAX, GBNF_REPEAT_MAX, GBNF_RULES_MAX};

/// Reads a grammar.
pub(super) fn parse(source: &str, tokens: &TokTrie) -> Result<Grammar, ConstraintError> {
    let mut parser =
        Parser { source, at: 0, tokens, names: HashMap::new(), rules: Vec::new(), depth: 0 };
    parser.space(true);
    while parser.peek().is_some() {
        parser.rule()?;
    }
    parser.finish()
}

struct Parser<'a> {
    source: &'a str,
    /// Bytes read so far.
    at: usize,
    tokens: &'a TokTrie,
    names: HashMap<&'a str, usize>,
    rules: Vec<Rule<'a>>,
    /// Open groups.
    depth: usize,
}

struct Rule<'a> {
    name: &'a str,
    /// The byte offset of its first use, or of its definition.
    at: usize,
    body: Option<Expr>,
}

type Parsed<T> = Result<T, ConstraintError>;

impl<'a> Parser<'a> {
    fn finish(self) -> Parsed<Grammar> {
        let Some(&root) = self.names.get("root") else {
            return Err(ConstraintError("the grammar has no rule root".into()));
        };
        let source = self.source;
        let body = |rule: Rule| {
            rule.body.ok_or_else(|| {
                let line = line_of(source, rule.at);
                let missing = format!("there is no rule {:.64}", rule.name);
                ConstraintError(format!("line {line} of the grammar: {missing}"))
            })
        };
        Ok(Grammar { rules: self.rules.into_iter().map(body).collect::<Parsed<_>>()?, root })
    }

    /// Reads `name ::= alternatives` to the end of the line.
    fn rule(&mut self) -> Parsed<()> {
        let at = self.at;
        let name = self.name()?;
        self.space(false);
        if !self.rest().starts_with("::=") {
            return Err(self.wrong("expected ::= after a rule's name"));
        }
        self.at += 3;
        self.space(true);
        let number = self.number_of(name, at)?;
        if self.rules[number].body.is_some() {
            return Err(self.wrong(&format!("the rule {name:.64} is defined twice")));
        }
        let body = self.alternatives(false)?;
        self.rules[number].body = Some(body);
        match self.peek() {
            None | Some('\n' | '\r') => self.space(true),
            Some(other) => return Err(self.wrong(&format!("did not expect {other:?}"))),
        }
        Ok(())
    }

    fn alternatives(&mut self, grouped: bool) -> Parsed<Expr> {
        let mut options = vec![self.sequence(grouped)?];
        while self.take('|') {
            self.space(true);
            options.push(self.sequence(grouped)?);
        }
        Ok(Expr::any(options))
    }

    /// Reads consecutive items. Inside a group they may continue on the next line.
    fn sequence(&mut self, grouped: bool) -> Parsed<Expr> {
        let mut items = Vec::new();
        let mut repeats = 0;
        while let Some(next) = self.peek() {
            let repeats_again = matches!(next, '*' | '+' | '?' | '{');
            repeats = if repeats_again { repeats + 1 } else { 0 };
            if repeats > GBNF_DEPTH_MAX {
                let message = format!("it is repeated more than {GBNF_DEPTH_MAX} times over");
                return Err(self.wrong(&message));
            }
            let item = match next {
                '"' => self.text()?,
                '[' => self.chars()?,
                '<' | '!' => self.token()?,
                '(' => self.group()?,
                '.' => {
                    self.at += 1;
                    Expr::Chars(vec![('\0', char::MAX)])
                }
                '*' | '+' | '?' | '{' => {
                    let Some(last) = items.pop() else {
                        return Err(
                            self.wrong(&format!("there is nothing before {next} to repeat"))
                        );
                    };
                    let (least, most) = self.times()?;
                    Expr::repeat(last, least, most)
                }
                c if is_of_name(c) => {
                    let at = self.at;
                    let name = self.name()?;
                    Expr::Rule(self.number_of(name, at)?)
                }
                _ => break,
            };
            items.push(item);
            self.space(grouped);
        }
        Ok(Expr::seq(items))
    }

    fn group(&mut self) -> Parsed<Expr> {
        self.depth += 1;
        if self.depth > GBNF_DEPTH_MAX {
            return Err(self.wrong(&format!("groups are nested deeper than {GBNF_DEPTH_MAX}")));
        }
        self.at += 1;
        self.space(true);
        let inner = self.alternatives(true)?;
        self.expect(')')?;
        self.depth -= 1;
        Ok(inner)
    }

    /// Reads `"text"`.
    fn text(&mut self) -> Parsed<Expr> {
        self.at += 1;
        let mut text = String::new();
        while !self.take('"') {
            text.push(self.char()?);
        }
        Ok(if text.is_empty() { Expr::EMPTY } else { Expr::Text(text) })
    }

    /// Reads `[a-z_]` or `[^"]`.
    fn chars(&mut self) -> Parsed<Expr> {
        self.at += 1;
        let negated = self.take('^');
        let mut ranges = Vec::new();
        while !self.take(']') {
            let first = self.char()?;
            let mut last = first;
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                last = self.char()?;
            }
            if last < first {
                return Err(self.wrong(&format!("the range {first:?}-{last:?} is backwards")));
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() {
            return Err(self.wrong("a class of characters has none in it"));
        }
        let ranges = joined(ranges);
        let ranges = if negated { others(&ranges) } else { ranges };
        if ranges.is_empty() {
            return Err(self.wrong("a class of characters excludes all of them"));
        }
        Ok(Expr::Chars(ranges))
    }

    /// Reads a character of a text or a class, or its escape.
    fn char(&mut self) -> Parsed<char> {
        let Some(c) = self.peek() else {
            return Err(self.wrong("the grammar ends within a text or a class"));
        };
        self.at += c.len_utf8();
        if c != '\\' {
            return Ok(c);
        }
        let Some(escape) = self.peek() else {
            return Err(self.wrong("the grammar ends within an escape"));
        };
        self.at += escape.len_utf8();
        match escape {
            'x' => self.hex(2),
            'u' => self.hex(4),
            'U' => self.hex(8),
            't' => Ok('\t'),
            'r' => Ok('\r'),
            'n' => Ok('\n'),
            '\\' | '"' | '[' | ']' | '-' => Ok(escape),
            other => Err(self.wrong(&format!("there is no escape \\{other}"))),
        }
    }

    fn hex(&mut self, digits: usize) -> Parsed<char> {
        let code = self.rest().get(..digits).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(code) = code else {
            return Err(self.wrong(&format!("expected {digits} hexadecimal digits")));
        };
        self.at += digits;
        let c = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
        c.ok_or_else(|| self.wrong(&format!("{code} is not the code of a character")))
    }

    /// Reads `*`, `+`, `?`, `{m}`, `{m,}` or `{m,n}`.
    fn times(&mut self) -> Parsed<(u32, Option<u32>)> {
        if self.take('*') {
            return Ok((0, None));
        }
        if self.take('+') {
            return Ok((1, None));
        }
        if self.take('?') {
            return Ok((0, Some(1)));
        }
        self.expect('{')?;
        let least = self.count()?;
        let mut most = Some(least);
        if self.take(',') {
            self.space(true);
            most = if self.peek() == Some('}') { None } else { Some(self.count()?) };
        }
        self.expect('}')?;
        if most.is_some_and(|most| most < least) {
            return Err(self.wrong(&format!("{{{least},{}}} is backwards", most.unwrap_or(0))));
        }
        Ok((least, most))
    }

    fn count(&mut self) -> Parsed<u32> {
        self.space(true);
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let count = self.rest()[..digits].parse().ok().filter(|count| *count <= GBNF_REPEAT_MAX);
        let Some(count) = count else {
            return Err(
                self.wrong(&format!("expected a number of times, {GBNF_REPEAT_MAX} at most"))
            );
        };
        self.at += digits;
        self.space(true);
        Ok(count)
    }

    /// Reads `<[42]>`, `<think>`, or either after `!`.
    fn token(&mut self) -> Parsed<Expr> {
        let negated = self.take('!');
        let end = self.rest().find('>').filter(|_| self.rest().starts_with('<'));
        let Some(end) = end else {
            return Err(self.wrong("expected a token, as <[42]> or <think>"));
        };
        let spelled = &self.rest()[..=end];
        let id = match spelled.strip_prefix("<[").and_then(|rest| rest.strip_suffix("]>")) {
            Some(id) => id.parse().ok(),
            None => self.tokens.token_id(spelled.as_bytes()),
        };
        // Grammars may not name control tokens, which have no text.
        let Some(id) = id.filter(|id| !self.tokens.token(*id).is_empty()) else {
            let shown: String = spelled.chars().take(64).collect();
            return Err(self.wrong(&format!("the model has no token {shown} that a text may have")));
        };
        self.at += spelled.len();
        Ok(Expr::Token { id, negated })
    }

    fn name(&mut self) -> Parsed<&'a str> {
        let length = self.rest().chars().take_while(|c| is_of_name(*c)).count();
        if length == 0 {
            let what = "expected the name of a rule: letters, digits and dashes";
            return Err(self.wrong(what));
        }
        let name = &self.rest()[..length]; // the bytes are ASCII
        self.at += length;
        Ok(name)
    }

    fn number_of(&mut self, name: &'a str, at: usize) -> Parsed<usize> {
        if let Some(number) = self.names.get(name) {
            return Ok(*number);
        }
        let number = self.rules.len();
        if number == GBNF_RULES_MAX {
            return Err(self.wrong(&format!("there are more than {GBNF_RULES_MAX} rules")));
        }
        self.names.insert(name, number);
        self.rules.push(Rule { name, at, body: None });
        Ok(number)
    }

    /// Skips blanks and comments; with `lines`, line ends, too.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.at += 1,
                '\n' | '\r' if lines => self.at += 1,
                '#' => self.at += self.rest().find(['\n', '\r']).unwrap_or(self.rest().len()),
                _ => break,
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, c: char) -> bool {
        let taken = self.rest().starts_with(c);
        if taken {
            self.at += c.len_utf8();
        }
        taken
    }

    fn expect(&mut self, c: char) -> Parsed<()> {
        if self.take(c) { Ok(()) } else { Err(self.wrong(&format!("expected {c}"))) }
    }

    fn wrong(&self, what: &str) -> ConstraintError {
        let line = line_of(self.source, self.at);
        ConstraintError(format!("line {line} of the grammar: {what}"))
    }
}

fn line_of(source: &str, at: usize) -> usize {
    1 + source[..at].matches('\n').count()
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

/// Sorts ranges and joins those that touch.
fn joined(mut ranges: Vec<(char, char)>) -> Vec<(char, char)> {
    ranges.sort_unstable();
    let mut joined: Vec<(char, char)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if after(before.1).is_none_or(|next| first <= next) => {
                before.1 = before.1.max(last);
            }
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// The characters outside of sorted, joined ranges.
fn others(ranges: &[(char, char)]) -> Vec<(char, char)> {
    let mut others = Vec::with_capacity(ranges.len() + 1);
    let mut next = Some('\0');
    for (first, last) in ranges {
        match next {
            Some(from) if from < *first => others.push((from, before(*first))),
            _ => {}
        }
        next = after(*last);
    }
    others.extend(next.map(|from| (from, char::MAX)));
    others
}

fn after(c: char) -> Option<char> {
    (c..=char::MAX).nth(1)
}

/// The character before `c`, which is not the first of all.
fn before(c: char) -> char {
    ('\0'..c).next_back().unwrap_or('\0')
}
