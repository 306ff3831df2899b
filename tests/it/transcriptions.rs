//! Transcripts: forms in, forms out, whatever their order and size; the sound
//! goes to the next provider byte for byte, and nothing of it stays.

use crate::harness::bench::{PATIENT, Running};
use crate::harness::h2::H2;
use crate::harness::provider::Seen;
use crate::harness::script::{Script, cut, json_answer, status};
use crate::harness::secure::{Certified, connect};
use crate::harness::{Answer, Bench, Provider, until, within};
use crate::sounds;
use serde_json::{Value, json};

pub const PATH: &str = "/v1/audio/transcriptions";
pub const TYPE: (&str, &str) = ("content-type", "multipart/form-data; boundary=b0und");

/// A transcription model `w` at these providers: name, provider, lines of the offer.
pub fn hears(providers: &[(&str, &Provider, &str)]) -> Bench {
    let mut toml = "[[models]]\nid = \"w\"\nkind = \"transcription\"\ncontext_length = 448\nprice = { minute = 0.006 }\n"
        .to_owned();
    for (id, provider, offer) in providers {
        toml.push_str(&format!(
            "[[providers]]\nid = \"{id}\"\noperator = \"Test\"\ncountry = \"DE\"\ncity = \"Köln\"\npue = 1.30\nwue = 0.2\n\
             base_url = \"http://{}/v1\"\n{PATIENT}\n[[providers.offers]]\nmodel = \"w\"\nname = \"their/w\"\n{offer}\n",
            provider.address
        ));
    }
    Bench::new().more(&toml)
}

/// Parts as clients send them: name, whether it is a file, content.
pub type Part<'a> = (&'a str, bool, &'a [u8]);

pub fn form(parts: &[Part<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, file, content) in parts {
        let file = if *file { "; filename=\"a.bin\"\r\nContent-Type: application/octet-stream" } else { "" };
        let head = format!("--b0und\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"--b0und--\r\n");
    bytes
}

/// The parts of what a provider was sent, read in the plainest way.
fn parts(seen: &Seen) -> Vec<(String, Vec<u8>)> {
    let kind = seen.header("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    let whole = [b"\r\n", seen.body.as_slice()].concat();
    let marks: Vec<usize> = memchr::memmem::find_iter(&whole, &delimiter).collect();
    assert!(whole.ends_with(&[&delimiter[..], b"--\r\n"].concat()), "it is closed");
    marks
        .windows(2)
        .map(|pair| {
            let part = &whole[pair[0] + delimiter.len() + 2..pair[1]];
            let at = memchr::memmem::find(part, b"\r\n\r\n").unwrap();
            let head = String::from_utf8_lossy(&part[..at]).into_owned();
            let name = head.split("name=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
            (name, part[at + 4..].to_vec())
        })
        .collect()
}

fn said() -> Script {
    json_answer(
        200,
        &json!({"task": "transcribe", "language": "de", "duration": 2.0, "text": " Guten Tag. Ja.",
        "segments": [{"id": 0, "start": 0.0, "end": 1.25, "text": " Guten Tag."}, {"id": 1, "start": 1.25, "end": 2.0, "text": " Ja."}]}),
    )
}

async fn send(running: &Running, parts: &[Part<'_>]) -> Answer {
    running.client.send("POST", PATH, &[TYPE], &form(parts)).await
}

fn error(answer: &Answer, status: u16, code: &str) -> Value {
    let body = answer.json();
    assert_eq!((answer.status, body["error"]["code"].as_str()), (status, Some(code)), "{}", answer.text());
    body["error"].clone()
}

/// Nothing of an upload is left: no room taken, no name in the folder.
pub async fn nothing_is_left(running: &Running) {
    until("the spool to be empty", || running.gateway.house.spools.used() == 0).await;
    let folder = running.storage().join("spool");
    assert!(!folder.exists() || std::fs::read_dir(folder).unwrap().count() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_comes_back_as_text_with_both_objects() {
    let provider = Provider::start().await;
    provider.then(said());
    let running = hears(&[("a", &provider, "")]).start().await;
    let wav = sounds::wav(2000);
    let sent: [Part<'_>; 4] = [
        ("file", true, &wav),
        ("prompt", false, b"Namen"),
        ("language", false, b"de"),
        ("model", false, b"w:eco"),
    ];
    let answer = send(&running, &sent).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = answer.json();
    assert_eq!(told["text"], "Guten Tag. Ja.");
    assert_eq!(told["usage"], json!({"type": "duration", "seconds": 2}));
    assert_eq!(told["environment_impact"]["location"], "Köln, Germany");
    // Two seconds at 0.006 EUR a minute: 0.0002 EUR, 0.02 credits.
    assert_eq!(told["billing_cost"]["credits"], json!(0.02));
    assert_eq!(
        (answer.header("x-penstock-provider"), answer.header("x-penstock-flavor")),
        (Some("a"), Some("eco"))
    );
    let seen = provider.last();
    assert_eq!(seen.path, "/v1/audio/transcriptions");
    let got = parts(&seen);
    let names: Vec<&str> = got.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["model", "language", "prompt", "response_format", "timestamp_granularities[]", "file"]
    );
    assert_eq!(got[0].1, b"their/w");
    assert_eq!(got[3].1, b"verbose_json");
    assert!(got[5].1 == wav);
    nothing_is_left(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_and_subtitles_carry_both_objects_as_headers() {
    let provider = Provider::start().await;
    provider.always(said());
    let running = hears(&[("a", &provider, "")]).start().await;
    let mp3 = sounds::mp3(80);
    for (format, kind, body) in [
        ("text", "text/plain; charset=utf-8", "Guten Tag. Ja.\n"),
        (
            "srt",
            "application/x-subrip; charset=utf-8",
            "1\n00:00:00,000 --> 00:00:01,250\nGuten Tag.\n\n2\n00:00:01,250 --> 00:00:02,000\nJa.\n\n",
        ),
        (
            "vtt",
            "text/vtt; charset=utf-8",
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nGuten Tag.\n\n00:00:01.250 --> 00:00:02.000\nJa.\n\n",
        ),
    ] {
        let sent: [Part<'_>; 3] =
            [("model", false, b"w"), ("response_format", false, format.as_bytes()), ("file", true, &mp3)];
        let answer = send(&running, &sent).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)));
        assert_eq!(answer.text(), body);
        let header = |name: &str| -> Value { serde_json::from_str(answer.header(name).unwrap()).unwrap() };
        assert_eq!(header("x-environment-impact")["location"], "Köln, Germany");
        // 80 frames of 1152 samples at 44.1 kHz, 2.09 seconds: 0.0209 credits.
        assert_eq!(header("x-billing-cost")["credits"], json!(0.0209));
    }
    let sent: [Part<'_>; 3] =
        [("model", false, b"w"), ("response_format", false, b"verbose_json"), ("file", true, &mp3)];
    let told = send(&running, &sent).await.json();
    assert_eq!((told["segments"][1]["end"].as_f64(), told["language"].as_str()), (Some(2.0), Some("de")));
    assert!(told["billing_cost"].is_object());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_minutes_draw_what_the_published_vector_says() {
    let provider = Provider::start().await;
    provider.then(json_answer(200, &json!({"text": "a"})));
    let running = hears(&[("a", &provider, "")]).start().await;
    let mut flac = sounds::flac(600 * 44_100);
    flac.resize(2000, 0);
    let told = send(&running, &[("model", false, b"w"), ("file", true, &flac)]).await.json();
    // V08: 600 seconds of sound in Germany at a PUE of 1.30.
    assert_eq!(told["environment_impact"]["energy_kwh"].to_string(), "0.000630933333");
    assert_eq!(told["environment_impact"]["carbon_g_co2"].to_string(), "0.2157792");
    assert_eq!(told["usage"]["seconds"], json!(600));
    let line = "penstock_audio_seconds_total{model=\"w\",provider=\"a\"} 600\n";
    within("the seconds to be counted", async {
        while !running.admin().get("/metrics").await.text().contains(line) {}
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_upload_goes_to_the_next_provider_byte_for_byte() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    let running = hears(&[("bad", &bad, "price = { minute = 0.001 }"), ("good", &good, "")])
        .settings("[routing.breaker]\nconsecutive = 1000\nminimum = 100000")
        .start()
        .await;
    let mut wav = sounds::wav(200_000);
    wav.iter_mut().enumerate().skip(100).for_each(|(at, byte)| *byte = (at * 31 % 251) as u8);
    assert!(wav.len() > 3 << 20);
    let sent: [Part<'_>; 2] = [("file", true, &wav), ("model", false, b"w:price")];
    for failure in
        [status(503), cut(), json_answer(200, &json!({"error": "in band"})), json_answer(200, &json!([]))]
    {
        bad.clear();
        bad.always(failure);
        good.then(said());
        let answer = send(&running, &sent).await;
        assert_eq!(
            (answer.status, answer.header("x-penstock-provider")),
            (200, Some("good")),
            "{}",
            answer.text()
        );
        for seen in [bad.last(), good.last()] {
            let got = parts(&seen);
            assert!(got.iter().any(|(name, content)| name == "file" && *content == wav));
        }
    }
    good.always(status(500));
    bad.always(status(500));
    error(&send(&running, &sent).await, 503, "INFERENCE_3103");
    nothing_is_left(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_arrive_whole_however_they_are_framed() {
    let (certified, provider) = (Certified::make(), Provider::start().await);
    provider.always(said());
    let running = hears(&[("a", &provider, "")]).listen(&certified.https()).start().await;
    let wav = sounds::wav(60_000);
    let body = form(&[("model", false, b"w"), ("file", true, &wav), ("response_format", false, b"text")]);
    let chunked = |size: usize| {
        let mut bytes = Vec::new();
        for piece in body.chunks(size) {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    };
    for size in [997, 70_000] {
        let headers = [TYPE, ("transfer-encoding", "chunked")];
        let answer = running.client.send("POST", PATH, &headers, &chunked(size)).await;
        assert_eq!(answer.text(), "Guten Tag. Ja.\n");
    }
    let headers = [TYPE, ("expect", "100-continue")];
    assert_eq!(running.client.send("POST", PATH, &headers, &body).await.status, 200);
    let socket = connect(running.gateway.https.unwrap(), &certified.root, &["h2"]).await;
    let h2 = H2::over(socket, &running.client.key).await;
    let answer = h2.send(PATH, TYPE.1, body.clone()).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "Guten Tag. Ja.\n"));
    assert!(answer.header("x-billing-cost").is_some());
    for seen in provider.seen() {
        assert!(parts(&seen).iter().any(|(name, content)| name == "file" && *content == wav));
    }
    assert_eq!(provider.calls(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_forms_are_refused_by_the_name_of_what_is_wrong() {
    let provider = Provider::start().await;
    let running = hears(&[("a", &provider, "")]).start().await;
    let wav = sounds::wav(100);
    let good: [Part<'_>; 2] = [("model", false, b"w"), ("file", true, &wav)];
    let whole = form(&good);
    for (kind, body, field, why) in [
        ("multipart/form-data", whole.clone(), "content-type", "with a boundary, but it is missing"),
        (TYPE.1, form(&[("model", false, b"w"), ("audio", true, &wav)]), "file", "got a file in \"audio\""),
        (TYPE.1, form(&[good[0], good[1], good[1]]), "file", "expected one file, got more than one"),
        (TYPE.1, form(&[("model", false, b"w"), ("file", true, b"")]), "file", "got a file of 0 bytes"),
        (
            TYPE.1,
            form(&[("model", false, b"w"), ("file", true, b"no sound at all, just text")]),
            "file",
            "expected audio in MP3",
        ),
        (TYPE.1, form(&[good[0]]), "file", "expected an audio file, but it is missing"),
        (TYPE.1, form(&[good[1]]), "model", "expected the name of a model, but it is missing"),
        (TYPE.1, form(&[good[0], ("language", false, b"german"), good[1]]), "language", "ISO 639-1"),
        (
            TYPE.1,
            form(&[good[0], ("response_format", false, b"html"), good[1]]),
            "response_format",
            "expected \"json\", \"verbose_json\"",
        ),
        (
            TYPE.1,
            whole[..whole.len() - 30].to_vec(),
            "file",
            "expected the whole part, but it ends too early",
        ),
        (TYPE.1, b"not a form".to_vec(), "body", "closing delimiter"),
        (TYPE.1, form(&[("model", false, b"m"), good[1]]), "model", "/v1/chat/completions"),
    ] {
        let answer = running.client.send("POST", PATH, &[("content-type", kind)], &body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        let told = answer.json()["error"].clone();
        assert_eq!(told["param"], field, "{told}");
        let message = told["message"].as_str().unwrap();
        assert!(message.contains(why) && message.ends_with('.'), "{why} is missing in {message}");
    }
    let json = running.client.post(PATH, &json!({"model": "w"})).await;
    error(&json, 415, "RESOURCE_5005");
    let zipped = [TYPE, ("content-encoding", "gzip")];
    error(&running.client.send("POST", PATH, &zipped, &whole).await, 415, "RESOURCE_5005");
    error(&send(&running, &[("model", false, b"nobody"), good[1]]).await, 404, "INFERENCE_3101");
    let reader = running.key(&json!({"name": "reader", "scopes": ["inference.images"]})).await;
    let told = error(&reader.send("POST", PATH, &[TYPE], &whole).await, 403, "AUTH_1003");
    assert_eq!(told["details"]["required_scope"], "inference.audio");
    assert_eq!(provider.calls(), 0);
    nothing_is_left(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_or_does_not_fit_the_disk_is_refused() {
    let provider = Provider::start().await;
    let running = hears(&[("a", &provider, "")])
        .settings("[limits]\naudio_body = \"400KiB\"\n[spool]\nmemory = \"4KiB\"\ndisk = \"512KiB\"")
        .start()
        .await;
    let (large, middling) = (sounds::wav(80_000), sounds::wav(20_000));
    let body = form(&[("model", false, b"w"), ("file", true, &large)]);
    assert_eq!(
        error(&running.client.send("POST", PATH, &[TYPE], &body).await, 413, "RESOURCE_5004")["details"]["limit_bytes"],
        400 << 10
    );
    let mut chunked = format!("{:x}\r\n", body.len()).into_bytes();
    chunked.extend_from_slice(&body);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    let headers = [TYPE, ("transfer-encoding", "chunked")];
    error(&running.client.send("POST", PATH, &headers, &chunked).await, 413, "RESOURCE_5004");
    let sent: [Part<'_>; 2] = [("model", false, b"w"), ("file", true, &middling)];
    provider.then(said());
    assert_eq!(send(&running, &sent).await.status, 200);
    nothing_is_left(&running).await;
    let narrow = hears(&[("a", &provider, "")]).settings("[spool]\nmemory = \"4KiB\"\ndisk = \"128KiB\"");
    let narrow = narrow.start().await;
    error(&send(&narrow, &sent).await, 507, "RESOURCE_5006");
    assert_eq!(provider.calls(), 1);
    nothing_is_left(&narrow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_leaves_nothing_behind() {
    let provider = Provider::start().await;
    let running = hears(&[("a", &provider, "")]).start().await;
    let wav = sounds::wav(60_000);
    let body = form(&[("model", false, b"w"), ("file", true, &wav)]);
    let length = body.len().to_string();
    let headers = [TYPE, ("content-length", length.as_str())];
    let open = running.client.open("POST", PATH, &headers, &body[..body.len() / 2]).await;
    let folder = running.storage().join("spool");
    let names = || std::fs::read_dir(&folder).map_or(1, Iterator::count);
    let half = || running.gateway.house.spools.used() > 100_000 && names() == 0;
    until("half of it to be in a file without a name", half).await;
    drop(open);
    nothing_is_left(&running).await;
    assert_eq!(provider.calls(), 0);
    // And one that leaves while a provider works.
    provider.then(crate::harness::script::silent());
    let open = running.client.open("POST", PATH, &[TYPE], &body).await;
    within("the call", provider.until_calls(1)).await;
    drop(open);
    within("the provider to be left", provider.until_left(1)).await;
    nothing_is_left(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shape_of_provider_is_asked_in_its_way() {
    for (shape, path, field) in [
        ("openai-transcription-text", "/v1/audio/transcriptions", ("response_format", "json")),
        ("mistral-transcription", "/v1/audio/transcriptions", ("timestamp_granularities", "segment")),
        ("whisper-cpp", "/v1/inference", ("response_format", "verbose_json")),
    ] {
        let provider = Provider::start().await;
        provider.then(said());
        let offer = format!("shape = \"{shape}\"");
        let running = hears(&[("a", &provider, &offer)]).start().await;
        let wav = sounds::wav(2000);
        let sent: [Part<'_>; 3] =
            [("model", false, b"w"), ("response_format", false, b"vtt"), ("file", true, &wav)];
        let answer = send(&running, &sent).await;
        assert!(
            answer.text().starts_with("WEBVTT\n\n00:00:00.000 --> 00:00:0"),
            "{shape}: {}",
            answer.text()
        );
        let seen = provider.last();
        assert_eq!(seen.path, path);
        assert!(parts(&seen).contains(&(field.0.to_owned(), field.1.as_bytes().to_vec())), "{shape}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_provider_listens_to_every_format() {
    let server = penstock::simulate::Server::start(penstock::simulate::Options::default()).await.unwrap();
    let toml = format!(
        "[[models]]\nid = \"w\"\nkind = \"transcription\"\ncontext_length = 448\nprice = {{ minute = 0.006 }}\n\
         [[providers]]\nid = \"s\"\noperator = \"T\"\ncountry = \"FI\"\ncity = \"Turku\"\n\
         base_url = \"http://{}/v1\"\n{PATIENT}\n[[providers.offers]]\nmodel = \"w\"\n",
        server.address
    );
    let running = Bench::new().more(&toml).start().await;
    for sound in [
        sounds::wav(9000),
        sounds::tagged_mp3(200),
        sounds::program(200),
        sounds::mp4(500),
        sounds::fragmented(9),
        sounds::webm(400, None),
        sounds::ogg(9000),
    ] {
        let sent: [Part<'_>; 3] =
            [("model", false, b"w"), ("response_format", false, b"srt"), ("file", true, &sound)];
        let answer = send(&running, &sent).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().contains("simulated"), "{}", answer.text());
    }
}
