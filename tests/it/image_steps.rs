//! Diffusion steps of an image: forwarded and counted where the offer supports them.

use crate::harness::script::json_answer;
use crate::harness::{Bench, Provider};
use serde_json::json;

const PATH: &str = "/v1/images/generations";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_count_where_the_offer_takes_them() {
    let energy = "energy = { joules_per_image = 2000, image_steps = 50 }";
    for (offer, asked, sent, factor) in [
        ("", json!({}), None, 1.0),
        ("image_steps = 10", json!({}), None, 0.2),
        (
            "supported_parameters = [\"num_inference_steps\"]",
            json!({"num_inference_steps": 25}),
            Some(25),
            0.5,
        ),
        ("supported_parameters = [\"num_inference_steps\"]", json!({"steps": 150}), Some(150), 3.0),
    ] {
        let provider = Provider::start().await;
        provider.then(json_answer(200, &json!({"created": 1, "data": [{"b64_json": "iVBORw0KGgo="}]})));
        let toml = format!(
            "[[models]]\nid = \"s\"\nkind = \"image\"\ncontext_length = 512\nprice = {{ image = 0.02 }}\n{energy}\n\
             [[providers]]\nid = \"a\"\noperator = \"T\"\ncountry = \"FI\"\ncity = \"Turku\"\npue = 1.0\nwue = 0.0\n\
             base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"s\"\n{offer}\n",
            provider.address
        );
        let running = Bench::new().more(&toml).start().await;
        let mut body = json!({"model": "s", "prompt": "a cat", "response_format": "b64_json"});
        body.as_object_mut().unwrap().extend(asked.as_object().unwrap().clone());
        let answer = running.client.post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(provider.last().json()["num_inference_steps"].as_u64(), sent, "{offer} {asked}");
        let reported = answer.json()["environment_impact"]["energy_kwh"].as_f64().unwrap();
        let expected = factor * 2000.0 * 1.30 * 1.12 / 3.6e6;
        assert!((reported - expected).abs() < 1e-11, "{offer} {asked}: {reported} is not {expected}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_steers_an_image_and_cannot_be_passed_on_is_refused_by_name() {
    let provider = Provider::start().await;
    let toml = format!(
        "[[models]]\nid = \"s\"\nkind = \"image\"\ncontext_length = 512\nprice = {{ image = 0.02 }}\n\
         energy = {{ joules_per_image = 2000 }}\n\
         [[providers]]\nid = \"a\"\noperator = \"T\"\ncountry = \"FI\"\ncity = \"Turku\"\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"s\"\n",
        provider.address
    );
    let running = Bench::new().more(&toml).start().await;
    for (name, value) in [
        ("steps", json!(4)),
        ("num_inference_steps", json!(25)),
        ("negative_prompt", json!("dogs")),
        ("seed", json!(7)),
        ("guidance_scale", json!(3.5)),
        ("image", json!("data:image/png;base64,iVBORw0KGgo=")),
        ("output_format", json!("webp")),
        ("background", json!("transparent")),
    ] {
        let mut body = json!({"model": "s", "prompt": "a cat"});
        body[name] = value;
        let answer = running.client.post(PATH, &body).await;
        assert_eq!(answer.status, 400, "{name}: {}", answer.text());
        assert_eq!(answer.json()["error"]["param"], name, "{}", answer.text());
    }
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_of_an_image_may_be_left_out_where_one_is_configured() {
    let server = penstock_simulator::SimulatedServer::start(penstock_simulator::SimulatorOptions::default())
        .await
        .unwrap();
    let base = format!("http://{}/v1", server.address);
    let bench = || Bench::new().kind("image").model("context_length = 512").provider_at("a", &base, "", "");
    let with = bench().settings("[default_models]\nimages = \"m\"").start().await;
    let without = bench().start().await;
    for ask in [json!({"prompt": "a cat"}), json!({"model": null, "prompt": "a cat"})] {
        let drawn = with.client.post("/v1/images/generations", &ask).await;
        assert_eq!(drawn.status, 200, "{}", drawn.text());
        let refused = without.client.post("/v1/images/generations", &ask).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("model")));
    }
    server.stop().await;
}
