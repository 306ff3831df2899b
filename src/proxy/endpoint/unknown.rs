//! Errors of unknown paths: the message names the path that the client probably meant, or states that the feature is
//! not offered. Messages contain only text from the tables below, never the client's input.

use super::url_decoding::decode_segment;
use super::{ENDPOINTS, Endpoint};
use crate::http::route_table;
use penstock_core::{ApiError, ErrorCode};

/// Maximum number of path segments that are compared with known paths.
const MAX_SEGMENTS: usize = 8;
/// Leading segments that only name a version or a service.
const PREFIXES: &[&str] =
    &["v1", "v2", "v3", "v1beta", "api", "openai", "anthropic", "compat", "compatible-mode"];

/// Names of endpoints in the APIs of other services, each with the path in this API and an additional sentence.
const ALIASES: &[(&str, &str, &str)] = &[
    ("response", "/v1/responses", ""),
    ("completion", "/v1/completions", ""),
    ("chat", "/v1/chat/completions", ""),
    ("generate", "/v1/chat/completions", ""),
    ("generate_stream", "/v1/chat/completions", ""),
    ("generatecontent", "/v1/chat/completions", ""),
    ("streamgeneratecontent", "/v1/chat/completions", ""),
    ("converse", "/v1/chat/completions", ""),
    ("converse-stream", "/v1/chat/completions", ""),
    ("counttokens", "/v1/messages/count_tokens", ""),
    ("embedcontent", "/v1/embeddings", ""),
    ("batchembedcontents", "/v1/embeddings", ""),
    ("complete", "/v1/messages", ""),
    ("message", "/v1/messages", ""),
    ("messages/batches", "/v1/batches", "There its endpoint is \"/v1/messages\"."),
    ("chat/completions/batches", "/v1/batches", "There its endpoint is \"/v1/chat/completions\"."),
    ("batch", "/v1/batches", ""),
    ("embed", "/v1/embeddings", ""),
    ("embedding", "/v1/embeddings", ""),
    ("ranking", "/v1/rerank", ""),
    ("reranking", "/v1/rerank", ""),
    ("reranker", "/v1/rerank", ""),
    ("score", "/v1/rerank", ""),
    ("images/edits", "/v1/images/generations", "Images are drawn from a prompt only."),
    ("images/variations", "/v1/images/generations", "Images are drawn from a prompt only."),
    ("audio/translations", "/v1/audio/transcriptions", "Translation of audio is not offered."),
    ("tokenize", "/v1/messages/count_tokens", ""),
    ("count_tokens", "/v1/messages/count_tokens", ""),
    ("tags", "/v1/models", ""),
    ("show", "/v1/models", ""),
    ("model", "/v1/models", ""),
    ("engines", "/v1/models", ""),
    ("speech", "/v1/audio/speech", ""),
    ("transcribe", "/v1/audio/transcriptions", ""),
    ("transcriptions", "/v1/audio/transcriptions", ""),
    ("images/generate", "/v1/images/generations", ""),
    ("image/generate", "/v1/images/generations", ""),
];

/// Names of endpoints of engines and other services that count tokens. The gateway counts tokens at a path of the messages
/// dialect, but clients of these endpoints do not expect its errors.
const FOREIGN_TOKEN_COUNTS: &[&str] = &["tokenize", "counttokens"];

/// Features of the APIs of other services that this API does not offer.
const NOT_OFFERED: &[(&str, &str)] = &[
    ("assistants", "Assistants and threads are not offered."),
    ("threads", "Assistants and threads are not offered."),
    ("conversations", "Stored conversations are not offered."),
    ("vector_stores", "Vector stores are not offered."),
    ("fine_tuning", "Fine-tuning is not offered."),
    ("fine-tunes", "Fine-tuning is not offered."),
    ("uploads", "Uploads in parts are not offered; send the file to /v1/files."),
    ("realtime", "Realtime sessions are not offered."),
    ("containers", "Containers are not offered."),
    ("skills", "Skills are not offered."),
    ("evals", "Evaluations are not offered."),
    ("videos", "Video is not offered."),
    ("mcp", "MCP servers are not offered."),
    ("tools", "Server-side tools are not offered; declare the tools in the request."),
    ("convert", "Document conversion is not offered."),
    ("organization", "Administration is not offered at this address."),
];

/// Paths of other services that look like the id of an object of this API, each with the sentence of its refusal.
const ACTIONS_NOT_OFFERED: &[(&str, &str)] = &[(
    "/v1/responses/compact",
    "Compaction of conversations is not offered; ask for a summary at /v1/responses.",
)];

/// Returns the 404 that replaces a 405 if the path is not one of this API: an action that only other services have, or
/// an unknown path below an object, such as `/v1/files/{id}/x`. Returns `None` for a known path, and below models, whose
/// ids may have slashes.
pub(super) fn unknown_action_error(path: &str) -> Option<ApiError> {
    if let Some((_, sentence)) = ACTIONS_NOT_OFFERED.iter().find(|(action, _)| *action == path) {
        return Some(ApiError::with_message(ErrorCode::NotFound, *sentence));
    }
    let mut patterns = ENDPOINTS.iter().map(|endpoint| endpoint.path());
    let object = patterns.clone().find(|pattern| is_below_object(pattern, path))?;
    let is_action = patterns
        .any(|pattern| !pattern.ends_with("/*") && route_table::match_pattern(pattern, path).is_some());
    (!is_action).then(|| unknown_subpath_error(object, path))
}

/// Returns true if a path leads below an object of this pattern. Models are excluded, because their ids may have
/// slashes.
pub(super) fn is_below_object(pattern: &str, path: &str) -> bool {
    pattern.ends_with("/*")
        && pattern != "/v1/models/*"
        && route_table::match_pattern(pattern, path).is_some_and(|id| id.contains('/'))
}

/// Returns the 404 of an unknown path below an object: it names the path that the client probably meant, or else the
/// paths of the object.
pub(super) fn unknown_subpath_error(object: &str, path: &str) -> ApiError {
    let refusal = unknown_path_error(path);
    if refusal.details.contains_key("path") {
        return refusal;
    }
    let mut paths: Vec<String> = ENDPOINTS
        .iter()
        .map(|endpoint| endpoint.path())
        .filter(|known| known.starts_with(object))
        .map(|known| known.replace('*', "{id}"))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    let message =
        format!("There is nothing at this path; the paths of such an object are {}.", paths.join(", "));
    ApiError::with_message(ErrorCode::NotFound, message).with_details_member("paths", paths)
}

/// Returns the 404 of an unknown path.
pub(super) fn unknown_path_error(path: &str) -> ApiError {
    let decoded = decode_segment(path);
    let is_encoded = *decoded != *path;
    let path = &*decoded;
    let segments = significant_segments(path);
    if let Some(sentence) = not_offered(&segments) {
        return ApiError::with_message(ErrorCode::NotFound, sentence);
    }
    let Some((right, more)) = suggest(&segments) else { return ApiError::new(ErrorCode::NotFound) };
    let why = if path.contains("//") {
        " The base address of this client must not end with a slash."
    } else if lacks_version_prefix(path) && right.starts_with("/v1/") {
        " The base address of this client needs /v1 at its end."
    } else if is_encoded {
        " The path of this client must not be percent-encoded."
    } else {
        ""
    };
    let right = right.replace('*', "{id}");
    let before = if more.is_empty() { "" } else { " " };
    let message = format!("There is nothing at this path; use {right}.{why}{before}{more}");
    ApiError::with_message(ErrorCode::NotFound, message).with_details_member("path", right.as_str())
}

/// Returns the path that a client probably meant by an unknown path, and whose errors it expects.
pub(super) fn suggested_path(path: &str) -> Option<&'static str> {
    let decoded = decode_segment(path);
    let segments = significant_segments(&decoded);
    let name = segments.last().map(|last| last.rsplit_once(':').map_or(*last, |(_, method)| method));
    let is_foreign = |name: &str| FOREIGN_TOKEN_COUNTS.iter().any(|known| known.eq_ignore_ascii_case(name));
    if name.is_some_and(is_foreign) {
        return None;
    }
    suggest(&segments).map(|(right, _)| right)
}

fn suggest(segments: &[&str]) -> Option<(&'static str, &'static str)> {
    // A method of Google's API, such as `generateContent` in `models/m:generateContent`, is looked up by its own
    // name.
    let method = segments.last().and_then(|last| last.rsplit_once(':')).map(|(_, method)| method);
    let method =
        ALIASES.iter().find(|(name, ..)| method.is_some_and(|method| name.eq_ignore_ascii_case(method)));
    if let Some((_, right, more)) = method {
        return Some((right, more));
    }
    // Tries all segments first, then leaves out one leading segment after the other: the first segments may be a
    // repeated base path.
    for from in 0..segments.len() {
        let rest = segments.get(from..)?;
        let endpoint =
            ENDPOINTS.iter().map(|endpoint| endpoint.path()).find(|path| matches_endpoint(path, rest));
        if let Some(path) = endpoint {
            return Some((path, ""));
        }
        let renamed = ALIASES.iter().find(|(name, ..)| matches_alias(name, rest));
        if let Some((_, right, more)) = renamed {
            return Some((right, more));
        }
        let paths = ENDPOINTS.iter().map(|endpoint| endpoint.path());
        let misspelled = paths.filter_map(|path| Some((misspelling_distance(path, rest)?, path)));
        if let Some((_, path)) = misspelled.min() {
            return Some((path, ""));
        }
    }
    None
}

/// Returns the number of edits between these segments and an endpoint's path without its version; `None` if there are
/// too many edits for a misspelling.
fn misspelling_distance(path: &str, segments: &[&str]) -> Option<usize> {
    let pattern = endpoint_pattern(path)?;
    if pattern.contains('*') || pattern.split('/').count() != segments.len() {
        return None;
    }
    let mut sum = 0;
    // In a path of several segments, each segment may have an edit, however short it is: the other segments confirm
    // the meaning.
    let least = usize::from(segments.len() > 1);
    for (part, segment) in pattern.split('/').zip(segments) {
        let most = (part.len() / LETTERS_PER_EDIT).max(least);
        if part.len().abs_diff(segment.len()) > most {
            return None;
        }
        let distance = edit_distance(part.as_bytes(), segment.as_bytes());
        if distance > most {
            return None;
        }
        sum += distance;
    }
    Some(sum)
}

/// Number of letters of a segment for each edit that still counts as a misspelling.
const LETTERS_PER_EDIT: usize = 5;

/// Returns the number of insertions, deletions and replacements of letters that make two words equal, ignoring case.
fn edit_distance(one: &[u8], other: &[u8]) -> usize {
    let mut costs: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for ((with, diagonal), above) in other.iter().zip(&costs).zip(costs.iter().skip(1)) {
            let replaced = diagonal + usize::from(!letter.eq_ignore_ascii_case(with));
            let left = next.last().copied().unwrap_or(row);
            next.push(replaced.min(above + 1).min(left + 1));
        }
        costs = next;
    }
    costs.last().copied().unwrap_or_default()
}

/// Returns true if a text behind another path is the path of an endpoint, such as `v1/models` in
/// `/v1/models/v1/models`.
pub(super) fn is_repeated_path(tail: &str) -> bool {
    let segments = significant_segments(tail);
    ENDPOINTS.iter().any(|endpoint| {
        let path = endpoint.path();
        !path.contains('*') && matches_endpoint(path, &segments)
    })
}

fn not_offered(segments: &[&str]) -> Option<&'static str> {
    let starts = |name: &str| {
        let mut rest = segments.iter();
        name.split('/').all(|part| rest.next().is_some_and(|segment| segment.eq_ignore_ascii_case(part)))
    };
    NOT_OFFERED.iter().find(|(name, _)| starts(name)).map(|(_, sentence)| *sentence)
}

/// Returns the last segments of a path, without leading version or service names.
fn significant_segments(path: &str) -> Vec<&str> {
    let mut segments: Vec<&str> =
        path.rsplit('/').map(str::trim).filter(|segment| !segment.is_empty()).take(MAX_SEGMENTS).collect();
    if let Some(last) = segments.first_mut() {
        *last = last.strip_suffix(".json").unwrap_or(last);
    }
    segments.reverse();
    let start = segments.iter().position(|segment| !is_prefix(segment)).unwrap_or(segments.len());
    segments.split_off(start)
}

fn is_prefix(segment: &str) -> bool {
    PREFIXES.iter().any(|prefix| segment.eq_ignore_ascii_case(prefix))
}

fn lacks_version_prefix(path: &str) -> bool {
    path.split('/').find(|segment| !segment.is_empty()).is_some_and(|segment| !is_prefix(segment))
}

/// Returns an endpoint's path without its version.
fn endpoint_pattern(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/").or_else(|| path.strip_prefix("/v2/"))
}

/// Returns true if these segments match an endpoint's path without its version. A `*` matches one segment.
fn matches_endpoint(path: &str, segments: &[&str]) -> bool {
    let Some(pattern) = endpoint_pattern(path) else { return false };
    pattern.split('/').count() == segments.len()
        && pattern
            .split('/')
            .zip(segments)
            .all(|(part, segment)| part == "*" || segment.eq_ignore_ascii_case(part))
}

fn matches_alias(name: &str, segments: &[&str]) -> bool {
    name.split('/').count() == segments.len()
        && name.split('/').zip(segments).all(|(part, segment)| segment.eq_ignore_ascii_case(part))
}

/// Returns true if an endpoint has this path, with any method.
pub(super) fn is_endpoint_path(path: &str) -> bool {
    ENDPOINTS
        .iter()
        .any(|endpoint: &&dyn Endpoint| route_table::match_pattern(endpoint.path(), path).is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn suggestion(path: &str) -> (Option<String>, String) {
        let refusal = unknown_path_error(path);
        assert_eq!(refusal.code, ErrorCode::NotFound);
        let right = refusal.details.get("path").map(|path| path.as_str().unwrap().to_owned());
        (right, refusal.message.into_owned())
    }

    #[test]
    fn the_suggested_path_is_named() {
        for (path, right) in [
            ("/models", "/v1/models"),
            ("//v1/models", "/v1/models"),
            ("/v1//models", "/v1/models"),
            ("/v1//chat/completions", "/v1/chat/completions"),
            ("/v1/chat//completions", "/v1/chat/completions"),
            ("/chat/completions", "/v1/chat/completions"),
            ("/V1/Chat/Completions", "/v1/chat/completions"),
            ("/v1/chat/completions/chat/completions", "/v1/chat/completions"),
            ("/v1/chat/completions/models", "/v1/models"),
            ("/v1/messages/v1/messages", "/v1/messages"),
            ("/v1/v1/v1/models", "/v1/models"),
            ("/api/v1/models", "/v1/models"),
            ("/openai/deployments/d/chat/completions", "/v1/chat/completions"),
            ("/responses", "/v1/responses"),
            ("/v1/completion", "/v1/completions"),
            ("/completions", "/v1/completions"),
            ("/v1/reranking", "/v1/rerank"),
            ("/rerank", "/v1/rerank"),
            ("/v2/v2/rerank", "/v1/rerank"),
            ("/v2/embed", "/v1/embeddings"),
            ("/v1/embed", "/v1/embeddings"),
            ("/v2/chat", "/v1/chat/completions"),
            ("/v1/audio/translations", "/v1/audio/transcriptions"),
            ("/v1/messages/batches", "/v1/batches"),
            ("/messages/count_tokens", "/v1/messages/count_tokens"),
            ("/v1/images/edits", "/v1/images/generations"),
            ("/files/file-1/content", "/v1/files/{id}/content"),
            ("/api/tags", "/v1/models"),
            ("/v1/images/generate", "/v1/images/generations"),
            ("/v1/image/generations", "/v1/images/generations"),
            ("/v1/chat/completion", "/v1/chat/completions"),
            ("/chat/completoins", "/v1/chat/completions"),
            ("/v1/audio/transcription", "/v1/audio/transcriptions"),
            ("/v1/messages/count_token", "/v1/messages/count_tokens"),
            ("/v1/messages/count-tokens", "/v1/messages/count_tokens"),
            ("/v1/speech", "/v1/audio/speech"),
            ("/v1/moderation", "/v1/moderations"),
            ("/v1/embedings", "/v1/embeddings"),
            ("/v1/chats/completions", "/v1/chat/completions"),
            ("/v1/ranking", "/v1/rerank"),
            ("/generate_stream", "/v1/chat/completions"),
            ("/v1/chat/completions.json", "/v1/chat/completions"),
            ("/v1/chat/completions%20", "/v1/chat/completions"),
            ("/%76%31/chat/completions", "/v1/chat/completions"),
            ("/v1beta/models/m:generateContent", "/v1/chat/completions"),
            ("/v1beta/models/m:streamGenerateContent", "/v1/chat/completions"),
            ("/v1beta/models/m:embedContent", "/v1/embeddings"),
            ("/v1beta/models/m", "/v1/models/{id}"),
        ] {
            let (named, message) = suggestion(path);
            assert_eq!(named.as_deref(), Some(right), "{path}: {message}");
            assert!(message.contains(right), "{path}: {message}");
        }
    }

    #[test]
    fn edits_of_words_are_counted() {
        for (one, other, distance) in [
            ("messages", "messages", 0),
            ("messages", "Message", 1),
            ("completions", "completoins", 2),
            ("count_tokens", "count-token", 2),
            ("files", "", 5),
            ("", "", 0),
        ] {
            assert_eq!(edit_distance(one.as_bytes(), other.as_bytes()), distance, "{one} {other}");
        }
    }

    #[test]
    fn features_that_are_not_offered_are_named() {
        for (path, word) in [("/v1/vector_stores/vs_1/files", "Vector stores"), ("/v1/videos", "Video")] {
            let (named, message) = suggestion(path);
            assert_eq!(named, None, "{path}");
            assert!(message.contains(word) && message.contains("not offered"), "{path}: {message}");
        }
    }

    #[test]
    fn a_path_of_the_client_is_not_repeated() {
        for path in ["/", "//", "/v1", "/v1/", "/secret-word", "/v1/secret-word/x", &"/a".repeat(10_000)] {
            let (named, message) = suggestion(path);
            assert_eq!((named, message.as_str()), (None, ErrorCode::NotFound.spec().message), "{path}");
        }
        let (_, message) = suggestion("/secret-word/models");
        assert!(message.contains("/v1/models") && !message.contains("secret"), "{message}");
    }

    #[test]
    fn a_missing_version_and_a_doubled_slash_are_explained() {
        assert!(suggestion("/models").1.contains("needs /v1 at its end"));
        assert!(suggestion("//v1/models").1.contains("must not end with a slash"));
        assert!(!suggestion("/v1/reranking").1.contains("base address"));
        let (_, encoded) = suggestion("/%76%31/chat/completions");
        assert!(encoded.contains("percent-encoded") && !encoded.contains("needs /v1"), "{encoded}");
    }

    #[test]
    fn every_path_that_is_named_has_an_endpoint() {
        for (name, right, _) in ALIASES {
            assert!(is_endpoint_path(right), "{name}: {right}");
            assert!(!is_endpoint_path(&format!("/v1/{name}")), "{name} is an endpoint itself");
        }
        for (name, _) in NOT_OFFERED {
            assert!(!is_endpoint_path(&format!("/v1/{name}")), "{name}");
        }
    }
}
