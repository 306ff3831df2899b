//! Budgets reserve the possible cost of a request: concurrent requests never overdraw, and a reserve is not spent.

use crate::harness::gateway::Running;
use crate::harness::script::held;
use crate::harness::{Bench, Client, Provider};
use crate::limits::{answer_using, bench, far_from_midnight, limited, public_id};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_a_cap_reserves_the_usual_cost() {
    let (provider, running) = bench().await;
    far_from_midnight(&running).await;
    let client = limited(&running, json!({"budget_per_day": "45"})).await;
    // At 2 EUR per million 16,000 tokens are 3.2 credits; the last answer is longer, and 43.2 credits are spent.
    for output in [16_000; 12].into_iter().chain([24_000]) {
        provider.then(answer_using(1, output));
        assert_eq!(client.post(CHAT, &running.ask()).await.status, 200);
    }
    let spent = || async {
        let shown = running.admin().get(&format!("/admin/keys/{}", public_id(&client))).await.json();
        shown["now"]["spent_today"].as_str().unwrap().to_owned()
    };
    assert_eq!(spent().await, "43.2013");
    provider.always(answer_using(0, 16_000));
    let ask = running.ask();
    let all: Vec<_> = (0..20)
        .map(|_| {
            let (client, ask) = (client.clone(), ask.clone());
            tokio::spawn(async move { client.post(CHAT, &ask).await.status })
        })
        .collect();
    for one in all {
        assert_eq!(one.await.unwrap(), 402);
    }
    assert_eq!((spent().await.as_str(), provider.calls()), ("43.2013", 13));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_answers_are_known_as_much_is_held_of_a_budget_as_of_the_balance() {
    let (provider, running) = bench().await;
    // 4,096 tokens of the answer are 0.8192 credits, and up to 1,024 tokens of the chat template are 0.1024.
    let client = limited(&running, json!({"budget_per_day": "0.9"})).await;
    assert_eq!(client.post(CHAT, &running.ask()).await.status, 402);
    let client = limited(&running, json!({"budget_per_day": "0.95"})).await;
    assert_eq!((client.post(CHAT, &running.ask()).await.status, provider.calls()), (200, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_covers_what_credits_pay_for_a_model_billed_in_energy() {
    let provider = Provider::start().await;
    provider.always(answer_using(11, 100_000));
    let bench = |settings: &str| Bench::new().settings(settings).model("billing = \"energy\"");
    let running = bench("[billing]\ncredit = \"prepaid\"\n").provider("a", &provider).start().await;
    let grant = json!({"account": "default", "credits": 100});
    assert_eq!(running.admin().post("/admin/credits/grant", &grant).await.status, 201);
    // The energy wallet is empty, so 100,000 tokens at 2 EUR per million cost 20 credits, regardless of their energy.
    let mut ask = running.ask();
    ask["max_tokens"] = json!(100_000);
    let client = limited(&running, json!({"budget_per_day": "19"})).await;
    let refused = client.post(CHAT, &ask).await;
    assert_eq!((refused.status, provider.calls()), (402, 0));
    assert_eq!(refused.json()["error"]["code"], "BILLING_4002");
    let client = limited(&running, json!({"budget_per_day": "21"})).await;
    let answer = client.post(CHAT, &ask).await;
    assert_eq!((answer.status, provider.calls()), (200, 1), "{}", answer.text());
    assert_eq!(answer.json()["billing_cost"]["paid_with"], "credits");
    // An energy wallet that may be negative pays, and the budget counts the energy.
    let running = bench("").provider("a", &provider).start().await;
    let client = limited(&running, json!({"budget_per_day": "1"})).await;
    let answer = client.post(CHAT, &ask).await;
    assert_eq!((answer.status, provider.calls()), (200, 2), "{}", answer.text());
    assert_eq!(answer.json()["billing_cost"]["paid_with"], "energy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_held_by_requests_in_flight_is_waited_for() {
    let (provider, running) = bench().await;
    far_from_midnight(&running).await;
    let client = limited(&running, json!({"budget_per_day": "1"})).await;
    let go = Arc::new(Notify::new());
    provider.then(held(&go, "Hello"));
    let mut ask = running.ask();
    ask["max_tokens"] = json!(4_000);
    let (same, first) = (client.clone(), ask.clone());
    let first = tokio::spawn(async move { same.post(CHAT, &first).await.status });
    provider.until_calls(1).await;
    let refused = client.post(CHAT, &ask).await;
    assert_eq!((refused.status, refused.header("retry-after")), (402, Some("1")), "{}", refused.text());
    assert!(refused.text().contains("wait for one to end"), "{}", refused.text());
    go.notify_one();
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(client.post(CHAT, &ask).await.status, 200);
}

/// Sends a request of `ask` this many times at once; returns the number of successful ones. The others have to be
/// refused because of the budget.
async fn admitted_at_once(client: &Client, ask: &Value, requests: usize) -> usize {
    let all: Vec<_> = (0..requests)
        .map(|_| {
            let (client, ask) = (client.clone(), ask.clone());
            tokio::spawn(async move { client.post(CHAT, &ask).await })
        })
        .collect();
    let mut admitted = 0;
    for one in all {
        let answer = one.await.unwrap();
        if answer.status == 200 {
            admitted += 1;
        } else {
            assert_eq!((answer.status, &answer.json()["error"]["code"]), (402, &json!("BILLING_4002")));
        }
    }
    admitted
}

/// Returns what a key has spent of its budget today, in credits.
async fn spent_today(running: &Running, client: &Client) -> f64 {
    let shown = running.admin().get(&format!("/admin/keys/{}", public_id(client))).await.json();
    shown["now"]["spent_today"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_with_a_token_per_byte_never_overdraw_a_budget() {
    let (provider, running) = bench().await;
    far_from_midnight(&running).await;
    provider.always(answer_using(6_500, 4));
    let mut ask = running.ask();
    ask["max_tokens"] = json!(4);
    ask["messages"] = json!([{"role": "user", "content": "x".repeat(6_000)}]);
    // One request may cost 0.7024 credits for its prompt, and 0.0008 for its answer.
    let client = limited(&running, json!({"budget_per_day": "0.8"})).await;
    assert_eq!(admitted_at_once(&client, &ask, 6).await, 1);
    assert!((0.65..=0.8).contains(&spent_today(&running, &client).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_admitted_only_to_a_budget_that_covers_its_reservation() {
    let (provider, running) = bench().await;
    far_from_midnight(&running).await;
    provider.always(answer_using(6_500, 4));
    let mut ask = running.ask();
    ask["max_tokens"] = json!(4);
    ask["messages"] = json!([{"role": "user", "content": "x".repeat(6_000)}]);
    let client = limited(&running, json!({"budget_per_day": "0.7"})).await;
    assert_eq!(client.post(CHAT, &ask).await.status, 402);
    let client = limited(&running, json!({"budget_per_day": "0.72"})).await;
    assert_eq!((client.post(CHAT, &ask).await.status, provider.calls()), (200, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_reserves_the_most_tokens_that_it_may_have() {
    let provider = Provider::start().await;
    let vision = "input_modalities = [\"text\", \"image\"]";
    let running = Bench::new().model(vision).provider("a", &provider).start().await;
    far_from_midnight(&running).await;
    provider.always(answer_using(16_000, 4));
    let url = "data:image/png;base64,iVBORw0KGgo=";
    let mut ask = running.ask();
    ask["max_tokens"] = json!(4);
    ask["messages"] =
        json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]);
    let client = limited(&running, json!({"budget_per_day": "1.6"})).await;
    assert_eq!(admitted_at_once(&client, &ask, 1).await, 0);
    let client = limited(&running, json!({"budget_per_day": "1.9"})).await;
    assert_eq!(admitted_at_once(&client, &ask, 4).await, 1);
    assert!((1.6..=1.9).contains(&spent_today(&running, &client).await));
}
