//! Penstock: the gateway in front of EU providers of open-weight models.
//!
//! # One way through
//! ```text
//! bytes → key → model:flavor → Ask → limits, reserve → Plan → Attempt → events → bytes
//!                                                                └→ Usage → footprint + price → settle → log, metrics
//! ```
//! No arrow goes back. A room (a crate under `plugins/`) never calls another
//! room: this crate carries values between them, and is the only one that names
//! sockets, threads, clocks, the command line and Prometheus.
//!
//! # Where things are
//! | module | what it is for |
//! |---|---|
//! | [`cli`], [`start`] | the command line; starting, signals, stopping |
//! | [`config`] | what users write → what the house uses; all mistakes at once |
//! | [`gateway`], [`server`], [`tls`], [`socket`], [`threads`], [`front`] | listeners; a connection's requests one by one |
//! | [`house`] | composition root; everything that lives as long as the process |
//! | [`live`] | the configuration at work, swapped whole by a reload |
//! | [`exchange`], [`caller`], [`mod@line`] | the life of one request, top to bottom; who asks: a client, or a line of a batch |
//! | [`endpoint`] | `ENDPOINTS`: a file and a line each |
//! | [`relay`] | the attempt loop: select, attempt, plain, pump, settle |
//! | [`overload`] | requests and bytes of the whole house; who waits for a place |
//! | [`gate`] | limits and budgets of a key and its account: taken before, settled after |
//! | [`intake`] | forms with a file, read past memory |
//! | [`count`] | token counts, where a window might be exceeded |
//! | [`upstream`] | providers: pools of offers on Pingora's load balancer, health checks, routes, seats, bills |
//! | [`descriptors`] | how many connections the system allows |
//! | [`civil`] | times as people and headers write them |
//! | [`buffers`] | memory for large bodies, kept for a moment |
//! | [`pace`] | turns of tasks that read, so that no peer keeps a thread to itself |
//! | [`proxy`] | Pingora's phases: from the session of a client or of a batch line to an exchange |
//! | [`reply`], [`observe`] | heads and refusals out; each event's line and metric |
//! | [`keyring`], [`vault`] | keys and accounts in memory; the store behind them |
//! | [`spool`], [`shelf`] | uploads on disk; images that wait for their client |
//! | [`files`], [`object_id`] | what clients keep, and what it is called |
//! | [`batch`] | files of requests, worked off in their own time |
//! | [`archive`] | all that lasts, proven, saved, restored, salvaged |
//! | [`handover`], [`notify`] | an upgrade: sockets and store go to the next process; what systemd is told |
//! | [`figures`] | measured speeds across restarts |
//! | [`ledger`] | credits and billed energy: reserved in memory, written behind the request |
//! | [`watched`] | secrets and certificates that change in their files |
//! | [`admin`], [`worker`] | the second listener; what goes on beside requests |
//! | [`simulate`], [`simulators`] | simulated providers |
//!
//! # Invariants
//! 1. Only this crate touches sockets.
//! 2. A room gets time as an argument.
//! 3. No float in money; none in energy that is billed.
//! 4. `Usage.input` includes cached tokens.
//! 5. Same dialect: bytes pass, nothing is serialised again.
//! 6. A reserve ends once: settled with its answer or when its client left, else
//!    voided; what was taken from limits ends with the exchange, however that ends.
//! 7. Every buffer has a cap from the configuration, in bytes.
//! 8. Every refusal is spoken in the caller's dialect and leaks no cause.
//! 9. Secrets have no Display and print as `***`.
//! 10. After the first content token nothing is retried; a broken stream is
//!     rescued without a byte sent twice, or ends with an error.
//! 11. `conf/penstock.toml` is the defaults.
//! 12. No request content is logged or stored, files and batches aside.

pub mod admin;
pub mod app;
pub mod auth;
pub mod backup;
pub mod batch;
pub mod billing;
pub mod cli;
pub mod config;
pub mod http;
pub mod limits;
pub mod net;
pub mod proxy;
pub mod server;
pub mod state;
pub mod storage;
pub mod telemetry;
pub mod time;
pub mod upgrade;
pub mod upstream;
