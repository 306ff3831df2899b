//! Failover before the first content token is invisible to the client.

use crate::harness::script::ScriptStep;
use crate::harness::script::{cut, role, silent, sse, status};
use crate::harness::{Bench, Provider};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_status_moves_to_the_next_provider() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(status(503));
    let running = Bench::new().provider("bad", &bad).provider("good", &good).start().await;
    for _ in 0..4 {
        let answer = running.chat().await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-penstock-provider"), Some("good"));
    }
    assert_eq!(good.calls(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_before_the_head_and_one_after_it_are_invisible() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.then(cut()).then(cut()).then(cut()).then(cut());
    bad.always(vec![sse(), role(), ScriptStep::Cut]);
    let running = Bench::new().provider("bad", &bad).provider("good", &good).start().await;
    for _ in 0..6 {
        let answer = running.chat_stream().await;
        assert_eq!(answer.streamed_text(), "Hello");
        assert!(answer.whole);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_provider_is_left_and_never_asked_twice() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(silent());
    let running = Bench::new().hasty("bad", &bad).provider("good", &good).start().await;
    let answer = running.chat_stream().await;
    assert_eq!(answer.streamed_text(), "Hello");
    assert!(bad.calls() <= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_answer_the_client_gets_status_503_with_the_attempts() {
    let (one, two) = (Provider::start().await, Provider::start().await);
    one.always(status(500));
    two.always(status(529));
    let running = Bench::new().provider("one", &one).provider("two", &two).start().await;
    let answer = running.chat_stream().await;
    assert_eq!(answer.status, 503);
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "INFERENCE_3103");
    let attempts = error["details"]["attempts"].as_array().unwrap();
    assert!(
        attempts.iter().any(|attempt| attempt["provider"] == "one" && attempt["reason"] == "unavailable")
    );
    assert!(attempts.iter().all(|attempt| attempt.as_object().unwrap().len() == 3), "{attempts:?}");
    assert!(attempts.iter().all(|attempt| attempt["ms"].is_u64()));
    let seconds: u32 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&seconds));
    assert!(!answer.text().contains("secret of the provider"));
}
