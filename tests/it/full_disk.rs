//! Full disks: the storage folder is on its own small disk, in a mount namespace of this process.

use crate::harness::process::{Home, Process, catalogue, complaint};
use crate::harness::{Answer, Client, Provider, within};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Environment variable that is set in the process with its own mount namespace.
const INSIDE: &str = "PENSTOCK_IT_NAMESPACE";
const CHAT: &str = "/v1/chat/completions";
/// Cost of the script's answer: 11 tokens at 1 EUR and 7 at 2 EUR a million, a credit a cent.
const ANSWER: f64 = 0.0025;

/// Runs a test of this binary again, in its own mount namespace: as root, or as the root of a user namespace. Returns
/// true in that process.
pub fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let may = |flag: &&str| {
        let probe = ["-c", "mount -t tmpfs -o size=1m none /tmp"];
        let tried = Command::new("unshare").arg(flag).arg("sh").args(probe).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let flag = ["-m", "-rm"].into_iter().find(may).expect(
        "this test needs a small disk to fill, and may make none: run it as root, or where unprivileged users may \
         have namespaces (`unshare -rm` works)",
    );
    let me = std::env::current_exe().unwrap();
    let ran = Command::new("unshare")
        .arg(flag)
        .arg(me)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && output.contains("1 passed"), "{output}");
    false
}

/// Mounts a disk of the given MiB over a folder.
pub fn mount(folder: &Path, mib: u32) {
    std::fs::create_dir_all(folder).unwrap();
    let size = format!("size={mib}m");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(folder).output().unwrap();
    assert!(mounted.status.success(), "{}", complaint(&mounted));
}

/// Fills the disk to the last block. Tests call it repeatedly, since the store frees space when it deletes its
/// reserve file.
pub fn fill(path: &Path) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    for size in [1 << 20, 4_096, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

struct FullDiskHome(Home);

impl FullDiskHome {
    fn admin(&self) -> Client {
        let token = std::fs::read_to_string(self.0.storage().join("admin.token")).unwrap();
        Client { address: self.0.admin, key: token.trim().to_owned() }
    }

    async fn until(&self, what: &str, is: impl Fn(&Answer, &Value) -> bool) {
        within(what, async {
            loop {
                let ready = self.0.admin().get("/readyz").await;
                if is(&ready, &self.0.admin().get("/status").await.json()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

fn ask() -> Value {
    json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]})
}

/// Sends requests until `over` is true, or until an answer has another status than 200. Returns the ids of good
/// answers, and that other answer.
async fn asked(
    client: &Client,
    most: usize,
    over: impl AsyncFn() -> bool,
) -> (BTreeSet<String>, Option<Answer>) {
    let mut good = BTreeSet::new();
    while good.len() < most && !over().await {
        let answer = client.post(CHAT, &ask()).await;
        if answer.status != 200 {
            return (good, Some(answer));
        }
        good.insert(answer.header("x-request-id").unwrap().to_owned());
    }
    (good, None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_requests_go_on_within_the_debt_and_nothing_is_lost() {
    if !inside("full_disk::on_a_full_disk_requests_go_on_within_the_debt_and_nothing_is_lost") {
        return;
    }
    let provider = Provider::start().await;
    let home = Home::new();
    // The allowed debt (charges that are not on the disk yet) covers 320 charges of 0.000025 EUR. The reserve of a
    // request is as large as about forty charges.
    let settings =
        "[billing]\ncredit = \"prepaid\"\n[ledger]\nwindow = \"20ms\"\ndebt = 0.008\nslow = \"25s\"\n";
    home.write(&format!("{settings}{}", catalogue(&provider, "")));
    let written = std::fs::read_to_string(home.config()).unwrap();
    std::fs::write(home.config(), written.replace("ballast = \"0B\"", "ballast = \"2MiB\"")).unwrap();
    mount(&home.storage(), 64);
    let (client, _) = home.key();
    let granted = home.command(&["credits", "grant", "default", "--credits", "100"]);
    assert!(granted.status.success(), "{}", complaint(&granted));
    let disk = FullDiskHome(home);
    let mut process = disk.0.run().await;
    let (mut answered, none) = asked(&client, 20, async || false).await;
    assert!(none.is_none());

    // The gateway notices the full disk soon. At half the debt, the test waits until the charges are written or have
    // failed, because a fast machine would reach the limit of the debt before.
    let filler = disk.0.storage().join("filler");
    let shows = async || {
        fill(&filler);
        let failing = Cell::new(false);
        disk.until("charges to be written, or not", |ready, status| {
            failing.set(ready.text().contains("cannot be written"));
            failing.get() || status["ledger"]["unwritten_eur"].as_f64().unwrap() < 0.004
        })
        .await;
        failing.get()
    };
    let (before, none) = asked(&client, 20_000, shows).await;
    assert!(none.is_none() && before.len() < 20_000, "{none:?}");
    answered.extend(before);
    while_full(&disk, &process, &filler).await;

    // Requests with known keys are served until the allowed debt is used, and then get a 503.
    let still = async || {
        fill(&filler);
        false
    };
    let (owed, refused) = asked(&client, 1_000, still).await;
    let refused = refused.expect("a debt without end");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text());
    assert!(!owed.is_empty(), "nothing was served");
    let status = disk.0.admin().get("/status").await.json();
    let unwritten = status["ledger"]["unwritten_eur"].as_f64().unwrap();
    assert!(unwritten > 0.0 && unwritten <= 0.008, "{status}");
    let ready = disk.0.admin().get("/readyz").await;
    assert_eq!((ready.status, ready.text().contains("no more may wait")), (503, true), "{}", ready.text());
    answered.extend(owed);
    while_full(&disk, &process, &filler).await;

    // With free space it continues by itself.
    std::fs::remove_file(&filler).unwrap();
    disk.until("the ledger to be written", |ready, status| {
        ready.text() == "ready\n" && status["ledger"]["unwritten_bytes"] == 0
    })
    .await;
    let (after, none) = asked(&client, 20, async || false).await;
    assert!(none.is_none(), "{none:?}");
    answered.extend(after);
    let granted = disk.0.command(&["credits", "grant", "default", "--credits", "1", "--id", "refused"]);
    let twice = complaint(&granted).contains("already done");
    assert!(granted.status.success() || twice, "{}", complaint(&granted));
    process.signal("TERM");
    assert_eq!(process.until_ended().await.code(), Some(0), "{}", process.output());
    proven(&disk.0, &answered);
}

/// Checks that the gateway accepts no changes and reports the full disk. While the store still finds free blocks, it
/// may accept a change, which must then persist.
async fn while_full(disk: &FullDiskHome, process: &Process, filler: &Path) {
    let admin = disk.admin();
    let grant = json!({"account": "default", "credits": 1, "id": "refused"});
    for (path, body) in [("/admin/credits/grant", grant), ("/admin/keys", json!({}))] {
        within("a refusal", async {
            loop {
                fill(filler);
                let refused = admin.post(path, &body).await;
                if refused.status == 507 {
                    assert!(refused.text().contains("RESOURCE_5006"), "{}", refused.text());
                    return;
                }
                assert!([201, 409].contains(&refused.status), "{path}: {}", refused.text());
            }
        })
        .await;
    }
    let made = disk.0.command(&["keys", "create"]);
    assert_eq!(made.status.code(), Some(1), "{}", complaint(&made));
    let metrics = disk.0.admin().get("/metrics").await.text();
    assert!(metrics.contains("penstock_ledger_failing 1"), "{metrics}");
    process.wait_for_line("ledger_not_written").await;
}

/// Checks that every good answer is charged once, and that there are no other charges.
fn proven(home: &Home, answered: &BTreeSet<String>) {
    // Any command that opens the ledger for writing voids the reserves that a kill left open; verifying changes
    // nothing.
    assert!(home.command(&["credits", "balance"]).status.success());
    let proof = home.command(&["credits", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
    let proof = String::from_utf8(proof.stdout).unwrap();
    assert!(proof.contains(", 0 open reserves"), "{proof}");
    let text = String::from_utf8(home.command(&["credits", "export"]).stdout).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let charged: Vec<String> = entries
        .filter(|entry| entry["act"] == "settle")
        .map(|entry| entry["request"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(charged.len(), answered.len());
    assert_eq!(&charged.into_iter().collect::<BTreeSet<_>>(), answered);
    let printed = home.command(&["credits", "balance", "default", "--json"]);
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let balance = printed["data"][0]["credits"]["balance"].as_f64().unwrap();
    assert!((balance - (101.0 - answered.len() as f64 * ANSWER)).abs() < 1e-6, "{balance}");
}
