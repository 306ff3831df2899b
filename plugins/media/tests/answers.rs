//! Answers of providers with status 200: which ones are accepted as an image or audio, and which ones are errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sounds;

use bytes::Bytes;
use penstock_core::*;
use penstock_media::{image, speech};
use rust_decimal::Decimal;
use serde_json::{Value, json};

fn target(abilities: &OfferCapabilities) -> AttemptTarget<'_> {
    AttemptTarget {
        model: "engine/model",
        dialect: Dialect::Chat,
        capabilities: abilities,
        preset: &[],
        max_tokens: None,
        adjustment: RequestAdjustment::default(),
        answer_model: "org/model",
        answer_id: "abc123",
        answer_created: 1_700_000_000,
    }
}

/// Translates an answer to a request with a text of 300 bytes.
fn translate_answer(
    shape: &dyn ProviderAdapter,
    task: InferenceTask,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<BufferedResponse, UpstreamError> {
    let ask = InferenceRequest {
        prompt_bytes: 300,
        ..InferenceRequest::from_non_chat_task(
            shape.kind(),
            Bytes::new(),
            BodyMembers::default(),
            "m".into(),
            task,
        )
    };
    let abilities = OfferCapabilities::default();
    let answer = UpstreamAnswer {
        body: Bytes::copy_from_slice(body),
        headers: vec![content_type.map(Into::into); shape.upstream_response_headers().len()],
        measured_energy: None,
    };
    shape.translate(&ask, &target(&abilities), vec![answer])
}

/// Translates an answer; returns the error if the answer is not an image or audio.
fn translate(
    shape: &dyn ProviderAdapter,
    task: InferenceTask,
    content_type: Option<&str>,
    body: &[u8],
) -> Option<UpstreamErrorKind> {
    translate_answer(shape, task, content_type, body).err().map(|error| error.kind)
}

fn speech_answer(
    requested: &'static str,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<BufferedResponse, UpstreamError> {
    let shape = speech::AUDIO_ADAPTERS.iter().find(|shape| shape.kind() == ModelKind::Speech).unwrap();
    let task = InferenceTask::Passthrough(PassthroughTask {
        texts: Vec::new(),
        max_work: WorkDone::Audio { seconds: Decimal::TEN },
        content_type: Some(requested),
        delivery: PassthroughDelivery::Complete,
    });
    translate_answer(*shape, task, content_type, body)
}

fn speak(requested: &'static str, content_type: Option<&str>, body: &[u8]) -> Option<UpstreamErrorKind> {
    speech_answer(requested, content_type, body).err().map(|error| error.kind)
}

/// Returns the charged seconds of an answer with speech, of at most 10.
fn speech_seconds(requested: &'static str, body: &[u8]) -> Decimal {
    let Some(WorkDone::Audio { seconds }) = speech_answer(requested, None, body).unwrap().work else {
        panic!("no audio")
    };
    seconds
}

const FORMATS: [&str; 6] = ["audio/mpeg", "audio/ogg", "audio/aac", "audio/flac", "audio/wav", "audio/pcm"];

#[test]
fn text_is_no_speech_in_any_format() {
    for requested in FORMATS {
        for (content_type, body) in [
            (Some("text/html"), &b"<html>Bad gateway</html>"[..]),
            (Some("text/plain; charset=utf-8"), b"error: model not loaded"),
            (Some("application/octet-stream"), "Fehler: das Modell l\u{e4}dt".as_bytes()),
            (Some("application/json"), b"[1]"),
            (None, b"\"err\""),
            (None, b"\n <?xml version=\"1.0\"?>\n"),
            (None, b""),
        ] {
            let kind = speak(requested, content_type, body);
            assert_eq!(kind, Some(UpstreamErrorKind::Malformed), "{requested} {}", body.escape_ascii());
        }
        let long = "\u{20ac}".repeat(5_000);
        assert_eq!(speak(requested, None, long.as_bytes()), Some(UpstreamErrorKind::Malformed));
        let error = br#" {"error": {"message": "no voice"}}"#;
        assert_eq!(speak(requested, None, error), Some(UpstreamErrorKind::InBandError), "{requested}");
    }
}

/// Frame of ADTS (AAC) with 64 bytes, 24 kHz.
fn adts_frame() -> Vec<u8> {
    [&[0xff, 0xf1, 0x58, 0x80, 8, 0x1f, 0xfc][..], &[0; 57]].concat()
}

/// Tag in front of MPEG audio that states this length.
fn id3_tag(stated: u32) -> Vec<u8> {
    let size = [21, 14, 7, 0].map(|shift| (stated >> shift & 127) as u8);
    [&b"ID3\x04\0\0"[..], &size].concat()
}

#[test]
fn audio_of_the_requested_format_is_speech() {
    let mut mpeg_2 = sounds::mp3(2);
    mpeg_2.splice(..4, [0xff, 0xfb, 0x90, 0xc4]);
    let mut long_wav = sounds::wav(100);
    long_wav.splice(..4, *b"RF64");
    let files: [(&str, Vec<u8>); 11] = [
        ("audio/mpeg", [id3_tag(5), vec![b'a'; 5], sounds::mp3(3)].concat()),
        ("audio/mpeg", sounds::mp3(1)),
        ("audio/mpeg", mpeg_2),
        ("audio/ogg", sounds::ogg(60)),
        ("audio/ogg", sounds::webm(1, None)),
        ("audio/aac", adts_frame()),
        ("audio/aac", sounds::aac(10, 1024, b"stsz", 0)),
        ("audio/aac", sounds::fragmented(1)),
        ("audio/flac", sounds::framed_flac(16_000, 0, 1)),
        ("audio/wav", sounds::wav(100)),
        ("audio/wav", long_wav),
    ];
    for (format, body) in files {
        let label = body[..body.len().min(20)].escape_ascii();
        assert_eq!(speak(format, Some("binary/octet-stream"), &body), None, "{format} {label}");
        let others = FORMATS.iter().filter(|other| !matches!(**other, "audio/pcm"));
        let taken = others.filter(|other| speak(other, None, &body).is_none()).count();
        // Some engines support WAV only.
        let expected = if format == "audio/wav" { 5 } else { 1 };
        assert_eq!(taken, expected, "{label}");
    }
}

#[test]
fn a_header_without_audio_is_no_speech() {
    let flac = &sounds::framed_flac(16_000, 160_000, 1)[..42];
    let (ogg, webm, m4a) =
        (sounds::opus(3, 60), sounds::webm(4, Some(10_000.0)), sounds::aac(10, 16_000, b"stsz", 0));
    // Number of bytes of each file before its first audio.
    let media = m4a.windows(4).position(|four| four == b"mdat").unwrap() + 4;
    let pages = ogg.windows(4).enumerate().filter(|(_, four)| four == b"OggS").map(|(at, _)| at);
    let audio_page = pages.collect::<Vec<_>>()[2];
    let cluster = webm.windows(4).position(|four| four == [0x1f, 0x43, 0xb6, 0x75]).unwrap();
    let files: [(&str, &[u8]); 8] = [
        ("audio/wav", &sounds::wav(100)[..58]),
        ("audio/mpeg", &[id3_tag(90), vec![0; 90]].concat()),
        ("audio/mpeg", &sounds::mp3(1)[..400]),
        ("audio/flac", flac),
        ("audio/ogg", &ogg[..audio_page]),
        ("audio/ogg", &webm[..cluster]),
        ("audio/aac", &m4a[..media]),
        ("audio/aac", &adts_frame()[..63]),
    ];
    for (format, header) in files {
        for length in 0..=header.len() {
            let kind = speak(format, None, &header[..length]);
            assert_eq!(kind, Some(UpstreamErrorKind::Malformed), "{format} {length}");
        }
    }
}

#[test]
fn stated_lengths_are_limited_by_the_bytes() {
    let charged = |requested, body: &[u8]| speech_seconds(requested, body).normalize().to_string();
    // A tag that claims more bytes than the file has is audio after all.
    let frames = sounds::mp3(100);
    assert_eq!(charged("audio/mpeg", &frames), "2.612");
    assert_eq!(charged("audio/mpeg", &[id3_tag(1 << 20), frames.clone()].concat()), "2.612");
    assert_eq!(charged("audio/mpeg", &[id3_tag(300), vec![0; 300], frames].concat()), "2.612");
    // The estimate for a text of 300 characters is 20 seconds.
    assert_eq!(charged("audio/aac", &adts_frame()), "0.085");
    assert_eq!(charged("audio/aac", &adts_frame().repeat(200)), "10");
    assert_eq!(charged("audio/pcm", &[0; 48_000]), "1");
}

#[test]
fn raw_samples_are_speech_however_they_begin() {
    let loud: Vec<u8> = (0..2_000u32).flat_map(|at| ((at * 7919) as i16).to_le_bytes()).collect();
    let brace = [&b"{\"a\":"[..], &loud].concat();
    for samples in [&vec![0; 1_000][..], &loud, &brace, &[0xff; 64]] {
        assert_eq!(speak("audio/pcm", Some("audio/pcm"), samples), None);
        assert_eq!(speak("audio/pcm", None, samples), None);
        let html = speak("audio/pcm", Some("text/html"), samples);
        assert_eq!(html, Some(UpstreamErrorKind::Malformed));
    }
}

#[test]
fn only_pictures_are_images() {
    let shape = image::IMAGE_ADAPTERS.iter().find(|shape| shape.name() == "openai-images").unwrap();
    let read = |text: &str| {
        let task = InferenceTask::GenerateImages(ImageTask {
            prompt: Bytes::from_static(b"\"p\""),
            n: 1,
            size: None,
            as_base64: true,
        });
        let body = json!({"data": [{"b64_json": text}]}).to_string();
        translate(*shape, task, None, body.as_bytes())
    };
    let encode = |bytes: &[u8]| String::from_utf8(image::encode_base64(bytes).to_vec()).unwrap();
    let images: [&[u8]; 5] = [
        b"\x89PNG\r\n\x1a\n and more of it, so that it is long",
        b"\xff\xd8\xff\xe0 and more",
        b"RIFF\0\0\0\0WEBPVP8 ",
        b"GIF89a and more",
        b"\0\0\0\x20ftypavif and more",
    ];
    for bytes in images {
        let text = encode(bytes);
        for form in [&text, text.trim_end_matches('='), &format!("data:image/png;base64,{text}")] {
            assert_eq!(read(form), None, "{form}");
        }
    }
    let others: [&[u8]; 5] =
        [b"hello world", b"<html>Bad gateway</html>", b"<svg xmlns=\"\"/>", b"{\"error\":1}", b"\x89PN"];
    for bytes in others {
        let text = encode(bytes);
        for form in [&text, text.trim_end_matches('='), &format!("data:image/png;base64,{text}")] {
            assert_eq!(read(form), Some(UpstreamErrorKind::Malformed), "{form}");
        }
    }
}

#[test]
fn items_without_an_image_are_missing_images() {
    let shape = image::IMAGE_ADAPTERS.iter().find(|shape| shape.name() == "openai-images").unwrap();
    let long = [b"\x89PNG\r\n\x1a\n".as_slice(), &[7; 2_000]].concat();
    let encode = |bytes: &[u8]| String::from_utf8(image::encode_base64(bytes).to_vec()).unwrap();
    let good = [
        json!({"b64_json": encode(b"\x89PNG\r\n\x1a\n and more of it")}),
        json!({"b64_json": encode(&long)}),
        json!(format!("data:image/png;base64,{}", encode(&long))),
        json!({"url": "https://example.org/a.png"}),
        json!({"b64_json": "an error", "url": "https://example.org/a.png"}),
    ];
    let none = [
        json!(null),
        json!({"b64_json": null, "finish_reason": "CONTENT_FILTERED"}),
        json!({"b64_json": "", "url": ""}),
        json!({"b64_json": "aGVsbG8gd29ybGQ="}),
        json!({"b64_json": encode(&[b"<html>".as_slice(), &long].concat())}),
        json!({"url": format!("https://example.org/{}", "a".repeat(9_000))}),
        json!({}),
        json!(5),
        json!([]),
    ];
    let ask = InferenceRequest::from_non_chat_task(
        ModelKind::Image,
        Bytes::new(),
        BodyMembers::default(),
        "m".into(),
        InferenceTask::GenerateImages(ImageTask {
            prompt: Bytes::from_static(b"\"p\""),
            n: 2,
            size: None,
            as_base64: true,
        }),
    );
    let abilities = OfferCapabilities::default();
    let answer = |items: &[&Value]| UpstreamAnswer {
        body: Bytes::from(json!({ "data": items }).to_string()),
        ..UpstreamAnswer::default()
    };
    let missing =
        |answers: &[UpstreamAnswer]| shape.build_missing_requests(&ask, &target(&abilities), answers).len();
    let count = |answers: Vec<UpstreamAnswer>| {
        let answer = shape.translate(&ask, &target(&abilities), answers).map_err(|fault| fault.kind)?;
        let Some(WorkDone::Images { count, .. }) = answer.work else { panic!("no images") };
        assert_eq!(answer.images.len(), count as usize);
        Ok(count)
    };
    for image in &good {
        for item in &none {
            for items in [[image, item], [item, image]] {
                let first = answer(&items);
                assert_eq!(image::count_images(&first.body), Some(1), "{items:?}");
                assert_eq!(image::count_image_items(&first.body), Some(2));
                assert_eq!(missing(std::slice::from_ref(&first)), 1);
                assert_eq!(count(vec![first.clone(), answer(&[image])]), Ok(2));
                for further in [answer(&[]), answer(&[item])] {
                    assert_eq!(count(vec![first.clone(), further]), Ok(1));
                }
            }
        }
    }
    for item in &none {
        let first = answer(&[item, item]);
        assert_eq!((missing(std::slice::from_ref(&first)), image::count_images(&first.body)), (0, Some(0)));
        assert_eq!(count(vec![first]), Err(UpstreamErrorKind::Malformed));
    }
    let broken = UpstreamAnswer { body: Bytes::from_static(b"{\"data\":[null"), ..answer(&[]) };
    assert_eq!(count(vec![answer(&[&good[0]]), broken]), Err(UpstreamErrorKind::Malformed));
}
