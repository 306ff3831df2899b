//! Image requests at providers that return fewer or more than `n` images per request, or refuse `n`.

use crate::harness::Provider;
use crate::harness::script::{json_answer, status};
use crate::images::{PATH, PNG64, ask, drawn, draws, inside};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_that_a_provider_leaves_out_are_requested_one_by_one() {
    let provider = Provider::start().await;
    provider.always(inside(1));
    let running = draws(&[("a", &provider, "")])
        .settings("[routing.breaker]\nconsecutive = 1\nrest = \"1h\"\nrest_max = \"1h\"")
        .start()
        .await;
    let three = ask(&json!({"n": 3, "response_format": "b64_json"}));
    let counts = || provider.seen().iter().map(|seen| seen.json()["n"].as_u64().unwrap()).collect::<Vec<_>>();
    for expected in [vec![3, 1, 1], vec![3, 1, 1, 1, 1, 1]] {
        let answer = running.client.post(PATH, &three).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(answer["data"].as_array().unwrap().len(), 3);
        assert_eq!(answer["billing_cost"]["credits"], json!(6));
        assert_eq!(counts(), expected, "the offer is asked for one image at a time after its first answer");
    }
    let settled = crate::billing::entries(&running).await;
    assert_eq!(settled.iter().filter(|entry| entry["act"] == "reserve").count(), 2);

    // Additional images are not delivered, and not charged.
    provider.clear();
    provider.always(inside(4));
    let answer = running.client.post(PATH, &three).await.json();
    assert_eq!(answer["data"].as_array().unwrap().len(), 3);
    assert_eq!(answer["billing_cost"]["credits"], json!(6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_number_of_images_is_requested_one_by_one() {
    let provider = Provider::start().await;
    let only_one = json!({"error": {"message": "You must provide n=1 for this model.", "type": "x"}});
    provider.then(json_answer(400, &only_one)).always(inside(1));
    let running = draws(&[("a", &provider, "")]).start().await;
    let two = ask(&json!({"n": 2, "response_format": "b64_json"}));
    for calls in [3, 5] {
        let answer = running.client.post(PATH, &two).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["data"].as_array().unwrap().len(), 2);
        assert_eq!(provider.calls(), calls);
    }
    // A refusal with another cause reaches the client, and the gateway does not conclude that the provider refuses
    // `n`.
    let other = Provider::start().await;
    other.always(json_answer(400, &json!({"error": {"message": "size 7 is odd", "type": "x"}})));
    let running = draws(&[("a", &other, "")]).start().await;
    for _ in 0..2 {
        assert_eq!(running.client.post(PATH, &two).await.status, 400);
        assert_eq!(other.last().json()["n"], 1);
    }
    assert_eq!(other.seen().iter().filter(|seen| seen.json()["n"] == 2).count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filtered_image_is_requested_again_and_leaves_the_others() {
    let provider = Provider::start().await;
    let filtered = || {
        let none = json!({"b64_json": null, "finish_reason": "CONTENT_FILTERED"});
        drawn(&[json!({"b64_json": PNG64}), none, json!(null)])
    };
    let running = draws(&[("a", &provider, "")]).start().await;
    let three = ask(&json!({"n": 3, "response_format": "b64_json"}));
    for (further, images) in
        [([inside(1), inside(1)], 3), ([inside(1), drawn(&[])], 2), ([drawn(&[]), drawn(&[])], 1)]
    {
        provider.clear();
        let before = provider.calls();
        provider.then(filtered());
        for script in further {
            provider.then(script);
        }
        let answer = running.client.post(PATH, &three).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(answer["data"].as_array().unwrap().len(), images);
        assert_eq!(answer["billing_cost"]["credits"], json!(2 * images));
        // The offer is still asked for several images.
        let counts =
            provider.seen()[before..].iter().map(|seen| seen.json()["n"].as_u64()).collect::<Vec<_>>();
        assert_eq!(counts, [Some(3), Some(1), Some(1)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_further_image_leaves_the_others() {
    let provider = Provider::start().await;
    let blocked = json!({"error": {"message": "blocked", "code": "content_policy_violation", "type": "x"}});
    provider.then(inside(1)).always(json_answer(400, &blocked));
    let running = draws(&[("a", &provider, "")]).start().await;
    let answer =
        running.client.post(PATH, &ask(&json!({"n": 3, "response_format": "b64_json"}))).await.json();
    assert_eq!(answer["data"].as_array().unwrap().len(), 1);
    assert_eq!(answer["billing_cost"]["credits"], json!(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_image_of_a_split_request_leaves_the_others() {
    let provider = Provider::start().await;
    let blocked = json!({"error": {"message": "blocked", "code": "content_policy_violation", "type": "x"}});
    provider.then(inside(1)).then(inside(1)).always(json_answer(400, &blocked));
    let running = draws(&[("a", &provider, "max_images = 1")]).start().await;
    let answer = running.client.post(PATH, &ask(&json!({"n": 4, "response_format": "b64_json"}))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["data"].as_array().unwrap().len(), 2);
    assert_eq!(answer["billing_cost"]["credits"], json!(4));
    assert_eq!(provider.calls(), 3, "no image is requested after the refusal");
    // A refusal of the first image is an error.
    let answer = running.client.post(PATH, &ask(&json!({"n": 4}))).await;
    assert_eq!(answer.json()["error"]["code"], "INFERENCE_3203");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_energy_of_a_failed_attempt_includes_its_finished_images() {
    let energy = |finished: usize, failure: u16| async move {
        let (bad, good) = (Provider::start().await, Provider::start().await);
        for _ in 0..finished {
            bad.then(inside(1));
        }
        bad.always(status(failure));
        good.always(inside(4));
        let running = draws(&[
            ("bad", &bad, "max_images = 1\nprice = { image = 0.01 }"),
            ("good", &good, "price = { image = 9.0 }"),
        ])
        .start()
        .await;
        let four = ask(&json!({"model": "d:price", "n": 4, "response_format": "b64_json"}));
        let answer = running.client.post(PATH, &four).await;
        assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("good")));
        answer.json()["environment_impact"]["energy_kwh"].as_f64().unwrap()
    };
    let four = energy(0, 429).await;
    for failure in [503, 429] {
        let all = energy(3, failure).await;
        assert!((all / four - 1.75).abs() < 0.01, "{failure}: {all} for seven images, {four} for four");
    }
}
