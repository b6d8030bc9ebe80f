//! Finds stop strings, and the longest end of a text that may become one.

/// The stop strings of one request. No string is empty.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
}

impl StopStrings {
    /// The stop strings of a request. Reading the request has bounded their number and lengths
    /// (`limits::STOPS_MAX`, `STOP_BYTES_MAX`).
    pub fn new(stops: Vec<String>) -> Self {
        assert!(stops.iter().all(|stop| !stop.is_empty()));
        Self { stops }
    }

    /// Whether there are no stop strings.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// Finds the earliest stop string in `text`: its offset and its index. The first `searched`
    /// bytes contain no complete one.
    pub fn find(&self, text: &str, searched: usize) -> Option<(usize, usize)> {
        let start_of = |(index, stop): (usize, &String)| {
            // A match must end in the new part.
            let mut from = (searched + 1).saturating_sub(stop.len());
            while !text.is_char_boundary(from) {
                from -= 1;
            }
            Some((from + text[from..].find(stop.as_str())?, index))
        };
        self.stops.iter().enumerate().filter_map(start_of).min()
    }

    /// The stop string with this index.
    pub fn get(&self, index: usize) -> &str {
        &self.stops[index]
    }

    /// The length of the longest end of `text` that is a proper prefix of a stop string.
    pub fn longest_partial(&self, text: &str) -> usize {
        let partial_of = |stop: &String| {
            let longest = (stop.len() - 1).min(text.len());
            (1..=longest)
                .rev()
                .find(|length| stop.is_char_boundary(*length) && text.ends_with(&stop[..*length]))
        };
        self.stops.iter().filter_map(partial_of).max().unwrap_or(0)
    }
}
