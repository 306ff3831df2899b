//! What the gateway answers. A newcomer adds a file here and a line in [`ENDPOINTS`].

mod address;
mod batches;
mod chat;
mod count_tokens;
mod embeddings;
mod files;
mod images;
mod messages;
mod models;
pub mod openapi;
mod rerank;
mod root;
mod transcriptions;
mod unknown;

pub use address::{decoded, parameters};

use crate::exchange::{Ended, Exchange};
use async_trait::async_trait;
use http::Method;
use penstock_auth::Scope;
use penstock_batch::jsonl::Urls;
use penstock_contract::{Code, Dialect, Refusal};
use std::sync::LazyLock;

/// One method on one path.
#[async_trait]
pub trait Endpoint: Sync {
    /// Its name in metrics and logs.
    fn name(&self) -> &'static str;

    /// The method it takes.
    fn method(&self) -> Method;

    /// Its path below the host; a `*` takes anything that is not nothing.
    fn path(&self) -> &'static str;

    /// The scope that a key needs.
    fn scope(&self) -> Scope;

    /// It asks for no key.
    fn is_open(&self) -> bool {
        false
    }

    /// Lines of batches may ask it, by its path as it stands.
    fn takes_lines(&self) -> bool {
        false
    }

    /// Answers, or hands the ask to the relay. `tail` is what `*` matched, still encoded.
    async fn handle(&self, x: &mut Exchange<'_>, tail: &str) -> Result<Ended, Refusal>;
}

/// Every endpoint. Mistakes name those that take lines in this order.
const ENDPOINTS: &[&dyn Endpoint] = &[
    &chat::Chat,
    &messages::Messages,
    &count_tokens::CountTokens,
    &embeddings::Embeddings,
    &rerank::Rerank("/v1/rerank"),
    &rerank::Rerank("/v2/rerank"),
    &images::Generations,
    &images::Content,
    &transcriptions::Transcriptions,
    &batches::Post,
    &batches::List,
    &batches::Get,
    &batches::Cancel,
    &files::Create,
    &files::List,
    &files::Content,
    &files::One,
    &files::Delete,
    &models::List,
    &models::One,
    &root::Root,
    &root::Health("/health"),
    &root::Health("/healthz"),
    &root::Document,
];

/// The paths that lines of batches may ask: what the batch room is told, since it knows no endpoint itself.
#[must_use]
pub fn for_lines() -> Urls {
    static URLS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        ENDPOINTS.iter().filter(|endpoint| endpoint.takes_lines()).map(|endpoint| endpoint.path()).collect()
    });
    &URLS
}

/// The dialect of a path's errors: `/v1/messages*`, and the catalogue for clients
/// that send `anthropic-version`, speak messages; all else speaks chat. Where no
/// endpoint has the path, the client's header decides, or the path that it meant.
#[must_use]
pub fn dialect(path: &str, anthropic: bool) -> Dialect {
    let path = versioned(path);
    let messages = |path: &str| path.starts_with("/v1/messages");
    if messages(path) || (anthropic && path.starts_with("/v1/models")) {
        return Dialect::Messages;
    }
    if unknown::is_known(path) {
        return Dialect::Chat;
    }
    if anthropic || unknown::right_path(path).is_some_and(messages) {
        return Dialect::Messages;
    }
    Dialect::Chat
}

/// The endpoint of a method and a path, and what its `*` matched.
///
/// # Errors
/// Nothing at this path, or not with this method.
pub fn find<'p>(method: &Method, path: &'p str) -> Result<(&'static dyn Endpoint, &'p str), Refusal> {
    let path = versioned(path);
    // Most requests are for a path without `*`.
    let exact = |endpoint: &&&dyn Endpoint| endpoint.path() == path && endpoint.method() == *method;
    if let Some(endpoint) = ENDPOINTS.iter().find(exact).filter(|_| !path.contains('*')) {
        return Ok((*endpoint, ""));
    }
    let mut allowed = Vec::new();
    for (endpoint, tail) in at(path) {
        let head = *method == Method::HEAD && endpoint.method() == Method::GET;
        if endpoint.method() == *method || head {
            return Ok((endpoint, tail));
        }
        allowed.push(endpoint.method().to_string());
    }
    if !allowed.is_empty() {
        let allow = allowed.join(", ");
        let message = format!("This path takes {allow}, not {method}.");
        return Err(Refusal::because(Code::MethodNotAllowed, message).with("allow", allow));
    }
    Err(unknown::refusal(path))
}

/// The endpoints at a path, and what their `*` matched: of `/v1/files/*` and `/v1/files/*/content` the longer one.
fn at(path: &str) -> impl Iterator<Item = (&'static dyn Endpoint, &str)> {
    let all =
        || ENDPOINTS.iter().filter_map(move |endpoint| Some((*endpoint, matches(endpoint.path(), path)?)));
    let longest = all().map(|(endpoint, _)| endpoint.path().len()).max();
    all().filter(move |(endpoint, _)| Some(endpoint.path().len()) == longest)
}

/// Base addresses are written with and without `/v1`; a doubled one is forgiven,
/// and so is a slash at the end.
fn versioned(path: &str) -> &str {
    let path = match path.strip_prefix("/v1") {
        Some(rest) if rest.starts_with("/v1/") || rest.starts_with("/v2/") => rest,
        _ => path,
    };
    path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path)
}

fn matches<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    match pattern.split_once('*') {
        Some((prefix, suffix)) => {
            path.strip_prefix(prefix)?.strip_suffix(suffix).filter(|tail| !tail.is_empty())
        }
        None => (pattern == path).then_some(""),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use penstock_batch::create::Create;

    #[test]
    fn a_known_path_with_another_method_names_the_right_one() {
        let refusal = find(&Method::GET, "/v1/chat/completions").err().unwrap();
        assert_eq!(refusal.code, Code::MethodNotAllowed);
        assert_eq!(refusal.details.get("allow").unwrap(), "POST");
    }

    #[test]
    fn model_ids_may_hold_slashes() {
        let (endpoint, tail) = find(&Method::GET, "/v1/models/org/model:eco").unwrap();
        assert_eq!((endpoint.name(), tail), ("model", "org/model:eco"));
    }

    #[test]
    fn a_doubled_version_and_a_last_slash_are_forgiven() {
        assert_eq!(find(&Method::POST, "/v1/v1/messages").unwrap().0.name(), "messages");
        assert_eq!(find(&Method::GET, "/v1/models/").unwrap().0.name(), "models");
        assert_eq!(find(&Method::POST, "/v1/v2/rerank").unwrap().0.name(), "rerank");
    }

    #[test]
    fn what_stands_behind_an_id_is_no_part_of_it() {
        let (endpoint, tail) = find(&Method::GET, "/v1/files/file-1/content").unwrap();
        assert_eq!((endpoint.name(), tail), ("file_content", "file-1"));
        let (endpoint, tail) = find(&Method::HEAD, "/v1/files/file-1/").unwrap();
        assert_eq!((endpoint.name(), tail), ("file", "file-1"));
        assert_eq!(find(&Method::DELETE, "/v1/files/file-1").unwrap().0.name(), "file_delete");
        assert_eq!(find(&Method::PUT, "/v1/files").err().unwrap().details.get("allow").unwrap(), "POST, GET");
    }

    #[test]
    fn a_path_allows_the_methods_of_its_own_endpoint_alone() {
        for (method, path, allow) in [
            (Method::OPTIONS, "/v1/files/file-1/content", "GET"),
            (Method::DELETE, "/v1/files/file-1/content", "GET"),
            (Method::PATCH, "/v1/files/file-1", "GET, DELETE"),
            (Method::POST, "/v1/batches/batch_1", "GET"),
            (Method::GET, "/v1/batches/batch_1/cancel", "POST"),
            (Method::OPTIONS, "/v1/batches/batch_1/cancel/", "POST"),
        ] {
            let refusal = find(&method, path).err().unwrap();
            assert_eq!(refusal.details.get("allow").unwrap(), allow, "{method} {path}");
        }
        let (endpoint, tail) = find(&Method::POST, "/v1/batches/batch_1/cancel").unwrap();
        assert_eq!((endpoint.name(), tail), ("batch_cancel", "batch_1"));
    }

    #[test]
    fn errors_of_the_catalogue_follow_the_client() {
        assert_eq!(dialect("/v1/models", true), Dialect::Messages);
        assert_eq!(dialect("/v1/models", false), Dialect::Chat);
        assert_eq!(dialect("/v1/messages/count_tokens", false), Dialect::Messages);
        assert_eq!(dialect("/v1/files", true), Dialect::Chat);
    }

    #[test]
    fn errors_of_an_unknown_path_follow_the_client_or_what_it_meant() {
        assert_eq!(dialect("/anything", true), Dialect::Messages);
        assert_eq!(dialect("/anything", false), Dialect::Chat);
        assert_eq!(dialect("/models", true), Dialect::Messages);
        assert_eq!(dialect("//v1/models", false), Dialect::Chat);
        assert_eq!(dialect("/messages", false), Dialect::Messages);
        assert_eq!(dialect("//v1/messages", false), Dialect::Messages);
        assert_eq!(dialect("/v1/messages/batches", false), Dialect::Messages);
        assert_eq!(dialect("/v1//chat/completions", false), Dialect::Chat);
    }

    #[test]
    fn the_endpoints_that_take_lines_are_those_that_a_batch_may_name_and_no_others() {
        for endpoint in ENDPOINTS {
            let body =
                serde_json::json!({"input_file_id": "file-1", "endpoint": endpoint.path()}).to_string();
            let create = Create::read(body.as_bytes(), for_lines());
            assert_eq!(create.is_ok(), endpoint.takes_lines(), "{}", endpoint.path());
        }
        // A batch finds its endpoint by this path, and lines are posted.
        for path in for_lines() {
            let (endpoint, _) = find(&Method::POST, path).unwrap();
            assert!(endpoint.takes_lines() && endpoint.path() == *path, "{path}");
        }
    }

    #[test]
    fn a_wrong_endpoint_of_a_batch_or_a_line_is_told_the_right_ones() {
        let body = br#"{"input_file_id": "file-1", "endpoint": "/v1/completions"}"#;
        let refusal = Create::read(body, for_lines()).unwrap_err();
        assert_eq!(
            refusal.message,
            "endpoint: expected one of /v1/chat/completions, /v1/messages, /v1/embeddings, /v1/rerank, \
             /v1/images/generations"
        );
        let line = br#"{"custom_id": "a", "method": "POST", "url": "/v2/rerank", "body": {}}"#;
        assert_eq!(
            penstock_batch::jsonl::line(line, for_lines()).unwrap_err().message,
            "expected /v1/chat/completions, /v1/messages, /v1/embeddings, /v1/rerank or \
             /v1/images/generations, got \"/v2/rerank\""
        );
    }

    #[test]
    fn an_unknown_path_says_what_to_use() {
        let refusal = find(&Method::POST, "/v1/responses").err().unwrap();
        assert_eq!(refusal.code, Code::NotFound);
        assert!(refusal.message.contains("/v1/chat/completions"));
    }
}
