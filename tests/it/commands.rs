//! Command line `penstock accounts`, `keys` and `audit`: without a running gateway they use the store directly,
//! otherwise the gateway; the output is the same.

use crate::harness::process::{Home, complaint, penstock};
use crate::harness::{Client, Provider};
use serde_json::{Value, json};
use std::process::Output;

const CHAT: &str = "/v1/chat/completions";

fn output_text(output: &Output) -> String {
    assert!(output.status.success(), "{}", complaint(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success() && output.stdout.is_empty(), "it has to refuse");
    complaint(output)
}

fn home(provider: &Provider) -> Home {
    let home = Home::new();
    home.write(&crate::harness::process::catalogue(provider, ""));
    home
}

fn ask() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
}

/// Creates an account and a key, changes both, and rotates the key; returns the output and both secrets.
fn all_the_words(home: &Home, account: &str) -> (String, String) {
    let limits = ["--requests-per-minute", "50", "--budget-per-month", "12.50"];
    let made = output_text(
        &home.command(&[&["accounts", "create", account, "--name", "A B"], &limits[..]].concat()),
    );
    assert_eq!(made, format!("Account {account} is created: 50 req/min, 12.5 credits/month.\n"));
    let made = home.command(&["keys", "create", "--account", account, "--concurrent", "5", "--name", "ci"]);
    let old = output_text(&made).trim().to_owned();
    let id = old[7..23].to_owned();
    let changed = output_text(&home.command(&[
        "keys",
        "change",
        &id,
        "--concurrent",
        "none",
        "--tokens-per-minute",
        "90000",
    ]));
    assert_eq!(changed, format!("Key {id} is changed: it may use inference.*, 90000 tok/min.\n"));
    let rotated = home.command(&["keys", "rotate", &id, "--overlap", "1h"]);
    let new = output_text(&rotated).trim().to_owned();
    assert!(new != old && new[7..23] == id, "the id stays");
    assert!(complaint(&rotated).contains("the old one is valid until 20"), "{}", complaint(&rotated));
    let listed = output_text(&home.command(&["keys", "list", "--account", account]));
    assert!(
        listed.contains(&id) && listed.contains("90000 tok/min") && listed.lines().count() == 2,
        "{listed}"
    );
    let shown: Value = serde_json::from_str(&output_text(&home.command(&["keys", "show", &id]))).unwrap();
    assert_eq!((&shown["name"], &shown["account"]), (&json!("ci"), &json!(account)));
    let audit = output_text(&home.command(&["audit", "--target", &id]));
    for what in ["key.create", "key.change", "key.rotate", "cli:"] {
        assert!(audit.contains(what), "{audit}");
    }
    let nothing = output_text(&home.command(&["audit", "--target", "nobody"]));
    assert_eq!(
        nothing,
        "No changes of nobody are recorded. A target is the id of an account, key, user, batch, file, invoice or credit \
         note.\n"
    );
    for secret in [&old[23..], &new[23..]] {
        assert!(!listed.contains(secret) && !audit.contains(secret) && !shown.to_string().contains(secret));
    }
    assert!(output_text(&home.command(&["audit", "--verify"])).contains("entries is intact"));
    (old, new)
}

/// Errors are named, in the same words with and without a gateway.
fn all_the_mistakes(home: &Home) {
    for (line, named) in [
        (&["keys", "create", "--requests-per-minute", "0"][..], "limits.requests_per_minute has to be"),
        (&["keys", "create", "--requests-per-minute", "many"], "limits.requests_per_minute has to be"),
        (&["keys", "create", "--budget-per-day", "-3"], "limits.budget_per_day has to be more than 0"),
        (
            &["keys", "create", "--budget-per-day", "0.0000001"],
            "limits.budget_per_day has to be an amount with at most six",
        ),
        (&["keys", "create", "--account", "nobody"], "There is no account of this id"),
        (&["keys", "create", "--scope", "inference.chess"], "inference.chess"),
        (&["accounts", "create", "a b"], "id has to be"),
        (&["accounts", "create", "default"], "There is an account of this id already"),
        (&["accounts", "suspend", "nobody"], "There is no account of this id"),
        (&["accounts", "change", "default"], "No change was given"),
        (&["keys", "change", "0123456789abcdef", "--name", "x"], "There is no key of this id"),
        (&["keys", "rotate", "0123456789abcdef", "--overlap", "8d"], "overlap_seconds has to be"),
        (
            &["credits", "grant", "default", "--credits", "1", "--id", ""],
            "id has to be a text of 1 to 200 bytes",
        ),
        (&["credits", "correct", "1", "--credits", "1", "--id", ""], "id has to be a text of 1 to 200 bytes"),
    ] {
        let why = refused(&home.command(line));
        assert!(why.contains(named), "{line:?}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_do_the_same_on_the_store_and_through_the_gateway() {
    let provider = Provider::start().await;
    let home = home(&provider);
    let (old, new) = all_the_words(&home, "offline");
    output_text(&home.command(&["keys", "create"]));
    all_the_mistakes(&home);
    assert_eq!(
        output_text(&home.command(&["accounts", "suspend", "offline"])),
        "Account offline is suspended: 50 req/min, 12.5 credits/month.\n"
    );
    assert!(refused(&home.command(&["accounts", "check"])).contains("requires a running gateway"));
    let client = |key: &str| Client { address: home.http, key: key.to_owned() };

    let _running = home.run().await;
    assert_eq!(client(&new).post(CHAT, &ask()).await.status, 401);
    output_text(&home.command(&["accounts", "resume", "offline"]));
    for key in [&old, &new] {
        assert_eq!(client(key).post(CHAT, &ask()).await.status, 200);
    }
    let (old, new) = all_the_words(&home, "online");
    for key in [&old, &new] {
        assert_eq!(client(key).post(CHAT, &ask()).await.status, 200);
    }
    all_the_mistakes(&home);
    let listed = output_text(&home.command(&["accounts", "list"]));
    assert!(["default", "offline", "online"].iter().all(|account| listed.contains(account)), "{listed}");
    // By now each configured resource has matched a request. Only the limit of an account without requests has not.
    assert!(output_text(&home.command(&["accounts", "check"])).contains("match something"));
    output_text(&home.command(&["accounts", "create", "nobody", "--concurrent", "1"]));
    let check = home.command(&["accounts", "check"]);
    let text = String::from_utf8(check.stdout.clone()).unwrap();
    assert!(!check.status.success() && text.contains("account  nobody  limits match nothing"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_cannot_be_printed_is_reported_with_its_key() {
    let home = home(&Provider::start().await);
    let config = home.config();
    let without_output = |words: &[&str]| {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = penstock(words);
        command.arg("--config").arg(&config).stdout(full).output().unwrap()
    };
    let made = without_output(&["keys", "create"]);
    let listed = output_text(&home.command(&["keys", "list", "--json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let id = listed["data"][0]["id"].as_str().unwrap();
    let rotated = without_output(&["keys", "rotate", id]);
    for output in [made, rotated] {
        let complaint = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains(&format!("`penstock keys revoke {id}`")), "{complaint}");
    }
    output_text(&home.command(&["keys", "revoke", id]));
    let changed = home.command(&["keys", "change", id, "--name", "x"]);
    assert!(
        changed.status.success() && complaint(&changed).contains("is revoked"),
        "{}",
        complaint(&changed)
    );
}

#[test]
fn the_openapi_document_is_printed() {
    let printed = crate::harness::process::ended(&["openapi"]);
    let document: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}
