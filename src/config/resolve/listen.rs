//! Listeners: addresses, TLS, host names, and addresses that conflict.

use super::super::raw::{self, ConfigFile, OneOrMany};
use super::super::settings::{
    ClientCertificatePolicy, ConsoleSettings, HttpsSettings, ListenSettings, MAX_LISTENERS,
    SimulatorSettings, TlsSettings, TlsVersion,
};
use super::key_path::KeyPath;
use super::{SettingsResolver, url};
use penstock_http_wire::host::{self, ServedHosts};
use penstock_http_wire::http1_request::is_host;
use std::net::{IpAddr, SocketAddr};

/// TLS settings of a listener, as written in the configuration.
pub struct WrittenTlsSettings<'a> {
    pub certificate: &'a str,
    pub key: &'a str,
    pub client_ca: Option<&'a str>,
    pub client_certificate: Option<ClientCertificatePolicy>,
    pub min_tls: TlsVersion,
}

impl SettingsResolver<'_> {
    /// Resolves `[listen]`; `None` after a mistake.
    pub fn resolve_listen(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<ListenSettings> {
        let spot = top.child("listen");
        let at = spot.child("http");
        let http: Vec<Option<SocketAddr>> = match &raw.listen.http {
            OneOrMany::One(one) => vec![self.parse_address(one, &at)],
            OneOrMany::Many(many) => many
                .iter()
                .enumerate()
                .map(|(i, address)| self.parse_address(address, &at.list_element(i)))
                .collect(),
        };
        if http.is_empty() && raw.listen.https.is_none() {
            self.report_mistake(
                &at,
                "The gateway has no listener, so no client could reach it.",
                "Write an address in `http` or `https`.",
            );
        }
        let https = raw.listen.https.as_ref().map(|https| self.resolve_https(https, &spot.child("https")));
        let public_url = match &raw.listen.public_url {
            Some(url) => self.resolve_public_url(url, &spot.child("public_url")).map(Some),
            None => Some(None),
        };
        let documentation = match &raw.listen.documentation {
            Some(url) => self.parse_display_url(url, &spot.child("documentation")).map(Some),
            None => Some(None),
        };
        let cors = self.resolve_cors(&raw.listen.cors, &spot.child("cors"));
        let admin = self.parse_address(&raw.listen.admin, &spot.child("admin"));
        let hosts = self.resolve_served_hosts(
            &raw.listen.hosts,
            public_url.as_ref().and_then(Option::as_deref),
            &spot.child("hosts"),
        );
        if admin.is_some_and(|admin| !admin.ip().is_loopback()) {
            self.report_warning(
                &spot.child("admin"),
                "Other machines can reach it, and it has no TLS: the admin token crosses the network unencrypted.",
                "Write \"127.0.0.1:9090\" and use a tunnel or a proxy with TLS, or keep the network closed.",
            );
        }
        Some(ListenSettings {
            http: http.into_iter().collect::<Option<_>>()?,
            https: https.map_or(Some(None), |https| https.map(Some))?,
            public_url: public_url?,
            hosts,
            cors: cors?,
            documentation: documentation?,
            admin: admin?,
        })
    }

    /// Checks the written host names of a listener; returns them with the host of `public_url` and the name of the
    /// machine.
    pub fn resolve_served_hosts(
        &mut self,
        written: &[String],
        public_url: Option<&str>,
        spot: &KeyPath<'_>,
    ) -> ServedHosts {
        for (index, name) in written.iter().enumerate() {
            let is_name =
                !name.is_empty() && host::host_without_port(name) == name && is_host(name.as_bytes());
            if !is_name || name.contains('*') {
                let why = "It is not a host name.";
                self.report_mistake(
                    &spot.list_element(index),
                    why,
                    "Write it without scheme, port and path, such as \"metrics.example.eu\".",
                );
            }
        }
        let public = public_url
            .and_then(|url| url.split_once("://"))
            .map(|(_, authority)| host::host_without_port(authority));
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        ServedHosts::new(written.iter().map(String::as_str).chain(public).chain([machine.trim()]))
    }

    /// Parses a public base URL: scheme and host, as clients write them before `/v1`; `None` after a mistake. The error
    /// messages differ from those about URLs of providers, whose corrections would not fit.
    pub fn resolve_public_url(&mut self, text: &str, spot: &KeyPath<'_>) -> Option<Box<str>> {
        const REMEDY: &str = "Write only scheme and host, such as \"https://api.example.eu\".";
        match url::parse_base_url(text) {
            Ok(base) if base.path_prefix.is_empty() => {
                let scheme = if base.tls { "https" } else { "http" };
                Some(format!("{scheme}://{}", base.authority).into())
            }
            Ok(_) => {
                let why = "It has a path, which the gateway adds itself.";
                self.report_mistake(spot, why, REMEDY);
                None
            }
            Err((why, _)) => {
                self.report_mistake(spot, why, REMEDY);
                None
            }
        }
    }

    fn resolve_https(&mut self, https: &raw::HttpsConfig, spot: &KeyPath<'_>) -> Option<HttpsSettings> {
        let address = self.parse_address(&https.address, &spot.child("address"));
        let tls = self.resolve_tls(
            &WrittenTlsSettings {
                certificate: &https.certificate,
                key: &https.key,
                client_ca: https.client_ca.as_deref(),
                client_certificate: https.client_certificate,
                min_tls: https.min_tls,
            },
            spot,
        );
        Some(HttpsSettings { address: address?, tls: tls? })
    }

    /// Checks the certificate, the key and the CA of a listener; `None` after a mistake.
    pub fn resolve_tls(&mut self, raw: &WrittenTlsSettings<'_>, spot: &KeyPath<'_>) -> Option<TlsSettings> {
        let pair =
            self.check_key_pair(&(raw.certificate, spot.child("certificate")), &(raw.key, spot.child("key")));
        let client_ca = match raw.client_ca {
            Some(file) => self.check_ca_file(file, &spot.child("client_ca")).map(Some),
            None => Some(None),
        };
        if raw.client_certificate.is_some() && raw.client_ca.is_none() {
            self.report_mistake(
                &spot.child("client_certificate"),
                "No CA for client certificates is set, so none would be requested.",
                "Name their issuers in `client_ca`, such as `client_ca = \"tls/clients.pem\"`, or take this out.",
            );
        }
        let (certificate, key) = pair?;
        Some(TlsSettings {
            certificate,
            key,
            client_ca: client_ca?,
            client_certificate: raw.client_certificate.unwrap_or_default(),
            min_tls: raw.min_tls,
        })
    }

    /// Parses an IP address with a port; `None` after a mistake.
    pub fn parse_address(&mut self, text: &str, spot: &KeyPath<'_>) -> Option<SocketAddr> {
        if let Ok(address) = text.parse() {
            return Some(address);
        }
        let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
        let fix = match (port, text.parse::<IpAddr>().is_ok()) {
            (_, true) => "Add the port, such as `:8080`; write an IPv6 address in brackets.".to_owned(),
            (Some(port), _) => {
                format!(
                    "Write an IP address: \"127.0.0.1:{port}\" for this machine alone, \"0.0.0.0:{port}\" for all."
                )
            }
            _ => "Write something like \"0.0.0.0:8080\".".to_owned(),
        };
        self.report_mistake(spot, "It is not an IP address with a port.", fix);
        None
    }

    /// Checks that no two listeners use the same port on the same address, or on all addresses, and that there are not
    /// too many.
    pub fn check_port_clashes(
        &mut self,
        listen: Option<&ListenSettings>,
        console: Option<&ConsoleSettings>,
        simulators: &[SimulatorSettings],
        top: &KeyPath<'_>,
    ) {
        let Some(listen) = listen else { return };
        let spot = top.child("listen");
        let mut all: Vec<(SocketAddr, KeyPath<'_>)> = Vec::new();
        let several = listen.http.len() != 1;
        for (index, address) in listen.http.iter().enumerate() {
            all.push((
                *address,
                if several { spot.child("http").list_element(index) } else { spot.child("http") },
            ));
        }
        all.extend(listen.https.as_ref().map(|https| (https.address, spot.child("https").child("address"))));
        all.push((listen.admin, spot.child("admin")));
        let dashboard = top.child("console").child("listen");
        for (index, address) in console.iter().flat_map(|console| console.listen.iter()).enumerate() {
            let several = console.is_some_and(|console| console.listen.len() != 1);
            all.push((*address, if several { dashboard.list_element(index) } else { dashboard.clone() }));
        }
        if all.len() > MAX_LISTENERS {
            let spot = if listen.http.len() > all.len() / 2 { spot.child("http") } else { dashboard };
            let why =
                format!("The gateway has {} listeners, and at most {MAX_LISTENERS} are possible.", all.len());
            self.report_mistake(&spot, why, "Write fewer addresses in `listen.http` and `console.listen`.");
            return;
        }
        for (index, simulated) in simulators.iter().enumerate() {
            all.push((simulated.address, top.child("simulated").list_element(index).child("address")));
        }
        for (index, (address, spot)) in all.iter().enumerate() {
            let clash = all.iter().take(index).find(|(other, _)| is_same_socket(*address, *other));
            if let Some((other, first)) = clash {
                let why = format!("`{}` listens on {other} already.", first.path());
                self.report_mistake(spot, why, "Give each listener a port of its own.");
            }
        }
    }
}

/// Returns true if two sockets cannot be bound at the same time. `[::]` includes all IPv4 addresses too, but
/// `0.0.0.0` includes no IPv6 address.
fn is_same_socket(a: SocketAddr, b: SocketAddr) -> bool {
    let is_any = |ip: IpAddr, of_both: bool| ip.is_unspecified() && (of_both || ip.is_ipv6());
    let (one, other) = (a.ip().to_canonical(), b.ip().to_canonical());
    let is_one_family = one.is_ipv4() == other.is_ipv4();
    let overlap = one == other || is_any(one, is_one_family) || is_any(other, is_one_family);
    a.port() != 0 && a.port() == b.port() && overlap
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sockets_clash_where_the_system_refuses_the_second() {
        for (one, other, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("[::1]:80", "127.0.0.1:80", false),
            ("[::1]:80", "0.0.0.0:80", false),
            ("[::1]:80", "[::]:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "0.0.0.0:80", true),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
            ("[::ffff:127.0.0.1]:80", "0.0.0.0:80", true),
            ("[::ffff:127.0.0.1]:80", "[::1]:80", false),
            ("0.0.0.0:0", "0.0.0.0:0", false),
        ] {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(is_same_socket(one, other), expected, "{one} and {other}");
            assert_eq!(is_same_socket(other, one), expected, "{other} and {one}");
        }
    }
}
