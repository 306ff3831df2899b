//! Request that creates a batch, validated field by field.

use crate::completion_window;
use crate::jsonl::AllowedPaths;
use penstock_core::ApiError;
use serde_json::{Map, Value};

/// Maximum number of metadata pairs.
const MAX_PAIRS: usize = 16;
/// Maximum length of the name of a metadata pair, in characters.
const MAX_NAME_CHARS: usize = 64;
/// Maximum length of the value of a metadata pair, in characters.
const MAX_VALUE_CHARS: usize = 512;

/// Validated request to create a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateBatchRequest {
    /// Id of the uploaded input file.
    pub input_file_id: String,
    /// API path of the lines, one of the allowed ones.
    pub endpoint: &'static str,
    /// Completion window as the client wrote it.
    pub completion_window: String,
    /// Completion window in seconds.
    pub window_seconds: u64,
    /// Metadata pairs, in the order of the client.
    pub metadata: Vec<(String, String)>,
}

impl CreateBatchRequest {
    /// Parses the body of a create request; `urls` are the allowed endpoints. Unknown fields are ignored.
    ///
    /// # Errors
    /// Returns a refusal that names the first invalid field.
    pub fn parse(body: &[u8], urls: AllowedPaths) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|_| ApiError::invalid("body", "body: expected a JSON object"))?;
        let Value::Object(fields) = value else {
            return Err(ApiError::invalid("body", "body: expected a JSON object"));
        };
        let input_file_id = match fields.get("input_file_id") {
            Some(Value::String(id)) if !id.is_empty() => id.clone(),
            _ => {
                let expected =
                    "input_file_id: expected the id of a file that was uploaded with purpose \"batch\"";
                return Err(ApiError::invalid("input_file_id", expected));
            }
        };
        let endpoint = parse_endpoint(fields.get("endpoint"), urls)?;
        let completion_window = match fields.get("completion_window") {
            None | Some(Value::Null) => completion_window::DEFAULT_WINDOW,
            Some(Value::String(text)) => text,
            Some(_) => "",
        };
        let window = completion_window::parse_window(completion_window)
            .map_err(|expected| ApiError::invalid("completion_window", expected))?;
        let completion_window = completion_window.to_owned();
        let metadata = parse_metadata(fields.get("metadata"))?;
        if fields.get("output_expires_after").is_some_and(|policy| !policy.is_null()) {
            let sentence =
                "output_expires_after: results are kept like all files; delete the output file instead.";
            return Err(ApiError::unsupported("output_expires_after", sentence));
        }
        Ok(Self { input_file_id, endpoint, completion_window, window_seconds: window, metadata })
    }
}

fn parse_endpoint(value: Option<&Value>, urls: AllowedPaths) -> Result<&'static str, ApiError> {
    let asked = value.and_then(Value::as_str);
    urls.iter().copied().find(|known| Some(*known) == asked).ok_or_else(|| {
        let known = urls.join(", ");
        ApiError::invalid("endpoint", format!("endpoint: expected one of {known}"))
    })
}

fn parse_metadata(value: Option<&Value>) -> Result<Vec<(String, String)>, ApiError> {
    let pairs: &Map<String, Value> = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(pairs)) => pairs,
        Some(_) => return Err(ApiError::invalid("metadata", "metadata: expected an object of strings")),
    };
    if pairs.len() > MAX_PAIRS {
        return Err(ApiError::invalid("metadata", format!("metadata: expected at most {MAX_PAIRS} pairs")));
    }
    let mut read = Vec::with_capacity(pairs.len());
    for (name, value) in pairs {
        if name.chars().count() > MAX_NAME_CHARS {
            let expected = format!("metadata: expected names of at most {MAX_NAME_CHARS} characters");
            return Err(ApiError::invalid("metadata", expected));
        }
        match value {
            Value::String(text) if text.chars().count() <= MAX_VALUE_CHARS => {
                read.push((name.clone(), text.clone()))
            }
            _ => {
                let expected =
                    format!("metadata: expected strings of at most {MAX_VALUE_CHARS} characters as values");
                return Err(ApiError::invalid(metadata_path(name), expected));
            }
        }
    }
    Ok(read)
}

/// Returns the path of a metadata value for an error: only `metadata` if the name of the value is not a short
/// identifier, since such a name may be a secret.
fn metadata_path(name: &str) -> String {
    if ApiError::may_quote(name) { format!("metadata.{name}") } else { "metadata".to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use serde_json::json;

    const URLS: AllowedPaths = &["/v1/chat/completions", "/v1/rerank"];

    fn read(value: &Value) -> Result<CreateBatchRequest, ApiError> {
        CreateBatchRequest::parse(value.to_string().as_bytes(), URLS)
    }

    fn good() -> Value {
        json!({"input_file_id": "file-1", "endpoint": "/v1/chat/completions"})
    }

    fn with(name: &str, value: Value) -> Value {
        let mut body = good();
        body[name] = value;
        body
    }

    #[test]
    fn the_default_window_is_a_day() {
        let create = read(&good()).unwrap();
        assert_eq!((create.completion_window.as_str(), create.window_seconds), ("24h", 86_400));
        assert!(create.metadata.is_empty());
        assert_eq!(read(&with("completion_window", json!("2d"))).unwrap().window_seconds, 172_800);
    }

    #[test]
    fn the_results_cannot_expire_at_a_time_of_their_own() {
        let policy = json!({"anchor": "created_at", "seconds": 3600});
        let refusal = read(&with("output_expires_after", policy)).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("output_expires_after"));
        assert!(read(&with("output_expires_after", Value::Null)).is_ok());
    }

    #[test]
    fn every_endpoint_is_taken_and_no_other() {
        for endpoint in URLS {
            assert_eq!(read(&with("endpoint", json!(endpoint))).unwrap().endpoint, *endpoint);
        }
        for invalid in
            [json!("/v1/messages"), json!("/v1/audio/transcriptions"), json!(""), json!(7), json!(null)]
        {
            let refusal = read(&with("endpoint", invalid)).unwrap_err();
            assert_eq!(refusal.param.as_deref(), Some("endpoint"));
            assert_eq!(refusal.message, "endpoint: expected one of /v1/chat/completions, /v1/rerank");
        }
    }

    #[test]
    fn each_mistake_names_its_field() {
        let many: Map<String, Value> = (0..17).map(|i| (i.to_string(), json!("x"))).collect();
        for (name, invalid, param) in [
            ("input_file_id", json!(null), "input_file_id"),
            ("input_file_id", json!(""), "input_file_id"),
            ("input_file_id", json!(["x"]), "input_file_id"),
            ("completion_window", json!("soon"), "completion_window"),
            ("completion_window", json!(24), "completion_window"),
            ("metadata", json!([]), "metadata"),
            ("metadata", Value::Object(many), "metadata"),
            ("metadata", json!({"a": 1}), "metadata.a"),
            ("metadata", json!({"a": "x".repeat(513)}), "metadata.a"),
            ("metadata", json!({"my secret plan": 1}), "metadata"),
            ("metadata", json!({"a".repeat(65): "x"}), "metadata"),
        ] {
            let refusal = read(&with(name, invalid)).unwrap_err();
            assert_eq!(refusal.param.as_deref(), Some(param));
            assert!(refusal.message.contains("expected"), "{}", refusal.message);
        }
        for body in [&b"[]"[..], b"", b"{", b"\"x\""] {
            assert_eq!(CreateBatchRequest::parse(body, URLS).unwrap_err().param.as_deref(), Some("body"));
        }
    }

    #[test]
    fn metadata_keeps_its_order() {
        let create = read(&with("metadata", json!({"b": "1", "a": "2"}))).unwrap();
        assert_eq!(create.metadata, [("b".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
    }
}
