//! Embeddings by `POST /embeddings`, the API of most engines and hosts: vLLM, SGLang, llama.cpp, Infinity, TEI and
//! hosted services.

use super::vectors::{AnswerVectors, VectorReader};
use super::{input_batches, requested_form, task};
use crate::answer_usage::AnswerUsage;
use crate::cursor::AnswerJsonCursor;
use crate::json_text::{json_string, write_json_array};
use bytes::Bytes;
use penstock_core::{
    AdjustableMember, ApiError, AttemptTarget, BufferedResponse, EmbeddingTask, InferenceRequest, ModelKind,
    ProviderAdapter, UpstreamAnswer, UpstreamError, UpstreamErrorKind, UpstreamRequest,
};

/// Adapter for embeddings with the OpenAI API.
#[derive(Clone, Copy, Debug)]
pub struct OpenAiEmbeddings;

impl ProviderAdapter for OpenAiEmbeddings {
    fn kind(&self) -> ModelKind {
        ModelKind::Embedding
    }

    fn name(&self) -> &'static str {
        "openai"
    }

    fn path(&self) -> &'static str {
        "/embeddings"
    }

    fn build_requests(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        let embed = task(ask).ok_or_else(|| ApiError::invalid("input", "input: expected texts."))?;
        let all = embed.inputs.len();
        let call = |inputs: &[Bytes]| {
            let mut body =
                vec![Bytes::from([br#"{"model":"#, json_string(target.model).as_slice()].concat())];
            body.push(Bytes::from_static(br#","input":"#));
            match ask.members.get("input") {
                // The input is copied as bytes from the client's request, and not serialized again.
                Some(field) if embed.is_verbatim && inputs.len() == all => {
                    body.push(ask.body.slice(field.value_range.clone()));
                }
                _ => write_json_array(inputs, &mut body),
            }
            ask.write_task_parameters(target, &[], &mut body);
            body.push(Bytes::from(rest(embed, target)));
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
        let embed = task(ask).ok_or_else(|| UpstreamError::new(UpstreamErrorKind::Malformed))?;
        let asked = input_batches(embed, target).zip(answers);
        let parts = asked.map(|(inputs, answer)| read(embed, inputs.len(), answer.body));
        super::write_response(ask, target, parts.collect::<Result<_, _>>()?)
    }
}

/// Returns the members of the request body after `input`, with the closing brace.
fn rest(embed: &EmbeddingTask, target: &AttemptTarget<'_>) -> String {
    let mut rest = String::new();
    if target.capabilities.accepts_parameter("encoding_format")
        && target.allows_member(AdjustableMember::EncodingFormat)
    {
        let form = if embed.as_base64 { "base64" } else { "float" };
        rest.push_str(&format!(r#","encoding_format":"{form}""#));
    }
    if let Some(dimensions) = embed.dimensions {
        rest.push_str(&format!(r#","dimensions":{dimensions}"#));
    }
    rest.push('}');
    rest
}

/// Reads the provider's response to one batch of `count` inputs.
fn read(
    embed: &EmbeddingTask,
    count: usize,
    body: Bytes,
) -> Result<(AnswerVectors, AnswerUsage), UpstreamError> {
    let mut reader = VectorReader::new(requested_form(embed), count);
    let mut usage = AnswerUsage::default();
    let (mut array, mut error) = (None, false);
    let mut cursor = AnswerJsonCursor::new(&body);
    let read = cursor.read_object(|key, cursor| {
        match key {
            "data" if array.is_none() => {
                let start = cursor.position();
                cursor.read_array(|cursor| reader.read_item(cursor))?;
                array = Some(start..cursor.position());
            }
            "error" => error |= cursor.read_value_bytes()? != b"null",
            _ => usage.read_member(key, cursor.read_value_bytes()?),
        }
        Some(())
    });
    if error {
        return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
    }
    let vectors =
        read.filter(|()| cursor.is_at_end()).and(array).and_then(|array| reader.finish(body.clone(), array));
    vectors.map(|vectors| (vectors, usage)).ok_or_else(|| UpstreamError::new(UpstreamErrorKind::Malformed))
}
