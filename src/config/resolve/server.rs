//! Settings of the gateway itself: listeners, store, limits, routing, process.

use super::super::raw::{self, ConfigFile, OneOrMany};
use super::super::settings::{
    BatchSettings, CircuitBreakerSettings, CompatibilitySettings, FileSettings, HttpsSettings,
    LedgerSettings, LimitSettings, ListenSettings, LogSettings, OverloadSettings, RoutingSettings,
    SimulatorSettings, SpoolSettings, StorageSettings,
};
use super::key_path::KeyPath;
use super::{SettingsResolver, url};
use penstock_http_wire::host::{self, KnownHosts};
use penstock_http_wire::http1_request::is_host;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Converts a size to `usize`.
fn to_usize(size: raw::ByteSize) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

pub fn limit_settings(raw: &ConfigFile) -> LimitSettings {
    let limits = &raw.limits;
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    LimitSettings {
        connections: number(limits.connections),
        connections_per_client: number(limits.connections_per_client),
        head: to_usize(limits.head),
        head_fields: number(limits.head_fields),
        target: to_usize(limits.target),
        h2_streams: limits.h2_streams,
        h2_resets: number(limits.h2_resets),
        h2_frames: number(limits.h2_frames),
        json_body: to_usize(limits.json_body),
        audio_body: to_usize(limits.audio_body),
        json_depth: usize::try_from(limits.json_depth).unwrap_or(usize::MAX),
        request_head: limits.request_head.0,
        body_idle: limits.body_idle.0,
        body: limits.body.0,
        upload: limits.upload.0,
        keep_alive: limits.keep_alive.0,
        client_write: limits.client_write.0,
        heartbeat: limits.heartbeat.0,
        response_buffer: to_usize(limits.response_buffer),
    }
}

pub fn ledger_settings(raw: &ConfigFile) -> LedgerSettings {
    let ledger = &raw.ledger;
    let debt = ledger.debt.0.saturating_mul(Decimal::ONE_HUNDRED).saturating_mul(Decimal::from(1_000_000));
    LedgerSettings {
        window: ledger.window.0,
        answers_wait_for_disk: ledger.sync == raw::LedgerSync::Answer,
        debt: debt.trunc().to_i64().unwrap_or(i64::MAX),
        backlog: to_usize(ledger.backlog),
        slow: ledger.slow.0,
        ahead: ledger.ahead.0,
    }
}

pub fn batches(raw: &ConfigFile) -> BatchSettings {
    let batches = &raw.batches;
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    BatchSettings {
        concurrency: number(batches.concurrency),
        open: number(batches.open),
        memory: to_usize(batches.memory),
        line: to_usize(batches.line),
        retry: penstock_batch::retry_policy::RetryPolicy {
            base_delay: batches.retry_first.0,
            max_delay: batches.retry_most.0,
            max_retries: batches.retries,
        },
    }
}

pub const fn compatibility_settings(raw: &ConfigFile) -> CompatibilitySettings {
    let compatibility = &raw.compatibility;
    CompatibilitySettings {
        batch_results: compatibility.batch_results,
        images: compatibility.images,
        billing_cost: compatibility.billing_cost,
        preset_flavor: compatibility.preset_flavor,
    }
}

pub fn routing_settings(raw: &ConfigFile) -> RoutingSettings {
    let routing = &raw.routing;
    let breaker = &routing.breaker;
    RoutingSettings {
        attempts: routing.attempts,
        total: routing.total.0,
        patience: routing.patience.0,
        quick_retry: routing.quick_retry.0,
        batch_wait: routing.batch_wait.0,
        batch_lines: usize::try_from(routing.batch_lines).unwrap_or(usize::MAX),
        breaker: CircuitBreakerSettings {
            consecutive: breaker.consecutive,
            error_rate: breaker.error_rate.0.to_f64().unwrap_or(1.0),
            minimum: breaker.minimum,
            window: breaker.window.0,
            rest: breaker.rest.0,
            rest_max: breaker.rest_max.0,
        },
    }
}

pub fn thread_count(wanted: u32) -> usize {
    match usize::try_from(wanted) {
        Ok(0) | Err(_) => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        Ok(wanted) => wanted,
    }
}

pub fn log_settings(raw: &ConfigFile) -> LogSettings {
    LogSettings { level: raw.log.level, format: raw.log.format }
}

impl SettingsResolver<'_> {
    /// Resolves `[overload]`. A single body must not be able to use all the memory.
    pub fn resolve_overload(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> OverloadSettings {
        let overload = &raw.overload;
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        if overload.bytes.0 / 2 < raw.limits.json_body.0 {
            let least = super::super::units::format_size(raw.limits.json_body.0.saturating_mul(2));
            self.report_mistake(
                &top.key("overload").key("bytes"),
                "It must be at least twice `limits.json_body`.",
                format!("Write \"{least}\" or more, or a smaller `limits.json_body`."),
            );
        }
        OverloadSettings {
            requests: number(overload.requests),
            bytes: to_usize(overload.bytes),
            queue: number(overload.queue),
            wait: overload.wait.0,
            counting: number(overload.counting),
        }
    }

    pub fn resolve_listen(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<ListenSettings> {
        let spot = top.key("listen");
        let at = spot.key("http");
        let http: Vec<Option<SocketAddr>> = match &raw.listen.http {
            OneOrMany::One(one) => vec![self.parse_address(one, &at)],
            OneOrMany::Many(many) => many
                .iter()
                .enumerate()
                .map(|(i, address)| self.parse_address(address, &at.element(i)))
                .collect(),
        };
        if http.is_empty() && raw.listen.https.is_none() {
            self.report_mistake(
                &at,
                "The gateway has no listener, so no client could reach it.",
                "Write an address in `http` or `https`.",
            );
        }
        let https = raw.listen.https.as_ref().map(|https| self.resolve_https(https, &spot.key("https")));
        let public_url = match &raw.listen.public_url {
            Some(url) => self.resolve_public_url(url, &spot.key("public_url")).map(Some),
            None => Some(None),
        };
        let documentation = match &raw.listen.documentation {
            Some(url) => self.parse_link(url, &spot.key("documentation")).map(Some),
            None => Some(None),
        };
        let cors = self.resolve_cors(&raw.listen.cors, &spot.key("cors"));
        let admin = self.parse_address(&raw.listen.admin, &spot.key("admin"));
        let hosts = self.resolve_hosts(
            &raw.listen.hosts,
            public_url.as_ref().and_then(Option::as_deref),
            &spot.key("hosts"),
        );
        if admin.is_some_and(|admin| !admin.ip().is_loopback()) {
            self.report_warning(
                &spot.key("admin"),
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

    /// Resolves the host names of the gateway.
    fn resolve_hosts(
        &mut self,
        written: &[String],
        public_url: Option<&str>,
        spot: &KeyPath<'_>,
    ) -> KnownHosts {
        for (index, name) in written.iter().enumerate() {
            let is_name = !name.is_empty() && host::name(name) == name && is_host(name.as_bytes());
            if !is_name || name.contains('*') {
                let why = "It is not a host name.";
                self.report_mistake(
                    &spot.element(index),
                    why,
                    "Write it without scheme, port and path, such as \"metrics.example.eu\".",
                );
            }
        }
        let public =
            public_url.and_then(|url| url.split_once("://")).map(|(_, authority)| host::name(authority));
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        KnownHosts::new(written.iter().map(String::as_str).chain(public).chain([machine.trim()]))
    }

    /// Parses the scheme and host that clients write before `/v1`.
    fn resolve_public_url(&mut self, text: &str, spot: &KeyPath<'_>) -> Option<Box<str>> {
        match url::parse_base_url(text) {
            Ok(base) if base.path_prefix.is_empty() => {
                let scheme = if base.tls { "https" } else { "http" };
                Some(format!("{scheme}://{}", base.authority).into())
            }
            Ok(_) => {
                let why = "It has a path, which the gateway adds itself.";
                self.report_mistake(spot, why, "Stop after the host, such as \"https://api.example.eu\".");
                None
            }
            Err((why, fix)) => {
                self.report_mistake(spot, why, fix);
                None
            }
        }
    }

    pub fn resolve_spool(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<SpoolSettings> {
        let path = self.section_folder(&raw.spool.path, "spool", raw, top)?;
        if raw.images.keep.0 > raw.spool.disk.0 {
            let why = "It is more than all files together may have (spool.disk): images would take the space of \
                       uploads, and then of each other.";
            self.report_warning(
                &top.key("images").key("keep"),
                why,
                "Write less than spool.disk, or more there.",
            );
        }
        Some(SpoolSettings { path, memory: to_usize(raw.spool.memory), disk: raw.spool.disk.0 })
    }

    pub fn files(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<FileSettings> {
        let path = self.section_folder(&raw.files.path, "files", raw, top)?;
        let files = &raw.files;
        let retention = files.retention.0.as_secs();
        Some(FileSettings {
            path,
            upload: files.upload.0,
            disk: files.disk.0,
            per_key: files.per_key.0,
            keep_free: files.keep_free.0,
            retention: (!files.retention.0.is_zero()).then_some(retention.max(1)),
        })
    }

    /// Folder of a section: the written path, or by default a folder with the section's name in the folder of the
    /// store.
    fn section_folder(
        &mut self,
        written: &Option<String>,
        section: &str,
        raw: &ConfigFile,
        top: &KeyPath<'_>,
    ) -> Option<PathBuf> {
        let spot = top.key(section).key("path");
        let path = match written {
            Some(path) => spot.file(path),
            None => top.key("storage").key("path").file(&raw.storage.path).join(section),
        };
        if path.exists() && !path.is_dir() {
            let fix = "Write the path of a folder, or of one to be made.";
            self.report_mistake(&spot, "It is a file, and must be a folder.", fix);
            return None;
        }
        // The check of `storage.path` covers the default folder.
        if written.is_some() {
            self.check_creatable(&path, &spot);
        }
        Some(path)
    }

    fn resolve_https(&mut self, https: &raw::HttpsConfig, spot: &KeyPath<'_>) -> Option<HttpsSettings> {
        let address = self.parse_address(&https.address, &spot.key("address"));
        let certificate = self.check_pem_file(&https.certificate, "CERTIFICATE", &spot.key("certificate"));
        let key = self.check_pem_file(&https.key, "PRIVATE KEY", &spot.key("key"));
        let client_ca = match &https.client_ca {
            Some(file) => self.check_pem_file(file, "CERTIFICATE", &spot.key("client_ca")).map(Some),
            None => Some(None),
        };
        if https.client_certificate.is_some() && https.client_ca.is_none() {
            self.report_mistake(
                &spot.key("client_certificate"),
                "No CA for client certificates is set, so none would be requested.",
                "Name their issuers in `client_ca`, such as `client_ca = \"tls/clients.pem\"`, or take this out.",
            );
        }
        Some(HttpsSettings {
            address: address?,
            certificate: certificate?,
            key: key?,
            client_ca: client_ca?,
            client_certificate: https.client_certificate.unwrap_or_default(),
            min_tls: https.min_tls,
        })
    }

    pub fn parse_address(&mut self, text: &str, spot: &KeyPath<'_>) -> Option<SocketAddr> {
        if let Ok(address) = text.parse() {
            return Some(address);
        }
        let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
        let fix = match (port, text.parse::<std::net::IpAddr>().is_ok()) {
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

    pub fn storage(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<StorageSettings> {
        let spot = top.key("storage");
        let path = spot.key("path").file(&raw.storage.path);
        if path.exists() && !path.is_dir() {
            self.report_mistake(
                &spot.key("path"),
                "It is a file, and must be a folder.",
                "Write the path of a folder, or of one to be made.",
            );
        }
        if !path.exists() || path.is_dir() {
            self.check_creatable(&path, &spot.key("path"));
        }
        let at = spot.key("pepper");
        let pepper = raw.storage.pepper.as_ref().map(|reference| self.read_secret(reference, &at));
        if let Some(Some(pepper)) = &pepper {
            let text = pepper.reveal();
            if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                self.report_secret_mistake(
                    &at,
                    "It must be 64 hexadecimal digits (32 bytes).",
                    "Generate one with `openssl rand -hex 32` and keep it: without it no key is valid any more.",
                );
            }
        }
        let pepper = pepper.map_or(Some(None), |pepper| pepper.map(Some))?;
        Some(StorageSettings { path, ballast_bytes: raw.storage.ballast.0, pepper })
    }

    pub fn resolve_simulators(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Vec<SimulatorSettings> {
        let mut found: Vec<SimulatorSettings> = Vec::with_capacity(raw.simulated.len());
        let list = top.key("simulated");
        for (index, simulated) in raw.simulated.iter().enumerate() {
            let spot = list.element(index);
            if let Some(first) =
                raw.simulated.iter().take(index).position(|other| other.name == simulated.name)
            {
                let why = format!(
                    "There is a simulated provider of this name already, at {}.",
                    list.element(first).place()
                );
                self.report_mistake(&spot.key("name"), why, "Give each its own name.");
            }
            let Some(address) = self.parse_address(&simulated.address, &spot.key("address")) else {
                continue;
            };
            if !address.ip().is_loopback() {
                self.report_mistake(
                    &spot.key("address"),
                    "A simulated provider requires no key, so it may listen on this machine only.",
                    format!("Write \"127.0.0.1:{}\".", address.port()),
                );
            }
            found.push(SimulatorSettings {
                name: simulated.name.as_str().into(),
                address,
                seed: simulated.seed,
                first_token: simulated.first_token.0,
                tokens_per_second: f64::from(simulated.tokens_per_second),
            });
        }
        found
    }

    /// Checks that no two listeners share a port.
    pub fn check_port_clashes(
        &mut self,
        listen: Option<&ListenSettings>,
        simulators: &[SimulatorSettings],
        top: &KeyPath<'_>,
    ) {
        let Some(listen) = listen else { return };
        let spot = top.key("listen");
        let mut all: Vec<(SocketAddr, KeyPath<'_>)> = Vec::new();
        let several = listen.http.len() != 1;
        for (index, address) in listen.http.iter().enumerate() {
            all.push((*address, if several { spot.key("http").element(index) } else { spot.key("http") }));
        }
        all.extend(listen.https.as_ref().map(|https| (https.address, spot.key("https").key("address"))));
        all.push((listen.admin, spot.key("admin")));
        for (index, simulated) in simulators.iter().enumerate() {
            all.push((simulated.address, top.key("simulated").element(index).key("address")));
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

fn is_same_socket(a: SocketAddr, b: SocketAddr) -> bool {
    let overlap = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && overlap
}
