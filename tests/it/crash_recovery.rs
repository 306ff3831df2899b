//! Kills at random moments during batches with retries, cancels and deletions, checked against a model: acknowledged
//! and observed state persists, each line has one result and each good result one charge. A third of the kills comes
//! at a random moment, a third right after an acknowledgement, and a third right after a provider call, during a
//! commit. `PENSTOCK_KILLS` sets the number (18), `PENSTOCK_SEED` the seed.

use crate::harness::batch_jobs::{CHAT, cancel, create, line, upload};
use crate::harness::process::{Home, catalogue, complaint};
use crate::harness::script::{plain, status};
use crate::harness::{Answer, Client, Provider, is_long_run, within};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Number of lines in flight.
const AT_WORK: usize = 8;
/// Number of further starts after which an ended batch is checked again.
const LOOKS: u32 = 2;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |number| number.parse().unwrap())
}

/// Pseudo-random numbers of a seed.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most.max(1)
    }
}

/// Action of a client, and the result as far as the client knows it.
enum ClientAction {
    Uploaded(String, String),
    Created(Value),
    Looked(Value),
    MayCancel(String),
    Cancelled(Value),
    MayDelete(String),
    Deleted(String),
}

/// Known state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKnowledge {
    Yes,
    No,
    Perhaps,
}

/// Known state of a batch.
struct Seen {
    last: Value,
    results: String,
    cancelled: bool,
    looks: u32,
}

#[derive(Default)]
struct Model {
    files: BTreeMap<String, (String, FileKnowledge)>,
    batches: BTreeMap<String, Seen>,
    outputs: BTreeMap<String, FileKnowledge>,
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn count(batch: &Value, name: &str) -> u64 {
    batch["request_counts"][name].as_u64().unwrap()
}

fn answered(batch: &Value) -> u64 {
    count(batch, "completed") + count(batch, "failed")
}

fn is_over(batch: &Value) -> bool {
    !["validating", "in_progress"].contains(&batch["status"].as_str().unwrap())
}

impl Model {
    fn learn(&mut self, did: ClientAction) {
        match did {
            ClientAction::Uploaded(id, text) => {
                self.files.insert(id, (text, FileKnowledge::Yes));
            }
            ClientAction::Created(batch) | ClientAction::Looked(batch) => self.meet(batch),
            ClientAction::MayCancel(id) => {
                // The check after the next start shows if the cancellation was applied.
                self.batches.entry(id).and_modify(|seen| seen.looks = 0);
            }
            ClientAction::Cancelled(batch) => {
                let id = text(&batch, "id");
                self.meet(batch);
                self.batches.entry(id).and_modify(|seen| seen.cancelled = true);
            }
            ClientAction::MayDelete(id) => self.set(&id, FileKnowledge::Perhaps),
            ClientAction::Deleted(id) => self.set(&id, FileKnowledge::No),
        }
    }

    fn set(&mut self, file: &str, there: FileKnowledge) {
        match self.files.get_mut(file) {
            Some(known) => known.1 = there,
            None => {
                self.outputs.insert(file.to_owned(), there);
            }
        }
    }

    fn meet(&mut self, batch: Value) {
        let id = text(&batch, "id");
        match self.batches.get_mut(&id) {
            Some(seen) => seen.last = batch,
            None => {
                let seen = Seen { last: batch, results: String::new(), cancelled: false, looks: 0 };
                self.batches.insert(id, seen);
            }
        }
    }

    /// Compares the state after a start with the known state before the kill.
    async fn check(&mut self, client: &Client) {
        for (id, (text, there)) in &mut self.files {
            let read = client.get(&format!("/v1/files/{id}/content")).await;
            match (read.status, *there) {
                (200, FileKnowledge::Yes | FileKnowledge::Perhaps) => {
                    assert_eq!(read.text(), *text, "the contents of {id}");
                    *there = FileKnowledge::Yes;
                }
                (404, FileKnowledge::No | FileKnowledge::Perhaps) => *there = FileKnowledge::No,
                (status, there) => panic!("{id} is there: {there:?}, and its contents are {status}"),
            }
        }
        self.files.retain(|_, (_, there)| *there != FileKnowledge::No);
        for seen in self.batches.values_mut().filter(|seen| seen.looks < LOOKS) {
            look(client, seen, &mut self.outputs).await;
        }
    }
}

/// Checks that a batch only progresses: its counts rise, its results grow, its end does not change.
async fn look(client: &Client, seen: &mut Seen, outputs: &mut BTreeMap<String, FileKnowledge>) {
    let id = text(&seen.last, "id");
    let read = client.get(&format!("/v1/batches/{id}")).await;
    assert_eq!(read.status, 200, "{id} was acknowledged: {}", read.text());
    let (before, now) = (std::mem::take(&mut seen.last), read.json());
    if is_over(&before) {
        assert_eq!(now, before, "it was over");
    }
    assert!(!seen.cancelled || now["status"] == "cancelled", "{now}");
    for name in ["completed", "failed"] {
        assert!(count(&now, name) >= count(&before, name), "{before} became {now}");
    }
    let output = text(&now, "output_file_id");
    if !output.is_empty() {
        let there = *outputs.entry(output.clone()).or_insert(FileKnowledge::Yes);
        let read = client.get(&format!("/v1/files/{output}/content")).await;
        match (read.status, there) {
            (200, FileKnowledge::Yes | FileKnowledge::Perhaps) => {
                let results = read.text();
                assert!(results.starts_with(&seen.results), "what was seen of {output} is gone");
                let lines = results.lines().count() as u64;
                assert!(
                    lines >= answered(&now) && (!is_over(&now) || lines == answered(&now)),
                    "{lines}: {now}"
                );
                outputs.insert(output, FileKnowledge::Yes);
                seen.results = results;
            }
            (404, FileKnowledge::No | FileKnowledge::Perhaps) => {
                outputs.insert(output, FileKnowledge::No);
            }
            (status, there) => panic!("{output} is there: {there:?}, and its contents are {status}"),
        }
    } else {
        assert_eq!(answered(&now), 0, "results without a file: {now}");
    }
    seen.looks += u32::from(is_over(&now));
    seen.last = now;
}

/// Actions of a client, and the number of its acknowledgements.
#[derive(Clone)]
struct AcknowledgedState {
    did: Arc<Mutex<Vec<ClientAction>>>,
    times: watch::Sender<usize>,
}

impl AcknowledgedState {
    /// Records an acknowledgement and notifies the killer at once.
    fn tell(&self, did: ClientAction) {
        self.did.lock().push(did);
        self.times.send_modify(|times| *times += 1);
    }
}

/// Waits for the moment of a kill.
async fn moment(kill: u64, chance: &mut SeededRandom, acknowledged: &AcknowledgedState, provider: &Provider) {
    let (pause, calls) = (Duration::from_millis(chance.below(400) as u64), provider.calls());
    let wait = async {
        match kill % 3 {
            0 => tokio::time::sleep(pause).await,
            1 => {
                let wanted = chance.below(12) + 1;
                acknowledged.times.subscribe().wait_for(|times| *times >= wanted).await.unwrap();
            }
            _ => {
                let wanted = calls + chance.below(120) + 1;
                while provider.calls() < wanted {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(2), wait).await.ok();
}

fn good(answer: &Answer) -> bool {
    answer.status == 200 && answer.whole
}

/// Runs a client that creates batches, cancels some and deletes some files, until the gateway is killed.
async fn drive(client: Client, mut chance: SeededRandom, open: Vec<Value>, acknowledged: AcknowledgedState) {
    let (mut open, mut made) = (open, 0);
    loop {
        let one = open.get(chance.below(open.len().max(1))).cloned();
        match (chance.below(12), one) {
            (0..=4, _) if made < 2 => {
                made += 1;
                let lines: String = (0..chance.below(100) + 4)
                    .map(|number| {
                        line(&format!("line-{number}"), &format!("{}", chance.below(1 << 30))) + "\n"
                    })
                    .collect();
                let answer = upload(&client, &lines).await;
                if !good(&answer) {
                    continue;
                }
                let file = text(&answer.json(), "id");
                acknowledged.tell(ClientAction::Uploaded(file.clone(), lines));
                let answer = create(&client, &file).await;
                if good(&answer) {
                    acknowledged.tell(ClientAction::Created(answer.json()));
                    open.push(answer.json());
                }
            }
            (8..=9, Some(batch)) => {
                let now = client.get(&format!("/v1/batches/{}", text(&batch, "id"))).await;
                if good(&now) {
                    acknowledged.tell(ClientAction::Looked(now.json()));
                }
            }
            (5, Some(batch)) => {
                acknowledged.did.lock().push(ClientAction::MayCancel(text(&batch, "id")));
                let answer = cancel(&client, &batch).await;
                if good(&answer) {
                    acknowledged.tell(ClientAction::Cancelled(answer.json()));
                }
            }
            (6, Some(batch)) if chance.below(3) == 0 => {
                delete(&client, &text(&batch, "input_file_id"), &acknowledged).await;
            }
            (7, Some(batch)) if chance.below(3) == 0 => {
                let now = client.get(&format!("/v1/batches/{}", text(&batch, "id"))).await;
                let output = text(&now.json(), "output_file_id");
                if !output.is_empty() && is_over(&now.json()) {
                    delete(&client, &output, &acknowledged).await;
                }
            }
            _ => tokio::time::sleep(Duration::from_millis(chance.below(20) as u64)).await,
        }
    }
}

async fn delete(client: &Client, file: &str, acknowledged: &AcknowledgedState) {
    acknowledged.did.lock().push(ClientAction::MayDelete(file.to_owned()));
    let answer = client.send("DELETE", &format!("/v1/files/{file}"), &[], b"").await;
    if good(&answer) || (answer.status == 404 && answer.whole) {
        acknowledged.tell(ClientAction::Deleted(file.to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments_every_line_has_one_result_and_every_good_one_its_charge() {
    let (kills, seed) = (
        setting("PENSTOCK_KILLS", if is_long_run() { 500 } else { 18 }),
        setting("PENSTOCK_SEED", 20_261_122),
    );
    let mut chance = SeededRandom(seed | 1);
    let provider = Provider::start().await;
    let home = Home::new();
    let settings = format!(
        "[billing]\ncredit = \"prepaid\"\n[batches]\nconcurrency = {AT_WORK}\nretry_first = \"10ms\"\n\
         retry_most = \"50ms\"\n[files]\nkeep_free = \"0B\"\n"
    );
    home.write(&format!("{settings}{}", catalogue(&provider, "")));
    let granted = home.command(&["credits", "grant", "default", "--credits", "100000"]);
    assert!(granted.status.success(), "{}", complaint(&granted));
    let (client, _) = home.key();
    let (mut model, mut failures) = (Model::default(), 0);
    for kill in 0..kills {
        for _ in 0..chance.below(3) {
            failures += 1;
            provider.then(status(503)).then(plain("after one that failed"));
        }
        let process = home.run().await;
        model.check(&client).await;
        let open = model.batches.values().filter(|seen| !is_over(&seen.last)).map(|seen| seen.last.clone());
        let acknowledged = AcknowledgedState { did: Arc::default(), times: watch::Sender::new(0) };
        let driver = drive(
            client.clone(),
            SeededRandom(seed ^ (kill << 20) | 1),
            open.collect(),
            acknowledged.clone(),
        );
        let driver = tokio::spawn(driver);
        moment(kill, &mut chance, &acknowledged, &provider).await;
        process.kill().await;
        driver.abort();
        driver.await.ok();
        for did in std::mem::take(&mut *acknowledged.did.lock()) {
            model.learn(did);
        }
        // Sometimes the gateway is killed during its start too, at a random moment.
        if chance.below(3) == 0 {
            let process = home.spawn();
            tokio::time::sleep(Duration::from_millis(chance.below(250) as u64)).await;
            process.kill().await;
        }
    }
    let mut process = home.run().await;
    model.check(&client).await;
    let all = within("every batch to end", async {
        loop {
            let all = batches(&client).await;
            if all.iter().all(is_over) {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    model.batches.values_mut().for_each(|seen| seen.looks = 0);
    model.check(&client).await;
    let known: BTreeSet<String> = all.iter().map(|batch| text(batch, "id")).collect();
    assert!(model.batches.keys().all(|id| known.contains(id)), "an acknowledged batch is not listed");
    process.signal("TERM");
    process.until_ended().await;
    accounts(&home, &model, &all);
    let lines: u64 = all.iter().map(|batch| count(batch, "total")).sum();
    let most = lines + kills * 2 * AT_WORK as u64 + failures;
    assert!(provider.calls() as u64 <= most, "{} calls for {lines} lines, {most} at most", provider.calls());
    assert!(lines > kills * 4, "{lines} lines are too few to tell anything");
}

/// Every batch of the key, page by page.
async fn batches(client: &Client) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/batches?limit=100{after}")).await.json();
        all.extend(page["data"].as_array().unwrap().iter().cloned());
        if page["has_more"] != json!(true) {
            return all;
        }
        after = format!("&after={}", text(&page, "last_id"));
    }
}

/// Checks that the charges equal the results, and that the stored state is valid.
fn accounts(home: &Home, model: &Model, all: &[Value]) {
    // A command that writes to the ledger voids the reserves that a kill left open; verifying changes nothing.
    for words in [["credits", "balance"], ["store", "verify"], ["credits", "verify"]] {
        let proof = home.command(&words);
        assert!(proof.status.success(), "{words:?}: {}", complaint(&proof));
        let proof = String::from_utf8(proof.stdout).unwrap();
        assert!(!proof.contains("open reserves") || proof.contains(", 0 open reserves"), "{proof}");
    }
    let mut charges: BTreeMap<String, u32> = BTreeMap::new();
    let exported = String::from_utf8(home.command(&["credits", "export"]).stdout).unwrap();
    for entry in exported.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        if entry["act"] == "settle" {
            *charges.entry(text(&entry, "request")).or_default() += 1;
        }
    }
    assert!(charges.values().all(|times| *times == 1), "a request is charged twice");
    let completed: u64 = all.iter().map(|batch| count(batch, "completed")).sum();
    assert_eq!(charges.len() as u64, completed, "charges equal good results");
    for seen in model.batches.values() {
        let mut ids = BTreeSet::new();
        for result in seen.results.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            assert!(ids.insert(text(&result, "custom_id")), "a line has two results: {result}");
            let request = text(&result, "id").trim_start_matches("batch_").to_owned();
            let good = result["status_code"] == 200;
            assert_eq!(charges.contains_key(&request), good, "{CHAT}: {result}");
        }
    }
}
