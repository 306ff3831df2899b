//! Request `POST /embed` of text-embeddings-inference: bare arrays of numbers, and the tokens in a header. (Its
//! `/v1/embeddings` has the OpenAI shape.)

use super::vectors::VectorReader;
use super::{input_batches, requested_form, task};
use crate::answer_usage::AnswerUsage;
use crate::cursor::AnswerJsonCursor;
use crate::json_text::write_json_array;
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, EmbeddingInputs, InferenceRequest, ModelKind, ProviderAdapter,
    UpstreamAnswer, UpstreamError, UpstreamErrorKind, UpstreamRequest,
};

/// Adapter for embeddings with text-embeddings-inference (TEI).
#[derive(Clone, Copy, Debug)]
pub struct TeiEmbeddings;

impl ProviderAdapter for TeiEmbeddings {
    fn kind(&self) -> ModelKind {
        ModelKind::Embedding
    }

    fn name(&self) -> &'static str {
        "tei"
    }

    fn path(&self) -> &'static str {
        "/embed"
    }

    fn upstream_response_headers(&self) -> &'static [&'static str] {
        &["x-compute-tokens"]
    }

    fn build_requests(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        let texts = task(ask).filter(|embed| matches!(embed.inputs, EmbeddingInputs::Texts(_)));
        let embed = texts
            .ok_or_else(|| ApiError::unsupported("input", "input: this model takes texts, not token ids."))?;
        let call = |inputs: &[Bytes]| {
            let mut body = vec![Bytes::from_static(br#"{"inputs":"#)];
            write_json_array(inputs, &mut body);
            if let Some(dimensions) = embed.dimensions {
                body.push(Bytes::from(format!(r#","dimensions":{dimensions}"#)));
            }
            ask.write_task_parameters(target, &[], &mut body);
            body.push(Bytes::from_static(b"}"));
            UpstreamRequest::from_json(body)
        };
        Ok(input_batches(embed, target).map(call).collect())
    }

    fn translate(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        answers: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError> {
        let malformed = || UpstreamError::new(UpstreamErrorKind::Malformed);
        let embed = task(ask).ok_or_else(malformed)?;
        let read = |inputs: &[Bytes], answer: UpstreamAnswer| {
            let mut reader = VectorReader::new(requested_form(embed), inputs.len());
            let mut cursor = AnswerJsonCursor::new(&answer.body);
            cursor.read_array(|cursor| reader.read_bare_vector(cursor)).filter(|()| cursor.is_at_end())?;
            let usage = AnswerUsage { tokens: answer.header_number(0), ..AnswerUsage::default() };
            Some((reader.finish(answer.body.clone(), 0..0)?, usage))
        };
        let asked = input_batches(embed, target).zip(answers);
        let parts = asked.map(|(inputs, answer)| read(inputs, answer).ok_or_else(malformed));
        super::write_response(ask, target, parts.collect::<Result<_, _>>()?)
    }
}
