//! `strftime_now`: formats a time as C's `strftime` does, in the C locale.
//!
//! The `time` crate formats each directive. This module adds behaviour of glibc and Python that
//! templates rely on:
//! - `%f` is the microsecond, as in Python.
//! - `%^b` is in capitals, as in glibc.
//! - `%Z` and `%z` are empty: the time has no zone, as Python's `datetime.now()` has none.
//! - An unknown directive is printed unchanged.

use time::OffsetDateTime;
use time::format_description::parse_strftime_borrowed;

/// Formats `now`.
pub fn strftime(format: &str, now: OffsetDateTime) -> String {
    let mut out = String::with_capacity(format.len() * 2);
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let flags = rest[at + 1..].find(|c| !matches!(c, '-' | '_' | '0' | '^'));
        let letter = flags.and_then(|flags| rest[at + 1 + flags..].chars().next());
        let end = at + 1 + flags.unwrap_or(0) + letter.map_or(0, char::len_utf8);
        let directive = &rest[at..end];
        out.push_str(&write_one(directive, now).unwrap_or_else(|| directive.to_owned()));
        rest = &rest[end..];
    }
    out + rest
}

/// Writes one directive: `%`, an optional flag and a letter. `None` for an unknown one.
fn write_one(directive: &str, now: OffsetDateTime) -> Option<String> {
    if let Some(plain) = directive.strip_prefix("%^") {
        return Some(write_one(&format!("%{plain}"), now)?.to_uppercase());
    }
    match directive {
        "%f" => Some(format!("{:06}", now.microsecond())),
        // The crate counts from 1; C counts from 0.
        "%w" => Some(now.weekday().number_days_from_sunday().to_string()),
        "%z" | "%Z" => Some(String::new()),
        _ => now.format(&parse_strftime_borrowed(directive).ok()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use time::{Date, Month};

    use super::*;

    fn show(format: &str) -> String {
        let date = Date::from_calendar_date(2026, Month::July, 4).unwrap();
        strftime(format, date.with_hms_micro(15, 5, 8, 42).unwrap().assume_utc())
    }

    #[test]
    fn dates_are_written_as_c_writes_them() {
        for (format, text) in [
            ("%d %b %Y", "04 Jul 2026"),
            ("%B %d, %Y", "July 04, 2026"),
            ("%A, %-d. %B (%a %e|%_m|%^b)", "Saturday, 4. July (Sat  4| 7|JUL)"),
            ("%Y-%m-%dT%H:%M:%S.%f", "2026-07-04T15:05:08.000042"),
            ("%F %T %R %D", "2026-07-04 15:05:08 15:05 07/04/26"),
            ("%I:%M %p %-I%P %l%k", "03:05 PM 3pm  315"),
            ("%j %U %W %V %G %u %w %y %C", "185 26 26 27 2026 6 6 26 20"),
            ("%c", "Sat Jul  4 15:05:08 2026"),
            ("100%% %Q %-Q 5%", "100% %Q %-Q 5%"),
            ("[%Z%z]%n%t日", "[]\n\t日"),
        ] {
            assert_eq!(show(format), text, "{format}");
        }
    }
}
