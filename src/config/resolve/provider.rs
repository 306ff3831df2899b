//! Providers: location, connection, timeouts.

use super::super::raw::{self, HeaderValue, Raw};
use super::super::secret::Secret;
use super::super::settings::{BaseUrl, Contractual, Health, Place, Provider, Timeouts};
use super::key_path::Spot;
use super::{Proof, country, url};
use penstock_contract::{Boundary, Dialect};
use penstock_footprint::grid::{self, Table};
use penstock_tokens::engine::Shape;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// Built-in grid table.
static GRID: LazyLock<Table> =
    LazyLock::new(|| grid::table(include_str!("../../../conf/grid/eu-2025.csv")).unwrap_or_default());

/// Headers that the connection or the dialect sets.
const OURS: [&str; 11] = [
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
];

impl Proof<'_> {
    /// Resolves all providers, in document order; `None` for a provider with mistakes.
    pub fn providers(&mut self, raw: &Raw, top: &Spot<'_>) -> Vec<Option<Arc<Provider>>> {
        let list = top.key("providers");
        let mut found: Vec<Option<Arc<Provider>>> = Vec::with_capacity(raw.providers.len());
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, provider) in raw.providers.iter().enumerate() {
            let spot = list.at(index);
            let first = *seen.entry(&provider.id).or_insert(index);
            if first < index {
                let why = format!("There is a provider of this name already, at {}.", list.at(first).place());
                self.wrong(&spot.key("id"), why, "Give each provider its own id.");
            }
            found.push(self.provider(provider, index, &spot).map(Arc::new));
        }
        found
    }

    fn provider(&mut self, raw: &raw::Provider, index: usize, spot: &Spot<'_>) -> Option<Provider> {
        let place = self.place(raw, spot);
        let base = self.base(&raw.base_url, &spot.key("base_url"));
        if base.as_ref().is_some_and(|base| base.path_prefix.is_empty()) {
            self.warn(
                &spot.key("base_url"),
                "It has no path, so the gateway requests `/chat/completions` at its root; most engines serve `/v1/chat/completions`.",
                "Add `/v1`, unless this provider has none.",
            );
        }
        let api_key = match &raw.api_key {
            Some(reference) => self.secret(reference, &spot.key("api_key")).map(Some),
            None => Some(None),
        };
        let ca = match &raw.ca {
            Some(file) => self.pem(file, "CERTIFICATE", &spot.key("ca")).map(Some),
            None => Some(None),
        };
        if let (Some(base), Some(_)) = (&base, &raw.ca)
            && !base.tls
        {
            self.warn(
                &spot.key("ca"),
                "It has no effect: `base_url` is not https.",
                "Remove one of the two.",
            );
        }
        let client = self.client(raw, spot);
        let headers = self.headers(raw, &spot.key("headers"));
        let image_hosts = self.image_hosts(raw, &spot.key("image_hosts"));
        let health = raw.health.as_ref().map(|health| self.health(health, &spot.key("health")));
        self.sane(&raw.timeouts, &spot.key("timeouts"));
        if raw.offers.is_empty() {
            self.warn(
                spot,
                "This provider offers no model, so it is never used.",
                "Add a `[[providers.offers]]` block.",
            );
        }
        Some(Provider {
            index,
            id: raw.id.as_str().into(),
            operator: raw.operator.as_str().into(),
            place: place?,
            base: base?,
            api_key: api_key?,
            dialects: dialects(&raw.dialects),
            timeouts: timeouts(&raw.timeouts),
            health: health.map_or(Some(None), |health| health.map(Some))?,
            http: raw.http,
            ca: ca?,
            client: client?,
            min_tls: raw.min_tls,
            seats: raw.max_in_flight,
            max_n: raw.max_n,
            tokenize: raw.tokenize.map(|engine| match engine {
                raw::Engine::Vllm => Shape::Vllm,
                raw::Engine::LlamaCpp => Shape::LlamaCpp,
                raw::Engine::Sglang => Shape::Sglang,
                raw::Engine::Tgi => Shape::Tgi,
                raw::Engine::Tei => Shape::Tei,
            }),
            image_hosts: image_hosts?,
            headers: headers?,
        })
    }

    /// Resolves the client certificate and its key: both or none.
    fn client(&mut self, raw: &raw::Provider, spot: &Spot<'_>) -> Option<Option<(PathBuf, PathBuf)>> {
        let (certificate, key) = match (&raw.client_certificate, &raw.client_key) {
            (None, None) => return Some(None),
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(_), None) => {
                let why = "A certificate cannot be used without its key.";
                self.wrong(&spot.key("client_certificate"), why, "Name its key in `client_key`.");
                return None;
            }
            (None, Some(_)) => {
                let why = "A key cannot be used without its certificate.";
                self.wrong(&spot.key("client_key"), why, "Name its certificate in `client_certificate`.");
                return None;
            }
        };
        let certificate = self.pem(certificate, "CERTIFICATE", &spot.key("client_certificate"));
        let key = self.pem(key, "PRIVATE KEY", &spot.key("client_key"));
        Some(Some((certificate?, key?)))
    }

    fn place(&mut self, raw: &raw::Provider, spot: &Spot<'_>) -> Option<Place> {
        let name = match country::country(&raw.country) {
            Ok(name) => name,
            Err((why, fix)) => {
                self.wrong(&spot.key("country"), why, fix);
                return None;
            }
        };
        let Some(grid) = GRID.get(&raw.country) else {
            self.wrong(&spot.key("country"), "The grid table has no row for this country.", "");
            return None;
        };
        if raw.pue.is_none() {
            let why = "The PUE of the building is unknown, so 1.40 is assumed, and answers say so.";
            self.warn(&spot.key("pue"), why, "Write the provider's published figure, if there is one.");
        }
        let site = penstock_footprint::Place {
            pue: raw.pue.map(|pue| pue.0),
            wue: raw.wue.map(|wue| wue.0),
            boundary: raw.measured.map(|boundary| match boundary {
                raw::Boundary::Gpu => Boundary::Gpu,
                raw::Boundary::It => Boundary::It,
                raw::Boundary::Facility => Boundary::Facility,
            }),
            bills_measured: raw.bills_measured,
            ..penstock_footprint::Place::on(grid)
        };
        Some(Place {
            city: raw.city.as_str().into(),
            country: name.into(),
            code: raw.country.as_str().into(),
            site,
            grid: grid.clone(),
            contractual: raw
                .contractual_renewable
                .as_ref()
                .map(|contract| Contractual { share: contract.share.0, evidence: contract.evidence }),
        })
    }

    fn base(&mut self, text: &str, spot: &Spot<'_>) -> Option<BaseUrl> {
        match url::base(text) {
            Ok(base) => {
                if !base.tls && !url::is_local(&base.host) {
                    let why = "Prompts and the key cross the network unencrypted.";
                    self.warn(spot, why, "Use https, unless the network between is private.");
                }
                Some(base)
            }
            // The message does not repeat a URL that contains a password.
            Err((why, fix)) if text.contains('@') => {
                self.wrong_secret(spot, why, fix);
                None
            }
            Err((why, fix)) => {
                self.wrong(spot, why, fix);
                None
            }
        }
    }

    fn headers(&mut self, raw: &raw::Provider, spot: &Spot<'_>) -> Option<Vec<(Box<str>, Secret)>> {
        let mut found = Vec::with_capacity(raw.headers.len());
        let mut whole = true;
        for (name, value) in &raw.headers {
            let at = spot.key(name);
            let lower = name.to_ascii_lowercase();
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let value = if name.is_empty() || !name.bytes().all(token) {
                self.wrong_secret(&at, "It is not the name of a header.", "Use letters, digits and dashes.");
                None
            } else if OURS.contains(&lower.as_str()) {
                self.wrong_secret(&at, "The gateway sets this header itself.", "Take it out.");
                None
            } else {
                self.header(&lower, value, &at)
            };
            whole &= value.is_some();
            found.extend(value.map(|value| (lower.into(), value)));
        }
        whole.then_some(found)
    }

    fn header(&mut self, name: &str, value: &HeaderValue, spot: &Spot<'_>) -> Option<Secret> {
        match value {
            HeaderValue::Secret(reference) => self.secret(reference, spot),
            HeaderValue::Open(_) if is_secret(name) => {
                self.wrong_secret(
                    spot,
                    "A header of this name carries a secret, which must not be in the configuration itself.",
                    format!("Write its source: `{name} = {{ env = \"NAME\" }}` or `{{ file = \"/path\" }}`."),
                );
                None
            }
            HeaderValue::Open(text) if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
                Some(Secret::new(text.trim()))
            }
            HeaderValue::Open(_) => {
                self.wrong(
                    spot,
                    "It has characters that are not allowed in a header.",
                    "Use printable ASCII.",
                );
                None
            }
        }
    }

    fn health(&mut self, raw: &raw::Health, spot: &Spot<'_>) -> Option<Health> {
        let printable = raw.path.bytes().all(|byte| byte.is_ascii_graphic()) && !raw.path.contains('#');
        if !raw.path.starts_with('/') || !printable {
            self.wrong(
                &spot.key("path"),
                "It is not a path below the base URL.",
                "Write something like \"/models\".",
            );
            return None;
        }
        Some(Health { path: raw.path.as_str().into(), interval: raw.interval.0, timeout: raw.timeout.0 })
    }

    /// Resolves image hosts. A host has no path: every path on it may be fetched.
    fn image_hosts(&mut self, raw: &raw::Provider, spot: &Spot<'_>) -> Option<Vec<BaseUrl>> {
        let mut found = Vec::with_capacity(raw.image_hosts.len());
        for (index, text) in raw.image_hosts.iter().enumerate() {
            let Some(base) = self.base(text, &spot.at(index)) else { continue };
            if base.path_prefix.is_empty() {
                found.push(base);
            } else {
                let fix = "Stop after the host, such as \"https://images.example.eu\".";
                self.wrong(&spot.at(index), "It has a path, and must be a host only.", fix);
            }
        }
        (found.len() == raw.image_hosts.len()).then_some(found)
    }

    /// Warns about timeouts that can never expire.
    fn sane(&mut self, raw: &raw::Timeouts, spot: &Spot<'_>) {
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
                    super::super::units::write_duration(raw.total.0)
                );
                self.warn(&spot.key(name), why, "Shorten it, or lengthen `total`.");
            }
        }
    }
}

fn timeouts(raw: &raw::Timeouts) -> Timeouts {
    Timeouts {
        connect: raw.connect.0,
        first_byte: raw.first_byte.0,
        plain: raw.plain.0,
        first_token: raw.first_token.0,
        idle: raw.idle.0,
        total: raw.total.0,
    }
}

/// Converts dialects, without duplicates.
pub fn dialects(raw: &[raw::Dialect]) -> Vec<Dialect> {
    let mut found = Vec::with_capacity(2);
    for dialect in raw {
        let dialect = match dialect {
            raw::Dialect::Chat => Dialect::Chat,
            raw::Dialect::Messages => Dialect::Messages,
        };
        if !found.contains(&dialect) {
            found.push(dialect);
        }
    }
    found
}

fn is_secret(name: &str) -> bool {
    ["auth", "cookie", "key", "token", "secret", "password"].iter().any(|part| name.contains(part))
}
