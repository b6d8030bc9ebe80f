//! `corelane tune`: finds the fastest settings on this machine, and writes a configuration file.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use corelane::flags::EngineArgs;
use corelane::model::load::{self, Source};
use corelane::tune::{self, Series, Tuned};
use corelane::types::Calibration;
use corelane::types::printable::printable;

const EXAMPLES: &str = "\
Examples:
  corelane tune -m qwen3-8b-q4_k_m.gguf                     show what each choice brings
  corelane tune -m qwen3-8b-q4_k_m.gguf -o corelane.toml    write the best ones to a file
  corelane serve --config corelane.toml

It loads the model and measures for about a minute. Run it while the machine does its
usual other work, but not beside a running server: both would be slower.

The file has the model, the chosen settings and --threads, if you give it. Give other flags that you
use here, such as --cache-type-k, to the server, too.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TuneArgs {
    #[command(flatten)]
    pub engine: EngineArgs,
    /// File for the configuration; it must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Measures, and writes the configuration.
pub fn run(args: &TuneArgs) -> Result<(), String> {
    // Checked before the measurement, which takes a minute.
    if let Some(path) = args.output.as_ref().filter(|path| path.exists()) {
        return Err(format!("--output {}: the file exists; name a new one", path.display()));
    }
    let folder = args.output.as_ref().and_then(|path| path.parent());
    if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
    {
        return Err(format!("--output: there is no folder {}; make it first", folder.display()));
    }
    let (name, source, tuned) = measure(args)?;
    let text = toml_of(&name, &source, &tuned, args.engine.threads);
    let _ = std::io::stdout().write_all(printable(&text).as_bytes()); // nobody reads if it is closed
    if let Some(path) = &args.output {
        fs::File::create_new(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

fn measure(args: &TuneArgs) -> Result<(String, Source, Tuned), String> {
    let source = args.engine.obtain()?;
    let config = args.engine.config()?;
    config.check()?;
    let loaded = load::load(&source, config.kernels, |_| true).map_err(|e| e.to_string())?;
    let shows = std::io::stderr().is_terminal();
    let tuned = tune::tune(&loaded, &config, |what| {
        if shows {
            let _ = write!(std::io::stderr(), "\r\x1b[Kmeasuring: {what}");
        }
    });
    if shows {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    Ok((loaded.info.name.clone(), source, tuned?))
}

/// The configuration in TOML. Comments have the measured numbers.
fn toml_of(name: &str, source: &Source, tuned: &Tuned, threads: Option<usize>) -> String {
    let mut text = format!(
        "# {name} on this machine, measured by corelane {}: medians, with the smallest and the\n\
         # largest number in parentheses. A star marks the best.\n",
        env!("CARGO_PKG_VERSION")
    );
    if let Source::File(path) = source {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let path = toml::Value::String(path.to_string_lossy().into_owned());
        text += &format!("\nmodel = {path}\n");
    }
    text += match threads {
        None => {
            "\n# Compute threads. The server chooses their number itself, and changes it while the \
             machine is\n# busy. A number here would fix it.\n#\n"
        }
        Some(_) => "\n# Compute threads, as set by --threads.\n#\n",
    };
    text += &threads_table(&tuned.calibration);
    text += &threads.map_or_else(String::new, |threads| format!("threads = {threads}\n"));
    text += &format!(
        "\n# Tokens of a prompt that are computed at once.\n#\n#   {:<10}{}\n",
        "tokens",
        format_args!("a prompt of {} tokens, tokens/s", tuned.prompt_tokens)
    );
    for (rows, speed) in &tuned.micro_batches {
        let mark = if *rows == tuned.micro_batch { " *" } else { "" };
        text += &format!("#   {rows:<10}{}{mark}\n", shown(speed, 1.0));
    }
    text += &format!("ubatch-size = {}\n", tuned.micro_batch);
    text += &format!(
        "\n# How long idle compute threads poll for work. Sleeping threads leave their core to others.\n\
         #\n#   {:<10}{:<28}processor time, ms\n",
        "poll", "a step with 1 text, ms"
    );
    for (level, took, used) in &tuned.polls {
        let mark = if *level == tuned.poll { " *" } else { "" };
        text += &format!("#   {level:<10}{:<28}{}{mark}\n", shown(took, 1e-3), shown(used, 1e-3));
    }
    text + &format!("poll = {}\n", tuned.poll)
}

/// A line for each number of threads, and a column for each kind of step.
fn threads_table(calibration: &Calibration) -> String {
    let kinds = calibration.kinds();
    let mut text = format!("#   {:<10}", "threads");
    for steps in &kinds {
        let column = match (steps[0].rows, steps[0].is_prompt) {
            (1, false) => "1 text, ms".to_owned(),
            (rows, false) => format!("{rows} texts, ms"),
            (rows, true) => format!("prompt of {rows}, ms"),
        };
        text += &format!("{column:<20}");
    }
    for threads in &calibration.candidates {
        text = format!("{}\n#   {:<10}", text.trim_end(), threads.to_string());
        for steps in &kinds {
            let its = steps.iter().find(|step| step.threads == *threads);
            let mark = if steps[0].threads == *threads { " *" } else { "" };
            let ms = its.map_or(String::new(), |step| {
                format!("{:.2}{mark}", 1e3 * step.took.as_secs_f64())
            });
            text += &format!("{ms:<20}");
        }
    }
    text.trim_end().to_owned() + "\n"
}

fn shown(series: &Series, scale: f64) -> String {
    let (least, most) = series.spread();
    let of = |number: f64| {
        let number = number * scale;
        format!("{number:.*}", if number < 100.0 { 2 } else { 0 })
    };
    format!("{} ({} to {})", of(series.median()), of(least), of(most))
}
