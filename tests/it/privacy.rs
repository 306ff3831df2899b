//! Privacy: prompts, completions and keys are in no log, metric, status, error or file, at the most verbose level.

use crate::harness::process::{Home, SECRET, catalogue};
use crate::harness::script::{ScriptStep, completion, json_answer, plain, role, sse, status, stream, text};
use crate::harness::{Answer, Client, Provider};
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const PROMPT: &str = "planted-in-the-prompt-7f3a";
const COMPLETION: &str = "planted-in-the-completion-9c41";
const ROUTE: &str = "planted-in-the-providers-path-55e0";
const CHAT: &str = "/v1/chat/completions";

fn ask(stream: bool) -> Value {
    let words = json!([{"role": "system", "content": PROMPT}, {"role": "user", "content": PROMPT}]);
    json!({"model": "m", "stream": stream, "messages": words, "user": PROMPT})
}

/// Returns a gateway at the most verbose level, whose provider has a secret key and a secret path.
fn home(provider: &Provider) -> Home {
    let home = Home::new();
    let lines = "api_key = { env = \"PENSTOCK_IT_SECRET\" }\n\
        timeouts = { connect = \"20s\", first_byte = \"20s\", first_token = \"20s\", idle = \"20s\", total = \"50s\" }";
    let catalogue = catalogue(provider, lines).replace("/v1\"", &format!("/{ROUTE}/v1\""));
    home.write(&format!(
        "[log]\nlevel = \"debug\"\n[routing]\nquick_retry = \"0s\"\n[routing.breaker]\nconsecutive = 1000\nminimum = 1000\n{catalogue}"
    ));
    home
}

/// Returns path and contents of every file below a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    found
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Secret part of a key: 40 characters, after the 16 characters of its id.
fn secret(key: &str) -> &str {
    &key["sk-svc-".len() + 16..][..40]
}

/// Causes all kinds of failures, each with the planted words in the request or in the answer; returns the client's
/// answers.
async fn fail(client: &Client, provider: &Provider) -> Vec<Answer> {
    let echo = json!({"error": {"message": format!("{PROMPT} {COMPLETION} {SECRET} {ROUTE}")}});
    let mut answers = Vec::new();
    for code in [401, 404, 429, 500, 503] {
        for _ in 0..4 {
            provider.then(json_answer(code, &echo));
        }
        answers.push(client.post(CHAT, &ask(false)).await);
        provider.clear();
    }
    for script in [
        vec![ScriptStep::Cut],
        vec![ScriptStep::Raw(format!("HTTP/1.1 {PROMPT}\r\n\r\n").into_bytes()), ScriptStep::Cut],
        vec![
            sse(),
            role(),
            ScriptStep::Chunk(format!("data: {{{COMPLETION}\n\n").into_bytes()),
            ScriptStep::End,
        ],
        vec![sse(), role(), ScriptStep::Chunk(format!("data: {echo}\n\n").into_bytes()), ScriptStep::End],
        status(503),
    ] {
        provider.always(script);
        answers.push(client.post(CHAT, &ask(true)).await);
    }
    provider.always(plain(COMPLETION));
    let broken = format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"{PROMPT}\" \"content\"");
    answers.push(client.send("POST", CHAT, &[], broken.as_bytes()).await);
    answers.push(client.post(CHAT, &json!({"model": "m", "messages": PROMPT})).await);
    answers.push(client.post("/v1/chat/completion", &ask(false)).await);
    let embed = json!({"model": "m", "input": [PROMPT, 5], "encoding_format": PROMPT});
    answers.push(client.post("/v1/embeddings", &embed).await);
    answers.push(client.post("/v1/embeddings", &json!({"model": "m", "input": PROMPT})).await);
    let rerank = json!({"model": "m", "query": PROMPT, "documents": [PROMPT, {"text": PROMPT}]});
    answers.push(client.post("/v1/rerank", &rerank).await);
    answers.push(
        client.post("/v1/rerank", &json!({"model": "m", "query": PROMPT, "documents": [PROMPT]})).await,
    );
    let stranger = Client { address: client.address, key: format!("{}x", client.key) };
    answers.push(stranger.post(CHAT, &ask(false)).await);
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_secrets_are_in_no_log_metric_status_error_or_file() {
    let provider = Provider::start().await;
    let home = home(&provider);
    let mut running = home.run().await;
    let (client, _) = home.key();

    provider.then(json_answer(200, &completion(COMPLETION)));
    let good = client.post(CHAT, &ask(false)).await;
    assert!(good.status == 200 && good.text().contains(COMPLETION), "{}", good.text());
    provider.then(stream(&[COMPLETION, " and more"]));
    assert!(client.post(CHAT, &ask(true)).await.text().contains(COMPLETION));
    // This client disconnects in the middle of the answer.
    provider.then(vec![sse(), role(), text(COMPLETION), ScriptStep::Hang]);
    drop(client.stream_until(CHAT, &ask(true), COMPLETION).await);
    provider.until_left(1).await;
    let seen = provider.last();
    assert!(seen.path.contains(ROUTE) && seen.header("authorization").unwrap().contains(SECRET));

    let words = [PROMPT, COMPLETION, ROUTE, SECRET, secret(&client.key)];
    for answer in fail(&client, &provider).await {
        assert!(answer.status >= 400 || answer.text().contains("\"error\""), "{}", answer.text());
        for word in words {
            assert!(!holds(&answer.body, word), "{word} is in {}", answer.text());
            assert!(answer.headers.iter().all(|(_, value)| !value.contains(word)));
        }
    }
    for path in ["/metrics", "/status", "/readyz", "/healthz"] {
        let page = home.admin().get(path).await;
        assert!(words.iter().all(|word| !holds(&page.body, word)), "{path}: {}", page.text());
    }
    running.signal("HUP");
    running.wait_for_line("\"reloaded\"").await;
    running.signal("TERM");
    assert_eq!(running.until_ended().await.code(), Some(0));

    let log = running.output();
    assert!(log.matches("\"event\":\"request\"").count() >= 15, "the log was on: {log}");
    assert!(words.iter().all(|word| !log.contains(word)), "{log}");
    let stored = files(&home.storage());
    assert!(stored.iter().any(|(_, bytes)| !bytes.is_empty()));
    for (path, bytes) in stored {
        assert!(words.iter().all(|word| !holds(&bytes, word)), "{path} holds a planted word");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_with_secrets_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let provider = Provider::start().await;
    let home = home(&provider);
    let _running = home.run().await;
    for name in ["pepper", "admin.token"] {
        let mode = std::fs::metadata(home.storage().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// Core dump limits of a process, as the kernel reports them.
fn dumps(process: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let line = text.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_leaves_no_memory_on_disk_unless_it_is_allowed() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::unix::process::ExitStatusExt;
    let provider = Provider::start().await;
    // Raises the core dump limit to the maximum for this user. The gateway inherits this limit, and has to set it to
    // 0 itself.
    let most = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, Rlimit { current: most, maximum: most }).unwrap();
    for (lines, expected) in
        [("", "Max core file size 0 0 bytes".to_owned()), ("[process]\ncore_dumps = true\n", dumps("self"))]
    {
        let home = Home::new();
        home.write(&format!("{lines}{}", catalogue(&provider, "")));
        let mut running = home.run().await;
        assert_eq!(dumps(&running.id().to_string()), expected);
        if lines.is_empty() {
            running.signal("ABRT");
            let ended = running.until_ended().await;
            assert_eq!((ended.signal(), ended.core_dumped()), (Some(6), false));
        }
    }
}

/// Id of the user `nobody`.
const NOBODY: u32 = 65_534;

/// Returns true if another process of the same user may attach to this one and read its memory. Root may always
/// attach, so for root the function checks the owner of the process's files in `/proc` instead.
fn is_open(process: u32, root: bool) -> bool {
    let environment = format!("/proc/{process}/environ");
    match root {
        true => std::fs::metadata(environment).unwrap().uid() == NOBODY,
        false => std::fs::read(environment).is_ok(),
    }
}

/// Changes a command to run as the user `nobody`. It runs a copy of the binary, since this user may have no access to
/// the build folder.
fn as_nobody(home: &Home, command: &mut Command) {
    let (binary, out) = (home.path().join("gateway"), home.path().join("said"));
    // A separate process makes the copy. In this process, a child that another test forks meanwhile would inherit the
    // descriptor that is open for writing, and a file that is open for writing cannot be executed.
    assert!(Command::new("cp").arg(command.get_program()).arg(&binary).status().unwrap().success());
    let out = std::fs::File::options().append(true).open(out).unwrap();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut same = Command::new(binary);
    same.args(command.get_args()).env("PENSTOCK_IT_SECRET", SECRET).stdin(Stdio::null());
    same.stdout(out.try_clone().unwrap()).stderr(out).uid(NOBODY).gid(NOBODY);
    *command = same;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_of_the_same_user_cannot_attach_unless_allowed() {
    let provider = Provider::start().await;
    let root = rustix::process::geteuid().is_root();
    for (lines, open) in [("", false), ("[process]\ncore_dumps = true\n", true)] {
        let home = Home::new();
        home.write(&format!("{lines}{}", catalogue(&provider, "")));
        let running = home
            .run_with(|command| {
                if root {
                    as_nobody(&home, command);
                }
            })
            .await;
        assert_eq!(is_open(running.id(), root), open, "{lines}");
    }
}
