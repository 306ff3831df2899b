//! Penstock: a gateway in front of EU providers of open-weight models.
//!
//! # Path of a request
//! ```text
//! bytes → key → model:flavor → Ask → limits, reserve → Plan → Attempt → events → bytes
//!                                                                └→ Usage → footprint + price → settle → log, metrics
//! ```
//! No arrow goes back. The crates under `plugins/` never call each other's logic: this crate carries values between
//! them, and is the only one that uses sockets, threads, clocks, the command line and Prometheus.
//!
//! # Modules
//! | module | purpose |
//! |---|---|
//! | [`cli`], [`start`] | command line; start, signals, stop |
//! | [`config`] | configuration files, converted into checked settings; all mistakes are reported at once |
//! | [`gateway`], [`server`], [`tls`], [`socket`], [`threads`], [`front`] | listeners; the requests of a connection |
//! | [`house`] | composition root; state shared by the whole process |
//! | [`live`] | current configuration, swapped atomically by a reload |
//! | [`exchange`], [`caller`], [`mod@line`] | life of one request; its origin: a client, or a line of a batch |
//! | [`endpoint`] | `ENDPOINTS`: one file and one line per endpoint |
//! | [`relay`] | attempt loop: selection, attempt, buffered and streamed responses, settlement |
//! | [`overload`] | admission control: requests and bytes of the whole gateway; the wait queue |
//! | [`gate`] | limits and budgets of a key and its account: reserved before, settled after |
//! | [`intake`] | multipart forms with a file, streamed to the spool |
//! | [`count`] | token counts, if a context window might be exceeded |
//! | [`upstream`] | offer pools on Pingora's load balancer, health checks, routes, concurrency limits, prices |
//! | [`descriptors`] | file descriptor limit of the process |
//! | [`civil`] | formats of dates and times |
//! | [`buffers`] | pool of buffers for large bodies |
//! | [`pace`] | cooperative budget of tasks that read, so that no peer occupies a thread |
//! | [`proxy`] | Pingora's phases: from the session of a client or of a batch line to an exchange |
//! | [`reply`], [`observe`] | response heads and refusals; log lines and metrics |
//! | [`keyring`], [`vault`] | keys and accounts in memory; the stores behind them |
//! | [`spool`], [`shelf`] | uploads on disk; generated images that wait for their client |
//! | [`files`], [`object_id`] | uploaded files and their ids |
//! | [`batch`] | batches: files of requests, processed in the background |
//! | [`archive`] | archives of all durable state: saved, verified, restored, salvaged |
//! | [`handover`], [`notify`] | upgrade: sockets and store pass to the next process; notifications to systemd |
//! | [`figures`] | measured speeds across restarts |
//! | [`ledger`] | credits and billed energy: reserved in memory, written after the request |
//! | [`watched`] | watcher of secret and certificate files |
//! | [`admin`], [`worker`] | admin listener; background tasks |
//! | [`simulate`], [`simulators`] | simulated providers |
//!
//! # Invariants
//! 1. Only this crate touches sockets.
//! 2. The crates under `plugins/` get the time as an argument.
//! 3. Money has no floats; neither has energy that is billed.
//! 4. `Usage.input` includes cached tokens.
//! 5. Between equal dialects bytes pass unchanged; nothing is serialised again.
//! 6. A reservation ends once: settled with its answer or when its client left, else
//!    voided; what was taken from limits ends with the exchange, however that ends.
//! 7. Every buffer has a limit in bytes from the configuration.
//! 8. Every refusal uses the caller's dialect and leaks no cause.
//! 9. Secrets have no Display and print as `***`.
//! 10. After the first content token nothing is retried; a broken stream is
//!     rescued without a byte sent twice, or ends with an error.
//! 11. `conf/penstock.toml` contains the defaults.
//! 12. No request content is logged or stored, except in files and batches.

pub mod admin;
pub mod archive;
pub mod batch;
pub mod buffers;
pub mod caller;
pub mod civil;
pub mod cli;
pub mod clock;
pub mod config;
pub mod count;
pub mod descriptors;
pub mod endpoint;
pub mod exchange;
mod exports;
pub mod figures;
pub mod files;
pub mod front;
pub mod gate;
pub mod gateway;
pub mod handover;
pub mod house;
#[cfg(feature = "inject")]
pub mod inject;
pub mod intake;
pub mod keyring;
pub mod ledger;
pub mod line;
pub mod live;
pub mod notify;
pub mod object_id;
pub mod observe;
pub mod overload;
pub mod pace;
pub mod proxy;
pub mod relay;
pub mod reply;
pub mod request_id;
pub mod server;
pub mod shelf;
pub mod simulate;
pub mod simulators;
pub mod socket;
pub mod spool;
pub mod start;
pub mod threads;
pub mod tls;
pub mod upstream;
pub mod vault;
pub mod watched;
pub mod worker;
