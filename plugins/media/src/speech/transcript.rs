//! Transcript in a form independent of its provider.

use penstock_core::{UpstreamError, UpstreamErrorKind};
use penstock_json_scan::json;
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
    /// End in milliseconds, after the start; `u64::MAX` for the end of the audio, until
    /// [`Transcript::limit_times`] replaces it.
    pub end: u64,
    /// Text of the segment.
    pub text: String,
    /// Statistics of the segment that the provider reports, unchanged.
    pub statistics: Map<String, Value>,
}

/// Length of the windows in which engines recognise speech, in seconds. The times of segments and words may exceed
/// the audio by part of a window.
const WINDOW_SECONDS: u64 = 30;

/// Members of a segment that clients know and that are numbers, apart from its times.
const NUMBER_MEMBERS: [&str; 5] =
    ["seek", "temperature", "avg_logprob", "compression_ratio", "no_speech_prob"];

impl Transcript {
    /// Parses an answer. Lone surrogates in its texts, which engines write where a character is split, become U+FFFD.
    ///
    /// # Errors
    /// Returns `InBandError` if the answer contains an error object, and `Malformed` if it is not JSON or has no text.
    pub(super) fn parse(body: &[u8]) -> Result<Self, UpstreamError> {
        let repaired = json::repair_surrogates(body);
        let value: Value = serde_json::from_slice(repaired.as_deref().unwrap_or(body))
            .map_err(|_| UpstreamError::new(UpstreamErrorKind::Malformed))?;
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
        }
        let list = |name: &str| value.get(name).and_then(Value::as_array).map(Vec::as_slice);
        let segments = list("segments").or_else(|| list("chunks")).unwrap_or_default();
        let segments = segments.iter().filter_map(TimedText::from_json).collect::<Vec<_>>();
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
                .filter(|name| (1..=64).contains(&name.len()))
                .map(str::to_owned),
            seconds: value.get("duration").or_else(used).and_then(number),
            segments: complete_times(segments),
            words,
        })
    }
}

impl Transcript {
    /// Returns the latest time of a segment in milliseconds: its end, or its start if its end is unknown; `None`
    /// without segments.
    pub(super) fn last_time(&self) -> Option<u64> {
        let time = |segment: &TranscriptSegment| match segment.end {
            END_OF_AUDIO => segment.start,
            end => end,
        };
        self.segments.iter().map(time).max()
    }

    /// Limits the times of segments and words to the charged length of the audio plus the length of one window: the
    /// window in which an engine recognises the end may extend past the audio.
    ///
    /// A segment without an end before it ends with the audio.
    pub(super) fn limit_times(&mut self, seconds: Decimal) {
        let duration = seconds.checked_mul(Decimal::ONE_THOUSAND).and_then(|millis| millis.to_u64());
        let limit = seconds.ceil().to_u64().unwrap_or(u64::MAX).saturating_add(WINDOW_SECONDS);
        let limit_millis = limit.saturating_mul(1000);
        for segment in &mut self.segments {
            if segment.end == END_OF_AUDIO {
                segment.end = duration.unwrap_or_default();
            }
            segment.start = segment.start.min(limit_millis);
            let earliest_end = segment.start.saturating_add(MIN_SEGMENT_MILLIS);
            segment.end = segment.end.min(limit_millis).max(earliest_end);
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

/// Reads a number, also from a string, a negative one as 0; `None` if it is not finite or no number.
fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    number.is_finite().then_some(number.max(0.0))
}

/// Converts seconds into milliseconds, rounded half up; `None` if [`number`] finds none.
fn millis(value: &Value) -> Option<u64> {
    Some((number(value)? * 1000.0 + 0.5).min(1e15) as u64)
}

/// End of a segment that lasts to the end of the audio.
const END_OF_AUDIO: u64 = u64::MAX;

/// Minimum length of a segment in milliseconds: `WebVTT` allows no cue that ends at its start.
pub(super) const MIN_SEGMENT_MILLIS: u64 = 1;

/// Segment as the provider writes it: either of its times, in milliseconds, may be unknown.
#[derive(Debug)]
struct TimedText {
    start: Option<u64>,
    end: Option<u64>,
    text: String,
    statistics: Map<String, Value>,
}

/// Returns true for a member of a segment whose value has the type that clients expect: a number, or a list of the
/// numbers of tokens.
fn is_statistic(name: &str, value: &Value) -> bool {
    match name {
        "tokens" => value.as_array().is_some_and(|tokens| tokens.iter().all(Value::is_u64)),
        "seek" => value.is_u64(),
        _ => NUMBER_MEMBERS.contains(&name) && value.is_number(),
    }
}

impl TimedText {
    /// Returns true for a segment without times. Some engines write zeros for unknown times.
    fn is_untimed(&self) -> bool {
        self.start.is_none() || (self.start, self.end) == (Some(0), Some(0))
    }

    /// Reads a segment; `None` if it has no text.
    fn from_json(value: &Value) -> Option<Self> {
        let text = value.get("text")?.as_str()?.trim();
        let time = |name: &str, index: usize| {
            let pair = || millis(value.get("timestamp")?.get(index)?);
            value.get(name).and_then(millis).or_else(pair)
        };
        let members = value.as_object()?.iter().filter(|(name, value)| is_statistic(name, value));
        let statistics = members.map(|(name, value)| (name.clone(), value.clone())).collect();
        let (start, end) = (time("start", 0), time("end", 1));
        (!text.is_empty()).then(|| Self { start, end, text: text.to_owned(), statistics })
    }
}

/// Completes the times and sorts the segments by start. Stated times are kept, also of segments that overlap. A segment
/// without a start begins where the previous one of the provider's list ends; one without an end, or with an end before
/// its start, lasts until the next later start, or to the end of the audio. A segment of no length lasts until the next
/// start, at least [`MIN_SEGMENT_MILLIS`]. Returns no segments if none has times.
fn complete_times(segments: Vec<TimedText>) -> Vec<TranscriptSegment> {
    if segments.iter().all(TimedText::is_untimed) {
        return Vec::new();
    }
    let mut last_end = 0;
    let complete_start = |TimedText { start, end, text, statistics }| {
        let start = start.unwrap_or(last_end);
        let end = end.filter(|end| *end >= start);
        last_end = end.unwrap_or(start);
        TranscriptSegment { start, end: end.unwrap_or(END_OF_AUDIO), text, statistics }
    };
    let mut segments: Vec<TranscriptSegment> = segments.into_iter().map(complete_start).collect();
    // The sort is stable: segments with the same start stay in the provider's order.
    segments.sort_by_key(|segment| segment.start);
    let (mut next_start, mut next_later) = (END_OF_AUDIO, END_OF_AUDIO);
    for segment in segments.iter_mut().rev() {
        if next_start > segment.start {
            next_later = next_start;
        }
        if segment.end == END_OF_AUDIO {
            segment.end = next_later;
        } else if segment.end == segment.start {
            segment.end = next_start.max(segment.start.saturating_add(MIN_SEGMENT_MILLIS));
        }
        next_start = segment.start;
    }
    segments
}

fn word(value: &Value) -> Option<Value> {
    let word = value.get("word").or_else(|| value.get("text"))?.as_str()?;
    let time = |name: &str| {
        let time = value.get(name)?;
        let seconds = number(time)?;
        let is_valid = time.as_f64().is_some_and(|number| number >= 0.0);
        Some(if is_valid { time.clone() } else { seconds.into() })
    };
    Some(serde_json::json!({ "word": word, "start": time("start")?, "end": time("end")? }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

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
        assert_eq!(times, [(0, 31_000), (31_000, 31_001)]);
        let words = [
            json!({"word": "a", "start": 0.5, "end": 31}),
            json!({"word": "b", "start": 31, "end": 31}),
            json!({"word": "d", "start": 0.25, "end": 0.5}),
        ];
        assert_eq!(transcript.words, words);
    }

    #[test]
    fn a_lone_surrogate_becomes_a_replacement_character() {
        let body = br#"{"text":"caf\ud83d end \ud83d\ude00","language":"d\udc00",
            "segments":[{"start":0,"end":1,"text":"a\udc00b"}],"words":[{"word":"\ud83d","start":0,"end":1}]}"#;
        let transcript = Transcript::parse(body).unwrap();
        assert_eq!(transcript.text, "caf\u{fffd} end \u{1f600}");
        assert_eq!(transcript.segments[0].text, "a\u{fffd}b");
        assert_eq!(transcript.words[0]["word"], "\u{fffd}");
        assert_eq!(transcript.language.as_deref(), Some("d\u{fffd}"));
    }

    #[test]
    fn every_text_keeps_a_place() {
        let times = |segments: Value| {
            let mut transcript =
                Transcript::parse(json!({ "segments": segments }).to_string().as_bytes()).unwrap();
            transcript.limit_times(Decimal::from(10));
            transcript.segments.iter().map(|segment| (segment.start, segment.end)).collect::<Vec<_>>()
        };
        let timed = |start: Value, end: Value| json!({"start": start, "end": end, "text": "t"});
        for (name, segments, expected) in [
            ("negative start", json!([timed(json!(-0.5), json!(2))]), vec![(0, 2_000)]),
            (
                "negative times",
                json!([timed(json!(-2), json!(-1)), timed(json!(4), json!(5))]),
                vec![(0, 4_000), (4_000, 5_000)],
            ),
            (
                "no end",
                json!([timed(json!(1), json!(null)), timed(json!(4), json!(5))]),
                vec![(1_000, 4_000), (4_000, 5_000)],
            ),
            ("no last end", json!([timed(json!(1), json!(null))]), vec![(1_000, 10_000)]),
            ("an end before the start", json!([timed(json!(5), json!(4))]), vec![(5_000, 10_000)]),
            (
                "no times between",
                json!([timed(json!(1), json!(2)), {"text": "t"}, timed(json!(4), json!(5))]),
                vec![(1_000, 2_000), (2_000, 4_000), (4_000, 5_000)],
            ),
            (
                "no times first",
                json!([{"text": "t"}, timed(json!(4), json!(5))]),
                vec![(0, 4_000), (4_000, 5_000)],
            ),
            (
                "no times last",
                json!([timed(json!(4), json!(5)), {"text": "t"}]),
                vec![(4_000, 5_000), (5_000, 10_000)],
            ),
            (
                "several without times",
                json!([timed(json!(1), json!(null)), {"text": "t"}, timed(json!(4), json!(5))]),
                vec![(1_000, 4_000), (1_000, 4_000), (4_000, 5_000)],
            ),
            (
                "pairs",
                json!([{"timestamp": [1, null], "text": "t"}, {"timestamp": [3, 4], "text": "t"}]),
                vec![(1_000, 3_000), (3_000, 4_000)],
            ),
            ("a start behind the audio", json!([timed(json!(12), json!(null))]), vec![(12_000, 12_001)]),
            (
                "out of order",
                json!([timed(json!(5), json!(6)), timed(json!(1), json!(2))]),
                vec![(1_000, 2_000), (5_000, 6_000)],
            ),
            (
                "overlapping",
                json!([timed(json!(0), json!(3)), timed(json!(1), json!(2))]),
                vec![(0, 3_000), (1_000, 2_000)],
            ),
            (
                "no length at the start of the next",
                json!([timed(json!(0), json!(1)), timed(json!(1), json!(1)), timed(json!(1), json!(2))]),
                vec![(0, 1_000), (1_000, 1_001), (1_000, 2_000)],
            ),
            (
                "no length before the next",
                json!([timed(json!(1), json!(1)), timed(json!(3), json!(4))]),
                vec![(1_000, 3_000), (3_000, 4_000)],
            ),
            (
                "no length last",
                json!([timed(json!(1), json!(2)), timed(json!(9.5), json!(9.5))]),
                vec![(1_000, 2_000), (9_500, 10_000)],
            ),
            (
                "no time after a later segment",
                json!([timed(json!(5), json!(6)), timed(json!(1), json!(2)), {"text": "t"}]),
                vec![(1_000, 2_000), (2_000, 5_000), (5_000, 6_000)],
            ),
            ("zeros", json!([timed(json!(0), json!(0)), timed(json!(0), json!(0))]), vec![]),
            ("no times at all", json!([{"text": "t"}, {"text": "t"}]), vec![]),
        ] {
            assert_eq!(times(segments), expected, "{name}");
        }
        let body = json!({"text": "a", "words": [{"word": "a", "start": -0.25, "end": 1}]}).to_string();
        let words = Transcript::parse(body.as_bytes()).unwrap().words;
        assert_eq!(words, [json!({"word": "a", "start": 0.0, "end": 1})]);
    }
}
