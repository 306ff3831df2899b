//! Test harness: scripted providers, a client that sees each byte, a gateway per test. Nothing waits by the clock:
//! every wait is for a condition, within a limit that only a hang can reach.

pub mod batch_jobs;
pub mod browser;
pub mod certificates;
pub mod client;
pub mod endless_provider;
pub mod gateway;
pub mod h2_client;
pub mod h2_provider;
pub mod process;
pub mod provider;
pub mod script;
pub mod tcp_proxy;

pub use client::{Answer, Client};
pub use gateway::Bench;
pub use provider::Provider;

use std::future::Future;
use std::time::Duration;

/// Waits for something that has to happen.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(60), work).await {
        Ok(done) => done,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Checks whether tests run in their long form.
pub fn full() -> bool {
    std::env::var_os("PENSTOCK_FULL").is_some_and(|full| full == "1")
}

/// Polls a condition that asks a gateway until it holds, with pauses.
pub async fn until_answered<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    within(what, async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Polls the condition until it holds, yielding in between.
pub async fn until(what: &str, mut is: impl FnMut() -> bool) {
    within(what, async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
