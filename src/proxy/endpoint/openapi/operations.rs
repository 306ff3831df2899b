//! Operation metadata of each endpoint, besides its method and path. A new endpoint needs a row.

use penstock_core::ErrorCode;
use serde_json::{Value, json};

/// Kind of work of an endpoint, which determines its possible errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Response without a model or the store.
    Direct,
    /// Request to a model.
    Model,
    /// Read or write of files or batches.
    Store,
}

/// Operation metadata of one endpoint.
#[derive(Clone, Copy, Debug)]
pub struct OperationRow {
    /// Name of the endpoint.
    pub name: &'static str,
    /// Summary of one line.
    pub summary: &'static str,
    /// OpenAPI tag.
    pub tag: &'static str,
    /// Kind of work.
    pub work: WorkKind,
    /// Content type and schema of the request body.
    pub body: Option<(&'static str, &'static str)>,
    /// Success status, content types and their schemas.
    pub answers: &'static [(u16, &'static [(&'static str, &'static str)])],
    /// Names of the query parameters.
    pub query: &'static [&'static str],
}

const JSON: &str = "application/json";
const FORM: &str = "multipart/form-data";
const EVENTS: (&str, &str) = ("text/event-stream", "Events");
const BYTES: &[(&str, &str)] = &[("application/octet-stream", "Bytes"), ("application/jsonl", "Bytes")];

/// Returns a row without a body and without parameters.
const fn operation_row(
    name: &'static str,
    tag: &'static str,
    work: WorkKind,
    summary: &'static str,
    answers: &'static [(u16, &'static [(&'static str, &'static str)])],
) -> OperationRow {
    OperationRow { name, summary, tag, work, body: None, answers, query: &[] }
}

impl OperationRow {
    const fn with_body(mut self, kind: &'static str, schema: &'static str) -> Self {
        self.body = Some((kind, schema));
        self
    }

    const fn with_query(mut self, query: &'static [&'static str]) -> Self {
        self.query = query;
        self
    }
}

/// Rows of all endpoints.
#[rustfmt::skip]
pub const OPERATIONS: &[OperationRow] = &[
    operation_row("chat", "Chat", WorkKind::Model, "Answers a conversation", &[(200, &[(JSON, "ChatCompletion"), EVENTS])]).with_body(JSON, "ChatRequest"),
    operation_row("completions", "Chat", WorkKind::Model, "Continues a prompt without roles", &[(200, &[(JSON, "Completion"), EVENTS])]).with_body(JSON, "CompletionRequest"),
    operation_row("messages", "Messages", WorkKind::Model, "Answers a conversation, in the messages dialect", &[(200, &[(JSON, "MessagesResponse"), EVENTS])]).with_body(JSON, "MessagesRequest"),
    operation_row("count_tokens", "Messages", WorkKind::Model, "Counts the tokens of a conversation without charge", &[(200, &[(JSON, "TokenCount")])]).with_body(JSON, "CountTokensRequest"),
    operation_row("responses", "Responses", WorkKind::Model, "Answers a conversation, in the responses dialect", &[(200, &[(JSON, "Response"), EVENTS])]).with_body(JSON, "ResponsesRequest"),
    operation_row("input_tokens", "Responses", WorkKind::Model, "Counts the tokens of a conversation without charge", &[(200, &[(JSON, "InputTokenCount")])]).with_body(JSON, "InputTokensRequest"),
    operation_row("response", "Responses", WorkKind::Store, "A stored response, or the events of a background response", &[(200, &[(JSON, "Response"), EVENTS])]).with_query(&["stream", "starting_after"]),
    operation_row("response_delete", "Responses", WorkKind::Store, "Deletes a stored response", &[(200, &[(JSON, "ResponseDeletion")])]),
    operation_row("response_input_items", "Responses", WorkKind::Store, "Lists the items that a stored response answers", &[(200, &[(JSON, "ItemList")])]).with_query(&["after", "limit 1 100 20", "order"]),
    operation_row("response_cancel", "Responses", WorkKind::Store, "Cancels a background response", &[(200, &[(JSON, "Response")])]),
    operation_row("embeddings", "Embeddings", WorkKind::Model, "Embeds texts", &[(200, &[(JSON, "Embeddings")])]).with_body(JSON, "EmbeddingsRequest"),
    operation_row("rerank", "Rerank", WorkKind::Model, "Sorts documents by their relevance to a query", &[(200, &[(JSON, "Ranking")])]).with_body(JSON, "RerankRequest"),
    operation_row("images", "Images", WorkKind::Model, "Generates images", &[(200, &[(JSON, "Images")])]).with_body(JSON, "ImagesRequest"),
    operation_row("image_content", "Images", WorkKind::Direct, "A generated image, by the URL of its response", &[(200, &[("image/png", "Bytes"), ("image/jpeg", "Bytes"), ("image/webp", "Bytes"), ("image/gif", "Bytes"), ("application/octet-stream", "Bytes")])]),
    operation_row("transcriptions", "Audio", WorkKind::Model, "Transcribes speech", &[(200, &[(JSON, "Transcription"), ("text/plain", "Text"), ("application/x-subrip", "Text"), ("text/vtt", "Text")])]).with_body(FORM, "TranscriptionRequest"),
    operation_row("speech", "Audio", WorkKind::Model, "Speaks a text", &[(200, &[("audio/mpeg", "Bytes"), ("audio/ogg", "Bytes"), ("audio/aac", "Bytes"), ("audio/flac", "Bytes"), ("audio/wav", "Bytes"), ("audio/pcm", "Bytes"), EVENTS])]).with_body(JSON, "SpeechRequest"),
    operation_row("moderations", "Moderation", WorkKind::Model, "Classifies texts by the harm that they may do", &[(200, &[(JSON, "Moderation")])]).with_body(JSON, "ModerationRequest"),
    operation_row("batches_create", "Batches", WorkKind::Store, "Creates a batch", &[(200, &[(JSON, "Batch")])]).with_body(JSON, "BatchRequest"),
    operation_row("batches", "Batches", WorkKind::Store, "Lists the batches of the account", &[(200, &[(JSON, "BatchList")])]).with_query(&["after", "limit 1 100 20"]),
    operation_row("batch", "Batches", WorkKind::Store, "A batch", &[(200, &[(JSON, "Batch")])]),
    operation_row("batch_cancel", "Batches", WorkKind::Store, "Cancels a batch", &[(200, &[(JSON, "Batch")])]),
    operation_row("file_upload", "Files", WorkKind::Store, "Uploads a file", &[(200, &[(JSON, "File")])]).with_body(FORM, "FileRequest"),
    operation_row("files", "Files", WorkKind::Store, "Lists the files of the key", &[(200, &[(JSON, "FileList")])]).with_query(&["after", "limit 1 10000 10000", "order", "purpose"]),
    operation_row("file_content", "Files", WorkKind::Store, "The contents of a file, or a range of them", &[(200, BYTES), (206, BYTES)]),
    operation_row("file", "Files", WorkKind::Store, "A file's metadata", &[(200, &[(JSON, "File")])]),
    operation_row("file_delete", "Files", WorkKind::Store, "Deletes a file", &[(200, &[(JSON, "FileDeletion")])]),
    operation_row("models", "Models", WorkKind::Direct, "Lists the models that the key may use", &[(200, &[(JSON, "ModelList")])]).with_query(&["output_modalities", "supported_parameters", "lifecycle", "sort", "offset", "limit 1 1000 100", "after_id", "before_id", "include_aliases", "include_meta"]),
    operation_row("model", "Models", WorkKind::Direct, "A model", &[(200, &[(JSON, "Model")])]).with_query(&["include_meta"]),
    operation_row("usage", "Account", WorkKind::Direct, "Usage of the account, or of one of its keys", &[(200, &[(JSON, "Usage")])]).with_query(&["from", "to", "group_by", "key"]),
    operation_row("credits", "Account", WorkKind::Direct, "Balance of the account", &[(200, &[(JSON, "Balance")])]),
    operation_row("root", "Service", WorkKind::Direct, "Name and links of the service", &[(200, &[(JSON, "Root")])]),
    operation_row("health", "Service", WorkKind::Direct, "200 while requests are accepted", &[(200, &[(JSON, "Health")])]),
    operation_row("openapi", "Service", WorkKind::Direct, "This document", &[(200, &[(JSON, "Document")])]),
];

/// Query parameter from its name, or from `name minimum maximum default` for an integer.
pub fn parameter(written: &str) -> Value {
    let mut words = written.split(' ');
    let name = words.next().unwrap_or_default();
    let bounds: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    let schema = match (name, bounds.as_slice()) {
        (_, [least, most, usual]) => {
            json!({ "type": "integer", "minimum": least, "maximum": most, "default": usual })
        }
        ("offset", _) => json!({ "type": "integer", "minimum": 0, "default": 0 }),
        ("starting_after", _) => json!({ "type": "integer", "minimum": 0,
            "description": "With `stream=true`: only the events after the one with this `sequence_number`." }),
        ("include_aliases" | "include_meta" | "stream", _) => json!({ "type": "boolean", "default": false }),
        ("from" | "to", _) => json!({ "type": "string", "format": "date",
            "description": "Day in UTC, included; the range ends today and has 30 days by default, and at most 366." }),
        ("group_by", _) => json!({ "type": "string", "default": "day", "examples": ["day,model", "key"],
            "description": "Up to three of day, hour, model, key, provider, location and outcome, with commas." }),
        ("key", _) => json!({ "type": "string",
            "description": "Only this key: its public id, or `self` for the key of the request." }),
        ("order", _) => json!({ "enum": ["asc", "desc", ""], "default": "desc" }),
        ("purpose", _) => json!({ "enum": ["batch", "batch_output", ""] }),
        ("sort", _) => {
            json!({ "enum": penstock_catalog::SortOrder::ALL.map(penstock_catalog::SortOrder::name), "default": "newest" })
        }
        ("lifecycle", _) => {
            json!({ "enum": penstock_catalog::LifecycleStage::ALL.map(penstock_catalog::LifecycleStage::name) })
        }
        ("output_modalities", _) => json!({ "type": "string", "examples": ["text,image", "all"],
            "pattern": "^((text|image|audio|embeddings|scores|all)(,(text|image|audio|embeddings|scores|all))*)?$" }),
        _ => json!({ "type": "string" }),
    };
    json!({ "name": name, "in": "query", "schema": schema })
}

/// Error codes that an endpoint may return.
pub fn error_codes(row: &OperationRow, open: bool, has_id: bool) -> Vec<ErrorCode> {
    let mut codes = vec![
        ErrorCode::InvalidRequest,
        ErrorCode::MethodNotAllowed,
        ErrorCode::RequestTimeout,
        ErrorCode::TargetTooLong,
        ErrorCode::HeadTooLarge,
        ErrorCode::Internal,
        ErrorCode::Overloaded,
    ];
    if !open {
        codes.extend([ErrorCode::InvalidKey, ErrorCode::InsufficientScope, ErrorCode::RateLimited]);
    }
    if has_id {
        codes.push(ErrorCode::NotFound);
    }
    if row.body.is_some() {
        codes.extend([ErrorCode::TooLarge, ErrorCode::UnsupportedMediaType]);
    }
    match row.work {
        WorkKind::Direct => {}
        WorkKind::Model => codes.extend([
            ErrorCode::Unsupported,
            ErrorCode::ContextLength,
            ErrorCode::ContentRefused,
            ErrorCode::InsufficientCredits,
            ErrorCode::BudgetExceeded,
            ErrorCode::ModelNotFound,
            ErrorCode::Unavailable,
            ErrorCode::StorageFull,
        ]),
        WorkKind::Store => codes.extend([ErrorCode::NotFound, ErrorCode::Conflict, ErrorCode::StorageFull]),
    }
    match row.name {
        "model" => codes.push(ErrorCode::ModelNotFound),
        "file_content" => codes.push(ErrorCode::RangeNotSatisfiable),
        _ => {}
    }
    codes.sort_by_key(|code| (code.spec().status, code.spec().code));
    codes.dedup();
    codes
}
