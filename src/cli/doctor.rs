//! `corelane doctor`: checks this machine, and says what to change for a server.

use std::io::Write;

use clap::Args;
use corelane::config::ServeConfig;
use corelane::hub;
use corelane::placement::{Topology, cpu_quota};
use corelane::types::printable::{printable, printable_json};

use super::serve::ServeArgs;
use crate::doctor::{self, Finding, Kernel, Severity};
use corelane::flags::{EngineArgs, first_of};

const EXAMPLES: &str = "\
Examples:
  corelane doctor                               this machine, and the built-in model
  corelane doctor -m qwen3-8b-q4_k_m.gguf -np 16
  corelane doctor --config /etc/corelane/corelane.toml --json

It takes the flags of serve. For a moment it measures other programs, the memory and the arithmetic.
Exit status 1: a server would not run, or would run much slower than it could.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Do not measure other programs, memory and arithmetic
    #[arg(long)]
    no_measure: bool,
}

/// Prints the findings.
pub fn run(args: &DoctorArgs) -> Result<(), String> {
    // The doctor claims no cores, because a server that starts meanwhile needs them.
    let engine = args.serve.engine.config_on(ServeConfig::default().placement);
    let config = args.serve.config_with(engine)?;
    let findings = examine(args, &config)?;
    let text = if args.json {
        printable_json(&serde_json::to_string_pretty(&findings).expect("strings")) + "\n"
    } else {
        printable(&findings.iter().map(shown).collect::<String>())
    };
    let _ = std::io::stdout().write_all(text.as_bytes()); // nobody reads if it is closed
    match findings.iter().filter(|finding| finding.state == Severity::Bad).count() {
        0 => Ok(()),
        bad => Err(format!("{bad} of {} findings are bad", findings.len())),
    }
}

fn examine(args: &DoctorArgs, config: &ServeConfig) -> Result<Vec<Finding>, String> {
    let topology = Topology::read()?;
    let mut findings = Kernel::default().examine(&topology, cpu_quota(), config.io);
    if !args.no_measure {
        findings.push(doctor::neighbours(&topology));
    }
    let (speed, rate) = doctor::speed(&topology, config.kernels, !args.no_measure);
    findings.extend(speed);
    findings.push(model(&args.serve.engine, config, rate)?);
    findings.extend(doctor::ports(config));
    Ok(findings)
}

/// The finding about the model. Does not download the model.
fn model(engine: &EngineArgs, config: &ServeConfig, rate: Option<f64>) -> Result<Finding, String> {
    let wanted = match engine.source() {
        Ok(source) => return Ok(doctor::model(&source, config, rate)),
        Err(wanted) => wanted,
    };
    Ok(match hub::cached(&engine.hub.hub()?, &wanted) {
        Ok(model) => doctor::model(&first_of(model), config, rate),
        Err(error) => Finding::good("model", wanted.name.to_string())
            .but(Severity::Bad, error.to_string())
            .command(format!("corelane model pull {}", wanted.name)),
    })
}

/// A finding as lines of text.
fn shown(finding: &Finding) -> String {
    let mark = match finding.state {
        Severity::Good => "good",
        Severity::Advice => "hint",
        Severity::Bad => "BAD ",
    };
    let mut text = format!("{mark}  {:<20} {}\n", finding.name, finding.found);
    for (word, line) in [("", &finding.advice), ("$ ", &finding.command)] {
        if let Some(line) = line {
            text.push_str(&format!("{:27}{word}{line}\n", ""));
        }
    }
    text
}
