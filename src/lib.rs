//! Penstock: a gateway in front of EU providers of open-weight models, on Cloudflare's Pingora.
//!
//! `docs/architecture.md` shows the life of a request and the extension points.
//!
//! # Folders
//! An import points to a lower row only; the test `imports_point_to_lower_folders` enforces the order.
//!
//! | module | purpose |
//! |---|---|
//! | [`cli`] | commands, their arguments and output |
//! | [`app`] | startup, listeners, background tasks, stop and upgrade of the process |
//! | [`admin`] | admin listener: keys, accounts, credits, batches, status, metrics |
//! | [`console`] | pages of operators and of account holders, on top of the admin API |
//! | [`server`] | connections of clients: guard of HTTP/1.1 heads, limits of HTTP/2, connection limits |
//! | [`proxy`] | phases of Pingora's proxy: filters, endpoints, exchange, failover driver |
//! | [`state`] | state of the process that requests share; reload |
//! | [`batch`] | batches: scheduling, execution and commit of lines |
//! | [`upstream`] | providers: load balancer pools, connections, health checks, circuit breakers, permits |
//! | [`backup`] | backup, restore, verification and repair of stored data |
//! | [`billing`] | ledger: reserve, settle and void, write queue, recovery |
//! | [`limits`] | rate limits and budgets, admission control, permits to count tokens |
//! | [`auth`] | API keys and accounts in memory |
//! | [`storage`] | database and secrets, uploaded files, spooled bodies, cached images |
//! | [`fleet`] | membership in a fleet of several gateways that share a database |
//! | [`upgrade`] | handover of sockets and store to the next process |
//! | [`http`] | helpers of HTTP: TLS settings, request framing, buffers, receive windows |
//! | [`telemetry`] | log, metrics, access records |
//! | [`config`] | configuration: parsing, validation, settings, changes |
//! | [`net`] | sockets, threads, lifecycle of the process |
//! | [`time`] | clocks and formats of time |
//!
//! Crates under `plugins/` are pure: values in, values out. Only this crate, and the engines `storage` and
//! `object-storage`, open sockets and read clocks; `regular-file` reads files.
//!
//! # Invariants
//! 1. Only this crate and the engines of stores open sockets.
//! 2. Crates under `plugins/` get time as an argument.
//! 3. Money and billed energy use no floating point.
//! 4. `Usage.input` includes cached tokens.
//! 5. If client and provider use the same dialect, the bytes are forwarded unchanged.
//! 6. A reserve ends exactly once: settled with its response or at the client's disconnection, else voided.
//!    Reservations of limits end with the exchange, however that ends.
//! 7. Every buffer has a cap in bytes from the configuration.
//! 8. Every error is sent in the caller's dialect, without internal causes.
//! 9. Secrets have no `Display`, and print as `***`.
//! 10. Nothing is retried after the first content token; a broken stream is continued without repeating a byte, or ends
//!     with an error.
//! 11. `conf/penstock.toml` equals the defaults.
//! 12. No request content is logged. The gateway stores files, batches, and images until they expire, and responses
//!     only for keys that may store them, encrypted.
//! 13. Every timeout is compared with the clock at each step, and a client that disconnects is noticed, whatever the
//!     provider sends.
//! 14. Nothing that a client's file or a provider's response claims is charged without a bound from a measurement.

pub mod admin;
pub mod app;
pub mod auth;
pub mod backup;
pub mod batch;
pub mod billing;
pub mod cli;
pub mod config;
pub mod console;
pub mod fleet;
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
