//! What the README shows works as it stands there.

mod support;

use std::process::Command;

use support::{TestServer, config};

#[test]
fn the_readmes_curl_commands_work() {
    let readme = include_str!("../README.md").replace("\\\n", " ");
    let server = TestServer::builtin(config());
    let commands: Vec<&str> = readme.lines().filter(|line| line.starts_with("curl ")).collect();
    assert!(commands.len() >= 2, "the README shows curl");
    for command in commands {
        let command = command.replace("127.0.0.1:8080", &server.address.to_string());
        let script = format!("{command} --silent --show-error --fail --max-time 60");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {stderr}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("\"text\":\""));
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
