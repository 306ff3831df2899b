//! Requests of every kind, successful and not, each with unique words, over both protocols and by all keys.

use super::HEADER;
use crate::harness::certificates::{TestCertificate, connect};
use crate::harness::h2_client::H2Client;
use crate::harness::process::SECRET;
use crate::harness::script::*;
use crate::harness::{Answer, Client, Provider, batch_jobs};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

/// Unique words, each used once.
#[derive(Default)]
pub struct PlantedContent {
    pub next: Cell<usize>,
    pub words: RefCell<Vec<String>>,
}

impl PlantedContent {
    pub fn word(&self, kind: &str) -> String {
        let number = self.next.replace(self.next.get() + 1);
        let word = format!("canary-{kind}-{number:03}-{:08x}", (number as u32 + 7).wrapping_mul(0x9e37_79b1));
        self.words.borrow_mut().push(word.clone());
        word
    }

    pub fn prompt(&self) -> String {
        self.word("prompt")
    }

    pub fn answer(&self) -> String {
        self.word("answer")
    }
}

/// Clients of all keys, used in rotation.
pub struct ClientRotation {
    pub clients: Vec<Client>,
    pub next: Cell<usize>,
    pub https: SocketAddr,
    pub certified: TestCertificate,
}

impl ClientRotation {
    pub fn next(&self) -> &Client {
        let number = self.next.replace(self.next.get() + 1);
        &self.clients[number % self.clients.len()]
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.next().post(path, body).await
    }

    async fn send(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.next().send("POST", path, headers, body).await
    }

    /// Sends a request over its own HTTP/2 connection.
    async fn post2(&self, path: &str, body: &Value) -> Answer {
        let socket = connect(self.https, &self.certified.root, &["h2"]).await;
        H2Client::over(socket, &self.next().key).await.post(path, body).await
    }
}

fn chat(model: &str, prompt: &str, stream: bool) -> Value {
    let words = json!([{"role": "system", "content": prompt}, {"role": "user", "content": prompt}]);
    json!({"model": model, "stream": stream, "messages": words, "user": prompt, "metadata": {"a": prompt}})
}

fn message(model: &str, prompt: &str, stream: bool) -> Value {
    let words = json!([{"role": "user", "content": prompt}]);
    json!({"model": model, "max_tokens": 9, "system": prompt, "messages": words, "stream": stream})
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

/// Sends a successful request to every endpoint. Returns the responses.
pub async fn served(rotation: &ClientRotation, provider: &Provider, planted: &PlantedContent) -> Vec<Answer> {
    let mut answers = Vec::new();
    provider.then(plain(&planted.answer()));
    answers.push(rotation.post(CHAT, &chat("m", &planted.prompt(), false)).await);
    let words = [planted.answer(), planted.answer()];
    provider.then(stream(&[&words[0], &words[1]]));
    answers.push(rotation.post(CHAT, &chat("m", &planted.prompt(), true)).await);
    for streamed in [false, true] {
        let word = planted.answer();
        provider.then(if streamed { stream(&[&word]) } else { plain(&word) });
        let body = message("m", &planted.prompt(), streamed);
        answers.push(rotation.post(MESSAGES, &body).await);
        answers.push(rotation.post("/v1/messages/count_tokens", &body).await);
    }
    provider.then(vectors(&[&[1.0, 2.0]], 3));
    answers.push(rotation.post("/v1/embeddings", &json!({"model": "e", "input": planted.prompt()})).await);
    provider.then(scores(&[0.5], 3));
    let rerank = json!({"model": "r", "query": planted.prompt(), "documents": [planted.prompt()], "return_documents": true});
    answers.push(rotation.post("/v1/rerank", &rerank).await);
    let picture = json!({"b64_json": "iVBORw0KGgo=", "revised_prompt": planted.answer()});
    provider.then(json_answer(200, &json!({"created": 1, "data": [picture]})));
    let draw = json!({"model": "d", "prompt": planted.prompt(), "response_format": "b64_json", "user": planted.prompt()});
    answers.push(rotation.post("/v1/images/generations", &draw).await);
    provider.then(json_answer(200, &json!({"text": planted.answer(), "language": "de", "duration": 1.0})));
    let mut sound = crate::sounds::wav(1000);
    sound.extend_from_slice(planted.prompt().as_bytes());
    let body = form(&planted.prompt(), &sound);
    answers.push(rotation.send("/v1/audio/transcriptions", &[FORM], &body).await);
    provider.then(stream(&[&planted.answer()]));
    answers.push(rotation.post2(CHAT, &chat("m", &planted.prompt(), true)).await);
    provider.then(plain(&planted.answer()));
    answers.push(rotation.post2(MESSAGES, &message("m", &planted.prompt(), false)).await);
    for answer in &answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    answers
}

/// Sends requests that fail in every way, and asserts that no answer repeats a planted word.
pub async fn failed(
    rotation: &ClientRotation,
    (first, second): (&Provider, &Provider),
    planted: &PlantedContent,
    round: usize,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    let echo = |status: u16| {
        let echoed = format!("{} {} {SECRET} {HEADER}", planted.prompt(), planted.answer());
        json_answer(
            status,
            &json!({"error": {"message": echoed, "type": echoed, "param": echoed, "code": echoed}}),
        )
    };
    for status in [400, 401, 429, 500] {
        // One request of each dialect over each protocol. For 429, only one request: several 429 answers in a row
        // would cause ever longer waits.
        let one = round % 4;
        for variant in if status == 429 { one..one + 1 } else { 0..4 } {
            for _ in 0..4 {
                first.then(echo(status));
            }
            let (word, streamed) = (planted.prompt(), (status == 429) == (variant < 2));
            answers.push(match variant {
                0 => rotation.post(CHAT, &chat("m", &word, streamed)).await,
                1 => rotation.post(MESSAGES, &message("m", &word, streamed)).await,
                2 => rotation.post2(CHAT, &chat("m", &word, streamed)).await,
                _ => rotation.post2(MESSAGES, &message("m", &word, streamed)).await,
            });
            first.clear();
        }
    }
    let broken = |word: String| vec![sse(), role(), text(&word), ScriptStep::Cut];
    first.always(broken(planted.answer()));
    answers.push(rotation.post(CHAT, &chat("m", &planted.prompt(), true)).await);
    answers.push(rotation.post2(CHAT, &chat("m", &planted.prompt(), true)).await);
    answers.push(rotation.post(MESSAGES, &message("m", &planted.prompt(), true)).await);
    answers.push(rotation.post2(MESSAGES, &message("m", &planted.prompt(), true)).await);
    first.always(vec![
        sse(),
        role(),
        ScriptStep::Chunk(format!("data: {{{}\n\n", planted.answer()).into_bytes()),
        ScriptStep::End,
    ]);
    answers.push(rotation.post(CHAT, &chat("m", &planted.prompt(), true)).await);
    answers.push(rotation.post(MESSAGES, &message("m", &planted.prompt(), true)).await);
    // The cheaper provider fails, the other one answers.
    first.always(echo(503));
    let word = planted.answer();
    second.always(stream(&[&word]));
    let over = rotation.post(CHAT, &chat("two", &planted.prompt(), true)).await;
    assert!(over.text().contains(&word), "{}", over.text());
    // The client disconnects in the middle of the answer.
    let word = planted.answer();
    first.always(vec![sse(), role(), text(&word), ScriptStep::Hang]);
    let left = first.left();
    drop(rotation.next().stream_until(CHAT, &chat("m", &planted.prompt(), true), &word).await);
    first.until_left(left + 1).await;
    first.clear();
    first.always(plain("x"));
    let cut = format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"{}\" \"content\"", planted.prompt());
    let invalid = || json!({"model": planted.prompt(), "max_tokens": 9, "messages": planted.prompt()});
    for path in [CHAT, MESSAGES] {
        answers.push(rotation.send(path, &[], cut.as_bytes()).await);
        answers.push(rotation.post(path, &invalid()).await);
        answers.push(rotation.post2(path, &invalid()).await);
        answers.push(rotation.post(path, &message("nobodys", &planted.prompt(), false)).await);
    }
    answers.push(
        rotation.post(MESSAGES, &json!({"model": "m", "messages": [{"role": planted.prompt()}]})).await,
    );
    answers
        .push(rotation.post("/v1/embeddings", &json!({"model": "e", "input": [planted.prompt(), 5]})).await);
    let body = form(&planted.prompt(), b"no");
    answers.push(rotation.send("/v1/audio/transcriptions", &[FORM], &body).await);
    answers.push(
        batch_jobs::upload(rotation.next(), &format!("{{\"custom_id\":\"{}\",", planted.prompt())).await,
    );
    let header = [("x-api-key", planted.prompt()), ("authorization", format!("Bearer {}", planted.prompt()))];
    let header: Vec<_> = header.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stranger = Client { address: rotation.clients[0].address, key: String::new() };
    answers.push(stranger.send("POST", CHAT, &header, b"{}").await);
    answers
}
