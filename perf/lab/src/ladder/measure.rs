//! Measures a rung: wall time, CPU time of each lane, CPU time stolen by other virtual machines,
//! and allocations.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corelane::memory::allocations_on_this_thread;
use corelane::pressure::{stolen, thread_times};

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
        Self { cpu, stolen: stolen(), allocations, began: Instant::now() }
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
        let stolen = stolen().saturating_sub(self.stolen);
        Measured { wall, cpu, stolen, allocations, ..Measured::default() }
    }
}

/// Processor times of the threads. Those that have ended are missing.
fn cpu_times() -> CpuTimes {
    thread_times().into_iter().map(|(name, times)| (name, times.ran)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
