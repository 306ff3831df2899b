//! Overload: queueing, rejection times, bounded memory, and the isolation of panics.

mod admission;
mod batches;
mod buffered_events;
mod client_disconnects;
mod fairness;
mod gateway_overload;
mod panics;
mod provider_failures;
mod provider_overload;
mod provider_timeouts;

use crate::harness::{Bench, Client, Provider, gateway::Running};
use penstock_simulator::{SimulatedServer, SimulatorOptions};
use serde_json::json;
use std::time::{Duration, Instant};

pub const CHAT: &str = "/v1/chat/completions";

/// Returns true if the long form of the tests was requested.
pub fn full() -> bool {
    std::env::var_os("PENSTOCK_FULL").is_some()
}

/// Returns the value for the requested form of the tests, short or long.
pub fn form<T>(reduced: T, long: T) -> T {
    if full() { long } else { reduced }
}

/// Returns a percentile of the durations.
pub fn percentile(times: &mut [Duration], hundredths: usize) -> Duration {
    times.sort_unstable();
    let at = (times.len() * hundredths).div_ceil(100).clamp(1, times.len()) - 1;
    times[at]
}

/// Starts a simulated provider that sends its complete answer after this time.
pub async fn thinker(first_token: Duration) -> SimulatedServer {
    let options = SimulatorOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        first_token,
        tokens_per_second: 0.0,
        models: vec!["theirs".to_owned()],
        ..SimulatorOptions::default()
    };
    SimulatedServer::start(options).await.unwrap()
}

/// Gateway in front of one provider with a concurrency limit.
pub fn with_concurrency(provider: &Provider, max_in_flight: usize) -> Bench {
    let lines = format!("max_in_flight = {max_in_flight}\n{}", crate::harness::gateway::PATIENT);
    Bench::new().provider_with("a", provider, &lines, "")
}

/// A client with a key of an account of this name.
pub async fn of_account(running: &Running, account: &str) -> Client {
    let made = running.admin().post("/admin/accounts", &json!({"id": account})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    running.key(&json!({"account": account})).await
}

/// Waits until no request is in flight, waits, or holds memory in the gateway.
pub async fn until_empty(running: &Running) {
    let app = &running.gateway.app;
    crate::harness::until("no request to be in flight", || {
        let load = app.admission.load_status();
        let at_providers: u32 = app
            .config_snapshot()
            .providers
            .iter()
            .map(|one| one.concurrency.in_flight() + one.concurrency.waiter_count())
            .sum();
        app.in_flight_exchanges() == 0
            && (load.requests, load.bytes, load.waiting) == (0, 0, 0)
            && at_providers == 0
            && app.ledger.durability_snapshot().open == 0
    })
    .await;
}

/// Duration of a future.
pub async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    (work.await, began.elapsed())
}
