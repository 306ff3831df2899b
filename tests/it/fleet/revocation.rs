//! Revocation of keys through one gateway: the others refuse the key soon, and end its streams.

use super::gateways::Fleet;
use crate::harness::client::OpenResponse;
use crate::harness::script::{ScriptStep, role, sse, text};
use crate::harness::{Client, is_long_run, within};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const GATEWAYS: usize = 3;
/// Longest time until every gateway refuses a revoked key. Without load, it takes at most 500 ms, the interval at
/// which gateways read changes.
const REFUSED_WITHIN: Duration = Duration::from_secs(if cfg!(debug_assertions) { 3 } else { 1 });
/// Longest time until the streams of a revoked key have ended.
const CUT_WITHIN: Duration = Duration::from_secs(if cfg!(debug_assertions) { 6 } else { 3 });

/// Sends requests until the key is refused; returns the elapsed time.
async fn time_until_refused(client: Client) -> Duration {
    let begun = Instant::now();
    within("the refusal of a revoked key", async {
        while client.get("/v1/models").await.status != 401 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_revoked_at_one_gateway_is_refused_by_all_and_its_streams_end() {
    let fleet = Fleet::start(GATEWAYS).await;
    fleet.grant(0, "10").await;
    fleet.provider.streams(vec![sse(), role(), text("Hel"), ScriptStep::Wait(Arc::new(Notify::new()))]);
    let mut keys = Vec::new();
    for _ in 0..if is_long_run() { 1_000 } else { 10 } {
        keys.push(fleet.key(0, json!({})).await);
    }
    let (first, _) = &keys[0];
    let (last, _) = keys.last().unwrap();
    fleet.until_everywhere(last, 200).await;
    let ask = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
    let mut streams: Vec<OpenResponse> = Vec::new();
    for gateway in 0..GATEWAYS {
        streams.push(fleet.at(gateway, first).stream_until("/v1/chat/completions", &ask, "Hel").await);
    }
    let (mut slowest, mut cut) = (Duration::ZERO, Duration::ZERO);
    for (key, id) in &keys {
        let revoked = fleet.admin(0).post(&format!("/admin/keys/{id}/revoke"), &json!({})).await;
        assert!(revoked.status < 300, "{}", revoked.text());
        let begun = Instant::now();
        let clients = (0..GATEWAYS).map(|gateway| fleet.at(gateway, key));
        let refusals: JoinSet<Duration> = clients.map(time_until_refused).collect();
        slowest = refusals.join_all().await.into_iter().fold(slowest, Duration::max);
        for mut stream in streams.drain(..) {
            let answer = within("the end of a stream", stream.finish()).await;
            assert!(answer.text().contains("AUTH_1001"), "{}", answer.text());
            cut = begun.elapsed();
        }
    }
    eprintln!("{} keys, refused everywhere within {slowest:?}, streams ended within {cut:?}", keys.len());
    assert!(slowest <= REFUSED_WITHIN, "{slowest:?}");
    assert!(cut <= CUT_WITHIN, "{cut:?}");
    fleet.verify().await;
}
