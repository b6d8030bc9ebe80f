//! What the README shows works as it stands there.

mod support;

use std::process::Command;

use corelane::config::ServeConfig;
use support::{Client, TestServer, config};

#[test]
fn the_readmes_curl_commands_work() {
    let readme = include_str!("../README.md").replace("\\\n", " ");
    let ops_addr = Some("127.0.0.1:0".into());
    let server = TestServer::builtin(ServeConfig { ops_addr, ..config() });
    let commands: Vec<&str> = readme.lines().filter(|line| line.starts_with("curl ")).collect();
    assert!(commands.len() >= 2, "the README shows curl");
    for command in commands {
        let expected = if command.contains("/metrics") { "# EOF\n" } else { "\"text\":\"" };
        let command = command.replace("127.0.0.1:8080", &server.address.to_string());
        let command = command.replace("127.0.0.1:9090", &server.ops_address().to_string());
        let script = format!("{command} --silent --show-error --fail --max-time 60");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {stderr}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(expected), "{command}");
    }
}

#[test]
fn the_readmes_bench_commands_work() {
    let server = TestServer::builtin(config());
    let commands = include_str!("../README.md").lines().filter(|line| {
        line.starts_with("corelane bench serve ") // and not in a sentence
    });
    let mut shown = 0;
    for command in commands {
        let mut program = Command::new(env!("CARGO_BIN_EXE_corelane"));
        program.args(command.split(' ').skip(1));
        let output = program.args(["--base-url", &format!("http://{}", server.address)]).output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {stderr}");
        shown += 1;
    }
    assert!(shown >= 1, "the README shows the load generator");
}

/// The README's table of flags is the program's.
#[test]
fn the_readmes_flags_are_the_programs() {
    let help = |command: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_corelane"));
        let output = program.args(command).arg("--help").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let readme = include_str!("../README.md");
    let longs = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        let longs = words.filter(|word| word.starts_with("--") && word.len() > 3);
        longs.map(str::to_owned).collect()
    };
    let (help_flags, readme_flags) = (longs(&help(&["serve"])), longs(readme));
    let bench_flags = longs(&help(&["bench", "serve"]));
    for flag in &help_flags {
        let known = ["--help", "--predict"].contains(&flag.as_str());
        assert!(known || readme_flags.contains(flag), "the README does not have {flag}");
    }
    for flag in &readme_flags {
        let known = help_flags.contains(flag) || bench_flags.contains(flag);
        assert!(known, "the program does not have {flag}");
    }
}

/// The README names every metric that is shown.
#[test]
fn the_readmes_metrics_are_the_programs() {
    let ops_addr = Some("127.0.0.1:0".into());
    let server = TestServer::fake(ServeConfig { ops_addr, ..config() }, 0);
    let page = Client::connect(server.ops_address()).get("/metrics").body;
    let readme = include_str!("../README.md").replace("`_", "`corelane_kv_tokens_");
    for family in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = family.split_once(' ').unwrap();
        let shown = if kind == "counter" { format!("`{name}_total`") } else { format!("`{name}`") };
        assert!(readme.contains(&shown), "{shown}");
    }
}
