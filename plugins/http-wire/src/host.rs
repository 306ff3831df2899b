//! Host names in `Host` fields and `:authority`. An attacker can let a host name resolve to this machine (DNS
//! rebinding), but cannot do so with an IP address or a loopback name.

use crate::http1_request::is_host;
use core::net::IpAddr;

/// Host names that a listener serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedHosts {
    /// Names in lower case, without port.
    names: Vec<Box<str>>,
}

/// Kind of host that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestHostKind {
    /// Missing host.
    Missing,
    /// Name `localhost`, a name below it, or a loopback address.
    Loopback,
    /// IP address that is not a loopback address.
    Address(IpAddr),
    /// Host name that is configured for the listener.
    Configured,
    /// Any other host name, or an invalid one.
    Unknown,
}

impl ServedHosts {
    /// Returns a set of the given host names (case-insensitive).
    #[must_use]
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let name = |name: &str| name.trim_end_matches('.').to_ascii_lowercase().into_boxed_str();
        Self { names: names.into_iter().map(name).filter(|name| !name.is_empty()).collect() }
    }

    /// Returns the first of the names; `None` if no names are configured.
    #[must_use]
    pub fn first_host_name(&self) -> Option<&str> {
        self.names.first().map(|name| &**name)
    }

    /// Classifies the host of an authority, with or without a port.
    #[must_use]
    pub fn classify_request_host(&self, authority: &str) -> RequestHostKind {
        if authority.is_empty() {
            return RequestHostKind::Missing;
        }
        if !is_host(authority.as_bytes()) {
            return RequestHostKind::Unknown;
        }
        let name = host_without_port(authority);
        if let Ok(address) = name.parse::<IpAddr>() {
            return if is_loopback(address) {
                RequestHostKind::Loopback
            } else {
                RequestHostKind::Address(address)
            };
        }
        let ends = |end: &str| {
            let start = name.len().checked_sub(end.len()).and_then(|at| name.get(at..));
            start.is_some_and(|start| start.eq_ignore_ascii_case(end))
        };
        if name.eq_ignore_ascii_case("localhost") || ends(".localhost") {
            RequestHostKind::Loopback
        } else if self.names.iter().any(|known| name.eq_ignore_ascii_case(known)) {
            RequestHostKind::Configured
        } else {
            RequestHostKind::Unknown
        }
    }
}

/// Returns the host of an authority, without port, brackets and trailing dot.
#[must_use]
pub fn host_without_port(authority: &str) -> &str {
    let name = match authority.strip_prefix('[') {
        Some(inner) => inner.split(']').next(),
        None => authority.split(':').next(),
    };
    name.unwrap_or_default().trim_end_matches('.')
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_known_names_are_classified() {
        let hosts = ServedHosts::new(["Gateway.Example.", "penstock", ""]);
        let is = |authority: &str| hosts.classify_request_host(authority);
        assert_eq!(is(""), RequestHostKind::Missing);
        for loopback in [
            "localhost",
            "LOCALHOST:80",
            "localhost.",
            "a.localhost:9",
            "127.0.0.1",
            "127.1.2.3:80",
            "[::1]",
            "[::1]:80",
            "[::ffff:127.0.0.1]",
        ] {
            assert_eq!(is(loopback), RequestHostKind::Loopback, "{loopback}");
        }
        for address in ["10.0.0.1", "192.0.2.1:9090", "[2001:db8::1]:80", "0.0.0.0"] {
            assert!(matches!(is(address), RequestHostKind::Address(_)), "{address}");
        }
        for known in ["gateway.example", "GATEWAY.example:8080", "gateway.example.", "penstock:1"] {
            assert_eq!(is(known), RequestHostKind::Configured, "{known}");
        }
        for unknown in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            ".localhost.example",
            "gateway.example.evil.example",
            "evil.example:80",
            "127.0.0.1@evil.example",
            "a b<>",
            "localhost/",
            "[::1",
            "2130706433",
            "0x7f000001",
            "127.1",
            "penstock.evil.example",
            "\u{e9}",
        ] {
            assert_eq!(is(unknown), RequestHostKind::Unknown, "{unknown}");
        }
    }
}
