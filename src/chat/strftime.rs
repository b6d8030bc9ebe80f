//! `strftime_now`: a time as C's `strftime` writes it, in the C locale.
//!
//! In: a format and the time. Out: text. Directives that are not known stand as
//! they are, as glibc leaves them. A time has no zone here, as in Python
//! `datetime.now()` has none: `%Z` and `%z` are empty.

use std::fmt::Write;

use time::OffsetDateTime;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// `now` in this format.
pub fn strftime(format: &str, now: OffsetDateTime) -> String {
    let mut out = String::with_capacity(format.len() * 2);
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        // glibc's flags: no padding, spaces, zeros, capitals.
        let mut directive = rest.next();
        let flag = directive.filter(|c| matches!(c, '-' | '_' | '0' | '^'));
        if flag.is_some() {
            directive = rest.next();
        }
        let known = directive.is_some_and(|directive| write_one(&mut out, directive, flag, now));
        if !known {
            out.push('%');
            out.extend(flag);
            out.extend(directive);
        }
    }
    out
}

/// Writes one directive; false when it is not known.
fn write_one(out: &mut String, directive: char, flag: Option<char>, now: OffsetDateTime) -> bool {
    let month = MONTHS[usize::from(u8::from(now.month())) - 1];
    let day = DAYS[usize::from(now.weekday().number_days_from_sunday())];
    let hour12 = (now.hour() + 11) % 12 + 1;
    let half = if now.hour() < 12 { "AM" } else { "PM" };
    let (iso_year, iso_week, _) = now.to_iso_week_date();
    // A number, its width, and what it is padded with; or a text.
    let (value, width, pad) = match directive {
        'd' => (i64::from(now.day()), 2, '0'),
        'e' => (i64::from(now.day()), 2, ' '),
        'm' => (i64::from(u8::from(now.month())), 2, '0'),
        'Y' => (i64::from(now.year()), 1, '0'),
        'y' => (i64::from(now.year().rem_euclid(100)), 2, '0'),
        'C' => (i64::from(now.year().div_euclid(100)), 2, '0'),
        'G' => (i64::from(iso_year), 1, '0'),
        'g' => (i64::from(iso_year.rem_euclid(100)), 2, '0'),
        'V' => (i64::from(iso_week), 2, '0'),
        'U' => (i64::from(now.sunday_based_week()), 2, '0'),
        'W' => (i64::from(now.monday_based_week()), 2, '0'),
        'j' => (i64::from(now.ordinal()), 3, '0'),
        'u' => (i64::from(now.weekday().number_from_monday()), 1, '0'),
        'w' => (i64::from(now.weekday().number_days_from_sunday()), 1, '0'),
        'H' => (i64::from(now.hour()), 2, '0'),
        'k' => (i64::from(now.hour()), 2, ' '),
        'I' => (i64::from(hour12), 2, '0'),
        'l' => (i64::from(hour12), 2, ' '),
        'M' => (i64::from(now.minute()), 2, '0'),
        'S' => (i64::from(now.second()), 2, '0'),
        'f' => (i64::from(now.microsecond()), 6, '0'),
        's' => (now.unix_timestamp(), 1, '0'),
        _ => {
            let text = match directive {
                'a' => day[..3].to_owned(),
                'A' => day.to_owned(),
                'b' | 'h' => month[..3].to_owned(),
                'B' => month.to_owned(),
                'p' => half.to_owned(),
                'P' => half.to_lowercase(),
                'c' => strftime("%a %b %e %H:%M:%S %Y", now),
                'D' | 'x' => strftime("%m/%d/%y", now),
                'F' => strftime("%Y-%m-%d", now),
                'R' => strftime("%H:%M", now),
                'r' => strftime("%I:%M:%S %p", now),
                'T' | 'X' => strftime("%H:%M:%S", now),
                'n' => "\n".to_owned(),
                't' => "\t".to_owned(),
                'Z' | 'z' => String::new(),
                '%' => "%".to_owned(),
                _ => return false,
            };
            out.push_str(&if flag == Some('^') { text.to_uppercase() } else { text });
            return true;
        }
    };
    let written = match (flag, pad) {
        (Some('-'), _) => write!(out, "{value}"),
        (Some('_'), _) => write!(out, "{value:width$}"),
        (Some('0'), _) | (_, '0') => write!(out, "{value:0width$}"),
        _ => write!(out, "{value:width$}"),
    };
    written.expect("memory");
    true
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
