//! Tests of streamed speech. Each answer also arrives split at every byte.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use penstock_core::{BodyMembers, ErrorCode, ModelKind, PassthroughTask};
use rust_decimal::Decimal;
use serde_json::Value;

/// Request for a text of 30 characters, at most 20 seconds.
fn ask(content_type: &'static str, delivery: PassthroughDelivery) -> InferenceRequest {
    let task = PassthroughTask {
        texts: vec![Bytes::from_static(b"\"x\"")],
        max_work: WorkDone::Audio { seconds: Decimal::from(20) },
        content_type: Some(content_type),
        delivery,
    };
    InferenceRequest {
        stream: true,
        prompt_bytes: 30,
        ..InferenceRequest::from_non_chat_task(
            ModelKind::Speech,
            Bytes::new(),
            BodyMembers::default(),
            "m".into(),
            InferenceTask::Passthrough(task),
        )
    }
}

/// Returns the output, the result and the billed work of an answer that arrives in these pieces.
fn run<'p>(
    ask: &InferenceRequest,
    pieces: impl Iterator<Item = &'p [u8]>,
) -> (Vec<u8>, Result<(), UpstreamErrorKind>, Decimal) {
    let (mut stream, mut out) = (SpeechTranslation::new(ask).unwrap(), OutputBuffer::default());
    let mut result = Ok(());
    for piece in pieces {
        result = result.and(stream.push(Bytes::copy_from_slice(piece), &mut out).map_err(|fault| fault.kind));
    }
    result = result.and(stream.end(&mut out).map_err(|fault| fault.kind));
    let Some(WorkDone::Audio { seconds }) = stream.non_token_work() else { panic!("no audio") };
    if result.is_ok() {
        stream.write_end(&stream.estimated_usage(), br#""billing_cost":{"credits":1}"#, &mut out);
    }
    (out.0.concat(), result, seconds)
}

fn events(stream: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stream).unwrap();
    assert!(text.ends_with("\n\n"));
    let data = text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
    data.map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn wav(milliseconds: u32) -> Vec<u8> {
    let data = vec![7_u8; (milliseconds * 16) as usize];
    let length = u32::try_from(data.len()).unwrap();
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + length).to_le_bytes());
    wav.extend(b"WAVEfmt ");
    wav.extend(16_u32.to_le_bytes());
    wav.extend([1_u16, 1].iter().flat_map(|value| value.to_le_bytes()));
    wav.extend([8_000_u32, 16_000].iter().flat_map(|value| value.to_le_bytes()));
    wav.extend([2_u16, 16].iter().flat_map(|value| value.to_le_bytes()));
    wav.extend(b"data");
    wav.extend(length.to_le_bytes());
    [wav, data].concat()
}

#[test]
fn bytes_pass_as_they_come_however_they_are_cut() {
    let (ask, audio) = (ask("audio/wav", PassthroughDelivery::Bytes), wav(50));
    for size in 1..=audio.len() {
        let (out, result, seconds) = run(&ask, audio.chunks(size));
        assert_eq!((out == audio, result, seconds), (true, Ok(()), Decimal::new(50, 3)), "{size}");
    }
}

#[test]
fn events_carry_the_same_bytes_and_end_with_the_objects() {
    let (ask, audio) = (ask("audio/pcm", PassthroughDelivery::Events), vec![200_u8; 480]);
    for size in 1..=audio.len() {
        let (out, result, seconds) = run(&ask, audio.chunks(size));
        assert_eq!((result, seconds), (Ok(()), Decimal::new(10, 3)));
        let mut events = events(&out);
        let done = events.pop().unwrap();
        assert_eq!(
            (&done["type"], &done["billing_cost"]["credits"]),
            (&"speech.audio.done".into(), &1.into())
        );
        assert!(done["usage"]["total_tokens"].is_u64());
        let mut decoded = Vec::new();
        for event in events {
            assert_eq!(event["type"], "speech.audio.delta");
            decoded.extend(STANDARD.decode(event["audio"].as_str().unwrap()).unwrap());
        }
        assert_eq!(decoded, audio, "{size}");
    }
}

#[test]
fn an_error_text_and_silence_pass_nothing() {
    let ask = ask("audio/pcm", PassthroughDelivery::Bytes);
    let error = br#" {"error": {"message": "no voice"}}"#;
    for size in 1..=error.len() {
        let (out, result, _) = run(&ask, error.chunks(size));
        assert_eq!((out.len(), result), (0, Err(UpstreamErrorKind::InBandError)), "{size}");
    }
    assert_eq!(run(&ask, std::iter::once(&b"{}"[..])).1, Err(UpstreamErrorKind::InBandError));
    assert_eq!(run(&ask, std::iter::empty()).1, Err(UpstreamErrorKind::Malformed));
    // Raw audio may begin with the same byte as a JSON object.
    let raw = [b"{\xff".as_slice(), &[0; 30]].concat();
    assert_eq!(run(&ask, raw.chunks(1)).1, Ok(()));
}

#[test]
fn a_part_is_charged_by_its_bytes_and_nothing_beyond_the_reserve() {
    // The header states the length of the complete audio, but only a part arrives: only that part is charged.
    let (request, audio) = (ask("audio/wav", PassthroughDelivery::Bytes), wav(10_000));
    let (mut stream, mut out) = (SpeechTranslation::new(&request).unwrap(), OutputBuffer::default());
    stream.push(Bytes::copy_from_slice(&audio[..1_600]), &mut out).unwrap();
    let Some(WorkDone::Audio { seconds }) = stream.non_token_work() else { panic!("no audio") };
    assert!(seconds > Decimal::ZERO && seconds <= Decimal::new(2_134, 3), "{seconds}");
    // The duration cannot be measured in this format; the estimate from the length of the text is two seconds.
    let aac = adts_frame(1_500);
    assert_eq!(run(&ask("audio/aac", PassthroughDelivery::Bytes), aac.chunks(7)).2, Decimal::from(2));
    // The bytes limit an estimate.
    let aac = adts_frame(900);
    assert_eq!(run(&ask("audio/aac", PassthroughDelivery::Bytes), aac.chunks(7)).2, Decimal::new(12, 1));
    let long = vec![0_u8; 48_000 * 60];
    assert_eq!(run(&ask("audio/pcm", PassthroughDelivery::Bytes), long.chunks(4_096)).2, Decimal::from(20));
    let endless = vec![0_u8; 1 << 20];
    let pieces = std::iter::repeat_n(&*endless, 17);
    assert_eq!(
        run(&ask("audio/pcm", PassthroughDelivery::Bytes), pieces).1,
        Err(UpstreamErrorKind::Malformed)
    );
}

#[test]
fn a_broken_stream_of_events_ends_with_an_error() {
    let refusal = ApiError::new(ErrorCode::Unavailable);
    for (delivery, count) in [(PassthroughDelivery::Events, 1), (PassthroughDelivery::Bytes, 0)] {
        let (mut stream, mut out) =
            (SpeechTranslation::new(&ask("audio/pcm", delivery)).unwrap(), OutputBuffer::default());
        stream.write_error(&refusal, "req_1", b"", &mut out);
        stream.write_error(&refusal, "req_1", br#""billing_cost":{"credits":1}"#, &mut out);
        assert_eq!(out.0.len(), 2 * count);
        assert!(out.0.iter().all(|event| events(event)[0]["error"]["message"].is_string()));
        let costs: Vec<Value> = out.0.iter().map(|event| events(event)[0]["billing_cost"].clone()).collect();
        assert_eq!(costs, [Value::Null, serde_json::json!({"credits": 1})][..costs.len()]);
    }
}

#[test]
fn a_wav_file_is_no_raw_audio() {
    let file = wav(100);
    for delivery in [PassthroughDelivery::Bytes, PassthroughDelivery::Events] {
        for cut in 0..file.len().min(64) {
            let (start, rest) = file.split_at(cut);
            let (out, result, _) = run(&ask("audio/pcm", delivery), [start, rest].into_iter());
            assert_eq!((out.len(), result), (0, Err(UpstreamErrorKind::Malformed)), "cut at {cut}");
        }
    }
}

/// Frame of MPEG audio: version 2, layer III, 32 kbit/s, 24 kHz.
fn mpeg_frame() -> Vec<u8> {
    [&[0xff, 0xf3, 0x44, 0xc0][..], &[0_u8; 92]].concat()
}

/// ADTS frame with this number of bytes.
fn adts_frame(length: u16) -> Vec<u8> {
    let [high, low] = (length << 5).to_be_bytes();
    let head = [0xff, 0xf1, 0x58, 0x80 | u8::try_from(length >> 11).unwrap(), high, low | 0x1f, 0xfc];
    [&head[..], &vec![0; usize::from(length) - head.len()]].concat()
}

/// First page of an Ogg file with this packet.
fn ogg(packet: &[u8]) -> Vec<u8> {
    let head = [&b"OggS\0\x02"[..], &[0; 20], &[1, u8::try_from(packet.len()).unwrap()]].concat();
    [&head, packet, &[0; 64]].concat()
}

/// Tag of this length, followed by `audio`.
fn tagged(length: u8, audio: &[u8]) -> Vec<u8> {
    [&b"ID3\x04\0\0\0\0\0"[..], &[length], &vec![0; usize::from(length)], audio].concat()
}

#[test]
fn audio_is_known_by_its_first_bytes() {
    let mpeg = [mpeg_frame(), mpeg_frame()].concat();
    let adts = [adts_frame(90), adts_frame(91)].concat();
    let (opus, ogg_flac) = (ogg(b"OpusHead\x01\x01"), ogg(b"\x7fFLAC\x01\0"));
    let flac = [&b"fLaC\0\0\0\x22"[..], &[1; 64]].concat();
    let mp4 = [&b"\0\0\0\x20ftypM4A "[..], &[1; 64]].concat();
    let webm = [&b"\x1a\x45\xdf\xa3"[..], &[1; 64]].concat();
    // Expected content types if the client requests MP3, Opus, AAC, FLAC or raw audio; empty if the answer is refused
    // and another provider is tried.
    let cases: [(&[u8], [&str; 5]); 12] = [
        (&wav(50), ["audio/wav", "audio/wav", "audio/wav", "audio/wav", ""]),
        (&mpeg, ["audio/mpeg", "", "", "", ""]),
        (&tagged(20, &mpeg), ["audio/mpeg", "", "", "", ""]),
        (&adts, ["", "", "audio/aac", "", ""]),
        (&tagged(100, &adts), ["", "", "audio/aac", "", ""]),
        (&opus, ["", "audio/ogg", "", "", ""]),
        (&ogg_flac, ["", "", "", "audio/ogg", ""]),
        (&flac, ["", "", "", "audio/flac", ""]),
        (&mp4, ["", "", "audio/mp4", "", ""]),
        (&webm, ["", "audio/webm", "", "", ""]),
        // Loud raw audio that looks like the header of a frame, and silence.
        (&[mpeg_frame(), vec![3; 64]].concat(), ["audio/mpeg", "", "", "", "audio/pcm"]),
        (&[0; 200], ["", "", "", "", "audio/pcm"]),
    ];
    let requested = ["audio/mpeg", "audio/ogg", "audio/aac", "audio/flac", "audio/pcm"];
    for (audio, answers) in cases {
        for (requested, answer) in requested.into_iter().zip(answers) {
            let ask = ask(requested, PassthroughDelivery::Bytes);
            for cut in 0..audio.len() {
                let (mut stream, mut out) = (SpeechTranslation::new(&ask).unwrap(), OutputBuffer::default());
                let (start, rest) = audio.split_at(cut);
                let pushed = [start, rest].map(|part| stream.push(Bytes::copy_from_slice(part), &mut out));
                let pushed = pushed.into_iter().collect::<Result<(), _>>();
                // These files have no audio after their first bytes, so only a file that was not recognised ends.
                let is_pending = stream.progress() == StreamProgress::Pending;
                let result = pushed.and_then(|()| if is_pending { stream.end(&mut out) } else { Ok(()) });
                let found = result.map(|()| stream.content_type().unwrap_or_default());
                let expected = if answer.is_empty() { Err(UpstreamErrorKind::Malformed) } else { Ok(answer) };
                assert_eq!(
                    found.map_err(|fault| fault.kind),
                    expected,
                    "{requested}, cut at {cut}: {audio:?}"
                );
                assert_eq!(out.0.concat() == audio, !answer.is_empty());
            }
        }
    }
}

#[test]
fn headers_without_audio_are_no_speech() {
    let flac = [&b"fLaC\x80\0\0\x22"[..], &[1; 34]].concat();
    let header = |length: usize| wav(1_000)[..length].to_vec();
    for (requested, audio) in [
        ("audio/wav", header(12)),
        ("audio/wav", header(44)),
        ("audio/mpeg", tagged(100, &[])),
        ("audio/mpeg", mpeg_frame()[..20].to_vec()),
        ("audio/flac", flac),
        ("audio/ogg", ogg(b"OpusHead\x01\x01\0\0\0\0\0\0\0\0\0")),
        ("audio/aac", [&b"\0\0\0\x14ftypM4A \0\0\0\0M4A "[..]].concat()),
        ("audio/aac", adts_frame(90)[..80].to_vec()),
    ] {
        for delivery in [PassthroughDelivery::Bytes, PassthroughDelivery::Events] {
            for cut in 0..audio.len() {
                let (start, rest) = audio.split_at(cut);
                let (_, result, _) = run(&ask(requested, delivery), [start, rest].into_iter());
                assert_eq!(result, Err(UpstreamErrorKind::Malformed), "{requested}, cut at {cut}: {audio:?}");
            }
        }
    }
    // Nothing is sent of an answer that ends before its format is recognised.
    for audio in [&wav(1_000)[..12], b"fLaC", b"OggS", &[0xff, 0xfb, 0x90, 0], &[0xff, 0xf1]] {
        for requested in ["audio/mpeg", "audio/ogg", "audio/aac", "audio/flac", "audio/wav"] {
            let (out, result, _) = run(&ask(requested, PassthroughDelivery::Bytes), audio.chunks(1));
            assert_eq!((out.len(), result), (0, Err(UpstreamErrorKind::Malformed)), "{requested}: {audio:?}");
        }
    }
}

#[test]
fn a_wav_file_shorter_than_it_states_is_broken() {
    let complete = wav(2_000);
    let stating = |length: u32| {
        let mut audio = complete.clone();
        audio[40..44].copy_from_slice(&length.to_le_bytes());
        audio
    };
    // The answer has 2 seconds in 32,000 bytes; the reserve is 20 seconds.
    for (audio, expected) in [
        (complete[..10_000].to_vec(), Err(UpstreamErrorKind::Truncated)),
        (complete[..complete.len() - 1_025].to_vec(), Err(UpstreamErrorKind::Truncated)),
        (complete[..complete.len() - 1_024].to_vec(), Ok(())),
        (stating(320_000), Err(UpstreamErrorKind::Truncated)),
        // The length includes the header.
        (stating(32_044), Ok(())),
        // Placeholders of encoders that do not know the length.
        (stating(0), Ok(())),
        (stating(320_100), Ok(())),
        (stating(0x7fff_f000), Ok(())),
        (stating(i32::MAX as u32 - 36), Ok(())),
        (stating(u32::MAX - 44), Ok(())),
        (stating(u32::MAX), Ok(())),
        // Further data, and a chunk after the data.
        (stating(16_000), Ok(())),
        ([&complete[..], b"LIST\xff\xff\0\0"].concat(), Ok(())),
    ] {
        for delivery in [PassthroughDelivery::Bytes, PassthroughDelivery::Events] {
            for size in [1, 44, 4_096, audio.len()] {
                let (out, result, _) = run(&ask("audio/wav", delivery), audio.chunks(size));
                assert_eq!(result, expected, "{} of {}", out.len(), audio.len());
            }
        }
    }
}
