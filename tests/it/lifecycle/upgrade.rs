//! Upgrades under load: no request is refused, no stream is cut, charges are exact.

use super::load_clients::{ClientLoad, SpawnedProcess, acts, charges, log_text, processes, signal, upgrade};
use super::open_streams::{Streams, ask};
use super::transports::{CHAT, Connection, GatewayListeners, Request, RequestFailure, Transport};
use super::{is_full, size};
use crate::harness::batch_jobs;
use crate::harness::process::{Home, catalogue, complaint};
use crate::harness::script::plain;
use crate::harness::{Client, Provider, until, within};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Returns a model `m` that answers at once, and a model `s` whose streams follow a script.
pub fn two(quick: &Provider, slow: &Provider) -> String {
    let second = catalogue(slow, "").replace("id = \"m\"", "id = \"s\"").replace("id = \"a\"", "id = \"b\"");
    let second = second.replace("model = \"m\"", "model = \"s\"");
    format!("{}{second}", catalogue(quick, ""))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_under_load_refuse_nothing_and_cut_nothing() {
    let (upgrades, streams) = (size(20, 3), size(1_000, 60));
    let (quick, slow) = (Provider::start().await, Provider::start().await);
    quick.always(plain("Hello"));
    let mut home = Home::new();
    let listeners = GatewayListeners::of(&mut home);
    home.write(&two(&quick, &slow));
    let first = home.run().await;
    let (client, _) = home.key();
    let crowd = ClientLoad::start(&listeners, &client.key, &ask("m", false), size(30, 6), 10);
    let (mut heirs, mut generations): (Vec<SpawnedProcess>, Vec<(u32, Streams)>) = (Vec::new(), Vec::new());
    let (mut broken, mut gone, mut took) = (0, Vec::new(), Vec::new());
    for number in 0..upgrades {
        // Each process gets half of the streams. The streams of two processes are open at the same time.
        let half = Streams::through(&listeners, &client, &slow, streams / 2).await;
        generations.push((*processes(&home).last().unwrap(), half));
        let begun = Instant::now();
        heirs.push(upgrade(&home).await);
        took.push(begun.elapsed());
        if number > 0 {
            let (process, half) = generations.remove(0);
            broken += half.end().await;
            let ended = Instant::now();
            SpawnedProcess(process).until_gone().await;
            gone.push(ended.elapsed());
        }
    }
    for (_, half) in generations {
        broken += half.end().await;
    }
    let due = crowd.due();
    let tally = crowd.stop().await;
    let last = heirs.pop().unwrap();
    last.signal("TERM");
    last.until_gone().await;
    drop(first);
    let (answered, refused) = (tally.answered(), tally.refused.load(Ordering::SeqCst));
    let (longest, slowest) = (gone.iter().max().unwrap(), tally.slowest_us.load(Ordering::SeqCst));
    eprintln!(
        "{upgrades} upgrades, {answered} requests of {due} that were due, {} of them begun anew over HTTP/2, {} streams: \
         {refused} refused, {broken} cut; an upgrade took {:?} at most, a process was gone {longest:?} after its last \
         stream, the slowest request took {} ms",
        tally.anew.load(Ordering::SeqCst),
        upgrades * (streams / 2),
        took.iter().max().unwrap(),
        slowest / 1_000
    );
    assert_eq!(refused, 0, "{:?}", tally.failures.lock());
    assert_eq!(broken, 0);
    // Requires a minimum number of requests; with few requests, the absence of refusals would prove little.
    assert!(!is_full() || answered >= due / 3, "{answered} of {due}");
    assert!(*longest <= Duration::from_secs(2), "{gone:?}");
    let lines = log_text(&home);
    assert!(!lines.contains("\"handover_") && !lines.contains("predecessor_lost"), "{lines}");
    assert_eq!(charges(&home), answered + upgrades * (streams / 2));
    assert_eq!(quick.calls() + slow.calls(), answered + upgrades * (streams / 2));
    for words in [["store", "verify"], ["credits", "verify"]] {
        let proof = home.command(&words);
        assert!(proof.status.success(), "{}", complaint(&proof));
    }
}

/// Tests clients that open connections all the time during upgrades; none may be refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_handshake_is_in_vain_while_the_socket_changes_hands() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    let mut home = Home::new();
    let listeners = GatewayListeners::of(&mut home);
    home.write(&catalogue(&provider, ""));
    let mut before = home.run().await;
    let (client, _) = home.key();
    let request = Arc::new(Request::new(&client.key, &ask("m", false)));
    let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let asking = |number: usize| {
        let (listeners, request, stop, answered) =
            (listeners.clone(), request.clone(), stop.clone(), answered.clone());
        let transport = [Transport::H2, Transport::Tls][number % 2];
        tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let connection = Connection::open(&listeners, transport, &request).await?;
                let (status, _) = connection.ask(&request).await?;
                assert_eq!(status, 200, "{transport:?}");
                answered.fetch_add(1, Ordering::SeqCst);
            }
            Ok::<_, RequestFailure>(())
        })
    };
    let clients: Vec<_> = (0..size(8, 4)).map(asking).collect();
    let upgrades = size(20, 3);
    let mut heirs: Vec<SpawnedProcess> = Vec::new();
    for number in 0..upgrades {
        heirs.push(upgrade(&home).await);
        // Waits until the previous process has exited, so that only the new process serves.
        match number {
            0 => assert!(before.until_ended().await.success()),
            _ => heirs[number - 1].until_gone().await,
        }
        let some = answered.load(Ordering::SeqCst) + size(50, 8);
        until("handshakes with the new process alone", || answered.load(Ordering::SeqCst) >= some).await;
    }
    stop.store(true, Ordering::SeqCst);
    for client in clients {
        within("a client", client).await.unwrap().unwrap();
    }
    eprintln!(
        "{upgrades} upgrades, {} handshakes and requests, none in vain",
        answered.load(Ordering::SeqCst)
    );
    heirs.last().unwrap().signal("TERM");
    heirs.last().unwrap().until_gone().await;
    assert_eq!(charges(&home), answered.load(Ordering::SeqCst));
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
    // Prepares the state before the upgrade: an incomplete upload, a running batch, and an open stream.
    let lines = batch_jobs::lines(200);
    let batch = batch_jobs::batch(&client, &lines).await;
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
    let uploaded = within("the upload", upload.finish()).await;
    assert_eq!(uploaded.status, 200, "{}", uploaded.text());
    let file = uploaded.json()["id"].as_str().unwrap().to_owned();
    let read = other.get(&format!("/v1/files/{file}/content")).await;
    assert_eq!(read.text(), lines, "the process that has the store now has the file");
    let ended = batch_jobs::ended(&client, &batch).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(batch_jobs::results(&client, &ended).await.len(), 200);
    // The revocation in the new process ends the stream in the old one.
    assert!(home.command(&["keys", "revoke", &id]).status.success());
    assert!(!within("the stream of a revoked key", stream.readers().pop().unwrap()).await.unwrap());
    until("the old process to end", || log_text(&home).contains("\"stopped\"")).await;
    next.signal("TERM");
    next.until_gone().await;
    assert!(acts(&home).values().all(|acts| acts.len() == 2));
    let proof = home.command(&["store", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_of_a_draining_process_count_in_the_next_one() {
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

/// Tests requests during an upgrade of a gateway with so many keys that the hand-over takes time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_around_a_handover_count_once_in_the_budgets() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let mut before = home.run().await;
    let token = std::fs::read_to_string(home.storage().join("admin.token")).unwrap();
    let admin = Client { address: home.admin, key: token.trim().to_owned() };
    for number in 0..size(500, 120) {
        let made = admin.post("/admin/keys", &json!({"name": format!("k{number}")})).await.json();
        let used = Client { address: home.http, key: made["key"].as_str().unwrap().to_owned() };
        assert_eq!(used.post(CHAT, &ask("m", false)).await.status, 200);
    }
    let (client, id) = home.key();
    let (stop, charged) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let asking = |_| {
        let (client, stop, charged) = (client.clone(), stop.clone(), charged.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let answer = client.post(CHAT, &ask("m", false)).await.json();
                let credits = answer["billing_cost"]["credits"].as_f64().unwrap();
                charged.fetch_add((credits * 1e6).round() as usize, Ordering::SeqCst);
            }
        })
    };
    let clients: Vec<_> = (0..4).map(asking).collect();
    let some = |more: usize| {
        let (charged, least) = (charged.clone(), charged.load(Ordering::SeqCst) + more * 2_500);
        async move { until("some charges", || charged.load(Ordering::SeqCst) >= least).await }
    };
    some(20).await;
    let next = upgrade(&home).await;
    assert!(before.until_ended().await.success());
    some(20).await;
    stop.store(true, Ordering::SeqCst);
    for client in clients {
        within("a client", client).await.unwrap();
    }
    let shown = admin.get(&format!("/admin/keys/{id}")).await.json();
    // Compares the spending of the month, not of the day, because midnight may pass.
    let spent: f64 = shown["now"]["spent_this_month"].as_str().unwrap().parse().unwrap();
    let charged = charged.load(Ordering::SeqCst);
    assert_eq!((spent * 1e6).round() as usize, charged, "twice, or not at all: {shown}");
    next.signal("TERM");
    next.until_gone().await;
}
