//! Compares rounds: one scenario several times, on one server or on two in turns (A B A B …).
//!
//! With two servers, each round gives a ratio of the two. On a shared machine the ratio of two
//! measurements taken one after the other is more reliable than either time.

use serde_json::{Map, Value, json};

use super::failure;
use super::report::{Measure, Measured, Notes, digits};
use crate::stats::Sorted;

/// One measure over all rounds.
struct Row<'a> {
    measure: &'a Measure,
    /// The values of each server, from the rounds in which it was measured.
    values: Vec<Sorted>,
    /// First / second, from the rounds in which both were measured.
    pairs: Vec<f64>,
}

/// The rows of `rounds`, which is `[rounds][servers]`.
fn rows(rounds: &[Vec<Measured>]) -> Vec<Row<'_>> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let row = |measure| {
        let of_round = |round: &'_ Vec<Measured>| -> Vec<Option<f64>> {
            round.iter().map(|measured| value(measured, measure)).collect()
        };
        let table: Vec<Vec<Option<f64>>> = rounds.iter().map(of_round).collect();
        let values = (0..first.len())
            .map(|server| table.iter().filter_map(|round| round[server]).collect())
            .collect();
        let pair = |round: &Vec<Option<f64>>| match round[..] {
            [Some(a), Some(b)] => Some(a / b).filter(|ratio| ratio.is_finite()),
            _ => None,
        };
        Row { measure, values, pairs: table.iter().filter_map(pair).collect() }
    };
    first[0].measures.iter().map(row).collect()
}

fn value(measured: &Measured, like: &Measure) -> Option<f64> {
    measured.measures.iter().find(|measure| measure.key == like.key)?.value
}

/// The table of all rounds.
pub fn table(rounds: &[Vec<Measured>], urls: &[&str]) -> String {
    let rows = rows(rounds);
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    let n = rounds.len();
    if let [first, second] = urls {
        line(format!("==== Two servers in turns, {n} rounds, the same requests to both ===="));
        line(format!("first:  {first}"));
        line(format!("second: {second}"));
        line(format!(
            "{:<40} {:>10} {:>10}   {:<26} {}",
            "median", "first", "second", "first/second (min..max)", "pair by pair"
        ));
        for row in &rows {
            let medians: Vec<String> = row.values.iter().map(|v| number(v.median())).collect();
            line(format!(
                "{:<40} {:>10} {:>10}   {:<26} {}",
                row.measure.name,
                medians[0],
                medians[1],
                spread(&row.pairs.iter().copied().collect(), |ratio| format!("{ratio:.3}")),
                row.pairs.iter().map(|ratio| format!("{ratio:.3} ")).collect::<String>(),
            ));
        }
    } else {
        line(format!("==== {n} rounds: median (min..max) ===="));
        for row in &rows {
            line(format!("{:<40} {}", row.measure.name, spread(&row.values[0], digits)));
        }
    }
    let sides: &[&str] = if urls.len() == 2 { &["first:  ", "second: "] } else { &["notes: "] };
    for (index, side) in sides.iter().enumerate() {
        let notes = notes_of(rounds, index);
        if !notes.is_empty() {
            line(format!("{side}{}", notes.join("; ")));
        }
    }
    unequal_work(rounds).into_iter().for_each(line);
    text
}

/// The notes and failures of one server over all rounds.
fn notes_of(rounds: &[Vec<Measured>], side: usize) -> Vec<String> {
    let (mut completed, mut failed, mut notes) = (0, 0, Notes::default());
    for measured in rounds.iter().map(|round| &round[side]) {
        completed += measured.completed;
        failed += failure::count(&measured.failures);
        notes.resent += measured.notes.resent;
        notes.uncounted += measured.notes.uncounted;
        notes.short += measured.notes.short;
    }
    let mut lines = notes.lines();
    if failed > 0 {
        lines.insert(0, format!("{failed} of {} requests failed", completed + failed));
    }
    lines
}

/// One line for each round in which the two servers generated different numbers of tokens, below a
/// heading line. Empty when there is none.
fn unequal_work(rounds: &[Vec<Measured>]) -> Vec<String> {
    let differing = |(index, round): (usize, &Vec<Measured>)| {
        let [first, second] = &round[..] else { return None };
        let (a, b) = (first.output_tokens?, second.output_tokens?);
        (a != b).then(|| format!("  round {}: {a} and {b} output tokens", index + 1))
    };
    let mut lines: Vec<String> = rounds.iter().enumerate().filter_map(differing).collect();
    if !lines.is_empty() {
        lines.insert(0, "The ratios are of unequal work, first and second:".into());
    }
    lines
}

fn number(value: Option<f64>) -> String {
    value.map_or("not taken".into(), digits)
}

fn spread(values: &Sorted, shown: fn(f64) -> String) -> String {
    match (values.median(), values.min(), values.max()) {
        (Some(median), Some(min), Some(max)) => {
            format!("{} ({}..{})", shown(median), shown(min), shown(max))
        }
        _ => "not taken".into(),
    }
}

/// The JSON of all rounds, with the spread of each number and, for two servers, the ratios.
pub fn json(rounds: &[Vec<Measured>]) -> Map<String, Value> {
    let names: &[&str] = &["first", "second"];
    let of_round = |round: &Vec<Measured>| -> Value {
        let sides = names.iter().zip(round);
        Value::Object(sides.map(|(n, m)| ((*n).to_owned(), m.json.clone().into())).collect())
    };
    let rows = rows(rounds);
    let mut spreads = Map::new();
    let mut ratios = Map::new();
    for row in &rows {
        let sides = names.iter().zip(&row.values);
        let of_sides = sides.map(|(n, values)| ((*n).to_owned(), spread_json(values)));
        spreads.insert(row.measure.key.clone(), Value::Object(of_sides.collect()));
        if row.values.len() == 2 {
            let mut ratio = spread_json(&row.pairs.iter().copied().collect());
            ratio["pairs"] = row.pairs.clone().into();
            ratios.insert(row.measure.key.clone(), ratio);
        }
    }
    let mut object = Map::new();
    object.insert("rounds".into(), rounds.iter().map(of_round).collect());
    object.insert("spread".into(), spreads.into());
    if !ratios.is_empty() {
        object.insert("ratios".into(), ratios.into());
    }
    object
}

fn spread_json(values: &Sorted) -> Value {
    json!({"median": values.median(), "min": values.min(), "max": values.max()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::failure::{FailureKind, Failures};

    fn measured(rate: Option<f64>) -> Measured {
        Measured {
            table: String::new(),
            measures: vec![Measure::new("rate", "Rate (1/s)", rate)],
            json: Map::from_iter([("rate".to_owned(), rate.into())]),
            completed: 1,
            failures: Failures::new(),
            notes: Notes::default(),
            output_tokens: Some(10),
        }
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let round = |a, b| vec![measured(Some(a)), measured(Some(b))];
        let rounds = [round(10.0, 5.0), round(30.0, 10.0), round(8.0, 8.0)];
        let json = Value::Object(json(&rounds));
        let expected = json!({"median": 2.0, "min": 1.0, "max": 3.0, "pairs": [2.0, 3.0, 1.0]});
        assert_eq!(json["ratios"]["rate"], expected);
        let expected = json!({"median": 10.0, "min": 8.0, "max": 30.0});
        assert_eq!(json["spread"]["rate"]["first"], expected);
        assert_eq!(json["rounds"][1]["second"]["rate"], 10.0);
        let table = table(&rounds, &["http://a", "http://b"]);
        let row = table.lines().last().unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "Rate",
                "(1/s)",
                "10.00",
                "8.00",
                "2.000",
                "(1.000..3.000)",
                "2.000",
                "3.000",
                "1.000"
            ]
        );
    }

    #[test]
    fn one_server_has_a_spread_and_no_ratios() {
        let rounds = [vec![measured(Some(1.0))], vec![measured(Some(3.0))]];
        assert!(!json(&rounds).contains_key("ratios"));
        assert!(table(&rounds, &["http://a"]).ends_with("2.00 (1.00..3.00)\n"));
    }

    #[test]
    fn what_makes_numbers_unlike_is_said_of_each_side() {
        let plain = || measured(Some(1.0));
        let short = Measured {
            notes: Notes { resent: 2, uncounted: 0, short: 1 },
            output_tokens: Some(9),
            ..plain()
        };
        let failed = Measured {
            failures: Failures::from([(FailureKind::Closed, (3, "x".to_owned()))]),
            ..plain()
        };
        let notes_of = |rounds: &[Vec<Measured>], urls: &[&str]| -> Vec<String> {
            let table = table(rounds, urls);
            let rows = 1 + table.lines().position(|line| line.starts_with("Rate")).unwrap();
            table.lines().skip(rows).map(str::to_owned).collect()
        };
        let both = ["http://a", "http://b"];
        let rounds = [
            vec![plain(), short.clone()],
            vec![failed.clone(), plain()],
            vec![plain(), short.clone()],
        ];
        let expected = [
            "first:  3 of 6 requests failed",
            "second: 4 requests sent again: a used connection had been closed; \
             2 requests ended before --random-output-len (see --ignore-eos)",
            "The ratios are of unequal work, first and second:",
            "  round 1: 10 and 9 output tokens",
            "  round 3: 10 and 9 output tokens",
        ];
        assert_eq!(notes_of(&rounds, &both), expected);
        // Plain rounds give no notes. Rounds without a token count give none on unequal work.
        let uncounted = Measured { output_tokens: None, ..plain() };
        assert!(notes_of(&[vec![plain(), plain()]], &both).is_empty());
        assert!(notes_of(&[vec![uncounted, plain()]], &both).is_empty());
        let expected = ["notes: 3 of 5 requests failed"];
        assert_eq!(notes_of(&[vec![plain()], vec![failed]], &["http://a"]), expected);
    }

    #[test]
    fn a_round_without_a_number_has_no_pair() {
        let rounds = [
            vec![measured(None), measured(Some(1.0))],
            vec![measured(Some(3.0)), measured(Some(2.0))],
            vec![measured(Some(3.0)), measured(Some(0.0))],
        ];
        let json = Value::Object(json(&rounds));
        assert_eq!(json["ratios"]["rate"]["pairs"], json!([1.5]));
        assert_eq!(json["spread"]["rate"]["first"]["median"], 3.0);
        let none = Value::Object(super::json(&[vec![measured(None), measured(None)]]));
        assert_eq!(none["ratios"]["rate"]["median"], Value::Null);
    }
}
