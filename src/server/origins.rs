//! The web pages that may use the server, and the host names to which it answers.
//!
//! A browser sends requests on behalf of any open page, even to servers that listen only on this
//! machine. It names the page in `Origin`. The server accepts only pages of this machine, of this
//! server, of desktop programs, and pages that the operator names.
//!
//! A page could also make its own name point to this machine (DNS rebinding). So a server without
//! keys answers only to addresses, to `localhost`, and to names that the operator gives. Names
//! without a dot and names such as `server.local` are not safe: any machine of the network may
//! answer for them (mDNS, LLMNR).

use std::net::IpAddr;

/// The origins and hosts that the operator allows. `*` allows all.
#[derive(Debug, Default)]
pub(super) struct Origins {
    origins: Vec<String>,
    hosts: Vec<String>,
}

/// Schemes of pages that are part of a program on the user's machine. Ollama allows them, too.
const PROGRAMS: [&str; 4] = ["app://", "file://", "tauri://", "vscode-webview://"];

impl Origins {
    pub fn new(origins: &[String], hosts: &[String]) -> Self {
        let origins = origins.iter().map(|origin| origin.to_ascii_lowercase()).collect();
        let hosts = hosts.iter().map(|host| name_of(host).to_ascii_lowercase()).collect();
        Self { origins, hosts }
    }

    /// Whether a page of this origin may use the server. `host` is the request's `Host`.
    pub fn lets_in(&self, origin: &str, host: Option<&str>) -> bool {
        let origin = origin.to_ascii_lowercase();
        let host = host.map(str::to_ascii_lowercase);
        let page = origin.split_once("://").map(|(_, authority)| authority);
        let is_own = page.is_some() && page == host.as_deref();
        is_own
            || self.origins.iter().any(|known| known == "*" || *known == origin)
            || PROGRAMS.iter().any(|scheme| origin.starts_with(scheme))
            || page.is_some_and(|page| is_this_machine(name_of(page)))
    }

    /// Whether a server without keys answers to this `Host`.
    pub fn answers_to(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = name_of(&host).trim_end_matches('.');
        // An IPv6 address may have a zone, such as `fe80::1%eth0`. No browser sends an empty name.
        let address = name.split('%').next().unwrap_or_default();
        name.is_empty()
            || address.parse::<IpAddr>().is_ok()
            || is_this_machine(name)
            || self.hosts.iter().any(|known| known == "*" || known == name)
            || self
                .origins
                .iter()
                .filter_map(|origin| origin.split_once("://"))
                .any(|(_, page)| name_of(page) == name)
    }
}

/// The name or the address in `name:port`, without the brackets of an IPv6 address.
pub(super) fn name_of(authority: &str) -> &str {
    if let Some((address, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    authority.rsplit_once(':').map_or(authority, |(name, _)| name)
}

fn is_this_machine(name: &str) -> bool {
    let is_loopback = |address: IpAddr| address.is_loopback();
    name == "localhost" || name.ends_with(".localhost") || name.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_machine_and_named_ones_are_let_in() {
        let origins = Origins::new(&["https://Chat.example".into()], &[]);
        for (origin, expected) in [
            ("http://localhost:3000", true),
            ("https://app.localhost", true),
            ("http://127.0.0.1", true),
            ("http://[::1]:8080", true),
            ("https://chat.example", true),
            ("tauri://localhost", true),
            ("vscode-webview://1a2b", true),
            ("http://10.0.0.5:8080", true), // the server's own pages
            ("http://chat.example", false),
            ("https://chat.example.evil", false),
            ("http://localhost.evil", false),
            ("http://10.0.0.6:8080", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(origins.lets_in(origin, Some("10.0.0.5:8080")), expected, "{origin}");
        }
        assert!(Origins::new(&["*".into()], &[]).lets_in("http://evil", None));
    }

    #[test]
    fn a_name_that_another_machine_can_point_here_is_not_answered_to() {
        let origins = Origins::new(
            &["https://chat.example".into()],
            &["llm.example".into(), "Other.example:80".into()],
        );
        for (host, expected) in [
            ("localhost:8080", true),
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("10.0.0.5", true),
            ("[fe80::1%eth0]:8080", true),
            ("", true),
            ("app.localhost", true),
            ("localhost.", true),
            ("LLM.example:8080", true),
            ("other.example", true),
            ("chat.example", true),
            ("corelane:8080", false),
            ("corelane.local:8080", false),
            ("corelane.default.svc", false),
            ("corelane.default.svc.cluster.local:80", false),
            ("server.lan", false),
            ("server.internal", false),
            ("notlocalhost", false),
            ("evil.example:8080", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil", false),
        ] {
            assert_eq!(origins.answers_to(host), expected, "{host}");
        }
        assert!(Origins::new(&[], &["*".into()]).answers_to("evil.example"));
    }
}
