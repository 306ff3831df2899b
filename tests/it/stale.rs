//! What becomes of a request whose connection is no good: whom it may be told to again, and how often.

use crate::harness::Bench;
use crate::harness::bench::{PATIENT, Running};
use crate::harness::frames::{Deed, Frames};

/// One attempt and no more: whatever else the provider is asked is beside all budgets.
const ONCE: &str = "[routing]\nattempts = 1";

/// A gateway in front of a provider that is asked over HTTP/2.
async fn before(provider: &Frames, lines: &str) -> Running {
    let base = format!("http://{}/v1", provider.address);
    let lines = format!("{PATIENT}\nhttp = \"h2\"\n{lines}");
    Bench::new().settings(ONCE).provider_at("a", &base, &lines, "").start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_http2_does_not_take_is_a_failed_attempt() {
    let provider = Frames::start(&[Deed::Answer]).await;
    // There is no such header in HTTP/2.
    let running = before(&provider, "headers = { \"proxy-connection\" = \"close\" }").await;
    let answer = running.chat().await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.json()["error"]["details"]["attempts"][0]["reason"], "reset");
    assert_eq!(provider.asked(), 0);
}
