//! Request `POST /rerank` of text-embeddings-inference: `texts` instead of documents, a bare list of scores, and the
//! tokens in a header.

use super::{document_batches, read, task};
use crate::json_text::write_json_array;
use bytes::Bytes;
use penstock_core::{
    AdjustableMember, ApiError, AttemptTarget, BufferedResponse, InferenceRequest, ModelKind,
    ProviderAdapter, RerankScoreTransform, UpstreamAnswer, UpstreamError, UpstreamErrorKind, UpstreamRequest,
};

/// Adapter for reranking with text-embeddings-inference (TEI).
#[derive(Clone, Copy, Debug)]
pub struct TeiRerank;

impl ProviderAdapter for TeiRerank {
    fn kind(&self) -> ModelKind {
        ModelKind::Rerank
    }

    fn name(&self) -> &'static str {
        "tei"
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    fn upstream_response_headers(&self) -> &'static [&'static str] {
        &["x-compute-tokens"]
    }

    fn build_requests(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        let rerank = task(ask).ok_or_else(|| ApiError::invalid("documents", "documents: expected texts."))?;
        // The engine can return logits or probabilities. If the gateway applies the sigmoid, the request asks for
        // logits: otherwise the sigmoid would be applied twice.
        let raw = target.capabilities.score_transform == RerankScoreTransform::Sigmoid;
        let call = |documents: &[Bytes]| {
            let mut body = vec![Bytes::from_static(br#"{"query":"#), rerank.query.clone()];
            body.push(Bytes::from_static(br#","texts":"#));
            write_json_array(documents, &mut body);
            ask.write_task_parameters(target, &[], &mut body);
            let scores = if target.allows_member(AdjustableMember::RawScores) {
                format!(r#","raw_scores":{raw}}}"#)
            } else {
                "}".into()
            };
            body.push(Bytes::from(scores));
            UpstreamRequest::from_json(body)
        };
        Ok(document_batches(rerank, target).map(call).collect())
    }

    fn translate(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        answers: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError> {
        let rerank = task(ask).ok_or_else(|| UpstreamError::new(UpstreamErrorKind::Malformed))?;
        let scores = document_batches(rerank, target).zip(answers).map(|(documents, answer)| {
            let mut scores = read(&answer.body, documents.len())?;
            scores.usage.tokens = answer.header_number(0);
            Ok::<_, UpstreamError>(scores)
        });
        super::write_response(ask, target, answer_transform(target), scores.collect::<Result<_, _>>()?)
    }
}

/// Returns the transformation of the scores in an answer. The engine returns probabilities unless `raw_scores` asks
/// for logits. If the provider refused `raw_scores`, the scores are therefore not transformed.
const fn answer_transform(target: &AttemptTarget<'_>) -> RerankScoreTransform {
    if target.allows_member(AdjustableMember::RawScores) {
        target.capabilities.score_transform
    } else {
        RerankScoreTransform::Identity
    }
}
