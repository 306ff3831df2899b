//! Host names sent by clients: a response repeats a host name only if it is configured.

use crate::harness::gateway::PATIENT;
use crate::harness::script::json_answer;
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};

const PATH: &str = "/v1/images/generations";

fn bench(provider: &Provider, listen: &str) -> Bench {
    Bench::new().listen(listen).more(&format!(
        "[[models]]\nid = \"d\"\nkind = \"image\"\ncontext_length = 512\nprice = {{ image = 0.02 }}\n\
         energy = {{ joules_per_image = 2000.0, method = \"benchmark\" }}\n\
         [[providers]]\nid = \"a\"\noperator = \"Test\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
         base_url = \"http://{}/v1\"\n{PATIENT}\n[[providers.offers]]\nmodel = \"d\"\nname = \"theirs\"\n",
        provider.address
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_starts_with_a_host_only_if_that_is_known() {
    let drawn = json_answer(200, &json!({"created": 1, "data": [{"b64_json": "iVBORw0KGgo="}]}));
    let content = "/v1/images/content/";
    let provider = Provider::start().await;
    provider.always(drawn);
    let running = bench(&provider, "hosts = [\"gateway.lan\"]").start().await;
    let own = running.client.address.to_string();
    for (host, known) in [
        ("localhost:8080", true),
        ("gateway.localhost", true),
        ("gateway.lan:8080", true),
        ("GATEWAY.lan", true),
        (&own, true),
        ("127.0.0.1", true),
        ("evil.example", false),
        ("gateway.lan.evil.example", false),
        // Addresses reserved for examples, which no machine has.
        ("192.0.2.7:8080", false),
        ("[2001:db8::1]", false),
        ("0.0.0.0", false),
    ] {
        let body = json!({"model": "d", "prompt": "a cat"}).to_string();
        let answer = running.client.send("POST", PATH, &[("host", host)], body.as_bytes()).await;
        let url = answer.json()["data"][0]["url"].as_str().unwrap().to_owned();
        let expected = if known { format!("http://{host}{content}") } else { content.to_owned() };
        assert!(url.starts_with(&expected), "{host}: {url}");
        let path = url.get(url.find(content).unwrap()..).unwrap();
        assert_eq!(running.client.get(path).await.status, 200, "{host}: {url}");
    }
    let running = bench(&provider, "public_url = \"https://api.example.eu\"").start().await;
    let body: Value = json!({"model": "d", "prompt": "a cat"});
    let answer =
        running.client.send("POST", PATH, &[("host", "evil.example")], body.to_string().as_bytes()).await;
    let url = answer.json()["data"][0]["url"].as_str().unwrap().to_owned();
    assert!(url.starts_with(&format!("https://api.example.eu{content}")), "{url}");
}
