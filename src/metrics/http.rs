//! Counts HTTP responses by path and status.

use super::value::Counter;

/// The statuses that the server sends. Any other status would be counted as 0.
const STATUSES: [u16; 21] = [
    200, 204, 304, 400, 401, 403, 404, 405, 408, 413, 415, 417, 429, 431, 500, 501, 502, 503, 504,
    505, 0,
];

/// The name for unknown and unreadable paths.
const OTHER: &str = "other";

/// Reasons of refusals: one word for each class of status.
pub const REASONS: [&str; 11] = [
    "bad_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "slow_request",
    "timeout",
    "too_large",
    "queue_full",
    "unavailable",
    "failed",
];

/// The reason of a status, from [`REASONS`]; `None` for a success.
pub fn reason(status: u16) -> Option<&'static str> {
    match status {
        ..=399 => None,
        401 => Some("unauthorized"),
        403 => Some("forbidden"),
        404 => Some("not_found"),
        405 => Some("method_not_allowed"),
        408 => Some("slow_request"),
        504 => Some("timeout"),
        413 | 431 => Some("too_large"),
        429 => Some("queue_full"),
        503 => Some("unavailable"),
        500 => Some("failed"),
        _ => Some("bad_request"),
    }
}

/// The number of responses by path and status.
#[derive(Debug)]
pub struct Responses {
    paths: Box<[Path]>, // the last one counts unknown paths
}

#[derive(Debug)]
#[repr(align(128))] // shares no cache line with another lane's data
struct Path {
    name: &'static str,
    counts: [Counter; STATUSES.len()],
}

impl Responses {
    pub(super) fn new(paths: impl IntoIterator<Item = &'static str>) -> Self {
        let path = |name| Path { name, counts: Default::default() };
        Self { paths: paths.into_iter().chain([OTHER]).map(path).collect() }
    }

    /// Counts a response. For the writer only.
    pub fn count(&self, path: &str, status: u16) {
        let known = self.paths.iter().find(|known| known.name == path);
        let Some(path) = known.or(self.paths.last()) else { return };
        let index = STATUSES.iter().position(|known| *known == status);
        path.counts[index.unwrap_or(STATUSES.len() - 1)].increment();
    }

    /// All counts: path, status and number.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u16, u64)> {
        self.paths.iter().flat_map(|path| {
            let counts = STATUSES.iter().zip(&path.counts);
            counts.map(|(status, count)| (path.name, *status, count.get()))
        })
    }

    /// Responses to one path with any status.
    pub fn of_path(&self, path: &str) -> u64 {
        self.counts().filter(|(name, ..)| *name == path).map(|(.., count)| count).sum()
    }

    /// All responses.
    pub fn total(&self) -> u64 {
        self.counts().map(|(.., count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_by_path_and_status() {
        let responses = Responses::new(["/a", "/b"]);
        for (path, status) in [("/a", 200), ("/a", 200), ("/a", 429), ("/nope", 404), ("", 400)] {
            responses.count(path, status);
        }
        responses.count("/b", 299); // never sent
        let counted: Vec<_> = responses.counts().filter(|(.., count)| *count > 0).collect();
        let expected =
            [("/a", 200, 2), ("/a", 429, 1), ("/b", 0, 1), ("other", 400, 1), ("other", 404, 1)];
        assert_eq!(counted, expected);
        assert_eq!((responses.total(), responses.of_path("/a")), (6, 3));
    }

    #[test]
    fn every_status_of_an_error_has_a_reason() {
        for status in STATUSES.into_iter().filter(|status| *status >= 400) {
            assert!(REASONS.contains(&reason(status).unwrap()), "{status}");
        }
        assert_eq!(reason(200), None);
        assert_eq!(reason(429), Some("queue_full"));
    }
}
