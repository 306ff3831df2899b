//! Waits for conditions, with a time limit.

use std::future::Future;
use std::time::Duration;

/// Waits for something that must happen within a minute; panics otherwise.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(60), work).await {
        Ok(done) => done,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Returns true if the tests run in their long form (`PENSTOCK_FULL=1`).
pub fn is_long_run() -> bool {
    std::env::var_os("PENSTOCK_FULL").is_some_and(|full| full == "1")
}

/// Polls a condition that sends requests to a gateway, every 20 ms, until it is true.
pub async fn until_answered<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    within(what, async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Polls a condition every 2 ms until it is true.
pub async fn until(what: &str, mut is: impl FnMut() -> bool) {
    within(what, async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
