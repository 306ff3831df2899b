//! Providers: location, connection, timeouts.

use super::super::raw::{self, ConfigFile, HeaderValueConfig};
use super::super::secret::SecretText;
use super::super::settings::{
    BaseUrl, HealthCheckSettings, Provider, ProviderLocation, RenewableContract, TimeoutSettings,
};
use super::key_path::KeyPath;
use super::{SettingsResolver, country, url};
use penstock_core::{Dialect, MeterBoundary};
use penstock_footprint::grid::{self, GridTable};
use penstock_tokens::engine::TokenizeApi;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// Built-in table of the carbon intensity of electricity grids.
static GRID: LazyLock<GridTable> =
    LazyLock::new(|| grid::parse_table(include_str!("../../../conf/grid/eu-2025.csv")).unwrap_or_default());

/// Headers that the connection or the dialect sets, or that are forwarded from the client.
const RESERVED_HEADERS: [&str; 13] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "upgrade",
    "accept-encoding",
    "expect",
    "traceparent",
    "tracestate",
];

impl SettingsResolver<'_> {
    /// Resolves all providers, in document order; the result is `None` for a provider with mistakes.
    pub fn resolve_providers(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Vec<Option<Arc<Provider>>> {
        let list = top.child("providers");
        let mut found: Vec<Option<Arc<Provider>>> = Vec::with_capacity(raw.providers.len());
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, provider) in raw.providers.iter().enumerate() {
            let spot = list.list_element(index);
            let first = *seen.entry(&provider.id).or_insert(index);
            if first < index {
                let why = format!(
                    "There is a provider of this name already, at {}.",
                    list.list_element(first).file_and_line()
                );
                self.report_mistake(&spot.child("id"), why, "Give each provider its own id.");
            }
            found.push(self.resolve_provider(provider, index, &spot).map(Arc::new));
        }
        found
    }

    fn resolve_provider(
        &mut self,
        raw: &raw::ProviderConfig,
        index: usize,
        spot: &KeyPath<'_>,
    ) -> Option<Provider> {
        let location = self.resolve_location(raw, spot);
        let base = self.resolve_base_url(&raw.base_url, &spot.child("base_url"));
        self.warn_implausible_provider_paths(raw, base.as_ref(), spot);
        let api_key = match &raw.api_key {
            Some(reference) => self.read_secret(reference, &spot.child("api_key")).map(Some),
            None => Some(None),
        };
        let ca = match &raw.ca {
            Some(file) => self.check_ca_file(file, &spot.child("ca")).map(Some),
            None => Some(None),
        };
        self.check_ca_use(raw, base.as_ref(), &spot.child("ca"));
        let client = self.resolve_client_identity(raw, spot);
        let headers = self.resolve_headers(raw, &spot.child("headers"));
        let image_hosts = self.resolve_image_hosts(raw, &spot.child("image_hosts"));
        let health =
            raw.health.as_ref().map(|health| self.resolve_health_check(health, &spot.child("health")));
        self.check_timeouts(&raw.timeouts, &spot.child("timeouts"));
        if raw.offers.is_empty() {
            self.report_warning(
                spot,
                "This provider offers no model, so it is never used.",
                "Add a `[[providers.offers]]` block.",
            );
        }
        Some(Provider {
            index,
            id: raw.id.as_str().into(),
            operator: raw.operator.as_str().into(),
            location: location?,
            base_url: base?,
            api_key: api_key?,
            dialects: unique_dialects(&raw.dialects),
            timeouts: timeout_settings(&raw.timeouts),
            health: health.map_or(Some(None), |health| health.map(Some))?,
            http: raw.http,
            ca: ca?,
            client: client?,
            min_tls: raw.min_tls,
            max_in_flight: raw.max_in_flight,
            max_n: raw.max_n,
            token_count_api: raw.tokenize.map(convert_engine),
            image_hosts: image_hosts?,
            headers: headers?,
        })
    }

    /// Warns about CA certificates that are not used, because the base URL is `http`.
    fn check_ca_use(&mut self, raw: &raw::ProviderConfig, base: Option<&BaseUrl>, spot: &KeyPath<'_>) {
        if raw.ca.is_some() && base.is_some_and(|base| !base.tls) {
            self.report_warning(spot, "It has no effect: `base_url` is not https.", "Remove one of the two.");
        }
    }

    /// Resolves the client certificate and its key, of which both must be given or none: `Some(None)` without them,
    /// `None` after a mistake.
    fn resolve_client_identity(
        &mut self,
        raw: &raw::ProviderConfig,
        spot: &KeyPath<'_>,
    ) -> Option<Option<(PathBuf, PathBuf)>> {
        let (certificate, key) = match (&raw.client_certificate, &raw.client_key) {
            (None, None) => return Some(None),
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(_), None) => {
                let why = "A certificate cannot be used without its key.";
                self.report_mistake(&spot.child("client_certificate"), why, "Name its key in `client_key`.");
                return None;
            }
            (None, Some(_)) => {
                let why = "A key cannot be used without its certificate.";
                self.report_mistake(
                    &spot.child("client_key"),
                    why,
                    "Name its certificate in `client_certificate`.",
                );
                return None;
            }
        };
        let pair = self.check_key_pair(
            &(certificate, spot.child("client_certificate")),
            &(key, spot.child("client_key")),
        );
        pair.map(Some)
    }

    fn resolve_location(
        &mut self,
        raw: &raw::ProviderConfig,
        spot: &KeyPath<'_>,
    ) -> Option<ProviderLocation> {
        let name = match country::eu_country_name(&raw.country) {
            Ok(name) => name,
            Err((why, fix)) => {
                self.report_mistake(&spot.child("country"), why, fix);
                return None;
            }
        };
        let Some(grid) = GRID.get(&raw.country) else {
            self.report_mistake(
                &spot.child("country"),
                "The grid table has no row for this country.",
                "Take the provider out.",
            );
            return None;
        };
        if raw.pue.is_none() {
            let why = "The PUE of the building is unknown, so 1.40 is assumed, and answers say so.";
            self.report_warning(
                &spot.child("pue"),
                why,
                "Write the provider's published figure, if there is one.",
            );
        }
        let site = penstock_footprint::ServiceSite {
            pue: raw.pue.map(|pue| pue.0),
            wue: raw.wue.map(|wue| wue.0),
            boundary: raw.measured.map(|boundary| match boundary {
                raw::MeterBoundaryConfig::Gpu => MeterBoundary::Gpu,
                raw::MeterBoundaryConfig::It => MeterBoundary::It,
                raw::MeterBoundaryConfig::Facility => MeterBoundary::Facility,
            }),
            bills_measured: raw.bills_measured,
            ..penstock_footprint::ServiceSite::from_grid(grid)
        };
        Some(ProviderLocation {
            city: raw.city.as_str().into(),
            country: name.into(),
            code: raw.country.as_str().into(),
            site,
            grid: grid.clone(),
            contractual: raw
                .contractual_renewable
                .as_ref()
                .map(|contract| RenewableContract { share: contract.share.0, evidence: contract.evidence }),
        })
    }

    /// Parses a URL of a provider; `None` after a mistake. If it is plain HTTP to another machine, warns with the text
    /// `unencrypted`.
    fn resolve_provider_url(&mut self, text: &str, unencrypted: &str, spot: &KeyPath<'_>) -> Option<BaseUrl> {
        match url::parse_base_url(text) {
            Ok(base) => {
                if !base.tls && !url::is_loopback_host(&base.host) {
                    let fix = "Use https, unless the network between is private.";
                    self.report_warning(spot, unencrypted, fix);
                }
                Some(base)
            }
            Err((why, fix)) => {
                self.report_mistake(spot, why, fix);
                None
            }
        }
    }

    fn resolve_base_url(&mut self, text: &str, spot: &KeyPath<'_>) -> Option<BaseUrl> {
        let unencrypted = "Prompts and the key cross the network unencrypted.";
        let base = self.resolve_provider_url(text, unencrypted, spot);
        if base.is_none()
            && text.contains(['@', '?'])
            && let Some(mistake) = self.report.mistakes.last_mut()
        {
            mistake.remedy.push_str(" A provider's secret belongs in `api_key` or `headers`.");
        }
        base
    }

    fn resolve_headers(
        &mut self,
        raw: &raw::ProviderConfig,
        spot: &KeyPath<'_>,
    ) -> Option<Vec<(Box<str>, SecretText)>> {
        let mut found = Vec::with_capacity(raw.headers.len());
        let mut whole = true;
        for (name, value) in &raw.headers {
            let at = spot.child(name);
            let lower = name.to_ascii_lowercase();
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let value = if name.is_empty() || !name.bytes().all(token) {
                self.report_secret_mistake(
                    &at,
                    "It is not the name of a header.",
                    "Use letters, digits and dashes.",
                );
                None
            } else if RESERVED_HEADERS.contains(&lower.as_str()) {
                self.report_secret_mistake(&at, "The gateway sets this header itself.", "Take it out.");
                None
            } else if found.iter().any(|(known, _): &(Box<str>, _)| **known == *lower) {
                let why = "This header is set already; letter case makes no difference.";
                self.report_secret_mistake(&at, why, "Keep one of the two.");
                None
            } else {
                self.resolve_header(&lower, value, &at)
            };
            whole &= value.is_some();
            found.extend(value.map(|value| (lower.into(), value)));
        }
        whole.then_some(found)
    }

    fn resolve_header(
        &mut self,
        name: &str,
        value: &HeaderValueConfig,
        spot: &KeyPath<'_>,
    ) -> Option<SecretText> {
        match value {
            HeaderValueConfig::Secret(reference) => self.read_secret(reference, spot),
            HeaderValueConfig::Plain(_) if is_secret_header(name) => {
                self.report_secret_mistake(
                    spot,
                    "A header of this name carries a secret, which must not be in the configuration itself.",
                    format!("Write its source: `{name} = {{ env = \"NAME\" }}` or `{{ file = \"/path\" }}`."),
                );
                None
            }
            HeaderValueConfig::Plain(text) if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
                Some(SecretText::new(text.trim()))
            }
            HeaderValueConfig::Plain(_) => {
                self.report_secret_mistake(
                    spot,
                    "It has characters that are not allowed in a header.",
                    "Use printable ASCII.",
                );
                None
            }
        }
    }

    fn resolve_health_check(
        &mut self,
        raw: &raw::HealthCheckConfig,
        spot: &KeyPath<'_>,
    ) -> Option<HealthCheckSettings> {
        let printable = raw.path.bytes().all(|byte| byte.is_ascii_graphic()) && !raw.path.contains('#');
        if !raw.path.starts_with('/') || !printable {
            self.report_mistake(
                &spot.child("path"),
                "It is not a path below the base URL.",
                "Write something like \"/models\".",
            );
            return None;
        }
        Some(HealthCheckSettings {
            path: raw.path.as_str().into(),
            interval: raw.interval.0,
            timeout: raw.timeout.0,
        })
    }

    /// Resolves image hosts; `None` after a mistake. Their URLs must not have a path, because every path on such a host
    /// may be fetched.
    fn resolve_image_hosts(&mut self, raw: &raw::ProviderConfig, spot: &KeyPath<'_>) -> Option<Vec<BaseUrl>> {
        let unencrypted = "Images cross the network unencrypted.";
        let mut found = Vec::with_capacity(raw.image_hosts.len());
        for (index, text) in raw.image_hosts.iter().enumerate() {
            let Some(base) = self.resolve_provider_url(text, unencrypted, &spot.list_element(index)) else {
                continue;
            };
            if base.path_prefix.is_empty() {
                found.push(base);
            } else {
                let fix = "Stop after the host, such as \"https://images.example.eu\".";
                self.report_mistake(
                    &spot.list_element(index),
                    "It has a path, and must be a host only.",
                    fix,
                );
            }
        }
        (found.len() == raw.image_hosts.len()).then_some(found)
    }

    /// Warns about timeouts that have no effect, because they are longer than the timeout of the complete attempt.
    fn check_timeouts(&mut self, raw: &raw::TimeoutsConfig, spot: &KeyPath<'_>) {
        let clocks = [
            ("connect", raw.connect),
            ("first_byte", raw.first_byte),
            ("plain", raw.plain),
            ("first_token", raw.first_token),
            ("idle", raw.idle),
        ];
        for (name, clock) in clocks {
            if clock.0 > raw.total.0 {
                let why = format!(
                    "It is longer than `total`, {}, and so has no effect.",
                    super::super::units::format_duration(raw.total.0)
                );
                self.report_warning(&spot.child(name), why, "Shorten it, or lengthen `total`.");
            }
        }
    }
}

fn timeout_settings(raw: &raw::TimeoutsConfig) -> TimeoutSettings {
    TimeoutSettings {
        connect: raw.connect.0,
        first_byte: raw.first_byte.0,
        plain: raw.plain.0,
        first_token: raw.first_token.0,
        idle: raw.idle.0,
        total: raw.total.0,
    }
}

/// Converts dialects, without duplicates.
pub fn unique_dialects(raw: &[raw::DialectConfig]) -> Vec<Dialect> {
    let mut found = Vec::with_capacity(2);
    for raw::DialectConfig(dialect) in raw.iter().copied() {
        if !found.contains(&dialect) {
            found.push(dialect);
        }
    }
    found
}

fn is_secret_header(name: &str) -> bool {
    ["auth", "cookie", "key", "token", "secret", "password"].iter().any(|part| name.contains(part))
}

const fn convert_engine(raw: raw::TokenizeEngineName) -> TokenizeApi {
    match raw {
        raw::TokenizeEngineName::Vllm => TokenizeApi::Vllm,
        raw::TokenizeEngineName::LlamaCpp => TokenizeApi::LlamaCpp,
        raw::TokenizeEngineName::Sglang => TokenizeApi::Sglang,
        raw::TokenizeEngineName::Tgi => TokenizeApi::Tgi,
        raw::TokenizeEngineName::Tei => TokenizeApi::Tei,
    }
}
