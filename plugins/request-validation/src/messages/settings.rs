//! Validation of top-level objects that control the answer: `thinking`, `output_config`.

use super::MessagesFindings;
use crate::body::RootObject;
use crate::field_path::FieldPath;
use crate::read;
use penstock_core::{ApiError, ThinkingDisplay};
use penstock_json_scan::tape::JsonValue;

/// Minimum thinking budget, in tokens.
const MIN_BUDGET: i64 = 1024;

/// Validates `thinking`; returns the form in which reasoning is shown.
pub(super) fn read_thinking(top: &RootObject<'_>) -> Result<ThinkingDisplay, ApiError> {
    let path = top.path("thinking");
    let Some(thinking) = top.get("thinking") else { return Ok(ThinkingDisplay::Off) };
    let [kind, budget, display] = read::object(thinking, &path, ["type", "budget_tokens", "display"])?;
    let words = &["enabled", "adaptive", "disabled", "between_tools"];
    let kind_path = path.key("type");
    let kind = read::required(kind, &kind_path, read::QuotedAlternatives(words))?;
    let kind = read::one_of(kind, &kind_path, words)?;
    let budget_path = path.key("budget_tokens");
    match budget {
        Some(budget) => drop(read::integer(budget, &budget_path, MIN_BUDGET, i64::MAX)?),
        None if kind == "enabled" => {
            return Err(budget_path.missing(format_args!("an integer of at least {MIN_BUDGET}")));
        }
        None => {}
    }
    let words = &["summarized", "omitted", "updates"];
    let display = display.map(|display| read::one_of(display, &path.key("display"), words)).transpose()?;
    Ok(match (kind, display) {
        ("disabled", _) => ThinkingDisplay::Off,
        (_, Some("omitted")) => ThinkingDisplay::Omitted,
        _ => ThinkingDisplay::Shown,
    })
}

/// Validates `output_config` and the older `output_format`.
pub(super) fn validate_output_config(
    top: &RootObject<'_>,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    let path = top.path("output_config");
    let mut form = None;
    if let Some(config) = top.get("output_config") {
        let [effort, format] = read::object(config, &path, ["effort", "format"])?;
        if let Some(effort) = effort {
            read::one_of(effort, &path.key("effort"), &["low", "medium", "high", "xhigh", "max"])?;
        }
        form = format;
    }
    if let Some(format) = form {
        return self::validate_format(format, &path.key("format"), found);
    }
    // The member `output_format` is the older name of `output_config.format`.
    match top.get("output_format") {
        Some(format) => self::validate_format(format, &top.path("output_format"), found),
        None => Ok(()),
    }
}

/// Validates the requested format of the answer.
fn validate_format(
    format: JsonValue<'_>,
    path: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    let [kind, schema] = read::object(format, path, ["type", "schema"])?;
    let kind_path = path.key("type");
    read::one_of(read::required(kind, &kind_path, "\"json_schema\"")?, &kind_path, &["json_schema"])?;
    let schema_path = path.key("schema");
    read::check_object(read::required(schema, &schema_path, "a JSON schema")?, &schema_path)?;
    found.needs.json_schema = true;
    Ok(())
}
