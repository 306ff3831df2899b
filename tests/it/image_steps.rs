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
        // Nobody listed the parameter, so it is not passed on and does not count.
        ("", json!({"num_inference_steps": 25}), None, 1.0),
        ("image_steps = 10", json!({"num_inference_steps": 25}), None, 0.2),
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
        let told = answer.json()["environment_impact"]["energy_kwh"].as_f64().unwrap();
        let expected = factor * 2000.0 * 1.30 * 1.12 / 3.6e6;
        assert!((told - expected).abs() < 1e-11, "{offer} {asked}: {told} is not {expected}");
    }
}
