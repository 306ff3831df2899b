//! Choices that are requested one by one, of a model with a fallback model: all of them come from one model, which the
//! response names.

use super::{ask, ask_stream, bench, engine, post, streamed, texts};
use crate::harness::gateway::Running;
use crate::harness::script::{ScriptStep, done, finish, plain, role, sse, status, stream, text, usage};
use crate::harness::{Answer, Provider};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Model `m` at the provider `first`, and its fallback model `n` at `second`.
async fn running(first: &Provider, second: &Provider) -> Running {
    let block = format!(
        "\n[[models]]\nid = \"n\"\nname = \"N\"\nkind = \"chat\"\ncreated = 1\ncontext_length = 1000\n\
         price = {{ input = 1, output = 1 }}\nenergy = {{ active_params_b = 8.0 }}\n\
         [[providers]]\nid = \"second\"\noperator = \"Test\"\ncountry = \"DE\"\ncity = \"Berlin\"\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"n\"\nname = \"their-n\"\n",
        second.address
    );
    bench().model("fallbacks = [\"n\"]").provider("first", first).more(&block).start().await
}

/// Returns the models that the events of a stream name.
fn models(answer: &Answer) -> BTreeSet<String> {
    answer.events().iter().map(|event| event["model"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_of_a_fallback_model_name_it_in_every_event() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    first.always(status(500));
    let running = running(&first, &second).await;
    let answer = post(&running, &ask(2)).await;
    assert_eq!(texts(&answer), ["Hello", "Hello"]);
    assert_eq!(answer.json()["model"], "n");
    second.always(stream(&["Hel", "lo"]));
    let answer = post(&running, &ask_stream(2)).await;
    assert_eq!(streamed(&answer, 2), ["Hello", "Hello"]);
    assert_eq!(models(&answer), ["n".to_owned()].into());
    assert_eq!(answer.header("x-penstock-provider"), Some("second"));
    // An answer without text has no first content.
    second.always(vec![sse(), role(), finish("stop"), usage(11, 0), done(), ScriptStep::End]);
    let answer = post(&running, &ask_stream(2)).await;
    assert_eq!(models(&answer), ["n".to_owned()].into(), "{}", answer.text());
}

/// Checks that a choice of the requested model is discarded if another choice has begun with the fallback model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_choice_is_of_another_model_than_the_first_content() {
    for is_stream in [false, true] {
        let (first, second) = (Provider::start().await, Provider::start().await);
        let slow = |mut script: Vec<ScriptStep>| {
            script.insert(0, ScriptStep::Pause(Duration::from_millis(300)));
            script
        };
        let answered =
            vec![sse(), role(), text("Other"), finish("stop"), usage(11, 1), done(), ScriptStep::End];
        first.then(status(401)).always(slow(if is_stream { answered } else { plain("Other") }));
        if is_stream {
            second.always(stream(&["Hel", "lo"]));
        }
        let running = running(&first, &second).await;
        let answer = post(&running, &if is_stream { ask_stream(2) } else { ask(2) }).await;
        if is_stream {
            assert_eq!(streamed(&answer, 2), ["Hello", "Hello"]);
            assert_eq!(models(&answer), ["n".to_owned()].into());
        } else {
            assert_eq!(texts(&answer), ["Hello", "Hello"]);
            assert_eq!(answer.json()["model"], "n");
        }
        assert_eq!((first.calls(), second.calls()), (2, 2));
        let metrics = running.admin().get("/metrics").await.text();
        let discarded = metrics.lines().find(|line| line.contains("outcome=\"discarded\"")).unwrap();
        assert!(discarded.starts_with("penstock_attempts_total") && discarded.ends_with(" 1"), "{discarded}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_of_the_requested_model_keep_its_name() {
    let (first, seen) = engine(|asked| {
        if asked.json()["stream"] == Value::Bool(true) { stream(&["Hel", "lo"]) } else { plain("Hello") }
    })
    .await;
    let second = Provider::start().await;
    let running = running(&first, &second).await;
    assert_eq!(post(&running, &ask(2)).await.json()["model"], "m");
    assert_eq!(models(&post(&running, &ask_stream(2)).await), ["m".to_owned()].into());
    assert_eq!((seen.lock().len(), second.calls()), (4, 0));
}
