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

/// The README's table of flags is the program's.
#[test]
fn the_readmes_flags_are_the_programs() {
    let output = Command::new(env!("CARGO_BIN_EXE_corelane")).args(["serve", "--help"]).output();
    let help = String::from_utf8(output.unwrap().stdout).unwrap();
    let readme = include_str!("../README.md");
    let longs = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        let longs = words.filter(|word| word.starts_with("--") && word.len() > 3);
        longs.map(str::to_owned).collect()
    };
    let (help_flags, readme_flags) = (longs(&help), longs(readme));
    for flag in &help_flags {
        let known = ["--help", "--predict"].contains(&flag.as_str());
        assert!(known || readme_flags.contains(flag), "the README does not have {flag}");
    }
    for flag in &readme_flags {
        assert!(help_flags.contains(flag), "the program does not have {flag}");
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
