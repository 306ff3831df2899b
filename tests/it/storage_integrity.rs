//! Lost, damaged or foreign parts of the storage: they are reported and never recreated silently; read-only commands
//! change nothing. Also what a reload reports.

use crate::harness::batch_jobs::{lines, uploaded};
use crate::harness::gateway::PATIENT;
use crate::harness::process::{Home, address, catalogue, complaint, penstock};
use crate::harness::{Bench, Provider, within};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns every file below a folder with its contents, except for locks.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else if !path.ends_with("lock") {
            all.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_pepper_and_a_lost_folder_of_files_keep_the_gateway_from_starting() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let (client, id) = home.key();
    let mut process = home.run().await;
    let file = uploaded(&client, &lines(2)).await;
    process.signal("TERM");
    process.until_ended().await;
    let refused = async |what: &str| {
        let mut process = home.spawn();
        within("the process to end", process.until_ended()).await;
        assert!(process.output().contains(what), "{}", process.output());
    };
    let pepper = home.storage().join("pepper");
    let original = std::fs::read(&pepper).unwrap();
    std::fs::remove_file(&pepper).unwrap();
    refused("The pepper ").await;
    assert!(!pepper.exists());
    let listed = home.command(&["keys", "list"]);
    assert!(!listed.status.success() && complaint(&listed).contains("is missing"), "{}", complaint(&listed));
    std::fs::write(&pepper, "0f".repeat(32)).unwrap();
    refused("is not the one").await;
    std::fs::write(&pepper, original).unwrap();
    let (files, away) = (home.storage().join("files"), home.storage().join("away"));
    std::fs::rename(&files, &away).unwrap();
    refused("is it mounted?").await;
    std::fs::remove_dir_all(&files).unwrap();
    std::fs::rename(&away, &files).unwrap();
    let mut process = home.run().await;
    assert_eq!(client.get(&format!("/v1/files/{file}/content")).await.status, 200);
    process.signal("TERM");
    process.until_ended().await;
    // A lost pepper is replaced only by an explicit command.
    std::fs::remove_file(&pepper).unwrap();
    let renewed = home.command(&["store", "new-pepper"]);
    assert!(renewed.status.success(), "{}", complaint(&renewed));
    let mut process = home.run().await;
    assert_eq!(client.get("/v1/models").await.status, 401);
    let rotated = home.command(&["keys", "rotate", &id]);
    assert!(rotated.status.success(), "{}", complaint(&rotated));
    let key = String::from_utf8(rotated.stdout).unwrap().trim().to_owned();
    let client = crate::harness::Client { key, ..client };
    assert_eq!(client.get("/v1/models").await.status, 200);
    process.signal("TERM");
    process.until_ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verifying_changes_nothing_and_a_start_that_heals_says_so() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    home.key();
    for id in ["one", "two", "three"] {
        let granted = home.command(&["credits", "grant", "default", "--credits", "5", "--id", id]);
        assert!(granted.status.success(), "{}", complaint(&granted));
    }
    let ledger = home.storage().join("ledger");
    let copy = std::fs::read_dir(&ledger).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&copy).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() - 20] ^= 1;
    let more = [&whole[..], b"{}\n"].concat();
    for (damage, heals) in [(&whole[..whole.len() - 7], true), (&flipped, true), (&[], true), (&more, false)]
    {
        std::fs::write(&copy, damage).unwrap();
        let before = contents(&ledger);
        for command in [["credits", "verify"], ["store", "verify"]] {
            let found = home.command(&command);
            assert_eq!(found.status.code(), Some(1), "{command:?}: {}", complaint(&found));
            assert!(complaint(&found).contains("the file of 2"), "{}", complaint(&found));
            assert_eq!(contents(&ledger), before, "{command:?} changed it");
        }
        if heals {
            let repaired = home.command(&["credits", "verify", "--repair"]);
            assert!(repaired.status.success(), "{}", complaint(&repaired));
            assert!(complaint(&repaired).contains("Written again"), "{}", complaint(&repaired));
            assert_eq!(std::fs::read(&copy).unwrap(), whole);
        }
    }
    // Tests a month file that the store does not know, and a missing ledger folder.
    std::fs::write(&copy, &whole).unwrap();
    std::fs::write(ledger.join("2031-01.jsonl"), "{}\n").unwrap();
    let found = complaint(&home.command(&["credits", "verify"]));
    assert!(found.contains("2031-01 has entries that the store lacks"), "{found}");
    std::fs::remove_dir_all(&ledger).unwrap();
    let found = home.command(&["credits", "verify"]);
    assert!(complaint(&found).contains("is missing") && !ledger.exists(), "{}", complaint(&found));
    let mut process = home.run().await;
    process.wait_for_line("ledger_replica_repaired").await;
    process.signal("TERM");
    process.until_ended().await;
    assert_eq!(std::fs::read(&copy).unwrap(), whole);
    let line = process.output();
    let line = line.lines().find(|line| line.contains("ledger_replica_repaired")).unwrap();
    assert!(line.contains("error") && line.contains("0 of"), "{line}");
    assert!(home.command(&["credits", "verify"]).status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_reports_its_changes() {
    let provider = Provider::start().await;
    let home = Home::new();
    let written = |attempts: u32, key: &str| {
        std::fs::write(home.path().join("key"), key).unwrap();
        home.write(&format!(
            "[routing]\nattempts = {attempts}\n{}",
            catalogue(&provider, "api_key = { file = \"key\" }")
        ));
    };
    written(4, "sk-first");
    let mut process = home.run().await;
    let reload = || {
        let output = home.command(&["reload"]);
        assert!(output.status.success(), "{}", complaint(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(reload().contains("Nothing changed."));
    written(3, "sk-first");
    assert!(reload().contains("  routing.attempts: 4 -> 3\n"));
    written(3, "sk-second");
    let changes = reload();
    assert!(changes.contains("  providers.a.api_key: *** -> ***\n") && !changes.contains("sk-"), "{changes}");
    process.wait_for_line("routing.attempts: 4 -> 3").await;
    process.wait_for_line("providers.a.api_key: *** -> ***").await;
    assert!(!process.output().contains("sk-first") && !process.output().contains("sk-second"));
    process.signal("TERM");
    process.until_ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_json_from_the_start_and_has_no_address_of_a_provider() {
    let provider = Provider::start().await;
    let home = Home::new();
    let far = |address: &str| {
        format!(
            "{}\n[[providers]]\nid = \"far\"\noperator = \"F\"\ncountry = \"FR\"\ncity = \"Paris\"\npue = 1.2\nbase_url = \
             \"{address}\"\n",
            catalogue(&provider, "")
        )
    };
    home.write(&far("http://hidden.invalid/v1"));
    let running = home.run().await;
    running.wait_for_line("config_warning").await;
    home.write(&far("http://hidden.invalid:99999/v1"));
    let reloaded = home.command(&["reload"]);
    assert_eq!(reloaded.status.code(), Some(1));
    assert!(complaint(&reloaded).contains("hidden.invalid:99999"), "{}", complaint(&reloaded));
    running.wait_for_line("reload_refused").await;
    std::fs::write(home.config(), home_without_models(&home)).unwrap();
    let emptied = home.command(&["reload"]);
    assert_eq!(emptied.status.code(), Some(1));
    assert!(complaint(&emptied).contains("has no models"), "{}", complaint(&emptied));
    let log = running.output();
    let json = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}\n{log}"));
    let events: Vec<serde_json::Value> = log.lines().map(json).collect();
    let warned =
        |key: &str| events.iter().any(|line| line["event"] == "config_warning" && line["key"] == key);
    assert!(warned("providers.far.base_url") && warned("providers.far"), "{log}");
    assert!(!log.contains("hidden"), "{log}");
}

/// Returns the text of a configuration up to its first block of a model or provider.
fn home_without_models(home: &Home) -> String {
    let text = std::fs::read_to_string(home.config()).unwrap();
    text.split("[[").next().unwrap().to_owned()
}

#[test]
fn without_a_configuration_nothing_is_made_where_no_demo_was_started() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        &["keys", "create"][..],
        &["accounts", "list"],
        &["audit"],
        &["credits", "grant", "default", "--credits", "1"],
        &["credits", "verify"],
        &["statement"],
        &["store", "verify"],
        &["models"],
        &["providers"],
        &["reload"],
    ] {
        let output = penstock(words).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(
            complaint(&output).contains("No configuration is named"),
            "{words:?}: {}",
            complaint(&output)
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{words:?} made something");
    }
}

#[test]
fn a_command_that_creates_nothing_needs_an_existing_store() {
    let home = Home::new();
    home.write("");
    for words in [
        &["keys", "list"][..],
        &["keys", "show", "0123456789abcdef"],
        &["keys", "revoke", "0123456789abcdef"],
        &["accounts", "list"],
        &["users", "list"],
        &["batches", "list"],
        &["files", "list"],
        &["audit"],
        &["credits", "balance"],
        &["credits", "verify"],
        &["usage", "show"],
        &["statement"],
        &["store", "verify"],
    ] {
        let output = home.command(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", complaint(&output));
        assert!(complaint(&output).contains("There is no store in "), "{words:?}: {}", complaint(&output));
        assert!(!home.storage().exists(), "{words:?} made something");
    }
    home.key();
    let output = home.command(&["keys", "list", "--account", "nosuch"]);
    assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
    assert!(complaint(&output).contains("There is no account nosuch"), "{}", complaint(&output));
    for words in [["batches", "list", "--state", "foo"], ["files", "list", "--purpose", "foo"]] {
        let output = home.command(&words);
        assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
        assert!(complaint(&output).contains("expected one of"), "{}", complaint(&output));
    }
    assert!(home.command(&["keys", "list", "--account", "default"]).status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_requests_keep_their_simulated_providers_at_a_stop() {
    let simulated_address = address();
    let simulated = format!(
        "[[simulated]]\nname = \"s\"\naddress = \"{simulated_address}\"\nfirst_token = \"10ms\"\ntokens_per_second = 20\n"
    );
    let running = Bench::new()
        .more(&simulated)
        .provider_at("s", &format!("http://{simulated_address}/v1"), PATIENT, "")
        .start()
        .await;
    let mut ask = running.ask_stream();
    ask["max_tokens"] = serde_json::json!(40);
    let mut open = running.client.stream_until("/v1/chat/completions", &ask, "content").await;
    let stopping = tokio::spawn(running.stop());
    let answer = within("the rest of the stream", open.finish()).await;
    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    assert!(!answer.text().contains("error"), "{}", answer.text());
    within("the stop", stopping).await.unwrap();
    assert!(std::net::TcpStream::connect(simulated_address).is_err(), "the provider has ended, too");
}
