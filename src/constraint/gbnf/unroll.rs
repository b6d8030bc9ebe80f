//! Turns rules that are recursive only at their end into repetitions.

use super::grammar::{Expr, Grammar};

/// `ws ::= ([ \t\n] ws)?` and `list ::= item | item "," list` are repetitions in disguise. As
/// repetitions they can become words.
pub(super) fn unroll(grammar: Grammar) -> Grammar {
    let rules = grammar.rules.into_iter().enumerate();
    let rules = rules.map(|(number, body)| unrolled(number, body)).collect();
    Grammar { rules, root: grammar.root }
}

fn unrolled(number: usize, body: Expr) -> Expr {
    let options = match &body {
        Expr::Any(options) => options.clone(),
        Expr::Repeat(inner, 0, Some(1)) => match &**inner {
            Expr::Any(options) => options.iter().cloned().chain([Expr::EMPTY]).collect(),
            one => vec![one.clone(), Expr::EMPTY],
        },
        _ => return body,
    };
    let (mut again, mut ends) = (Vec::new(), Vec::new());
    for option in options {
        if !refers_to(&option, number) {
            ends.push(option);
            continue;
        }
        let Expr::Seq(mut items) = option else { return body };
        let is_last = items.pop() == Some(Expr::Rule(number));
        if !is_last || items.iter().any(|item| refers_to(item, number)) {
            return body;
        }
        again.push(Expr::seq(items));
    }
    if again.is_empty() || ends.is_empty() {
        return body;
    }
    Expr::seq([Expr::any(again).repeat(0, None), Expr::any(ends)])
}

fn refers_to(expr: &Expr, number: usize) -> bool {
    *expr == Expr::Rule(number) || expr.parts().iter().any(|part| refers_to(part, number))
}
