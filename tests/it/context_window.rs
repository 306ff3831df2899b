//! Output tokens that fit the context window: an estimate truncates no answer; a provider with a lower maximum gets
//! that maximum; a default that only the provider's dialect requires fits too.

use crate::harness::gateway::Running;
use crate::harness::script::{Script, ScriptStep, json_answer, message, plain, status, stream};
use crate::harness::{Answer, Bench, Provider};
use serde_json::{Value, json};

/// Engine error that prompt and requested output together exceed the context window.
fn too_long(input: u64) -> Script {
    let message = format!(
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 131072 \
         tokens and your request has {input} input tokens (32000 > 131072 - {input})."
    );
    json_answer(400, &json!({"error": {"message": message, "type": "BadRequestError", "code": 400}}))
}

/// Returns log lines, for which the estimate is 1.5 times the exact number of tokens.
fn logs(bytes: usize) -> String {
    let line = "2026-11-23T14:08:35.117Z INFO request id=4b8e3f0a status=200 ms=12.75 bytes_in=1238\n";
    line.chars().cycle().take(bytes).collect()
}

async fn asked(running: &Running, change: Value) -> Answer {
    let mut ask = json!({"model": "m", "max_tokens": 32_000,
        "messages": [{"role": "user", "content": logs(165_000)}]});
    ask.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    running.client.post("/v1/chat/completions", &ask).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_estimate_truncates_no_answer() {
    let provider = Provider::start().await;
    provider.always(plain("Well."));
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = asked(&running, json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(provider.last().json()["max_tokens"], 32_000);
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_takes_less_is_asked_once_more_for_that() {
    for streamed in [false, true] {
        let provider = Provider::start().await;
        provider.then(too_long(110_000)).always(if streamed { stream(&["Well."]) } else { plain("Well.") });
        let running = Bench::new().provider("a", &provider).start().await;
        let answer = asked(&running, json!({"stream": streamed})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(provider.calls(), 2);
        assert_eq!(provider.last().json()["max_tokens"], 21_072);
        assert_eq!(answer.header("x-penstock-attempts"), Some("1"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_names_no_number_gets_a_cap_that_fits() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    // An engine that stops counting at its limit reports only a lower bound of the prompt. If the gateway computed
    // the rest from this bound, it would reduce the answer by a single token.
    let bound = "This model's maximum context length is 131072 tokens. However, you requested 32000 output tokens and \
                 your prompt contains at least 99073 input tokens, for a total of at least 131073 tokens.";
    for message in ["max_tokens is too large", bound] {
        let vague = json!({"error": {"message": message, "param": "max_tokens"}});
        provider.then(json_answer(400, &vague)).always(plain("Well."));
        let before = provider.calls();
        let answer = asked(&running, json!({})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(provider.calls() - before, 2);
        assert!(provider.last().json()["max_tokens"].as_u64().unwrap() < 31_000);
    }
}

/// Engine error that input and answer exceed a window of 8,192 tokens, of an engine that stops counting the input.
fn uncounted(output: u64) -> Script {
    let least = 8_193 - output;
    let message = format!(
        "This model's maximum context length is 8192 tokens. However, you requested {output} output tokens and your \
         prompt contains at least {least} input tokens, for a total of at least 8193 tokens. Please reduce the length \
         of the input prompt or the number of requested output tokens. (parameter=input_tokens, value={least})"
    );
    json_answer(400, &json!({"error": {"message": message, "type": "BadRequestError", "code": 400}}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_smaller_window_than_configured_gets_what_the_count_leaves() {
    for (dialect, text) in
        [("chat", plain("Well.")), ("messages", json_answer(200, &message("Well.", "end_turn")))]
    {
        let provider = Provider::start().await;
        let running = Bench::new()
            .model("context_length = 32768")
            .provider_with("a", &provider, &format!("dialects = [\"{dialect}\"]"), "")
            .start()
            .await;
        for (path, max_tokens) in [("/v1/chat/completions", None), ("/v1/messages", Some(8_192))] {
            let mut ask = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
            if let Some(max_tokens) = max_tokens {
                ask["max_tokens"] = json!(max_tokens);
            } else if dialect == "chat" {
                continue;
            }
            provider.then(uncounted(8_192)).always(text.clone());
            let before = provider.calls();
            let answer = running.client.post(path, &ask).await;
            assert_eq!(answer.status, 200, "{dialect} {path}: {}", answer.text());
            assert_eq!(provider.calls() - before, 2);
            let sent = provider.last().json()["max_tokens"].as_u64().unwrap();
            assert!((8_000..8_192).contains(&sent), "{sent}");
            // If the lower cap is refused too, the error is about the cap, because the short input fits.
            provider.always(uncounted(8_000));
            let before = provider.calls();
            let answer = running.client.post(path, &ask).await;
            assert_eq!((answer.status, provider.calls() - before), (400, 2), "{}", answer.text());
            assert!(answer.text().contains("INFERENCE_3201"), "{}", answer.text());
            assert!(answer.text().contains("max_tokens does not fit"), "{}", answer.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_above_the_window_by_our_count_is_too_long() {
    let provider = Provider::start().await;
    provider.always(uncounted(4_096));
    let running =
        Bench::new().model("context_length = 131072").provider_with("a", &provider, "", "").start().await;
    // The prompt has at least 12,000 tokens.
    let answer = running.client.post("/v1/chat/completions", &chat_request(40_000, 4_096)).await;
    assert_eq!((answer.status, provider.calls()), (400, 1), "{}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "INFERENCE_3207", "{error}");
    assert_eq!(error["details"]["context_length"], 8_192, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_goes_on_refusing_is_not_asked_for_ever() {
    let provider = Provider::start().await;
    provider.always(too_long(110_000));
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = asked(&running, json!({})).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(answer.json()["error"]["param"], "max_tokens");
    assert_eq!(provider.calls(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_only_the_dialect_needs_fits_the_window_and_the_offer() {
    for (model, offer, most) in [
        ("context_length = 4096", "", 4_095),
        ("context_length = 4096", "max_output = 1024", 1_024),
        ("context_length = 32768", "", 8_192),
    ] {
        let provider = Provider::start().await;
        provider.always(json_answer(200, &message("Well.", "end_turn")));
        let running = Bench::new()
            .model(model)
            .provider_with("a", &provider, "dialects = [\"messages\"]", offer)
            .start()
            .await;
        let ask = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = provider.last().json()["max_tokens"].as_u64().unwrap();
        assert!((most / 2..=most).contains(&sent), "{sent} of {most}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_reduced_for_one_provider_does_not_bind_the_next() {
    let (small, large) = (Provider::start().await, Provider::start().await);
    small.then(too_long(110_000)).always(status(503));
    large.always(plain("Well."));
    let running = Bench::new()
        .provider_with("small", &small, "", "")
        .provider_with("large", &large, "", "price = { input = 90, output = 90 }")
        .start()
        .await;
    let answer = asked(&running, json!({"model": "m:price"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-penstock-provider"), Some("large"));
    assert_eq!((small.calls(), small.last().json()["max_tokens"].as_u64()), (2, Some(21_072)));
    assert_eq!((large.calls(), large.last().json()["max_tokens"].as_u64()), (1, Some(32_000)));
}

/// A cheap provider with a smaller window than the model's, and a dear one without.
async fn two_windows(small: &Provider, large: &Provider) -> Running {
    Bench::new()
        .provider_with("small", small, "", "context_length = 8192")
        .provider_with("large", large, "", "price = { input = 90, output = 90 }")
        .start()
        .await
}

fn chat_request(bytes: usize, max_tokens: u64) -> Value {
    json!({"model": "m:price", "max_tokens": max_tokens, "messages": [{"role": "user", "content": logs(bytes)}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_gets_no_request_beyond_its_own_context_window() {
    let (small, large) = (Provider::start().await, Provider::start().await);
    small.always(plain("Small."));
    large.always(plain("Large."));
    let running = two_windows(&small, &large).await;
    let ask = async |bytes, max_tokens| {
        running.client.post("/v1/chat/completions", &chat_request(bytes, max_tokens)).await
    };
    // A request that fits goes to the cheap provider.
    assert_eq!(ask(100, 100).await.header("x-penstock-provider"), Some("small"));
    // An input above the window of the cheap provider, and an answer that would have to be shortened there.
    for (bytes, max_tokens) in [(60_000, 100), (100, 32_000)] {
        let answer = ask(bytes, max_tokens).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-penstock-provider"), Some("large"));
        assert_eq!(large.last().json()["max_tokens"], max_tokens);
    }
    assert_eq!((small.calls(), large.calls()), (1, 2));
    // If the large provider fails, the small one is used: a shortened answer is better than none.
    large.always(status(503));
    let answer = ask(100, 32_000).await;
    assert_eq!(answer.header("x-penstock-provider"), Some("small"), "{}", answer.text());
    let left = small.last().json()["max_tokens"].as_u64().unwrap();
    assert!((4_000..8_192).contains(&left), "{left}");
    // A request whose input does not fit is not sent to the small provider, even while the large one fails.
    assert_eq!(ask(60_000, 100).await.status, 503);
    assert_eq!(small.calls(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_offer_that_shortens_an_answer_least_is_asked_first() {
    let (small, large) = (Provider::start().await, Provider::start().await);
    small.always(plain("Small."));
    large.always(plain("Large."));
    let dear = "price = { input = 90, output = 90 }";
    for (limit, more) in [("context_length = 2048", ""), ("max_output = 100", "max_output = 8192\n")] {
        let running = Bench::new()
            .provider_with("small", &small, "", limit)
            .provider_with("large", &large, "", &format!("{more}{dear}"))
            .start()
            .await;
        for flavor in ["m", "m:price", "m:speed", "m:eco"] {
            for name in ["max_tokens", "max_completion_tokens"] {
                let mut ask = chat_request(100, 0);
                ask.as_object_mut().unwrap().remove("max_tokens");
                ask["model"] = json!(flavor);
                ask[name] = json!(1_000_000);
                let answer = running.client.post("/v1/chat/completions", &ask).await;
                assert_eq!(answer.header("x-penstock-provider"), Some("large"), "{}", answer.text());
            }
        }
        let ask = json!({"model": "m:price", "max_output_tokens": 1_000_000, "input": "Hi"});
        let answer = running.client.post("/v1/responses", &ask).await;
        assert_eq!(answer.header("x-penstock-provider"), Some("large"), "{}", answer.text());
        // An answer that both can give in full goes to the cheap offer.
        let answer = running.client.post("/v1/chat/completions", &chat_request(100, 50)).await;
        assert_eq!(answer.header("x-penstock-provider"), Some("small"), "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_error_of_a_provider_moves_to_larger_windows() {
    let (small, large) = (Provider::start().await, Provider::start().await);
    let message =
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
    let error =
        json!({"error": {"message": message, "code": "context_length_exceeded", "param": "messages"}});
    small.always(json_answer(400, &error));
    large.always(plain("Large."));
    let running = two_windows(&small, &large).await;
    // The prompt has about 8,000 tokens by the estimate, and at least 5,000.
    let ask = chat_request(16_000, 100);
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((small.calls(), large.calls()), (1, 1));
    // If the larger provider is unavailable, a retry may succeed later, so the client gets 503. If it also reports a
    // prompt that is too long, no retry can succeed.
    large.always(status(503));
    assert_eq!(running.client.post("/v1/chat/completions", &ask).await.status, 503);
    large.always(json_answer(400, &error));
    let refused = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("INFERENCE_3207")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_provider_with_too_small_a_window_is_not_waited_for() {
    let (full, other) = (Provider::start().await, Provider::start().await);
    full.always(vec![ScriptStep::Hang]);
    let error = json!({"error": {"message": "too long", "code": "context_length_exceeded"}});
    other.always(json_answer(400, &error));
    let running = Bench::new()
        .settings("[overload]\nwait = \"100ms\"")
        .provider_with("full", &full, "max_in_flight = 1", "")
        .provider_with("other", &other, "", "price = { input = 90, output = 90 }")
        .start()
        .await;
    let body = chat_request(100, 100).to_string();
    let _held = running.client.open("POST", "/v1/chat/completions", &[], body.as_bytes()).await;
    full.until_calls(1).await;
    let answer = running.client.post("/v1/chat/completions", &chat_request(100, 100)).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("INFERENCE_3207")));
    assert_eq!((full.calls(), other.calls()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fallback_with_a_larger_window_takes_what_the_provider_says_is_too_long() {
    let (small, large) = (Provider::start().await, Provider::start().await);
    small.always(json_answer(
        400,
        &json!({"error": {"message": "too long", "code": "context_length_exceeded"}}),
    ));
    large.always(plain("Large."));
    let big = "[[models]]\nid = \"big\"\nname = \"Big\"\nkind = \"chat\"\ncreated = 1700000000\n\
               context_length = 131072\nprice = { input = 1.0, output = 2.0 }\n\
               energy = { active_params_b = 8.0, total_params_b = 8.0, joules_per_output_token = 0.119 }\n\
               supported_parameters = [\"max_tokens\"]";
    let offer = format!(
        "[[providers]]\nid = \"large\"\noperator = \"O\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
         base_url = \"http://{}/v1\"\npue = 1.16\nwue = 0.2\n[[providers.offers]]\nmodel = \"big\"\nname = \"theirs\"",
        large.address
    );
    let running = Bench::new()
        .model("context_length = 8192\nfallbacks = [\"big\"]")
        .provider("small", &small)
        .more(&format!("{big}\n{offer}"))
        .start()
        .await;
    let answer = running.client.post("/v1/chat/completions", &chat_request(14_000, 100)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((&answer.json()["model"], small.calls()), (&json!("big"), 1));
    assert_eq!(answer.header("x-penstock-attempts"), Some("2"), "as in the access log");
}
