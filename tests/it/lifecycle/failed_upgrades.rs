//! Failed upgrades: the running process continues with all its state.

use super::load_clients::{SpawnedProcess, acts, charges, is_gone, log_text, processes, signal, upgrade};
use super::open_streams::{Streams, ask};
use super::upgrade::two;
use crate::harness::process::{Home, complaint};
use crate::harness::script::plain;
use crate::harness::{Provider, until, within};

const CHAT: &str = "/v1/chat/completions";

async fn until_failed(home: &Home, times: usize) {
    signal(processes(home)[0], "USR2");
    until("the upgrade to fail", || log_text(home).matches("\"upgrade_failed\"").count() == times).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_that_does_not_start_leaves_the_old_one_serving() {
    let (quick, slow) = (Provider::start().await, Provider::start().await);
    quick.always(plain("Hello"));
    let home = Home::new();
    let good = two(&quick, &slow);
    home.write(&good);
    let mut running = home.run().await;
    let (client, _) = home.key();
    let streams = Streams::open(&client, &slow, 3).await;
    // The new process refuses its configuration before the old one passes anything to it.
    home.write(&good.replace("\"FR\"", "\"US\""));
    until_failed(&home, 1).await;
    assert_eq!(client.post(CHAT, &ask("m", false)).await.status, 200);
    // The new process fails after it has got the store from the old process: the folder for its files cannot be
    // created.
    std::fs::write(home.path().join("wall"), "").unwrap();
    home.write(&format!("[files]\npath = \"wall/files\"\n{good}"));
    until_failed(&home, 2).await;
    assert_eq!(client.post(CHAT, &ask("m", false)).await.status, 200);
    home.write(&good);
    let (later, _) = home.key();
    assert_eq!(later.post(CHAT, &ask("m", false)).await.status, 200, "administration goes on too");
    assert_eq!(streams.end().await, 0);
    assert!(running.ended().is_none());
    // The next upgrade succeeds.
    let next = upgrade(&home).await;
    assert_eq!(later.post(CHAT, &ask("m", false)).await.status, 200);
    running.until_ended().await;
    next.signal("TERM");
    next.until_gone().await;
    assert_eq!(charges(&home), 7);
    let proof = home.command(&["store", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_new_process_dies_streams_go_on_and_nothing_is_charged_twice() {
    let (quick, slow) = (Provider::start().await, Provider::start().await);
    let home = Home::new();
    home.write(&two(&quick, &slow));
    let mut old = home.run().await;
    let (client, _) = home.key();
    let streams = Streams::open(&client, &slow, 3).await;
    let next = upgrade(&home).await;
    next.signal("KILL");
    next.until_gone().await;
    assert_eq!(streams.end().await, 0, "they end as if nothing were");
    assert_eq!(old.until_ended().await.code(), Some(0));
    assert!(log_text(&home).contains("\"handover_lost\""), "and it is said that they are not charged");
    let mut again = home.run().await;
    // At its start the gateway voids open reserves. The stop waits until these entries are written.
    again.signal("TERM");
    again.until_ended().await;
    assert_eq!(charges(&home), 0);
    assert_eq!(acts(&home).values().filter(|acts| acts.last().unwrap() == "void").count(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_old_process_dies_its_reserves_are_voided() {
    let (quick, slow) = (Provider::start().await, Provider::start().await);
    quick.always(plain("Hello"));
    let home = Home::new();
    home.write(&two(&quick, &slow));
    let old = home.run().await;
    let (client, _) = home.key();
    let streams = Streams::open(&client, &slow, 3).await;
    let next: SpawnedProcess = upgrade(&home).await;
    old.kill().await;
    assert_eq!(within("the streams", streams.end()).await, 3);
    until("the reserves to be voided", || log_text(&home).contains("\"predecessor_lost\"")).await;
    assert_eq!(client.post(CHAT, &ask("m", false)).await.status, 200);
    next.signal("TERM");
    next.until_gone().await;
    assert!(is_gone(next.0));
    assert_eq!(charges(&home), 1);
}
