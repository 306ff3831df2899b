//! Integration tests, one binary: a whole gateway over real sockets, in front of scripted providers that count their
//! calls.
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
#[path = "../../plugins/storage/tests/support/server.rs"]
mod postgres_server;
#[path = "../../plugins/object-storage/tests/support/seaweedfs.rs"]
mod seaweedfs;
#[path = "../../plugins/media/tests/sounds/mod.rs"]
mod sounds;
#[path = "../../plugins/storage/tests/powercut/trace.rs"]
mod trace;

mod accounts;
mod added_parameters;
mod admin;
mod admin_jobs;
mod affinity;
mod auxiliary_requests;
mod background_responses;
mod background_stream_bounds;
mod background_streams;
mod batch_crash_recovery;
mod batch_funds;
mod batch_large_lines;
mod batch_lines;
mod batch_models;
mod batch_reload;
mod batch_validation;
mod batches;
mod billing;
mod budgets;
mod canaries;
mod chat;
mod client_disconnects;
mod coding_agent;
mod commands;
mod compatibility;
mod completions;
mod completions_choices;
mod console;
mod console_accounts;
mod console_refusals;
mod console_reports;
mod console_routing;
mod context_window;
mod crash_recovery;
mod credit_notes;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod dashboard;
mod dashboard_forms;
mod dashboard_tls;
mod database;
mod disk_errors;
mod embeddings;
mod energy_headers;
mod exports;
mod failover;
mod failover_body_sizes;
mod file_bucket;
mod file_durability;
mod file_permissions;
mod files;
mod filters;
mod fleet;
mod fleet_batches;
mod fleet_contents;
mod fleet_slices;
mod footprint;
mod full_disk;
mod full_disk_batch;
mod grid_intensity;
mod host_headers;
mod hostile;
mod image_counts;
mod image_default_format;
mod image_pixels;
mod image_steps;
mod images;
mod invalid_requests;
mod invoices;
mod key_guessing;
mod key_rotation;
mod languages;
mod large_failover;
mod ledger;
mod lifecycle;
mod limit_settings;
mod limits;
mod live_figures;
mod long_responses;
mod measured_speeds;
mod memory_bounds;
mod messages;
mod mixed_lists;
mod mixed_parts;
mod models;
mod multiple_choices;
mod offer_pools;
mod openid;
mod overload;
mod playground;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod power_cut;
mod privacy;
mod process;
mod prompt_energy;
mod provider_concurrency;
mod provider_errors;
mod provider_faults;
mod provider_streams;
mod public_listener;
mod published_footprints;
mod reload_in_flight;
mod reload_state;
mod rerank;
mod response_normalization;
mod responses;
mod responses_providers;
mod retry;
mod routing;
mod serialized_members;
mod server_state;
mod soak;
mod speech;
mod speech_streams;
mod stale_connections;
mod storage_integrity;
mod store_command;
mod store_damage;
mod store_progress;
mod stored_response_items;
mod stored_responses;
mod stream_failover;
mod stream_memory;
mod stream_splits;
mod streamed_plain_answers;
mod tidy;
mod tls;
mod token_counting;
mod transcriptions;
mod unrequested_members;
mod unusable_output;
mod upload_failures;
mod upload_memory;
