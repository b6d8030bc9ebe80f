//! The plan of a profile: a lane, a time, and the form of the result.

use crate::limits::{PROFILE_HZ, PROFILE_HZ_MAX, PROFILE_SECONDS_MAX};

/// A profile to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileRequest {
    /// The lane.
    pub lane: Lane,
    /// The time of the recording, in seconds.
    pub seconds: u32,
    /// Samples a second of each thread.
    pub hz: u32,
    /// The form of the result.
    pub form: Form,
}

/// A lane, or all of them. Threads that a lane starts, such as those of the model, are part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Lane {
    Front,
    Decode,
    Prepare,
    Masks,
    Ops,
    All,
}

/// The form of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A flamegraph.
    Svg,
    /// A line for each stack: functions from the outermost to the innermost, and the samples.
    Folded,
}

/// The names of the lanes.
pub const LANES: [(&str, Lane); 6] = [
    ("front", Lane::Front),
    ("decode", Lane::Decode),
    ("prepare", Lane::Prepare),
    ("masks", Lane::Masks),
    ("ops", Lane::Ops),
    ("all", Lane::All),
];

impl Lane {
    /// Its name.
    pub fn name(self) -> &'static str {
        LANES.iter().find(|(_, lane)| *lane == self).expect("every lane has a name").0
    }

    /// Whether a thread of this name is part of it.
    pub(super) fn has(self, thread: &str) -> bool {
        match self {
            Lane::All => true,
            // There are several: `prepare`, `prepare-long`.
            Lane::Prepare => thread.starts_with("prepare"),
            _ => thread == self.name(),
        }
    }
}

impl ProfileRequest {
    /// Reads the query of a request: `lane=decode&seconds=10&hz=99&format=svg`. Each has a default.
    ///
    /// # Errors
    /// A sentence that says which values there are.
    pub fn read(query: &str) -> Result<Self, String> {
        let mut plan = Self { lane: Lane::Decode, seconds: 10, hz: PROFILE_HZ, form: Form::Svg };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "lane" => plan.lane = lane(value)?,
                "seconds" => plan.seconds = number(name, value, PROFILE_SECONDS_MAX)?,
                "hz" => plan.hz = number(name, value, PROFILE_HZ_MAX)?,
                "format" => {
                    plan.form = match value {
                        "svg" => Form::Svg,
                        "folded" => Form::Folded,
                        _ => return Err(format!("format is svg or folded, not {value:?}")),
                    }
                }
                _ => {
                    return Err(format!("there are lane, seconds, hz and format, and no {name:?}"));
                }
            }
        }
        Ok(plan)
    }
}

/// The lane with this name.
///
/// # Errors
/// A sentence with all names.
fn lane(name: &str) -> Result<Lane, String> {
    let found = LANES.iter().find(|(known, _)| *known == name);
    found.map(|(_, lane)| *lane).ok_or_else(|| {
        let names: Vec<&str> = LANES.iter().map(|(name, _)| *name).collect();
        format!("lane is one of {}, not {name:?}", names.join(", "))
    })
}

/// A number from 1 to `max`.
///
/// # Errors
/// A sentence with the bounds.
fn number(name: &str, text: &str, max: u32) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("{name} is 1 to {max}, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_defaults_and_bounds() {
        let plan = ProfileRequest::read("").unwrap();
        assert_eq!(
            plan,
            ProfileRequest { lane: Lane::Decode, seconds: 10, hz: 99, form: Form::Svg }
        );
        let plan = ProfileRequest::read("lane=front&seconds=3&hz=999&format=folded").unwrap();
        assert_eq!(
            plan,
            ProfileRequest { lane: Lane::Front, seconds: 3, hz: 999, form: Form::Folded }
        );
        for (wrong, message) in [
            ("lane=x", "lane is one of front, decode, prepare, masks, ops, all, not \"x\""),
            ("seconds=0", "seconds is 1 to 60, not \"0\""),
            ("seconds=61", "seconds is 1 to 60, not \"61\""),
            ("format=png", "format is svg or folded, not \"png\""),
            ("hz=1000", "hz is 1 to 999, not \"1000\""),
            ("time=10", "there are lane, seconds, hz and format, and no \"time\""),
        ] {
            assert_eq!(ProfileRequest::read(wrong).unwrap_err(), message);
        }
    }

    #[test]
    fn lanes_are_told_apart_by_the_names_of_their_threads() {
        assert!(Lane::Prepare.has("prepare-long") && Lane::All.has("front"));
        assert!(Lane::Decode.has("decode") && !Lane::Decode.has("front"));
    }
}
