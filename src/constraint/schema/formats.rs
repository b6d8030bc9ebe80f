//! The formats of strings.

/// Formats for which llguidance's own patterns are correct.
pub(super) const KNOWN: [&str; 7] =
    ["duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Days of the Gregorian calendar from the year 1000 on. llguidance's own pattern allows a 29th of
/// February in every year.
const DATE: &str = concat!(
    r"(?:[1-9][0-9]{3}-(?:",
    r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
    r"|02-(?:0[1-9]|1[0-9]|2[0-8])",
    r")",
    // Leap years: divisible by 4, and years that end in 00 by 400.
    r"|(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29)",
);

/// Without leap seconds: few days have one, and few parsers accept one.
const TIME: &str = concat!(
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?",
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])",
);

/// The pattern for a format.
pub(super) fn pattern(format: &str) -> Option<String> {
    match format {
        "date" => Some(format!("^{DATE}$")),
        "time" => Some(format!("^{TIME}$")),
        "date-time" => Some(format!("^{DATE}T{TIME}$")),
        _ => None,
    }
}
