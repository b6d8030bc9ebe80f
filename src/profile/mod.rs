//! Profiles the running server: samples of a lane's threads become folded stacks and a flamegraph.
//!
//! In: the name of a lane and a time. Out: text. The kernel takes the samples, so a lane needs no
//! code for it. While it runs, it is interrupted 99 times a second, or as often as the client asks.
//!
//! **Invariant:** bounded. A profile has an end, few threads and a limited number of stacks.

mod plan;
mod record;
mod stack;
mod symbols;

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use inferno::flamegraph::{self, Options};

pub use plan::{Form, LANES, Lane, ProfileRequest};
use record::Recording;
use symbols::Symbols;

use crate::limits::PROFILE_FOLDED_BYTES_MAX;

impl ProfileRequest {
    /// Records for the plan's time, and then draws the result.
    ///
    /// # Errors
    /// A sentence for the user, if the kernel does not allow it, or nothing ran.
    pub fn run(self) -> Result<String, String> {
        let symbols = Symbols::find()?;
        let time = Duration::from_secs(self.seconds.into());
        let mut recording = record::record(self.lane, self.hz, time)?;
        let folded = fold(&mut recording, &symbols)?;
        if recording.lost > 0 {
            tracing::warn!(
                lost = recording.lost,
                samples = recording.samples,
                "a profile lost samples"
            );
        }
        if self.form == Form::Folded {
            return Ok(folded);
        }
        let mut options = Options::default();
        options.title = format!("corelane: {} lane", self.lane.name());
        options.subtitle = Some(self.subtitle(&recording));
        options.count_name = "samples".into();
        options.hash = true;
        options.deterministic = true;
        options.image_width = Some(1400);
        let mut svg = Vec::new();
        flamegraph::from_lines(&mut options, folded.lines(), &mut svg)
            .map_err(|error| format!("cannot draw the flamegraph: {error}"))?;
        String::from_utf8(svg).map_err(|error| format!("cannot draw the flamegraph: {error}"))
    }

    fn subtitle(self, recording: &Recording) -> String {
        let mut text = format!(
            "{} samples of {} at {} Hz in {} s",
            recording.samples, recording.event, self.hz, self.seconds
        );
        if !recording.has_kernel {
            text.push_str(", without the kernel");
        }
        if recording.lost > 0 {
            let _ = write!(text, ", {} lost", recording.lost);
        }
        text
    }
}

/// Whether this thread draws a profile. A panic there ends the profile and must not end the
/// process.
pub fn is_on_its_thread() -> bool {
    std::thread::current().name() == Some(THREAD)
}

/// The name of the thread that a profile needs for itself.
pub const THREAD: &str = "profile";

/// One line for each different stack of functions: `thread;outermost;…;innermost samples`. Sorted,
/// so that equal recordings give equal text. Stacks that do not fit into
/// [`PROFILE_FOLDED_BYTES_MAX`] are lost.
fn fold(recording: &mut Recording, symbols: &Symbols) -> Result<String, String> {
    let stacks = &recording.stacks;
    let names = symbols.names(stacks.keys().flat_map(|stack| stack.frames.iter().copied()))?;
    let mut lines: HashMap<String, u64> = HashMap::new();
    let (mut bytes, mut lost) = (0, 0);
    for (stack, samples) in stacks {
        let mut line = stack.thread.clone();
        for frame in stack.frames.iter().rev() {
            line.push(';');
            line.push_str(&names[frame]);
        }
        let more = if lines.contains_key(&line) { 0 } else { line.len() + COUNT_BYTES };
        if bytes + more > PROFILE_FOLDED_BYTES_MAX {
            lost += samples;
            continue;
        }
        bytes += more;
        *lines.entry(line).or_default() += samples;
    }
    recording.lost += lost;
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_unstable();
    let mut text = String::with_capacity(bytes);
    for (line, samples) in lines {
        let _ = writeln!(text, "{line} {samples}");
    }
    Ok(text)
}

/// Bytes of a line after its stack: a space, the samples and the line's end.
const COUNT_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// The function that burns the time, by its own name.
    #[inline(never)]
    fn burn_for_the_profile(time: Duration) -> u64 {
        let began = std::time::Instant::now();
        let mut number = 1u64;
        while began.elapsed() < time {
            for _ in 0..10_000 {
                number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005));
            }
        }
        number
    }

    #[test]
    fn the_function_that_burns_the_time_is_found() {
        let busy = std::thread::Builder::new().name("masks".into());
        let runs = Arc::new(AtomicBool::new(false));
        let says = runs.clone();
        let burn = move || {
            says.store(true, Ordering::Relaxed); // the thread has its name by now
            burn_for_the_profile(Duration::from_millis(1500))
        };
        let busy = busy.spawn(burn).unwrap();
        while !runs.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let plan = ProfileRequest { lane: Lane::Masks, seconds: 1, hz: 997, form: Form::Folded };
        let folded = plan.run();
        busy.join().unwrap();
        let folded = match folded {
            Ok(folded) => folded,
            // If the kernel does not allow profiles, only the error can be tested.
            Err(error) => return assert!(error.contains("perf_event_paranoid"), "{error}"),
        };
        let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        let all: u64 = folded.lines().map(count).sum();
        let found = folded.lines().filter(|line| line.contains("burn_for_the_profile"));
        let found: u64 = found.map(count).sum();
        assert!(all > 100 && found * 10 > all * 9, "{found} of {all}:\n{folded}");
        assert!(folded.lines().all(|line| line.starts_with("masks;")), "{folded}");
    }
}
