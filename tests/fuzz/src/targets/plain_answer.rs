//! Answers of providers of embeddings, rerank, images and transcriptions: sound, and within what was asked for.

use crate::{bit, choice, json, target};
use bytes::Bytes;
use penstock_admission::{Limits, embeddings, rerank};
use penstock_contract::{
    Abilities, Answer, Ask, Dialect, Draw, Fields, Heard, Kind, Score, Script, Task, Transcribe,
};

fn ask(kind: Kind, choice: u16) -> Ask {
    let limits = Limits::default();
    let plain = |task| Ask::plain(kind, Bytes::new(), Fields::default(), "m".into(), task);
    match kind {
        Kind::Embedding => {
            let format = if bit(choice, 0) { "base64" } else { "float" };
            let dimensions = if bit(choice, 1) { r#","dimensions":2"# } else { "" };
            let body =
                format!(r#"{{"model":"m","input":["a","b"],"encoding_format":"{format}"{dimensions}}}"#);
            embeddings(Bytes::from(body), &limits).expect("a sound request")
        }
        Kind::Rerank => {
            let top = if bit(choice, 0) { r#","top_n":1"# } else { "" };
            let body = format!(
                r#"{{"model":"m","query":"q","documents":["a","b"],"return_documents":{}{top}}}"#,
                bit(choice, 1)
            );
            rerank(Bytes::from(body), &limits).expect("a sound request")
        }
        Kind::Transcription => plain(Task::Transcribe(Transcribe {
            language: None,
            prompt: None,
            temperature: None,
            script: [Script::Json, Script::Verbose, Script::Text, Script::Srt, Script::Vtt]
                [usize::from(choice % 5)],
            words: bit(choice, 4),
            sound: Heard { extension: "mp3", content_type: "audio/mpeg", seconds: Some(3.into()), bytes: 6 },
        })),
        _ => plain(Task::Draw(Draw {
            prompt: Bytes::from_static(b"\"p\""),
            n: 2,
            size: bit(choice, 0).then(|| "64x32".parse().expect("a size")),
            base64: bit(choice, 1),
        })),
    }
}

pub fn check(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else { return };
    let body = Bytes::copy_from_slice(body);
    let score = if bit(choice, 2) { Score::Sigmoid } else { Score::AsIs };
    let abilities = Abilities { score, max_inputs: bit(choice, 3).then_some(1), ..Abilities::default() };
    let shapes = penstock_vectors::SHAPES
        .iter()
        .chain(penstock_media::picture::SHAPES)
        .chain(penstock_media::speech::SHAPES);
    for shape in shapes {
        let ask = ask(shape.kind(), choice);
        let target = target(Dialect::Chat, &abilities);
        let Ok(calls) = shape.calls(&ask, &target) else { continue };
        let answers =
            || calls.iter().map(|_| Answer { body: body.clone(), headers: vec![None; 8] }).collect();
        let Ok(whole) = shape.whole(&ask, &target, answers()) else { continue };
        assert_eq!(shape.whole(&ask, &target, answers()).ok().as_ref(), Some(&whole), "the same each time");
        match &ask.task {
            Task::Embed(_) => assert_eq!(json(&whole.body)["data"].as_array().map(Vec::len), Some(2)),
            Task::Rerank(asked) => {
                let value = json(&whole.body);
                let results = value["results"].as_array().expect("a list of results");
                assert!(results.len() <= asked.top_n.unwrap_or(2));
                let indices: Vec<u64> =
                    results.iter().filter_map(|result| result["index"].as_u64()).collect();
                assert!(indices.iter().all(|index| *index < 2) && indices.len() == results.len());
                assert!(indices.len() < 2 || indices[0] != indices[1], "a document twice");
            }
            Task::Draw(_) => assert!(!whole.pictures.is_empty() && whole.pictures.len() <= 2),
            Task::Transcribe(asked) if matches!(asked.script, Script::Json | Script::Verbose) => {
                assert!(json(&whole.body)["text"].is_string());
            }
            _ => assert!(std::str::from_utf8(&whole.body.concat()).is_ok()),
        }
    }
}
