//! Upgrades under load: nothing is refused, nothing is cut, charges are right.

use super::crowd::{Crowd, Heir, acts, charges, processes, said, signal, upgrade};
use super::size;
use crate::harness::client::Open;
use crate::harness::jobs;
use crate::harness::process::{Home, catalogue, complaint};
use crate::harness::script::{Act, Script, done, finish, plain, role, sse, text, usage};
use crate::harness::{Client, Provider, until, within};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const CHAT: &str = "/v1/chat/completions";

pub fn ask(model: &str, stream: bool) -> Value {
    json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hi"}]})
}

/// A stream that waits in its middle.
pub fn waits(go: &Arc<Notify>) -> Script {
    let mut script = vec![sse(), role(), text("One "), Act::Wait(go.clone()), text("two")];
    script.extend([finish("stop"), usage(11, 2), done(), Act::End]);
    script
}

/// A model `m` that answers at once, and a model `s` that streams as told.
pub fn two(quick: &Provider, slow: &Provider) -> String {
    let second = catalogue(slow, "").replace("id = \"m\"", "id = \"s\"").replace("id = \"a\"", "id = \"b\"");
    let second = second.replace("model = \"m\"", "model = \"s\"");
    format!("{}{second}", catalogue(quick, ""))
}

/// Streams that are being read.
pub struct Streams {
    go: Arc<Notify>,
    readers: Vec<JoinHandle<bool>>,
}

impl Streams {
    /// Opens so many, each as far as its first word.
    pub async fn open(client: &Client, provider: &Provider, count: usize) -> Self {
        let go = Arc::new(Notify::new());
        provider.always(waits(&go));
        let mut open: Vec<Open> = Vec::new();
        while open.len() < count {
            let some = (open.len()..count.min(open.len() + 50)).map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.stream_until(CHAT, &ask("s", true), "One ").await })
            });
            for stream in some.collect::<Vec<_>>() {
                open.push(stream.await.unwrap());
            }
        }
        let read = |mut stream: Open| {
            tokio::spawn(async move {
                let answer = stream.finish().await;
                answer.whole
                    && answer.streamed() == "One two"
                    && penstock_dialect::grammar::chat(&answer.body, false).is_ok()
            })
        };
        Self { go, readers: open.into_iter().map(read).collect() }
    }

    /// Lets them end; how many were not whole.
    pub async fn end(self) -> usize {
        let go = self.go.clone();
        let goer = tokio::spawn(async move {
            loop {
                go.notify_waiters();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let mut broken = 0;
        for reader in self.readers {
            broken += usize::from(!within("a stream to end", reader).await.unwrap());
        }
        goer.abort();
        broken
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_under_load_refuse_nothing_and_cut_nothing() {
    let (upgrades, streams) = (size(20, 3), size(1_000, 60));
    let (quick, slow) = (Provider::start().await, Provider::start().await);
    quick.always(plain("Hello"));
    let home = Home::new();
    home.write(&two(&quick, &slow));
    let first = home.run().await;
    let (client, _) = home.key();
    let crowd = Crowd::start(home.http, &client.key, &ask("m", false), size(30, 6), 10);
    let (mut heirs, mut generations): (Vec<Heir>, Vec<(u32, Streams)>) = (Vec::new(), Vec::new());
    let (mut broken, mut gone, mut took) = (0, Vec::new(), Vec::new());
    for number in 0..upgrades {
        // Each process has half of the streams: those of two are open at any time.
        let half = Streams::open(&client, &slow, streams / 2).await;
        generations.push((*processes(&home).last().unwrap(), half));
        let begun = Instant::now();
        heirs.push(upgrade(&home).await);
        took.push(begun.elapsed());
        if number > 0 {
            let (process, half) = generations.remove(0);
            broken += half.end().await;
            let ended = Instant::now();
            Heir(process).until_gone().await;
            gone.push(ended.elapsed());
        }
    }
    for (_, half) in generations {
        broken += half.end().await;
    }
    let tally = crowd.stop().await;
    let last = heirs.pop().unwrap();
    last.signal("TERM");
    last.until_gone().await;
    drop(first);
    let (answered, refused) = (tally.answered.load(Ordering::SeqCst), tally.refused.load(Ordering::SeqCst));
    let (longest, slowest) = (gone.iter().max().unwrap(), tally.slowest_us.load(Ordering::SeqCst));
    eprintln!(
        "{upgrades} upgrades, {answered} requests, {} streams: {refused} refused, {broken} cut; an upgrade took {:?} at \
         most, a process was gone {longest:?} after its last stream, the slowest request took {} ms",
        upgrades * (streams / 2),
        took.iter().max().unwrap(),
        slowest / 1_000
    );
    assert_eq!(refused, 0, "{:?}", tally.wrong.lock());
    assert_eq!(broken, 0);
    assert!(*longest <= Duration::from_secs(2), "{gone:?}");
    let lines = said(&home);
    assert!(!lines.contains("\"handover_") && !lines.contains("predecessor_lost"), "{lines}");
    assert_eq!(charges(&home), answered + upgrades * (streams / 2));
    assert_eq!(quick.calls() + slow.calls(), answered + upgrades * (streams / 2));
    for words in [["store", "verify"], ["credits", "verify"]] {
        let proof = home.command(&words);
        assert!(proof.status.success(), "{}", complaint(&proof));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_batches_and_keys_outlive_an_upgrade() {
    let (quick, slow) = (Provider::start().await, Provider::start().await);
    quick.always(plain("Hello"));
    let home = Home::new();
    home.write(&two(&quick, &slow));
    let _first = home.run().await;
    let (client, id) = home.key();
    let (other, _) = home.key();
    // An upload stops half-way, a batch is at work, a stream is open.
    let lines = jobs::lines(200);
    let batch = jobs::batch(&client, &lines).await;
    let body = format!(
        "--cut\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--cut\r\ncontent-disposition: \
         form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n{lines}\r\n--cut--\r\n"
    );
    let (half, rest) = body.as_bytes().split_at(body.len() / 2);
    let length = body.len().to_string();
    let headers = [("content-type", "multipart/form-data; boundary=cut"), ("content-length", &*length)];
    let mut upload = other.open("POST", "/v1/files", &headers, half).await;
    let stream = Streams::open(&client, &slow, 1).await;
    let next = upgrade(&home).await;
    upload.send(rest).await;
    let kept = within("the upload", upload.finish()).await;
    assert_eq!(kept.status, 200, "{}", kept.text());
    let file = kept.json()["id"].as_str().unwrap().to_owned();
    let read = other.get(&format!("/v1/files/{file}/content")).await;
    assert_eq!(read.text(), lines, "the process that has the store now has the file");
    let ended = jobs::ended(&client, &batch).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(jobs::results(&client, &ended).await.len(), 200);
    // Revoked in the new process, ended in the old one.
    assert!(home.command(&["keys", "revoke", &id]).status.success());
    assert!(
        !within("the stream of a revoked key", stream.readers.into_iter().next().unwrap()).await.unwrap()
    );
    until("the old process to end", || said(&home).contains("\"stopped\"")).await;
    next.signal("TERM");
    next.until_gone().await;
    assert!(acts(&home).values().all(|acts| acts.len() == 2));
    let proof = home.command(&["store", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_draining_process_charges_counts_in_the_next_one() {
    let (quick, slow) = (Provider::start().await, Provider::start().await);
    let home = Home::new();
    home.write(&two(&quick, &slow));
    let _first = home.run().await;
    let (client, _) = home.key();
    let streams = Streams::open(&client, &slow, 5).await;
    let next = upgrade(&home).await;
    until("the reserves", || acts(&home).len() == 5).await;
    assert!(acts(&home).values().all(|acts| acts.len() == 1), "reserved, and not voided");
    assert_eq!(streams.end().await, 0);
    until("the charges", || acts(&home).values().all(|acts| acts.len() == 2)).await;
    assert_eq!(charges(&home), 5);
    signal(next.0, "TERM");
    next.until_gone().await;
}
