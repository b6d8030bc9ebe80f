//! `corelane bench ladder`, as a user runs it: every rung, on the built-in model, with little work.

use std::path::PathBuf;
use std::process::{Command, Output};

fn ladder(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane-bench")).args(["ladder"]).args(args).output().unwrap()
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn every_rung_runs_what_it_names() {
    let (json, svg) = (scratch("ladder.json"), scratch("ladder.svg"));
    let output = ladder(&[
        "--requests=5",
        "--concurrency=2",
        "--prompt-tokens=9",
        "--gen-tokens=4",
        "--rounds=2",
        "--json",
        json.to_str().unwrap(),
        "--svg",
        svg.to_str().unwrap(),
    ]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");

    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let rounds = report["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2);
    for runs in rounds {
        let runs = runs.as_array().unwrap();
        assert_eq!(runs.len(), 11);
        for (rung, run) in runs.iter().enumerate() {
            assert_eq!(run["rung"], rung);
            assert_eq!(run["tokens"], 5 * 4, "rung {rung}");
            assert!(run["tokens_per_s"].as_f64().unwrap() > 0.0);
            let share = run["model_share"].as_f64().unwrap();
            assert!(0.0 < share && share < 1.0, "rung {rung}: {share}");
        }
        // The decode lane allocates nothing for a token, on any rung that has it.
        for run in &runs[3..] {
            if let Some(allocations) = run["allocations_per_token_decode"].as_f64() {
                assert_eq!(allocations, 0.0, "{}", run["name"]);
            }
        }
    }
    let table = String::from_utf8(output.stdout).unwrap();
    for name in ["0 backend", "4 scheduler", "10 client"] {
        assert!(table.contains(name), "{name} is missing in\n{table}");
    }
    let picture = std::fs::read_to_string(svg).unwrap();
    assert!(picture.contains("<svg") && picture.contains("the old server"));
}

/// All rungs do the same work, also where prompts and streams share steps and the scheduler has
/// learned the time of a step.
#[test]
fn the_scheduler_makes_the_steps_that_were_recorded() {
    let json = scratch("steps.json");
    let output = ladder(&[
        "--requests=24",
        "--concurrency=4",
        "--prompt-tokens=40",
        "--gen-tokens=6",
        "--ubatch-size=64",
        "--rounds=1",
        "--rung=0,3,4,5",
        "--json",
        json.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let runs = report["rounds"][0].as_array().unwrap();
    let steps: Vec<u64> = runs.iter().map(|run| run["steps"].as_u64().unwrap()).collect();
    assert_eq!(steps[0], steps[1], "rungs 0 and 3 run the recorded steps");
    // From rung 4 on, the scheduler plans in real time: a prompt may join one step later.
    assert!(steps[2..].iter().all(|n| n.abs_diff(steps[0]) <= 1), "{steps:?}");
    let together = runs[0]["decode_rows_mean"].as_f64().unwrap();
    assert!(together > 3.0, "{together} of 4 decode in a step that only decodes");
}

#[test]
fn a_part_of_the_ladder_can_be_run() {
    // The texts of rungs from 6 on are held against tokens, also where none of the rungs
    // below is asked for.
    for (rungs, shown, left_out) in [
        ("0,4", ["0 backend", "4 scheduler"], "9 stream"),
        ("7,9", ["7 handler", "9 stream"], "0 backend"),
    ] {
        let output = ladder(&[
            "--requests=2",
            "--concurrency=1",
            "--prompt-tokens=3",
            "--gen-tokens=2",
            "--rounds=1",
            &format!("--rung={rungs}"),
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(shown.iter().all(|rung| table.contains(rung)), "{table}");
        assert!(!table.contains(left_out), "{table}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_the_numbers() {
    for (args, sentence) in [
        (&["--rung=11"][..], "--rung 11: the rungs are 0 to 10"),
        (&["--requests=0"], "--requests is 0; it must be at least 1"),
        (&["--itl-target-ms=100"], "--itl-target-ms: prompts take whole steps on the ladder"),
        (
            &["--prompt-tokens=5000"],
            "--prompt-tokens and --gen-tokens are 5050 together; this model takes 1024",
        ),
        (&["--rung=3", "--svg=x.svg"], "--svg needs rung 0"),
    ] {
        let output = ladder(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(sentence), "{error}");
    }
}
