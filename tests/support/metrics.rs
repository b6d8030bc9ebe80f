//! A strict reader of metrics pages. It checks the rules of OpenMetrics 1.0 for the types in use, and
//! mistakes that scrapers are known to stumble over.

use std::collections::{BTreeMap, HashSet};

/// The samples of a page, by name and labels as they were written.
pub struct Samples(BTreeMap<String, f64>);

#[derive(Debug)]
struct Family {
    name: String,
    kind: String,
    /// Each series' last bucket: its bound and its count.
    buckets: BTreeMap<String, (f64, f64)>,
    counts: BTreeMap<String, f64>,
}

impl Samples {
    /// Reads a page.
    ///
    /// # Panics
    /// At the first line that breaks a rule.
    pub fn parse(text: &str) -> Self {
        let mut samples = BTreeMap::new();
        let mut seen = HashSet::new();
        let mut help: Option<String> = None;
        let mut family: Option<Family> = None;
        let text = text.strip_suffix("# EOF\n").expect("the page ends with # EOF");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, words) = rest.split_once(' ').expect("a help has words");
                assert!(!words.contains(['\\', '"']) && words.ends_with('.'), "{line}");
                assert!(seen.insert(name.to_owned()), "{name} stands in one place");
                family.take().iter().for_each(Family::finish);
                help = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert_eq!(help.take().as_deref(), Some(name), "the type follows the help");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(is_name(name) && !name.ends_with("_total"), "{line}");
                let (name, kind) = (name.to_owned(), kind.to_owned());
                let (buckets, counts) = Default::default();
                family = Some(Family { name, kind, buckets, counts });
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
                let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
                family.as_mut().expect("a sample follows its type").check(series, value);
                assert!(samples.insert(series.to_owned(), value).is_none(), "twice: {series}");
            }
        }
        family.iter().for_each(Family::finish);
        Self(samples)
    }

    /// The value of one series.
    pub fn get(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("{series} is not on the page"))
    }

    /// True when a series of this metric is there.
    pub fn has(&self, name: &str) -> bool {
        self.0.keys().any(|series| series.split('{').next() == Some(name))
    }

    /// The value of a metric whose only labels are the model's.
    pub fn of_model(&self, name: &str) -> f64 {
        self.get(&format!("{name}{{model_name=\"fake\",engine=\"0\"}}"))
    }
}

impl Family {
    fn check(&mut self, series: &str, value: f64) {
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => {
                (name, labels_of(labels.strip_suffix('}').expect("a closing brace")))
            }
            None => (series, Vec::new()),
        };
        let suffix = name.strip_prefix(&self.name).unwrap_or_else(|| panic!("{series}"));
        match (self.kind.as_str(), suffix) {
            ("gauge", "") => assert!(value.is_finite(), "{series}"),
            ("counter", "_total") => assert!(value.is_finite() && value >= 0.0, "{series}"),
            ("histogram", "_sum") => assert!(value >= 0.0, "{series}"),
            ("histogram", "_count") => {
                self.counts.insert(without_bound(&labels), value);
            }
            ("histogram", "_bucket") => {
                let bound = &labels.iter().find(|(name, _)| name == "le").expect("a bound").1;
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
                let last = self.buckets.entry(without_bound(&labels)).or_insert((-1.0, 0.0));
                assert!(bound > last.0 && value >= last.1, "{series}: bounds and counts ascend");
                *last = (bound, value);
            }
            _ => panic!("{series} is no sample of a {}", self.kind),
        }
    }

    fn finish(&self) {
        assert_eq!(self.buckets.len(), self.counts.len());
        for (series, count) in &self.counts {
            assert_eq!(self.buckets[series], (f64::INFINITY, *count), "{}", self.name);
        }
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    name.chars().all(allowed) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn without_bound(labels: &[(String, String)]) -> String {
    let rest = labels.iter().filter(|(name, _)| name != "le");
    rest.map(|(name, value)| format!("{name}={value},")).collect()
}

/// Reads `a="b",c="d"` with the escapes that there are.
fn labels_of(text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect("a label's value is quoted");
        assert!(is_name(name) && !name.contains(':'), "{text}");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("a closing quote") {
                (at, '"') => break at + 1,
                (_, '\\') => match chars.next().expect("an escaped character").1 {
                    'n' => value.push('\n'),
                    c @ ('"' | '\\') => value.push(c),
                    c => panic!("no such escape: {c}"),
                },
                (_, c) => value.push(c),
            }
        };
        assert!(!labels.iter().any(|(known, _)| known == name), "twice: {name}");
        labels.push((name.to_owned(), value));
        rest = &after[end..];
        if !rest.is_empty() {
            rest = rest.strip_prefix(',').expect("a comma between labels");
        }
    }
    labels
}
