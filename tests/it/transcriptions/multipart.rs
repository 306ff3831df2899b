//! Forms with audio: the provider gets them complete for any framing; an error names the invalid part; a disconnect
//! removes the upload.

use super::{PATH, Part, TYPE, error, form, hears, nothing_is_left, parts, send, transcription};
use crate::harness::certificates::{TestCertificate, connect};
use crate::harness::h2_client::H2Client;
use crate::harness::script::{cut, json_answer, status};
use crate::harness::{Provider, until, within};
use crate::overload::of_account;
use crate::sounds;
use serde_json::json;

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
        good.then(transcription());
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
    let (certified, provider) = (TestCertificate::make(), Provider::start().await);
    provider.always(transcription());
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
    let socket = connect(running.gateway.https_address.unwrap(), &certified.root, &["h2"]).await;
    let h2 = H2Client::over(socket, &running.client.key).await;
    let answer = h2.send(PATH, TYPE.1, body.clone()).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "Guten Tag. Ja.\n"));
    assert!(answer.header("x-billing-cost").is_some());
    for seen in provider.seen() {
        assert!(parts(&seen).iter().any(|(name, content)| name == "file" && *content == wav));
    }
    assert_eq!(provider.calls(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_form_is_rejected_with_the_name_of_its_field() {
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
        let refusal = answer.json()["error"].clone();
        assert_eq!(refusal["param"], field, "{refusal}");
        let message = refusal["message"].as_str().unwrap();
        assert!(message.contains(why) && message.ends_with('.'), "{why} is missing in {message}");
    }
    let json = running.client.post(PATH, &json!({"model": "w"})).await;
    error(&json, 415, "RESOURCE_5005");
    let zipped = [TYPE, ("content-encoding", "gzip")];
    error(&running.client.send("POST", PATH, &zipped, &whole).await, 415, "RESOURCE_5005");
    error(&send(&running, &[("model", false, b"nobody"), good[1]]).await, 404, "INFERENCE_3101");
    let reader = running.key(&json!({"name": "reader", "scopes": ["inference.images"]})).await;
    let refusal = error(&reader.send("POST", PATH, &[TYPE], &whole).await, 403, "AUTH_1003");
    assert_eq!(refusal["details"]["required_scope"], "inference.audio");
    assert_eq!(provider.calls(), 0);
    nothing_is_left(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_over_the_limit_or_the_disk_is_rejected() {
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
    provider.then(transcription());
    assert_eq!(send(&running, &sent).await.status, 200);
    nothing_is_left(&running).await;
    let narrow = hears(&[("a", &provider, "")]).settings("[spool]\nmemory = \"4KiB\"\ndisk = \"128KiB\"");
    let narrow = narrow.start().await;
    error(&send(&narrow, &sent).await, 507, "RESOURCE_5006");
    assert_eq!(provider.calls(), 1);
    nothing_is_left(&narrow).await;
}

/// Tests that an account that holds most of the spool gets no more, and that another one still does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_leaves_a_part_of_the_spool_to_the_others() {
    let provider = Provider::start().await;
    provider.always(transcription());
    let wav = sounds::wav(10_000);
    // The account holds three quarters; another upload would need more than seven eighths.
    let disk = wav.len() * 16 / 3;
    let settings = format!("[spool]\nmemory = \"4KiB\"\ndisk = {disk}");
    let running = hears(&[("a", &provider, "")]).settings(&settings).start().await;
    let sent: [Part<'_>; 2] = [("model", false, b"w"), ("file", true, &wav)];
    let body = form(&sent);
    let length = (body.len() + 1).to_string();
    let headers = [TYPE, ("content-length", length.as_str())];
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(running.client.open("POST", PATH, &headers, &body).await);
    }
    let held = || running.gateway.app.spools.used_bytes() >= 4 * wav.len() as u64;
    until("the uploads to be spooled", held).await;
    error(&send(&running, &sent).await, 507, "RESOURCE_5006");
    let other = of_account(&running, "other").await;
    // This upload is smaller than an eighth.
    let small = form(&[("model", false, b"w"), ("file", true, &sounds::wav(4_000))]);
    assert_eq!(other.send("POST", PATH, &[TYPE], &small).await.status, 200);
    drop(open);
    nothing_is_left(&running).await;
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
    let half = || running.gateway.app.spools.used_bytes() > 100_000 && names() == 0;
    until("half of it to be in a file without a name", half).await;
    drop(open);
    nothing_is_left(&running).await;
    assert_eq!(provider.calls(), 0);
    // A client disconnects while a provider processes the upload.
    provider.then(crate::harness::script::silent());
    let open = running.client.open("POST", PATH, &[TYPE], &body).await;
    within("the call", provider.until_calls(1)).await;
    drop(open);
    within("the provider to be left", provider.until_left(1)).await;
    nothing_is_left(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_is_as_large_as_its_bound_and_no_larger() {
    let provider = Provider::start().await;
    provider.always(transcription());
    let wav = sounds::wav(2_000);
    let of = |pad: usize| {
        let prompt = "y".repeat(pad);
        form(&[("prompt", false, prompt.as_bytes()), ("model", false, b"w"), ("file", true, &wav)])
    };
    let most = of(10).len();
    let settings = format!("[limits]\naudio_body = {most}");
    let running = hears(&[("a", &provider, "")]).settings(&settings).start().await;
    for (pad, size) in [(9, most - 1), (10, most), (11, most + 1)] {
        let body = of(pad);
        assert_eq!(body.len(), size);
        let chunked = [format!("{size:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
        let coded = [TYPE, ("transfer-encoding", "chunked")];
        for answer in [
            running.client.send("POST", PATH, &[TYPE], &body).await,
            running.client.send("POST", PATH, &coded, &chunked).await,
        ] {
            if size <= most {
                assert_eq!(answer.status, 200, "{size} of {most}: {}", answer.text());
            } else {
                assert_eq!(error(&answer, 413, "RESOURCE_5004")["details"]["limit_bytes"], most);
            }
        }
    }
    assert_eq!(provider.calls(), 4);
    nothing_is_left(&running).await;
}
