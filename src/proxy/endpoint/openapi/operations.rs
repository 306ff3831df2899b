//! Description of an endpoint in the OpenAPI document, besides its method and path.

use penstock_core::ErrorCode;
use serde_json::{Value, json};

/// Kind of work of an endpoint, which determines its possible errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointWorkKind {
    /// Response without a model, files, batches or stored responses.
    Direct,
    /// Request to a model.
    Model,
    /// Read or write of files, batches or stored responses.
    Store,
}

/// Description of one endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Summary of the endpoint in one line.
    pub summary: &'static str,
    /// Tag of the operation in the OpenAPI document.
    pub tag: &'static str,
    /// Kind of the endpoint's work, which determines the errors that it shares with other endpoints.
    pub work: EndpointWorkKind,
    /// Content type and schema of the request body.
    pub body: Option<(&'static str, &'static str)>,
    /// Success status, content types and their schemas.
    pub answers: &'static [(u16, &'static [(&'static str, &'static str)])],
    /// Query parameters: a name, or `name minimum maximum default` for an integer.
    pub query: &'static [&'static str],
    /// Names of the request headers.
    pub request_headers: &'static [&'static str],
    /// Possible errors in addition to those that the kind of work has.
    pub error_codes: &'static [ErrorCode],
    /// Schemas that no other endpoint uses, as the members of a JSON object. Schemas of several endpoints are in
    /// `schemas.json`.
    pub schemas: &'static str,
}

/// Answers by their status: content types and schemas.
pub type ResponseSchemas = &'static [(u16, &'static [(&'static str, &'static str)])];

/// Content type of JSON.
pub const JSON_CONTENT_TYPE: &str = "application/json";
/// Content type of a form.
pub const FORM_CONTENT_TYPE: &str = "multipart/form-data";
/// Content type and schema of an event stream.
pub const EVENT_STREAM_CONTENT: (&str, &str) = ("text/event-stream", "Events");
/// Content types and schemas of a response with the contents of a file.
pub const FILE_CONTENT_TYPES: &[(&str, &str)] =
    &[("application/octet-stream", "Bytes"), ("application/jsonl", "Bytes")];

impl Operation {
    /// Returns a description without a body and without parameters.
    pub const fn new(
        tag: &'static str,
        work: EndpointWorkKind,
        summary: &'static str,
        answers: ResponseSchemas,
    ) -> Self {
        Self {
            summary,
            tag,
            work,
            body: None,
            answers,
            query: &[],
            request_headers: &[],
            error_codes: &[],
            schemas: "",
        }
    }

    /// Adds a body of a content type and a schema.
    pub const fn with_body(mut self, kind: &'static str, schema: &'static str) -> Self {
        self.body = Some((kind, schema));
        self
    }

    /// Sets the query parameters of the endpoint.
    pub const fn with_query(mut self, query: &'static [&'static str]) -> Self {
        self.query = query;
        self
    }

    /// Sets the request headers of the endpoint.
    pub const fn with_request_headers(mut self, headers: &'static [&'static str]) -> Self {
        self.request_headers = headers;
        self
    }

    /// Sets the possible errors in addition to those that the kind of work has.
    pub const fn with_error_codes(mut self, codes: &'static [ErrorCode]) -> Self {
        self.error_codes = codes;
        self
    }
}

/// Returns the OpenAPI Parameter Object of a query parameter, from the text `name`, or from `name minimum maximum
/// default` for an integer.
pub fn query_parameter_object(written: &str) -> Value {
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
        ("include[]", _) => json!({ "type": "array",
            "items": { "enum": penstock_request_validation::INCLUDE_VALUES } }),
        ("include_aliases" | "include_meta" | "stream", _) => json!({ "type": "boolean", "default": false }),
        ("from" | "to", _) => json!({ "type": "string", "format": "date",
            "description": "Day in UTC, included; the range ends today and has 30 days by default, and at most 366." }),
        ("group_by", _) => json!({ "type": "string", "default": "day", "examples": ["day,model", "key"],
            "description": "Up to three of day, week, month, hour, model, key, provider, location and outcome, with commas." }),
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

/// Returns the error codes that an endpoint may return, in ascending order of their status. `open` is true if it needs
/// no key, `has_id` if its path has the id of an object.
pub fn error_codes(row: &Operation, open: bool, has_id: bool) -> Vec<ErrorCode> {
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
        EndpointWorkKind::Direct => {}
        EndpointWorkKind::Model => codes.extend([
            ErrorCode::Unsupported,
            ErrorCode::ContextLength,
            ErrorCode::ContentRefused,
            ErrorCode::InsufficientCredits,
            ErrorCode::BudgetExceeded,
            ErrorCode::ModelNotFound,
            ErrorCode::Unavailable,
            ErrorCode::StorageFull,
        ]),
        EndpointWorkKind::Store => {
            codes.extend([ErrorCode::NotFound, ErrorCode::Conflict, ErrorCode::StorageFull])
        }
    }
    codes.extend_from_slice(row.error_codes);
    codes.sort_by_key(|code| (code.spec().status, code.spec().code));
    codes.dedup();
    codes
}
