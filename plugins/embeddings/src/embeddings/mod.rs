//! Embeddings: the code that the adapters of all provider APIs share.
//!
//! Vectors that already have the form that the client requests are never copied: the answer is written around slices of
//! the provider's bytes.

pub(crate) mod openai;
pub(crate) mod tei;
mod vectors;

use crate::answer_usage::AnswerUsage;
use crate::json_text::json_string;
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, EmbeddingTask, FinishReason, InferenceRequest, InferenceTask,
    OfferObservation, UpstreamError, UpstreamErrorKind, WorkDone,
};
use vectors::{AnswerVectors, VectorEncoding};

/// Returns the embeddings task of a request; `None` for a request of another kind.
fn task(ask: &InferenceRequest) -> Option<&EmbeddingTask> {
    match &ask.task {
        InferenceTask::Embed(embed) => Some(embed),
        _ => None,
    }
}

/// Returns the error for `dimensions` in a request for a model or an offer whose vectors have one length.
#[must_use]
pub fn fixed_length_error() -> ApiError {
    let sentence = "This model's vectors have one length; leave `dimensions` out.";
    ApiError::unsupported("dimensions", sentence)
}

/// Splits the inputs into batches that the provider accepts. No engine reads texts and token ids in one list, so a call
/// has only one kind.
fn input_batches<'a>(
    embed: &'a EmbeddingTask,
    target: &AttemptTarget<'_>,
) -> impl Iterator<Item = &'a [Bytes]> {
    let all = embed.inputs.values();
    let most = target.capabilities.max_inputs.unwrap_or(all.len()).max(1);
    let runs = all.chunk_by(|one, next| is_ids(one) == is_ids(next));
    runs.flat_map(move |run| run.chunks(most))
}

/// Returns true if an input is an array of token ids.
fn is_ids(input: &Bytes) -> bool {
    input.first() == Some(&b'[')
}

/// Joins the parts of an answer and writes it for the client.
///
/// # Errors
/// Returns `Malformed` unless there is one vector for each input, all of one length, and [`fixed_length_error`] if the
/// provider ignored the requested length.
fn write_response(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    parts: Vec<(AnswerVectors, AnswerUsage)>,
) -> Result<BufferedResponse, UpstreamError> {
    let malformed = || UpstreamError::new(UpstreamErrorKind::Malformed);
    let embed = task(ask).ok_or_else(malformed)?;
    let (vectors, usages): (Vec<AnswerVectors>, Vec<AnswerUsage>) = parts.into_iter().unzip();
    let count: usize = vectors.iter().map(AnswerVectors::len).sum();
    let lengths = vectors.iter().map(AnswerVectors::dimensions);
    let length = lengths.reduce(|one, other| one.filter(|length| Some(*length) == other)).flatten();
    let asked = embed.dimensions.and_then(|length| usize::try_from(length).ok());
    if count != embed.inputs.len() || length.is_none() {
        return Err(malformed());
    }
    let total = AnswerUsage::sum(usages);
    let usage = total.to_token_usage(ask, target);
    if asked.is_some() && asked != length {
        // A client must not be able to open the circuit breaker of an offer with a length that its model lacks.
        return Err(UpstreamError {
            may_be_provider: true,
            discarded_usage: Some(Box::new(usage)),
            ..UpstreamError::caller_error(fixed_length_error())
        });
    }
    let mut body = vec![Bytes::from(
        [br#"{"object":"list","model":"#, json_string(target.answer_model).as_slice(), br#","data":"#]
            .concat(),
    )];
    vectors::write_vectors(vectors, &mut body);
    let tokens = usage.input;
    body.push(Bytes::from(format!(r#","usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}"#)));
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

/// Returns the vector form that the client requests.
fn requested_form(embed: &EmbeddingTask) -> VectorEncoding {
    if embed.as_base64 { VectorEncoding::Base64 } else { VectorEncoding::Floats }
}
