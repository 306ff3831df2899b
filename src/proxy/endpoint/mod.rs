//! Endpoints of the public listener. A new endpoint needs a file here and an entry in [`ENDPOINTS`]; the file describes
//! it for the OpenAPI document, too.

mod batches;
mod chat;
mod completions;
mod count_tokens;
mod credits;
mod embeddings;
mod files;
mod images;
mod messages;
mod metered;
mod models;
pub mod openapi;
mod rerank;
mod responses;
mod service;
mod transcriptions;
mod unknown;
mod url_decoding;
mod usage;

pub use chat::{ChatCompletionsEndpoint, parse_chat_request};
pub use files::{content_disposition, log_file_failure};
pub use url_decoding::{decode_segment, query_parameters};

use crate::http::route_table::{self, Route, RouteError};
use crate::proxy::exchange::{Exchange, WriteOutcome};
use http::Method;
use openapi::Operation;
use penstock_auth::KeyScope;
use penstock_core::{ApiError, Dialect};
use std::pin::Pin;

/// Future of a request at an endpoint. The methods return this type instead of using `async_trait`: the `where` clauses
/// of that macro make the compiler prove for each endpoint again that the state of the gateway is `Send`, which takes
/// minutes.
pub type EndpointFuture<'a> = Pin<Box<dyn Future<Output = Result<WriteOutcome, ApiError>> + Send + 'a>>;

/// Creates the future of a handler in its box. [`Box::pin`] would copy it from the stack, and the future of an
/// inference request has several kilobytes.
fn boxed_handler<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}

/// Endpoint: one method on one path.
pub trait Endpoint: Sync {
    /// Returns the name of the endpoint in metrics and logs.
    fn name(&self) -> &'static str;

    /// Returns the HTTP method of the endpoint.
    fn method(&self) -> Method;

    /// Returns the path pattern below the host; a `*` matches any non-empty text.
    fn path(&self) -> &'static str;

    /// Returns the scope that a key needs.
    fn required_scope(&self) -> KeyScope;

    /// Returns the description in the OpenAPI document.
    fn openapi_operation(&self) -> Operation;

    /// Returns true if the endpoint needs no key.
    fn is_public(&self) -> bool {
        false
    }

    /// Returns true if batch lines may use the endpoint, by its literal path.
    fn accepts_batch_lines(&self) -> bool {
        false
    }

    /// Sends a response, or passes the request to the failover driver. `tail` is the text that `*` matched, still
    /// percent-encoded.
    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a>;
}

impl Route for dyn Endpoint {
    fn method(&self) -> Method {
        Endpoint::method(self)
    }

    fn path(&self) -> &'static str {
        Endpoint::path(self)
    }
}

/// Table of all endpoints. Error messages list those that accept batch lines in this order.
const ENDPOINTS: &[&dyn Endpoint] = &[
    &chat::ChatCompletionsEndpoint,
    &completions::TextCompletionsEndpoint,
    &messages::CreateMessageEndpoint,
    &count_tokens::CountTokensEndpoint,
    &responses::CreateResponseEndpoint,
    &responses::CountInputTokensEndpoint,
    &responses::GetResponseEndpoint,
    &responses::DeleteResponseEndpoint,
    &responses::ListInputItemsEndpoint,
    &responses::CancelResponseEndpoint,
    &embeddings::EmbeddingsEndpoint,
    &rerank::RerankDocumentsEndpoint("/v1/rerank"),
    &rerank::RerankDocumentsEndpoint("/v2/rerank"),
    &images::GenerateImagesEndpoint,
    &images::GetImageEndpoint,
    &transcriptions::CreateTranscriptionEndpoint,
    &metered::SPEECH,
    &metered::MODERATIONS,
    &batches::CreateBatchEndpoint,
    &batches::ListBatchesEndpoint,
    &batches::GetBatchEndpoint,
    &batches::CancelBatchEndpoint,
    &files::UploadFileEndpoint,
    &files::ListFilesEndpoint,
    &files::DownloadFileEndpoint,
    &files::GetFileEndpoint,
    &files::DeleteFileEndpoint,
    &models::ListModelsEndpoint,
    &models::GetModelEndpoint,
    &usage::GetUsageEndpoint,
    &credits::GetCreditsEndpoint,
    &service::RootEndpoint,
    &service::GetHealthEndpoint("/health"),
    &service::GetHealthEndpoint("/healthz"),
    &service::GetOpenApiDocumentEndpoint,
];

/// Headers of a request by which a client of the messages dialect is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagesDialectHint {
    /// No header of the messages dialect.
    Absent,
    /// Header `x-api-key`, which clients of other dialects may send too.
    ApiKey,
    /// Header `anthropic-version` or `anthropic-beta`.
    Messages,
}

impl MessagesDialectHint {
    /// Returns the hint of a request; `has_header` returns true if the request has a header of this name.
    pub fn from_request(has_header: impl Fn(&str) -> bool) -> Self {
        match () {
            () if has_header("anthropic-version") || has_header("anthropic-beta") => Self::Messages,
            () if has_header("x-api-key") => Self::ApiKey,
            () => Self::Absent,
        }
    }
}

/// Returns the dialect in which errors of a path are written: the dialect of the path's prefix, else the chat dialect.
/// Clients of the messages dialect, by their headers, get that dialect for the model list and for unknown paths. Any
/// other unknown path has the dialect of the path that the client probably meant. A name under which other services count
/// tokens is an exception: it has the chat dialect, although tokens are counted at a path of the messages dialect.
#[must_use]
pub fn error_dialect(path: &str, headers: MessagesDialectHint) -> Dialect {
    let path = normalize_path(path);
    let own = Dialect::from_path(path);
    if headers != MessagesDialectHint::Messages
        && let Some(own) = own
    {
        return own;
    }
    let is_known = unknown::is_endpoint_path(path);
    if headers == MessagesDialectHint::Messages && (!is_known || path.starts_with("/v1/models")) {
        return Dialect::Messages;
    }
    let meant = || unknown::suggested_path(path).filter(|_| !is_known).and_then(Dialect::from_path);
    own.or_else(meant).unwrap_or(match headers {
        MessagesDialectHint::ApiKey if !is_known => Dialect::Messages,
        _ => Dialect::Chat,
    })
}

/// Finds the endpoint of a method and a path, and the text that its `*` matched. HEAD uses the endpoint of GET.
///
/// # Errors
/// Returns a refusal if the path is unknown or does not support the method.
pub fn find_endpoint<'p>(
    method: &Method,
    path: &'p str,
) -> Result<(&'static dyn Endpoint, &'p str), ApiError> {
    let path = normalize_path(path);
    let endpoints = || ENDPOINTS.iter().copied();
    match route_table::find_route(endpoints(), method, path) {
        Ok((endpoint, _)) if unknown::is_below_object(endpoint.path(), path) => {
            Err(unknown::unknown_subpath_error(endpoint.path(), path))
        }
        Ok(found) => Ok(found),
        Err(RouteError::UnknownPath) => Err(unknown::unknown_path_error(path)),
        Err(RouteError::MethodNotAllowed(allowed)) if *method == Method::HEAD => {
            route_table::find_route(endpoints(), &Method::GET, path)
                .map_err(|_| route_table::method_not_allowed_error(method, &allowed))
        }
        Err(RouteError::MethodNotAllowed(allowed)) => Err(unknown::unknown_action_error(path)
            .unwrap_or_else(|| route_table::method_not_allowed_error(method, &allowed))),
    }
}

/// Normalizes the path: base URLs are configured with and without `/v1`, so a doubled prefix and a
/// trailing slash are removed.
fn normalize_path(path: &str) -> &str {
    let path = match path.strip_prefix("/v1") {
        Some(rest) if rest.starts_with("/v1/") || rest.starts_with("/v2/") => rest,
        _ => path,
    };
    path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::openapi::EndpointWorkKind;
    use super::*;
    use penstock_batch::create_request::CreateBatchRequest;
    use penstock_batch::jsonl::BATCH_PATHS;
    use penstock_core::{ErrorCode, MODEL_KINDS};

    #[test]
    fn each_endpoint_that_asks_a_model_is_a_path_of_its_kind() {
        // Endpoints that count tokens, and other names of an endpoint.
        let others = ["/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v2/rerank"];
        let named: Vec<&str> = MODEL_KINDS.iter().flat_map(|row| row.paths.split([' ', ','])).collect();
        for endpoint in ENDPOINTS.iter().filter(|row| row.openapi_operation().work == EndpointWorkKind::Model)
        {
            let path = endpoint.path();
            assert_ne!(named.contains(&path), others.contains(&path), "{path}");
        }
    }

    #[test]
    fn a_known_path_with_another_method_names_the_right_one() {
        let refusal = find_endpoint(&Method::GET, "/v1/chat/completions").err().unwrap();
        assert_eq!(refusal.code, ErrorCode::MethodNotAllowed);
        assert_eq!(refusal.details.get("allow").unwrap(), "POST");
    }

    #[test]
    fn an_action_of_another_service_is_not_taken_for_an_id() {
        let code = |method: Method, path: &str| find_endpoint(&method, path).err().unwrap();
        let compact = code(Method::POST, "/v1/responses/compact");
        assert!(
            compact.code == ErrorCode::NotFound && compact.message.contains("not offered"),
            "{compact:?}"
        );
        for (path, known) in [
            (
                "/v1/responses/resp_1/foo",
                "/v1/responses/{id}, /v1/responses/{id}/cancel, /v1/responses/{id}/input_items",
            ),
            ("/v1/batches/b_1/foo", "/v1/batches/{id}, /v1/batches/{id}/cancel"),
            ("/v1/files/f_1/foo/bar", "/v1/files/{id}, /v1/files/{id}/content"),
        ] {
            for method in [Method::GET, Method::POST, Method::DELETE, Method::PUT] {
                let refusal = code(method, path);
                assert_eq!(refusal.code, ErrorCode::NotFound, "{path}");
                assert!(refusal.message.ends_with(&format!(" {known}.")), "{path}: {}", refusal.message);
            }
        }
        assert!(code(Method::GET, "/v1/responses/v1/responses").message.contains("use /v1/responses"));
        for (method, path) in [
            (Method::POST, "/v1/responses/resp_1"),
            (Method::PUT, "/v1/responses/resp_1/cancel"),
            (Method::POST, "/v1/models/org/model"),
            (Method::POST, "/v1/files/f_1/content"),
        ] {
            assert_eq!(code(method, path).code, ErrorCode::MethodNotAllowed, "{path}");
        }
    }

    #[test]
    fn model_ids_may_hold_slashes() {
        let (endpoint, tail) = find_endpoint(&Method::GET, "/v1/models/org/model:eco").unwrap();
        assert_eq!((endpoint.name(), tail), ("model", "org/model:eco"));
    }

    #[test]
    fn a_doubled_version_and_a_trailing_slash_are_accepted() {
        assert_eq!(find_endpoint(&Method::POST, "/v1/v1/messages").unwrap().0.name(), "messages");
        assert_eq!(find_endpoint(&Method::GET, "/v1/models/").unwrap().0.name(), "models");
        assert_eq!(find_endpoint(&Method::POST, "/v1/v2/rerank").unwrap().0.name(), "rerank");
    }

    #[test]
    fn a_path_after_an_id_is_not_part_of_the_id() {
        let (endpoint, tail) = find_endpoint(&Method::GET, "/v1/files/file-1/content").unwrap();
        assert_eq!((endpoint.name(), tail), ("file_content", "file-1"));
        let (endpoint, tail) = find_endpoint(&Method::HEAD, "/v1/files/file-1/").unwrap();
        assert_eq!((endpoint.name(), tail), ("file", "file-1"));
        assert_eq!(find_endpoint(&Method::DELETE, "/v1/files/file-1").unwrap().0.name(), "file_delete");
        assert_eq!(
            find_endpoint(&Method::PUT, "/v1/files").err().unwrap().details.get("allow").unwrap(),
            "POST, GET, HEAD"
        );
    }

    #[test]
    fn a_path_allows_the_methods_of_its_own_endpoint_alone() {
        for (method, path, allow) in [
            (Method::OPTIONS, "/v1/files/file-1/content", "GET, HEAD"),
            (Method::DELETE, "/v1/files/file-1/content", "GET, HEAD"),
            (Method::PATCH, "/v1/files/file-1", "GET, HEAD, DELETE"),
            (Method::POST, "/v1/batches/batch_1", "GET, HEAD"),
            (Method::GET, "/v1/batches/batch_1/cancel", "POST"),
            (Method::OPTIONS, "/v1/batches/batch_1/cancel/", "POST"),
        ] {
            let refusal = find_endpoint(&method, path).err().unwrap();
            assert_eq!(refusal.details.get("allow").unwrap(), allow, "{method} {path}");
        }
        let (endpoint, tail) = find_endpoint(&Method::POST, "/v1/batches/batch_1/cancel").unwrap();
        assert_eq!((endpoint.name(), tail), ("batch_cancel", "batch_1"));
    }

    #[test]
    fn errors_of_the_catalogue_follow_the_client() {
        assert_eq!(error_dialect("/v1/models", MessagesDialectHint::Messages), Dialect::Messages);
        assert_eq!(error_dialect("/v1/models", MessagesDialectHint::Absent), Dialect::Chat);
        assert_eq!(
            error_dialect("/v1/messages/count_tokens", MessagesDialectHint::Absent),
            Dialect::Messages
        );
        assert_eq!(error_dialect("/v1/files", MessagesDialectHint::Messages), Dialect::Chat);
    }

    #[test]
    fn errors_of_an_unknown_path_follow_the_clients_dialect() {
        assert_eq!(error_dialect("/anything", MessagesDialectHint::Messages), Dialect::Messages);
        assert_eq!(error_dialect("/anything", MessagesDialectHint::Absent), Dialect::Chat);
        assert_eq!(error_dialect("/models", MessagesDialectHint::Messages), Dialect::Messages);
        assert_eq!(error_dialect("//v1/models", MessagesDialectHint::Absent), Dialect::Chat);
        assert_eq!(error_dialect("/messages", MessagesDialectHint::Absent), Dialect::Messages);
        assert_eq!(error_dialect("//v1/messages", MessagesDialectHint::Absent), Dialect::Messages);
        assert_eq!(error_dialect("/v1/messages/batches", MessagesDialectHint::Absent), Dialect::Messages);
        assert_eq!(error_dialect("/v1//chat/completions", MessagesDialectHint::Absent), Dialect::Chat);
        assert_eq!(error_dialect("/anything", MessagesDialectHint::ApiKey), Dialect::Messages);
        assert_eq!(error_dialect("/v1/models", MessagesDialectHint::ApiKey), Dialect::Chat);
        for path in ["/v1/tokenize", "/tokenize", "/v1/tokenize/", "/v1beta/models/m:countTokens"] {
            assert_eq!(error_dialect(path, MessagesDialectHint::Absent), Dialect::Chat, "{path}");
            assert_eq!(error_dialect(path, MessagesDialectHint::Messages), Dialect::Messages, "{path}");
        }
        for path in ["/count_tokens", "/v1/count_tokens", "/v1/messages/tokenize", "/v1/complete"] {
            assert_eq!(error_dialect(path, MessagesDialectHint::Absent), Dialect::Messages, "{path}");
        }
        let of = |sent: &[&str]| MessagesDialectHint::from_request(|name| sent.contains(&name));
        assert_eq!(of(&["anthropic-beta", "x-api-key"]), MessagesDialectHint::Messages);
        assert_eq!(of(&["anthropic-version"]), MessagesDialectHint::Messages);
        assert_eq!(of(&["x-api-key"]), MessagesDialectHint::ApiKey);
        assert_eq!(of(&["authorization"]), MessagesDialectHint::Absent);
    }

    #[test]
    fn the_endpoints_that_accept_lines_are_those_that_a_batch_may_name() {
        for endpoint in ENDPOINTS {
            let body =
                serde_json::json!({"input_file_id": "file-1", "endpoint": endpoint.path()}).to_string();
            let create = CreateBatchRequest::parse(body.as_bytes(), BATCH_PATHS);
            assert_eq!(create.is_ok(), endpoint.accepts_batch_lines(), "{}", endpoint.path());
        }
        // A batch finds its endpoint by this path with the method POST.
        for path in BATCH_PATHS {
            let (endpoint, _) = find_endpoint(&Method::POST, path).unwrap();
            assert!(endpoint.accepts_batch_lines() && endpoint.path() == *path, "{path}");
        }
    }

    #[test]
    fn an_invalid_endpoint_of_a_batch_or_a_line_is_answered_with_the_valid_ones() {
        let body = br#"{"input_file_id": "file-1", "endpoint": "/v1/completions"}"#;
        let refusal = CreateBatchRequest::parse(body, BATCH_PATHS).unwrap_err();
        assert_eq!(
            refusal.message,
            "endpoint: expected one of /v1/chat/completions, /v1/messages, /v1/responses, /v1/embeddings, \
             /v1/rerank, /v1/images/generations"
        );
        let line = br#"{"custom_id": "a", "method": "POST", "url": "/v2/rerank", "body": {}}"#;
        assert_eq!(
            penstock_batch::jsonl::parse_line(line, BATCH_PATHS).unwrap_err().message,
            "expected /v1/chat/completions, /v1/messages, /v1/responses, /v1/embeddings, /v1/rerank or \
             /v1/images/generations, got \"/v2/rerank\""
        );
    }

    #[test]
    fn an_unknown_path_gets_the_path_to_use() {
        let refusal = find_endpoint(&Method::POST, "/v1/generate").err().unwrap();
        assert_eq!(refusal.code, ErrorCode::NotFound);
        assert!(refusal.message.contains("/v1/chat/completions"));
    }

    #[test]
    fn paths_of_stored_responses_are_found() {
        assert_eq!(find_endpoint(&Method::POST, "/v1/responses").unwrap().0.name(), "responses");
        assert_eq!(
            find_endpoint(&Method::POST, "/v1/responses/input_tokens").unwrap().0.name(),
            "input_tokens"
        );
        assert_eq!(
            find_endpoint(&Method::GET, "/v1/responses").err().unwrap().code,
            ErrorCode::MethodNotAllowed
        );
        for (method, path, name) in [
            (Method::GET, "/v1/responses/resp_1", "response"),
            (Method::DELETE, "/v1/responses/resp_1", "response_delete"),
            (Method::GET, "/v1/responses/resp_1/input_items", "response_input_items"),
            (Method::POST, "/v1/responses/resp_1/cancel", "response_cancel"),
        ] {
            let (endpoint, tail) = find_endpoint(&method, path).unwrap();
            assert_eq!((endpoint.name(), tail), (name, "resp_1"));
            assert_eq!(error_dialect(path, MessagesDialectHint::Absent), Dialect::Responses);
        }
        let compact = find_endpoint(&Method::POST, "/v1/responses/compact").err().unwrap();
        assert_eq!(compact.code, ErrorCode::NotFound);
    }
}
