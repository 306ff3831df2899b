//! Transcriptions: forms in any part order and size; the audio reaches the next provider byte for byte and is not
//! stored.

mod multipart;

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::provider::RecordedRequest;
use crate::harness::script::{Script, json_answer};
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

/// Returns the parts of a provider's request, with a minimal multipart parser.
fn parts(seen: &RecordedRequest) -> Vec<(String, Vec<u8>)> {
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

fn transcription() -> Script {
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

/// Asserts that an upload left nothing behind: no used quota, and no file in the spool folder.
pub async fn nothing_is_left(running: &Running) {
    until("the spool to be empty", || running.gateway.app.spools.used_bytes() == 0).await;
    let folder = running.storage().join("spool");
    assert!(!folder.exists() || std::fs::read_dir(folder).unwrap().count() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_comes_back_as_text_with_both_objects() {
    let provider = Provider::start().await;
    provider.then(transcription());
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
    let transcript = answer.json();
    assert_eq!(transcript["text"], "Guten Tag. Ja.");
    assert_eq!((&transcript["language"], transcript["duration"].as_f64()), (&json!("de"), Some(2.0)));
    assert_eq!(transcript["usage"], json!({"type": "duration", "seconds": 2}));
    assert_eq!(transcript["environment_impact"]["location"], "Köln, Germany");
    assert_eq!(transcript["environment_impact"]["country"], "DE");
    // Two seconds of audio at 0.006 EUR a minute: 0.0002 EUR, 0.02 credits.
    assert_eq!(transcript["billing_cost"]["credits"], json!(0.02));
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
async fn audio_of_unknown_duration_reserves_the_most_its_bytes_may_hold() {
    let provider = Provider::start().await;
    provider.always(transcription());
    let running = hears(&[("a", &provider, "")]).start().await;
    let flac = sounds::flac(44_100 * 3600 * 10);
    let sent = form(&[("model", false, b"w"), ("file", true, &flac)]);
    // At least one second is reserved, at 0.006 EUR a minute: 0.01 credits.
    for (budget, status) in [("0.005", 402), ("5", 200)] {
        let client = running.key(&json!({"name": "k", "limits": {"budget_per_month": budget}})).await;
        let answer = client.send("POST", PATH, &[TYPE], &sent).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    assert_eq!(provider.calls(), 1);
    nothing_is_left(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_and_subtitles_carry_both_objects_as_headers() {
    let provider = Provider::start().await;
    provider.always(transcription());
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
    let transcript = send(&running, &sent).await.json();
    assert_eq!(
        (transcript["segments"][1]["end"].as_f64(), transcript["language"].as_str()),
        (Some(2.0), Some("de"))
    );
    assert!(transcript["billing_cost"].is_object());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_minutes_use_the_energy_of_the_published_vector() {
    let provider = Provider::start().await;
    provider.then(json_answer(200, &json!({"text": "a"})));
    let running = hears(&[("a", &provider, "")]).start().await;
    let mut flac = sounds::flac(600 * 44_100);
    flac.resize(2000, 0);
    let transcript = send(&running, &[("model", false, b"w"), ("file", true, &flac)]).await.json();
    // Test vector V08: 600 seconds of audio in Germany at a PUE of 1.30.
    assert_eq!(transcript["environment_impact"]["energy_kwh"].to_string(), "0.000630933333");
    assert_eq!(transcript["environment_impact"]["carbon_g_co2"].to_string(), "0.2157792");
    assert_eq!(transcript["usage"]["seconds"], json!(600));
    let line = "penstock_audio_seconds_total{model=\"w\",provider=\"a\"} 600\n";
    within("the seconds to be counted", async {
        while !running.admin().get("/metrics").await.text().contains(line) {}
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_provider_shape_gets_requests_of_its_own_form() {
    for (shape, path, field) in [
        ("openai-transcription-text", "/v1/audio/transcriptions", ("response_format", "json")),
        ("mistral-transcription", "/v1/audio/transcriptions", ("timestamp_granularities", "segment")),
        ("whisper-cpp", "/v1/inference", ("response_format", "verbose_json")),
    ] {
        let provider = Provider::start().await;
        provider.then(transcription());
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
    let server = penstock_simulator::SimulatedServer::start(penstock_simulator::SimulatorOptions::default())
        .await
        .unwrap();
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
