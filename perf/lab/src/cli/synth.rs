//! `corelane model synth`: a model file with random weights, for measurements.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use corelane_bench::synth::{
    Made, Progress, QUANTS, Quant, Request, SHAPES, Shape, Stage, synth, temporary_path,
};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const EXAMPLES: &str = "\
Examples:
  corelane model synth qwen3.gguf                        as fast as the real Qwen3-0.6B in q4_k_m
  corelane model synth --shape llama-3.2-1b --quant q8_0 llama.gguf
  corelane model synth --shape qwen3-4b --layers 4 slice.gguf    a fifth of it, to try things

Then:
  corelane serve -m qwen3.gguf

The file has the tensors, types and vocabulary size of the real model, and a token takes the
same time. The text is meaningless, so let requests set ignore_eos. Equal commands make equal
files, without a download. Making the file also needs disk space for the weights in 16 bits
(1.2 GB for qwen3-0.6b).";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SynthArgs {
    /// File to write
    #[arg(value_name = "OUT.gguf")]
    out: PathBuf,
    /// Model whose shape to copy
    #[arg(
        long,
        value_name = "NAME",
        default_value = "qwen3-0.6b",
        value_parser = PossibleValuesParser::new(SHAPES.iter().map(|shape| shape.name))
            .map(|name| Shape::named(&name).expect("one of them").clone())
    )]
    shape: Shape,
    /// Types of its tensors
    #[arg(
        long,
        value_name = "NAME",
        default_value = "q4_k_m",
        value_parser = PossibleValuesParser::new(QUANTS.iter().map(|quant| quant.name))
            .map(|name| Quant::named(&name).expect("one of them"))
    )]
    quant: &'static Quant,
    /// Seed of the random weights
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Replace OUT.gguf if it exists
    #[arg(long)]
    force: bool,

    /// Transformer blocks
    #[arg(long, value_name = "N", help_heading = SHAPE)]
    layers: Option<u32>,
    /// Numbers in the hidden state
    #[arg(long, value_name = "N", help_heading = SHAPE)]
    width: Option<u32>,
    /// Numbers in the feed-forward layer
    #[arg(long, value_name = "N", help_heading = SHAPE)]
    ffn: Option<u32>,
    /// Query heads
    #[arg(long, value_name = "N", help_heading = SHAPE)]
    heads: Option<u32>,
    /// Key-value heads, each shared by several query heads
    #[arg(long, value_name = "N", help_heading = SHAPE)]
    kv_heads: Option<u32>,
    /// Numbers in one head
    #[arg(long, value_name = "N", help_heading = SHAPE)]
    head_size: Option<u32>,
    /// Tokens in the vocabulary: the built-in model's, and fillers
    #[arg(long, value_name = "N", help_heading = SHAPE)]
    vocab: Option<u32>,
    /// Tokens of context
    #[arg(long, value_name = "N", help_heading = SHAPE)]
    context: Option<u32>,
    /// Base of the rotary embedding's frequencies
    #[arg(long, value_name = "X", help_heading = SHAPE)]
    rope_base: Option<f32>,
    /// Give the output a matrix of its own, apart from the token embedding
    #[arg(long, help_heading = SHAPE)]
    untied: bool,
}

const SHAPE: &str = "Shape [default: that of --shape]";

impl SynthArgs {
    fn request(&self) -> Request {
        let base = self.shape.clone();
        Request {
            shape: Shape {
                layers: self.layers.unwrap_or(base.layers),
                width: self.width.unwrap_or(base.width),
                ffn: self.ffn.unwrap_or(base.ffn),
                heads: self.heads.unwrap_or(base.heads),
                kv_heads: self.kv_heads.unwrap_or(base.kv_heads),
                head_size: self.head_size.unwrap_or(base.head_size),
                vocab: self.vocab.unwrap_or(base.vocab),
                context: self.context.unwrap_or(base.context),
                rope_base: self.rope_base.unwrap_or(base.rope_base),
                tied: base.tied && !self.untied,
                ..base
            },
            quant: self.quant,
            seed: self.seed,
            out: self.out.clone(),
            force: self.force,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Makes the file.
pub fn run(args: &SynthArgs) -> Result<(), String> {
    let request = args.request();
    clean_up_on_signal(temporary_path(&request.out))?;
    let started = Instant::now();
    let made = synth(&request, progress_bar()).map_err(|error| error.to_string())?;
    announce(&request, &made, started.elapsed());
    Ok(())
}

/// Removes the unfinished file at SIGTERM or SIGINT, and exits.
fn clean_up_on_signal(temporary: PathBuf) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot wait for signals: {error}");
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            let _ = std::fs::remove_file(&temporary); // it may not exist
            signal_hook::low_level::exit(128 + signal);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map_err(failed)?;
    Ok(())
}

/// Returns a progress bar; indicatif draws on terminals only.
fn progress_bar() -> impl FnMut(Progress) + 'static {
    let mut shown: Option<(Stage, ProgressBar)> = None;
    move |Progress { stage, done, total }| {
        if shown.as_ref().is_none_or(|(current, _)| *current != stage) {
            let bar = ProgressBar::new(total).with_finish(ProgressFinish::AndClear);
            let what = match stage {
                Stage::Drawing => "drawing weights ",
                Stage::Quantising => "quantising them ",
            };
            let style = ProgressStyle::with_template(&format!("{what}{{wide_bar}} {{percent}} %"));
            bar.set_style(style.expect("a template of ours"));
            shown = Some((stage, bar));
        }
        if let Some((_, bar)) = &shown {
            bar.set_position(done);
        }
    }
}

fn announce(request: &Request, made: &Made, took: Duration) {
    let Request { shape, seed, out, .. } = request;
    let mut types = BTreeMap::<&str, usize>::new();
    for tensor in &made.tensors {
        *types.entry(&tensor.type_name).or_default() += 1;
    }
    let types: Vec<String> = types.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let weights: u64 = made.tensors.iter().map(|tensor| tensor.dims.iter().product::<u64>()).sum();
    let text = format!(
        "wrote {out}: {size:.1} MB in {seconds:.1} s
  model    {title}: {weights:.1} M random weights (seed {seed})
  tensors  {count}: {types}

Try it:
  corelane serve -m {out}
",
        out = out.display(),
        size = made.bytes as f64 / 1e6,
        seconds = took.as_secs_f64(),
        title = shape.title(),
        weights = weights as f64 / 1e6,
        count = made.tensors.len(),
        types = types.join(", "),
    );
    // The file is written, even if standard output is closed.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
