//! The documents are true where they speak of the program: commands run as they stand there, every
//! flag, metric and path has its line, and defaults are the program's. (`tests/rules/documents.rs`
//! has what the sources alone show.)

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::pages::{pages, quoted, read, root};
use crate::support::{Client, TestServer, config};
use corelane::config::{FileFolder, ServeConfig};

/// The lines of all pages that begin with a command.
fn commands(program: &str) -> Vec<String> {
    let texts = pages().into_iter().map(|page| read(page).replace("\\\n", " "));
    let texts: Vec<String> = texts.collect();
    let lines = texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with(program));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_curl_commands_work() {
    let ops_addr = Some("127.0.0.1:0".into());
    let folder = tempfile::tempdir().unwrap();
    let slot_save = Some(FileFolder { path: folder.path().to_owned(), mib: 64 });
    let server = TestServer::builtin(ServeConfig { ops_addr, slot_save, ..config() });
    let commands = commands("curl ");
    assert!(commands.len() >= 2, "the README shows curl");
    for command in commands {
        let command = command.replace("127.0.0.1:8080", &server.address.to_string());
        let command = command.replace("127.0.0.1:9090", &server.ops_address().to_string());
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        let body = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && !body.is_empty(), "{command}: {output:?}");
        assert!(!body.contains("\"error\""), "{command}: {body}");
    }
}

/// `examples/curl.sh` stops at the first answer that is an error.
#[test]
fn the_curl_examples_work() {
    let server = TestServer::builtin(config());
    let mut command = Command::new("sh");
    command.arg(root().join("examples/curl.sh"));
    command.env("BASE_URL", format!("http://{}", server.address));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("3 plus 4 is 7") && said.contains("data: [DONE]"), "{said}");
}

#[test]
fn the_bench_commands_work() {
    let server = TestServer::builtin(config());
    let commands = commands("corelane bench serve ");
    assert!(!commands.is_empty(), "the README shows the load generator");
    for command in commands {
        let mut program = Command::new(env!("CARGO_BIN_EXE_corelane"));
        program.args(command.split(' ').skip(1));
        let output = program.args(["--base-url", &format!("http://{}", server.address)]).output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {stderr}");
    }
}

/// The table of flags is the program's.
#[test]
fn every_flag_has_its_line() {
    let help = |command: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_corelane"));
        let output = program.args(command).arg("--help").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let longs = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        let longs = words.filter(|word| word.starts_with("--") && word.len() > 3);
        longs.map(str::to_owned).collect()
    };
    let page = longs(&read("docs/flags.md"));
    let serve = longs(&help(&["serve"]));
    for flag in &serve {
        let known = ["--help", "--predict"].contains(&flag.as_str());
        assert!(known || page.contains(flag), "docs/flags.md does not have {flag}");
    }
    let others = [
        &["chat"][..],
        &["run"],
        &["doctor"],
        &["tune"],
        &["profile"],
        &["bench", "serve"],
        &["bench", "ladder"],
        &["bench", "replay"],
        &["model", "pull"],
        &["model", "list"],
        &["model", "rm"],
        &["model", "show"],
        &["model", "synth"],
        &[],
    ];
    let others: Vec<String> = others.iter().flat_map(|command| longs(&help(command))).collect();
    for flag in page.iter().chain(&longs(&read("README.md"))) {
        let known = serve.contains(flag) || others.contains(flag);
        assert!(known, "the program does not have {flag}");
    }
}

/// Where the table of flags has a number or a word as the default, the program has it, too.
#[test]
fn every_default_is_the_programs() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_corelane"));
    let help = String::from_utf8(program.args(["serve", "--help"]).output().unwrap().stdout);
    // Help is broken over lines.
    let help = help.unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let page = read("docs/flags.md");
    let table = page.split("\n## ").find(|part| part.starts_with("corelane serve\n")).unwrap();
    let mut compared = 0;
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.split(" | ");
        let (flag, default) = (cells.next().unwrap(), cells.next().unwrap());
        let word = default.strip_prefix('`').and_then(|word| word.strip_suffix('`'));
        let word = word.or(Some(default).filter(|number| number.parse::<i64>().is_ok()));
        let Some(word) = word.filter(|word| !word.contains('`')) else { continue };
        let long = flag.split("--").nth(1).and_then(|rest| rest.split([' ', '`']).next()).unwrap();
        let entry = help.split(&format!("--{long} <")).nth(1).unwrap_or_else(|| panic!("{long}"));
        let shown = entry.split("[default: ").nth(1).unwrap();
        let rest = shown.strip_prefix(word).unwrap_or_else(|| panic!("--{long}: {word}, {shown}"));
        assert!(rest.starts_with([']', ',']), "--{long} is not {word}");
        compared += 1;
    }
    assert!(compared > 20, "{compared} defaults");
}

/// The words in backticks of the comparison with llama-server.
fn compared() -> Vec<String> {
    let page = read("docs/api.md");
    let section = page.split("## Compared with llama-server").nth(1).expect("it is there");
    let quoted = section.split('`').skip(1).step_by(2);
    quoted.flat_map(str::split_whitespace).map(|word| word.trim_matches(',').to_owned()).collect()
}

/// Every flag, path and field in llama-server's README has its place in our comparison.
#[test]
fn all_of_llama_servers_readme_is_compared() {
    let readme = Path::new(env!("LLAMA_SOURCES")).join("tools/server/README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let compared = compared();
    let is_compared = |name: &str| {
        compared.iter().any(|word| match word.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => word == name,
        })
    };
    let mut flags = 0;
    for line in readme.lines() {
        // | `-t, --threads N` | …
        let Some(cell) = line.strip_prefix("| `-").and_then(|rest| rest.split('`').next()) else {
            continue;
        };
        let cell = format!("-{cell}");
        let words = cell.split([' ', ',']).filter(|word| word.starts_with('-'));
        assert!(words.clone().any(is_compared), "{cell}");
        flags += 1;
    }
    assert!(flags > 200, "{flags} flags");
    let start = readme.find("### POST `/completion`").expect("its fields");
    let completion = &readme[start..start + readme[start..].find("### POST `/tokenize`").unwrap()];
    let fields = completion.lines().filter_map(|line| line.strip_prefix('`')?.split_once("`: "));
    let fields: Vec<&str> = fields.map(|(field, _)| field).collect();
    assert!(fields.len() > 40, "{fields:?}");
    for field in fields {
        assert!(is_compared(field), "the field {field}");
    }
    for line in readme.lines().filter(|line| line.starts_with("### ")) {
        let Some(path) = line.split('`').nth(1).filter(|path| path.starts_with('/')) else {
            continue;
        };
        let path = path.split('?').next().unwrap();
        let is_compared = compared.iter().any(|word| word.split('?').next() == Some(path));
        assert!(is_compared, "the path {path}");
    }
}

/// A server on a NUMA node is as confined as the one server of a machine.
#[test]
fn both_units_are_hardened_alike() {
    let settings = |unit: &str| {
        let text = read(unit);
        let lines = text.lines().skip_while(|line| *line != "NoNewPrivileges=yes");
        let lines = lines.take_while(|line| *line != "[Install]");
        lines.filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    let one = settings("packaging/corelane.service");
    assert!(one.len() > 25, "{one:?}");
    assert_eq!(one, settings("packaging/corelane@.service"));
}

/// Every metric that is shown has its line.
#[test]
fn every_metric_has_its_line() {
    let ops_addr = Some("127.0.0.1:0".into());
    let server = TestServer::fake(ServeConfig { ops_addr, ..config() }, 0);
    let page = Client::connect(server.ops_address()).get("/metrics").body;
    let document = read("docs/metrics.md");
    for family in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = family.split_once(' ').unwrap();
        let shown = if kind == "counter" { format!("`{name}_total`") } else { format!("`{name}`") };
        assert!(document.contains(&shown), "{shown}");
    }
}

/// Every path that is served has its line.
#[test]
fn every_path_has_its_line() {
    let page = read("docs/api.md");
    let words: BTreeSet<&str> = quoted(&page).flat_map(str::split_whitespace).collect();
    for path in corelane::api::route::paths() {
        assert!(words.contains(path), "docs/api.md does not have {path}");
    }
}
