//! Response bodies of providers in another format than the requested one.

use super::{CHAT, MESSAGES};
use crate::harness::script::{ScriptStep, completion, json_answer, plain, role, sse, stream, text};
use crate::harness::{Bench, Provider};
use penstock_dialect::conformance;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_for_a_stream_and_a_stream_for_json_are_read() {
    let provider = Provider::start().await;
    let running =
        Bench::new().settings("[routing]\nquick_retry = \"0s\"").provider("a", &provider).start().await;
    let ask = json!({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]});
    let mut ask_stream = ask.clone();
    ask_stream["stream"] = json!(true);
    let whole = completion("Hello").to_string().into_bytes();
    let in_bytes = || {
        let mut script = vec![sse()];
        script.extend(whole.iter().map(|byte| ScriptStep::Chunk(vec![*byte])));
        script.push(ScriptStep::End);
        script
    };
    for path in [CHAT, MESSAGES] {
        for script in [plain("Hello"), in_bytes()] {
            provider.then(script);
            let answer = running.client.post(path, &ask_stream).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            match path {
                MESSAGES => conformance::check_messages_stream(&answer.body).unwrap(),
                _ => conformance::check_chat_stream(&answer.body, false).unwrap(),
            }
            assert!(answer.text().contains("\"Hello\""), "{}", answer.text());
            assert!(answer.text().contains("billing_cost"));
        }
        provider.then(stream(&["Hel", "lo"]));
        let answer = running.client.post(path, &ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().contains("\"Hello\""), "{}", answer.text());
        assert!(answer.json()["billing_cost"]["credits"].as_f64().unwrap() > 0.0);
        let broken = json!({"error": {"message": "the engine broke", "type": "server_error"}});
        let cut = vec![sse(), role(), text("Hel"), ScriptStep::End];
        for (ask, script) in [(&ask_stream, json_answer(200, &broken)), (&ask, cut)] {
            let calls = provider.calls();
            provider.always(script);
            assert_eq!(running.client.post(path, ask).await.status, 503);
            assert!(provider.calls() > calls);
        }
        provider.always(plain("Hello"));
    }
}
