//! Validation of rerank requests.

use super::{require_bounded_array, text_range};
use crate::body::{RootObject, validate_body};
use crate::field_path::{FieldPath, PathStyle};
use crate::filters::read_offer_filters;
use crate::limits::RequestLimits;
use crate::{members, read, scalars};
use bytes::Bytes;
use penstock_core::task_parameters::MAX_TOKENS_PER_DOC_PARAMETER;
use penstock_core::{ApiError, InferenceRequest, InferenceTask, ModelKind, RerankTask};
use penstock_json_scan::tape::{JsonTape, JsonValue};
use std::ops::Range;

/// Validates a request of `/v1/rerank`.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the path of the invalid field, if any, in `param`.
pub fn validate_rerank_request(body: Bytes, limits: &RequestLimits) -> Result<InferenceRequest, ApiError> {
    let (json, nodes) = validate_body(&body, limits, PathStyle::Brackets)?;
    let tape = JsonTape { text: json, nodes: &nodes };
    let top = RootObject::new(&tape, limits, PathStyle::Brackets)?;
    let model = scalars::read_model(&top)?;
    let filters = read_offer_filters(&top, ModelKind::Rerank)?;
    members::refuse_listed_members(&top, members::REFUSED_RERANK_MEMBERS)?;
    let path = top.member_path("query");
    let query = text_range(read::require_member(top.get("query"), &path, "a string")?, &path)?;
    let path = top.member_path("documents");
    let expected = "an array of strings, or of objects with a `text`";
    let documents = read::require_member(top.get("documents"), &path, expected)?;
    if !documents.is_array() {
        return Err(path.unexpected_type_error(expected, documents.kind()));
    }
    let documents =
        document_texts(require_bounded_array(documents, &path, limits.max_documents, "document")?, &path)?;
    let top_n = read_result_limit(&top, "top_n")?;
    // Other APIs call `top_n` `top_k` or `limit`, and `return_documents` `return_text`.
    let top_k = read_result_limit(&top, "top_k")?;
    let limit = read_result_limit(&top, "limit")?;
    check_rank_fields(&top)?;
    read_result_limit(&top, MAX_TOKENS_PER_DOC_PARAMETER)?;
    let return_text = scalars::read_bool_or_false(&top, "return_text")?;
    let return_documents = scalars::read_bool_or_false(&top, "return_documents")? || return_text;
    let fields = top.to_body_members();
    // A cross-encoder reads the query again with each document, so the query counts once per document.
    let again = query.len().saturating_mul(documents.len());
    let prompt_bytes = documents.iter().map(Range::len).sum::<usize>().saturating_add(again);
    let task = InferenceTask::Rerank(RerankTask {
        query: body.slice(query),
        documents: documents.into_iter().map(|range| body.slice(range)).collect(),
        top_n: top_n.or(top_k).or(limit),
        return_documents,
    });
    Ok(InferenceRequest {
        prompt_bytes,
        filters,
        ..InferenceRequest::from_non_chat_task(ModelKind::Rerank, body.clone(), fields, model, task)
    })
}

/// Reads a number of at least one, such as the maximum number of results; returns `None` if it is absent.
fn read_result_limit(top: &RootObject<'_>, name: &str) -> Result<Option<usize>, ApiError> {
    let most =
        top.get(name).map(|value| read::read_bounded_integer(value, &top.member_path(name), 1, i64::MAX));
    Ok(most.transpose()?.map(|most| usize::try_from(most).unwrap_or(usize::MAX)))
}

/// Returns the byte range of each document's text. A document is a string or an object with a `text`; a list may mix
/// both.
fn document_texts(
    documents: JsonValue<'_>,
    list_path: &FieldPath<'_>,
) -> Result<Vec<Range<usize>>, ApiError> {
    let mut texts = Vec::new();
    for (index, document) in documents.items().enumerate() {
        let path = list_path.item(index);
        if document.is_string() {
            texts.push(text_range(document, &path)?);
            continue;
        }
        if !document.is_object() {
            return Err(path.unexpected_type_error("a string, or an object with a `text`", document.kind()));
        }
        let [own] = read::read_named_members(document, &path, ["text"])?;
        let path = path.member("text");
        texts.push(text_range(read::require_member(own, &path, "a string")?, &path)?);
    }
    Ok(texts)
}

/// Refuses `rank_fields` other than `text`, because other fields are not read.
fn check_rank_fields(top: &RootObject<'_>) -> Result<(), ApiError> {
    let path = top.member_path("rank_fields");
    let Some(fields) = top.get("rank_fields") else { return Ok(()) };
    for (index, field) in read::require_array(fields, &path)?.items().enumerate() {
        let path = path.item(index);
        if !read::require_string(field, &path)?.equals_text("text") {
            return Err(path.unsupported_error("documents are ranked by `text` only"));
        }
    }
    Ok(())
}
