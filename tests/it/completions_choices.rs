//! Several answers to a prompt of `/v1/completions`, at providers that return only one answer per request.

use crate::harness::script::{ScriptStep, done, json_answer, sse};
use crate::harness::{Answer, Bench, Provider};
use serde_json::{Value, json};

const PATH: &str = "/v1/completions";

fn one_answer() -> Value {
    json!({"id": "c", "object": "text_completion", "created": 1, "model": "t",
        "choices": [{"index": 0, "text": "Hello", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}})
}

fn offer(provider: &Provider, lines: &str) -> String {
    format!(
        "[[models]]\nid = \"c\"\nkind = \"chat\"\ncontext_length = 4096\nprice = {{ input = 1, output = 2 }}\n\
         [[providers]]\nid = \"p\"\noperator = \"T\"\ncountry = \"FI\"\ncity = \"Turku\"\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"c\"\ncompletions = true\n{lines}\n",
        provider.address
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_ignores_n_is_not_ejected_and_the_client_gets_an_error() {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &one_answer()));
    let running = Bench::new().more(&offer(&provider, "")).start().await;
    for _ in 0..8 {
        let body = json!({"model": "c", "prompt": "a", "n": 3, "max_tokens": 5});
        let answer = running.client.post(PATH, &body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.json()["error"]["param"], "n");
    }
    assert_eq!(provider.calls(), 1, "it is known after the first answer");
    let body = json!({"model": "c", "prompt": "a", "max_tokens": 5});
    let answer = running.client.post(PATH, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usage_of_one_of_several_answers_does_not_refuse_the_next_request() {
    let provider = Provider::start().await;
    let choice =
        |index: u32| json!({"index": index, "text": "Hello there ".repeat(20), "finish_reason": "stop"});
    let mut answer = one_answer();
    answer["choices"] = json!([choice(0), choice(1)]);
    provider.always(json_answer(200, &answer));
    let running = Bench::new().more(&offer(&provider, "")).start().await;
    for _ in 0..3 {
        let body = json!({"model": "c", "prompt": "a", "n": 2, "max_tokens": 500});
        let answer = running.client.post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_of_answers_above_max_n_is_refused_without_a_call() {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &one_answer()));
    let running = Bench::new().more(&offer(&provider, "max_n = 1")).start().await;
    for (member, param) in [("n", "n"), ("best_of", "best_of")] {
        let mut body = json!({"model": "c", "prompt": "a", "max_tokens": 5});
        body[member] = json!(2);
        let answer = running.client.post(PATH, &body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.json()["error"]["param"], param);
    }
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_steer_an_answer_elsewhere_are_refused_by_name() {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &one_answer()));
    let running = Bench::new().more(&offer(&provider, "")).start().await;
    for (member, value) in [
        ("tools", json!([{"type": "function", "function": {"name": "f"}}])),
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!("c")),
        ("reasoning_effort", json!("low")),
        ("chat_template_kwargs", json!({"enable_thinking": false})),
        ("thread", json!({"type": "create"})),
    ] {
        let mut body = json!({"model": "c", "prompt": "a", "max_tokens": 5});
        body[member] = value;
        let answer = running.client.post(PATH, &body).await;
        assert_eq!(answer.status, 400, "{member}: {}", answer.text());
        assert_eq!(answer.json()["error"]["param"], member);
    }
    assert_eq!(provider.calls(), 0);
    let format = json!({"type": "json_object"});
    let body = json!({"model": "c", "prompt": "a", "max_tokens": 5, "response_format": format, "tools": []});
    assert_eq!(running.client.post(PATH, &body).await.status, 200);
    assert_eq!(provider.last().json()["response_format"], format);
    let unlisted = offer(&provider, "supported_parameters = [\"temperature\"]");
    let running = Bench::new().more(&unlisted).start().await;
    let answer = running.client.post(PATH, &body).await;
    assert_eq!((answer.status, answer.json()["error"]["param"].as_str()), (400, Some("response_format")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_prompts_with_one_answer_leaves_n_to_others() {
    let provider = Provider::start().await;
    let mut two = one_answer();
    two["choices"] = json!([two["choices"][0], {"index": 1, "text": "Hi", "finish_reason": "stop"}]);
    provider.then(json_answer(200, &one_answer())).always(json_answer(200, &two));
    let running = Bench::new().more(&offer(&provider, "")).start().await;
    let body = json!({"model": "c", "prompt": ["a", "b"], "max_tokens": 5});
    let answer = running.client.post(PATH, &body).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("prompt")));
    let body = json!({"model": "c", "prompt": "a", "n": 2, "max_tokens": 5});
    let answer = running.client.post(PATH, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_of_best_of_that_are_not_returned_are_charged() {
    let provider = Provider::start().await;
    let mut answer = one_answer();
    answer["usage"]["completion_tokens"] = json!(300);
    provider.always(json_answer(200, &answer));
    let running = Bench::new().more(&offer(&provider, "")).start().await;
    let body = json!({"model": "c", "prompt": "a", "best_of": 6, "max_tokens": 50});
    let answer = running.client.post(PATH, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["usage"]["completion_tokens"], 300);
}

/// Returns the event of a chunk with a part of this answer.
fn chunk(index: u32, text: &str, finish: &Value) -> ScriptStep {
    let choice = json!({"index": index, "text": text, "finish_reason": finish});
    let chunk =
        json!({"id": "c", "object": "text_completion", "created": 1, "model": "t", "choices": [choice]});
    ScriptStep::Chunk(format!("data: {chunk}\n\n").into_bytes())
}

/// Returns a stream with these answers, that ends with these steps.
fn answers(texts: &[&str], end: &[ScriptStep]) -> Vec<ScriptStep> {
    let answer = |(index, text): (u32, &&str)| {
        [chunk(index, text, &Value::Null), chunk(index, "", &json!("stop"))].into_iter()
    };
    let all = (0..).zip(texts).flat_map(answer);
    [sse()].into_iter().chain(all).chain(end.iter().cloned()).collect()
}

/// Returns the events of a stream.
fn events(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| data.starts_with('{')).map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_with_too_few_answers_ends_like_a_broken_one() {
    for end in [vec![done(), ScriptStep::End], vec![ScriptStep::End]] {
        let provider = Provider::start().await;
        provider.always(answers(&["Hello there "], &end));
        let running = Bench::new().more(&offer(&provider, "")).start().await;
        let body = json!({"model": "c", "prompt": ["a", "b"], "max_tokens": 500, "stream": true});
        let events = events(&running.client.post(PATH, &body).await);
        let last = events.last().unwrap();
        assert_eq!(last["error"]["code"], "INFERENCE_3103", "{last}");
        assert!(last["billing_cost"].is_null(), "{last}");
        assert_eq!(running.gateway.app.ledger.balance("default").credits.amount, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_provider_rescues_a_stream_with_too_few_answers() {
    for end in [vec![done(), ScriptStep::End], vec![ScriptStep::End]] {
        for (member, value) in [("prompt", json!(["a", "b"])), ("n", json!(2))] {
            let (few, all) = (Provider::start().await, Provider::start().await);
            few.always(answers(&["Hello there "], &end));
            all.always(answers(&["Hello there ", "Hi"], &[done(), ScriptStep::End]));
            let second = format!(
                "[[providers]]\nid = \"q\"\noperator = \"T\"\ncountry = \"FI\"\ncity = \"Turku\"\n\
                 base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"c\"\ncompletions = true\n\
                 price = {{ input = 50, output = 50 }}\n",
                all.address
            );
            let running = Bench::new().more(&offer(&few, "")).more(&second).start().await;
            let mut body = json!({"model": "c:price", "prompt": "a", "max_tokens": 500, "stream": true});
            body[member] = value;
            let events = events(&running.client.post(PATH, &body).await);
            let text = |index: u32| -> String {
                let choices =
                    events.iter().flat_map(|event| event["choices"].as_array().into_iter().flatten());
                let own = choices.filter(|choice| choice["index"] == index);
                own.filter_map(|choice| choice["text"].as_str()).collect()
            };
            assert!(events.iter().all(|event| event["error"].is_null()), "{events:?}");
            assert_eq!((&*text(0), &*text(1)), ("Hello there ", "Hi"), "{events:?}");
            assert_eq!((few.calls(), all.calls()), (1, 1));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_stream_does_not_refuse_later_requests_for_several_answers() {
    let provider = Provider::start().await;
    let cut = answers(&["Hello"], &[ScriptStep::End]);
    provider.then(cut.clone()).then(cut).always(answers(&["Hello", "Hi"], &[done(), ScriptStep::End]));
    let running =
        Bench::new().settings("[routing]\nquick_retry = \"0s\"").more(&offer(&provider, "")).start().await;
    let body = json!({"model": "c", "prompt": "a", "n": 2, "max_tokens": 500, "stream": true});
    for _ in 0..4 {
        let answer = running.client.post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let last = events(&running.client.post(PATH, &body).await);
    assert!(last.iter().all(|event| event["error"].is_null()), "{last:?}");
}
