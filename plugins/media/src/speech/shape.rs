//! Request formats of transcription providers: one form each, with the audio as the last part, read from the spool.

use super::transcript::Transcript;
use super::write;
use crate::measured::measured;
use crate::sound::MOST_SECONDS;
use bytes::Bytes;
use penstock_contract::{
    Answer, Ask, Call, Done, Extra, Fault, FaultKind, Finish, Kind, Noticed, Refusal, Script, Shape, Target,
    Task, Transcribe, Whole,
};
use rust_decimal::Decimal;
use rust_decimal::prelude::FromPrimitive;

/// Every provider shape; the first is the default.
pub const SHAPES: &[&dyn Shape] = &[
    &Form { name: "openai-transcription", path: "/audio/transcriptions", voice: Voice::Verbose },
    &Form { name: "openai-transcription-text", path: "/audio/transcriptions", voice: Voice::Text },
    &Form { name: "mistral-transcription", path: "/audio/transcriptions", voice: Voice::Mistral },
    &Form { name: "whisper-cpp", path: "/inference", voice: Voice::Verbose },
];

/// Provider that takes a form.
struct Form {
    name: &'static str,
    path: &'static str,
    voice: Voice,
}

/// Response formats that a provider supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    /// `verbose_json`: vLLM, faster-whisper, LocalAI and most hosts.
    Verbose,
    /// `json`, without times.
    Text,
    /// Segments by a separate field, and then no language; no prompt.
    Mistral,
}

impl Shape for Form {
    fn kind(&self) -> Kind {
        Kind::Transcription
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn path(&self) -> &'static str {
        self.path
    }

    fn calls(&self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Call>, Refusal> {
        let task =
            task(ask).ok_or_else(|| Refusal::unsupported("model", "model: it does not transcribe audio."))?;
        let mut parts = Parts::new(target.id);
        parts.field("model", target.model);
        let plain = !target.says(Extra::MediaFormat);
        match self.voice {
            Voice::Verbose if !plain => {
                parts.usual(task);
                parts.field("response_format", "verbose_json");
                parts.field("timestamp_granularities[]", "segment");
                if task.words {
                    parts.field("timestamp_granularities[]", "word");
                }
            }
            Voice::Verbose | Voice::Text => {
                if task.script == Script::Verbose || (plain && task.script.has_times()) {
                    return Err(cannot("response_format", "this provider returns no segments"));
                }
                parts.usual(task);
                parts.field("response_format", "json");
            }
            Voice::Mistral => mistral(task, plain, &mut parts)?,
        }
        Ok(vec![parts.finish(task)])
    }

    fn whole(&self, ask: &Ask, _: &Target<'_>, answers: Vec<Answer>) -> Result<Whole, Fault> {
        let malformed = || Fault::new(FaultKind::Malformed);
        let task = task(ask).ok_or_else(malformed)?;
        let [answer] = answers.as_slice() else { return Err(malformed()) };
        let said = Transcript::read(&answer.body)?;
        let seconds = seconds(task, &said);
        Ok(Whole {
            body: vec![write::body(&said, task, Some(seconds))],
            done: Some(Done::Audio { seconds }),
            measured: measured(&answer.body),
            finish: Finish::Stop,
            output_bytes: said.text.len(),
            pictures: Vec::new(),
            noticed: Noticed::default(),
        })
    }
}

fn task(ask: &Ask) -> Option<&Transcribe> {
    match &ask.task {
        Task::Transcribe(task) => Some(task),
        _ => None,
    }
}

fn cannot(name: &str, sentence: &str) -> Refusal {
    Refusal::unsupported(name, format!("{name}: {sentence}."))
}

/// Adds the fields of Mistral. Segments and a language exclude each other: segments take precedence if the client's
/// format needs them.
fn mistral(task: &Transcribe, plain: bool, parts: &mut Parts) -> Result<(), Refusal> {
    if task.prompt.is_some() {
        return Err(cannot("prompt", "this provider takes none"));
    }
    if task.words {
        return Err(cannot("timestamp_granularities", "this provider returns no words"));
    }
    if let Some(temperature) = &task.temperature {
        parts.field("temperature", temperature);
    }
    match (&task.language, task.script) {
        (Some(language), Script::Json | Script::Text) => parts.field("language", language),
        (_, Script::Json | Script::Text) if plain => {}
        _ => parts.field("timestamp_granularities", "segment"),
    }
    Ok(())
}

/// Returns the seconds of audio: measured in the file, and limited by its bytes if the file does not contain them. A
/// claim of the provider counts only within these limits.
fn seconds(task: &Transcribe, said: &Transcript) -> Decimal {
    let last = || said.segments.last().map(|segment| segment.end as f64 / 1000.0);
    let told = said.seconds.filter(|seconds| *seconds > 0.0).or_else(last).filter(|end| *end > 0.0);
    let credible = told.map(|seconds| seconds.min(MOST_SECONDS as f64)).and_then(Decimal::from_f64);
    task.sound.charged_seconds(credible)
}

/// Form under construction. Its boundary contains the request's own random id, so that no file can be made to contain
/// it.
struct Parts {
    boundary: String,
    text: String,
}

impl Parts {
    fn new(id: &str) -> Self {
        Self { boundary: format!("----penstock{id}"), text: String::new() }
    }

    fn open(&mut self, name: &str, more: &str) {
        let head = [
            "--",
            &self.boundary,
            "\r\nContent-Disposition: form-data; name=\"",
            name,
            "\"",
            more,
            "\r\n\r\n",
        ];
        self.text.extend(head);
    }

    fn field(&mut self, name: &str, value: &str) {
        self.open(name, "");
        self.text.extend([value, "\r\n"]);
    }

    /// Adds the fields that every engine takes.
    fn usual(&mut self, task: &Transcribe) {
        for (name, value) in
            [("language", &task.language), ("prompt", &task.prompt), ("temperature", &task.temperature)]
        {
            if let Some(value) = value {
                self.field(name, value);
            }
        }
    }

    /// Adds the audio last: engines read the fields first.
    fn finish(mut self, task: &Transcribe) -> Call {
        let sound = &task.sound;
        let more =
            ["; filename=\"audio.", sound.extension, "\"\r\nContent-Type: ", sound.content_type].concat();
        self.open("file", &more);
        let tail = format!("\r\n--{}--\r\n", self.boundary);
        Call {
            content_type: format!("multipart/form-data; boundary={}", self.boundary).into(),
            body: vec![Bytes::from(self.text), Bytes::from(tail)],
            upload: Some(1),
        }
    }
}
