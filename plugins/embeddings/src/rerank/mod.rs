//! Rerank: the code that the adapters of all provider APIs share. The gateway itself scales and sorts the scores and
//! applies `top_n`, whatever the provider does. Documents are taken from the request, so providers do not return
//! them.

pub(crate) mod standard;
pub(crate) mod tei;

use crate::answer_usage::AnswerUsage;
use crate::cursor::AnswerJsonCursor;
use crate::json_text::{self, json_string};
use bytes::Bytes;
use penstock_core::{
    AttemptTarget, BufferedResponse, FinishReason, InferenceRequest, InferenceTask, OfferObservation,
    RerankScoreTransform, RerankTask, UpstreamError, UpstreamErrorKind, WorkDone,
};

/// Distance by which rounding may put a probability outside the range 0 to 1.
const MAX_ROUNDING: f64 = 1e-3;

/// Returns the rerank task of a request; `None` for a request of another kind.
fn task(ask: &InferenceRequest) -> Option<&RerankTask> {
    match &ask.task {
        InferenceTask::Rerank(rerank) => Some(rerank),
        _ => None,
    }
}

/// Splits the documents into batches that the provider accepts.
fn document_batches<'a>(rerank: &'a RerankTask, target: &AttemptTarget<'_>) -> std::slice::Chunks<'a, Bytes> {
    let all = &rerank.documents;
    all.chunks(target.capabilities.max_inputs.unwrap_or(all.len()).max(1))
}

/// Scores by document index, with the reported usage of one answer.
struct RawScores {
    raw: Vec<f64>,
    usage: AnswerUsage,
}

/// Reads an answer: a list of results, bare or in an object, each with an index and a score.
///
/// # Errors
/// Returns `InBandError` for an error object without results; `Malformed` unless there is exactly one number for each
/// of the `count` documents.
fn read(body: &[u8], count: usize) -> Result<RawScores, UpstreamError> {
    let mut raw: Vec<Option<f64>> = vec![None; count];
    let mut usage = AnswerUsage::default();
    let (mut found, mut error) = (false, false);
    let mut cursor = AnswerJsonCursor::new(body);
    let mut results = |cursor: &mut AnswerJsonCursor<'_>| {
        found = true;
        cursor.read_array(|cursor| {
            let (index, score) = result(cursor)?;
            let slot = raw.get_mut(index)?;
            slot.replace(score).is_none().then_some(())
        })
    };
    let read = if cursor.peek() == Some(b'[') {
        results(&mut cursor)
    } else {
        cursor.read_object(|key, cursor| {
            match key {
                "results" | "data" if cursor.peek() == Some(b'[') => results(cursor)?,
                "error" => error |= cursor.read_value_bytes()? != b"null",
                _ => usage.read_member(key, cursor.read_value_bytes()?),
            }
            Some(())
        })
    };
    if error && !found {
        return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
    }
    let raw =
        read.filter(|()| cursor.is_at_end()).and_then(|()| raw.into_iter().collect::<Option<Vec<f64>>>());
    raw.map(|raw| RawScores { raw, usage }).ok_or_else(|| UpstreamError::new(UpstreamErrorKind::Malformed))
}

/// Reads the index and the score of one result: `{"index":…,"relevance_score":…}`, or with `score`; `None` if one of
/// them is missing or invalid.
fn result(cursor: &mut AnswerJsonCursor<'_>) -> Option<(usize, f64)> {
    let (mut index, mut score) = (None, None);
    cursor.read_object(|key, cursor| {
        let value = cursor.read_value_bytes()?;
        match key {
            // Parsers disagree on which of two indices or scores counts.
            "index" if index.is_some() => return None,
            "index" => index = Some(json_text::parse_index(value)?),
            "relevance_score" | "score" if value != b"null" => {
                let other = score.replace(std::str::from_utf8(value).ok()?.parse::<f64>().ok()?);
                return other.is_none_or(|other| Some(other) == score).then_some(());
            }
            _ => {}
        }
        Some(())
    })?;
    index.zip(score.filter(|score| score.is_finite()))
}

/// Scales a score to the range 0 to 1. Returns `None` if the score is outside that range by more than [`MAX_ROUNDING`],
/// which means that the configured transformation is wrong for this provider.
fn scale_score(raw: f64, score: RerankScoreTransform) -> Option<f64> {
    match score {
        RerankScoreTransform::Identity => {
            (-MAX_ROUNDING..=1.0 + MAX_ROUNDING).contains(&raw).then(|| raw.clamp(0.0, 1.0))
        }
        RerankScoreTransform::Sigmoid => Some(1.0 / (1.0 + (-raw).exp())),
    }
}

/// Joins the parts of an answer, scales the scores by `transform`, and writes the answer for the client.
///
/// # Errors
/// Returns `Malformed` unless each document has a score that [`scale_score`] accepts.
fn write_response(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    transform: RerankScoreTransform,
    parts: Vec<RawScores>,
) -> Result<BufferedResponse, UpstreamError> {
    let malformed = || UpstreamError::new(UpstreamErrorKind::Malformed);
    let rerank = task(ask).ok_or_else(malformed)?;
    let (raw, usages): (Vec<Vec<f64>>, Vec<AnswerUsage>) =
        parts.into_iter().map(|part| (part.raw, part.usage)).unzip();
    // The results are sorted by the raw scores, because two logits may have the same sigmoid.
    let mut order: Vec<(usize, f64)> = raw.into_iter().flatten().enumerate().collect();
    if order.len() != rerank.documents.len() {
        return Err(malformed());
    }
    order.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let mut body = vec![Bytes::from(
        [br#"{"object":"list","model":"#, json_string(target.answer_model).as_slice(), br#","results":["#]
            .concat(),
    )];
    let mut scores = zmij::Buffer::new();
    let shown = rerank.top_n.unwrap_or(order.len());
    for (position, (index, raw)) in order.into_iter().enumerate() {
        let score = scale_score(raw, transform).ok_or_else(malformed)?;
        if position >= shown {
            continue;
        }
        let comma = if position > 0 { "," } else { "" };
        let score = scores.format_finite(score);
        let result = format!(r#"{comma}{{"index":{index},"relevance_score":{score}"#);
        body.push(Bytes::from(result));
        if let Some(document) = rerank.documents.get(index).filter(|_| rerank.return_documents) {
            body.push(Bytes::from_static(br#","document":{"text":"#));
            body.push(document.clone());
            body.push(Bytes::from_static(b"}"));
        }
        body.push(Bytes::from_static(b"}"));
    }
    let total = AnswerUsage::sum(usages);
    let usage = total.to_token_usage(ask, target);
    body.push(Bytes::from(format!(r#"],"usage":{{"total_tokens":{}}}}}"#, usage.input)));
    Ok(BufferedResponse {
        body,
        work: Some(WorkDone::Tokens(usage)),
        provider_work: None,
        measured_energy: total.measured,
        finish_reason: FinishReason::Stop,
        output_bytes: 0,
        images: Vec::new(),
        observation: OfferObservation::default(),
    })
}
