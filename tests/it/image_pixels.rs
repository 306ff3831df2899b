//! Energy of images by the size of the returned images, if the request names no size.

use crate::harness::script::{ScriptStep, status};
use crate::harness::{Bench, Provider};
use crate::images::{PATH, PNG64, ask, drawn, draws};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Pixels to which the joules per image refer.
const REFERENCE: f64 = 1_048_576.0;

/// Returns the start of a PNG with this width and height.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend([8, 2, 0, 0, 0]);
    bytes
}

fn inline(width: u32, height: u32) -> Value {
    json!({"b64_json": STANDARD.encode(png(width, height))})
}

/// Returns the pixels that the energy of an answer corresponds to, summed over its images.
fn counted_pixels(answer: &Value) -> f64 {
    let kwh = answer["environment_impact"]["energy_kwh"].as_f64().unwrap();
    kwh * 3.6e6 / (2000.0 * 1.30 * 1.12 * 1.16) * REFERENCE
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_without_a_requested_size_count_with_their_own() {
    let provider = Provider::start().await;
    let running = draws(&[("a", &provider, "")]).start().await;
    // The model lists 1024x1024 and 512x512.
    for (images, requested, pixels) in [
        (vec![inline(512, 512)], json!({}), 512.0 * 512.0),
        (vec![inline(512, 512)], json!({"response_format": "b64_json"}), 512.0 * 512.0),
        (vec![inline(512, 512)], json!({"size": "1024x1024"}), REFERENCE),
        (vec![inline(512, 512), inline(768, 1024)], json!({"n": 2}), 512.0 * 512.0 + 768.0 * 1024.0),
        // A claim above the largest size of the model, and an image that cannot be measured.
        (vec![inline(1 << 31, 1 << 31)], json!({}), REFERENCE),
        (vec![inline(u32::MAX, 1)], json!({}), REFERENCE),
        (vec![inline(0, 512)], json!({}), REFERENCE),
        (vec![json!({"b64_json": PNG64})], json!({}), REFERENCE),
        (vec![json!({"b64_json": PNG64}), inline(512, 512)], json!({"n": 2}), REFERENCE * 1.25),
    ] {
        provider.then(drawn(&images));
        let answer = running.client.post(PATH, &ask(&requested)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let counted = counted_pixels(&answer.json());
        assert!((counted - pixels).abs() < 1.0, "{requested} {images:?}: {counted} is not {pixels}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_behind_a_url_is_measured_when_it_is_fetched() {
    let provider = Provider::start().await;
    let running = draws(&[("a", &provider, "")]).start().await;
    let url = format!("http://{}/files/1.png", provider.address);
    provider.gets(vec![
        ScriptStep::Head(200, vec![("content-type", "image/png".into())]),
        ScriptStep::Body(png(512, 1024)),
    ]);
    provider.then(drawn(&[json!({"url": url})]));
    let answer = running.client.post(PATH, &ask(&json!({}))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!((counted_pixels(&answer.json()) - 512.0 * 1024.0).abs() < 1.0, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_without_sizes_counts_at_most_four_mebipixels() {
    let provider = Provider::start().await;
    let model = "[[models]]\nid = \"d\"\nkind = \"image\"\ncontext_length = 512\n\
        price = { image = 0.02 }\nenergy = { joules_per_image = 2000.0, method = \"benchmark\" }";
    let toml = format!(
        "{model}\n[[providers]]\nid = \"a\"\noperator = \"T\"\ncountry = \"FR\"\ncity = \"Paris\"\npue = 1.16\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"d\"\n",
        provider.address
    );
    let running = Bench::new().more(&toml).start().await;
    for (image, pixels) in [
        (inline(1 << 31, 1 << 31), 4.0 * REFERENCE),
        (inline(2048, 1024), 2.0 * REFERENCE),
        (json!({"b64_json": PNG64}), REFERENCE),
    ] {
        provider.then(drawn(&[image]));
        let answer = running.client.post(PATH, &ask(&json!({}))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let counted = counted_pixels(&answer.json());
        assert!((counted - pixels).abs() < 1.0, "{counted} is not {pixels}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_of_a_failed_attempt_count_with_their_own_size() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    let running = draws(&[
        ("bad", &bad, "max_images = 1\nprice = { image = 0.01 }"),
        ("good", &good, "price = { image = 9.0 }"),
    ])
    .start()
    .await;
    let spaced = {
        let text = STANDARD.encode(png(512, 512));
        json!({"b64_json": format!("{} \n{}", &text[..20], &text[20..])})
    };
    for (returned, size, failed) in [
        (inline(512, 512), json!({}), 512.0 * 512.0),
        (spaced, json!({}), 512.0 * 512.0),
        (inline(512, 512), json!({"size": "1024x1024"}), REFERENCE),
        (inline(4096, 4096), json!({}), REFERENCE),
        (json!({"b64_json": PNG64}), json!({}), REFERENCE),
    ] {
        bad.clear();
        bad.then(drawn(std::slice::from_ref(&returned))).always(status(503));
        good.then(drawn(&[inline(512, 512), inline(512, 512)]));
        let mut request = ask(&json!({"model": "d:price", "n": 2, "response_format": "b64_json"}));
        request.as_object_mut().unwrap().extend(size.as_object().unwrap().clone());
        let answer = running.client.post(PATH, &request).await;
        assert_eq!(
            (answer.status, answer.header("x-penstock-provider")),
            (200, Some("good")),
            "{}",
            answer.text()
        );
        let delivered = if size == json!({}) { 2.0 * 512.0 * 512.0 } else { 2.0 * REFERENCE };
        let counted = counted_pixels(&answer.json());
        assert!((counted - delivered - failed).abs() < 0.1 * failed, "{returned} {size}: {counted}");
    }
}
