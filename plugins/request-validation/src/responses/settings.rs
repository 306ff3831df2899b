//! Settings of a response: format, reasoning, limits, and members that the gateway only repeats in the answer.

use super::chat_body::ChatBodyWriter;
use super::check_string;
use crate::body::RootObject;
use crate::field_path::is_quotable;
use crate::{read, scalars};
use penstock_core::{ApiError, ReasoningDisplay};
use penstock_json_scan::json;

const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const SUMMARIES: &[&str] = &["auto", "concise", "detailed", "none"];
const VERBOSITIES: &[&str] = &["low", "medium", "high"];
const FORMATS: &[&str] = &["text", "json_object", "json_schema"];
/// String members that the gateway only repeats in the response object.
const STRINGS: &[&str] = &["prompt_cache_key", "safety_identifier", "service_tier", "user"];
/// Value of `include` for log probabilities of the text.
const LOGPROBS: &str = "message.output_text.logprobs";
/// Value of `include` for reasoning that the client sends back.
pub const ENCRYPTED_REASONING_INCLUDE: &str = "reasoning.encrypted_content";
/// Values of `include`. Those for the output of tools have no effect, because the gateway runs no tools.
pub const INCLUDE_VALUES: &[&str] = &[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    LOGPROBS,
    ENCRYPTED_REASONING_INCLUDE,
    "web_search_call.action.sources",
    "web_search_call.results",
];
/// Maximum number of pairs in `metadata`, and maximum characters of a key and of a value.
const MAX_METADATA: (usize, usize, usize) = (16, 64, 512);

/// Validated settings of a request to `/v1/responses`.
#[derive(Debug, Default)]
pub(super) struct ResponseSettings<'d> {
    /// `text.format`, unless it is plain text.
    format: Option<ResponseFormat<'d>>,
    verbosity: Option<&'static str>,
    pub(super) effort: Option<&'static str>,
    /// `reasoning`, if it has members of other vendors that the chat form supports too (`enabled`, `max_tokens`).
    reasoning: Option<&'d str>,
    pub(super) summary: Option<&'static str>,
    pub(super) reasoning_display: ReasoningDisplay,
    /// True if the answer must contain the reasoning in a form that the client sends back: `encrypted_content`.
    pub(super) seals_reasoning: bool,
    max_output_tokens: Option<&'d str>,
    wants_logprobs: bool,
    top_logprobs: Option<&'d str>,
}

#[derive(Debug)]
enum ResponseFormat<'d> {
    JsonObject,
    /// Members of `json_schema`, in the form of the chat dialect.
    JsonSchema(Vec<(&'static str, &'d str)>),
}

/// Validates and returns the settings of a request.
pub(super) fn read_settings<'d>(top: &RootObject<'d>) -> Result<ResponseSettings<'d>, ApiError> {
    let mut settings = ResponseSettings::default();
    read_text(top, &mut settings)?;
    read_reasoning(top, &mut settings)?;
    read_include(top, &mut settings)?;
    scalars::read_token_count(top, "max_output_tokens", 1)?;
    settings.max_output_tokens = top.get("max_output_tokens").map(|value| value.raw());
    if let Some(count) = top.get("top_logprobs") {
        let most = read::read_bounded_integer(count, &top.member_path("top_logprobs"), 0, 20)?;
        settings.top_logprobs = (most > 0).then(|| count.raw());
    }
    if let Some(count) = top.get("max_tool_calls") {
        read::read_bounded_integer(count, &top.member_path("max_tool_calls"), 1, i64::MAX)?;
    }
    scalars::read_optional_keyword(top, "truncation", &["auto", "disabled"])?;
    for name in ["store", "parallel_tool_calls"] {
        scalars::read_bool_or_false(top, name)?;
    }
    STRINGS.iter().try_for_each(|name| check_string(top, name))?;
    check_metadata(top)?;
    if let Some(options) = top.get("stream_options") {
        let path = top.member_path("stream_options");
        let [obfuscation] = read::read_named_members(options, &path, ["include_obfuscation"])?;
        read::read_optional_bool(obfuscation, &path.member("include_obfuscation"))?;
    }
    Ok(settings)
}

fn read_text<'d>(top: &RootObject<'d>, settings: &mut ResponseSettings<'d>) -> Result<(), ApiError> {
    let Some(text) = top.get("text") else { return Ok(()) };
    let path = top.member_path("text");
    let [format, verbosity] = read::read_named_members(text, &path, ["format", "verbosity"])?;
    settings.verbosity =
        verbosity.map(|word| read::read_keyword(word, &path.member("verbosity"), VERBOSITIES)).transpose()?;
    let Some(format) = format else { return Ok(()) };
    let path = path.member("format");
    let [kind, name, schema, strict, description] =
        read::read_named_members(format, &path, ["type", "name", "schema", "strict", "description"])?;
    let kind_path = path.member("type");
    let kind = read::require_member(kind, &kind_path, read::QuotedAlternatives(FORMATS))?;
    match read::read_keyword(kind, &kind_path, FORMATS)? {
        "json_object" => {
            settings.format = Some(match schema {
                // Some engines accept a schema with this type.
                Some(schema) => {
                    read::check_object(schema, &path.member("schema"))?;
                    ResponseFormat::JsonSchema(vec![("name", r#""output""#), ("schema", schema.raw())])
                }
                None => ResponseFormat::JsonObject,
            });
        }
        "json_schema" => {
            let name = read::require_text_member(name, &path.member("name"))?;
            let schema_path = path.member("schema");
            let schema = read::require_member(schema, &schema_path, "a JSON schema")?;
            read::check_object(schema, &schema_path)?;
            read::read_optional_bool(strict, &path.member("strict"))?;
            description.map(|text| read::require_string(text, &path.member("description"))).transpose()?;
            let members = [
                ("name", Some(name)),
                ("description", description),
                ("schema", Some(schema)),
                ("strict", strict),
            ];
            let members = members.into_iter().filter_map(|(name, value)| Some((name, value?.raw())));
            settings.format = Some(ResponseFormat::JsonSchema(members.collect()));
        }
        _ => {}
    }
    Ok(())
}

fn read_reasoning<'d>(top: &RootObject<'d>, settings: &mut ResponseSettings<'d>) -> Result<(), ApiError> {
    let Some(reasoning) = top.get("reasoning") else { return Ok(()) };
    let path = top.member_path("reasoning");
    let names = ["effort", "summary", "generate_summary", "enabled", "max_tokens", "mode", "context"];
    let [effort, summary, older, enabled, budget, mode, context] =
        read::read_named_members(reasoning, &path, names)?;
    settings.effort =
        effort.map(|word| read::read_keyword(word, &path.member("effort"), EFFORTS)).transpose()?;
    settings.summary =
        summary.map(|word| read::read_keyword(word, &path.member("summary"), SUMMARIES)).transpose()?;
    let older = older
        .map(|word| read::read_keyword(word, &path.member("generate_summary"), SUMMARIES))
        .transpose()?;
    settings.summary = settings.summary.or(older);
    if settings.summary.is_some_and(|word| word != "none") {
        settings.reasoning_display = ReasoningDisplay::Summary;
    }
    read::read_optional_bool(enabled, &path.member("enabled"))?;
    budget
        .map(|tokens| read::read_bounded_integer(tokens, &path.member("max_tokens"), 0, i64::MAX))
        .transpose()?;
    for (name, word, usual) in [("mode", mode, "standard"), ("context", context, "auto")] {
        let path = path.member(name);
        if word
            .map(|word| read::require_string(word, &path))
            .transpose()?
            .is_some_and(|word| !word.equals_text(usual))
        {
            return Err(path.unsupported_error(format_args!("only \"{usual}\" is supported; leave it out")));
        }
    }
    settings.reasoning = (enabled.is_some() || budget.is_some()).then(|| reasoning.raw());
    Ok(())
}

/// Checks `metadata`, which the response repeats: a few short strings.
fn check_metadata(top: &RootObject<'_>) -> Result<(), ApiError> {
    let Some(metadata) = top.get("metadata") else { return Ok(()) };
    let path = top.member_path("metadata");
    read::check_object(metadata, &path)?;
    let (most_pairs, most_key, most_value) = MAX_METADATA;
    // The metadata is parsed from its text, because the parsed nodes of the body do not contain the members of
    // `metadata`.
    let (mut members, mut keys) = (json::members(metadata.raw().as_bytes()), Vec::new());
    while let Some((key, value)) = members.next_unescaped() {
        if keys.len() >= most_pairs {
            return Err(path.invalid_error(format_args!("expected at most {most_pairs} pairs")));
        }
        if key.chars().count() > most_key {
            return Err(path.invalid_error(format_args!("expected keys of at most {most_key} characters")));
        }
        // A key is text of the client, which may be a secret.
        let invalid = |expected: &str| match is_quotable(&key) {
            true => path.member(&key).invalid_error(format_args!("expected {expected}")),
            false => path.invalid_error(format_args!("expected {expected} in each value")),
        };
        if keys.contains(&key) {
            return Err(path.invalid_error("a key occurs more than once"));
        }
        let inside = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        let Some(inside) = inside else { return Err(invalid("a string")) };
        if json::unescape_lossy(inside).is_some_and(|text| text.chars().count() > most_value) {
            return Err(invalid(&format!("at most {most_value} characters")));
        }
        keys.push(key);
    }
    Ok(())
}

/// Reads `include`.
fn read_include<'d>(top: &RootObject<'d>, settings: &mut ResponseSettings<'d>) -> Result<(), ApiError> {
    let Some(include) = top.get("include") else { return Ok(()) };
    let path = top.member_path("include");
    for (index, item) in read::require_array(include, &path)?.items().enumerate() {
        let word = read::read_keyword(item, &path.item(index), INCLUDE_VALUES)?;
        settings.wants_logprobs |= word == LOGPROBS;
        settings.seals_reasoning |= word == ENCRYPTED_REASONING_INCLUDE;
    }
    Ok(())
}

impl ResponseSettings<'_> {
    /// Returns true if the settings write this member of the chat form.
    pub(super) fn writes_member(&self, name: &str) -> bool {
        match name {
            "response_format" => self.format.is_some(),
            "verbosity" => self.verbosity.is_some(),
            "reasoning_effort" => self.effort.is_some(),
            "max_tokens" | "max_completion_tokens" => self.max_output_tokens.is_some(),
            "logprobs" => self.wants_logprobs || self.top_logprobs.is_some(),
            _ => false,
        }
    }

    /// Writes the settings as members of the chat request.
    pub(super) fn write(&self, out: &mut ChatBodyWriter) {
        match &self.format {
            None => {}
            Some(ResponseFormat::JsonObject) => {
                out.write_member("response_format", r#"{"type":"json_object"}"#)
            }
            Some(ResponseFormat::JsonSchema(members)) => {
                out.write_member("response_format", r#"{"type":"json_schema","json_schema":{"#);
                for (at, (name, value)) in members.iter().enumerate() {
                    out.write_raw_json(if at == 0 { "\"" } else { ",\"" });
                    out.write_raw_json(name);
                    out.write_raw_json("\":");
                    out.write_raw_json(value);
                }
                out.write_raw_json("}}");
            }
        }
        for (name, word) in [("verbosity", self.verbosity), ("reasoning_effort", self.effort)] {
            if let Some(word) = word {
                out.write_string_member(name, word);
            }
        }
        if let (Some(reasoning), None) = (self.reasoning, self.effort) {
            out.write_member("reasoning", reasoning);
        }
        if let Some(cap) = self.max_output_tokens {
            out.write_member("max_completion_tokens", cap);
        }
        // An error names the first member that a provider does not support, so the one that the client sent comes first.
        if let Some(count) = self.top_logprobs {
            out.write_member("top_logprobs", count);
        }
        if self.wants_logprobs || self.top_logprobs.is_some() {
            out.write_member("logprobs", "true");
        }
    }
}
