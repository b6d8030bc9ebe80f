//! Keeps API keys from people who should not have them, and warns where it cannot.

use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use corelane::config::ServeConfig;
use corelane::server::listener::is_unix;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::cli::ServeArgs;

/// Keeps API keys and the token for the hub out of core dumps, unless `--core-dumps` asks for them.
pub fn keep_out_of_core_dumps(args: &ServeArgs, config: &ServeConfig) {
    // Also keeps other users' debuggers away. Without it, perf needs root for this process.
    let has_secrets = !config.keys.is_empty() || args.engine.hub.has_token();
    if has_secrets
        && !args.core_dumps
        && set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err()
    {
        tracing::warn!(
            "core dumps cannot be switched off; they may hold API keys or the token for the hub"
        );
    }
}

/// Warns of an open server, and of keys that others can read.
pub fn warn(args: &ServeArgs, config: &ServeConfig) {
    for (flag, better) in secrets_on_command_line(std::env::args()) {
        tracing::warn!(
            "{flag} on the command line can be read by every user of this machine (ps, /proc); \
             use {better}"
        );
    }
    if config.keys.is_empty() {
        let reachable = config.hosts.iter().find(|host| is_reachable(host, config.port));
        if let Some(host) = reachable {
            tracing::warn!(
                "the server listens on {} without a key: EVERYBODY who can reach this machine may \
                 use it, and see what others do; set --api-key-file, or listen on 127.0.0.1",
                host
            );
        }
        return;
    }
    let config_file = args.config.as_ref().filter(|path| holds_keys(path));
    for path in args.api_key_file.iter().chain(config_file) {
        let Some(mode) = readable_by_others(path) else { continue };
        tracing::warn!(
            "{} has the mode {mode:o}: others can read the keys in it; set it with chmod 600",
            path.display()
        );
    }
}

/// Whether clients on other machines could reach this address.
fn is_reachable(host: &str, port: u16) -> bool {
    if is_unix(host) {
        return false;
    }
    let addresses = (host, port).to_socket_addrs();
    addresses.is_ok_and(|mut all| all.any(|address| !is_loopback(address.ip())))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// The flags of the command line that hold secrets, and better places for these.
fn secrets_on_command_line(
    args: impl Iterator<Item = String>,
) -> Vec<(&'static str, &'static str)> {
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

/// Whether a configuration file sets API keys.
fn holds_keys(path: &Path) -> bool {
    let table =
        std::fs::read_to_string(path).ok().and_then(|text| text.parse::<toml::Table>().ok());
    table.is_some_and(|table| table.contains_key("api-key") || table.contains_key("key"))
}

/// The file's mode, if anybody but its owner may read it.
fn readable_by_others(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.mode() & 0o777;
    (mode & 0o044 != 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use clap::Parser;
    use rustix::process::dumpable_behavior;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn core_dumps_are_off_where_there_are_keys() {
        for (flags, expected) in [
            (vec![], DumpableBehavior::Dumpable),
            (vec!["--key=a:secret"], DumpableBehavior::NotDumpable),
            (vec!["--hf-token=secret"], DumpableBehavior::NotDumpable),
            (vec!["--key=a:secret", "--core-dumps"], DumpableBehavior::Dumpable),
        ] {
            set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
            let args = ["corelane", "serve"].iter().chain(&flags);
            let Command::Serve(args) = Cli::parse_from(args).command else {
                panic!("not the command serve")
            };
            keep_out_of_core_dumps(&args, &args.config().unwrap());
            assert_eq!(dumpable_behavior().unwrap(), expected, "{flags:?}");
        }
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
    }

    #[test]
    fn secrets_on_the_command_line_are_found() {
        let found = |line: &str| {
            let found = secrets_on_command_line(line.split(' ').map(str::to_owned));
            found.into_iter().map(|(flag, _)| flag).collect::<Vec<_>>()
        };
        assert_eq!(found("corelane serve --api-key s"), ["--api-key"]);
        assert_eq!(found("corelane serve --key=a:b --api-key=s"), ["--api-key", "--key"]);
        assert_eq!(found("corelane serve -hft t --hf-token=t"), ["--hf-token", "-hft"]);
        assert!(found("corelane serve --api-key-file f").is_empty());
    }

    #[test]
    fn a_file_with_keys_that_others_can_read_is_found() {
        let path = std::env::temp_dir().join(format!("corelane-keys-{}.toml", std::process::id()));
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            (holds_keys(&path), readable_by_others(&path))
        };
        assert_eq!(write("key = [\"a:secret\"]", 0o640), (true, Some(0o640)));
        assert_eq!(write("api-key = \"secret\"", 0o600), (true, None));
        assert_eq!(write("api-key-file = \"keys\"\nport = 1", 0o644), (false, Some(0o644)));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn only_other_machines_make_an_address_reachable() {
        for (host, expected) in [
            ("127.0.0.1", false),
            ("::1", false),
            ("0.0.0.0", true),
            ("::", true),
            ("10.1.2.3", true),
        ] {
            assert_eq!(is_reachable(host, 80), expected, "{host}");
        }
    }
}
