//! Image models whose clients expect base64 by default.

use crate::harness::Provider;
use crate::images::{PATH, PNG64, ask, drawn, draws};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_openais_image_models_are_answered_in_base64() {
    let provider = Provider::start().await;
    provider.always(drawn(&[json!({"b64_json": PNG64})]));
    let running = draws(&[("a", &provider, "")]).start().await;
    for (name, form, base64) in [
        ("gpt-image-1", None, true),
        ("gpt-image-1:eco", None, true),
        ("GPT-Image-1-mini", None, true),
        ("openai/gpt-image-2", None, true),
        ("gpt-image-1", Some("url"), false),
        ("dall-e-3", None, false),
        ("dall-e-3", Some("b64_json"), true),
        ("my-gpt-image-1", None, false),
    ] {
        let answer = running.client.post(PATH, &ask(&json!({"model": name, "response_format": form}))).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        let image = &answer.json()["data"][0];
        assert_eq!(
            (image["b64_json"].is_string(), image["url"].is_string()),
            (base64, !base64),
            "{name} {form:?}"
        );
    }
}
