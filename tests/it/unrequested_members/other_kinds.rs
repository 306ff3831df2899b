//! Members that the gateway adds to requests for vectors, scores and images.

use super::{calls, refusing, wordings};
use crate::harness::Bench;
use crate::harness::gateway::PATIENT;
use crate::harness::script::{json_answer, scores, vectors};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn formats_of_vectors_scores_and_images_are_left_out_where_they_are_refused() {
    let image = json_answer(200, &json!({"created": 1, "data": [{"b64_json": "iVBORw0KGgo="}]}));
    for (kind, offer, member, path, ask, good) in [
        (
            "embedding",
            "",
            "encoding_format",
            "/v1/embeddings",
            json!({"model": "m", "input": "Hi"}),
            vectors(&[&[0.5]], 3),
        ),
        (
            "rerank",
            "shape = \"jina\"",
            "return_documents",
            "/v1/rerank",
            json!({"model": "m", "query": "q", "documents": ["a"]}),
            scores(&[0.5], 3),
        ),
        (
            "image",
            "",
            "response_format",
            "/v1/images/generations",
            json!({"model": "m", "prompt": "a cat", "response_format": "b64_json"}),
            image,
        ),
    ] {
        for (code, body) in wordings(member) {
            let (provider, asked) = refusing(member, code, body, good.clone()).await;
            let running = Bench::new()
                .kind(kind)
                .model("supported_parameters = [\"encoding_format\"]")
                .provider_with("a", &provider, PATIENT, offer)
                .start()
                .await;
            for count in [2, 1] {
                let answer = running.client.post(path, &ask).await;
                assert_eq!(answer.status, 200, "{kind}: {}", answer.text());
                assert_eq!(calls(&asked), count, "{kind}");
            }
        }
    }
}
