//! The progress of loading a model.

use corelane::model::load::Source;
use indicatif::{ProgressBar, ProgressStyle};

/// Smaller models load too fast for a bar.
const SHOWN_FROM_BYTES: u64 = 64 * 1024 * 1024;

/// A progress bar for models that load slowly.
pub fn progress_bar(source: &Source) -> impl FnMut(f32) + 'static {
    let bytes = match source {
        Source::File(path) => std::fs::metadata(path).map_or(0, |meta| meta.len()),
        Source::BuiltIn => 0,
    };
    let bar = (bytes >= SHOWN_FROM_BYTES).then(|| {
        let bar = ProgressBar::new(bytes);
        let template = "loading {wide_bar} {bytes} of {total_bytes}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar
    });
    move |done| {
        if let Some(bar) = &bar {
            bar.set_position((f64::from(done) * bytes as f64) as u64);
            if done >= 1.0 {
                bar.finish_and_clear();
            }
        }
    }
}
