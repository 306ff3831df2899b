//! Detection of the support for `n` from an engine's answers.

use super::{LISTED, ask, ask_stream, bench, engine, last, many, post, streamed, texts};
use crate::harness::Provider;
use crate::harness::script::{
    ScriptStep, completion, done, finish, json_answer, plain, role, sse, stream, text, usage,
};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_ignores_n_is_learnt_and_not_blamed() {
    let provider = Provider::start().await;
    let running = bench().model(LISTED).provider("a", &provider).start().await;
    assert_eq!(texts(&post(&running, &ask(3)).await), ["Hello", "Hello", "Hello"]);
    assert_eq!(provider.calls(), 4, "one that showed it, and three");
    for _ in 0..6 {
        assert_eq!(texts(&post(&running, &ask(2)).await).len(), 2);
    }
    assert_eq!(provider.calls(), 16);
    assert_eq!(provider.seen().iter().filter(|seen| seen.json().get("n").is_some()).count(), 1);
    let providers = running.admin().get("/admin/providers").await.text();
    assert!(!providers.contains("truncated") && !providers.contains("ejected"), "{providers}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_with_fewer_choices_retains_the_sent_ones() {
    for end in [
        vec![usage(11, 2), done(), ScriptStep::End],
        vec![usage(11, 2), ScriptStep::End],
        vec![done(), ScriptStep::End],
    ] {
        let provider = Provider::start().await;
        provider.then([vec![sse(), role(), text("One "), text("two"), finish("stop")], end].concat());
        let running = bench().model(LISTED).provider("a", &provider).start().await;
        let answer = post(&running, &ask_stream(3)).await;
        assert_eq!(streamed(&answer, 3), ["One two", "Hello", "Hello"]);
        assert_eq!(provider.calls(), 3);
        assert_eq!(answer.header("x-penstock-attempts"), Some("1"));
        let asked: Vec<Value> = provider.seen().iter().map(|seen| seen.json()["n"].clone()).collect();
        assert_eq!(asked, [json!(3), Value::Null, Value::Null]);
        assert!(last(&answer)["usage"]["prompt_tokens"].as_u64().unwrap() >= 22);
        // From now on the gateway requests the choices one by one.
        assert_eq!(streamed(&post(&running, &ask_stream(2)).await, 2), ["Hello", "Hello"]);
        assert_eq!(provider.calls(), 5);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_stream_does_not_show_the_number_of_choices() {
    let provider = Provider::start().await;
    let cut = vec![sse(), role(), text("One "), text("two"), finish("stop"), ScriptStep::End];
    provider.then(cut).always(many(&["One", "Two", "Three"], 7));
    let running = bench().model(LISTED).provider("a", &provider).start().await;
    post(&running, &ask_stream(3)).await;
    let before = provider.calls();
    assert_eq!(texts(&post(&running, &ask(3)).await), ["One", "Two", "Three"]);
    assert_eq!(provider.calls(), before + 1, "the choices are still requested together");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_gave_several_choices_is_asked_for_several_again() {
    let provider = Provider::start().await;
    let few = json_answer(200, &completion("Hello"));
    provider.then(many(&["One", "Two"], 7)).then(few).then(plain("Hi")).then(plain("Hi"));
    provider.always(many(&["One", "Two"], 7));
    let running = bench().model(LISTED).provider("a", &provider).start().await;
    for (calls, expected) in [(1, ["One", "Two"]), (4, ["Hi", "Hi"]), (5, ["One", "Two"])] {
        assert_eq!(texts(&post(&running, &ask(2)).await), expected);
        assert_eq!(provider.calls(), calls);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_of_one_choice_is_corrected_and_marked() {
    let long = "Forty bytes of text, and not one more ..";
    let (provider, seen) = engine(move |asked| match asked.json()["n"].as_u64() {
        Some(4) => many(&[long; 4], 10),
        _ => many(&[long], 10),
    })
    .await;
    let running = bench().model(LISTED).provider("a", &provider).start().await;
    let body = post(&running, &ask(4)).await.json();
    assert_eq!(body["usage"]["completion_tokens"], 40, "{body}");
    assert_eq!(body["usage"]["prompt_tokens"], 11);
    assert!(body["environment_impact"]["provenance"].to_string().contains("gateway"), "{body}");
    let again = post(&running, &ask(4)).await.json();
    assert_eq!(
        (&again["usage"]["completion_tokens"], &again["usage"]["prompt_tokens"]),
        (&json!(40), &json!(11))
    );
    assert_eq!(seen.lock().len(), 2, "the choices are still requested together");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_of_all_choices_stands() {
    let long = "Forty bytes of text, and not one more ..";
    let (provider, seen) = engine(move |_| many(&[long; 4], 27)).await;
    let running = bench().model(LISTED).provider("a", &provider).start().await;
    for _ in 0..2 {
        assert_eq!(post(&running, &ask(4)).await.json()["usage"]["completion_tokens"], 27);
    }
    assert_eq!(seen.lock().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_refuses_n_is_learnt() {
    let refusals = [
        (400, json!({"error": {"code": 400, "message": "bad request", "type": "invalid_request_error"}})),
        (
            400,
            json!({"error": {"message": "n_cmpl cannot be greater than the number of slots", "code": 400}}),
        ),
        (
            422,
            json!({"detail": [{"type": "extra_forbidden", "loc": ["body", "n"], "msg": "Extra inputs are not permitted"}]}),
        ),
    ];
    for (code, body) in refusals {
        for streams in [false, true] {
            let body = body.clone();
            let (provider, seen) = engine(move |asked| match (asked.json().get("n"), asked.streamed()) {
                (Some(_), _) => json_answer(code, &body),
                (None, true) => stream(&["Hel", "lo"]),
                (None, false) => plain("Hello"),
            })
            .await;
            let running = bench().model(LISTED).provider("a", &provider).start().await;
            for calls in [4, 7] {
                let contents = if streams {
                    streamed(&post(&running, &ask_stream(3)).await, 3)
                } else {
                    texts(&post(&running, &ask(3)).await)
                };
                assert_eq!(contents, ["Hello", "Hello", "Hello"]);
                assert_eq!(seen.lock().len(), calls, "{code} {streams}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_persists_without_n_is_a_client_error_after_one_retry() {
    let provider = Provider::start().await;
    let error_body = json!({"error": {"message": "bad request", "type": "invalid_request_error"}});
    provider.always(json_answer(400, &error_body));
    let running = bench().model(LISTED).provider("a", &provider).start().await;
    assert_eq!(post(&running, &ask(8)).await.status, 400);
    assert_eq!(provider.calls(), 2);
    let named = json!({"error": {"message": "temperature is too high", "param": "temperature"}});
    provider.always(json_answer(400, &named));
    let answer = post(&running, &ask(8)).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("temperature")));
    assert_eq!(provider.calls(), 3);
    provider.always(many(&["One", "Two"], 7));
    assert_eq!(texts(&post(&running, &ask(2)).await).len(), 2);
    assert_eq!(provider.calls(), 4, "it was not learnt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_forgets_learned_facts() {
    let provider = Provider::start().await;
    let bench = || bench().model(LISTED).provider("a", &provider);
    let running = bench().start().await;
    texts(&post(&running, &ask(2)).await);
    texts(&post(&running, &ask(2)).await);
    assert_eq!(provider.calls(), 5);
    running.reload(bench().load(running.storage())).await;
    provider.then(json_answer(200, &completion("Hello")));
    texts(&post(&running, &ask(2)).await);
    assert_eq!(provider.calls(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_energy_of_a_discarded_answer_has_its_output() {
    let provider = Provider::start().await;
    let mut whole = completion(&"word ".repeat(400));
    whole["usage"] = json!({"prompt_tokens": 3000, "completion_tokens": 1000, "total_tokens": 4000});
    provider.always(json_answer(200, &whole));
    let running = bench().model(LISTED).provider("a", &provider).start().await;
    let mut energy = Vec::new();
    for n in [3, 3, 1] {
        let body = json!({"model": "m", "n": n,
            "messages": [{"role": "user", "content": "word ".repeat(1000)}]});
        let answer = post(&running, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        energy.push(answer.json()["environment_impact"]["energy_kwh"].as_f64().unwrap());
    }
    assert_eq!(provider.calls(), 8);
    assert!((energy[0] - 4.0 * energy[2]).abs() < 1e-11, "{energy:?}");
    assert!((energy[1] - 3.0 * energy[2]).abs() < 1e-11, "{energy:?}");
}
