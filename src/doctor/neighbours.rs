//! Measures the cores that other programs use.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::Duration;

use corelane::placement::Topology;
use corelane::pressure;
use rustix::param::clock_ticks_per_second;

use super::finding::{Finding, Severity};

/// How long the neighbours are measured. The kernel counts in units of 10 ms.
const NEIGHBOURS_TIME: Duration = Duration::from_millis(500);
/// Programs that use less than this many cores are not named.
const NEIGHBOUR_CORES_MIN: f64 = 0.05;
const NEIGHBOURS_SHOWN: usize = 3;
/// From this number of cores in use on, the finding is an advice.
const NEIGHBOURS_MANY: f64 = 0.3;

/// The cores that other programs and other virtual machines use now, measured for
/// [`NEIGHBOURS_TIME`].
pub fn neighbours(topology: &Topology) -> Finding {
    let own = || -> Duration { pressure::thread_times().values().map(|times| times.ran).sum() };
    let look = || (pressure::busy().saturating_sub(own()), pressure::stolen(), programs());
    let before = look();
    thread::sleep(NEIGHBOURS_TIME);
    let after = look();
    let cores =
        |now: Duration, then: Duration| now.saturating_sub(then).div_duration_f64(NEIGHBOURS_TIME);
    let mut busiest: Vec<(f64, &str)> = after
        .2
        .iter()
        .map(|(id, (name, ran))| {
            (cores(*ran, before.2.get(id).map_or(*ran, |(_, ran)| *ran)), &**name)
        })
        .filter(|(cores, _)| *cores >= NEIGHBOUR_CORES_MIN)
        .collect();
    busiest.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    neighbours_finding(
        topology.processors().len(),
        cores(after.0, before.0),
        cores(after.1, before.1),
        &busiest,
    )
}

/// The finding for `all` processors, of which other programs use `used` and other machines
/// `stolen`.
fn neighbours_finding(all: usize, used: f64, stolen: f64, busiest: &[(f64, &str)]) -> Finding {
    let names: Vec<String> = busiest
        .iter()
        .take(NEIGHBOURS_SHOWN)
        .map(|(cores, name)| format!("{name} {cores:.1}"))
        .collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    let stolen_by = match stolen >= NEIGHBOUR_CORES_MIN {
        true => format!("; other virtual machines on this hardware use {stolen:.1}"),
        false => String::new(),
    };
    let found = format!("other programs use {used:.1} of {all} processors{names}{stolen_by}");
    let finding = Finding::good("neighbours", found);
    if used + stolen < NEIGHBOURS_MANY {
        return finding;
    }
    finding.but(
        Severity::Advice,
        "they slow the server about in proportion to the cores that they use; give it cores of its \
         own, or the other programs a lower priority",
    )
}

/// The name and the processor time of each process, by its id.
fn programs() -> HashMap<String, (String, Duration)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let read = |entry: fs::DirEntry| {
        let id = entry.file_name().into_string().ok()?;
        if id.parse::<u32>().ok()? == std::process::id() {
            return None;
        }
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The program's name comes first, and may have spaces and parentheses. See
        // proc_pid_stat(5).
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let mut ticks = fields.split(' ').skip(11).map_while(|ticks| ticks.parse::<u64>().ok());
        let ran = (ticks.next()? + ticks.next()?) as f64 / clock_ticks_per_second() as f64;
        Some((id, (name.to_owned(), Duration::from_secs_f64(ran))))
    };
    processes.filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn neighbours_are_named_and_few_are_no_fault() {
        let quiet = neighbours_finding(2, 0.1, 0.0, &[(0.1, "sshd")]);
        assert_eq!(quiet.state, Severity::Good);
        assert_eq!(quiet.found, "other programs use 0.1 of 2 processors (sshd 0.1)");
        let busy = neighbours_finding(2, 1.0, 0.5, &[(1.0, "cc1plus")]);
        assert_eq!(busy.state, Severity::Advice);
        assert!(
            busy.found.ends_with("other virtual machines on this hardware use 0.5"),
            "{busy:?}"
        );
        let found = neighbours(&Topology::group(&[0, 1], Path::new("/nonexistent")));
        assert!(found.found.contains("of 2 processors"), "{found:?}");
    }
}
