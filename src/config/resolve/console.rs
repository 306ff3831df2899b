//! Dashboard of account holders: addresses, public URL and host names.

use super::super::raw::{ConfigFile, OneOrMany};
use super::super::settings::ConsoleSettings;
use super::SettingsResolver;
use super::key_path::KeyPath;
use super::listen::WrittenTlsSettings;

impl SettingsResolver<'_> {
    /// Resolves `[console]`; `None` after a mistake.
    pub fn resolve_console(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<ConsoleSettings> {
        let spot = top.child("console");
        let at = spot.child("listen");
        let listen = match &raw.console.listen {
            OneOrMany::One(one) => vec![self.parse_address(one, &at)],
            OneOrMany::Many(many) => many
                .iter()
                .enumerate()
                .map(|(index, address)| self.parse_address(address, &at.list_element(index)))
                .collect(),
        };
        let public_url = match &raw.console.public_url {
            Some(url) => self.resolve_public_url(url, &spot.child("public_url")).map(Some),
            None => Some(None),
        };
        let hosts = self.resolve_served_hosts(
            &raw.console.hosts,
            public_url.as_ref().and_then(Option::as_deref),
            &spot.child("hosts"),
        );
        let tls = raw.console.tls.as_ref().map(|tls| {
            let files = WrittenTlsSettings {
                certificate: &tls.certificate,
                key: &tls.key,
                client_ca: tls.client_ca.as_deref(),
                client_certificate: tls.client_certificate,
                min_tls: tls.min_tls,
            };
            self.resolve_tls(&files, &spot.child("tls"))
        });
        let openid = raw.console.oidc.as_ref().map(|oidc| self.resolve_oidc(oidc, &spot.child("oidc")));
        let settings = ConsoleSettings {
            listen: listen.into_iter().collect::<Option<_>>()?,
            public_url: public_url?,
            hosts,
            tls: tls.map_or(Some(None), |tls| tls.map(Some))?,
            openid: openid.map_or(Some(None), |openid| openid.map(Some))?,
        };
        let reaches_others = settings.listen.iter().any(|address| !address.ip().is_loopback());
        if reaches_others && !settings.is_tls_only() {
            self.report_warning(
                &at,
                "Other machines can reach it, and it has no TLS: passwords and cookies cross the network unencrypted.",
                "Set `tls`, or put a proxy with TLS before it and write its URL in `public_url`, such as \
                 \"https://account.example.eu\".",
            );
        }
        Some(settings)
    }
}
