//! Verification of the state after a power cut.

use super::recorded_client::{Acknowledgement, RecordedActions};
use crate::harness::Client;
use crate::harness::batch_jobs::ended;
use crate::harness::process::{Home, complaint};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub struct StateVerifier<'a> {
    /// Home of a gateway that has the disk image as its storage folder.
    pub home: Home,
    pub story: &'a RecordedActions,
    /// Position of the power cut in the trace.
    pub position: u64,
}

/// Returns an error with this sentence unless the condition is true.
macro_rules! so {
    ($is:expr, $($why:tt)+) => {
        if !$is {
            return Err(format!($($why)+));
        }
    };
}

impl StateVerifier<'_> {
    pub async fn judge(&self) -> Result<(), String> {
        let mut process = self.home.run().await;
        let client = Client { address: self.home.http, ..self.story.client.clone() };
        let mut charged = BTreeSet::new();
        let mut ends = BTreeMap::new();
        for batch in list(&client, "/v1/batches").await? {
            let end = ended(&client, &batch).await;
            let lost = text(&end["errors"]["data"][0]["code"]) == "input_file_deleted"
                && self.may_be_gone(text(&end["input_file_id"]));
            so!(
                ["completed", "cancelled"].contains(&text(&end["status"])) || lost,
                "it ended otherwise: {end}"
            );
            let found = results(&client, &end).await?;
            let counts = &end["request_counts"];
            let counted = counts["completed"].as_u64().zip(counts["failed"].as_u64());
            so!(counted == Some((found.len() as u64, 0)), "{} results of {end}", found.len());
            let id = |result: &Value| text(&result["id"]).trim_start_matches("batch_").to_owned();
            charged.extend(found.values().map(id));
            ends.insert(text(&end["id"]).to_owned(), end);
        }
        for (at, fact) in &self.story.facts {
            if *at <= self.position {
                self.holds(&client, fact, &ends).await?;
            }
        }
        self.whole(&client).await?;
        process.signal("TERM");
        so!(process.until_ended().await.code() == Some(0), "{}", process.output());
        self.charges(&charged)
    }

    /// Returns true if the client had started to delete the file before the power cut.
    fn may_be_gone(&self, file: &str) -> bool {
        self.story.deletes.iter().any(|(id, at)| id == file && self.position > *at)
    }

    /// Checks that acknowledged state is present.
    async fn holds(
        &self,
        client: &Client,
        fact: &Acknowledgement,
        ends: &BTreeMap<String, Value>,
    ) -> Result<(), String> {
        let path = |id: &str| format!("/v1/files/{id}/content");
        match fact {
            Acknowledgement::Uploaded { id } => {
                let given = client.get(&path(id)).await;
                let gone = self.may_be_gone(id) && given.status == 404;
                let known = given.whole && self.story.texts.iter().any(|text| text.as_bytes() == given.body);
                so!(gone || (given.status == 200 && known), "file {id}: {} {known}", given.status);
            }
            Acknowledgement::Deleted { id } => {
                let given = client.get(&path(id)).await;
                so!(given.status == 404, "file {id} was deleted and answers {}", given.status);
            }
            Acknowledgement::Created { batch } => {
                so!(ends.contains_key(text(&batch["id"])), "the batch is gone: {batch}");
            }
            Acknowledgement::Results { batch, text: seen } => {
                let given = client.get(&path(text(&batch["output_file_id"]))).await;
                let is_unchanged = given.status == 200 && given.body.starts_with(seen.as_bytes());
                so!(is_unchanged, "results that were given are others now: {} {batch}", given.status);
            }
            Acknowledgement::Ended { batch } => {
                let now = ends.get(text(&batch["id"]));
                so!(now == Some(batch), "it had ended otherwise: {batch}, now {now:?}");
            }
        }
        Ok(())
    }

    /// Checks that no file is partial, and that the client knows every file.
    async fn whole(&self, client: &Client) -> Result<(), String> {
        for file in list(client, "/v1/files").await? {
            let given = client.get(&format!("/v1/files/{}/content", text(&file["id"]))).await;
            let all = given.status == 200
                && given.whole
                && file["bytes"] == given.body.len()
                && file["status"] == "processed";
            so!(all, "a file that is not whole: {} {file}", given.status);
            let known = self.story.texts.iter().any(|text| text.as_bytes() == given.body);
            so!(known || file["purpose"] == "batch_output", "a file that nobody uploaded: {file}");
        }
        Ok(())
    }

    /// Checks that each result is charged once, and that there are no other charges.
    fn charges(&self, results: &BTreeSet<String>) -> Result<(), String> {
        // A command that writes to the ledger voids the reserves that a kill left open; verifying changes nothing.
        so!(self.home.command(&["credits", "balance"]).status.success(), "the ledger cannot be taken up");
        let proof = self.home.command(&["credits", "verify"]);
        so!(proof.status.success(), "{}", complaint(&proof));
        let proof = String::from_utf8(proof.stdout).unwrap();
        so!(proof.contains(", 0 open reserves"), "{proof}");
        let entries = String::from_utf8(self.home.command(&["credits", "export"]).stdout).unwrap();
        let entries = entries.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let settled: Vec<String> = entries
            .filter(|entry| entry["act"] == "settle")
            .map(|entry| text(&entry["request"]).to_owned())
            .collect();
        let once: BTreeSet<String> = settled.iter().cloned().collect();
        so!(once.len() == settled.len(), "something was charged twice");
        so!(once == *results, "{} charges for {} results", once.len(), results.len());
        Ok(())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the results by `custom_id`; checks that each is present once.
async fn results(client: &Client, batch: &Value) -> Result<BTreeMap<String, Value>, String> {
    let mut found = BTreeMap::new();
    let Some(id) = batch["output_file_id"].as_str() else { return Ok(found) };
    let given = client.get(&format!("/v1/files/{id}/content")).await;
    so!(given.status == 200 && given.whole, "file {id} with results: {}", given.status);
    for line in given.text().lines() {
        let result: Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
        let id = text(&result["custom_id"]).to_owned();
        so!(found.insert(id, result).is_none(), "twice: {line}");
    }
    Ok(found)
}

async fn list(client: &Client, path: &str) -> Result<Vec<Value>, String> {
    let page = client.get(&format!("{path}?limit=100")).await;
    so!(page.status == 200, "{path}: {} {}", page.status, page.text());
    Ok(page.json()["data"].as_array().cloned().unwrap_or_default())
}
