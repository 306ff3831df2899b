//! Client of the recorded gateway and its acknowledgements, each with the length of the trace at that moment: a power
//! cut after it must retain the acknowledged state.

use crate::harness::Client;
use crate::harness::batch_jobs::{cancel, content, create, ended, lines, retrieve, upload, uploaded};
use crate::harness::process::Home;
use serde_json::Value;
use std::path::Path;

/// Acknowledgement to a client.
pub enum Acknowledgement {
    /// A file exists.
    Uploaded { id: String },
    /// A file is deleted.
    Deleted { id: String },
    /// A batch exists.
    Created { batch: Value },
    /// The client has read these results of the batch.
    Results { batch: Value, text: String },
    /// Final state.
    Ended { batch: Value },
}

/// Actions of the client and their acknowledgements.
pub struct RecordedActions {
    pub client: Client,
    /// Trace position at which the key exists.
    pub begin: u64,
    pub facts: Vec<(u64, Acknowledgement)>,
    /// Uploads, acknowledged or not.
    pub texts: Vec<String>,
    /// Deleted files, and the trace positions after which they may be gone.
    pub deletes: Vec<(String, u64)>,
}

struct RecordingClient<'a> {
    log: &'a Path,
    client: Client,
    facts: Vec<(u64, Acknowledgement)>,
    deletes: Vec<(String, u64)>,
}

fn trace_position(log: &Path) -> u64 {
    std::fs::metadata(log).unwrap().len()
}

impl RecordingClient<'_> {
    fn tell(&mut self, fact: Acknowledgement) {
        self.facts.push((trace_position(self.log), fact));
    }

    async fn upload(&mut self, text: &str) -> String {
        let id = uploaded(&self.client, text).await;
        self.tell(Acknowledgement::Uploaded { id: id.clone() });
        id
    }

    async fn delete(&mut self, id: &str) {
        self.deletes.push((id.to_owned(), trace_position(self.log)));
        let gone = self.client.send("DELETE", &format!("/v1/files/{id}"), &[], b"").await;
        assert_eq!(gone.status, 200, "{}", gone.text());
        self.tell(Acknowledgement::Deleted { id: id.to_owned() });
    }

    /// Creates a batch, and waits until it has some results.
    async fn works(&mut self, input: &str) -> Value {
        let batch = self.create(input).await;
        let started = |now: &Value| now["request_counts"]["completed"].as_u64() > Some(5);
        crate::harness::batch_jobs::when(&self.client, &batch, "some results", started).await
    }

    async fn create(&mut self, file: &str) -> Value {
        let answer = create(&self.client, file).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let batch = answer.json();
        self.tell(Acknowledgement::Created { batch: batch.clone() });
        batch
    }

    /// Reads the results until the batch has ended.
    async fn follow(&mut self, batch: &Value) {
        let mut seen = 0;
        loop {
            let now = retrieve(&self.client, batch).await;
            let done = now["request_counts"]["completed"].as_u64().unwrap();
            if done > seen {
                seen = done;
                let text = content(&self.client, &now["output_file_id"]).await;
                assert!(text.lines().count() as u64 >= done, "fewer results than counted");
                self.tell(Acknowledgement::Results { batch: now.clone(), text });
            }
            if now["status"] == "completed" {
                return self.tell(Acknowledgement::Ended { batch: now });
            }
            assert!(["validating", "in_progress"].contains(&now["status"].as_str().unwrap()), "{now}");
        }
    }
}

impl RecordedActions {
    pub async fn play(home: &Home, log: &Path) -> Self {
        let (client, _) = home.key();
        let begin = trace_position(log);
        let mut teller = RecordingClient { log, client, facts: Vec::new(), deletes: Vec::new() };
        let texts = [lines(1_200), lines(40), lines(300), lines(60), lines(280)];
        let [large, first, second, late, third] = &texts;
        teller.upload(large).await;
        let refused = upload(&teller.client, "{\"custom_id\":1}\n").await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        let input = teller.upload(first).await;
        let batch = teller.create(&input).await;
        teller.follow(&batch).await;

        // A second batch is cancelled in the middle of its lines, and then its input is deleted.
        let input = teller.upload(second).await;
        let batch = teller.works(&input).await;
        cancel(&teller.client, &batch).await;
        let end = ended(&teller.client, &batch).await;
        teller.tell(Acknowledgement::Ended { batch: end });
        teller.upload(late).await;
        teller.delete(&input).await;

        // The input of a third batch is deleted while it runs.
        let input = teller.upload(third).await;
        let batch = teller.works(&input).await;
        teller.delete(&input).await;
        let end = ended(&teller.client, &batch).await;
        assert_eq!(end["status"], "failed", "{end}");
        teller.tell(Acknowledgement::Ended { batch: end });
        let RecordingClient { client, facts, deletes, .. } = teller;
        Self { client, begin, facts, texts: texts.to_vec(), deletes }
    }
}
