//! Files over real sockets: uploaded in any part order and at any split, listed, read whole or in ranges, deleted;
//! errors name the line, and rejected files leave nothing behind.

use crate::harness::gateway::Running;
use crate::harness::{Answer, Bench, Client};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::PathBuf;

pub const TYPE: (&str, &str) = ("content-type", "multipart/form-data; boundary=b0und");

pub fn line(id: &str) -> String {
    format!(
        "{{\"custom_id\":\"{id}\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\
         \"body\":{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"Grüß {id}\"}}]}}}}"
    )
}

pub fn lines(count: usize) -> Vec<u8> {
    (0..count).map(|i| line(&format!("line-{i}")) + "\n").collect::<String>().into_bytes()
}

fn field(name: &str, value: &str) -> Vec<u8> {
    format!("--b0und\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").into_bytes()
}

fn file(name: &str, contents: &[u8]) -> Vec<u8> {
    let head = format!(
        "--b0und\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    [head.as_bytes(), contents, b"\r\n"].concat()
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat().as_slice(), b"--b0und--\r\n"].concat()
}

pub fn batch(contents: &[u8]) -> Vec<u8> {
    form(&[field("purpose", "batch"), file("ask.jsonl", contents)])
}

pub async fn send(client: &Client, body: &[u8]) -> Answer {
    client.send("POST", "/v1/files", &[TYPE], body).await
}

pub async fn uploaded(client: &Client, contents: &[u8]) -> Value {
    let answer = send(client, &batch(contents)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

pub fn id(file: &Value) -> String {
    file["id"].as_str().unwrap().to_owned()
}

pub async fn content(client: &Client, id: &str, headers: &[(&str, &str)]) -> Answer {
    client.send("GET", &format!("/v1/files/{id}/content"), headers, b"").await
}

pub async fn deleted(client: &Client, id: &str) -> Answer {
    client.send("DELETE", &format!("/v1/files/{id}"), &[], b"").await
}

pub fn error(answer: &Answer, status: u16, code: &str) -> Value {
    let body = answer.json();
    assert_eq!((answer.status, body["error"]["code"].as_str()), (status, Some(code)), "{}", answer.text());
    body["error"].clone()
}

/// Paths of the files' contents on the disk.
pub fn on_disk(running: &Running) -> Vec<PathBuf> {
    let folder = running.storage().join("files");
    let names = |folder: PathBuf| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let own = |path: &PathBuf| path.is_file() && !path.ends_with(".store");
    names(folder.join("aside")).chain(names(folder)).filter(own).collect()
}

pub fn nothing_is_left(running: &Running) {
    assert!(on_disk(running).is_empty(), "{:?}", on_disk(running));
    assert_eq!(running.gateway.app.files.used_bytes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_come_in_any_order_and_any_framing() {
    let running = Bench::new().start().await;
    let client = &running.client;
    let contents = lines(40);
    let (purpose, file) = (field("purpose", "batch"), file("C:\\batches\\na\u{ef}ve 1.jsonl", &contents));
    let after = [field("expires_after[anchor]", "created_at"), field("expires_after[seconds]", "7200")];
    let orders = [
        [purpose.clone(), after[0].clone(), after[1].clone(), file.clone()],
        [file, after[1].clone(), field("other", "x"), [after[0].clone(), purpose].concat()],
    ];
    for parts in orders {
        let answer = send(client, &form(&parts)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let uploaded = answer.json();
        let created = uploaded["created_at"].as_u64().unwrap();
        let expected = json!({"id": uploaded["id"], "object": "file", "bytes": contents.len(), "created_at": created,
            "filename": "na\u{ef}ve 1.jsonl", "purpose": "batch", "status": "processed", "status_details": null, "expires_at": created + 7200});
        assert_eq!(uploaded, expected);
    }
    // Sends the upload without `content-length`, in chunks that are cut at unusual positions.
    let whole = batch(&contents);
    let mut chunked = Vec::new();
    for piece in whole.chunks(77) {
        chunked.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let answer = client.send("POST", "/v1/files", &[TYPE, ("transfer-encoding", "chunked")], &chunked).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(content(client, &id(&answer.json()), &[]).await.body, contents);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_are_given_whole_in_ranges_and_as_a_head() {
    let running = Bench::new().start().await;
    let client = &running.client;
    let contents = lines(3_000);
    let id = id(&uploaded(client, &contents).await);
    let whole = content(client, &id, &[("accept", "application/binary")]).await;
    assert_eq!((whole.status, whole.whole), (200, true));
    assert!(whole.body == contents, "the same bytes");
    assert_eq!(whole.header("content-type"), Some("application/jsonl"));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert_eq!(
        whole.header("content-disposition"),
        Some("attachment; filename=\"ask.jsonl\"; filename*=UTF-8''ask.jsonl")
    );
    let etag = whole.header("etag").unwrap().to_owned();
    let size = contents.len();
    for (range, from, to) in [
        ("bytes=0-9", 0, 10),
        ("bytes=65530-65545", 65_530, 65_546),
        ("bytes=-7", size - 7, size),
        ("bytes=70000-", 70_000, size),
    ] {
        let part = content(client, &id, &[("range", range)]).await;
        assert_eq!(part.status, 206, "{range}");
        assert!(part.body == contents[from..to], "{range}");
        let content_range = format!("bytes {from}-{}/{size}", to - 1);
        assert_eq!(part.header("content-range"), Some(content_range.as_str()));
    }
    let beyond = content(client, &id, &[("range", "bytes=99999999-")]).await;
    error(&beyond, 416, "RESOURCE_5007");
    assert_eq!(beyond.header("content-range"), Some(format!("bytes */{size}").as_str()));
    let same = content(client, &id, &[("range", "bytes=0-9"), ("if-range", &etag)]).await;
    let other = content(client, &id, &[("range", "bytes=0-9"), ("if-range", "\"other\"")]).await;
    assert_eq!((same.status, other.status, other.body.len()), (206, 200, size));
    for (field, tag, status) in [
        ("if-none-match", etag.as_str(), 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"other\"", 200),
        ("if-match", etag.as_str(), 200),
        ("if-match", "\"other\"", 412),
    ] {
        let answer = content(client, &id, &[(field, tag)]).await;
        assert_eq!(answer.status, status, "{field} {tag}");
        match status {
            304 => {
                let length = answer.header("content-length");
                assert_eq!((answer.header("etag"), length, answer.body.len()), (Some(&*etag), None, 0));
            }
            412 => {
                error(&answer, 412, "RESOURCE_5011");
            }
            _ => assert_eq!(answer.body.len(), size),
        }
    }
    let head = client.send("HEAD", &format!("/v1/files/{id}/content"), &[], b"").await;
    assert_eq!(
        (head.status, head.header("content-length"), head.body.len()),
        (200, Some(size.to_string().as_str()), 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_keys_file_is_none_and_scopes_are_asked_for() {
    let running = Bench::new().start().await;
    let id = id(&uploaded(&running.client, &lines(2)).await);
    let other = running.key(&json!({})).await;
    for answer in [
        other.get(&format!("/v1/files/{id}")).await,
        content(&other, &id, &[]).await,
        deleted(&other, &id).await,
        running.client.get("/v1/files/file-0").await,
        running.client.get("/v1/files/..%2Faside").await,
        running.client.get(&format!("/v1/files/{id}/more")).await,
    ] {
        error(&answer, 404, "RESOURCE_5001");
    }
    assert_eq!(other.get("/v1/files").await.json()["data"], json!([]));
    let models = running.key(&json!({"scopes": ["inference.models"]})).await;
    let refused = error(&models.get("/v1/files").await, 403, "AUTH_1003");
    assert_eq!(refused["details"]["required_scope"], "inference.batches");
    error(&send(&models, &batch(&lines(1))).await, 403, "AUTH_1003");
    // A key with any inference scope may use files.
    for scope in ["inference.batches", "inference.chat", "inference.embeddings", "inference.rerank"] {
        let key = running.key(&json!({"scopes": [scope]})).await;
        assert_eq!(uploaded(&key, &lines(1)).await["purpose"], "batch", "{scope}");
        assert_eq!(key.get("/v1/files").await.json()["data"].as_array().unwrap().len(), 1, "{scope}");
    }
    assert_eq!(running.client.get(&format!("/v1/files/{id}")).await.json()["id"], json!(id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_hold_while_their_files_are_deleted() {
    let running = Bench::new().start().await;
    let client = &running.client;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(id(&uploaded(client, &lines(1)).await));
    }
    made.sort();
    let page = client.get("/v1/files?limit=3&order=asc").await.json();
    let ids = |page: &Value| -> Vec<String> { page["data"].as_array().unwrap().iter().map(id).collect() };
    assert_eq!(ids(&page), made[..3]);
    assert_eq!((&page["first_id"], &page["last_id"]), (&json!(made[0]), &json!(made[2])));
    assert_eq!((&page["object"], &page["has_more"]), (&json!("list"), &json!(true)));
    // Deletes all files of the first page. The next page continues nevertheless, although its cursor is a deleted
    // file.
    for id in &made[..3] {
        assert_eq!(deleted(client, id).await.json(), json!({"id": id, "object": "file", "deleted": true}));
    }
    let next = client.get(&format!("/v1/files?limit=3&order=asc&after={}", made[2])).await.json();
    assert_eq!((ids(&next), &next["has_more"]), (made[3..6].to_vec(), &json!(true)));
    let last = client.get(&format!("/v1/files?limit=3&order=asc&after={}", made[5])).await.json();
    assert_eq!((ids(&last), &last["has_more"]), (made[6..].to_vec(), &json!(false)));
    let newest: Vec<String> = ids(&client.get("/v1/files").await.json());
    assert_eq!(newest, made[3..].iter().rev().cloned().collect::<Vec<_>>(), "the newest first");
    assert!(ids(&client.get("/v1/files?purpose=batch_output").await.json()).is_empty());
    let empty = client.get(&format!("/v1/files?order=asc&after={}", made[6])).await.json();
    assert_eq!((&empty["first_id"], &empty["last_id"]), (&Value::Null, &Value::Null));
    for (query, param) in
        [("limit=0", "limit"), ("order=x", "order"), ("purpose=x", "purpose"), ("after=x", "after")]
    {
        let refused = error(&client.get(&format!("/v1/files?{query}")).await, 400, "INFERENCE_3201");
        assert_eq!(refused["param"], param);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_line_among_many_is_named_and_nothing_is_stored() {
    let running = Bench::new().settings("[batches]\nline = \"1MiB\"\n").start().await;
    let client = &running.client;
    let mut all: Vec<String> = (0..50_000).map(|i| line(&i.to_string())).collect();
    assert_eq!(uploaded(client, all.join("\n").as_bytes()).await["status"], "processed");
    for made in client.get("/v1/files").await.json()["data"].as_array().unwrap() {
        deleted(client, &id(made)).await;
    }
    all[31_999] = line("17");
    all[40_000] = all[40_000].replace("POST", "GET");
    let refused = error(&send(client, &batch(all.join("\n").as_bytes())).await, 400, "INFERENCE_3201");
    assert_eq!(
        refused["message"],
        "file: line 32000: custom_id: expected a unique custom_id, but line 18 has the same. There is one more error."
    );
    assert_eq!((&refused["param"], &refused["details"]["line"]), (&json!("file"), &json!(32_000)));
    let second = &refused["details"]["errors"][1];
    assert_eq!(
        (&second["line"], &second["code"], &second["param"]),
        (&json!(40_001), &json!("invalid_method"), &json!("method"))
    );
    let good = line("a");
    let long = line("a").replace("Grüß", &"x".repeat(1 << 20));
    let many: String = (0..50_001).map(|i| line(&i.to_string()) + "\n").collect();
    for (contents, sentence) in [
        ("", "file: expected at least one line that is not blank, got none."),
        (
            "model,messages\n1,2",
            "file: line 1: expected a JSON object on one line, but this is not JSON or is nested deeper than 128 levels. There is one more error.",
        ),
        (&format!("{good}\n[]"), "file: line 2: expected a JSON object, got an array."),
        (
            &good.replace("}]}", "}],\"stream\":true}"),
            "file: line 1: body.stream: expected false or nothing: lines of a batch are not streamed.",
        ),
        (&long, "file: line 1: expected at most 1048576 bytes, got more."),
        (&many, "file: line 50001: expected at most 50000 lines, got more."),
    ] {
        let refused = error(&send(client, &batch(contents.as_bytes())).await, 400, "INFERENCE_3201");
        assert_eq!(refused["message"], sentence);
    }
    nothing_is_left(&running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_form_is_rejected_with_the_name_of_its_part() {
    let running = Bench::new().settings("[files]\nupload = \"64KiB\"").start().await;
    let client = &running.client;
    let good = lines(2);
    for (parts, param) in [
        (vec![file("a", &good)], "purpose"),
        (vec![field("purpose", "batch")], "file"),
        (vec![field("purpose", "fine-tune"), file("a", &good)], "purpose"),
        (
            vec![file("a", &good), field("purpose", "batch"), field("expires_after[seconds]", "60")],
            "expires_after[seconds]",
        ),
        (vec![file("a", &good), file("b", &good), field("purpose", "batch")], "file"),
    ] {
        let refused = error(&send(client, &form(&parts)).await, 400, "INFERENCE_3201");
        assert_eq!(refused["param"], param);
    }
    let cut = batch(&good);
    let refused = error(&send(client, &cut[..cut.len() - 20]).await, 400, "INFERENCE_3201");
    assert_eq!(refused["param"], "file");
    error(&client.post("/v1/files", &json!({"purpose": "batch"})).await, 415, "RESOURCE_5005");
    let refused = error(&send(client, &batch(&lines(500))).await, 413, "RESOURCE_5004");
    assert_eq!(refused["message"], "file: expected at most 65536 bytes, got more.");
    nothing_is_left(&running);
    // A client disconnects in the middle of an upload.
    let length = (cut.len() + 1_000).to_string();
    drop(client.open("POST", "/v1/files", &[TYPE, ("content-length", &length)], &cut[..50]).await);
    let app = running.gateway.app.clone();
    crate::harness::until("the upload to end", || {
        app.in_flight_exchanges() == 0 && on_disk(&running).is_empty()
    })
    .await;
    nothing_is_left(&running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_is_unreadable_at_once() {
    let running = Bench::new().start().await;
    let client = &running.client;
    let id = id(&uploaded(client, &lines(10)).await);
    assert_eq!(deleted(client, &id).await.status, 200);
    for answer in [
        client.get(&format!("/v1/files/{id}")).await,
        content(client, &id, &[]).await,
        deleted(client, &id).await,
    ] {
        error(&answer, 404, "RESOURCE_5001");
    }
    nothing_is_left(&running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_uploads_at_once_are_each_their_own() {
    let running = Bench::new().start().await;
    let mut tasks = Vec::new();
    for number in 0..24 {
        let client = running.client.clone();
        tasks.push(tokio::spawn(async move {
            let contents = lines(100 + number);
            let id = id(&uploaded(&client, &contents).await);
            assert!(content(&client, &id, &[]).await.body == contents);
            id
        }));
    }
    let mut ids = HashSet::new();
    for task in tasks {
        ids.insert(task.await.unwrap());
    }
    assert_eq!(ids.len(), 24);
    assert_eq!(running.client.get("/v1/files").await.json()["data"].as_array().unwrap().len(), 24);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_as_large_as_its_bound_and_no_larger() {
    let whole = lines(3);
    let most = whole.len();
    let running = Bench::new().settings(&format!("[files]\nupload = {most}")).start().await;
    let client = &running.client;
    // The file with and without the line end of its last line, and with an empty line at the end.
    let longer = [whole.as_slice(), b"\n"].concat();
    for contents in [&whole[..most - 1], &whole] {
        let file = uploaded(client, contents).await;
        assert_eq!(file["bytes"], contents.len());
        assert_eq!(content(client, &id(&file), &[]).await.body, contents);
    }
    let refused = error(&send(client, &batch(&longer)).await, 413, "RESOURCE_5004");
    assert_eq!(refused["message"], format!("file: expected at most {most} bytes, got more."));
}
