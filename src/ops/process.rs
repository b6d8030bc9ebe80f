//! What the kernel knows of this process, read at each scrape.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Processor time, memory and files of this process.
#[derive(Debug, PartialEq)]
pub(super) struct Process {
    /// Processor time of all threads, in seconds.
    pub cpu_s: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Reserved addresses.
    pub virtual_bytes: u64,
    /// Its start, in seconds since 1970.
    pub started_s: f64,
    /// Open descriptors; `None` before Linux 6.2, where they would have to be counted one by one.
    pub open_files: Option<u64>,
    /// Most descriptors; `None` without a limit.
    pub most_files: Option<u64>,
}

/// The numbers of this process now; `None` without `/proc`.
pub(super) fn this() -> Option<Process> {
    // Computed once: the two clocks differ by some milliseconds each time, and a change means a restart.
    static STARTED_S: OnceLock<f64> = OnceLock::new();
    let ticks = clock_ticks_per_second() as f64;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let Stat { cpu_ticks, started_ticks, virtual_bytes, resident_pages } = Stat::read(&stat)?;
    let since_boot: f64 =
        fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
    let started_s = now - since_boot + started_ticks as f64 / ticks;
    Some(Process {
        cpu_s: cpu_ticks as f64 / ticks,
        resident_bytes: resident_pages * page_size() as u64,
        virtual_bytes,
        started_s: *STARTED_S.get_or_init(|| started_s),
        open_files: Some(fs::metadata("/proc/self/fd").ok()?.len()).filter(|count| *count > 0),
        most_files: getrlimit(Resource::Nofile).current,
    })
}

/// Fields of `/proc/PID/stat`, see proc_pid_stat(5).
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn read(stat: &str) -> Option<Self> {
        // The second field is a name in brackets, which may have spaces and brackets in it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // The manual counts from 1, and two fields are gone.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?, // in user and in kernel mode
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_stand_behind_the_last_bracket() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 140 15 16 17 18 19 20 21 2200 23000 24 25";
        let found = Stat::read(stat).unwrap();
        let expected =
            Stat { cpu_ticks: 155, started_ticks: 2200, virtual_bytes: 23000, resident_pages: 24 };
        assert_eq!(found, expected);
        assert_eq!(Stat::read("7 (a"), None);
        assert_eq!(Stat::read("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_memory_files_and_a_start() {
        let process = this().unwrap();
        assert!(process.resident_bytes > 1 << 20 && process.virtual_bytes > process.resident_bytes);
        assert!(process.open_files.is_none_or(|count| count >= 3));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(this().unwrap().started_s, process.started_s);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((0.0..86_400.0).contains(&(now - process.started_s)), "{process:?}");
    }
}
