//! Operation metadata of each endpoint, besides its method and path. A new endpoint needs a row.

use penstock_contract::Code;
use serde_json::{Value, json};

/// Kind of work of an endpoint, which determines its possible errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Response without a model or the store.
    Own,
    /// Request to a model.
    Model,
    /// Read or write of files or batches.
    Store,
}

/// Operation metadata of one endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name of the endpoint.
    pub name: &'static str,
    /// Summary of one line.
    pub summary: &'static str,
    /// OpenAPI tag.
    pub tag: &'static str,
    /// Kind of work.
    pub work: Work,
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
const fn row(
    name: &'static str,
    tag: &'static str,
    work: Work,
    summary: &'static str,
    answers: &'static [(u16, &'static [(&'static str, &'static str)])],
) -> Row {
    Row { name, summary, tag, work, body: None, answers, query: &[] }
}

impl Row {
    const fn takes(mut self, kind: &'static str, schema: &'static str) -> Self {
        self.body = Some((kind, schema));
        self
    }

    const fn asks(mut self, query: &'static [&'static str]) -> Self {
        self.query = query;
        self
    }
}

/// Rows of all endpoints.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    row("chat", "Chat", Work::Model, "Answers a conversation", &[(200, &[(JSON, "ChatCompletion"), EVENTS])]).takes(JSON, "ChatRequest"),
    row("messages", "Messages", Work::Model, "Answers a conversation, in the messages dialect", &[(200, &[(JSON, "MessagesResponse"), EVENTS])]).takes(JSON, "MessagesRequest"),
    row("count_tokens", "Messages", Work::Model, "Counts the tokens of a conversation without charge", &[(200, &[(JSON, "TokenCount")])]).takes(JSON, "CountTokensRequest"),
    row("embeddings", "Embeddings", Work::Model, "Embeds texts", &[(200, &[(JSON, "Embeddings")])]).takes(JSON, "EmbeddingsRequest"),
    row("rerank", "Rerank", Work::Model, "Sorts documents by their relevance to a query", &[(200, &[(JSON, "Ranking")])]).takes(JSON, "RerankRequest"),
    row("images", "Images", Work::Model, "Generates images", &[(200, &[(JSON, "Images")])]).takes(JSON, "ImagesRequest"),
    row("image_content", "Images", Work::Own, "A generated image, by the URL of its response", &[(200, &[("image/png", "Bytes"), ("image/jpeg", "Bytes"), ("image/webp", "Bytes"), ("image/gif", "Bytes"), ("application/octet-stream", "Bytes")])]),
    row("transcriptions", "Audio", Work::Model, "Transcribes speech", &[(200, &[(JSON, "Transcription"), ("text/plain", "Text"), ("application/x-subrip", "Text"), ("text/vtt", "Text")])]).takes(FORM, "TranscriptionRequest"),
    row("batches_create", "Batches", Work::Store, "Creates a batch", &[(200, &[(JSON, "Batch")])]).takes(JSON, "BatchRequest"),
    row("batches", "Batches", Work::Store, "Lists the batches of the account", &[(200, &[(JSON, "BatchList")])]).asks(&["after", "limit 1 100 20"]),
    row("batch", "Batches", Work::Store, "A batch", &[(200, &[(JSON, "Batch")])]),
    row("batch_cancel", "Batches", Work::Store, "Cancels a batch", &[(200, &[(JSON, "Batch")])]),
    row("file_upload", "Files", Work::Store, "Uploads a file", &[(200, &[(JSON, "File")])]).takes(FORM, "FileRequest"),
    row("files", "Files", Work::Store, "Lists the files of the key", &[(200, &[(JSON, "FileList")])]).asks(&["after", "limit 1 10000 10000", "order", "purpose"]),
    row("file_content", "Files", Work::Store, "The contents of a file, or a range of them", &[(200, BYTES), (206, BYTES)]),
    row("file", "Files", Work::Store, "A file's metadata", &[(200, &[(JSON, "File")])]),
    row("file_delete", "Files", Work::Store, "Deletes a file", &[(200, &[(JSON, "FileDeletion")])]),
    row("models", "Models", Work::Own, "Lists the models that the key may use", &[(200, &[(JSON, "ModelList")])]).asks(&["output_modalities", "supported_parameters", "lifecycle", "sort", "offset", "limit 1 1000 100", "after_id", "before_id", "include_aliases", "include_meta"]),
    row("model", "Models", Work::Own, "A model", &[(200, &[(JSON, "Model")])]).asks(&["include_meta"]),
    row("root", "Service", Work::Own, "Name and links of the service", &[(200, &[(JSON, "Root")])]),
    row("health", "Service", Work::Own, "200 while requests are accepted", &[(200, &[(JSON, "Health")])]),
    row("openapi", "Service", Work::Own, "This document", &[(200, &[(JSON, "Document")])]),
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
        ("include_aliases" | "include_meta", _) => json!({ "type": "boolean", "default": false }),
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
pub fn codes(row: &Row, open: bool, has_id: bool) -> Vec<Code> {
    let mut codes = vec![
        Code::InvalidRequest,
        Code::MethodNotAllowed,
        Code::RequestTimeout,
        Code::TargetTooLong,
        Code::HeadTooLarge,
        Code::Internal,
        Code::Overloaded,
    ];
    if !open {
        codes.extend([Code::InvalidKey, Code::InsufficientScope, Code::RateLimited]);
    }
    if has_id {
        codes.push(Code::NotFound);
    }
    if row.body.is_some() {
        codes.extend([Code::TooLarge, Code::UnsupportedMediaType]);
    }
    match row.work {
        Work::Own => {}
        Work::Model => codes.extend([
            Code::Unsupported,
            Code::ContextLength,
            Code::ContentRefused,
            Code::InsufficientCredits,
            Code::BudgetExceeded,
            Code::ModelNotFound,
            Code::Unavailable,
            Code::StorageFull,
        ]),
        Work::Store => codes.extend([Code::NotFound, Code::Conflict, Code::StorageFull]),
    }
    match row.name {
        "model" => codes.push(Code::ModelNotFound),
        "file_content" => codes.push(Code::RangeNotSatisfiable),
        _ => {}
    }
    codes.sort_by_key(|code| (code.row().status, code.row().code));
    codes.dedup();
    codes
}
