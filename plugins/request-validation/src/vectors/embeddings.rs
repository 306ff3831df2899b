//! Validation of embedding requests.

use super::{require_bounded_array, text_range};
use crate::body::{RootObject, validate_body};
use crate::field_path::{FieldPath, PathStyle};
use crate::filters::read_offer_filters;
use crate::limits::RequestLimits;
use crate::{members, read, scalars};
use bytes::Bytes;
use penstock_core::{ApiError, EmbeddingInputs, EmbeddingTask, InferenceRequest, InferenceTask, ModelKind};
use penstock_json_scan::tape::{JsonTape, JsonValue, ValueKind as Type};
use std::ops::Range;

/// Maximum vector length that may be requested.
const MAX_DIMENSIONS: i64 = 65_536;
/// Assumed number of bytes of text for each token id, because the text of an id is not known here.
const BYTES_PER_ID: usize = 4;

/// Inputs of an embedding request, as byte ranges of its body.
enum FoundInputs {
    Texts(Vec<Range<usize>>),
    /// Arrays of token ids, with the total number of token ids.
    TokenIds {
        arrays: Vec<Range<usize>>,
        count: usize,
    },
    /// Texts and arrays of token ids in one list, with the total bytes of the texts and the total number of token ids.
    Mixed {
        values: Vec<Range<usize>>,
        bytes: usize,
        count: usize,
    },
}

/// Validates a request of `/v1/embeddings`.
///
/// In addition to strings, `input` may contain token ids: one array of ids, or a list of such arrays, also mixed with
/// strings.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the path of the invalid field, if any, in `param`.
pub fn validate_embeddings_request(
    body: Bytes,
    limits: &RequestLimits,
) -> Result<InferenceRequest, ApiError> {
    let (text, nodes) = validate_body(&body, limits, PathStyle::Brackets)?;
    let tape = JsonTape { text, nodes: &nodes };
    let top = RootObject::new(&tape, limits, PathStyle::Brackets)?;
    let model = scalars::read_model(&top)?;
    let filters = read_offer_filters(&top, ModelKind::Embedding)?;
    members::refuse_listed_members(&top, members::REFUSED_EMBEDDING_MEMBERS)?;
    let path = top.member_path("input");
    let input = read::require_member(top.get("input"), &path, EXPECTED)?;
    let found = read_inputs(input, &path, limits)?;
    let base64 =
        scalars::read_optional_keyword(&top, "encoding_format", &["float", "base64"])? == Some("base64");
    let dimensions = top.get("dimensions").map(|value| {
        let dimensions =
            read::read_bounded_integer(value, &top.member_path("dimensions"), 1, MAX_DIMENSIONS)?;
        Ok(u32::try_from(dimensions).unwrap_or(u32::MAX))
    });
    let dimensions = dimensions.transpose()?;
    let fields = top.to_body_members();
    let slices = |ranges: Vec<Range<usize>>| ranges.into_iter().map(|range| body.slice(range)).collect();
    let (inputs, prompt_bytes) = match found {
        FoundInputs::Texts(texts) => {
            let bytes = texts.iter().map(|text| text.len().saturating_sub(2)).sum();
            (EmbeddingInputs::Texts(slices(texts)), bytes)
        }
        FoundInputs::TokenIds { arrays, count } => {
            (EmbeddingInputs::TokenIds(slices(arrays)), count * BYTES_PER_ID)
        }
        FoundInputs::Mixed { values, bytes, count } => {
            (EmbeddingInputs::Mixed(slices(values)), bytes + count * BYTES_PER_ID)
        }
    };
    let task =
        InferenceTask::Embed(EmbeddingTask { inputs, is_verbatim: true, as_base64: base64, dimensions });
    Ok(InferenceRequest {
        prompt_bytes,
        filters,
        ..InferenceRequest::from_non_chat_task(ModelKind::Embedding, body.clone(), fields, model, task)
    })
}

const EXPECTED: &str = "a string, an array of strings, or token ids";

fn read_inputs(
    input: JsonValue<'_>,
    path: &FieldPath<'_>,
    limits: &RequestLimits,
) -> Result<FoundInputs, ApiError> {
    if input.is_string() {
        return Ok(FoundInputs::Texts(vec![text_range(input, path)?]));
    }
    if !input.is_array() {
        return Err(path.unexpected_type_error(EXPECTED, input.kind()));
    }
    match input.items().next().map(|first| first.kind()) {
        None => Err(path.invalid_error("expected at least one text, got an empty array")),
        Some(Type::Number) => {
            let count = count_token_ids(input, path)?;
            Ok(FoundInputs::TokenIds { arrays: vec![input.range()], count })
        }
        Some(Type::String | Type::EscapedString | Type::Array) => read_mixed_list(input, path, limits),
        Some(other) => Err(path.item(0).unexpected_type_error("a string or token ids", other)),
    }
}

/// Reads a list of texts and arrays of token ids.
fn read_mixed_list(
    input: JsonValue<'_>,
    list_path: &FieldPath<'_>,
    limits: &RequestLimits,
) -> Result<FoundInputs, ApiError> {
    let mut values = Vec::new();
    let (mut texts, mut bytes, mut count) = (0, 0, 0);
    for (index, item) in
        require_bounded_array(input, list_path, limits.max_inputs, "text")?.items().enumerate()
    {
        let path = list_path.item(index);
        if item.is_array() {
            count += count_token_ids(item, &path)?;
        } else if item.is_string() {
            texts += 1;
            bytes += text_range(item, &path)?.len().saturating_sub(2);
        } else {
            return Err(path.unexpected_type_error("a string or an array of token ids", item.kind()));
        }
        values.push(item.range());
    }
    Ok(if texts == values.len() {
        FoundInputs::Texts(values)
    } else if texts == 0 {
        FoundInputs::TokenIds { arrays: values, count }
    } else {
        FoundInputs::Mixed { values, bytes, count }
    })
}

/// Validates an array of at least one token id; returns the number of ids.
pub(crate) fn count_token_ids(array: JsonValue<'_>, path: &FieldPath<'_>) -> Result<usize, ApiError> {
    let mut count = 0;
    for (index, id) in array.items().enumerate() {
        read::read_bounded_integer(id, &path.item(index), 0, i64::from(u32::MAX))?;
        count += 1;
    }
    if count == 0 {
        Err(path.invalid_error("expected at least one token id, got an empty array"))
    } else {
        Ok(count)
    }
}
