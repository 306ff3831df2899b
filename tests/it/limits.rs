//! Limits and budgets over real sockets: enforced before a provider call, reported in the client's dialect, settled
//! with the actual usage.

use crate::harness::gateway::Running;
use crate::harness::script::{ScriptStep, completion, held, json_answer, message, role, sse, status, text};
use crate::harness::{Answer, Bench, Client, Provider, until, within};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

pub async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    (provider, running)
}

/// A key with these limits.
pub async fn limited(running: &Running, limits: Value) -> Client {
    running.key(&json!({ "name": "limited", "limits": limits })).await
}

pub fn public_id(client: &Client) -> &str {
    &client.key[7..23]
}

/// Waits until after midnight UTC if less than 30 seconds are left, so that no budget is reset during the test.
pub async fn far_from_midnight(running: &Running) {
    let clock = running.gateway.app.clock;
    until("the day to be young", || 86_400 - clock.unix_seconds() % 86_400 > 30).await;
}

pub fn number(answer: &Answer, name: &str) -> u64 {
    let value = answer.header(name).unwrap_or_else(|| panic!("no {name}: {:?}", answer.headers));
    value.parse().unwrap()
}

pub fn answer_using(input: u64, output: u64) -> Vec<ScriptStep> {
    // The text has one byte per token: with fewer bytes, the reported tokens would be implausible.
    let mut answer = completion(&"x".repeat(usize::try_from(output).unwrap()));
    answer["usage"] =
        json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    json_answer(200, &answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_limits_gets_no_rate_limit_headers() {
    let (_provider, running) = bench().await;
    let answer = running.chat().await;
    assert_eq!(answer.status, 200);
    assert!(!answer.headers.iter().any(|(name, _)| name.contains("ratelimit")), "{:?}", answer.headers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_headers_of_the_chat_dialect_stand_on_answers_and_refusals() {
    let (provider, running) = bench().await;
    let client = limited(&running, json!({"requests_per_minute": 2, "tokens_per_minute": 100_000})).await;
    let first = client.post(CHAT, &running.ask()).await;
    assert_eq!(first.status, 200);
    assert_eq!(number(&first, "x-ratelimit-limit-requests"), 2);
    assert_eq!(number(&first, "x-ratelimit-remaining-requests"), 1);
    assert!(first.header("x-ratelimit-reset-requests").unwrap().ends_with('s'));
    assert_eq!(number(&first, "x-ratelimit-limit-tokens"), 100_000);
    // The gateway settles the used tokens before it sends the head, so the headers show the reported usage, not the
    // reserve.
    assert!(number(&first, "x-ratelimit-remaining-tokens") >= 100_000 - 18);
    let stream = client.post(CHAT, &running.ask_stream()).await;
    assert_eq!((stream.status, number(&stream, "x-ratelimit-remaining-requests")), (200, 0));
    let refused = client.post(CHAT, &running.ask()).await;
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["code"]), (429, &json!("RATE_2001")));
    assert_eq!(error["type"], "rate_limit_exceeded");
    assert_eq!(error["details"]["limit"], "requests_per_minute");
    let wait = number(&refused, "retry-after");
    assert!((1..=30).contains(&wait), "{wait}");
    let now = running.gateway.app.clock.unix_seconds();
    let reset = number(&refused, "x-ratelimit-reset");
    assert!((now..=now + 31).contains(&reset), "{reset} {now}");
    assert_eq!(number(&refused, "x-ratelimit-remaining-requests"), 0);
    assert_eq!(refused.headers.iter().filter(|(name, _)| name == "x-ratelimit-reset").count(), 1);
    assert_eq!(refused.header("x-should-retry"), None);
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with(&format!("Try again in {wait} s.")), "{message}");
    assert!(error["details"]["resets_at"].as_str().unwrap().ends_with('Z'), "{error}");
    assert_eq!(provider.calls(), 2, "a refused request is never sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_headers_of_the_messages_dialect_stand_on_answers_and_refusals() {
    let (provider, running) = bench().await;
    let client = limited(&running, json!({"requests_per_minute": 1, "tokens_per_minute": 5_000})).await;
    let ask = json!({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]});
    let first = client.post(MESSAGES, &ask).await;
    assert_eq!(first.status, 200);
    assert_eq!(number(&first, "anthropic-ratelimit-requests-limit"), 1);
    assert_eq!(number(&first, "anthropic-ratelimit-requests-remaining"), 0);
    assert_eq!(number(&first, "anthropic-ratelimit-tokens-limit"), 5_000);
    let reset = first.header("anthropic-ratelimit-tokens-reset").unwrap();
    assert!(reset.len() == 20 && reset.starts_with("20") && reset.ends_with('Z'), "{reset}");
    assert_eq!(first.header("x-ratelimit-limit-requests"), None);
    let refused = client.post(MESSAGES, &ask).await;
    let body = refused.json();
    assert_eq!((refused.status, &body["type"]), (429, &json!("error")));
    assert_eq!(body["error"]["type"], "rate_limit_error");
    assert!((1..=60).contains(&number(&refused, "retry-after")));
    assert_eq!(number(&refused, "anthropic-ratelimit-requests-remaining"), 0);
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_clients_as_many_pass_as_the_limit_says() {
    let (provider, running) = bench().await;
    let client = limited(&running, json!({"requests_per_minute": 20})).await;
    let began = Instant::now();
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (client, ask) = (client.clone(), running.ask());
            tokio::spawn(async move { client.post(CHAT, &ask).await.status })
        })
        .collect();
    let mut passed = 0;
    for task in tasks {
        match task.await.unwrap() {
            200 => passed += 1,
            other => assert_eq!(other, 429),
        }
    }
    // The token bucket refills during the test. The refilled requests may pass too, but no others.
    let gained = began.elapsed().as_millis() * 20 / 60_000;
    assert!((20..=20 + gained).contains(&passed), "{passed} passed, {gained} came in meanwhile");
    assert_eq!(provider.calls() as u128, passed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_reserved_by_max_tokens_and_over_use_is_debt() {
    let (provider, running) = bench().await;
    let client = limited(&running, json!({"tokens_per_minute": 1_000})).await;
    // The gateway reserves the estimate for the prompt, 885 tokens (one per four bytes). The provider then reports
    // 4,500 tokens, more than the prompt has bytes.
    provider.then(answer_using(4_500, 100));
    let mut ask = running.ask();
    ask["max_tokens"] = json!(100);
    ask["messages"][0]["content"] = json!("x".repeat(3_508));
    let first = client.post(CHAT, &ask).await;
    assert_eq!((first.status, number(&first, "x-ratelimit-remaining-tokens")), (200, 0));
    let refused = client.post(CHAT, &ask).await;
    assert_eq!(refused.status, 429);
    // The wait covers up to 3,600 tokens of debt and 985 for the request, at 1,000 per minute. `x-should-retry` is
    // false, since client libraries wait at most one minute.
    let wait = number(&refused, "retry-after");
    assert!((210..=276).contains(&wait), "{wait}");
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    let shown = running.admin().get(&format!("/admin/keys/{}", public_id(&client))).await.json();
    let owed = shown["now"]["tokens_owed"].as_u64().unwrap();
    assert!((3_000..=3_600).contains(&owed), "{shown}");
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_over_the_limit_gets_an_error_without_retry_after() {
    let (provider, running) = bench().await;
    let client = limited(&running, json!({"tokens_per_minute": 100})).await;
    let long = json!({"model": "m", "messages": [{"role": "user", "content": "word ".repeat(400)}]});
    let refused = client.post(CHAT, &long).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, None));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("shorten it"));
    // A request with a short prompt passes, although its longest answer would exceed the limit, because the bucket is
    // full.
    assert_eq!(client.post(CHAT, &running.ask()).await.status, 200);
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_request_returns_its_tokens() {
    let (provider, running) = bench().await;
    let client = limited(&running, json!({"tokens_per_minute": 600})).await;
    let mut ask = running.ask();
    ask["max_tokens"] = json!(500);
    for _ in 0..3 {
        provider.then(status(503));
        let failed = client.post(CHAT, &ask).await;
        assert_eq!(failed.status, 503, "{}", failed.text());
    }
    assert_eq!(client.post(CHAT, &ask).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_of_a_broken_stream_counts_as_used_and_is_not_charged() {
    let (provider, running) = bench().await;
    let client = limited(&running, json!({"tokens_per_minute": 600})).await;
    provider.always(vec![sse(), role(), text(&"word ".repeat(400)), ScriptStep::Cut]);
    let broken = client.post(CHAT, &running.ask_stream()).await;
    assert!(broken.text().contains("INFERENCE_3103"), "{}", broken.text());
    until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    let shown = running.admin().get(&format!("/admin/keys/{}", public_id(&client))).await.json();
    assert!(shown["now"]["tokens_left"].as_u64().unwrap() < 500, "{shown}");
    assert_eq!(shown["now"]["spent_today"], "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_over_its_limits_is_refused_before_any_work_is_put_into_it() {
    let (_provider, running) = bench().await;
    let client = limited(&running, json!({"requests_per_minute": 1})).await;
    assert_eq!(client.post(CHAT, &running.ask()).await.status, 200);
    let mut ask = running.ask();
    ask["model"] = json!("nothing");
    assert_eq!(client.post(CHAT, &ask).await.status, 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_concurrency_limit_of_a_key_is_enforced_and_released() {
    let (provider, running) = bench().await;
    let client = limited(&running, json!({"concurrent": 2})).await;
    let go = Arc::new(Notify::new());
    provider.always(held(&go, "Hello"));
    let ask = running.ask();
    let body = ask.to_string();
    let leaves = client.open("POST", CHAT, &[], body.as_bytes()).await;
    let (held, first) = (client.clone(), ask.clone());
    let stays = tokio::spawn(async move { held.post(CHAT, &first).await.status });
    provider.until_calls(2).await;
    let refused = client.post(CHAT, &ask).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.json()["error"]["details"]["limit"], "concurrent");
    // Requests of another key of the same account do not use this key's limit.
    assert_eq!(provider.calls(), 2);
    drop(leaves);
    provider.until_left(1).await;
    until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 1).await;
    let (held, second) = (client.clone(), ask.clone());
    let next = tokio::spawn(async move { held.post(CHAT, &second).await.status });
    provider.until_calls(3).await;
    // Notifies the two scripts one after the other, because `Notify` stores only one notification for scripts that do
    // not wait yet.
    go.notify_one();
    until("one of them to end", || running.gateway.app.in_flight_exchanges() == 1).await;
    go.notify_one();
    assert_eq!((stays.await.unwrap(), next.await.unwrap()), (200, 200));
    assert_eq!(provider.max_in_flight(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_send_again_once_its_response_has_ended() {
    let (provider, running) = bench().await;
    let client = limited(&running, json!({"concurrent": 1})).await;
    for round in 0..20 {
        // The connection stays open, so the client knows from the answer alone that it has ended.
        let open = client.stream_until(CHAT, &running.ask_stream(), "[DONE]").await;
        drop(open);
        provider.then(status(400));
        let body = running.ask().to_string();
        let mut open = client.open("POST", CHAT, &[], body.as_bytes()).await;
        within("a refusal", open.until("request_id")).await;
        let received = String::from_utf8_lossy(&open.bytes).into_owned();
        assert!(!received.contains("RATE_2001"), "round {round}: {received}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limits_of_an_account_are_shared_by_its_keys() {
    let (provider, running) = bench().await;
    let admin = running.admin();
    let made =
        admin.post("/admin/accounts", &json!({"id": "acme", "limits": {"requests_per_minute": 2}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let one = running.key(&json!({"account": "acme"})).await;
    let other = running.key(&json!({"account": "acme", "limits": {"requests_per_minute": 50}})).await;
    assert_eq!(one.post(CHAT, &running.ask()).await.status, 200);
    let second = other.post(CHAT, &running.ask()).await;
    assert_eq!(number(&second, "x-ratelimit-limit-requests"), 2, "the tighter one is told");
    let refused = one.post(CHAT, &running.ask()).await;
    assert_eq!((refused.status, &refused.json()["error"]["details"]["of"]), (429, &json!("account")));
    // A key of another account is not affected, and a changed limit applies at once.
    assert_eq!(running.chat().await.status, 200);
    let change = json!({"limits": {"requests_per_minute": 600_000}}).to_string();
    let changed = admin.send("PATCH", "/admin/accounts/acme", &[], change.as_bytes()).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    until("the minute to give one back", || {
        let account = running.gateway.app.key_cache.account("acme").unwrap();
        let (_, _, current) = account.limiter.current_status(running.gateway.app.clock.steady_now());
        current.requests.unwrap().remaining > 0
    })
    .await;
    assert_eq!(one.post(CHAT, &running.ask()).await.status, 200);
    assert_eq!(provider.calls(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_refuses_before_it_is_overdrawn_and_counts_what_was_charged() {
    let (provider, running) = bench().await;
    far_from_midnight(&running).await;
    // 1,000 tokens in and 7 out at 1 and 2 EUR a million are 0.1014 credits; a request may cost little more.
    provider.always(answer_using(1_000, 7));
    let client = limited(&running, json!({"budget_per_day": "0.22"})).await;
    let mut ask = running.ask();
    ask["max_tokens"] = json!(10);
    for _ in 0..2 {
        assert_eq!(client.post(CHAT, &ask).await.status, 200);
    }
    let refused = client.post(CHAT, &ask).await;
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["code"]), (402, &json!("BILLING_4002")));
    assert_eq!(
        (&error["details"]["limit"], &error["details"]["credits"]),
        (&json!("budget_per_day"), &json!("0.22"))
    );
    assert!((1..=86_400).contains(&number(&refused, "retry-after")));
    let anew = error["details"]["resets_at"].as_str().unwrap();
    assert!(anew.ends_with("T00:00:00Z"), "{anew}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.ends_with(&format!("It begins anew at {anew}.")) && !message.contains(" s."),
        "{message}"
    );
    let messages = json!({"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]});
    let refused = client.post(MESSAGES, &messages).await;
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (402, &json!("billing_error")));
    assert_eq!(provider.calls(), 2);
    let shown = running.admin().get(&format!("/admin/keys/{}", public_id(&client))).await.json();
    assert_eq!(shown["now"]["spent_today"], "0.2028");
    // The longest allowed answer could cost more than the budget: waiting does not help.
    ask["max_tokens"] = json!(100_000);
    let refused = client.post(CHAT, &ask).await;
    assert_eq!((refused.status, refused.header("retry-after")), (402, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_only_the_dialect_needs_takes_no_more_of_a_budget() {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &message("Hello", "end_turn")));
    let running = Bench::new()
        .model("context_length = 8192")
        .provider_with("a", &provider, "dialects = [\"messages\"]", "max_output = 6000")
        .start()
        .await;
    far_from_midnight(&running).await;
    // A reserve for 6,000 tokens would be 1.2 credits; the gateway reserves only the usual length of an answer.
    let client = limited(&running, json!({"budget_per_day": "1"})).await;
    let answer = client.post(CHAT, &running.ask()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(provider.last().json()["max_tokens"], 6_000);
    // A request with an explicit maximum reserves that maximum.
    let mut ask = running.ask();
    ask["max_tokens"] = json!(6_000);
    assert_eq!(client.post(CHAT, &ask).await.status, 402);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spending_survives_a_restart() {
    let (_provider, running) = bench().await;
    far_from_midnight(&running).await;
    let client = limited(&running, json!({"budget_per_month": "100"})).await;
    assert_eq!(client.post(CHAT, &running.ask()).await.status, 200);
    let app = running.gateway.app.clone();
    let again = tokio::task::spawn_blocking(move || {
        app.key_cache.flush_spends(&app.stores.spends);
        penstock::auth::key_cache::KeyCache::load(&app.stores, app.clock).unwrap()
    })
    .await
    .unwrap();
    let now = running.gateway.app.clock.calendar_now();
    let spent = again.find_principal(public_id(&client)).unwrap().limiter().spend_record(now);
    assert_eq!((spent.day, spent.month), (2_500, 2_500));
    assert_eq!(again.account("default").unwrap().limiter.spend_record(now).month, 2_500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_counted_by_limit() {
    let (_provider, running) = bench().await;
    let client = limited(&running, json!({"requests_per_minute": 1})).await;
    for expected in [200, 429] {
        assert_eq!(client.post(CHAT, &running.ask()).await.status, expected);
    }
    let metrics = running.admin().get("/metrics").await.text();
    assert!(
        metrics.contains("penstock_limited_total{limit=\"requests_per_minute\",of=\"key\"} 1"),
        "{metrics}"
    );
}
