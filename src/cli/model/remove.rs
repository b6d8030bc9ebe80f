//! `corelane model rm`.

use clap::Args;
use corelane::hub::{Name, remove};

use super::output::{megabytes, print};
use corelane::flags::hub::new_hub;

const EXAMPLES: &str = "\
Examples:
  corelane model rm ggml-org/gemma-3-1b-it-GGUF:Q8_0
  corelane model rm ggml-org/gemma-3-1b-it-GGUF     all its GGUF files, and unfinished downloads

Other files of the repository stay, and so do bytes that another file shares. A running server is
not disturbed, because it has read its model into memory.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RemoveArgs {
    /// Models, by their names in corelane model list
    #[arg(value_name = "OWNER/REPO[:QUANT]", required = true)]
    names: Vec<Name>,
}

/// Removes models, and prints how many bytes this frees.
pub fn run(args: &RemoveArgs) -> Result<(), String> {
    let hub = new_hub(None, true)?;
    for name in &args.names {
        let removed = remove(&hub, name).map_err(|error| error.to_string())?;
        let files = if removed.files == 1 { "file" } else { "files" };
        print(&format!(
            "removed {name}: {} {files}, {} freed\n",
            removed.files,
            megabytes(removed.bytes)
        ));
    }
    Ok(())
}
