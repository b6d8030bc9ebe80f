//! Writes the result file, with vllm's keys, so that tools for vllm's files can read it.

use std::path::PathBuf;

use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::args::{BenchServeArgs, Scenario};
use super::workload::Form;

/// Writes the file of `--save-result`.
pub fn save(
    args: &BenchServeArgs,
    urls: &[String],
    models: &[Option<&str>],
    results: Map<String, Value>,
) -> Result<(), String> {
    let date = date(OffsetDateTime::now_utc());
    let mut object = setup(args, urls, models, &date);
    object.extend(results);
    let path = path(args, models, &date);
    let shown = path.display();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make the folder of {shown}: {error}"))?;
    }
    let mut text = Value::Object(object).to_string();
    text.push('\n');
    std::fs::write(&path, text).map_err(|error| format!("cannot write {shown}: {error}"))
}

/// The settings of the run, limited to those that the scenario uses.
fn setup(
    args: &BenchServeArgs,
    urls: &[String],
    models: &[Option<&str>],
    date: &str,
) -> Map<String, Value> {
    let rate: Value = match args.request_rate.is_finite() {
        true => args.request_rate.into(),
        false => "inf".into(),
    };
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("date", date.into());
    put("endpoint_type", args.backend.name().into());
    put("backend", args.backend.name().into());
    put("label", args.label().into());
    put("model_id", models[0].into());
    if matches!(args.scenario, Scenario::Load | Scenario::Burst) {
        put("num_prompts", args.num_prompts().into());
    }
    for (key, value) in &args.metadata {
        put(key, value.as_str().into());
    }
    if args.scenario == Scenario::Load {
        put("request_rate", rate);
        put("burstiness", args.burstiness().into());
        put("max_concurrency", args.max_concurrency.into());
        put("random_range_ratio", args.range_ratio().into());
    }
    put("client", concat!("corelane ", env!("CARGO_PKG_VERSION")).into());
    put("scenario", args.scenario.name().into());
    put("base_url", urls[0].as_str().into());
    if let (Some(url), Some(model)) = (urls.get(1), models.get(1)) {
        put("vs", url.as_str().into());
        put("vs_model_id", (*model).into());
    }
    put("endpoint", args.endpoint().into());
    put("text_prompts", (args.form() != Form::Ids).into());
    put("random_input_len", args.random_input_len.into());
    put("random_output_len", args.output_len().into());
    if args.scenario == Scenario::Stall {
        put("streams", args.streams().into());
        put("long_input_len", args.long_input_len().into());
    } else {
        put("prefix_len", args.prefix_len().into());
    }
    put("num_warmups", args.num_warmups.into());
    put("ignore_eos", args.ignore_eos.into());
    put("temperature", args.temperature.into());
    put("stream", (!args.no_stream).into());
    put("seed", args.seed.into());
    object
}

/// The path of the file: `--result-filename`, or a name in vllm's form, in `--result-dir`.
fn path(args: &BenchServeArgs, models: &[Option<&str>], date: &str) -> PathBuf {
    let of_run = || {
        let concurrency =
            args.max_concurrency.map_or(String::new(), |n| format!("-concurrency{n}"));
        let model = models[0].and_then(|id| id.rsplit('/').next()).unwrap_or("model");
        let name = format!("{}-{}qps{concurrency}-{model}-{date}", args.label(), args.request_rate);
        let plain = |c: char| if c.is_alphanumeric() || "-._".contains(c) { c } else { '_' };
        PathBuf::from(format!("{}.json", name.chars().map(plain).collect::<String>()))
    };
    let name = args.result_filename.clone().unwrap_or_else(of_run);
    args.result_dir.clone().unwrap_or_default().join(name)
}

/// The date and time in UTC, such as `20261121-065900`.
fn date(now: OffsetDateTime) -> String {
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second()
    )
}

#[cfg(test)]
mod tests {
    use super::super::args::tests::parse;
    use super::*;

    #[test]
    fn the_file_is_named_as_vllm_names_it() {
        let name = |flags: &str, model| {
            path(&parse(flags), &[model], "20260102-030405").to_str().unwrap().to_owned()
        };
        assert_eq!(name("", Some("org/m 1")), "openai-infqps-m_1-20260102-030405.json");
        let flags = "--request-rate 2.5 --max-concurrency 8 --label a/b --result-dir runs";
        assert_eq!(name(flags, None), "runs/a_b-2.5qps-concurrency8-model-20260102-030405.json");
        let flags = "--result-dir runs --result-filename x.json";
        assert_eq!(name(flags, None), "runs/x.json");
    }

    #[test]
    fn dates_are_read_from_left_to_right() {
        let moment = OffsetDateTime::from_unix_timestamp(1_767_323_045).unwrap();
        assert_eq!(date(moment), "20260102-030405");
    }

    #[test]
    fn the_setup_is_in_the_file() {
        let args = parse("--metadata commit=1a --vs http://b --request-rate 2");
        let urls = ["http://a".to_owned(), "http://b".to_owned()];
        let setup = setup(&args, &urls, &[Some("m"), None], "d");
        assert_eq!(setup["commit"], "1a");
        assert_eq!(setup["request_rate"], 2.0);
        assert_eq!(setup["vs"], "http://b");
        assert_eq!(setup["model_id"], "m");
        assert_eq!(setup["max_concurrency"], Value::Null);
        assert_eq!((&setup["prefix_len"], &setup["num_prompts"]), (&0.into(), &40.into()));
    }

    #[test]
    fn what_a_scenario_does_not_use_is_not_in_the_file() {
        const LOADS_ALONE: [&str; 4] =
            ["request_rate", "burstiness", "max_concurrency", "random_range_ratio"];
        for (scenario, without) in [
            ("load", ["streams", "long_input_len"]),
            ("stall", ["num_prompts", "prefix_len"]),
            ("burst", ["streams", "long_input_len"]),
            ("turns", ["num_prompts", "streams"]),
        ] {
            let args = parse(&format!("--scenario {scenario}"));
            let setup = setup(&args, &["http://a".to_owned()], &[None], "d");
            assert_eq!(setup["scenario"], scenario);
            for key in LOADS_ALONE {
                assert_eq!(setup.contains_key(key), scenario == "load", "{scenario}: {key}");
            }
            for key in without {
                assert!(!setup.contains_key(key), "{scenario}: {key}");
            }
        }
        let chat = parse("--backend openai-chat");
        let setup = setup(&chat, &["http://a".to_owned()], &[None], "d");
        assert_eq!(
            (&setup["backend"], &setup["text_prompts"]),
            (&"openai-chat".into(), &true.into())
        );
    }
}
