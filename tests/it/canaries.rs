//! A hundred secrets and two hundred pieces of content on every way through the gateway, and through its failures:
//! afterwards none of them is in a log, metric, status, error, store, archive, spool or temporary file. What the
//! contract keeps, contents of files, is below `files/` alone, and goes with the file.

use crate::harness::process::{Home, Process, SECRET, catalogue};
use crate::harness::script::*;
use crate::harness::{Answer, Client, Provider, jobs};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::Path;

const CHAT: &str = "/v1/chat/completions";
const HEADER: &str = "canary-secret-header-value";
/// Rounds of all the ways; each plants words of its own.
const ROUNDS: usize = 10;

/// Words that nobody else says, each said once.
#[derive(Default)]
struct Planted {
    next: Cell<usize>,
    words: std::cell::RefCell<Vec<String>>,
}

impl Planted {
    fn word(&self, kind: &str) -> String {
        let number = self.next.replace(self.next.get() + 1);
        let word = format!("canary-{kind}-{number:03}-{:08x}", (number as u32 + 7).wrapping_mul(0x9e37_79b1));
        self.words.borrow_mut().push(word.clone());
        word
    }

    fn prompt(&self) -> String {
        self.word("prompt")
    }

    fn answer(&self) -> String {
        self.word("answer")
    }
}

/// A gateway with a model of every kind at one provider, and one more chat model at two.
fn home(first: &Provider, second: &Provider) -> Home {
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

fn chat(model: &str, prompt: &str, stream: bool) -> Value {
    let words = json!([{"role": "system", "content": prompt}, {"role": "user", "content": prompt}]);
    json!({"model": model, "stream": stream, "messages": words, "user": prompt, "metadata": {"a": prompt}})
}

fn form(prompt: &str, sound: &[u8]) -> Vec<u8> {
    let field = |name: &str, value: &str| {
        format!("--b0und\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let head = format!(
        "--b0und\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{prompt}.wav\"\r\n\r\n"
    );
    let before = field("model", "w") + &field("prompt", prompt) + &head;
    [before.as_bytes(), sound, b"\r\n--b0und--\r\n"].concat()
}

const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=b0und");

/// Every endpoint once, each answered well. Returns what the clients got.
async fn served(client: &Client, provider: &Provider, planted: &Planted) -> Vec<Answer> {
    let mut answers = Vec::new();
    provider.then(plain(&planted.answer()));
    answers.push(client.post(CHAT, &chat("m", &planted.prompt(), false)).await);
    let words = [planted.answer(), planted.answer()];
    provider.then(stream(&[&words[0], &words[1]]));
    answers.push(client.post(CHAT, &chat("m", &planted.prompt(), true)).await);
    for streamed in [false, true] {
        let word = planted.answer();
        provider.then(if streamed { stream(&[&word]) } else { plain(&word) });
        let message = json!([{"role": "user", "content": planted.prompt()}]);
        let body = json!({"model": "m", "max_tokens": 9, "system": planted.prompt(), "messages": message, "stream": streamed});
        answers.push(client.post("/v1/messages", &body).await);
        answers.push(client.post("/v1/messages/count_tokens", &body).await);
    }
    provider.then(vectors(&[&[1.0, 2.0]], 3));
    answers.push(client.post("/v1/embeddings", &json!({"model": "e", "input": planted.prompt()})).await);
    provider.then(scores(&[0.5], 3));
    let rerank = json!({"model": "r", "query": planted.prompt(), "documents": [planted.prompt()], "return_documents": true});
    answers.push(client.post("/v1/rerank", &rerank).await);
    let picture = json!({"b64_json": "iVBORw0KGgo=", "revised_prompt": planted.answer()});
    provider.then(json_answer(200, &json!({"created": 1, "data": [picture]})));
    let draw = json!({"model": "d", "prompt": planted.prompt(), "response_format": "b64_json", "user": planted.prompt()});
    answers.push(client.post("/v1/images/generations", &draw).await);
    provider.then(json_answer(200, &json!({"text": planted.answer(), "language": "de", "duration": 1.0})));
    let mut sound = crate::sounds::wav(1000);
    sound.extend_from_slice(planted.prompt().as_bytes());
    answers.push(
        client.send("POST", "/v1/audio/transcriptions", &[FORM], &form(&planted.prompt(), &sound)).await,
    );
    for answer in &answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    answers
}

/// Every way to fail; no answer repeats a planted word.
async fn failed(client: &Client, first: &Provider, second: &Provider, planted: &Planted) -> Vec<Answer> {
    let mut answers = Vec::new();
    let echo = |status: u16| {
        let said = format!("{} {} {SECRET} {HEADER}", planted.prompt(), planted.answer());
        json_answer(status, &json!({"error": {"message": said, "type": said, "param": said, "code": said}}))
    };
    for status in [400, 401, 429, 500] {
        for _ in 0..4 {
            first.then(echo(status));
        }
        answers.push(client.post(CHAT, &chat("m", &planted.prompt(), status == 429)).await);
        first.clear();
    }
    let broken = |word: String| vec![sse(), role(), text(&word), Act::Cut];
    first.always(broken(planted.answer()));
    answers.push(client.post(CHAT, &chat("m", &planted.prompt(), true)).await);
    first.always(vec![
        sse(),
        role(),
        Act::Chunk(format!("data: {{{}\n\n", planted.answer()).into_bytes()),
        Act::End,
    ]);
    answers.push(client.post(CHAT, &chat("m", &planted.prompt(), true)).await);
    // The cheaper one fails, the other answers.
    first.always(echo(503));
    let word = planted.answer();
    second.always(stream(&[&word]));
    let over = client.post(CHAT, &chat("two", &planted.prompt(), true)).await;
    assert!(over.text().contains(&word), "{}", over.text());
    // It left in the middle.
    let word = planted.answer();
    first.always(vec![sse(), role(), text(&word), Act::Hang]);
    let left = first.left();
    drop(client.stream_until(CHAT, &chat("m", &planted.prompt(), true), &word).await);
    first.until_left(left + 1).await;
    first.clear();
    first.always(plain("x"));
    let cut = format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"{}\" \"content\"", planted.prompt());
    answers.push(client.send("POST", CHAT, &[], cut.as_bytes()).await);
    answers.push(client.post(CHAT, &json!({"model": planted.prompt(), "messages": planted.prompt()})).await);
    answers.push(client.post(CHAT, &chat("nobodys", &planted.prompt(), false)).await);
    answers.push(client.post("/v1/embeddings", &json!({"model": "e", "input": [planted.prompt(), 5]})).await);
    answers.push(
        client.send("POST", "/v1/audio/transcriptions", &[FORM], &form(&planted.prompt(), b"no")).await,
    );
    answers.push(jobs::upload(client, &format!("{{\"custom_id\":\"{}\",", planted.prompt())).await);
    let header = [("x-api-key", planted.prompt()), ("authorization", format!("Bearer {}", planted.prompt()))];
    let header: Vec<_> = header.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stranger = Client { address: client.address, key: String::new() };
    answers.push(stranger.send("POST", CHAT, &header, b"{}").await);
    answers
}

/// What each file below a folder holds.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        if entry.path().is_dir() {
            files(&entry.path(), found);
        } else {
            found.push((entry.path().display().to_string(), std::fs::read(entry.path()).unwrap()));
        }
    }
}

/// Where any of the words stands, as it is or in hexadecimal digits.
fn hits(words: &[String], places: &[(String, Vec<u8>)]) -> Vec<String> {
    let hex = |word: &str| word.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let needles: Vec<(String, String)> = words.iter().map(|word| (word.clone(), hex(word))).collect();
    let mut found = Vec::new();
    for (place, bytes) in places {
        for (word, hex) in &needles {
            if [word, hex].iter().any(|needle| memchr::memmem::find(bytes, needle.as_bytes()).is_some()) {
                found.push(format!("{word} in {place}"));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_secrets_and_all_content_leave_no_trace() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    let home = home(&first, &second);
    let mut running = run(&home).await;
    let token = std::fs::read_to_string(home.storage().join("admin.token")).unwrap().trim().to_owned();
    let pepper = std::fs::read(home.storage().join("pepper")).unwrap();
    let admin = Client { key: token.clone(), ..home.admin() };
    let (mut secrets, mut client) = (vec![SECRET.to_owned(), HEADER.to_owned()], home.admin());
    for number in 0..98 {
        let made = admin.post("/admin/keys", &json!({"name": format!("key {number}")})).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let key = made.json()["key"].as_str().unwrap().to_owned();
        secrets.push(key["sk-svc-".len() + 16..][..40].to_owned());
        client = Client { address: home.http, key };
    }
    let planted = Planted::default();
    let (mut refused, mut got) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        got += served(&client, &first, &planted).await.len();
        refused.extend(failed(&client, &first, &second, &planted).await);
        first.clear();
    }
    let mut words = planted.words.take();
    assert!(words.len() >= 200 && got >= 100, "{} words", words.len());
    words.extend(secrets.iter().cloned());

    // A batch: its input and its results are kept, and nowhere but in its files.
    let kept = Planted { next: Cell::new(5_000), ..Planted::default() };
    first.always(plain(&kept.answer()));
    let lines: String = (0..5).map(|_| jobs::line(&kept.word("id"), &kept.prompt()) + "\n").collect();
    let batch = jobs::ended(&client, &jobs::batch(&client, &lines).await).await;
    assert_eq!(batch["request_counts"]["completed"], 5, "{batch}");
    let kept = kept.words.take();

    let mut places: Vec<(String, Vec<u8>)> = Vec::new();
    for answer in refused {
        assert!(answer.status >= 400 || answer.text().contains("error"), "{}", answer.text());
        let headers = format!("{:?}", answer.headers).into_bytes();
        places.push((format!("an answer {}", answer.status), [answer.body, headers].concat()));
    }
    // A stream that began has what it said; that is the client's own.
    let begun = |place: &str| place == "an answer 200";
    for (place, bytes) in places.iter().filter(|(place, _)| begun(place)) {
        assert!(hits(&secrets, &[(place.clone(), bytes.clone())]).is_empty());
    }
    places.retain(|(place, _)| !begun(place));
    for path in ["/metrics", "/status", "/readyz", "/healthz"] {
        places.push((path.to_owned(), home.admin().get(path).await.body));
    }
    for path in ["/admin/keys", "/admin/audit", "/admin/providers", "/admin/ledger"] {
        places.push((path.to_owned(), admin.get(path).await.body));
    }
    for file in [&batch["input_file_id"], &batch["output_file_id"]] {
        let path = format!("/v1/files/{}", file.as_str().unwrap());
        let mut below = Vec::new();
        files(&home.storage().join("files"), &mut below);
        assert!(!hits(&kept, &below).is_empty(), "what the contract keeps is there");
        assert_eq!(client.send("DELETE", &path, &[], b"").await.status, 200);
        for gone in [path.clone(), format!("{path}/content")] {
            assert_eq!(client.get(&gone).await.status, 404);
        }
    }
    running.signal("TERM");
    assert_eq!(running.until_ended().await.code(), Some(0));
    let archive = home.path().join("archive");
    let exported = home.command(&["store", "export", archive.to_str().unwrap()]);
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));

    let said = running.said();
    assert!(said.matches("\"event\":\"request\"").count() >= 200, "the log was on");
    places.push(("the log".to_owned(), said.clone().into_bytes()));
    for folder in [home.storage(), archive, home.path().join("tmp")] {
        files(&folder, &mut places);
    }
    assert!(places.iter().any(|(place, bytes)| place.contains("/store/") && !bytes.is_empty()));
    let mut found = hits(&words, &places);
    // The names that a client gives its lines and the answer of the last call were in the files, which are gone.
    found.extend(hits(&kept, &places));
    assert!(found.is_empty(), "{} hits: {:#?}", found.len(), &found[..found.len().min(20)]);
    // The admin token and the pepper are in their own files alone, and in the archive that says so.
    let own = |place: &str| place.ends_with("/admin.token") || place.ends_with("/pepper");
    places.retain(|(place, _)| !own(place));
    for secret in [token.as_bytes(), pepper.trim_ascii()] {
        for (place, bytes) in &places {
            assert!(memchr::memmem::find(bytes, secret).is_none(), "a secret of the house is in {place}");
        }
    }
    eprintln!(
        "{} secrets, {} words of content, {} places: 0 hits",
        secrets.len(),
        words.len() + kept.len() - secrets.len(),
        places.len()
    );
}
