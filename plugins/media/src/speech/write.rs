//! Transcript in each of the five formats. Subtitles are made from segments; an answer without segments becomes one
//! subtitle over the full duration.

use super::transcript::{MIN_SEGMENT_MILLIS, Transcript, TranscriptSegment};
use bytes::Bytes;
use penstock_core::{TranscriptFormat, TranscriptionTask};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns the content type of a transcript that is not JSON; `None` for JSON. If the transcript is not JSON, the
/// objects `environment_impact` and `billing_cost` are sent as headers.
#[must_use]
pub const fn transcript_content_type(transcript_format: TranscriptFormat) -> Option<&'static str> {
    match transcript_format {
        TranscriptFormat::Json | TranscriptFormat::Verbose => None,
        TranscriptFormat::Text => Some("text/plain; charset=utf-8"),
        TranscriptFormat::Srt => Some("application/x-subrip; charset=utf-8"),
        TranscriptFormat::Vtt => Some("text/vtt; charset=utf-8"),
    }
}

/// Writes the transcript in the requested format; `seconds` is the charged duration. JSON ends with a brace, other
/// formats with a line end.
pub(super) fn write_transcript(
    transcript: &Transcript,
    task: &TranscriptionTask,
    seconds: Option<Decimal>,
) -> Bytes {
    let millis = seconds.and_then(|seconds| seconds.checked_mul(Decimal::ONE_THOUSAND)?.to_u64());
    Bytes::from(match task.format {
        TranscriptFormat::Json => plain(transcript, task, seconds),
        TranscriptFormat::Verbose => verbose(transcript, task, seconds, millis),
        TranscriptFormat::Text => format!("{}\n", transcript.text),
        TranscriptFormat::Srt => srt(&cues(transcript, millis)),
        TranscriptFormat::Vtt => vtt(&cues(transcript, millis)),
    })
}

/// Converts seconds into a JSON number.
fn json_number(seconds: Decimal) -> Value {
    serde_json::from_str(&seconds.normalize().to_string()).unwrap_or(Value::Null)
}

fn object(members: Vec<(&str, Value)>, seconds: Option<Decimal>) -> String {
    let mut object: Map<String, Value> =
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    if let Some(seconds) = seconds {
        object.insert("usage".to_owned(), json!({ "type": "duration", "seconds": json_number(seconds) }));
    }
    Value::Object(object).to_string()
}

/// Writes the text as JSON, with the language if it is known, and with the charged duration.
fn plain(transcript: &Transcript, task: &TranscriptionTask, seconds: Option<Decimal>) -> String {
    let mut members = vec![("text", json!(transcript.text))];
    members.extend(language(transcript, task).map(|language| ("language", json!(language))));
    members.extend(seconds.map(|seconds| ("duration", json_number(seconds))));
    object(members, seconds)
}

/// Returns the language that the provider detected, or else the requested one.
fn language(transcript: &Transcript, task: &TranscriptionTask) -> Option<String> {
    transcript.language.clone().or_else(|| task.language.as_deref().map(str::to_owned))
}

/// Language of a transcript if neither the provider nor the request names one. Clients require the member.
const UNKNOWN_LANGUAGE: &str = "unknown";

/// Returns statistics for a segment that starts at this number of milliseconds, for providers that report none. Clients
/// require these members; with these values no client discards the segment as noise.
fn neutral_statistics(start: u64, task: &TranscriptionTask) -> Map<String, Value> {
    let temperature =
        task.temperature.as_deref().and_then(|text| text.parse().ok()).map_or(json!(0), json_number);
    let members = [
        // Position in frames of 10 ms.
        ("seek", json!(start / 10)),
        ("tokens", json!([])),
        ("temperature", temperature),
        ("avg_logprob", json!(0)),
        ("compression_ratio", json!(1)),
        ("no_speech_prob", json!(0)),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn verbose(
    transcript: &Transcript,
    task: &TranscriptionTask,
    seconds: Option<Decimal>,
    millis: Option<u64>,
) -> String {
    let language = language(transcript, task);
    let language = language.as_deref().unwrap_or(UNKNOWN_LANGUAGE);
    let mut members = vec![("task", json!("transcribe")), ("language", json!(language))];
    members.extend(seconds.map(|seconds| ("duration", json_number(seconds))));
    members.push(("text", json!(transcript.text)));
    let segments = cues(transcript, millis);
    let segments = segments.iter().enumerate().map(|(id, segment)| {
        let mut object = Map::new();
        object.insert("id".to_owned(), json!(id));
        object.insert(
            "start".to_owned(),
            json_number(Decimal::new(i64::try_from(segment.start).unwrap_or(i64::MAX), 3)),
        );
        object.insert(
            "end".to_owned(),
            json_number(Decimal::new(i64::try_from(segment.end).unwrap_or(i64::MAX), 3)),
        );
        object.insert("text".to_owned(), json!(segment.text));
        object.extend(neutral_statistics(segment.start, task));
        object.extend(segment.statistics.clone());
        Value::Object(object)
    });
    members.push(("segments", segments.collect()));
    // A provider that cannot time words returns none; an empty list would state that nothing was said.
    if task.word_timestamps && (!transcript.words.is_empty() || transcript.text.is_empty()) {
        members.push(("words", Value::Array(transcript.words.clone())));
    }
    object(members, seconds)
}

/// Returns the segments; without segments, a single segment with the full text.
fn cues(transcript: &Transcript, millis: Option<u64>) -> Cow<'_, [TranscriptSegment]> {
    if !transcript.segments.is_empty() || transcript.text.is_empty() {
        return Cow::Borrowed(&transcript.segments);
    }
    let reported = transcript.seconds.map(|seconds| (seconds * 1000.0) as u64);
    let end = millis.or(reported).unwrap_or(0).max(MIN_SEGMENT_MILLIS);
    Cow::Owned(vec![TranscriptSegment {
        start: 0,
        end,
        text: transcript.text.clone(),
        statistics: Map::new(),
    }])
}

fn srt(cues: &[TranscriptSegment]) -> String {
    let mut out = String::new();
    for (index, cue) in cues.iter().enumerate() {
        let (start, end) = (format_time(cue.start, ','), format_time(cue.end, ','));
        write!(out, "{}\n{start} --> {end}\n{}\n\n", index + 1, cue_text(&cue.text)).ok();
    }
    if out.is_empty() { "\n".to_owned() } else { out }
}

fn vtt(cues: &[TranscriptSegment]) -> String {
    let mut out = "WEBVTT\n\n".to_owned();
    for cue in cues {
        let (start, end) = (format_time(cue.start, '.'), format_time(cue.end, '.'));
        write!(out, "{start} --> {end}\n{}\n\n", escape_vtt(&cue_text(&cue.text))).ok();
    }
    out
}

/// Escapes the characters that begin tags and character references in the text of a `WebVTT` cue.
fn escape_vtt(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Formats a time, always with hours, because some players require them.
fn format_time(millis: u64, point: char) -> String {
    let (seconds, rest) = (millis / 1000, millis % 1000);
    format!("{:02}:{:02}:{:02}{point}{rest:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Returns the text of a subtitle without empty lines and without `-->`. Players would read an empty line as the end
/// of the subtitle, and `-->` as a line of times.
fn cue_text(text: &str) -> String {
    let lines = text.split(['\r', '\n']).map(str::trim).filter(|line| !line.is_empty());
    let mut out = String::with_capacity(text.len());
    for line in lines {
        if !out.is_empty() {
            out.push('\n');
        }
        for part in line.split_inclusive('>') {
            match part.strip_suffix("-->") {
                Some(before) => {
                    out.push_str(before.trim_end_matches('-'));
                    out.push_str("->");
                }
                None => out.push_str(part),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;
    use penstock_core::{AudioInput, DurationBasis};

    fn write_verbose(answer: &Value, language: Option<&str>) -> Value {
        let task = TranscriptionTask {
            language: language.map(Into::into),
            prompt: None,
            temperature: Some("0.2".into()),
            format: TranscriptFormat::Verbose,
            word_timestamps: false,
            audio: AudioInput {
                extension: "mp3",
                content_type: "audio/mpeg",
                seconds: Some(Decimal::from(4)),
                basis: DurationBasis::Counted,
                bytes: 1_000,
            },
        };
        let transcript = Transcript::parse(answer.to_string().as_bytes()).unwrap();
        let written = write_transcript(&transcript, &task, Some(Decimal::from(4)));
        serde_json::from_slice(&written).unwrap()
    }

    #[test]
    fn a_verbose_answer_always_has_a_language() {
        for (answer, language, expected) in [
            (json!({"text": "Hi"}), None, "unknown"),
            (json!({"text": "Hi", "language": ""}), None, "unknown"),
            (json!({"text": "Hi", "language": null}), Some("de"), "de"),
            (json!({"text": "Hi", "language": "english"}), Some("de"), "english"),
        ] {
            assert_eq!(write_verbose(&answer, language)["language"], expected, "{answer}");
        }
    }

    #[test]
    fn a_segment_has_every_member_that_clients_require() {
        let reported = json!({"start": 1, "end": 2, "text": "a", "seek": 7, "tokens": [1, 2], "temperature": 0.5,
            "avg_logprob": -0.25, "compression_ratio": 1.5, "no_speech_prob": 0.125});
        let invalid = json!({"start": 2, "end": 3, "text": "b", "seek": -1, "tokens": ["x"], "temperature": "0",
            "avg_logprob": null, "compression_ratio": [], "no_speech_prob": false, "speaker": 1});
        let written = write_verbose(&json!({"text": "a b", "segments": [reported, invalid]}), None);
        let neutral = |id: u64, start: u64, end: u64, seek: u64, text: &str| {
            json!({"id": id, "seek": seek, "start": start, "end": end, "text": text, "tokens": [],
                "temperature": 0.2, "avg_logprob": 0, "compression_ratio": 1, "no_speech_prob": 0})
        };
        let mut first = reported;
        first["id"] = json!(0);
        assert_eq!(written["segments"], json!([first, neutral(1, 2, 3, 200, "b")]));
        let whole = write_verbose(&json!({"text": "a b"}), None);
        assert_eq!(whole["segments"], json!([neutral(0, 0, 4, 0, "a b")]));
    }

    #[test]
    fn a_cue_has_neither_an_empty_line_nor_an_arrow() {
        for (text, cue) in [
            ("a --> b", "a -> b"),
            ("a ---> b", "a -> b"),
            ("----->-->", "->->"),
            (" one \n\n two>->\n", "one\ntwo>->"),
            ("-\n->", "-\n->"),
            ("one\r\rtwo", "one\ntwo"),
        ] {
            assert_eq!(cue_text(text), cue, "{text:?}");
        }
    }

    #[test]
    fn a_cue_of_vtt_has_no_tags() {
        let segment = |text: &str| TranscriptSegment {
            start: 0,
            end: 1,
            text: text.to_owned(),
            statistics: Map::new(),
        };
        let cues = [segment("R&D <b>x</b> &amp; a --> b")];
        assert_eq!(
            vtt(&cues),
            "WEBVTT\n\n00:00:00.000 --> 00:00:00.001\nR&amp;D &lt;b&gt;x&lt;/b&gt; &amp;amp; a -&gt; b\n\n"
        );
        assert!(srt(&cues).contains("\nR&D <b>x</b> &amp; a -> b\n"));
    }
}
