//! `corelane profile`: makes a flamegraph of a running server.

use std::fs;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use corelane::limits::{
    PROFILE_BYTES_MAX, PROFILE_DRAW_TIMEOUT, PROFILE_HZ, PROFILE_HZ_MAX, PROFILE_SECONDS_MAX,
};
use corelane::profile::LANES;

const EXAMPLES: &str = "\
Examples:
  corelane serve --profiling                    the server must allow it
  corelane profile > decode.svg                 10 seconds of the decode lane; open it in a browser
  corelane profile --lane front --seconds 30 -o front.svg
  corelane profile --format folded              each stack and its number of samples

The server must be busy meanwhile. The kernel must allow profiles, too: kernel.perf_event_paranoid
must be 2 or less. Without --profiling, perf record can profile the server like any program.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ProfileArgs {
    /// Lane to profile
    #[arg(long, default_value = "decode", value_parser = PossibleValuesParser::new(LANES.map(|(name, _)| name)))]
    lane: String,
    /// Seconds of the profile
    #[arg(
        long,
        value_name = "S",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(PROFILE_SECONDS_MAX))
    )]
    seconds: u32,
    /// Samples a second of each thread; more samples take more time of the server
    #[arg(
        long,
        value_name = "N",
        default_value_t = PROFILE_HZ,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(PROFILE_HZ_MAX))
    )]
    hz: u32,
    /// Format: a picture, or a line for each stack with its number of samples
    #[arg(long, value_enum, default_value_t = Format::Svg)]
    format: Format,
    /// File for the result [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Address of the server: its --ops-addr
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9090", env = "CORELANE_OPS_ADDR")]
    ops_addr: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Svg,
    Folded,
}

/// Gets a profile from the server, and writes it.
pub fn run(args: &ProfileArgs) -> Result<(), String> {
    if args.output.is_none()
        && matches!(args.format, Format::Svg)
        && std::io::stdout().is_terminal()
    {
        return Err("a picture does not go to a terminal; use -o FILE, or > FILE".into());
    }
    let profile = fetch(args)?;
    match &args.output {
        Some(path) => fs::write(path, profile)
            .map_err(|error| format!("cannot write {}: {error}", path.display())),
        None => match std::io::stdout().write_all(&profile) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(format!("cannot write the profile: {error}"))
            }
            _ => Ok(()), // a closed pipe is no error
        },
    }
}

fn fetch(args: &ProfileArgs) -> Result<Vec<u8>, String> {
    let ProfileArgs { lane, seconds, hz, ops_addr, .. } = args;
    let format = args.format.to_possible_value().expect("none is skipped");
    let format = format.get_name();
    let url = format!(
        "http://{ops_addr}/debug/flamegraph?lane={lane}&seconds={seconds}&hz={hz}&format={format}"
    );
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None) // a proxy could not reach a loopback address
        .timeout_global(Some(Duration::from_secs((*seconds).into()) + PROFILE_DRAW_TIMEOUT))
        .build()
        .new_agent();
    let failed = |error: ureq::Error| {
        format!(
            "no profile came from {ops_addr}: {error}; --ops-addr names a server's own --ops-addr"
        )
    };
    let mut response = agent.post(&url).send_empty().map_err(failed)?;
    let body =
        response.body_mut().with_config().limit(PROFILE_BYTES_MAX).read_to_vec().map_err(failed)?;
    if response.status().is_success() {
        return Ok(body);
    }
    let message = String::from_utf8_lossy(&body).trim().to_owned();
    Err(format!("the server at {ops_addr} takes no profile ({}): {message}", response.status()))
}
