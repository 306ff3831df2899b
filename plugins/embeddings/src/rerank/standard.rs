//! Rerank by a request `{model, query, documents}`, the API that vLLM, Jina, Cohere, Infinity, SGLang and llama.cpp
//! share with one or two differences. Each variant is a constant of this module.
//!
//! No request asks for `top_n` or for documents: sorting needs all scores, and the documents are in the client's
//! request.

use super::{document_batches, read, task};
use crate::json_text::{json_string, write_json_array};
use bytes::Bytes;
use penstock_core::task_parameters::MAX_TOKENS_PER_DOC_PARAMETER;
use penstock_core::{
    AdjustableMember, ApiError, AttemptTarget, BufferedResponse, InferenceRequest, ModelKind,
    ProviderAdapter, UpstreamAnswer, UpstreamError, UpstreamErrorKind, UpstreamRequest,
};

/// Adapter for one variant of the common rerank API.
#[derive(Clone, Copy, Debug)]
pub struct StandardRerank {
    name: &'static str,
    /// Additional members after model, query and documents, with a comma before them.
    extra: &'static str,
    /// Parameters that every provider of the API accepts.
    parameters: &'static [&'static str],
}

/// Request member that makes a provider leave the documents out of its answer.
const WITHOUT_DOCUMENTS: &str = r#","return_documents":false"#;

const fn variant(name: &'static str, extra: &'static str) -> StandardRerank {
    StandardRerank { name, extra, parameters: &[] }
}

/// Variant of vLLM, SGLang and llama.cpp: no additional members; the form of their answers varies.
pub const VLLM: StandardRerank = variant("vllm", "");
/// Variant of Jina's API.
pub const JINA: StandardRerank = variant("jina", WITHOUT_DOCUMENTS);
/// Variant of version 1 of Cohere's API.
pub const COHERE_V1: StandardRerank = variant("cohere_v1", WITHOUT_DOCUMENTS);
/// Variant of version 2 of Cohere's API, which never returns documents and refuses the member `return_documents`.
pub const COHERE_V2: StandardRerank =
    StandardRerank { parameters: &[MAX_TOKENS_PER_DOC_PARAMETER], ..variant("cohere_v2", "") };
/// Variant of Infinity's API.
pub const INFINITY: StandardRerank = variant("infinity", WITHOUT_DOCUMENTS);

impl ProviderAdapter for StandardRerank {
    fn kind(&self) -> ModelKind {
        ModelKind::Rerank
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    fn build_requests(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        let rerank = task(ask).ok_or_else(|| ApiError::invalid("documents", "documents: expected texts."))?;
        let call = |documents: &[Bytes]| {
            let head = [br#"{"model":"#, json_string(target.model).as_slice(), br#","query":"#].concat();
            let mut body = vec![Bytes::from(head), rerank.query.clone()];
            body.push(Bytes::from_static(br#","documents":"#));
            write_json_array(documents, &mut body);
            let extra = if target.allows_member(AdjustableMember::ReturnDocuments) { self.extra } else { "" };
            body.push(Bytes::from_static(extra.as_bytes()));
            ask.write_task_parameters(target, self.parameters, &mut body);
            body.push(Bytes::from_static(b"}"));
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
        let asked = document_batches(rerank, target).zip(answers);
        let scores = asked.map(|(documents, answer)| read(&answer.body, documents.len()));
        let transform = target.capabilities.score_transform;
        super::write_response(ask, target, transform, scores.collect::<Result<_, _>>()?)
    }
}
