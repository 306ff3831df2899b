//! Transcript in a form independent of its provider.

use penstock_core::{UpstreamError, UpstreamErrorKind};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde_json::{Map, Value};

/// Transcript of an audio file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Transcript {
    /// Complete text of the transcript.
    pub text: String,
    /// Language, as the provider names it.
    pub language: Option<String>,
    /// Duration of the audio in seconds, as the provider reports it.
    pub seconds: Option<f64>,
    /// Segments with times; empty if the provider reports none.
    pub segments: Vec<TranscriptSegment>,
    /// Words with their times, as JSON objects of the provider.
    pub words: Vec<Value>,
}

/// Segment of speech.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TranscriptSegment {
    /// Start in milliseconds.
    pub start: u64,
    /// End in milliseconds, never before the start.
    pub end: u64,
    /// Text of the segment.
    pub text: String,
    /// Other members of the segment, unchanged from the provider's answer.
    pub more: Map<String, Value>,
}

/// Length of the windows in which engines recognise speech, in seconds. The times of segments and words may exceed
/// the audio by part of a window.
const WINDOW_SECONDS: u64 = 30;

/// Members of a segment that clients know, apart from times and text.
const KNOWN_MEMBERS: [&str; 6] =
    ["seek", "tokens", "temperature", "avg_logprob", "compression_ratio", "no_speech_prob"];

impl Transcript {
    /// Parses an answer.
    ///
    /// # Errors
    /// Returns `InBandError` if the answer contains an error object, and `Malformed` if it is not JSON or has no text.
    pub(super) fn parse(body: &[u8]) -> Result<Self, UpstreamError> {
        let value: Value =
            serde_json::from_slice(body).map_err(|_| UpstreamError::new(UpstreamErrorKind::Malformed))?;
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
        }
        let list = |name: &str| value.get(name).and_then(Value::as_array).map(Vec::as_slice);
        let segments = list("segments").or_else(|| list("chunks")).unwrap_or_default();
        let segments = normalize_times(segments.iter().filter_map(segment).collect());
        let text = match value.get("text").and_then(Value::as_str) {
            Some(text) => text.trim().to_owned(),
            None if segments.is_empty() => return Err(UpstreamError::new(UpstreamErrorKind::Malformed)),
            None => segments.iter().map(|segment| segment.text.as_str()).collect::<Vec<_>>().join(" "),
        };
        let used =
            || value.pointer("/usage/seconds").or_else(|| value.pointer("/usage/prompt_audio_seconds"));
        let within = || {
            list("segments")
                .unwrap_or_default()
                .iter()
                .filter_map(|one| one.get("words")?.as_array())
                .flatten()
        };
        let words = list("words").map_or_else(
            || within().filter_map(word).collect(),
            |words| words.iter().filter_map(word).collect(),
        );
        Ok(Self {
            text,
            language: value
                .get("language")
                .and_then(Value::as_str)
                .filter(|name| name.len() <= 64)
                .map(str::to_owned),
            seconds: value.get("duration").or_else(used).and_then(number),
            segments,
            words,
        })
    }
}

impl Transcript {
    /// Limits the times of segments and words to the charged length of the audio plus the length of one window: the
    /// window in which an engine recognises the end may extend past the audio.
    pub(super) fn limit_times(&mut self, seconds: Decimal) {
        let limit = seconds.ceil().to_u64().unwrap_or(u64::MAX).saturating_add(WINDOW_SECONDS);
        let limit_millis = limit.saturating_mul(1000);
        for segment in &mut self.segments {
            segment.start = segment.start.min(limit_millis);
            segment.end = segment.end.min(limit_millis);
        }
        for word in &mut self.words {
            for name in ["start", "end"] {
                if let Some(time) = word.get_mut(name).filter(|time| !is_within(time, limit)) {
                    *time = Value::from(limit);
                }
            }
        }
    }
}

/// Returns true for a time in seconds that is at most `limit`.
fn is_within(time: &Value, limit: u64) -> bool {
    number(time).is_some_and(|seconds| seconds <= limit as f64)
}

/// Reads a number, also from a string; `None` if it is negative, not finite, or no number.
fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// Converts seconds into milliseconds, rounded half up; `None` if [`number`] finds none.
fn millis(value: &Value) -> Option<u64> {
    Some((number(value)? * 1000.0 + 0.5).min(1e15) as u64)
}

fn segment(value: &Value) -> Option<TranscriptSegment> {
    let text = value.get("text")?.as_str()?.trim();
    let pair = |index: usize| value.get("timestamp")?.get(index);
    let start = value.get("start").or_else(|| pair(0)).and_then(millis)?;
    // A segment without an end first ends at its own start; `normalize_times` later moves the end to the start of the
    // next segment.
    let end = value.get("end").or_else(|| pair(1)).and_then(millis).unwrap_or(start);
    let members = value.as_object()?.iter();
    let more = members.filter(|(name, _)| KNOWN_MEMBERS.contains(&name.as_str()));
    let more = more.map(|(name, value)| (name.clone(), value.clone())).collect();
    (!text.is_empty()).then(|| TranscriptSegment { start, end, text: text.to_owned(), more })
}

/// Corrects the times: each segment starts at or after the start of the previous one, and does not end before its own
/// start.
fn normalize_times(mut segments: Vec<TranscriptSegment>) -> Vec<TranscriptSegment> {
    let mut earliest = 0;
    for segment in &mut segments {
        segment.start = segment.start.max(earliest);
        segment.end = segment.end.max(segment.start);
        earliest = segment.start;
    }
    let mut next = None;
    for segment in segments.iter_mut().rev() {
        if segment.end == segment.start {
            segment.end = next.unwrap_or(segment.start);
        }
        next = Some(segment.start);
    }
    segments
}

fn word(value: &Value) -> Option<Value> {
    let word = value.get("word").or_else(|| value.get("text"))?.as_str()?;
    let time = |name: &str| {
        let time = value.get(name)?;
        let seconds = number(time)?;
        Some(if time.is_number() { time.clone() } else { seconds.into() })
    };
    Some(serde_json::json!({ "word": word, "start": time("start")?, "end": time("end")? }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_limited_to_the_audio_and_one_window() {
        let body = json!({
            "text": "a b",
            "segments": [{"start": 0, "end": 1e9, "text": "a"}, {"start": 31, "end": 31.001, "text": "b"}],
            "words": [
                {"word": "a", "start": 0.5, "end": 31},
                {"word": "b", "start": 31.001, "end": "1e300"},
                {"word": "d", "start": "0.25", "end": "0.5"},
                {"word": "c", "start": [], "end": 1},
            ],
        });
        let mut transcript = Transcript::parse(body.to_string().as_bytes()).unwrap();
        transcript.limit_times(Decimal::new(5, 1));
        let times: Vec<_> = transcript.segments.iter().map(|segment| (segment.start, segment.end)).collect();
        assert_eq!(times, [(0, 31_000), (31_000, 31_000)]);
        let words = [
            json!({"word": "a", "start": 0.5, "end": 31}),
            json!({"word": "b", "start": 31, "end": 31}),
            json!({"word": "d", "start": 0.25, "end": 0.5}),
        ];
        assert_eq!(transcript.words, words);
    }
}
