//! Takes samples of threads of this process through `perf_event_open`.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use perf_event::data::Record;
use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter, SampleFlag, Sampler};
use rustix::io::Errno;

use super::plan::Lane;
use super::stack::{Frame, Stack};
use crate::limits::{PROFILE_BUFFER_BYTES, PROFILE_DRAIN_INTERVAL};

/// Most threads of one profile: enough for the largest decode lane and all other lanes.
const PROFILE_THREADS_MAX: usize = 512;

/// Most different stacks of one profile; further ones count as lost. Each has at most 127 frames.
const PROFILE_STACKS_MAX: usize = 64 * 1024;

/// Samples, counted by stack.
pub struct Recording {
    pub stacks: HashMap<Stack, u64>,
    /// All samples.
    pub samples: u64,
    /// Samples that did not fit into the buffers.
    pub lost: u64,
    /// The event: `cycles`, or `cpu-clock` on machines without counters.
    pub event: &'static str,
    /// Whether the stacks include functions of the kernel.
    pub has_kernel: bool,
}

/// A method of sampling: by cycles or by a clock, with or without the kernel's functions.
#[derive(Clone, Copy)]
struct Method {
    cycles: bool,
    kernel: bool,
}

/// The methods, the best one first.
const METHODS: [Method; 4] = [
    Method { cycles: true, kernel: true },
    Method { cycles: false, kernel: true },
    Method { cycles: true, kernel: false },
    Method { cycles: false, kernel: false },
];

/// A thread that is sampled.
struct Watched {
    name: String,
    sampler: Sampler,
}

/// Samples the threads of a lane, this number of times a second, for some time.
///
/// # Errors
/// A sentence, if the kernel does not allow it.
pub fn record(lane: Lane, hz: u32, time: Duration) -> Result<Recording, String> {
    let threads = threads_of(lane)?;
    let (mut watched, method) = watch(&threads, hz)?;
    let mut recording = Recording {
        stacks: HashMap::new(),
        samples: 0,
        lost: 0,
        event: if method.cycles { "cycles" } else { "cpu-clock" },
        has_kernel: method.kernel,
    };
    let ends = Instant::now() + time;
    loop {
        let rest = ends.saturating_duration_since(Instant::now());
        thread::sleep(rest.min(PROFILE_DRAIN_INTERVAL));
        watched.iter_mut().for_each(|thread| recording.drain(thread));
        if rest.is_zero() {
            break;
        }
    }
    if recording.samples == 0 {
        return Err(format!(
            "the {} lane did not run in this time; send requests while it is profiled",
            lane.name()
        ));
    }
    Ok(recording)
}

/// The ids and names of a lane's threads.
fn threads_of(lane: Lane) -> Result<Vec<(i32, String)>, String> {
    let failed = |error: io::Error| format!("cannot list the threads in /proc/self/task: {error}");
    let mut threads = Vec::new();
    for task in fs::read_dir("/proc/self/task").map_err(failed)? {
        let task = task.map_err(failed)?;
        // A thread may have ended since.
        let Ok(name) = fs::read_to_string(task.path().join("comm")) else { continue };
        let id = task.file_name().to_string_lossy().parse();
        if let (true, Ok(id)) = (lane.has(name.trim()), id) {
            threads.push((id, name.trim().to_owned()));
        }
    }
    if threads.is_empty() {
        return Err(format!("there is no {} lane now", lane.name()));
    }
    if threads.len() > PROFILE_THREADS_MAX {
        let (found, most) = (threads.len(), PROFILE_THREADS_MAX);
        return Err(format!("the lane has {found} threads; a profile takes at most {most}"));
    }
    threads.sort_unstable();
    Ok(threads)
}

/// Starts to sample, by the best method that the kernel allows.
fn watch(threads: &[(i32, String)], hz: u32) -> Result<(Vec<Watched>, Method), String> {
    let mut refused = None;
    for method in METHODS {
        match method.watch(threads, hz) {
            Ok(watched) => return Ok((watched, method)),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.expect("there are methods").to_string())
}

/// Why threads cannot be sampled.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(
        "the kernel does not let this process take samples of itself: {0}. \
         kernel.perf_event_paranoid is {paranoid}; it must be 2 or less (sysctl \
         kernel.perf_event_paranoid=2), or the server needs CAP_PERFMON. A container or a systemd unit \
         may forbid perf_event_open, too (SystemCallFilter=perf_event_open allows it)",
        paranoid = paranoid()
    )]
    NotAllowed(io::Error),
    #[error(
        "the kernel locks no memory for the samples of {threads} threads, {kib} KiB for each: {error}. \
         Profile one lane, or raise kernel.perf_event_mlock_kb or the limit on locked memory (ulimit \
         -l, LimitMEMLOCK=)",
        kib = PROFILE_BUFFER_BYTES / 1024
    )]
    Memory { threads: usize, error: io::Error },
    #[error("cannot take samples: {0}")]
    Other(#[from] io::Error),
}

fn paranoid() -> String {
    let value = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    value.map_or_else(|_| "unknown".into(), |value| value.trim().to_owned())
}

impl Method {
    fn watch(self, threads: &[(i32, String)], hz: u32) -> Result<Vec<Watched>, Refused> {
        let mut watched = Vec::with_capacity(threads.len());
        for (id, name) in threads {
            let counter = match self.counter(*id, hz) {
                Ok(counter) => counter,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::SRCH) => continue, // it has ended since it was listed
                    Some(Errno::ACCESS | Errno::PERM | Errno::NOSYS) => {
                        return Err(Refused::NotAllowed(error));
                    }
                    _ => return Err(error.into()),
                },
            };
            let threads = threads.len();
            let mut sampler = counter
                .sampled(PROFILE_BUFFER_BYTES)
                .map_err(|error| Refused::Memory { threads, error })?;
            sampler.enable()?;
            watched.push(Watched { name: name.clone(), sampler });
        }
        Ok(watched)
    }

    fn counter(self, thread: i32, hz: u32) -> io::Result<Counter> {
        let mut builder = match self.cycles {
            true => Builder::new(Hardware::CPU_CYCLES),
            false => Builder::new(Software::CPU_CLOCK),
        };
        builder
            .observe_pid(thread)
            .any_cpu()
            .sample(SampleFlag::CALLCHAIN)
            .sample_frequency(hz.into())
            .exclude_kernel(!self.kernel)
            .exclude_callchain_kernel(!self.kernel)
            .exclude_hv(true)
            .build()
    }
}

impl Recording {
    /// Takes the samples of a thread out of its buffer.
    fn drain(&mut self, thread: &mut Watched) {
        while let Some(record) = thread.sampler.next_record() {
            match record.parse_record() {
                Ok(Record::Sample(sample)) => {
                    let frames = frames(sample.callchain().unwrap_or_default());
                    self.count(Stack { thread: thread.name.clone(), frames });
                }
                Ok(Record::Lost(lost)) => self.lost += lost.lost,
                _ => {}
            }
        }
    }

    fn count(&mut self, stack: Stack) {
        let is_full = self.stacks.len() >= PROFILE_STACKS_MAX;
        if is_full && !self.stacks.contains_key(&stack) {
            self.lost += 1;
            return;
        }
        self.samples += 1;
        *self.stacks.entry(stack).or_default() += 1;
    }
}

/// The frames of a call chain. Marks in it say whether the following addresses are the kernel's.
fn frames(chain: &[u64]) -> Vec<Frame> {
    // `PERF_CONTEXT_*` of linux/perf_event.h: small negative numbers.
    const KERNEL: u64 = -128i64 as u64;
    const MARKS: u64 = -4095i64 as u64;
    let mut in_kernel = false;
    let mut frames = Vec::with_capacity(chain.len());
    for address in chain {
        match *address {
            KERNEL => in_kernel = true,
            MARKS.. => in_kernel = false,
            address if in_kernel => frames.push(Frame::Kernel(address)),
            address => frames.push(Frame::User(address)),
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_the_kernel_and_the_program_apart() {
        let (kernel, user) = (-128i64 as u64, -512i64 as u64);
        let chain = [kernel, 0xffff_ffff_8100_0000, user, 0x5555_0000, 0x5555_1000];
        let expected = [
            Frame::Kernel(0xffff_ffff_8100_0000),
            Frame::User(0x5555_0000),
            Frame::User(0x5555_1000),
        ];
        assert_eq!(frames(&chain), expected);
        assert_eq!(frames(&[]), []);
    }
}
