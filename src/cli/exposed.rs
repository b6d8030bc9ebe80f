//! Warns of secrets on the command line, which every user of the machine can read.

use std::io::Write;

/// Warns of secrets in this process's arguments, in the log.
pub fn warn() {
    warnings().for_each(|warning| tracing::warn!("{warning}"));
}

/// As [`warn`], but on standard error: for commands whose log shows errors alone, or that have none.
pub fn show() {
    for warning in warnings() {
        let _ = writeln!(std::io::stderr(), "corelane: {warning}");
    }
}

fn warnings() -> impl Iterator<Item = String> {
    let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    secrets(args).into_iter().map(|(flag, better)| {
        format!(
            "{flag} on the command line can be read by every user of this machine (ps, /proc); use \
             {better}"
        )
    })
}

/// The flags in `args` that hold secrets, and safer ways to give these.
fn secrets(args: impl Iterator<Item = String>) -> Vec<(&'static str, &'static str)> {
    const FILE: &str = "--api-key-file, or the flag's environment variable";
    const TOKEN: &str = "the environment variable HF_TOKEN";
    let args: Vec<String> = args.collect();
    let is_given = |(flag, _): &(&str, &str)| {
        args.iter().any(|arg| {
            arg.strip_prefix(*flag).is_some_and(|rest| matches!(rest.get(..1), None | Some("=")))
        })
    };
    let flags = [("--api-key", FILE), ("--key", FILE), ("--hf-token", TOKEN), ("-hft", TOKEN)];
    flags.into_iter().filter(is_given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_on_the_command_line_are_found() {
        let found = |line: &str| {
            let found = secrets(line.split(' ').map(str::to_owned));
            found.into_iter().map(|(flag, _)| flag).collect::<Vec<_>>()
        };
        assert_eq!(found("corelane serve --api-key s"), ["--api-key"]);
        assert_eq!(found("corelane serve --key=a:b --api-key=s"), ["--api-key", "--key"]);
        assert_eq!(found("corelane serve -hft t --hf-token=t"), ["--hf-token", "-hft"]);
        assert!(found("corelane serve --api-key-file f").is_empty());
    }
}
