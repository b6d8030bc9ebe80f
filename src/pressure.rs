//! The processor time that this process needed and did not get. Other programs on its cores had it,
//! other virtual machines on the same hardware, or its control group's limit stopped it.
//!
//! Everything is read from the kernel's files. A time that a kernel does not report counts as zero.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::cgroup::{Group, groups};

/// Times of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time on a core.
    pub ran: Duration,
    /// Time in the kernel's run queue: with work and without a core.
    pub queued: Duration,
}

/// The times of this process's threads by name, without threads that have ended. The compute
/// threads of a lane have its name.
pub fn thread_times() -> BTreeMap<String, ThreadTimes> {
    let mut times = BTreeMap::<String, ThreadTimes>::new();
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return times };
    for thread in threads.flatten() {
        let read = |file| fs::read_to_string(thread.path().join(file));
        let (Ok(name), Ok(text)) = (read("comm"), read("schedstat")) else { continue };
        let of = times.entry(name.trim().to_owned()).or_default();
        let thread = times_in(&text).unwrap_or_default();
        *of = ThreadTimes { ran: of.ran + thread.ran, queued: of.queued + thread.queued };
    }
    times
}

/// A file `schedstat` has the time on a core, the time in a queue, both in nanoseconds, and the
/// number of time slices.
fn times_in(text: &str) -> Option<ThreadTimes> {
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    let mut next = || Some(Duration::from_nanos(numbers.next()??));
    Some(ThreadTimes { ran: next()?, queued: next()? })
}

/// The steal time of all cores together since the machine started: the hypervisor gave a core to
/// another machine while this one had work. The resolution is a tick, 10 ms.
pub fn stolen() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    stolen_in(&stat, clock_ticks_per_second())
}

/// Sums the eighth number after `cpu`, which is `steal` in proc_stat(5).
fn stolen_in(stat: &str, ticks_per_second: u64) -> Duration {
    ticks(stat, ticks_per_second, steal)
}

/// The steal time of one core. Core 3 has a line `cpu3` with the same numbers.
fn stolen_from(core: usize, stat: &str, ticks_per_second: u64) -> Duration {
    let its = |line: &str| {
        let (number, times) = line.strip_prefix("cpu")?.split_once(' ')?;
        let is_its = number.parse() == Ok(core);
        is_its.then(|| ticks_in(times, ticks_per_second, steal))
    };
    stat.lines().find_map(its).unwrap_or_default()
}

fn steal(times: &[u64]) -> u64 {
    times.get(7).copied().unwrap_or(0)
}

/// The time in which the cores of this machine worked, for all programs together, since it started.
pub fn busy() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_in(&stat, clock_ticks_per_second())
}

/// All times but idle time and waits for disks (the fourth and fifth number) and steal time (the
/// eighth). The ninth and tenth are parts of the first and second.
fn busy_in(stat: &str, ticks_per_second: u64) -> Duration {
    let worked = |times: &[u64]| {
        let counted = times.iter().take(7).enumerate().filter(|(index, _)| !matches!(index, 3 | 4));
        counted.map(|(_, ticks)| ticks).sum()
    };
    ticks(stat, ticks_per_second, worked)
}

fn ticks(stat: &str, ticks_per_second: u64, choose: impl Fn(&[u64]) -> u64) -> Duration {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    ticks_in(all.unwrap_or_default(), ticks_per_second, choose)
}

/// The time that `choose` computes from the first eight numbers of a line.
fn ticks_in(line: &str, ticks_per_second: u64, choose: impl Fn(&[u64]) -> u64) -> Duration {
    let times: heapless::Vec<u64, 8> = // the later ones are not needed
        line.split_whitespace().map_while(|number| number.parse().ok()).take(8).collect();
    Duration::from_secs_f64(choose(&times) as f64 / ticks_per_second as f64)
}

/// The throttled time: the control group of this process, or a parent, stopped its processes
/// because their processor time was used up.
pub fn throttled() -> Duration {
    groups("cpu").iter().filter_map(throttled_in).max().unwrap_or_default()
}

/// `cpu.stat` has a line `throttled_usec 1200` in version 2, and `throttled_time 1200000` in
/// version 1, in nanoseconds.
fn throttled_in(group: &Group) -> Option<Duration> {
    throttled_of(&group.read("cpu.stat")?, group.is_v1)
}

fn throttled_of(text: &str, is_v1: bool) -> Option<Duration> {
    let find = |name| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().parse().ok()
    };
    match is_v1 {
        true => find("throttled_time ").map(Duration::from_nanos),
        false => find("throttled_usec ").map(Duration::from_micros),
    }
}

/// The time for which a thread of this process was in the run queue.
#[derive(Debug)]
pub struct Queued {
    /// Its `schedstat`; `None` if the kernel has none.
    file: Option<File>,
    before: Duration,
}

impl Queued {
    /// For the calling thread.
    pub fn of_this_thread() -> Self {
        Self::of(File::open("/proc/thread-self/schedstat").ok())
    }

    fn of(file: Option<File>) -> Self {
        let mut queued = Self { file, before: Duration::ZERO };
        queued.since_last();
        queued
    }

    /// The time in the run queue since the last call. It allocates nothing.
    pub fn since_last(&mut self) -> Duration {
        let mut text = [0; 64]; // three numbers of at most 20 digits
        let times = self.file.as_ref().and_then(|file| times_in(start_of(file, &mut text)));
        let now = times.map_or(self.before, |times| times.queued);
        now.saturating_sub(std::mem::replace(&mut self.before, now))
    }
}

/// Reads the start of a kernel file into `bytes`. Empty if that fails.
fn start_of<'a>(file: &File, bytes: &'a mut [u8]) -> &'a str {
    let read = file.read_at(bytes, 0).unwrap_or(0);
    str::from_utf8(&bytes[..read]).unwrap_or_default()
}

/// The time taken from the threads of a lane: time in the run queue, steal time, and throttled
/// time.
#[derive(Debug)]
pub struct Taken {
    own: Queued,
    /// For the other threads with the lane's name.
    others: Vec<Queued>,
    stat: Option<File>,
    /// The cores of these threads, and the steal time of each so far.
    cores: Vec<(usize, Duration)>,
    /// Each `cpu.stat`, and whether it is of version 1.
    groups: Vec<(File, bool)>,
    ticks_per_second: u64,
    throttled: Duration,
}

/// Bytes of `/proc/stat` that are read: the lines of some 200 cores.
const STAT_BYTES: usize = 16 << 10;

impl Taken {
    /// For the calling thread, and all others with its name.
    pub fn from_this_threads_name() -> Self {
        let own = fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
        let id = rustix::thread::gettid().as_raw_nonzero().to_string();
        let is_other = |thread: &fs::DirEntry| {
            thread.file_name().to_str() != Some(&*id)
                && fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name == own)
        };
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let others: Vec<fs::DirEntry> = threads.filter(is_other).collect();
        let number = |thread: &fs::DirEntry| thread.file_name().to_str()?.parse().ok();
        let ids = others.iter().filter_map(number).map(Pid::from_raw).chain([None]);
        let sets: Vec<CpuSet> = ids.filter_map(|id| sched_getaffinity(id).ok()).collect();
        let has = |core: &usize| sets.iter().any(|set| set.is_set(*core));
        let cores = (0..CpuSet::MAX_CPU).filter(has).map(|core| (core, Duration::ZERO)).collect();
        let open =
            |group: &Group| Some((File::open(group.folder.join("cpu.stat")).ok()?, group.is_v1));
        let mut taken = Self {
            own: Queued::of_this_thread(),
            others: others
                .iter()
                .map(|thread| Queued::of(File::open(thread.path().join("schedstat")).ok()))
                .collect(),
            stat: File::open("/proc/stat").ok(),
            groups: groups("cpu").iter().filter_map(open).collect(),
            cores,
            ticks_per_second: clock_ticks_per_second(),
            throttled: Duration::ZERO,
        };
        taken.since_last(true);
        taken
    }

    /// The longest of these times since the last call, because they overlap. With `leads`, one
    /// thread leads, and the other threads' time in the queue delays nothing. It allocates nothing.
    pub fn since_last(&mut self, leads: bool) -> Duration {
        let own = self.own.since_last();
        let others = self.others.iter_mut().map(Queued::since_last).max().unwrap_or_default();
        let mut bytes = [0; STAT_BYTES];
        let stat = self.stat.as_ref().map_or("", |file| start_of(file, &mut bytes));
        let of_group =
            |(file, is_v1): &(File, bool)| throttled_of(start_of(file, &mut [0; 512]), *is_v1);
        let throttled = self.groups.iter().filter_map(of_group).max().unwrap_or_default();
        let since = |now: Duration, before: &mut Duration| {
            now.saturating_sub(std::mem::replace(before, now))
        };
        let from_core = |(core, before): &mut (usize, Duration)| {
            since(stolen_from(*core, stat, self.ticks_per_second), before)
        };
        let stolen = self.cores.iter_mut().map(from_core).max().unwrap_or_default();
        // The kernel reports the sum over all cores.
        let threads = self.others.len() as u32 + 1; // at most THREADS_MAX
        let throttled = since(throttled, &mut self.throttled) / threads;
        let waited_for = if leads { Duration::ZERO } else { others };
        own.max(waited_for).max(stolen).max(throttled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::groups_in;

    #[test]
    fn the_kernels_files_are_understood() {
        let stat = "cpu  10 1 4 36 3 0 1 250 5 0\ncpu0 5 1 2 18 3 0 1 125 0 0\n";
        assert_eq!(stolen_in(stat, 100), Duration::from_millis(2500));
        assert_eq!(stolen_from(0, stat, 100), Duration::from_millis(1250));
        assert_eq!(stolen_from(1, stat, 100), Duration::ZERO, "there is no such core");
        assert_eq!(busy_in(stat, 100), Duration::from_millis(160));
        assert_eq!((stolen_in("", 100), busy_in("", 100)), (Duration::ZERO, Duration::ZERO));
        let times = times_in("1000 2000 3\n").unwrap();
        assert_eq!((times.ran.as_nanos(), times.queued.as_nanos()), (1000, 2000));
        assert_eq!(times_in("1000"), None);
    }

    #[test]
    fn the_most_throttled_group_counts() {
        let root = std::env::temp_dir().join(format!("corelane-throttled-{}", std::process::id()));
        for (path, text) in [
            ("a/cpu.stat", "usage_usec 9\nnr_throttled 2\nthrottled_usec 1500\n"),
            ("a/b/cpu.stat", "usage_usec 9\nthrottled_usec 20\n"),
            ("cpu/c/cpu.stat", "nr_throttled 2\nthrottled_time 7000\n"),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        for (groups, us) in [("0::/a/b\n", 1500), ("4:cpu:/c\n", 7), ("0::/none\n", 0)] {
            let found = groups_in(groups, "cpu", &root).iter().filter_map(throttled_in).max();
            assert_eq!(found.unwrap_or_default(), Duration::from_micros(us), "{groups}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    /// Two threads compete for one core, so one of them is in the run queue.
    #[test]
    fn a_thread_without_a_core_is_in_a_queue() {
        let core = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..1024).find(|core_of| core.is_set(*core_of)).unwrap();
        let queued = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| {
                scope.spawn(|| {
                    crate::placement::pin_this_thread(&[first]).unwrap();
                    let mut queued = Queued::of_this_thread();
                    let began = std::time::Instant::now();
                    while began.elapsed() < Duration::from_millis(100) {
                        std::hint::spin_loop();
                    }
                    queued.since_last()
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(queued[0] + queued[1] > Duration::from_millis(20), "{queued:?}");
    }
}
