//! The integration tests, one binary: a whole gateway over real sockets, in
//! front of providers that follow a script and count their calls.
#![allow(
    missing_docs,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::missing_panics_doc
)]

mod damage;
#[path = "../../plugins/storage/tests/powercut/disk.rs"]
mod disk;
mod harness;
#[path = "../../plugins/media/tests/sounds/mod.rs"]
mod sounds;
#[path = "../../plugins/storage/tests/powercut/trace.rs"]
mod trace;

mod accounts;
mod added_parts;
mod admin;
mod admin_jobs;
mod affinity;
mod agent;
mod aside;
mod batch_input;
mod batch_killed;
mod batch_large;
mod batch_models;
mod batch_money;
mod batch_reload;
mod batches;
mod billing;
mod bodies;
mod bounds;
mod budgets;
mod canaries;
mod cancel;
mod chat;
mod choices;
mod commands;
mod compatibility;
mod completions;
mod counting;
mod crash;
mod cuts;
mod embeddings;
mod exports;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod failing_disk;
mod failover;
mod files;
mod files_kept;
mod filters;
mod footprint;
mod full_disk;
mod full_disk_batch;
mod guessing;
mod hostile;
mod hosts;
mod image_names;
mod image_steps;
mod images;
mod kept_parts;
mod large_failover;
mod ledger;
mod life;
mod limits;
mod lines;
mod measured;
mod memory_bounds;
mod messages;
mod mismatch;
mod mixed_lists;
mod mixed_parts;
mod models;
mod overload;
mod pools;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod power_cut;
mod privacy;
mod private;
mod process;
mod progress;
mod provider_words;
mod public;
mod published;
mod raw_answers;
mod refusals;
mod reload_keeps;
mod reload_unnoticed;
mod rerank;
mod rescue;
mod retry;
mod room;
mod routing;
mod seats;
mod server_state;
mod soak;
mod speech;
mod stale;
mod store;
mod stream_memory;
mod tidy;
mod tls;
mod transcriptions;
mod upload_memory;
mod uploads;
mod waits;
