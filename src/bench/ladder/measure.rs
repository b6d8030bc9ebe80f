//! Measures a rung: wall time, CPU time of each lane, CPU time stolen by other virtual machines,
//! and allocations.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;

use crate::memory::allocations_on_this_thread;

/// CPU time of this process's threads, by name. Threads that a lane starts (ggml's) inherit its
/// name.
type CpuTimes = BTreeMap<String, Duration>;

/// A running measurement.
pub struct Watch {
    began: Instant,
    cpu: CpuTimes,
    stolen: Duration,
    allocations: u64,
}

/// Totals of one kind of step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phase {
    /// Number of steps.
    pub steps: u64,
    /// Number of rows in these steps.
    pub rows: u64,
    /// Time of these steps.
    pub time: Duration,
}

impl Phase {
    /// Mean rows per step; `None` without steps.
    pub fn rows_mean(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.rows as f64 / self.steps as f64)
    }

    /// Rows per second; `None` without rows.
    pub fn rate(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.rows as f64 / self.time.as_secs_f64())
    }
}

/// The measurements of one run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Wall time.
    pub wall: Duration,
    /// CPU time of each lane that used any, by thread name.
    pub cpu: CpuTimes,
    /// CPU time on all cores together that the hypervisor gave to others while this machine wanted
    /// it.
    pub stolen: Duration,
    /// Rust heap allocations of the measuring thread.
    pub allocations: u64,
    /// Time inside `llama_decode`, on rungs 0 to 2. On higher rungs the lane's metrics have it.
    pub model: Duration,
    /// Steps with prompt rows only; measured on rung 0 only.
    pub prefill: Phase,
    /// Steps with one row for each sequence; measured on rung 0 only.
    pub decode: Phase,
}

impl Watch {
    /// Starts a measurement.
    pub fn start() -> Self {
        let (cpu, allocations) = (cpu_times(), allocations_on_this_thread());
        Self { cpu, stolen: stolen_time(), allocations, began: Instant::now() }
    }

    /// Ends the measurement. Call it on the thread that started it, or the allocations are wrong.
    pub fn stop(self) -> Measured {
        let wall = self.began.elapsed();
        let allocations = allocations_on_this_thread() - self.allocations;
        let mut cpu = cpu_times();
        for (name, time) in &mut cpu {
            *time = time.saturating_sub(self.cpu.get(name).copied().unwrap_or_default());
        }
        cpu.retain(|_, time| !time.is_zero());
        let stolen = stolen_time().saturating_sub(self.stolen);
        Measured { wall, cpu, stolen, allocations, ..Measured::default() }
    }
}

/// Reads the kernel scheduler's CPU times. Threads that have ended are missing.
fn cpu_times() -> CpuTimes {
    let mut times = CpuTimes::new();
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return times };
    for thread in threads.flatten() {
        let read = |file| fs::read_to_string(thread.path().join(file));
        let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else { continue };
        // schedstat holds the time on a CPU, the time waiting for one (both in nanoseconds), and
        // the time slices.
        let nanoseconds = stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        *times.entry(name.trim().to_owned()).or_default() += Duration::from_nanos(nanoseconds);
    }
    times
}

/// Stolen time of all cores since the machine started, in units of a tick (10 ms).
fn stolen_time() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    stolen_in(&stat, clock_ticks_per_second())
}

/// The eighth number after `cpu`, which is `steal` in proc_stat(5).
fn stolen_in(stat: &str, ticks_per_second: u64) -> Duration {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let steal = all.and_then(|times| times.split_whitespace().nth(7)?.parse::<u64>().ok());
    Duration::from_secs_f64(steal.unwrap_or(0) as f64 / ticks_per_second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stolen_is_read() {
        let stat = "cpu  10 1 4 36 3 0 1 250 0 0\ncpu0 5 1 2 18 3 0 1 125 0 0\n";
        assert_eq!(stolen_in(stat, 100), Duration::from_millis(2500));
        assert_eq!(stolen_in("", 100), Duration::ZERO);
    }

    #[test]
    fn the_cpu_time_of_a_named_thread_is_seen() {
        let work = || {
            let watch = Watch::start();
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
            watch.stop()
        };
        let thread = std::thread::Builder::new().name("busy-lane".into()).spawn(work).unwrap();
        let measured = thread.join().unwrap();
        assert!(measured.wall >= Duration::from_millis(30));
        assert!(measured.cpu["busy-lane"] <= measured.wall + Duration::from_millis(5));
        assert!(!measured.cpu["busy-lane"].is_zero());
    }
}
