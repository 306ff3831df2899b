//! Search for a hundred secrets and two hundred pieces of content after requests of every kind and failure: none is
//! in a log, metric, status, error, store, archive, spool or temporary file. Contents of files may be in the folder
//! `files/` only, and are deleted with the file.

mod traffic;

use crate::harness::certificates::TestCertificate;
use crate::harness::process::{Home, Process, SECRET, address, catalogue, complaint};
use crate::harness::script::*;
use crate::harness::{Client, Provider, batch_jobs};
use serde_json::json;
use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use traffic::{ClientRotation, PlantedContent, failed, served};

/// Number of keys. Together with the secrets of two providers, the test searches for a hundred secrets.
const KEYS: usize = 98;
const HEADER: &str = "canary-secret-header-value";
/// Number of rounds of requests over all transports; each round uses its own unique words.
const ROUNDS: usize = 10;

/// Returns a gateway with a model of every kind at one provider, and another chat model at two; it serves TLS too.
fn home(first: &Provider, second: &Provider, https: SocketAddr, certified: &TestCertificate) -> Home {
    let home = Home::new();
    let secrets = "api_key = { env = \"PENSTOCK_IT_SECRET\" }\nheaders = { x-secret = { env = \"PENSTOCK_IT_HEADER\" } }";
    let mut toml = format!(
        "[log]\nlevel = \"debug\"\n[routing]\nquick_retry = \"0s\"\n[routing.breaker]\nconsecutive = 1000\nminimum = 1000\n{}",
        catalogue(first, secrets)
    );
    let models = [
        ("e", "embedding", "price = { input = 1.0 }"),
        ("r", "rerank", "price = { input = 1.0 }"),
        ("d", "image", "price = { image = 0.02 }\nimage_sizes = [\"512x512\"]"),
        ("w", "transcription", "price = { minute = 0.006 }"),
        ("two", "chat", "price = { input = 1.0, output = 2.0 }\nsupported_parameters = [\"stream\"]"),
    ];
    for (id, _, _) in models {
        toml.push_str(&format!("[[providers.offers]]\nmodel = \"{id}\"\n"));
    }
    for (id, kind, lines) in models {
        toml.push_str(&format!(
            "[[models]]\nid = \"{id}\"\nkind = \"{kind}\"\ncontext_length = 131072\n{lines}\n"
        ));
    }
    toml.push_str(&format!(
        "[[providers]]\nid = \"b\"\noperator = \"Test\"\ncountry = \"DE\"\ncity = \"Berlin\"\npue = 1.16\n\
         base_url = \"http://{}/v1\"\n{secrets}\n[[providers.offers]]\nmodel = \"two\"\n\
         price = {{ input = 9.0, output = 9.0 }}\n",
        second.address
    ));
    home.write(&toml);
    let written = std::fs::read_to_string(home.config()).unwrap();
    let listen = format!(
        "[listen]\nhttps = {{ address = \"{https}\", certificate = {:?}, key = {:?} }}\n",
        certified.chain, certified.key
    );
    std::fs::write(home.config(), written.replace("[listen]\n", &listen)).unwrap();
    home
}

async fn run(home: &Home) -> Process {
    let temporary = home.path().join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    home.run_with(|command| {
        command.env("PENSTOCK_IT_HEADER", HEADER).env("TMPDIR", temporary);
    })
    .await
}

/// Contents of each file below a folder.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        if entry.path().is_dir() {
            files(&entry.path(), found);
        } else {
            found.push((entry.path().display().to_string(), std::fs::read(entry.path()).unwrap()));
        }
    }
}

/// Returns the locations that contain one of the words, as text or in hexadecimal digits.
fn hits(words: &[String], locations: &[(String, Vec<u8>)]) -> Vec<String> {
    let hex = |word: &str| word.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let needles: Vec<(String, String)> = words.iter().map(|word| (word.clone(), hex(word))).collect();
    let mut found = Vec::new();
    for (location, bytes) in locations {
        for (word, hex) in &needles {
            if [word, hex].iter().any(|needle| memchr::memmem::find(bytes, needle.as_bytes()).is_some()) {
                found.push(format!("{word} in {location}"));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_secrets_and_all_content_leave_no_trace() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    let (https, certified) = (address(), TestCertificate::make());
    let home = home(&first, &second, https, &certified);
    let mut running = run(&home).await;
    let token = std::fs::read_to_string(home.storage().join("admin.token")).unwrap().trim().to_owned();
    let pepper = std::fs::read(home.storage().join("pepper")).unwrap();
    let admin = Client { key: token.clone(), ..home.admin() };
    let (mut secrets, mut clients) = (vec![SECRET.to_owned(), HEADER.to_owned()], Vec::new());
    for number in 0..KEYS {
        let made = admin.post("/admin/keys", &json!({"name": format!("key {number}")})).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let key = made.json()["key"].as_str().unwrap().to_owned();
        secrets.push(key["sk-svc-".len() + 16..][..40].to_owned());
        clients.push(Client { address: home.http, key });
    }
    let rotation = ClientRotation { clients, next: Cell::new(0), https, certified };
    let planted = PlantedContent::default();
    let (mut refused, mut got) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        got += served(&rotation, &first, &planted).await.len();
        refused.extend(failed(&rotation, (&first, &second), &planted, round).await);
        first.clear();
    }
    let mut words = planted.words.take();
    assert!(words.len() >= 200 && got >= 100, "{} words", words.len());
    words.extend(secrets.iter().cloned());

    // A batch: its input and its results are stored only in its files.
    let stored = PlantedContent { next: Cell::new(5_000), ..PlantedContent::default() };
    first.always(plain(&stored.answer()));
    let lines: String =
        (0..5).map(|_| batch_jobs::line(&stored.word("id"), &stored.prompt()) + "\n").collect();
    // Files belong to the key that created them.
    let client = rotation.next();
    let batch = batch_jobs::ended(client, &batch_jobs::batch(client, &lines).await).await;
    assert_eq!(batch["request_counts"]["completed"], 5, "{batch}");
    let stored = stored.words.take();

    let mut locations: Vec<(String, Vec<u8>)> = Vec::new();
    for answer in refused {
        assert!(answer.status >= 400 || answer.text().contains("error"), "{}", answer.text());
        let headers = format!("{:?}", answer.headers).into_bytes();
        locations.push((format!("an answer {}", answer.status), [answer.body, headers].concat()));
    }
    // The answer of a started stream may contain its text, which belongs to the client; it must contain no secret.
    let begun = |location: &str| location == "an answer 200";
    for (location, bytes) in locations.iter().filter(|(location, _)| begun(location)) {
        assert!(hits(&secrets, &[(location.clone(), bytes.clone())]).is_empty());
    }
    locations.retain(|(location, _)| !begun(location));
    for path in ["/metrics", "/status", "/readyz", "/healthz"] {
        locations.push((path.to_owned(), home.admin().get(path).await.body));
    }
    for path in ["/admin/keys", "/admin/audit", "/admin/providers", "/admin/ledger"] {
        locations.push((path.to_owned(), admin.get(path).await.body));
    }
    for file in [&batch["input_file_id"], &batch["output_file_id"]] {
        let path = format!("/v1/files/{}", file.as_str().unwrap());
        let mut below = Vec::new();
        files(&home.storage().join("files"), &mut below);
        assert!(!hits(&stored, &below).is_empty(), "what the contract keeps is there");
        assert_eq!(client.send("DELETE", &path, &[], b"").await.status, 200);
        for gone in [path.clone(), format!("{path}/content")] {
            assert_eq!(client.get(&gone).await.status, 404);
        }
    }
    running.signal("TERM");
    assert_eq!(running.until_ended().await.code(), Some(0));
    let archive = home.path().join("archive");
    let exported = home.command(&["store", "export", archive.to_str().unwrap()]);
    assert!(exported.status.success(), "{}", complaint(&exported));
    // The store compresses the ledger's rows with LZ4, so a word in one may not appear literally. The rows are searched
    // in the uncompressed export of the command line.
    let ledger = home.command(&["credits", "export"]);
    assert!(ledger.status.success(), "{}", complaint(&ledger));
    assert!(memchr::memmem::find(&ledger.stdout, b"\"act\":\"settle\"").is_some(), "nothing was charged");
    locations.push(("the ledger".to_owned(), ledger.stdout));

    let log = running.output();
    assert!(log.matches("\"event\":\"request\"").count() >= 200, "the log was on");
    for client in &rotation.clients {
        // The public id of the key is no secret.
        let name = &client.key["sk-svc-".len()..][..16];
        assert!(log.contains(name), "a key that nobody used");
    }
    locations.push(("the log".to_owned(), log.clone().into_bytes()));
    for folder in [home.storage(), archive, home.path().join("tmp")] {
        files(&folder, &mut locations);
    }
    assert!(locations.iter().any(|(location, bytes)| location.contains("/store/") && !bytes.is_empty()));
    let mut found = hits(&words, &locations);
    // The `custom_id`s of the batch lines and the answers were only in the files, which are deleted by now.
    found.extend(hits(&stored, &locations));
    assert!(found.is_empty(), "{} hits: {:#?}", found.len(), &found[..found.len().min(20)]);
    // The admin token and the pepper are only in their own files and in the archive that includes them.
    let own = |location: &str| location.ends_with("/admin.token") || location.ends_with("/pepper");
    locations.retain(|(location, _)| !own(location));
    for secret in [token.as_bytes(), pepper.trim_ascii()] {
        for (location, bytes) in &locations {
            assert!(
                memchr::memmem::find(bytes, secret).is_none(),
                "a secret of the gateway is in {location}"
            );
        }
    }
    eprintln!(
        "{} secrets, {} words of content, {} places: 0 hits",
        secrets.len(),
        words.len() + stored.len() - secrets.len(),
        locations.len()
    );
}
