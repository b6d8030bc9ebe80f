//! Checks this machine: one finding for each property that matters to a server, with the
//! recommended change.
//!
//! Files of the kernel are read below a root folder, so that tests can describe other machines.

mod finding;
mod neighbours;

use std::fs;
use std::io::{self, Read, Write};
use std::iter;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use corelane::config::ServeConfig;
use corelane::kernels::{InstructionSet, KernelChoice};
use corelane::lanes;
use corelane::memory::{self, gib};
use corelane::model::load::{self, Source};
use corelane::ops;
use corelane::placement::{Topology, cpu_quota, format_list};
use corelane::server::kernel;
use corelane::server::listener::{self, is_unix};
use corelane::types::IoChoice;
use rustix::process::{Resource, getrlimit};

pub use finding::{Finding, Severity};
pub use neighbours::neighbours;

/// Connections that a server should be able to hold.
const FILES_WANTED: u64 = 4096;
/// The time and the bytes that a program on an address gets to answer who it is.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// The files of the kernel.
pub struct Kernel {
    root: PathBuf,
}

impl Default for Kernel {
    fn default() -> Self {
        Self { root: "/".into() }
    }
}

impl Kernel {
    fn read(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.root.join(path)).ok()?.trim().to_owned())
    }

    /// The processors that the kernel has, ascending.
    fn processors(&self) -> Vec<PathBuf> {
        let folder = self.root.join("sys/devices/system/cpu");
        let mut found: Vec<(usize, PathBuf)> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some((name.strip_prefix("cpu")?.parse().ok()?, entry.path()))
            })
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// The processor's name.
    fn model(&self) -> String {
        let text = self.read("proc/cpuinfo").unwrap_or_default();
        let name = text.lines().find_map(|line| line.strip_prefix("model name"));
        name.map_or("unknown", |name| name.trim_start_matches([' ', '\t', ':'])).to_owned()
    }

    /// Everything about the machine that does not depend on the model.
    pub fn examine(&self, topology: &Topology, quota: Option<f64>, io: IoChoice) -> Vec<Finding> {
        let mut findings = vec![self.cores(topology)];
        findings.push(self.isolation(topology));
        findings.push(quota_finding(topology, quota));
        findings.extend(self.governor());
        findings.extend(self.turbo());
        findings.extend(self.memory_limits());
        findings.push(self.sockets(io));
        findings
    }

    fn cores(&self, topology: &Topology) -> Finding {
        let usable = topology.processors();
        let all = self.processors().len();
        let nodes = self.read("sys/devices/system/node/online").unwrap_or("0".into());
        let siblings = match topology.threads_per_core() {
            1 => String::new(),
            n => format!(", each with {n} hardware threads, of which one computes"),
        };
        let found = format!(
            "{}: {} physical cores{siblings}; processors {} of {all} may be used; NUMA nodes {nodes}",
            self.model(),
            topology.cores().len(),
            format_list(&usable),
        );
        let finding = Finding::good("cores", found);
        if nodes.contains(['-', ',']) {
            let advice = "one server on all nodes reads half of its weights from the other node's \
                          memory; start one on each node";
            return finding
                .but(Severity::Advice, advice)
                .command("systemctl enable --now corelane@0 corelane@1");
        }
        finding
    }

    /// Isolated cores: the kernel places no threads on them by itself.
    fn isolation(&self, topology: &Topology) -> Finding {
        let isolated = self.read("sys/devices/system/cpu/isolated").filter(|list| !list.is_empty());
        if let Some(list) = isolated {
            return Finding::good(
                "isolated cores",
                format!(
                    "{list}; start the server with taskset \
                                                             or CPUAffinity= to use them"
                ),
            );
        }
        let finding = Finding::good("isolated cores", "none");
        let cores = topology.cores();
        if cores.len() < 4 {
            return finding;
        }
        let list = format_list(&cores[1..]);
        finding
            .but(
                Severity::Advice,
                "other programs and interrupts may run on the lanes' cores; for the steadiest \
                 tokens keep them away on the kernel's command line, and start the server with \
                 CPUAffinity=",
            )
            .command(format!("isolcpus=managed_irq,domain,{list} nohz_full={list}"))
    }

    fn governor(&self) -> Option<Finding> {
        let of = |path: &PathBuf| {
            let text = fs::read_to_string(path.join("cpufreq/scaling_governor")).ok()?;
            Some(text.trim().to_owned())
        };
        let mut governors: Vec<String> = self.processors().iter().filter_map(of).collect();
        governors.sort_unstable();
        governors.dedup();
        if governors.is_empty() {
            return None; // a virtual machine does not see it
        }
        let finding = Finding::good("frequency governor", governors.join(", "));
        if governors == ["performance"] {
            return Some(finding);
        }
        let advice = "cores slow down while a request waits for the next one, and take \
                      milliseconds to speed up again";
        Some(finding.but(Severity::Advice, advice).command("cpupower frequency-set -g performance"))
    }

    fn turbo(&self) -> Option<Finding> {
        let (path, on) = [
            ("sys/devices/system/cpu/cpufreq/boost", "1"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "0"),
        ]
        .into_iter()
        .find(|(path, _)| self.root.join(path).exists())?;
        if self.read(path)? == on {
            return Some(Finding::good("turbo", "on"));
        }
        let finding = Finding::good("turbo", "off").but(
            Severity::Advice,
            "products of large batches are slower without it; keep it off only where times must \
             not vary with the temperature",
        );
        Some(finding.command(format!("echo {on} > /{path}")))
    }

    fn memory_limits(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let finding = Finding::good("open files", format!("at most {files}"));
        findings.push(if files < FILES_WANTED {
            finding
                .but(Severity::Advice, "each connection is a file")
                .command("ulimit -Hn 65536, or LimitNOFILE=65536 in the unit")
        } else {
            finding
        });
        if let Some(text) = self.read("sys/kernel/mm/transparent_hugepage/enabled") {
            let chosen = text.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
            // No advice: on our machines the speed is the same with each setting.
            findings.push(Finding::good("huge pages", chosen));
        }
        findings
    }

    fn sockets(&self, io: IoChoice) -> Finding {
        let release = self.read("proc/sys/kernel/osrelease").unwrap_or("unknown".into());
        let finding = |io| Finding::good("sockets", format!("{io} on Linux {release}"));
        match kernel::choose_io(io) {
            Ok((io, None)) => finding(io.name()),
            Ok((io, Some(missing))) => finding(io.name()).but(Severity::Advice, missing),
            Err(missing) => finding("no io_uring").but(Severity::Bad, missing),
        }
    }
}

fn quota_finding(topology: &Topology, quota: Option<f64>) -> Finding {
    let cores = topology.cores().len();
    let Some(quota) = quota else { return Finding::good("processor time", "no limit") };
    let finding = Finding::good("processor time", format!("{quota:.1} of {cores} cores"));
    if quota >= cores as f64 {
        return finding;
    }
    let advice = "the control group stops the server in the middle of steps when its time is used \
                  up; give it whole cores instead of a share of all";
    finding
        .but(Severity::Bad, advice)
        .command("AllowedCPUs= in place of CPUQuota=, or --cpuset-cpus")
}

/// The kernels that would run, and the machine's limits. Also returns the bytes of memory that it
/// reads in a second, if that was measured.
pub fn speed(
    topology: &Topology,
    choice: KernelChoice,
    measure: bool,
) -> (Vec<Finding>, Option<f64>) {
    let llama = Finding::good("kernels", "llama.cpp's");
    let set = match choice {
        KernelChoice::Auto => InstructionSet::best(),
        choice => choice.instruction_set(),
    };
    let Some(set) = set else {
        let finding = match choice {
            KernelChoice::Auto if cfg!(target_arch = "x86_64") => llama.but(
                Severity::Advice,
                "this processor has none of AVX2, AVX-VNNI and AVX-512 VNNI, for which there are \
                 faster kernels",
            ),
            _ => llama, // the user asked for it
        };
        return (vec![finding], None);
    };
    let kernels = Finding::good("kernels", set.name());
    if !measure {
        return (vec![kernels], None);
    }
    let (rates, bytes_per_s) = measured(topology, set);
    (iter::once(kernels).chain(rates).collect(), bytes_per_s)
}

/// The rates of memory and of arithmetic. They are measured with corelane's own kernels, which are
/// for x86-64.
#[cfg(target_arch = "x86_64")]
fn measured(topology: &Topology, set: InstructionSet) -> (Vec<Finding>, Option<f64>) {
    /// More than one core's share of the last-level cache.
    const BYTES: u64 = 64 << 20;
    let cores = topology.cores();
    let room = memory::available_bytes() / 4 / cores.len() as u64;
    let rates = corelane::kernels::machine::rates(set, &cores, BYTES.min(room) as usize);
    let memory = format!("{:.1} GB/s, by all cores together", rates.bytes_per_s / 1e9);
    let arithmetic = format!("{:.2} T multiply-adds/s", rates.multiply_adds_per_s / 1e12);
    let findings =
        vec![Finding::good("memory bandwidth", memory), Finding::good("int8 rate", arithmetic)];
    (findings, Some(rates.bytes_per_s))
}

#[cfg(not(target_arch = "x86_64"))]
fn measured(_: &Topology, _: InstructionSet) -> (Vec<Finding>, Option<f64>) {
    (Vec::new(), None)
}

/// Whether the model fits into memory, and an upper bound on its speed.
pub fn model(source: &Source, config: &ServeConfig, bytes_per_s: Option<f64>) -> Finding {
    let info = match load::outline(source) {
        Ok(info) => info,
        Err(error) => {
            let name = match source {
                Source::File(path) => path.display().to_string(),
                Source::BuiltIn => "the built-in model".into(),
            };
            return Finding::good("model", name).but(Severity::Bad, error.to_string());
        }
    };
    let weight_bytes = info.size_bytes
        + match source {
            Source::File(path) => load::bytes_added(path),
            Source::BuiltIn => 0,
        };
    let available = memory::available_bytes();
    let requests = memory::request_bytes(config.request_memory, available) as u64;
    let after_weights = available.saturating_sub(weight_bytes);
    let context = lanes::choose_context(config, &info, None, requests, after_weights);
    let weights = gib(weight_bytes);
    let most = bytes_per_s.map_or(String::new(), |rate| {
        format!(
            "; one stream gets at most {:.0} tokens/s if each token needs all weights",
            rate / weight_bytes as f64
        )
    });
    let found = |cache: String| {
        format!(
            "{}: {weights:.2} GiB of weights{cache}, {:.2} GiB for requests; {:.1} GiB are \
             available{most}",
            info.name,
            gib(requests),
            gib(available)
        )
    };
    let has_window = info.window > 0 && config.cache.unified && !config.cache.swa_full;
    match context {
        Ok(tokens) => {
            let bytes = f64::from(tokens) * info.kv_bytes_per_token as f64;
            let cache = gib((bytes * config.cache.relative_size()) as u64);
            let most = if has_window { "at most " } else { "" };
            let cache = format!(", {most}{cache:.2} GiB of KV cache ({tokens} tokens)");
            Finding::good("model", found(cache))
        }
        Err(error) if has_window => Finding::good("model", found(String::new())).but(
            Severity::Advice,
            format!("{error}; its layers with a sliding window take less, so try it"),
        ),
        Err(error) => Finding::good("model", found(String::new())).but(Severity::Bad, error),
    }
}

/// Whether the addresses are free, or in use by a running corelane.
pub fn ports(config: &ServeConfig) -> Vec<Finding> {
    let free = |address: &str, bound: Result<(), String>| match bound {
        Ok(()) => Finding::good("address", format!("{address} is free")),
        Err(_) if is_corelane(address) => {
            Finding::good("address", format!("{address} is that of a running corelane"))
        }
        Err(error) => Finding::good("address", address)
            .but(Severity::Bad, error)
            .command("ss -ltnp shows who listens; --port and --ops-addr choose another"),
    };
    let hosts = config.hosts.iter().filter(|host| !is_unix(host)).map(|host| {
        let bound = listener::bind(std::slice::from_ref(host), config.port).map(drop);
        free(&format!("{host}:{}", config.port), bound)
    });
    let ops = config.ops_addr.iter().map(|address| free(address, ops::bind(address).map(drop)));
    hosts.chain(ops).collect()
}

/// Whether the program that listens there is corelane: `/v1/models` says so on the API's port, and
/// `/metrics` on the ops port.
fn is_corelane(address: &str) -> bool {
    let asked = |path: &str| -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ASK_TIMEOUT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        Ok(answer)
    };
    let names_itself = |path| asked(path).is_ok_and(|answer| answer.contains("corelane"));
    names_itself("/v1/models") || names_itself("/metrics")
}

/// The bad findings, which a server logs at its start.
pub fn worst() -> Vec<Finding> {
    let Ok(topology) = Topology::read() else { return Vec::new() };
    let mut findings = Kernel::default().examine(&topology, cpu_quota(), IoChoice::Auto);
    findings.retain(|finding| finding.state == Severity::Bad);
    findings
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;

    use corelane::lanes::Server;
    use corelane::placement::Wishes;

    use super::*;

    /// A machine that is described by files.
    fn machine(name: &str, files: &[(&str, &str)]) -> Kernel {
        let root =
            std::env::temp_dir().join(format!("corelane-doctor-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Kernel { root }
    }

    fn topology(cores: usize) -> Topology {
        let none = Path::new("/nonexistent");
        Topology::group(&(0..cores).collect::<Vec<_>>(), none)
    }

    fn finding<'a>(findings: &'a [Finding], name: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.name == name).expect(name)
    }

    #[test]
    fn a_server_with_two_sockets_and_a_slow_governor() {
        let kernel = machine(
            "two",
            &[
                ("proc/cpuinfo", "processor\t: 0\nmodel name\t: Test 9000\n"),
                ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
                ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
                ("sys/devices/system/cpu/isolated", "\n"),
                ("sys/devices/system/cpu/cpufreq/boost", "0\n"),
                ("sys/devices/system/node/online", "0-1\n"),
                ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ],
        );
        let findings = kernel.examine(&topology(8), Some(1.5), IoChoice::Auto);
        let cores = finding(&findings, "cores");
        assert!(cores.found.contains("Test 9000") && cores.found.contains("of 2"), "{cores:?}");
        assert_eq!(cores.state, Severity::Advice, "two nodes");
        let governor = finding(&findings, "frequency governor");
        assert_eq!(
            (&*governor.found, governor.state),
            ("performance, powersave", Severity::Advice)
        );
        let isolated = finding(&findings, "isolated cores").command.as_deref();
        assert_eq!(isolated, Some("isolcpus=managed_irq,domain,1-7 nohz_full=1-7"));
        let turbo = finding(&findings, "turbo").command.as_deref();
        assert_eq!(turbo, Some("echo 1 > /sys/devices/system/cpu/cpufreq/boost"));
        assert_eq!(finding(&findings, "huge pages").found, "madvise");
        let time = finding(&findings, "processor time");
        assert_eq!((&*time.found, time.state), ("1.5 of 8 cores", Severity::Bad));
        fs::remove_dir_all(kernel.root).unwrap();
    }

    #[test]
    fn a_machine_that_tells_little_is_not_blamed() {
        let findings = machine("bare", &[]).examine(&topology(2), None, IoChoice::Auto);
        let of_machine = |finding: &&Finding| !matches!(finding.name, "sockets" | "open files");
        assert!(findings.iter().filter(of_machine).all(|finding| finding.state == Severity::Good));
    }

    #[test]
    fn a_model_that_does_not_fit_and_a_port_that_is_taken_are_bad() {
        let config =
            ServeConfig { context_tokens: Some(64 << 20), parallel: 8, ..ServeConfig::default() };
        let found = model(&Source::BuiltIn, &config, Some(1e9));
        assert_eq!(found.state, Severity::Bad);
        assert!(found.advice.unwrap().contains("--ctx-size 67108864 needs"));
        let fits = model(&Source::BuiltIn, &ServeConfig::default(), Some(1e9));
        assert_eq!(fits.state, Severity::Good, "{fits:?}");
        assert!(
            fits.found.contains("8192 tokens") && fits.found.contains("at most 360"),
            "{fits:?}"
        );
        let missing = model(&Source::File("/nonexistent".into()), &config, None);
        assert_eq!(missing.state, Severity::Bad);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = ServeConfig { port: taken.local_addr().unwrap().port(), ..config };
        assert_eq!(ports(&config)[0].state, Severity::Bad);
    }

    /// `corelane doctor` on a machine where the service runs.
    #[test]
    fn the_address_of_a_running_server_is_no_fault() {
        let placement = Topology::read().unwrap().place(&Wishes::default()).unwrap();
        let ops_addr = Some("127.0.0.1:0".into());
        let config = ServeConfig { placement, ops_addr, ..ServeConfig::default() };
        let mut server = Server::start(config.clone()).unwrap();
        server.load(&Source::BuiltIn, |_| ()).unwrap();
        let port = server.address().port();
        let ops_addr = server.ops_address().map(|address| address.to_string());
        let found = ports(&ServeConfig { port, ops_addr, ..config });
        assert!(found.iter().all(|finding| finding.state == Severity::Good), "{found:?}");
        assert_eq!(found.len(), 2);
        server.control().drain();
        server.join().unwrap();
    }
}
