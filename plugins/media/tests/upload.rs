//! Transcription forms as client libraries send them, with the parts in any order and the bytes split anywhere; and
//! refused forms, whose errors name the invalid part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sounds;

use bytes::Bytes;
use penstock_core::{ApiError, ErrorCode, TranscriptFormat, TranscriptionTask};
use penstock_media::speech::TranscriptionFormParser;

const TYPE: &str = "multipart/form-data; boundary=b0und";

/// Name, file name if there is one, and content of a part.
type FormPart<'a> = (&'a str, Option<&'a str>, &'a [u8]);

fn form(parts: &[FormPart<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, file, content) in parts {
        let file = file.map_or(String::new(), |file| {
            format!("; filename=\"{file}\"\r\nContent-Type: application/octet-stream")
        });
        bytes.extend_from_slice(
            format!("--b0und\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").as_bytes(),
        );
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"--b0und--\r\n");
    bytes
}

fn read(pieces: &[&[u8]]) -> Result<(Box<str>, TranscriptionTask, Vec<u8>), ApiError> {
    let mut upload = TranscriptionFormParser::new(TYPE)?;
    let mut sound = Vec::new();
    for piece in pieces {
        upload.push(Bytes::copy_from_slice(piece), &mut sound)?;
    }
    let (model, task) = upload.end()?;
    Ok((model, task, sound.concat()))
}

fn refused(parts: &[FormPart<'_>]) -> (Option<String>, String) {
    let refusal = read(&[&form(parts)]).expect_err("it should have been refused");
    assert!(refusal.spec().status == 400 || refusal.code == ErrorCode::UnsupportedMediaType);
    (refusal.param, refusal.message.into_owned())
}

#[test]
fn parts_come_in_any_order_and_bytes_in_any_pieces() {
    let wav = sounds::wav(500);
    let model: FormPart<'_> = ("model", None, b"whisper:eco");
    let file: FormPart<'_> = ("file", Some("song.pdf"), &wav);
    let language: FormPart<'_> = ("language", None, b"DE");
    let unknown: FormPart<'_> = ("chunking_strategy", None, b"auto");
    for parts in
        [[model, file, language, unknown], [file, unknown, language, model], [language, model, unknown, file]]
    {
        let bytes = form(&parts);
        let whole = read(&[&bytes]).unwrap();
        assert_eq!((&*whole.0, whole.1.language.as_deref()), ("whisper:eco", Some("de")));
        assert_eq!((whole.1.audio.extension, whole.1.audio.bytes), ("wav", wav.len() as u64));
        assert_eq!(whole.1.audio.seconds.unwrap().normalize().to_string(), "0.5");
        assert!(whole.2 == wav, "the sound goes on as it came");
        for cut in (0..bytes.len()).filter(|cut| *cut < 700 || *cut > bytes.len() - 700) {
            assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]).unwrap(), whole, "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single).unwrap(), whole);
    }
}

#[test]
fn every_field_is_read_and_an_empty_one_is_absent() {
    let mp3 = sounds::mp3(3);
    let (_, task, _) = read(&[&form(&[
        ("model", None, b"m"),
        ("response_format", None, b"verbose_json"),
        ("prompt", None, "Größe; \"Zitat\"\r\nund mehr".as_bytes()),
        ("temperature", None, b"0.2"),
        ("timestamp_granularities[]", None, b"word"),
        ("timestamp_granularities[]", None, b"segment"),
        ("stream", None, b"false"),
        ("language", None, b""),
        ("file", None, &mp3),
    ])])
    .unwrap();
    assert_eq!((task.format, task.word_timestamps, task.language), (TranscriptFormat::Verbose, true, None));
    assert_eq!(task.prompt.as_deref(), Some("Größe; \"Zitat\"\r\nund mehr"));
    assert_eq!(task.temperature.as_deref(), Some("0.2"));
}

#[test]
fn a_list_may_have_its_index_in_the_name() {
    let wav = sounds::wav(100);
    let words = |name: &'static str| {
        let parts =
            [("model", None, &b"m"[..]), ("response_format", None, b"verbose_json"), (name, None, b"word")];
        read(&[&form(&[&parts[..], &[("file", None, &wav)]].concat())]).unwrap().1.word_timestamps
    };
    for name in ["timestamp_granularities", "timestamp_granularities[]", "timestamp_granularities[0]"] {
        assert!(words(name), "{name}");
    }
    let model: FormPart<'_> = ("model", None, b"m");
    let file: FormPart<'_> = ("file", Some("a.wav"), &wav);
    for (name, field) in [("include[0]", "include"), ("known_speaker_names[1]", "known_speaker_names")] {
        let (param, _) = refused(&[model, file, (name, None, b"logprobs")]);
        assert_eq!(param.as_deref(), Some(field));
    }
}

#[test]
fn each_invalid_field_is_named() {
    let wav = sounds::wav(100);
    let file: FormPart<'_> = ("file", Some("a.wav"), &wav);
    let model: FormPart<'_> = ("model", None, b"m");
    let long = vec![b'a'; 300];
    for (parts, field, says) in [
        (vec![file], "model", "expected the name of a model, but it is missing."),
        (vec![("model", None, &long[..]), file], "model", "expected a string of at most 256 bytes."),
        (vec![model], "file", "expected an audio file, but it is missing."),
        (
            vec![model, ("audio", Some("a.wav"), &wav)],
            "file",
            "expected the audio in a part of this name, got a file in \"audio\".",
        ),
        (
            vec![model, ("a secret prompt", Some("a.wav"), &wav)],
            "file",
            "expected the audio in a part of this name, got a file in another.",
        ),
        (vec![model, file, file], "file", "expected one file, got more than one."),
        (vec![model, model, file], "model", "expected it once, got it more than once."),
        (vec![model, ("file", Some("a.wav"), b"")], "file", "expected audio, got a file of 0 bytes."),
        (
            vec![model, ("file", Some("a.mp3"), b"this is no music at all")],
            "file",
            "expected audio in MP3, MP4, MPEG, MPGA, M4A, WAV, WEBM, OGG or FLAC, got something else.",
        ),
        (
            vec![model, ("file", Some("a.wav"), &wav[..45])],
            "file",
            "expected audio, got a WAV file without audio.",
        ),
        (
            vec![model, file, ("language", None, b"english")],
            "language",
            "expected an ISO 639-1 code of two letters, such as \"en\".",
        ),
        (
            vec![model, file, ("response_format", None, b"xml")],
            "response_format",
            "expected \"json\", \"verbose_json\", \"text\", \"srt\" or \"vtt\".",
        ),
        (
            vec![model, file, ("response_format", None, b"diarized_json")],
            "response_format",
            "speakers are not distinguished.",
        ),
        (vec![model, file, ("temperature", None, b"1.5")], "temperature", "expected a number from 0 to 1."),
        (vec![model, file, ("temperature", None, b"nan")], "temperature", "expected a number from 0 to 1."),
        (vec![model, file, ("stream", None, b"true")], "stream", "transcripts are not streamed."),
        (
            vec![model, file, ("include[]", None, b"logprobs")],
            "include",
            "log probabilities are not available.",
        ),
        (
            vec![model, file, ("timestamp_granularities[]", None, b"word")],
            "timestamp_granularities",
            "expected response_format \"verbose_json\" with it.",
        ),
        (vec![model, file, ("prompt", None, b"\xff\xfe")], "prompt", "expected text in UTF-8."),
    ] {
        let (param, message) = refused(&parts);
        assert_eq!((param.as_deref(), message), (Some(field), format!("{field}: {says}")));
    }
}

#[test]
fn a_truncated_part_is_named() {
    let wav = sounds::wav(100);
    let bytes = form(&[("model", None, b"m"), ("file", Some("a.wav"), &wav)]);
    let cut = |end: usize| {
        let refusal = read(&[&bytes[..end]]).unwrap_err();
        (refusal.param, refusal.message.into_owned())
    };
    let (param, message) = cut(bytes.len() - 20);
    assert_eq!(
        (param.as_deref(), message.as_str()),
        (Some("file"), "file: expected the whole part, but it ends too early.")
    );
    assert_eq!(cut(60).0.as_deref(), Some("model"));
    assert_eq!(
        cut(3),
        (Some("body".into()), "The form: expected its closing delimiter, but it ends before.".into())
    );
}

#[test]
fn a_field_without_end_is_not_held() {
    let mut upload = TranscriptionFormParser::new(TYPE).unwrap();
    let head = b"--b0und\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n";
    upload.push(Bytes::from_static(head), &mut Vec::new()).unwrap();
    let pushed = (0..100).find_map(|_| upload.push(Bytes::from(vec![b'a'; 4096]), &mut Vec::new()).err());
    assert_eq!(pushed.unwrap().param.as_deref(), Some("prompt"));
}

#[test]
fn a_non_form_body_is_reported() {
    assert_eq!(
        TranscriptionFormParser::new("application/json").unwrap_err().code,
        ErrorCode::UnsupportedMediaType
    );
    assert_eq!(TranscriptionFormParser::new("").unwrap_err().code, ErrorCode::UnsupportedMediaType);
    let refusal = TranscriptionFormParser::new("multipart/form-data").unwrap_err();
    assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::InvalidRequest, Some("content-type")));
}

#[test]
fn fields_that_change_the_transcript_are_refused_by_name() {
    let wav = sounds::wav(500);
    let (model, file): (FormPart<'_>, FormPart<'_>) = (("model", None, b"w"), ("file", Some("a.wav"), &wav));
    for (name, value) in [
        ("task", "translate"),
        ("translate", "true"),
        ("to_language", "en"),
        ("target_language", "en"),
        ("diarize", "true"),
        ("diarization", "1"),
        ("known_speaker_names[]", "Ada"),
        ("num_speakers", "2"),
        ("hotwords", "Pingora"),
        ("word_timestamps", "true"),
        ("clip_timestamps", "1.0"),
        ("redact", "true"),
        ("profanity_filter", "true"),
        ("vad_filter", "true"),
    ] {
        let (param, message) = refused(&[model, file, (name, None, value.as_bytes())]);
        let field = name.trim_end_matches("[]");
        assert_eq!(param.as_deref(), Some(field), "{message}");
        assert!(message.starts_with(&format!("{field}: ")), "{message}");
    }
    for (name, value) in [
        ("task", "transcribe"),
        ("translate", "false"),
        ("diarize", "False"),
        ("to_language", ""),
        ("vad_filter", "false"),
        ("hotwords", ""),
        ("keywords", "[]"),
        ("chunking_strategy", "auto"),
    ] {
        assert!(read(&[&form(&[model, file, (name, None, value.as_bytes())])]).is_ok(), "{name}");
    }
}

#[test]
fn nested_fields_are_read_as_the_field_they_belong_to() {
    let wav = sounds::wav(500);
    let (model, file): (FormPart<'_>, FormPart<'_>) = (("model", None, b"w"), ("file", Some("a.wav"), &wav));
    for (name, value, field) in [
        ("filters[countries][]", "DE", "filters"),
        ("filters[countries][0]", "DE", "filters"),
        ("filters.countries", "DE", "filters"),
        ("filters[max_carbon_intensity]", "1", "filters"),
        ("filters[]", "DE", "filters"),
        ("custom_weights[price]", "1", "custom_weights"),
        ("custom_weights.price", "0", "custom_weights"),
        ("mode[]", "eco", "mode"),
        ("provider", r#"{"only":["x"]}"#, "provider"),
        ("provider[only][]", "x", "provider"),
        ("diarization_config[n]", "2", "diarization_config"),
        ("diarization[enabled]", "true", "diarization"),
        ("hotwords[][word]", "Pingora", "hotwords"),
        ("include[x]", "logprobs", "include"),
        ("model[]", "m", "model"),
        ("model.name", "m", "model"),
        ("prompt[]", "a", "prompt"),
        ("temperature[]", "0", "temperature"),
        ("task[]", "translate", "task"),
        ("stream[]", "true", "stream"),
        ("response_format[]", "srt", "response_format"),
        ("response_format[type]", "srt", "response_format"),
        ("language[]", "de", "language"),
        ("timestamp_granularities[x]", "word", "timestamp_granularities"),
        ("timestamp_granularities[][]", "word", "timestamp_granularities"),
    ] {
        let (param, message) = refused(&[model, file, (name, None, value.as_bytes())]);
        assert_eq!(param.as_deref(), Some(field), "{name}: {message}");
        assert!(message.starts_with(&format!("{field}: ")), "{message}");
    }
    for parts in [
        [("chunking_strategy[type]", "server_vad"), ("chunking_strategy[type]", "auto")],
        [("diarization[enabled]", "false"), ("diarization[enabled]", "off")],
        [("filters[countries][]", ""), ("provider", "{}")],
    ] {
        let parts = parts.map(|(name, value)| (name, None, value.as_bytes()));
        assert!(read(&[&form(&[&[model, file][..], &parts].concat())]).is_ok(), "{parts:?}");
    }
}

#[test]
fn a_repeated_item_is_refused_for_the_reason_of_its_field() {
    let wav = sounds::wav(500);
    let clip = |value: &'static [u8]| -> FormPart<'static> { ("clip_timestamps[]", None, value) };
    let (_, message) =
        refused(&[("model", None, b"w"), clip(b"0"), clip(b"5"), ("file", Some("a.wav"), &wav)]);
    assert_eq!(message, "clip_timestamps: the complete audio is transcribed; cut it before the request.");
}
