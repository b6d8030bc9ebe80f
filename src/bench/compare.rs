//! Rounds: the same scenario several times, against one server or two in turns
//! (A B A B …), with the ratio of each pair.
//!
//! On a machine that others share, a time means little by itself, and the ratio
//! of two that were taken one after the other means more.

use serde_json::{Map, Value, json};

use super::report::{Measure, Measured, digits};
use super::stats::Sorted;

/// One number over all rounds.
struct Row<'a> {
    measure: &'a Measure,
    /// For each server, the rounds in which it could be taken.
    values: Vec<Sorted>,
    /// First / second, for each round in which both could be taken.
    pairs: Vec<f64>,
}

/// The rows of `rounds`, `[rounds][servers]`.
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
    text
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

/// All rounds, with the spread of each number and, for two servers, the ratios.
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
    use crate::bench::failure::Failures;

    fn measured(rate: Option<f64>) -> Measured {
        Measured {
            table: String::new(),
            measures: vec![Measure::new("rate", "Rate (1/s)", rate)],
            json: Map::from_iter([("rate".to_owned(), rate.into())]),
            completed: 1,
            failures: Failures::new(),
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
