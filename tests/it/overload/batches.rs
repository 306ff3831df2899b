//! Memory of all batches together is bounded for any number and line length, and batches yield when the gateway is
//! almost full.

use super::{CHAT, form, of_account, thinker};
use crate::harness::gateway::PATIENT;
use crate::harness::process::Home;
use crate::harness::script::held;
use crate::harness::{Bench, Provider, batch_jobs, until};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const BATCHES: usize = 20;
/// Bytes of a line.
const LINE: usize = 256 << 10;
/// Allowed growth of the process, in KiB; unoptimised builds need more.
const GROWTH: u64 = if cfg!(debug_assertions) { 128 << 10 } else { 64 << 10 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_batches_of_long_lines_stay_within_their_memory() {
    let lines = form(16, 100);
    let server = thinker(Duration::from_millis(50)).await;
    let home = Home::new();
    home.write(&format!(
        "[log]\nlevel = \"error\"\n[[models]]\nid = \"m\"\nkind = \"chat\"\ncontext_length = 1000000\n\
         [[providers]]\nid = \"a\"\noperator = \"T\"\ncountry = \"FR\"\ncity = \"Paris\"\nmax_in_flight = 10\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"m\"\nname = \"theirs\"\n",
        server.address
    ));
    let process = home.run().await;
    let (client, _) = home.key();
    let warm = batch_jobs::batch(&client, &batch_jobs::lines(20)).await;
    batch_jobs::ended(&client, &warm).await;
    let long = "x".repeat(LINE);
    let text: String =
        (0..lines).map(|number| batch_jobs::line(&format!("l-{number}"), &long) + "\n").collect();
    let file = batch_jobs::uploaded(&client, &text).await;
    let idle = process.memory("VmRSS");
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        batches.push(batch_jobs::create(&client, &file).await.json());
    }
    let mut most = 0;
    for batch in &batches {
        let watched = batch_jobs::ended(&client, batch);
        tokio::pin!(watched);
        let end = loop {
            most = most.max(process.memory("VmRSS"));
            tokio::select! {
                end = &mut watched => break end,
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        };
        assert_eq!(end["request_counts"]["completed"], lines, "{end}");
    }
    let grown = most.saturating_sub(idle);
    eprintln!(
        "batches: {BATCHES} of {lines} lines of {LINE} bytes, idle {idle} KiB, grown by at most {grown} KiB"
    );
    assert!(grown < GROWTH, "grown by {grown} KiB from {idle} KiB");
}

/// Tests an almost full gateway: requests to another provider hold seven of eight permits, so the twenty batch lines
/// run one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_gateway_is_almost_full_a_batch_runs_one_line() {
    let (provider, other) = (Provider::start().await, Provider::start().await);
    let (requests, lines) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    provider.always(held(&requests, "Hello"));
    other.always(held(&lines, "Hello"));
    let elsewhere = format!(
        "[[models]]\nid = \"n\"\nkind = \"chat\"\ncontext_length = 131072\n\
         [[providers]]\nid = \"b\"\noperator = \"T\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
         base_url = \"http://{}/v1\"\n{PATIENT}\n[[providers.offers]]\nmodel = \"n\"\nname = \"theirs\"\n",
        other.address
    );
    let bench = Bench::new().settings("[overload]\nrequests = 8").provider("a", &provider).more(&elsewhere);
    let running = bench.start().await;
    // The batch belongs to another account, because the last permit is reserved for accounts that hold none.
    let owner = of_account(&running, "batches").await;
    let text: String = (0..20)
        .map(|number| {
            let ask = json!({"model": "n", "messages": [{"role": "user", "content": "Hi"}]});
            batch_jobs::line_with(&format!("l-{number}"), ask) + "\n"
        })
        .collect();
    let file = batch_jobs::uploaded(&owner, &text).await;
    let mut asked = Vec::new();
    for _ in 0..7 {
        let (client, ask) = (running.client.clone(), running.ask());
        asked.push(tokio::spawn(async move { client.post(CHAT, &ask).await }));
    }
    provider.until_calls(7).await;
    let batch = batch_jobs::create(&owner, &file).await.json();
    for line in 1..=5 {
        other.until_calls(line).await;
        lines.notify_one();
    }
    other.until_calls(6).await;
    assert_eq!(other.max_in_flight(), 1, "lines at work beside seven requests of eight");
    let answered = async {
        for request in asked {
            assert_eq!(request.await.unwrap().status, 200);
        }
    };
    batch_jobs::let_go(&requests, answered).await;
    until("more lines to be at work", || other.max_in_flight() > 1).await;
    let end = batch_jobs::let_go(&lines, batch_jobs::ended(&owner, &batch)).await;
    assert_eq!(end["request_counts"]["completed"], 20, "{end}");
}
