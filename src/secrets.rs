//! Keeps API keys and tokens from people who should not have them, and warns where it cannot.

use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use corelane::config::ServeConfig;
use corelane::hub::Hub;
use corelane::server::listener::is_unix;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::cli::{ServeArgs, exposed};

/// Keeps API keys and the token for the hub out of core dumps, unless `--core-dumps` asks for them.
/// `hub` is that of a model by name.
pub fn keep_out_of_core_dumps(args: &ServeArgs, config: &ServeConfig, hub: Option<&Hub>) {
    // Also keeps other users' debuggers away. Without it, perf needs root for this process.
    let has_token = args.engine.hub.has_token() || hub.is_some_and(|hub| hub.token.is_some());
    let has_secrets = !config.keys.is_empty() || has_token;
    if has_secrets && !args.core_dumps {
        keep_all_out_of_core_dumps();
    }
}

/// Keeps this process's secrets out of core dumps.
pub fn keep_all_out_of_core_dumps() {
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        tracing::warn!(
            "core dumps cannot be switched off; they may hold API keys or the token for the hub"
        );
    }
}

/// Warns of an open server, and of secrets that others can read.
pub fn warn(args: &ServeArgs, config: &ServeConfig) {
    exposed::warn();
    if config.keys.is_empty() {
        let reachable = config.hosts.iter().find(|host| is_reachable(host, config.port));
        if let Some(host) = reachable {
            tracing::warn!(
                "the server listens on {} without a key: EVERYBODY who can reach this machine may \
                 use it, and see what others do; set --api-key-file, or listen on 127.0.0.1",
                host
            );
        }
    }
    let config_file = args.config.as_ref().filter(|path| holds_secrets(path));
    for path in args.api_key_file.iter().chain(config_file) {
        let Some(mode) = readable_by_others(path) else { continue };
        tracing::warn!(
            "{} has the mode {mode:o}: others can read the secrets in it; set it with chmod 600",
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

/// Whether a configuration file has API keys, a token for the hub, or headers for a collector.
fn holds_secrets(path: &Path) -> bool {
    let is_secret = |key: &String| {
        ["api-key", "key", "hf-token", "otlp-headers"].contains(&key.replace('_', "-").as_str())
    };
    let table =
        std::fs::read_to_string(path).ok().and_then(|text| text.parse::<toml::Table>().ok());
    table.is_some_and(|table| table.keys().any(is_secret))
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
    fn core_dumps_are_off_where_there_are_secrets() {
        let home = std::env::temp_dir().join(format!("corelane-dumpable-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("token"), "secret").unwrap();
        let hub = |home: &Path| {
            let variable = |name: &str| (name == "HF_HOME").then(|| home.display().to_string());
            Hub::new(variable, None, false).unwrap()
        };
        for (flags, expected) in [
            (vec![], DumpableBehavior::Dumpable),
            (vec!["--key=a:secret"], DumpableBehavior::NotDumpable),
            (vec!["--hf-token=secret"], DumpableBehavior::NotDumpable),
            (vec!["-m=mine.gguf"], DumpableBehavior::Dumpable),
            (vec!["--hf-repo=a/b"], DumpableBehavior::NotDumpable),
            (vec!["--key=a:secret", "--core-dumps"], DumpableBehavior::Dumpable),
        ] {
            set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
            let args = ["corelane", "serve"].iter().chain(&flags);
            let Command::Serve(args) = Cli::parse_from(args).command else {
                panic!("not the command serve")
            };
            let hub = args.engine.source().err().map(|_| hub(&home));
            keep_out_of_core_dumps(&args, &args.config().unwrap(), hub.as_ref());
            assert_eq!(dumpable_behavior().unwrap(), expected, "{flags:?}");
        }
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
        std::fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn a_file_with_secrets_that_others_can_read_is_found() {
        let path = std::env::temp_dir().join(format!("corelane-keys-{}.toml", std::process::id()));
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            (holds_secrets(&path), readable_by_others(&path))
        };
        assert_eq!(write("key = [\"a:secret\"]", 0o640), (true, Some(0o640)));
        assert_eq!(write("api-key = \"secret\"", 0o600), (true, None));
        for key in ["hf-token", "hf_token", "api_key", "otlp-headers"] {
            assert_eq!(write(&format!("{key} = \"secret\""), 0o604), (true, Some(0o604)), "{key}");
        }
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
