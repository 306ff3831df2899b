//! Settings of the gateway itself: listeners, store, limits, routing, process.

use super::super::raw::{self, OneOrMany, Raw};
use super::super::settings::{
    Batches, Breaker, Compatibility, Files, Https, Ledger, Limits, Listen, Log, Overload, Routing, Simulated,
    Spool, Storage,
};
use super::key_path::Spot;
use super::{Proof, url};
use penstock_wire::head::is_host;
use penstock_wire::host::{self, Hosts};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Converts a size to `usize`.
fn bytes(size: raw::Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

pub fn limits(raw: &Raw) -> Limits {
    let limits = &raw.limits;
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Limits {
        connections: number(limits.connections),
        connections_per_client: number(limits.connections_per_client),
        head: bytes(limits.head),
        head_fields: number(limits.head_fields),
        target: bytes(limits.target),
        h2_streams: limits.h2_streams,
        h2_resets: number(limits.h2_resets),
        h2_frames: number(limits.h2_frames),
        json_body: bytes(limits.json_body),
        audio_body: bytes(limits.audio_body),
        json_depth: usize::try_from(limits.json_depth).unwrap_or(usize::MAX),
        request_head: limits.request_head.0,
        body_idle: limits.body_idle.0,
        body: limits.body.0,
        upload: limits.upload.0,
        keep_alive: limits.keep_alive.0,
        client_write: limits.client_write.0,
        heartbeat: limits.heartbeat.0,
        response_buffer: bytes(limits.response_buffer),
    }
}

pub fn ledger(raw: &Raw) -> Ledger {
    let ledger = &raw.ledger;
    let debt = ledger.debt.0.saturating_mul(Decimal::ONE_HUNDRED).saturating_mul(Decimal::from(1_000_000));
    Ledger {
        window: ledger.window.0,
        answers_wait: ledger.sync == raw::Sync::Answer,
        debt: debt.trunc().to_i64().unwrap_or(i64::MAX),
        backlog: bytes(ledger.backlog),
        slow: ledger.slow.0,
        ahead: ledger.ahead.0,
    }
}

pub fn batches(raw: &Raw) -> Batches {
    let batches = &raw.batches;
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Batches {
        concurrency: number(batches.concurrency),
        open: number(batches.open),
        memory: bytes(batches.memory),
        line: bytes(batches.line),
        again: penstock_batch::again::Again {
            first: batches.retry_first.0,
            most: batches.retry_most.0,
            tries: batches.retries,
        },
    }
}

pub const fn compatibility(raw: &Raw) -> Compatibility {
    let compatibility = &raw.compatibility;
    Compatibility {
        batch_results: compatibility.batch_results,
        images: compatibility.images,
        billing_cost: compatibility.billing_cost,
        preset_flavor: compatibility.preset_flavor,
    }
}

pub fn routing(raw: &Raw) -> Routing {
    let routing = &raw.routing;
    let breaker = &routing.breaker;
    Routing {
        attempts: routing.attempts,
        total: routing.total.0,
        patience: routing.patience.0,
        quick_retry: routing.quick_retry.0,
        batch_wait: routing.batch_wait.0,
        batch_lines: usize::try_from(routing.batch_lines).unwrap_or(usize::MAX),
        breaker: Breaker {
            consecutive: breaker.consecutive,
            error_rate: breaker.error_rate.0.to_f64().unwrap_or(1.0),
            minimum: breaker.minimum,
            window: breaker.window.0,
            rest: breaker.rest.0,
            rest_max: breaker.rest_max.0,
        },
    }
}

pub fn threads(wanted: u32) -> usize {
    match usize::try_from(wanted) {
        Ok(0) | Err(_) => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        Ok(wanted) => wanted,
    }
}

pub fn log(raw: &Raw) -> Log {
    Log { level: raw.log.level, format: raw.log.format }
}

impl Proof<'_> {
    /// Resolves `[overload]`. A single body must not be able to use all the memory.
    pub fn overload(&mut self, raw: &Raw, top: &Spot<'_>) -> Overload {
        let overload = &raw.overload;
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        if overload.bytes.0 / 2 < raw.limits.json_body.0 {
            let least = super::super::units::write_size(raw.limits.json_body.0.saturating_mul(2));
            self.wrong(
                &top.key("overload").key("bytes"),
                "It must be at least twice `limits.json_body`.",
                format!("Write \"{least}\" or more, or a smaller `limits.json_body`."),
            );
        }
        Overload {
            requests: number(overload.requests),
            bytes: bytes(overload.bytes),
            queue: number(overload.queue),
            wait: overload.wait.0,
            counting: number(overload.counting),
        }
    }

    pub fn listen(&mut self, raw: &Raw, top: &Spot<'_>) -> Option<Listen> {
        let spot = top.key("listen");
        let at = spot.key("http");
        let http: Vec<Option<SocketAddr>> = match &raw.listen.http {
            OneOrMany::One(one) => vec![self.address(one, &at)],
            OneOrMany::Many(many) => {
                many.iter().enumerate().map(|(i, address)| self.address(address, &at.at(i))).collect()
            }
        };
        if http.is_empty() && raw.listen.https.is_none() {
            self.wrong(
                &at,
                "The gateway has no listener, so no client could reach it.",
                "Write an address in `http` or `https`.",
            );
        }
        let https = raw.listen.https.as_ref().map(|https| self.https(https, &spot.key("https")));
        let public_url = match &raw.listen.public_url {
            Some(url) => self.public_url(url, &spot.key("public_url")).map(Some),
            None => Some(None),
        };
        let documentation = match &raw.listen.documentation {
            Some(url) => self.link(url, &spot.key("documentation")).map(Some),
            None => Some(None),
        };
        let cors = self.cors(&raw.listen.cors, &spot.key("cors"));
        let admin = self.address(&raw.listen.admin, &spot.key("admin"));
        let hosts =
            self.hosts(&raw.listen.hosts, public_url.as_ref().and_then(Option::as_deref), &spot.key("hosts"));
        if admin.is_some_and(|admin| !admin.ip().is_loopback()) {
            self.warn(
                &spot.key("admin"),
                "Other machines can reach it, and it has no TLS: the admin token crosses the network unencrypted.",
                "Write \"127.0.0.1:9090\" and use a tunnel or a proxy with TLS, or keep the network closed.",
            );
        }
        Some(Listen {
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
    fn hosts(&mut self, written: &[String], public_url: Option<&str>, spot: &Spot<'_>) -> Hosts {
        for (index, name) in written.iter().enumerate() {
            let is_name = !name.is_empty() && host::name(name) == name && is_host(name.as_bytes());
            if !is_name || name.contains('*') {
                let why = "It is not a host name.";
                self.wrong(
                    &spot.at(index),
                    why,
                    "Write it without scheme, port and path, such as \"metrics.example.eu\".",
                );
            }
        }
        let public =
            public_url.and_then(|url| url.split_once("://")).map(|(_, authority)| host::name(authority));
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Hosts::new(written.iter().map(String::as_str).chain(public).chain([machine.trim()]))
    }

    /// Parses the scheme and host that clients write before `/v1`.
    fn public_url(&mut self, text: &str, spot: &Spot<'_>) -> Option<Box<str>> {
        match url::base(text) {
            Ok(base) if base.path_prefix.is_empty() => {
                let scheme = if base.tls { "https" } else { "http" };
                Some(format!("{scheme}://{}", base.authority).into())
            }
            Ok(_) => {
                let why = "It has a path, which the gateway adds itself.";
                self.wrong(spot, why, "Stop after the host, such as \"https://api.example.eu\".");
                None
            }
            Err((why, fix)) => {
                self.wrong(spot, why, fix);
                None
            }
        }
    }

    pub fn spool(&mut self, raw: &Raw, top: &Spot<'_>) -> Option<Spool> {
        let path = self.below_store(&raw.spool.path, "spool", raw, top)?;
        if raw.images.keep.0 > raw.spool.disk.0 {
            let why = "It is more than all files together may have (spool.disk): images would take the space of \
                       uploads, and then of each other.";
            self.warn(&top.key("images").key("keep"), why, "Write less than spool.disk, or more there.");
        }
        Some(Spool { path, memory: bytes(raw.spool.memory), disk: raw.spool.disk.0 })
    }

    pub fn files(&mut self, raw: &Raw, top: &Spot<'_>) -> Option<Files> {
        let path = self.below_store(&raw.files.path, "files", raw, top)?;
        let files = &raw.files;
        let retention = files.retention.0.as_secs();
        Some(Files {
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
    fn below_store(
        &mut self,
        written: &Option<String>,
        section: &str,
        raw: &Raw,
        top: &Spot<'_>,
    ) -> Option<PathBuf> {
        let spot = top.key(section).key("path");
        let path = match written {
            Some(path) => spot.file(path),
            None => top.key("storage").key("path").file(&raw.storage.path).join(section),
        };
        if path.exists() && !path.is_dir() {
            let fix = "Write the path of a folder, or of one to be made.";
            self.wrong(&spot, "It is a file, and must be a folder.", fix);
            return None;
        }
        // The check of `storage.path` covers the default folder.
        if written.is_some() {
            self.makeable(&path, &spot);
        }
        Some(path)
    }

    fn https(&mut self, https: &raw::Https, spot: &Spot<'_>) -> Option<Https> {
        let address = self.address(&https.address, &spot.key("address"));
        let certificate = self.pem(&https.certificate, "CERTIFICATE", &spot.key("certificate"));
        let key = self.pem(&https.key, "PRIVATE KEY", &spot.key("key"));
        let client_ca = match &https.client_ca {
            Some(file) => self.pem(file, "CERTIFICATE", &spot.key("client_ca")).map(Some),
            None => Some(None),
        };
        if https.client_certificate.is_some() && https.client_ca.is_none() {
            self.wrong(
                &spot.key("client_certificate"),
                "No CA for client certificates is set, so none would be requested.",
                "Name their issuers in `client_ca`, such as `client_ca = \"tls/clients.pem\"`, or take this out.",
            );
        }
        Some(Https {
            address: address?,
            certificate: certificate?,
            key: key?,
            client_ca: client_ca?,
            client_certificate: https.client_certificate.unwrap_or_default(),
            min_tls: https.min_tls,
        })
    }

    pub fn address(&mut self, text: &str, spot: &Spot<'_>) -> Option<SocketAddr> {
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
        self.wrong(spot, "It is not an IP address with a port.", fix);
        None
    }

    pub fn storage(&mut self, raw: &Raw, top: &Spot<'_>) -> Option<Storage> {
        let spot = top.key("storage");
        let path = spot.key("path").file(&raw.storage.path);
        if path.exists() && !path.is_dir() {
            self.wrong(
                &spot.key("path"),
                "It is a file, and must be a folder.",
                "Write the path of a folder, or of one to be made.",
            );
        }
        if !path.exists() || path.is_dir() {
            self.makeable(&path, &spot.key("path"));
        }
        let at = spot.key("pepper");
        let pepper = raw.storage.pepper.as_ref().map(|reference| self.secret(reference, &at));
        if let Some(Some(pepper)) = &pepper {
            let text = pepper.reveal();
            if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                self.wrong_secret(
                    &at,
                    "It must be 64 hexadecimal digits (32 bytes).",
                    "Generate one with `openssl rand -hex 32` and keep it: without it no key is valid any more.",
                );
            }
        }
        let pepper = pepper.map_or(Some(None), |pepper| pepper.map(Some))?;
        Some(Storage { path, ballast_bytes: raw.storage.ballast.0, pepper })
    }

    pub fn simulators(&mut self, raw: &Raw, top: &Spot<'_>) -> Vec<Simulated> {
        let mut found: Vec<Simulated> = Vec::with_capacity(raw.simulated.len());
        let list = top.key("simulated");
        for (index, simulated) in raw.simulated.iter().enumerate() {
            let spot = list.at(index);
            if let Some(first) =
                raw.simulated.iter().take(index).position(|other| other.name == simulated.name)
            {
                let why = format!(
                    "There is a simulated provider of this name already, at {}.",
                    list.at(first).place()
                );
                self.wrong(&spot.key("name"), why, "Give each its own name.");
            }
            let Some(address) = self.address(&simulated.address, &spot.key("address")) else { continue };
            if !address.ip().is_loopback() {
                self.wrong(
                    &spot.key("address"),
                    "A simulated provider requires no key, so it may listen on this machine only.",
                    format!("Write \"127.0.0.1:{}\".", address.port()),
                );
            }
            found.push(Simulated {
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
    pub fn clashes(&mut self, listen: Option<&Listen>, simulators: &[Simulated], top: &Spot<'_>) {
        let Some(listen) = listen else { return };
        let spot = top.key("listen");
        let mut all: Vec<(SocketAddr, Spot<'_>)> = Vec::new();
        let several = listen.http.len() != 1;
        for (index, address) in listen.http.iter().enumerate() {
            all.push((*address, if several { spot.key("http").at(index) } else { spot.key("http") }));
        }
        all.extend(listen.https.as_ref().map(|https| (https.address, spot.key("https").key("address"))));
        all.push((listen.admin, spot.key("admin")));
        for (index, simulated) in simulators.iter().enumerate() {
            all.push((simulated.address, top.key("simulated").at(index).key("address")));
        }
        for (index, (address, spot)) in all.iter().enumerate() {
            let clash = all.iter().take(index).find(|(other, _)| same(*address, *other));
            if let Some((other, first)) = clash {
                let why = format!("`{}` listens on {other} already.", first.path());
                self.wrong(spot, why, "Give each listener a port of its own.");
            }
        }
    }
}

fn same(a: SocketAddr, b: SocketAddr) -> bool {
    let overlap = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && overlap
}
