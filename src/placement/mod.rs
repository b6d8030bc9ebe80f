//! Chooses the core of each lane.
//!
//! With four or more physical cores, the front lane has one of its own, and each other core has a
//! compute thread of the decode lane. With fewer cores the model needs all of them (on two cores,
//! one core is a quarter to a half of its speed). The front lane then shares the first core with a
//! compute thread, and sleeps between events instead of polling.
//!
//! If a control group allows less processor time than the cores have, or other instances have
//! claimed all cores, the lanes are not pinned.
//!
//! The decode lane's own thread gets the fastest core; among equally fast ones, the one with the
//! highest number. The other compute threads get the next cores in that order. So a step with fewer
//! threads uses neither slow cores nor the core that the front lane shares.

mod claims;
mod quota;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::kernels::compute;
pub use claims::Claims;
pub use quota::cpu_quota;

/// ggml's bound on threads (`GGML_MAX_N_THREADS`), and therefore on core numbers.
pub const CORES_MAX: usize = 512;
const _: () = assert!(CORES_MAX <= compute::THREADS_MAX);

/// Why the lanes are not pinned. [`Topology::place_beside`] knows two reasons.
pub fn why_not_pinned() -> String {
    let cores = Topology::read().map_or(0, |topology| topology.cores.len());
    match cpu_quota() {
        Some(quota) if quota < cores as f64 => {
            format!("the control group allows the time of {quota:.1} of {cores} cores")
        }
        _ => "another corelane runs on their cores".to_owned(),
    }
}

/// The kernel's files about processors.
const SYSFS: &str = "/sys/devices/system/cpu";

/// The cores of each lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The front lane's core.
    pub front_core: usize,
    /// The decode lane's cores in ascending order, with a compute thread on each.
    pub decode_cores: Vec<usize>,
    /// Whether the lanes stay on these cores. Otherwise the kernel moves them: only the number of
    /// cores counts.
    pub pinned: bool,
}

impl Placement {
    /// Whether the front lane shares its core with a compute thread.
    pub fn is_shared(&self) -> bool {
        !self.pinned || self.decode_cores.contains(&self.front_core)
    }

    /// All cores, including the front lane's, ascending.
    pub fn cores(&self) -> Vec<usize> {
        let mut cores = self.decode_cores.clone();
        cores.push(self.front_core);
        cores.sort_unstable();
        cores.dedup();
        cores
    }
}

/// The user's choices.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// `--front-core`
    pub front_core: Option<usize>,
    /// `--decode-cores`
    pub decode_cores: Option<Vec<usize>>,
    /// `--threads`
    pub threads: Option<usize>,
}

/// The processors that this process may use, grouped by physical core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The usable processors of each physical core, ascending.
    cores: Vec<Vec<usize>>,
}

/// If a quota exceeds a whole number of cores by this factor, one more thread is faster, although
/// the control group stops all threads when their time is used up.
const QUOTA_WORTH: f64 = 1.3;

/// The number of compute threads for a control group's quota, which is in cores.
fn threads_within(quota: f64) -> usize {
    let whole = (quota as usize).max(1);
    if quota >= QUOTA_WORTH * whole as f64 { whole + 1 } else { whole }
}

impl Topology {
    /// Reads the processors of this machine.
    ///
    /// # Errors
    /// If the kernel does not report them.
    pub fn read() -> Result<Self, String> {
        let allowed = sched_getaffinity(None)
            .map_err(|error| format!("cannot read which cores may be used: {error}"))?;
        let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        Ok(Self::group(&allowed, Path::new(SYSFS)))
    }

    /// Groups processors by physical core, as `sysfs` reports. A processor that it does not list
    /// counts as a core of its own.
    pub fn group(allowed: &[usize], sysfs: &Path) -> Self {
        let mut cores: BTreeMap<(String, usize), Vec<usize>> = BTreeMap::new();
        for cpu in allowed {
            let siblings = sysfs.join(format!("cpu{cpu}/topology/thread_siblings_list"));
            let key = match fs::read_to_string(siblings) {
                Ok(siblings) => (siblings.trim().to_owned(), 0),
                Err(_) => (String::new(), *cpu),
            };
            cores.entry(key).or_default().push(*cpu);
        }
        let mut cores: Vec<Vec<usize>> = cores.into_values().collect();
        cores.sort();
        Self { cores }
    }

    /// The first usable processor of each physical core.
    pub fn cores(&self) -> Vec<usize> {
        self.cores.iter().map(|threads| threads[0]).collect()
    }

    /// Most hardware threads of a physical core.
    pub fn threads_per_core(&self) -> usize {
        self.cores.iter().map(Vec::len).max().unwrap_or(1)
    }

    /// Every processor.
    pub fn processors(&self) -> Vec<usize> {
        self.all()
    }

    /// Places the lanes like [`Topology::place`], beside other programs: `free` are the processors
    /// that no other instance has claimed, and `quota` is the processor time that the control group
    /// allows. The user's choices override both.
    ///
    /// # Errors
    /// As [`Topology::place`].
    pub fn place_beside(
        &self,
        wishes: &Wishes,
        free: &[usize],
        quota: Option<f64>,
    ) -> Result<Placement, String> {
        if wishes.front_core.is_some() || wishes.decode_cores.is_some() {
            return self.place(wishes);
        }
        let is_free = |threads: &&Vec<usize>| threads.iter().all(|cpu| free.contains(cpu));
        let cores: Vec<Vec<usize>> = self.cores.iter().filter(is_free).cloned().collect();
        let all_taken = cores.is_empty();
        let usable = if all_taken { self.clone() } else { Self { cores } };
        let alone = usable.place(wishes)?;
        let is_whole = quota.is_none_or(|quota| quota >= usable.cores.len() as f64);
        if is_whole && !all_taken {
            return Ok(alone);
        }
        let allowed = wishes.threads.or(quota.map(threads_within)).unwrap_or(usize::MAX);
        // Do not pin: under a quota, or on cores that other instances use, pinned threads would
        // wait for each other.
        let cores = usable.cores[..allowed.min(usable.cores.len())].to_vec();
        let placement = Self { cores }.place(&Wishes::default())?;
        let mut decode_cores = placement.cores();
        if let Some(threads) = wishes.threads {
            decode_cores.truncate(threads);
        }
        Ok(Placement { decode_cores, pinned: false, ..placement })
    }

    fn has(&self, cpu: usize) -> bool {
        self.cores.iter().any(|threads| threads.contains(&cpu))
    }

    fn all(&self) -> Vec<usize> {
        let mut all = self.cores.concat();
        all.sort_unstable();
        all
    }

    /// Places the lanes.
    ///
    /// # Errors
    /// A sentence for the user if a choice cannot be met.
    pub fn place(&self, wishes: &Wishes) -> Result<Placement, String> {
        let wished = wishes.front_core.iter().map(|core| ("--front-core", *core));
        let decode = wishes.decode_cores.iter().flatten().map(|core| ("--decode-cores", *core));
        for (flag, core) in wished.chain(decode) {
            if !self.has(core) || core >= CORES_MAX {
                return Err(format!(
                    "{flag} {core}: there is no such core, or this process may not use it; \
                     it may use {}",
                    format_list(&self.all())
                ));
            }
        }
        // One processor of each physical core: two threads of a core would share the units that the
        // model keeps busy.
        let mut representatives: Vec<usize> =
            self.cores.iter().map(|threads| threads[0]).filter(|cpu| *cpu < CORES_MAX).collect();
        let front_core = match (wishes.front_core, &wishes.decode_cores) {
            (Some(core), _) => core,
            // A core that the user left free, if there is one.
            (None, Some(decode)) => {
                let free = representatives.iter().find(|cpu| !decode.contains(cpu));
                *free.or(decode.first()).ok_or("--decode-cores is empty; it names cores: 1-3,6")?
            }
            (None, None) => *representatives.first().ok_or("no core may be used")?,
        };
        let mut decode_cores = match &wishes.decode_cores {
            Some(cores) => cores.clone(),
            None => {
                if representatives.len() >= 4 {
                    let beside = |threads: &&Vec<usize>| !threads.contains(&front_core);
                    representatives = self.cores.iter().filter(beside).map(|t| t[0]).collect();
                }
                representatives
            }
        };
        decode_cores.sort_unstable();
        decode_cores.dedup();
        if let Some(threads) = wishes.threads {
            if threads == 0 || threads > decode_cores.len() {
                return Err(format!(
                    "--threads {threads}: from 1 to {} compute threads fit, one on each of \
                     the cores {}; name other cores with --decode-cores",
                    decode_cores.len(),
                    format_list(&decode_cores)
                ));
            }
            // The first core may be the front lane's. It comes last unless it is faster than
            // others.
            decode_cores = fastest_first(&decode_cores, Path::new(SYSFS));
            decode_cores.truncate(threads);
            decode_cores.sort_unstable();
        }
        Ok(Placement { front_core, decode_cores, pinned: true })
    }

    /// The processors for housekeeping threads: the front lane's physical core and unused cores,
    /// but no physical core of the decode lane. All processors if the decode lane has every core.
    pub fn housekeeping(&self, placement: &Placement) -> Vec<usize> {
        let computes =
            |threads: &&Vec<usize>| threads.iter().any(|cpu| placement.decode_cores.contains(cpu));
        let free: Vec<usize> =
            self.cores.iter().filter(|t| !computes(t)).flatten().copied().collect();
        // The front lane polls on its own processor while there is work.
        let beside: Vec<usize> =
            free.iter().copied().filter(|cpu| *cpu != placement.front_core).collect();
        [beside, free].into_iter().find(|cores| !cores.is_empty()).unwrap_or_else(|| self.all())
    }
}

/// The core of each compute thread. The fastest core is last, for the lane's own thread. The others
/// are in descending order of speed; of equally fast ones, those with higher numbers come first.
pub fn by_speed(cores: &[usize]) -> Vec<usize> {
    in_order_of(cores, Path::new(SYSFS))
}

fn in_order_of(cores: &[usize], sysfs: &Path) -> Vec<usize> {
    let mut cores = fastest_first(cores, sysfs);
    let owners = cores.len().min(1);
    cores.rotate_left(owners);
    cores
}

fn fastest_first(cores: &[usize], sysfs: &Path) -> Vec<usize> {
    let mut cores = cores.to_vec();
    cores.sort_by_key(|cpu| Reverse((speed(*cpu, sysfs), *cpu)));
    cores
}

/// A processor's speed, to compare it with others of the machine: its capacity, which the kernel
/// reports on machines with different cores, or else its highest frequency. 0 if neither is known.
fn speed(cpu: usize, sysfs: &Path) -> u64 {
    let read = |file: &str| {
        fs::read_to_string(sysfs.join(format!("cpu{cpu}/{file}"))).ok()?.trim().parse().ok()
    };
    read("cpu_capacity").or_else(|| read("cpufreq/cpuinfo_max_freq")).unwrap_or(0)
}

/// The lowest priority (nice value): about a sixtieth of a contended processor.
pub const LAST: i32 = 19;

/// The priority (nice value) of threads that compile constraints, compute slow masks or embeddings:
/// about a quarter of a processor that streams need, too.
pub const BESIDE_STREAMS: i32 = 5;

/// The priority (nice value) of work that may take long: about a tenth of a processor that streams
/// need, too.
pub const BEHIND_STREAMS: i32 = 10;

/// Lowers the priority of the calling thread, and of the threads it starts. Ignores a refusal.
pub fn yield_to_others(priority: i32) {
    // On Linux a priority belongs to a thread, despite POSIX.
    let _ = rustix::process::setpriority_process(None, priority);
}

/// Reads a list of cores in Linux's form: `1-3,6`.
///
/// # Errors
/// If the text has another form.
pub fn parse_list(list: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("{list:?} is not a list of cores; one looks like 1-3,6");
    let mut cores = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last >= CORES_MAX {
            return Err(wrong());
        }
        cores.extend(first..=last);
    }
    Ok(cores)
}

/// Pins the calling thread to some cores.
///
/// # Errors
/// If the kernel refuses.
pub fn pin_this_thread(cores: &[usize]) -> Result<(), String> {
    let pinned = compute::pin_this_thread(cores);
    pinned.map_err(|error| format!("cannot run on the cores {}: {error}", format_list(cores)))
}

/// Writes a list of cores in the form of [`parse_list`].
pub fn format_list(cores: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => ranges.push((*core, *core)),
        }
    }
    let range = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(cores: &[&[usize]]) -> Topology {
        Topology { cores: cores.iter().map(|threads| threads.to_vec()).collect() }
    }

    fn place(topology: &Topology, wishes: &Wishes) -> (usize, Vec<usize>, bool) {
        let placement = topology.place(wishes).unwrap();
        let shared = placement.is_shared();
        (placement.front_core, placement.decode_cores, shared)
    }

    #[test]
    fn below_four_cores_the_front_lane_shares() {
        let default = Wishes::default();
        assert_eq!(place(&topology(&[&[0]]), &default), (0, vec![0], true));
        assert_eq!(place(&topology(&[&[0], &[1]]), &default), (0, vec![0, 1], true));
        assert_eq!(place(&topology(&[&[0, 1], &[2, 3]]), &default), (0, vec![0, 2], true));
        assert_eq!(place(&topology(&[&[0], &[1], &[2]]), &default), (0, vec![0, 1, 2], true));
    }

    #[test]
    fn from_four_cores_on_it_has_its_own() {
        let default = Wishes::default();
        let four = topology(&[&[0], &[1], &[2], &[3]]);
        assert_eq!(place(&four, &default), (0, vec![1, 2, 3], false));
        let smt = topology(&[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]);
        assert_eq!(place(&smt, &default), (0, vec![1, 2, 3], false));
        // A core of its own is a whole physical core.
        let wishes = Wishes { front_core: Some(6), ..Wishes::default() };
        assert_eq!(place(&smt, &wishes), (6, vec![0, 1, 3], false));
    }

    #[test]
    fn wishes_are_met() {
        let two = topology(&[&[0], &[1]]);
        let wishes = Wishes { threads: Some(1), ..Wishes::default() };
        assert_eq!(place(&two, &wishes), (0, vec![1], false));
        let wishes = Wishes { decode_cores: Some(vec![0]), ..Wishes::default() };
        assert_eq!(place(&two, &wishes), (1, vec![0], false));
        let wishes = Wishes { front_core: Some(1), decode_cores: Some(vec![1]), threads: None };
        assert_eq!(place(&two, &wishes), (1, vec![1], true));
    }

    #[test]
    fn impossible_wishes_are_refused_with_what_is_possible() {
        let two = topology(&[&[0], &[1]]);
        let wishes = Wishes { front_core: Some(7), ..Wishes::default() };
        assert_eq!(
            two.place(&wishes).unwrap_err(),
            "--front-core 7: there is no such core, or this process may not use it; \
             it may use 0-1"
        );
        let wishes = Wishes { threads: Some(3), ..Wishes::default() };
        assert!(two.place(&wishes).unwrap_err().starts_with("--threads 3: from 1 to 2"));
    }

    #[test]
    fn a_thread_more_than_a_quota_allows_must_be_worth_its_pauses() {
        let threads = [0.5, 1.0, 1.2, 1.5, 2.0, 2.5, 2.7, 3.9, 4.0, 7.9].map(threads_within);
        assert_eq!(threads, [1, 1, 1, 2, 2, 2, 3, 3, 4, 7]);
    }

    #[test]
    fn a_quota_and_other_instances_leave_fewer_cores() {
        let cores: Vec<Vec<usize>> = (0..64).map(|core| vec![core]).collect();
        let many = Topology { cores };
        let all: Vec<usize> = (0..64).collect();
        let place =
            |free: &[usize], quota| many.place_beside(&Wishes::default(), free, quota).unwrap();
        let whole = place(&all, None);
        assert_eq!((whole.decode_cores.len(), whole.pinned), (63, true));
        let docker = place(&all, Some(2.0));
        assert_eq!((docker.decode_cores, docker.pinned), (vec![0, 1], false));
        assert_eq!(place(&all, Some(0.5)).decode_cores, [0]);
        assert!(place(&all, Some(64.0)).pinned);
        let wishes = Wishes { threads: Some(5), ..Wishes::default() };
        let ordered = many.place_beside(&wishes, &all, Some(1.0)).unwrap();
        assert_eq!(ordered.decode_cores, [0, 1, 2, 3, 4], "as the user said");
        // Beside an instance on the first 60 cores, and beside one on all of them.
        let second = place(&[60, 61, 62, 63], None);
        assert_eq!((second.front_core, second.decode_cores), (60, vec![61, 62, 63]));
        let third = place(&[], None);
        assert_eq!((third.decode_cores.len(), third.pinned), (64, false));
        let wishes = Wishes { decode_cores: Some(vec![3]), ..Wishes::default() };
        assert!(many.place_beside(&wishes, &[], Some(2.0)).unwrap().pinned, "as the user said");
    }

    #[test]
    fn housekeeping_keeps_off_the_decode_lane_where_it_can() {
        let of = |cores: &[&[usize]]| {
            let topology = topology(cores);
            topology.housekeeping(&topology.place(&Wishes::default()).unwrap())
        };
        assert_eq!(of(&[&[0], &[1]]), [0, 1], "the decode lane has them all");
        assert_eq!(of(&[&[0], &[1], &[2], &[3]]), [0], "beside the front lane");
        assert_eq!(of(&[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]), [4], "on its other thread");
        let two = topology(&[&[0], &[1]]);
        let placement = two.place(&Wishes { threads: Some(1), ..Wishes::default() }).unwrap();
        assert_eq!(two.housekeeping(&placement), [0]);
    }

    #[test]
    fn siblings_are_read_from_sysfs() {
        let dir = std::env::temp_dir().join(format!("corelane-topology-{}", std::process::id()));
        for (cpu, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            let folder = dir.join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("thread_siblings_list"), format!("{siblings}\n")).unwrap();
        }
        let grouped = Topology::group(&[0, 1, 2, 3, 4], &dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(grouped, topology(&[&[0, 2], &[1, 3], &[4]]));
    }

    #[test]
    fn slow_cores_are_the_first_to_be_left_out() {
        let dir = std::env::temp_dir().join(format!("corelane-speeds-{}", std::process::id()));
        assert_eq!(in_order_of(&[0, 1, 2, 3], &dir), [2, 1, 0, 3], "all alike");
        // Two fast cores, and two slow ones, as the kernel describes either kind of machine.
        for file in ["cpufreq/cpuinfo_max_freq", "cpu_capacity"] {
            for (cpu, speed) in [(0, "1024"), (1, "1024"), (2, "600"), (3, "600")] {
                let path = dir.join(format!("cpu{cpu}/{file}"));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{speed}\n")).unwrap();
            }
            assert_eq!(in_order_of(&[0, 1, 2, 3], &dir), [0, 3, 2, 1], "{file}");
        }
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(in_order_of(&[], &dir), [] as [usize; 0]);
    }

    #[test]
    fn lists_are_read_and_written() {
        assert_eq!(parse_list("1-3,6").unwrap(), [1, 2, 3, 6]);
        assert_eq!(format_list(&[1, 2, 3, 6]), "1-3,6");
        for bad in ["", "a", "3-1", "1-", "1,,2", "-1", "9999"] {
            assert!(parse_list(bad).is_err(), "{bad:?}");
        }
    }
}
