//! `corelane model list`.

use clap::Args;
use corelane::hub::{Kept, Unfinished, kept, unfinished};
use time::OffsetDateTime;

use super::output::{megabytes, print, print_json};
use corelane::flags::hub::new_hub;

const EXAMPLES: &str = "\
Examples:
  corelane model list
  corelane model list --json | jq -r '.models[].name'

It shows the GGUF files in HF_HOME (~/.cache/huggingface), whichever tool has downloaded them.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Print the models as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the models of the cache.
pub fn run(args: &ListArgs) -> Result<(), String> {
    let hub = new_hub(None, true)?;
    let (kept, unfinished) = (kept(&hub), unfinished(&hub));
    if args.json {
        print_json(&to_json(&kept, &unfinished));
    } else if kept.is_empty() && unfinished.is_empty() {
        print(&format!(
            "no models in {}\n\nTry it:\n  corelane model pull ggml-org/gemma-3-1b-it-GGUF\n",
            hub.cache.display()
        ));
    } else {
        print(&table(&kept, &unfinished));
    }
    Ok(())
}

fn to_json(kept: &[Kept], unfinished: &[Unfinished]) -> serde_json::Value {
    let model = |model: &Kept| {
        serde_json::json!({
            "name": model.name.to_string(),
            "files": model.files,
            "missing_files": model.missing,
            "bytes": model.bytes,
            "modified": model.modified,
        })
    };
    let part = |part: &Unfinished| serde_json::json!({"name": part.name.repo(), "files": part.files, "bytes": part.bytes});
    serde_json::json!({
        "models": kept.iter().map(model).collect::<Vec<_>>(),
        "unfinished": unfinished.iter().map(part).collect::<Vec<_>>(),
    })
}

fn table(kept: &[Kept], unfinished: &[Unfinished]) -> String {
    let mut rows = vec![["NAME", "SIZE", "WRITTEN", "FILE"].map(str::to_owned)];
    for Kept { name, files, missing, bytes, modified } in kept {
        let more = match (files.len(), missing) {
            (1, 0) => String::new(),
            (n, 0) => format!(" ({n} files)"),
            (n, missing) => format!(" (incomplete: {n} of {} files)", n + missing),
        };
        let file = format!("{}{more}", files[0]);
        rows.push([name.to_string(), megabytes(*bytes), date(*modified), file]);
    }
    for Unfinished { name, files, bytes } in unfinished {
        let file = format!("(unfinished: {files} {})", if *files == 1 { "file" } else { "files" });
        rows.push([name.repo(), megabytes(*bytes), String::new(), file]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let [name, size, written] = [0, 1, 2].map(|column| width(column).unwrap_or(0));
    let line = |[a, b, c, d]: &[String; 4]| format!("{a:name$}  {b:>size$}  {c:written$}  {d}\n");
    rows.iter().map(line).collect()
}

/// The date of a time in seconds since 1970, in UTC.
fn date(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok().and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok());
    let day =
        |at: OffsetDateTime| format!("{}-{:02}-{:02}", at.year(), u8::from(at.month()), at.day());
    at.map_or(String::new(), day)
}
