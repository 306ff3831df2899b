//! Simulated transcripts in segments that cover the length of the audio. The same bytes give the same transcript. The
//! transcripts do not contain the spoken words.

use super::parsed_request::RequestError;
use super::text::{self, SeededRng, fold_hash};
use penstock_media::audio::AudioMeter;
use rust_decimal::prelude::ToPrimitive;
use serde_json::{Value, json};

/// Length of a segment, in seconds.
const SEGMENT: f64 = 4.0;
/// Number of words in a segment.
const WORDS: usize = 10;
/// Maximum number of segments.
const MOST: usize = 20_000;

/// Transcription request.
#[derive(Debug)]
pub(super) struct TranscriptionTask {
    /// Model name with its suffix.
    pub model: String,
    /// Hash of the audio file.
    pub hash: u64,
    format: String,
    language: Option<String>,
    words: bool,
    seconds: f64,
}

/// Parses a form. The parser is minimal and independent of the parser of the gateway, so that a bug of one is not
/// hidden by the same bug of the other.
pub(super) fn read(content_type: &str, body: &[u8]) -> Result<TranscriptionTask, RequestError> {
    let invalid = |message: &str, field| RequestError { message: message.to_owned(), field: Some(field) };
    let boundary = content_type
        .split_once("boundary=")
        .map(|(_, rest)| rest.split(';').next().unwrap_or_default().trim_matches('"'))
        .ok_or_else(|| invalid("no boundary", "content-type"))?;
    let delimiter = format!("\r\n--{boundary}");
    let whole = [b"\r\n", body].concat();
    let marks: Vec<usize> = memchr::memmem::find_iter(&whole, delimiter.as_bytes()).collect();
    let mut task = TranscriptionTask {
        model: String::new(),
        hash: 0,
        format: "json".to_owned(),
        language: None,
        words: false,
        seconds: 0.0,
    };
    let mut file = None;
    for pair in marks.windows(2) {
        let [from, to] = *pair else { continue };
        let part = whole.get(from + delimiter.len() + 2..to).unwrap_or_default();
        let Some(at) = memchr::memmem::find(part, b"\r\n\r\n") else { continue };
        let (head, content) = part.split_at(at);
        let content = content.get(4..).unwrap_or_default();
        let head = String::from_utf8_lossy(head);
        let text = || String::from_utf8_lossy(content).into_owned();
        match head.split("name=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default() {
            "model" => task.model = text(),
            "response_format" => task.format = text(),
            "language" => task.language = Some(text()),
            "timestamp_granularities[]" => task.words |= content == b"word",
            "file" => file = Some(content),
            _ => {}
        }
    }
    let file = file.ok_or_else(|| invalid("Field required: file", "file"))?;
    let mut meter = AudioMeter::default();
    meter.push(file);
    let sound = meter.end().map_err(|_| invalid("The file is no audio", "file"))?;
    task.seconds = sound.seconds.and_then(|seconds| seconds.to_f64()).unwrap_or(1.0);
    task.hash = fold_hash(0, file);
    if task.model.is_empty() {
        return Err(invalid("Field required: model", "model"));
    }
    Ok(task)
}

impl TranscriptionTask {
    /// Returns the answer in the requested format: the text as `Err` for the format `text`, otherwise JSON as `Ok`.
    pub(super) fn answer(&self, name: &str, seed: u64) -> Result<Value, String> {
        let mut draw = SeededRng::new(fold_hash(self.hash, &seed.to_le_bytes()));
        let count = ((self.seconds / SEGMENT).ceil() as usize).clamp(1, MOST);
        let all = text::answer(name, &mut draw, count * WORDS);
        let spoken: Vec<String> = all.chunks(WORDS).take(count).map(<[String]>::concat).collect();
        let text = spoken.concat();
        match self.format.as_str() {
            "text" => return Err(format!("{text}\n")),
            "verbose_json" => {}
            _ => {
                let seconds = self.seconds.ceil() as u64;
                return Ok(json!({ "text": text, "usage": { "type": "duration", "seconds": seconds } }));
            }
        }
        let end = |index: usize| ((index + 1) as f64 * SEGMENT).min(self.seconds);
        let segment = |(index, text): (usize, &String)| {
            json!({
                "id": index, "seek": 0, "start": index as f64 * SEGMENT, "end": end(index), "text": text,
                "tokens": [50_364], "temperature": 0.0, "avg_logprob": -0.25, "compression_ratio": 1.5,
                "no_speech_prob": 0.01,
            })
        };
        let segments: Vec<Value> = spoken.iter().enumerate().map(segment).collect();
        let mut answer = json!({
            "task": "transcribe", "language": self.language.as_deref().unwrap_or("en"), "duration": self.seconds,
            "text": text, "segments": segments,
        });
        if self.words {
            let step = self.seconds / all.len().max(1) as f64;
            let word = |(index, word): (usize, &String)| {
                let start = index as f64 * step;
                json!({ "word": word.trim(), "start": start, "end": start + step })
            };
            let words: Vec<Value> = all.iter().enumerate().map(word).collect();
            if let Some(object) = answer.as_object_mut() {
                object.insert("words".to_owned(), words.into());
            }
        }
        Ok(answer)
    }

    /// Returns the number of simulated tokens of the answer, which determines its delay.
    pub(super) fn tokens(&self) -> u32 {
        ((self.seconds / SEGMENT).ceil() as u32).saturating_mul(2).min(200)
    }
}
