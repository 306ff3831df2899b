//! Configuration changes while a batch runs: lines in flight end with the old configuration, later ones use the new
//! one.

use crate::harness::batch_jobs::{batch, ended, let_go, line_with, results, when};
use crate::harness::script::{held, plain};
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

const AT_WORK: usize = 2;

/// Returns lines that alternate between the models `m` and `n`.
fn lines(count: usize) -> String {
    let line = |number: usize| {
        let model = if number.is_multiple_of(2) { "m" } else { "n" };
        let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
        line_with(&format!("{model}-{number}"), body) + "\n"
    };
    (0..count).map(line).collect()
}

/// Returns a configuration with the model `m` at this provider, and with the model `n` if `both` is true.
fn bench(id: &str, provider: &Provider, both: bool) -> Bench {
    let bench = Bench::new()
        .settings(&format!(
            "[batches]\nconcurrency = {AT_WORK}\nretry_first = \"20ms\"\nretry_most = \"50ms\"\n"
        ))
        .provider(id, provider);
    let other = "[[models]]\nid = \"n\"\nkind = \"chat\"\ncontext_length = 131072\n\
                 price = { input = 1.0, output = 2.0 }\n";
    let offer = format!(
        "[[providers]]\nid = \"{id}-n\"\noperator = \"Test\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
         base_url = \"http://{}/v1\"\npue = 1.16\nwue = 0.214\n[[providers.offers]]\nmodel = \"n\"\n",
        provider.address
    );
    if both { bench.more(other).more(&offer) } else { bench }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_goes_on_with_other_providers_and_without_a_model_that_is_gone() {
    let (old, new, go) = (Provider::start().await, Provider::start().await, Arc::new(Notify::new()));
    for _ in 0..4 {
        old.then(plain("old"));
    }
    old.always(held(&go, "old"));
    new.always(plain("new"));
    let running = bench("old", &old, true).start().await;
    let client = &running.client;
    let made = batch(client, &lines(20)).await;
    when(client, &made, "four results", |now| now["request_counts"]["completed"] == 4).await;
    old.until_calls(4 + AT_WORK).await;

    let settings = bench("new", &new, false).load(running.storage());
    running.reload(settings).await;
    let end = let_go(&go, ended(client, &made)).await;
    assert_eq!(end["status"], "completed", "{end}");
    let found = results(client, &end).await;
    assert_eq!(found.len(), 20);
    let count_of = |text: &str| {
        let says = |result: &&Value| result["response"]["choices"][0]["message"]["content"] == text;
        found.values().filter(says).count()
    };
    assert_eq!(count_of("old"), 4 + AT_WORK, "what was at work ended with the old configuration");
    assert_eq!((old.calls(), new.calls()), (4 + AT_WORK, count_of("new")));
    let lost: Vec<_> = found.iter().filter(|(_, result)| result["status_code"] != 200).collect();
    assert_eq!(lost.len() + count_of("new"), 20 - 4 - AT_WORK);
    assert!(!lost.is_empty() && count_of("new") > 0);
    for (id, result) in lost {
        let error = &result["response"]["error"];
        assert_eq!((result["status_code"].as_u64(), &error["code"]), (Some(404), &json!("INFERENCE_3101")));
        assert!(id.starts_with("n-") && error["message"].as_str().unwrap().contains("'n'"), "{id}: {result}");
    }
    assert_eq!(end["request_counts"]["completed"], count_of("old") + count_of("new"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_without_a_provider_waits_for_the_next_reload() {
    let (dead, good) = (Provider::start().await, Provider::start().await);
    dead.always(crate::harness::script::status(503));
    let running = bench("dead", &dead, false).start().await;
    let client = &running.client;
    let made = batch(client, &lines(1)).await;
    dead.until_calls(3).await;
    let settings = bench("good", &good, false).load(running.storage());
    running.reload(settings).await;
    let end = ended(client, &made).await;
    assert_eq!((&end["request_counts"]["completed"], good.calls()), (&json!(1), 1), "{end}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduled_batch_starts_when_the_grid_zones_are_removed() {
    let provider = Provider::start().await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let clean = (now / 3_600 + 4) % 24;
    let hours: Vec<u32> = (0..24).map(|hour| if hour == clean { 20 } else { 300 }).collect();
    let grid = format!("[grid]\nhours = {{ FR = {hours:?} }}\n");
    let running = bench("p", &provider, false).settings(&grid).start().await;
    let client = &running.client;
    let made = batch(client, &lines(1)).await;
    when(client, &made, "a schedule", |now| now["scheduled_for"].is_u64()).await;
    assert_eq!(provider.calls(), 0);
    let settings = bench("p", &provider, false).load(running.storage());
    running.reload(settings).await;
    let end = ended(client, &made).await;
    assert_eq!((end["status"].as_str(), &end["scheduled_for"]), (Some("completed"), &Value::Null));
    running.stop().await;
}
