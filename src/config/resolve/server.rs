//! Settings of the gateway itself: limits, routing, billing, stored data, process, and simulated providers.

use super::super::raw::{self, ConfigFile};
use super::super::settings::{
    BackgroundSettings, BatchSettings, BillingSettings, CircuitBreakerSettings, ClientCompatibilitySettings,
    FileSettings, GeneratedImageSettings, ImpactSettings, LedgerSettings, LimitSettings, LogSettings,
    OverloadSettings, ResponseSettings, RoutingSettings, SimulatorSettings, SpoolSettings,
};
use super::SettingsResolver;
use super::folder::overlaps;
use super::key_path::KeyPath;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::path::PathBuf;

/// Converts a size to `usize`.
fn to_usize(size: raw::ByteSize) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

/// Converts `[limits]`.
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

/// Converts `[impact]`.
pub const fn impact_settings(raw: &ConfigFile) -> ImpactSettings {
    ImpactSettings { provenance: raw.impact.provenance }
}

/// Converts `[responses]`.
pub fn response_settings(raw: &ConfigFile) -> ResponseSettings {
    let responses = &raw.responses;
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    ResponseSettings {
        disk: responses.disk.0,
        per_key: responses.per_key.0,
        retention: responses.retention.0,
        background: BackgroundSettings {
            open: number(responses.background.open),
            concurrency: number(responses.background.concurrency),
            window: responses.background.window.0,
        },
    }
}

/// Converts `[images]`.
pub const fn generated_image_settings(raw: &ConfigFile) -> GeneratedImageSettings {
    GeneratedImageSettings { lifetime: raw.images.lifetime.0, max_total_bytes: raw.images.keep.0 }
}

/// Converts `[billing]`.
pub fn billing_settings(raw: &ConfigFile) -> BillingSettings {
    BillingSettings {
        eur_per_credit: raw.billing.eur_per_credit.0,
        eur_per_kwh: raw.billing.eur_per_kwh.0,
        prepaid: raw.billing.credit == raw::CreditPolicy::Prepaid,
        reserve_output_tokens: raw.billing.reserve_output_tokens.into(),
    }
}

/// Converts `[ledger]`.
pub fn ledger_settings(raw: &ConfigFile) -> LedgerSettings {
    let ledger = &raw.ledger;
    let debt = ledger.debt.0.saturating_mul(Decimal::ONE_HUNDRED).saturating_mul(Decimal::from(1_000_000));
    LedgerSettings {
        window: ledger.window.0,
        answers_wait_for_disk: ledger.sync == raw::LedgerSync::Answer,
        debt: debt.trunc().to_i64().unwrap_or(i64::MAX),
        backlog: to_usize(ledger.backlog),
        slow: ledger.slow.0,
        max_clock_lead: ledger.ahead.0,
    }
}

/// Converts `[batches]`.
pub fn batch_settings(raw: &ConfigFile) -> BatchSettings {
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

/// Converts `[compatibility]`.
pub const fn compatibility_settings(raw: &ConfigFile) -> ClientCompatibilitySettings {
    let compatibility = &raw.compatibility;
    ClientCompatibilitySettings {
        batch_results: compatibility.batch_results,
        images: compatibility.images,
        billing_cost: compatibility.billing_cost,
        preset_flavor: compatibility.preset_flavor,
    }
}

/// Converts `[routing]`.
pub fn routing_settings(raw: &ConfigFile) -> RoutingSettings {
    let routing = &raw.routing;
    let breaker = &routing.breaker;
    RoutingSettings {
        attempts: routing.attempts,
        total: routing.total.0,
        max_retry_after_wait: routing.patience.0,
        quick_retry: routing.quick_retry.0,
        batch_wait: routing.batch_wait.0,
        batch_lines: usize::try_from(routing.batch_lines).unwrap_or(usize::MAX),
        session_lifetime: routing.session_lifetime.0,
        breaker: CircuitBreakerSettings {
            consecutive: breaker.consecutive,
            error_rate: breaker.error_rate.0.to_f64().unwrap_or(1.0),
            minimum: breaker.minimum,
            window: breaker.window.0,
            first_ejection: breaker.rest.0,
            max_ejection: breaker.rest_max.0,
        },
    }
}

/// Returns the number of worker threads. A 0 in the configuration means one thread per core.
pub fn thread_count(configured: u32) -> usize {
    match usize::try_from(configured) {
        Ok(0) | Err(_) => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        Ok(configured) => configured,
    }
}

/// Converts `[log]`.
pub fn log_settings(raw: &ConfigFile) -> LogSettings {
    LogSettings { level: raw.log.level, format: raw.log.format }
}

/// Returns the folders of the gateway except that of a section, `files` or `spool`.
fn other_folders(section: &str, raw: &ConfigFile, top: &KeyPath<'_>) -> Vec<PathBuf> {
    let store = top.child("storage").child("path").resolve_file_path(&raw.storage.path);
    let sections = [("files", &raw.files.path), ("spool", &raw.spool.path)];
    let others =
        sections.into_iter().filter(|(name, _)| *name != section).map(|(name, written)| match written {
            Some(path) => top.child(name).child("path").resolve_file_path(path),
            None => store.join(name),
        });
    ["store", "ledger", "responses"].into_iter().map(|name| store.join(name)).chain(others).collect()
}

impl SettingsResolver<'_> {
    /// Resolves `[overload]`. The memory for bodies must be at least twice the size of the largest JSON body, so that
    /// one body cannot use all of it.
    pub fn resolve_overload(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> OverloadSettings {
        let overload = &raw.overload;
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        if overload.bytes.0 / 2 < raw.limits.json_body.0 {
            let least = super::super::units::format_size(raw.limits.json_body.0.saturating_mul(2));
            self.report_mistake(
                &top.child("overload").child("bytes"),
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

    /// Resolves `[spool]`; `None` if its folder cannot be used.
    pub fn resolve_spool(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<SpoolSettings> {
        let path = self.section_folder(&raw.spool.path, "spool", raw, top)?;
        if raw.images.keep.0 > raw.spool.disk.0 {
            let why = "It is more than all files together may have (spool.disk): images would take the space of \
                       uploads, and then of each other.";
            self.report_warning(
                &top.child("images").child("keep"),
                why,
                "Write less than spool.disk, or more there.",
            );
        }
        Some(SpoolSettings { path, memory: to_usize(raw.spool.memory), disk: raw.spool.disk.0 })
    }

    /// Resolves `[files]`; `None` if its folder cannot be used or the bucket has mistakes.
    pub fn resolve_files(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<FileSettings> {
        let path = self.section_folder(&raw.files.path, "files", raw, top)?;
        let files = &raw.files;
        let retention = files.retention.0.as_secs();
        let store = match &files.store {
            None => None,
            Some(store) => Some(self.resolve_bucket(store, &top.child("files").child("store"))?),
        };
        Some(FileSettings {
            path,
            upload: files.upload.0,
            disk: files.disk.0,
            per_key: files.per_key.0,
            keep_free: files.keep_free.0,
            retention: (!files.retention.0.is_zero()).then_some(retention.max(1)),
            leftovers: files.leftovers.0,
            store,
        })
    }

    /// Returns the folder of a section: the written path, or by default a folder with the section's name in the folder
    /// of the store; `None` if it is a file, which is a mistake.
    fn section_folder(
        &mut self,
        written: &Option<String>,
        section: &str,
        raw: &ConfigFile,
        top: &KeyPath<'_>,
    ) -> Option<PathBuf> {
        let spot = top.child(section).child("path");
        let path = match written {
            Some(path) => spot.resolve_file_path(path),
            None => top.child("storage").child("path").resolve_file_path(&raw.storage.path).join(section),
        };
        if path.exists() && !path.is_dir() {
            let fix = "Write the path of a folder, or of one to be made.";
            self.report_mistake(&spot, "It is a file, and must be a folder.", fix);
            return None;
        }
        if written.is_some() && other_folders(section, raw, top).iter().any(|other| overlaps(other, &path)) {
            let why = "It is inside or above another folder of the gateway, whose files would be mixed with its own.";
            self.report_mistake(&spot, why, "Write the path of a separate folder.");
            return None;
        }
        // The default folder needs no check: it is inside `storage.path`, which is checked already.
        if written.is_some() {
            self.check_folder_creatable(&path, &spot);
        }
        Some(path)
    }

    /// Resolves the `[[simulated]]` blocks; one with an invalid address is left out.
    pub fn resolve_simulators(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Vec<SimulatorSettings> {
        let mut found: Vec<SimulatorSettings> = Vec::with_capacity(raw.simulated.len());
        let list = top.child("simulated");
        for (index, simulated) in raw.simulated.iter().enumerate() {
            let spot = list.list_element(index);
            if let Some(first) =
                raw.simulated.iter().take(index).position(|other| other.name == simulated.name)
            {
                let why = format!(
                    "There is a simulated provider of this name already, at {}.",
                    list.list_element(first).file_and_line()
                );
                self.report_mistake(&spot.child("name"), why, "Give each its own name.");
            }
            let Some(address) = self.parse_address(&simulated.address, &spot.child("address")) else {
                continue;
            };
            if !address.ip().is_loopback() {
                self.report_mistake(
                    &spot.child("address"),
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
}
