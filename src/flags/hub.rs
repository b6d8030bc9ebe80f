//! The flags of a model by name, and the display of its download.

use std::io::{IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use crate::hub::{self, Hub, HubError, Model, Name, Progress, Wanted};
use crate::limits::HUB_LOG_INTERVAL;
use crate::memory;
use crate::systemd;
use crate::types::printable::printable;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

/// Interval at which the start checks whether the download is done, or no longer wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A model at a hub, and the access to the hub.
#[derive(Clone, Debug, Args)]
pub struct HubArgs {
    /// Model of huggingface.co, or of the hub in HF_ENDPOINT. Each start downloads it to HF_HOME,
    /// or renews it there; --offline keeps what is there. QUANT may have small or capital letters
    /// [default: Q4_K_M, else Q8_0, else the first file] (also -hf, -hfr)
    #[arg(long, value_name = "OWNER/REPO[:QUANT]", help_heading = "Model")]
    pub hf_repo: Option<Name>,
    /// File of the repository, instead of QUANT (also -hff)
    #[arg(long, value_name = "FILE", requires = "hf_repo", help_heading = "Model")]
    hf_file: Option<String>,
    /// Secret of an account of the hub, for private and gated models [default: HF_TOKEN, or the file
    /// token in HF_HOME] (also -hft)
    #[arg(long, value_name = "TOKEN", hide_env_values = true, help_heading = "Model")]
    hf_token: Option<String>,
    /// Do not ask the hub: the model must be in HF_HOME, and is not renewed (also HF_HUB_OFFLINE=1)
    #[arg(long, help_heading = "Model")]
    offline: bool,
}

impl HubArgs {
    /// The model by name, if the user gave one.
    pub fn wanted(&self) -> Option<Wanted> {
        let wanted = |name: &Name| Wanted { name: name.clone(), file: self.hf_file.clone() };
        self.hf_repo.as_ref().map(wanted)
    }

    /// Whether the user gave a token by the flag.
    pub fn has_token(&self) -> bool {
        self.hf_token.is_some()
    }

    /// The hub of these flags and of the environment.
    pub fn hub(&self) -> Result<Hub, String> {
        new_hub(self.hf_token.as_deref(), self.offline)
    }
}

/// The hub of the environment.
pub fn new_hub(token: Option<&str>, offline: bool) -> Result<Hub, String> {
    let variable = |name: &str| std::env::var(name).ok();
    Hub::new(variable, token, offline).map_err(|error| error.to_string())
}

/// Obtains a model while the server already answers requests. Returns `None` once `is_over` returns
/// true. The download then runs until the process ends, and the next start resumes it.
pub fn obtain(
    hub: Hub,
    wanted: Wanted,
    is_over: impl Fn() -> bool,
) -> Result<Option<Model>, String> {
    let download = move || hub::obtain(&hub, &wanted, &mut shown());
    let download = thread::Builder::new().name("download".into()).spawn(download);
    let download = download.map_err(|error| format!("cannot start the download: {error}"))?;
    let mut told: Option<Instant> = None;
    while !download.is_finished() {
        if is_over() {
            return Ok(None);
        }
        if told.is_none_or(|at| at.elapsed() >= HUB_LOG_INTERVAL) {
            // So the time limit of the service manager need not depend on the size of the model.
            systemd::tell_starting(3 * HUB_LOG_INTERVAL);
            told = Some(Instant::now());
        }
        thread::sleep(LOOK_INTERVAL);
    }
    let model = download.join().expect("a thread that panics ends the process");
    model.map(Some).map_err(|error: HubError| error.to_string())
}

/// Says what a download takes before it begins, and shows its progress: as a bar on a terminal, and otherwise as
/// a line in the log every [`HUB_LOG_INTERVAL`].
pub fn shown() -> impl FnMut(Progress<'_>) {
    let is_terminal = std::io::stderr().is_terminal();
    let mut bar: Option<ProgressBar> = None;
    let began = Instant::now();
    let (mut first, mut logged) = (None, began);
    move |Progress { file, done, total, model }| {
        if first.is_none() {
            let needs = needs(total - done.min(total), model, memory::available_bytes());
            if is_terminal {
                let _ = writeln!(std::io::stderr(), "{needs}");
            } else {
                tracing::info!("{needs}");
            }
        }
        let first = *first.get_or_insert(done);
        if is_terminal {
            let bar = bar.get_or_insert_with(|| new_bar(total));
            bar.set_message(printable(file.rsplit('/').next().unwrap_or_default()));
            bar.set_position(done);
            if done == total {
                bar.finish_and_clear();
            }
        } else if logged.elapsed() >= HUB_LOG_INTERVAL || done == total {
            let rate = done.saturating_sub(first) as f64 / began.elapsed().as_secs_f64() / 1e6;
            let (done, total) = (done as f64 / 1e6, total as f64 / 1e6);
            let left = (total - done) / rate.max(1e-3);
            tracing::info!(
                "downloaded {done:.1} of {total:.1} MB of {file} at {rate:.1} MB/s, {left:.0} s left"
            );
            logged = Instant::now();
        }
    }
}

/// What a download of `bytes` and a model of `model` bytes take.
fn needs(bytes: u64, model: u64, available: u64) -> String {
    let gb = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let fits = if model < available { "" } else { ": TOO LITTLE, choose a smaller quantisation" };
    format!(
        "downloading {}; the model takes about {} of memory beside its context, and {} are available{fits}",
        gb(bytes),
        gb(model),
        gb(available)
    )
}

fn new_bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let template =
        "{msg} {wide_bar} {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta}";
    bar.set_style(ProgressStyle::with_template(template).expect("a template of ours"));
    bar.reset_eta();
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_needs_is_said_before_the_download() {
        let said = needs(800_000_000, 1_000_000_000, 4_000_000_000);
        assert_eq!(
            said,
            "downloading 0.8 GB; the model takes about 1.0 GB of memory beside its context, and 4.0 GB are available"
        );
        assert!(needs(1, 5_000_000_000, 4_000_000_000).contains("TOO LITTLE"));
    }
}
