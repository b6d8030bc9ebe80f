//! `corelane model pull`.

use std::io::IsTerminal;
use std::time::Instant;

use clap::Args;
use corelane::hub::{self, Name, Wanted};
use tracing_subscriber::filter::LevelFilter;

use super::output::{megabytes, print};
use crate::cli::exposed;
use corelane::flags::hub::{new_hub, shown};

const EXAMPLES: &str = "\
Examples:
  corelane model pull ggml-org/gemma-3-1b-it-GGUF            Q4_K_M, else Q8_0, else the first
  corelane model pull ggml-org/gemma-3-1b-it-GGUF:Q8_0
  corelane model pull ggml-org/models --file tinyllamas/stories260K.gguf

Then:
  corelane serve -hf ggml-org/gemma-3-1b-it-GGUF:Q8_0

An interrupted download is resumed. Each file is checked by its SHA-256. The files are in HF_HOME
(~/.cache/huggingface), where huggingface_hub, llama.cpp and vLLM look for them, too.
HF_TOKEN is for private and gated models, HF_ENDPOINT for another hub, HTTPS_PROXY for a proxy.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PullArgs {
    /// Model, such as ggml-org/gemma-3-1b-it-GGUF:Q4_K_M
    #[arg(value_name = "OWNER/REPO[:QUANT]")]
    name: Name,
    /// File of the repository, instead of QUANT
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// Secret of an account of the hub [default: HF_TOKEN, or the file token in HF_HOME]
    #[arg(long, value_name = "TOKEN")]
    hf_token: Option<String>,
}

/// Downloads the model. If SIGINT or SIGTERM ends the process, the next download resumes this one.
pub fn run(args: &PullArgs) -> Result<(), String> {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
    exposed::warn();
    let hub = new_hub(args.hf_token.as_deref(), false)?;
    let wanted = Wanted { name: args.name.clone(), file: args.file.clone() };
    let began = Instant::now();
    let model = hub::pull(&hub, &wanted, &mut shown()).map_err(|error| error.to_string())?;
    let what = match model.downloaded {
        0 => format!("{} is there, and it is the newest", args.name),
        bytes => format!(
            "downloaded {} of {} in {:.1} s",
            megabytes(bytes),
            args.name,
            began.elapsed().as_secs_f64()
        ),
    };
    let files: String = model.files.iter().map(|file| format!("  {}\n", file.display())).collect();
    let flag = args.file.as_ref().map_or(String::new(), |file| format!(" -hff {file}"));
    print(&format!("{what}\n{files}\nTry it:\n  corelane serve -hf {}{flag}\n", args.name));
    Ok(())
}
