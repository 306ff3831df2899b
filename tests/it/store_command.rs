//! `penstock store`: verification covers everything and names damage, exports can be restored elsewhere, and the rest
//! of a damaged store is recovered.

use crate::harness::process::{Home, catalogue, complaint};
use crate::harness::{Client, Provider};
use penstock::config::{ConfigSource, settings};
use penstock::storage::files::quota::UploadLimits;
use penstock::storage::files::{FileManager, FileOwner};
use penstock::storage::stores::OpenStorage;
use penstock_batch::upload_form::UploadFields;
use penstock_storage::batches::{BatchCounts, BatchRecord, BatchState, BatchStore};
use penstock_storage::files::{FileRecord, FileStore};
use penstock_storage::ledger::LedgerStore;
use penstock_storage::{StoreTable, Transaction};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";
const NOW: Duration = Duration::from_secs(1_700_000_000);

fn output_text(output: &Output) -> String {
    assert!(output.status.success(), "{}", complaint(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(output: &Output, why: &str) -> String {
    let stderr = complaint(output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(why) && stderr.trim_end().ends_with('.'), "{why} is missing in {stderr}");
    stderr
}

fn stores(home: &Home) -> OpenStorage {
    let reach = ConfigSource::File(home.config()).gateway_access().unwrap();
    OpenStorage::open(&reach.storage.unwrap()).unwrap()
}

/// Creates a storage folder with all kinds of data: keys, charges, a file, a half-finished batch.
struct FilledStorage {
    home: Home,
    provider: Provider,
    client: Client,
    input: PathBuf,
    output: PathBuf,
    batch: BatchRecord,
}

async fn furnished() -> FilledStorage {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&format!("[billing]\ncredit = \"prepaid\"\n{}", catalogue(&provider, "")));
    let (client, id) = home.key();
    output_text(&home.command(&["credits", "grant", "default", "--credits", "10"]));
    let mut process = home.run().await;
    for _ in 0..3 {
        let ask = json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]});
        assert_eq!(client.post(CHAT, &ask).await.status, 200);
    }
    process.signal("TERM");
    process.until_ended().await;
    let (input, output, batch) = half_done(&home, &id);
    let folder = home.storage().join("files");
    FilledStorage {
        input: folder.join(input.id),
        output: folder.join(output.id),
        home,
        provider,
        client,
        batch,
    }
}

fn line(custom_id: &str) -> String {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    let line = json!({"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body});
    format!("{line}\n")
}

fn result(custom_id: &str) -> String {
    format!("{}\n", json!({"id": "batch_req_1", "custom_id": custom_id, "status_code": 200, "response": {}}))
}

/// A batch of three lines, two of which have their result.
fn half_done(home: &Home, key: &str) -> (FileRecord, FileRecord, BatchRecord) {
    let stores = stores(home);
    let settings = settings::FileSettings {
        path: home.storage().join("files"),
        upload: 1 << 20,
        disk: 1 << 30,
        per_key: 1 << 30,
        keep_free: 0,
        retention: None,
        leftovers: Duration::from_secs(3_600),
        store: None,
    };
    let files = FileManager::open(&settings, FileStore::new(stores.store.clone()), false).unwrap();
    let owner = FileOwner { key, account: "default" };
    let mut incoming = files
        .start_upload(
            owner,
            UploadLimits {
                max_total_bytes: 1 << 30,
                max_key_bytes: 1 << 30,
                min_free_bytes: 0,
                max_line_bytes: 1 << 20,
            },
        )
        .unwrap();
    for id in ["a", "b", "c"] {
        incoming.push(line(id).as_bytes()).unwrap();
    }
    let fields = UploadFields { filename: "in.jsonl".to_owned(), expires_after: None };
    let input = files.store_upload(incoming, owner, fields, NOW).unwrap();
    let fresh = files.create_output(owner, "out.jsonl".to_owned(), CHAT, NOW).unwrap();
    let mut writer = files.open_output(&fresh).unwrap();
    for id in ["a", "b"] {
        writer.append(result(id).as_bytes()).unwrap();
    }
    writer.sync().unwrap();
    let output = FileRecord { bytes: writer.len(), lines: 2, ..fresh };
    let batch = BatchRecord {
        id: "batch_1".to_owned(),
        key: key.to_owned(),
        account: "default".to_owned(),
        endpoint: CHAT.to_owned(),
        input: input.id.clone(),
        output: Some(output.id.clone()),
        output_bytes: output.bytes,
        window: "24h".to_owned(),
        created_ms: 1,
        expires: 2,
        state: BatchState::InProgress,
        counts: BatchCounts { total: 3, completed: 1, failed: 1, ..BatchCounts::default() },
        ..BatchRecord::default()
    };
    let done = Transaction::new().put(StoreTable::Lines, *b"batch_1", [0b11]);
    BatchStore::new(stores.store.clone())
        .insert(&batch, FileStore::insert_operations(&output).unwrap().append_operations(done))
        .unwrap();
    (input, output, batch)
}

/// Flips one byte of a file; a second call restores it.
fn flip_byte(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

impl FilledStorage {
    fn store(&self, words: &[&str]) -> Output {
        self.home.command(&[&["store"], words].concat())
    }

    fn change_batch(&self, change: impl FnOnce(&mut BatchRecord)) {
        let mut batch = self.batch.clone();
        change(&mut batch);
        let rows = penstock_storage::batches::batch_row_writes(&batch, Some(&[0b11])).unwrap();
        let mut writes = Transaction::new();
        for row in rows {
            writes = match row.value {
                Some(value) => writes.put(row.table, row.key, value),
                None => writes.delete(row.table, row.key),
            };
        }
        stores(&self.home).store.apply(writes).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verification_covers_everything_and_names_each_error() {
    let all = furnished().await;
    let good = output_text(&all.store(&["verify"]));
    assert!(
        good.contains("2 files") && good.contains("1 batches") && good.contains("as it was written"),
        "{good}"
    );
    let middle = fs::metadata(&all.input).unwrap().len() / 2;
    for at in [0, 10, middle] {
        flip_byte(&all.input, at);
        refused(&all.store(&["verify"]), "its contents are damaged");
        flip_byte(&all.input, at);
    }
    let original = fs::read(&all.output).unwrap();
    fs::File::options().write(true).open(&all.output).unwrap().set_len(original.len() as u64 - 1).unwrap();
    refused(&all.store(&["verify"]), "its contents are damaged");
    fs::write(&all.output, [result("a"), result("a")].concat()).unwrap();
    refused(&all.store(&["verify"]), "for the second time");
    fs::write(&all.output, [result("a"), result("d")].concat()).unwrap();
    refused(&all.store(&["verify"]), "unknown custom_id");
    fs::write(&all.output, &original).unwrap();
    let moved = all.input.with_extension("gone");
    fs::rename(&all.input, &moved).unwrap();
    refused(&all.store(&["verify"]), "its contents are missing");
    fs::rename(&moved, &all.input).unwrap();
    for (why, counts) in [
        ("2 lines are marked as finished, and 1 are counted", BatchCounts { failed: 0, ..all.batch.counts }),
        ("add up to 4 of 3 lines", BatchCounts { cancelled: 2, ..all.batch.counts }),
    ] {
        all.change_batch(|batch| batch.counts = counts);
        refused(&all.store(&["verify"]), why);
    }
    all.change_batch(|batch| batch.output_bytes = 7);
    refused(&all.store(&["verify"]), "by their file and 7 by the batch");
    all.change_batch(|_| {});
    let month = fs::read_dir(all.home.storage().join("ledger")).unwrap().next().unwrap().unwrap().path();
    let written = fs::read(&month).unwrap();
    fs::write(&month, [&written[..], b"{}\n"].concat()).unwrap();
    refused(&all.store(&["verify"]), "ledger: ");
    // After a crash the second copy may lack its end: the check reports that, and the next start writes the end.
    fs::write(&month, &written[..written.len() / 2]).unwrap();
    refused(&all.store(&["verify"]), "ledger: the file of ");
    assert!(fs::read(&month).unwrap() == written[..written.len() / 2]);
    let running = all.home.run().await;
    running.kill().await;
    output_text(&all.store(&["verify"]));
    assert!(fs::read(&month).unwrap().starts_with(&written));
    let running = all.home.run().await;
    refused(&all.store(&["verify"]), "stop the gateway first");
    running.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_restored_elsewhere_and_works_there() {
    let all = furnished().await;
    let archive = all.home.path().join("archive");
    let to = archive.to_str().unwrap();
    let saved = output_text(&all.store(&["export", to]));
    assert!(saved.starts_with("Exported ") && saved.contains("protect it like the store"), "{saved}");
    refused(&all.store(&["export", to]), "is not empty");
    refused(&all.store(&["import", to]), "There is a store");
    let mut elsewhere = Home::new();
    // Damage in any file of the archive is found before the import writes a byte.
    let config = |home: &Home| {
        home.write(&format!("[billing]\ncredit = \"prepaid\"\n{}", catalogue(&all.provider, "")))
    };
    config(&elsewhere);
    let mut files = vec![archive.join("manifest.jsonl"), archive.join("store.jsonl"), archive.join("pepper")];
    for folder in ["files", "ledger"] {
        files.extend(fs::read_dir(archive.join(folder)).unwrap().map(|entry| entry.unwrap().path()));
    }
    assert_eq!(files.len(), 6);
    for path in files {
        flip_byte(&path, fs::metadata(&path).unwrap().len() / 2);
        refused(&elsewhere.command(&["store", "import", to]), "damaged");
        flip_byte(&path, fs::metadata(&path).unwrap().len() / 2);
        assert!(!elsewhere.storage().exists(), "{}", path.display());
    }
    let restored = output_text(&elsewhere.command(&["store", "import", to]));
    assert!(restored.contains("Everything is as it was written"), "{restored}");
    let first = |text: &str| text.lines().next().unwrap().to_owned();
    assert_eq!(first(&restored).replace("Imported", "Exported"), first(&saved));
    refused(&elsewhere.command(&["store", "import", to]), "There is a store");
    let export = |home: &Home| output_text(&home.command(&["credits", "export"]));
    assert_eq!(export(&elsewhere), export(&all.home));
    // The key of the original works at the restored gateway.
    let running = elsewhere.run().await;
    let client = Client { address: elsewhere.http, ..all.client.clone() };
    let ask = json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(client.post(CHAT, &ask).await.status, 200);
    running.kill().await;
    // An interrupted import can be continued.
    elsewhere = Home::new();
    config(&elsewhere);
    fs::create_dir_all(elsewhere.storage().join("files")).unwrap();
    fs::create_dir_all(elsewhere.storage().join("store.import/sled.new")).unwrap();
    fs::copy(archive.join("pepper"), elsewhere.storage().join("pepper")).unwrap();
    let name = all.input.file_name().unwrap();
    fs::copy(archive.join("files").join(name), elsewhere.storage().join("files").join(name)).unwrap();
    for words in [["keys", "list"].as_slice(), &["credits", "export"], &["run"]] {
        refused(&elsewhere.command(words), "An import into");
    }
    output_text(&elsewhere.command(&["store", "import", to]));
    output_text(&elsewhere.command(&["keys", "list"]));
    // Foreign files are not overwritten.
    elsewhere = Home::new();
    config(&elsewhere);
    fs::create_dir_all(elsewhere.storage()).unwrap();
    fs::write(elsewhere.storage().join("pepper"), "0f".repeat(32)).unwrap();
    refused(&elsewhere.command(&["store", "import", to]), "is there already");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_of_a_damaged_store_is_recovered_with_a_complete_ledger() {
    let all = furnished().await;
    let before = output_text(&all.home.command(&["credits", "export"]));
    let stores = stores(&all.home);
    LedgerStore::clear(&*stores.store).unwrap();
    drop(stores);
    flip_byte(&all.input, 10);
    refused(&all.store(&["verify"]), "ledger: ");
    let folder = all.home.path().join("saved");
    let saved = all.store(&["repair", "--to", folder.to_str().unwrap()]);
    refused(&saved, "its contents are damaged");
    let stdout = String::from_utf8(saved.stdout).unwrap();
    assert!(stdout.contains("written again from its second copy"), "{stdout}");
    let written = fs::read_to_string(all.home.config()).unwrap();
    fs::write(all.home.config(), written.replace("path = \"data\"", "path = \"saved\"")).unwrap();
    assert_eq!(output_text(&all.home.command(&["credits", "export"])), before);
    assert!(output_text(&all.home.command(&["credits", "verify"])).contains("Every entry follows"));
    // Flips the damaged byte of the file back; after that, the verification passes.
    flip_byte(&folder.join("files").join(all.input.file_name().unwrap()), 10);
    output_text(&all.store(&["verify"]));
    refused(&all.store(&["repair", "--to", folder.to_str().unwrap()]), "is not empty");
    let running = all.home.run().await;
    let ask = json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(all.client.post(CHAT, &ask).await.status, 200);
    running.kill().await;
}

/// Owner of the folder and of its contents.
fn owners(folder: &Path) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([fs::metadata(folder).unwrap().uid()]);
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(owners(&entry.path())),
            false => found.extend([entry.metadata().unwrap().uid()]),
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_by_root_leave_no_files_of_root() {
    let provider = Provider::start().await;
    let me = fs::metadata(Home::new().path()).unwrap().uid();
    // Only root can change the owner of a folder, so only commands that root runs could create files with a wrong
    // owner.
    let owner = if me == 0 { 65_534 } else { me };
    let given = || {
        let home = Home::new();
        home.write(&catalogue(&provider, ""));
        fs::create_dir(home.storage()).unwrap();
        if me == 0 {
            std::os::unix::fs::chown(home.storage(), Some(owner), Some(owner)).unwrap();
        }
        home
    };
    let (home, elsewhere) = (given(), given());
    home.key();
    output_text(&home.command(&["credits", "grant", "default", "--credits", "10"]));
    output_text(&home.command(&["check"]));
    output_text(&home.command(&[
        "store",
        "repair",
        "--to",
        home.storage().join("repaired").to_str().unwrap(),
    ]));
    let archive = home.path().join("archive");
    output_text(&home.command(&["store", "export", archive.to_str().unwrap()]));
    output_text(&elsewhere.command(&["store", "import", archive.to_str().unwrap()]));
    for home in [&home, &elsewhere] {
        assert_eq!(owners(&home.storage()), BTreeSet::from([owner]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unwritable_second_copy_is_reported_with_its_path() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    output_text(&home.command(&["credits", "grant", "default", "--credits", "10"]));
    let ledger = home.storage().join("ledger");
    let month = fs::read_dir(&ledger).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&month).unwrap();
    fs::create_dir(&month).unwrap();
    refused(
        &home.command(&["credits", "grant", "default", "--credits", "10"]),
        &format!("at {}", ledger.display()),
    );
}
