//! Base URLs of the dashboard and of the operators' console, for the links that commands print.

use super::super::raw::{ConfigFile, OneOrMany};
use super::SettingsResolver;
use super::key_path::KeyPath;
use penstock_http_wire::host::ServedHosts;
use std::net::SocketAddr;

impl SettingsResolver<'_> {
    /// Returns the base URL of the dashboard: the public URL or, without one, the URL of the first listen address.
    /// Returns `None` if the dashboard is off.
    pub fn dashboard_url(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<String> {
        let first = match &raw.console.listen {
            OneOrMany::One(one) => Some(one),
            OneOrMany::Many(many) => many.first(),
        }?;
        if let Some(url) = &raw.console.public_url {
            return Some(url.trim_end_matches('/').to_owned());
        }
        let scheme = if raw.console.tls.is_some() { "https" } else { "http" };
        let hosts = self.resolve_served_hosts(&raw.console.hosts, None, &top.child("console").child("hosts"));
        Some(match first.parse() {
            Ok(address) => site_url(scheme, address, &hosts),
            Err(_) => format!("{scheme}://{first}"),
        })
    }

    /// Returns the base URL of the operators' console: the URL for the sign-in by OpenID Connect or, without one, the
    /// URL of the admin listener at `admin`.
    pub fn operators_console_url(
        &mut self,
        raw: &ConfigFile,
        admin: SocketAddr,
        top: &KeyPath<'_>,
    ) -> String {
        if let Some(url) = raw.console.oidc.as_ref().and_then(|oidc| oidc.operators_url.as_ref()) {
            return url.trim_end_matches('/').to_owned();
        }
        let hosts = self.resolve_served_hosts(&raw.listen.hosts, None, &top.child("listen").child("hosts"));
        site_url("http", admin, &hosts)
    }
}

/// Returns the base URL of an address. If the address stands for all interfaces, the URL has the first served host
/// name.
fn site_url(scheme: &str, address: SocketAddr, hosts: &ServedHosts) -> String {
    if address.ip().is_unspecified() {
        let host = hosts.first_host_name().unwrap_or("localhost");
        return format!("{scheme}://{host}:{}", address.port());
    }
    format!("{scheme}://{address}")
}
