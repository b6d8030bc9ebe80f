//! The command line: parses and checks the flags, then starts the lanes and waits for a signal, or
//! runs another command.
#![deny(unsafe_code)]

mod cli;
mod doctor;
mod secrets;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::CommandFactory;
use corelane::config::ServeConfig;
use corelane::constraint::trial::{self, TRIAL_ARGUMENT};
use corelane::flags;
use corelane::lanes::{self, Server};
use corelane::limits::LOG_LINES_MAX;
use corelane::memory;
use corelane::metrics::{Metrics, ServerState};
use corelane::placement::{format_list, why_not_pinned};
use corelane::prepare::ServedModel;
use corelane::server::Control;
use corelane::server::listener::Address;
use corelane::systemd;
use corelane::types::printable::printable;
use corelane::types::{Calibration, Io, KernelsInfo, OtherMatrices, TimedStep};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Counts the allocations of each lane; see `corelane::memory`.
#[global_allocator]
static ALLOCATOR: corelane::memory::CountingAllocator = corelane::memory::CountingAllocator;

fn main() -> ExitCode {
    // The server starts itself again to try a constraint. That must begin fast, and abort nothing.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == TRIAL_ARGUMENT) {
        return trial::run_helper();
    }
    memory::give_large_blocks_back();
    lanes::end_on_panic();
    let result = cli::parse().and_then(|cli| match cli.command {
        cli::Command::Run(args) => {
            let _log = start_to_ask(&args.talk.log)?;
            cli::chat::run(&args)
        }
        other => obey(other).map(|()| ExitCode::SUCCESS),
    });
    match result {
        Ok(status) => status,
        Err(message) => {
            // It may have a file's name in it. Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "corelane: {}", printable(&message));
            ExitCode::FAILURE
        }
    }
}

fn obey(command: cli::Command) -> Result<(), String> {
    match command {
        cli::Command::Serve(args) => serve(&args),
        cli::Command::Chat(args) => {
            let _log = start_to_ask(&args.talk.log)?;
            cli::chat::chat(&args)
        }
        cli::Command::Run(_) => unreachable!("it has a status of its own"),
        cli::Command::Doctor(args) => cli::doctor::run(&args),
        cli::Command::Tune(args) => cli::tune::run(&args),
        cli::Command::Profile(args) => cli::profile::run(&args),
        cli::Command::Model(args) => cli::model::run(args),
        cli::Command::Bench(args) => cli::lab::run("corelane bench", args.passed),
        cli::Command::Completions(args) => {
            flags::complete::completions(&args, cli::Cli::command());
            Ok(())
        }
        cli::Command::Man(args) => flags::complete::man(&args, cli::Cli::command()),
    }
}

/// Starts the log of a command that asks, which has a server inside, and keeps its keys secret.
fn start_to_ask(filter: &str) -> Result<WorkerGuard, String> {
    let (log, _) = start_log(filter, "error", false)?;
    secrets::keep_all_out_of_core_dumps();
    cli::exposed::show();
    for warning in cli::service_link_warnings() {
        let _ = writeln!(std::io::stderr(), "corelane: {warning}");
    }
    Ok(log)
}

fn serve(args: &cli::ServeArgs) -> Result<(), String> {
    let (_log, lines_lost) = start_log(&args.log, "info", args.log_json)?;
    cli::service_link_warnings().for_each(|warning| tracing::warn!("{warning}"));
    let config = args.config()?;
    let source = match args.engine.source() {
        Ok(source) => Ok(source),
        Err(wanted) => Err((args.engine.hub.hub()?, wanted)),
    };
    secrets::keep_out_of_core_dumps(args, &config, source.as_ref().err().map(|(hub, _)| hub));
    let mut server = Server::start(config.clone())?;
    secrets::warn(args, &config);
    let metrics = server.metrics();
    metrics.set_log_lines_lost(lines_lost);
    handle_signals(server.control(), metrics.clone(), args.clone())?;
    let control = server.control();
    let source = match source {
        Ok(source) => Some(source),
        Err((hub, wanted)) => {
            flags::hub::obtain(hub, wanted, || control.is_draining())?.map(flags::first_of)
        }
    };
    if let Some(source) = source
        && let Some(served) = server.load(&source, cli::progress::progress_bar(&source))?
    {
        if !config.placement.pinned {
            tracing::warn!(
                "the lanes are not pinned to cores, because {}; --decode-cores pins them",
                why_not_pinned()
            );
        }
        for finding in doctor::worst() {
            let advice = finding.advice.unwrap_or_default();
            tracing::warn!(
                "{}: {}: {advice}; corelane doctor says more",
                finding.name,
                finding.found
            );
        }
        if !args.log_json {
            announce(&server, &config, &served);
        }
        log_ready(&server, &config, &served);
        systemd::tell_ready(&format!("serving {}", served.name));
    }
    let ended = server.join();
    log_end(&metrics);
    ended
}

/// Logs in one line what the banner says.
fn log_ready(server: &Server, config: &ServeConfig, served: &ServedModel) {
    let addresses: Vec<String> = server.addresses().iter().map(Address::to_string).collect();
    let metrics = server.metrics();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        model = served.name,
        kernels = served.info.kernels.name,
        io = metrics.io().map_or("", Io::name),
        context = served.context_tokens,
        parallel = config.parallel,
        addresses = addresses.join(","),
        ops = server.ops_address().map(tracing::field::display),
        after_s = metrics.clock.now().0 as f64 / 1e6,
        "ready"
    );
}

/// Logs the totals in one line.
fn log_end(metrics: &Metrics) {
    let (front, decode) = (&metrics.front, &metrics.decode);
    let bubble = decode.bubble_us.snapshot();
    tracing::info!(
        requests = front.responses.total(),
        tokens = front.generation_tokens.get(),
        steps = decode.step_us.count(),
        decode_s = decode.step_us.sum() as f64 / 1e6,
        sample_s = decode.sample_us.sum() as f64 / 1e6,
        bubble_us_p50 = bubble.quantile(0.5).unwrap_or_default().round(),
        bubble_us_p99 = bubble.quantile(0.99).unwrap_or_default().round(),
        rows_dropped = decode.rows_dropped.get(),
        "ended"
    );
}

/// Starts logging to standard error, through a thread of its own: a slow terminal loses lines, but
/// never stops a lane. `others` is the level of the modules that `filter` does not name. Also returns a
/// counter of the lost lines.
fn start_log(
    filter: &str,
    others: &str,
    is_json: bool,
) -> Result<(WorkerGuard, impl Fn() -> u64 + use<>), String> {
    // may and generator, the ops lane's libraries, log every closed connection as an error.
    let with_silenced = format!("may=off,generator=off,{}", log_filter(filter, others)?);
    let filter = EnvFilter::try_new(with_silenced).map_err(|error| {
        format!(
            "--log {filter:?} is not a log filter: {error}; one looks like info,llama.cpp=debug"
        )
    })?;
    let unwritten = Arc::new(AtomicU64::new(0));
    let stderr = CountingWriter { out: std::io::stderr(), unwritten: unwritten.clone() };
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(LOG_LINES_MAX).finish(stderr);
    let dropped = writer.error_counter();
    let lines_lost = move || dropped.dropped_lines() as u64 + unwritten.load(Ordering::Relaxed);
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(writer);
    if is_json {
        log.json().init()
    } else {
        log.init()
    }
    Ok((guard, lines_lost))
}

/// Checks `--log` and completes it. (`EnvFilter` would take a word that is no level for the name of a module, and
/// drop the lines of all others.) `others` is the level of the modules that it does not name.
fn log_filter(filter: &str, others: &str) -> Result<String, String> {
    let level = |word: &str| match word.to_ascii_lowercase().as_str() {
        "warning" => Some("warn".to_owned()),
        level @ ("off" | "error" | "warn" | "info" | "debug" | "trace") => Some(level.to_owned()),
        _ => None,
    };
    let mut directives = vec![others.to_owned()];
    for directive in filter.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        let (module, word) = match directive.rsplit_once('=') {
            Some((module, word)) => (Some(module), word),
            None => (None, directive),
        };
        let level = level(word).ok_or_else(|| {
            format!(
                "--log {filter:?}: {word:?} is no level; the levels are error, warn, info, debug, trace and \
                 off, as in warn, or in info,llama.cpp=debug"
            )
        })?;
        match module {
            Some(module) => directives.push(format!("{module}={level}")),
            None => directives[0] = level,
        }
    }
    Ok(directives.join(","))
}

/// Counts the log lines that could not be written, for example because the disk is full.
struct CountingWriter<W> {
    out: W,
    unwritten: Arc<AtomicU64>,
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if self.out.write_all(line).is_err() {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// The first SIGTERM or SIGINT drains; the second ends the process at once. SIGHUP reads the file of
/// keys again. In a terminal it drains, because the terminal has gone.
fn handle_signals(
    control: Arc<Control>,
    metrics: Arc<Metrics>,
    args: cli::ServeArgs,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot wait for signals: {error}");
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let in_terminal = std::io::stdin().is_terminal();
    let wait = move || {
        for signal in signals.forever() {
            if signal == SIGHUP && !in_terminal {
                if !control.is_draining() {
                    reload(&control, &metrics, &args);
                }
                continue;
            }
            if control.is_draining() {
                // Skip the destructors, which would wait for the running step.
                signal_hook::low_level::exit(128 + signal);
            }
            systemd::tell_stopping();
            control.drain();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map_err(failed)?;
    Ok(())
}

/// Reads the keys again.
fn reload(control: &Control, metrics: &Metrics, args: &cli::ServeArgs) {
    // While the model loads, the service manager waits for the first word.
    let is_ready = metrics.front.state() == ServerState::Ready;
    if is_ready {
        systemd::tell_reloading();
    }
    let status = match args.keys_again().and_then(|keys| control.set_keys(keys)) {
        Ok(()) => {
            tracing::info!(keys = control.keys().count(), "the keys were read again");
            "serving; the keys were read again".to_owned()
        }
        Err(error) => {
            tracing::error!(error, "the keys stay as they were");
            format!("serving; the keys stay as they were: {error}")
        }
    };
    if is_ready {
        systemd::tell_ready(&status);
    }
}

/// Describes the kernels in use and the memory of their packed weights.
fn kernels(info: &KernelsInfo) -> String {
    if info.matrices == 0 {
        let ours = (info.name != KernelsInfo::default().name).then_some(info.name);
        let attention = ours.map_or_else(String::new, |name| format!(", {name} for attention"));
        return format!("llama.cpp's{attention}");
    }
    let (mb, added) = (info.bytes as f64 / 1e6, info.bytes_added as f64 / 1e6);
    let all = info.matrices + info.others.iter().map(|of| of.count).sum::<usize>();
    let others: Vec<_> = info.others.iter().map(other_matrices).collect();
    let mut text = format!(
        "{} for {} of {all} matrices: {mb:.1} MB, {added:.1} MB more than in the file",
        info.name, info.matrices
    );
    if !others.is_empty() {
        text += &format!("\n           llama.cpp's for {}", others.join(", "));
    }
    // Few matrices are in F32, and these are small.
    if info.others.iter().any(|of| !of.has_kernel && of.type_name != "f32") {
        text += "\n           a file in another quantisation, such as Q4_K_M, is faster";
    }
    text
}

fn other_matrices(of: &OtherMatrices) -> String {
    let because = if of.has_kernel { "not for this use" } else { "no kernel" };
    format!("{} {} ({because})", of.count, of.type_name)
}

/// Describes the number of compute threads for each kind of step, and the times for which it was
/// chosen.
fn threads(calibration: &Calibration) -> String {
    let kind = |kind: Vec<TimedStep>| {
        let of = match (kind[0].rows, kind[0].is_prompt) {
            (1, _) => "a token".to_owned(),
            (rows, false) => format!("{rows} tokens at once"),
            (rows, true) => format!("{rows} tokens of a prompt"),
        };
        let ms = |step: &TimedStep| step.took.as_secs_f64() * 1e3;
        let digits = if ms(&kind[0]) < 1.0 { 2 } else { 1 };
        let time = |step: &TimedStep| format!("{:.digits$} ms with {}", ms(step), step.threads);
        let times: Vec<String> = kind.iter().map(time).collect();
        format!("{of}: {}", times.join(", "))
    };
    let kinds: Vec<String> = calibration.kinds().into_iter().map(kind).collect();
    if kinds.is_empty() { "not measured".into() } else { kinds.join("\n           ") }
}

/// What streams and prompts reach by the measured times of their steps, while texts are short.
fn speed(calibration: &Calibration) -> String {
    let rate = |kind: Vec<TimedStep>| {
        let best = kind.iter().map(|step| step.took).min()?.as_secs_f64();
        let (rows, is_prompt) = (kind[0].rows, kind[0].is_prompt);
        let rate = rows as f64 / best.max(1e-9);
        Some(match (rows, is_prompt) {
            (1, _) => format!("{rate:.0} tokens/s for one stream"),
            (rows, false) => format!("{rate:.0} in all for {rows} at once"),
            (_, true) => format!("{rate:.0} of a prompt"),
        })
    };
    let rates: Vec<String> = calibration.kinds().into_iter().filter_map(rate).collect();
    if rates.is_empty() {
        return String::new();
    }
    format!("\n  speed    at most about {}, while texts are short", rates.join(", "))
}

/// Shows the facts that a person needs about the new server.
fn announce(server: &Server, config: &ServeConfig, served: &ServedModel) {
    let (placement, info) = (&config.placement, &served.info);
    let shown: Vec<String> = server.addresses().iter().map(Address::to_string).collect();
    let url = match &server.addresses()[0] {
        tcp @ Address::Tcp(_) => tcp.to_string(),
        Address::Unix(path) => format!("--unix-socket {} http://localhost", path.display()),
    };
    let front = match (placement.pinned, placement.is_shared()) {
        (false, _) => "not pinned",
        (true, true) => "shared",
        (true, false) => "its own",
    };
    let io = server.metrics().io().map_or("", Io::name);
    let key = if config.keys.is_empty() { "" } else { " -H 'authorization: Bearer KEY'" };
    let ops = match server.ops_address() {
        Some(address) => format!("http://{address}/metrics"),
        None => "none".into(),
    };
    let text = format!(
        "corelane {version}
  address  {addresses}
  metrics  {ops}
  model    {name}: {params:.1} M parameters, {size:.1} MB
  kernels  {kernels}
  context  {context} tokens shared by {parallel} requests; one may use {each}{store}
  lanes    front on core {front_core} ({front}, {io}), decode on {decode_word} {decode}
  threads  {threads}{speed}

Try it:
  curl {url}{endpoint}{key} \\
    -H 'content-type: application/json' \\
    -d '{body}'
",
        endpoint = if served.chat.is_some() { "/v1/chat/completions" } else { "/v1/completions" },
        body = match served.chat {
            Some(_) => {
                r#"{"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 60}"#
            }
            None => r#"{"prompt": "Once upon a time", "max_tokens": 60}"#,
        },
        version = cli::Cli::command().get_version().unwrap_or_default(),
        addresses = shown.join(", "),
        name = served.name,
        params = info.n_params as f64 / 1e6,
        size = info.size_bytes as f64 / 1e6,
        kernels = kernels(&info.kernels),
        context = served.context_tokens,
        parallel = config.parallel,
        each = match served.sequence_tokens {
            tokens if tokens == served.context_tokens => "all".to_owned(),
            tokens if tokens == info.context_trained => {
                format!("{tokens}, as many as the model was trained with")
            }
            tokens => format!("{tokens}"),
        },
        store = match served.store_bytes >> 20 {
            0 => String::new(),
            mib => format!("; {mib} MiB of memory keep what it has no room for"),
        },
        front_core = placement.front_core,
        decode_word = if placement.decode_cores.len() == 1 { "core" } else { "cores" },
        decode = format_list(&placement.decode_cores),
        threads = threads(&served.calibration),
        speed = speed(&served.calibration),
    );
    // A closed standard output must not stop the server.
    let _ = std::io::stdout().write_all(printable(&text).as_bytes());
}
