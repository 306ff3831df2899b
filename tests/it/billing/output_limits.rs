//! Answers that ignore their limit on tokens, and the limit for requests of a prepaid account that set none.

use super::{CHAT, PREPAID, balance, entries, grant, of};
use crate::harness::gateway::PATIENT;
use crate::harness::script::{ScriptStep, done, finish, plain, role, sse, text, usage};
use crate::harness::{Bench, Provider};
use serde_json::json;

const PRICE: &str = "price = { input = 50.0, output = 50.0 }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_ignores_max_tokens_is_cut_and_its_provider_stopped() {
    let provider = Provider::start().await;
    let mut script = vec![sse(), role()];
    script.extend((0..40).map(|_| text(&"words ".repeat(200))));
    script.push(ScriptStep::Hang);
    provider.always(script);
    let running = Bench::new().provider("a", &provider).start().await;
    let mut ask = running.ask_stream();
    ask["max_tokens"] = json!(1);
    let answer = running.client.post(CHAT, &ask).await;
    assert!(answer.text().contains("\"finish_reason\":\"length\""), "{}", answer.text());
    assert!(answer.text().contains("[DONE]"));
    assert_eq!(answer.streamed_text().len(), 128 + (16 << 10));
    provider.until_left(1).await;
    let charges = of(&running, "settle").await;
    assert_eq!((charges.len(), &charges[0]["output"]), (1, &json!(1)));
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_answer_that_ignores_max_tokens_is_cut() {
    let provider = Provider::start().await;
    provider.always(plain(&"words ".repeat(5_000)));
    let running = Bench::new().provider("a", &provider).start().await;
    let mut ask = running.ask();
    ask["max_tokens"] = json!(1);
    let body = running.client.post(CHAT, &ask).await.json();
    let choice = &body["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["content"].as_str().unwrap().len(), 128 + (16 << 10));
    assert_eq!(of(&running, "settle").await.len(), 1);
}

/// A prepaid account has 30 credits; a token costs 0.005 credits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepaid_account_without_max_tokens_never_gets_into_debt() {
    let provider = Provider::start().await;
    let long = "words ".repeat(10_000);
    provider.always(vec![
        sse(),
        role(),
        text(&long),
        finish("stop"),
        usage(11, 14_000),
        done(),
        ScriptStep::End,
    ]);
    let running = Bench::new().settings(PREPAID).provider_with("a", &provider, PATIENT, PRICE).start().await;
    grant(&running, "30").await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:price");
    ask.as_object_mut().unwrap().remove("max_tokens");
    let answer = running.client.post(CHAT, &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let cap = provider.last().json()["max_tokens"].as_i64().unwrap();
    assert!((4_097..6_000).contains(&cap), "as much as the balance covers: {cap}");
    let all = entries(&running).await;
    let reserve = all.iter().find(|entry| entry["act"] == "reserve").unwrap()["amount"].as_i64().unwrap();
    assert!((29_900_000..=30_000_000).contains(&reserve), "{reserve}");
    let charge = all.iter().find(|entry| entry["act"] == "settle").unwrap()["amount"].as_i64().unwrap();
    assert!(charge > 4_096 * 5_000 && charge <= reserve, "{charge} of {reserve}");
    assert_eq!(balance(&running), 30_000_000 - charge);
    assert_eq!(running.client.post(CHAT, &ask).await.status, 402, "less than the usual output is left");
}
