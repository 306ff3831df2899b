//! Images by URL and stored responses of two gateways: each gateway also serves the images and responses of the other
//! one, from a shared folder or from a bucket, even after the other gateway was killed.

use crate::fleet_batches::{Pair, background};
use crate::harness::batch_jobs::let_go;
use crate::harness::script::{held, json_answer, plain};
use crate::harness::{Answer, Client, until_answered};
use crate::seaweedfs::SeaweedServer;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Notify;

const RESPONSES: &str = "/v1/responses";
/// An image of eight bytes and its base64.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const PNG64: &str = "iVBORw0KGgo=";
/// An image model of the provider `a`, and a limit of three small images.
const IMAGE_MODEL: &str = "[[providers.offers]]\nmodel = \"d\"\n[[models]]\nid = \"d\"\nkind = \"image\"\n\
    context_length = 512\nprice = { image = 0.02 }\nimage_sizes = [\"1024x1024\"]\n\
    energy = { joules_per_image = 2000.0, method = \"benchmark\" }\n[images]\nkeep = \"24B\"\n";

/// Generates an image at a gateway; returns the path of its URL.
async fn image(pair: &Pair, gateway: usize) -> String {
    pair.provider.then(json_answer(200, &json!({"created": 1, "data": [{"b64_json": PNG64}]})));
    let ask = json!({"model": "d", "prompt": "a cat"});
    let answer = pair.at(gateway).post("/v1/images/generations", &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let url = answer.json()["data"][0]["url"].as_str().unwrap().to_owned();
    url[url.find("/v1/").unwrap()..].to_owned()
}

/// Client without a key.
fn nobody(pair: &Pair, gateway: usize) -> Client {
    Client { key: String::new(), ..pair.at(gateway) }
}

fn assert_is_image(answer: &Answer) {
    assert_eq!((answer.status, answer.body.as_slice()), (200, PNG), "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("image/png"));
    assert!(answer.header("cache-control").unwrap().starts_with("private, max-age=3"));
}

/// Returns the files below a folder whose path has this part.
fn files_of(folder: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_of(&path, part));
        } else if path.to_str().unwrap().contains(part) {
            found.push(path);
        }
    }
    found
}

/// Tests that each gateway serves the images of the other one.
async fn images_are_served_by_both(pair: &Pair) {
    let first = image(pair, 0).await;
    for gateway in 0..2 {
        assert_is_image(&nobody(pair, gateway).get(&first).await);
    }
    let head = nobody(pair, 1).send("HEAD", &first, &[], b"").await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("8")));
    // With a changed name, both gateways answer 404.
    let changed = if first.ends_with('0') { '1' } else { '0' };
    for gateway in 0..2 {
        let path = format!("{}{changed}", &first[..first.len() - 1]);
        assert_eq!(nobody(pair, gateway).get(&path).await.status, 404);
    }
    // Above the limit of three images, the gateway removes its oldest image. The other gateway has no copy, because
    // it never loaded that image.
    let oldest = image(pair, 0).await;
    let others = [image(pair, 0).await, image(pair, 0).await, image(pair, 0).await];
    for gateway in 0..2 {
        assert_eq!(nobody(pair, gateway).get(&oldest).await.status, 404);
        for path in &others {
            assert_is_image(&nobody(pair, gateway).get(path).await);
        }
    }
}

fn path(response: &Value) -> String {
    format!("{RESPONSES}/{}", response["id"].as_str().unwrap())
}

async fn stored(client: &Client, previous: &Value) -> Value {
    let ask = json!({"model": "m", "store": true, "input": "Hi", "previous_response_id": previous});
    let answer = client.post(RESPONSES, &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Tests that each gateway serves the stored responses of the other one.
async fn responses_are_shared(pair: &Pair) {
    let first = stored(&pair.at(0), &Value::Null).await;
    assert_eq!(pair.at(1).get(&path(&first)).await.json(), first);
    let second = stored(&pair.at(1), &first["id"]).await;
    assert_eq!(pair.provider.last().json()["messages"].as_array().unwrap().len(), 3, "with the conversation");
    assert_eq!(pair.at(0).get(&path(&second)).await.json(), second);
    let items = pair.at(0).get(&format!("{}/input_items", path(&second))).await.json();
    assert_eq!(items["data"].as_array().unwrap().len(), 3, "{items}");
    // A deleted response is gone everywhere at once.
    assert_eq!(pair.at(1).send("DELETE", &path(&first), &[], b"").await.status, 200);
    for gateway in 0..2 {
        assert_eq!(pair.at(gateway).get(&path(&first)).await.status, 404);
        assert_eq!(pair.at(gateway).send("DELETE", &path(&first), &[], b"").await.status, 404);
    }
}

/// Tests that a background response can be polled at the other gateway, and read there after its own gateway was
/// killed.
async fn the_other_gateway_continues(pair: &mut Pair) {
    let (image, go) = (image(pair, 0).await, Arc::new(Notify::new()));
    let finished = stored(&pair.at(0), &Value::Null).await;
    pair.provider.always(held(&go, "Done"));
    let calls = pair.provider.calls();
    let ask = json!({"model": "m", "input": "Hi", "background": true});
    let response = pair.at(0).post(RESPONSES, &ask).await.json();
    pair.provider.until_calls(calls + 1).await;
    background(&pair.at(1), &response, "in_progress").await;
    pair.gateways[0].signal("KILL");
    pair.gateways[0].until_ended().await;
    assert_is_image(&nobody(pair, 1).get(&image).await);
    assert_eq!(pair.at(1).get(&path(&finished)).await.json(), finished);
    pair.provider.until_calls(calls + 2).await;
    let done = let_go(&go, background(&pair.at(1), &response, "completed")).await;
    pair.provider.always(plain("Again"));
    assert_eq!(done["output"][0]["content"][0]["text"], "Done");
    pair.gateways[0] = pair.homes[0].run().await;
    assert_eq!(pair.at(0).get(&path(&response)).await.json(), done);
    assert_is_image(&nobody(pair, 0).get(&image).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_of_a_shared_folder_serve_the_images_and_responses_of_each_other() {
    let mut pair = Pair::start_with(None, IMAGE_MODEL).await;
    images_are_served_by_both(&pair).await;
    responses_are_shared(&pair).await;
    the_other_gateway_continues(&mut pair).await;
    assert_eq!(files_of(pair.folder(), "/images/").len(), 3);
    for file in files_of(pair.folder(), "/responses/") {
        let content = fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&content).contains("\"input\""), "encrypted");
    }
    for home in &pair.homes {
        assert!(files_of(&home.storage(), "responses/").is_empty(), "nothing is stored at one gateway alone");
    }
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_of_a_bucket_serve_the_images_and_responses_of_each_other() {
    let mut server = SeaweedServer::start();
    let mut pair = Pair::start_with(Some(&server), IMAGE_MODEL).await;
    images_are_served_by_both(&pair).await;
    responses_are_shared(&pair).await;
    the_other_gateway_continues(&mut pair).await;

    let (made, response) = (image(&pair, 0).await, stored(&pair.at(0), &Value::Null).await);
    server.kill();
    for answer in [nobody(&pair, 1).get(&made).await, pair.at(1).get(&path(&response)).await] {
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (503, &json!("INFERENCE_3103")));
    }
    // While the bucket is down, a gateway still serves its own images, and answers 404 for an invented name without a
    // call to the bucket.
    let alone = image(&pair, 0).await;
    pair.gateways[0].wait_for_line("image_not_shared").await;
    assert_is_image(&nobody(&pair, 0).get(&alone).await);
    assert_eq!(nobody(&pair, 1).get(&format!("/v1/images/content/{}", "0".repeat(48))).await.status, 404);
    server.restart();
    let is_back = async || nobody(&pair, 1).get(&made).await.status == 200;
    until_answered("the bucket to be noticed", is_back).await;
    assert_eq!(pair.at(1).get(&path(&response)).await.json(), response);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_from_before_the_fleet_is_read_and_deleted_at_its_gateway() {
    let mut pair = Pair::start().await;
    let response = stored(&pair.at(0), &Value::Null).await;
    pair.stop().await;
    let earlier = pair.homes[0].storage().join("responses");
    let folder = pair.folder().join("responses");
    fs::remove_dir_all(&earlier).ok();
    fs::rename(&folder, &earlier).unwrap();
    for gateway in 0..2 {
        pair.gateways[gateway] = pair.homes[gateway].run().await;
    }
    assert_eq!(pair.at(0).get(&path(&response)).await.json(), response);
    assert_eq!(pair.at(1).get(&path(&response)).await.status, 404);
    assert_eq!(pair.at(0).send("DELETE", &path(&response), &[], b"").await.status, 200);
    assert_eq!(pair.at(0).get(&path(&response)).await.status, 404);
    assert!(files_of(&earlier, "resp_").is_empty());
    pair.stop().await;
}
