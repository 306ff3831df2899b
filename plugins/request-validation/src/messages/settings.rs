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
pub(super) fn read_thinking_display(top: &RootObject<'_>) -> Result<ThinkingDisplay, ApiError> {
    let path = top.member_path("thinking");
    let Some(thinking) = top.get("thinking") else { return Ok(ThinkingDisplay::Off) };
    let [kind, budget, display] =
        read::read_named_members(thinking, &path, ["type", "budget_tokens", "display"])?;
    let words = &["enabled", "adaptive", "auto", "disabled", "between_tools"];
    let kind_path = path.member("type");
    let kind = read::require_member(kind, &kind_path, read::QuotedAlternatives(words))?;
    let kind = read::read_keyword(kind, &kind_path, words)?;
    let budget_path = path.member("budget_tokens");
    match budget {
        Some(budget) => drop(read::read_bounded_integer(budget, &budget_path, MIN_BUDGET, i64::MAX)?),
        None if kind == "enabled" => {
            return Err(budget_path.missing_error(format_args!("an integer of at least {MIN_BUDGET}")));
        }
        None => {}
    }
    let words = &["summarized", "omitted", "updates"];
    let display =
        display.map(|display| read::read_keyword(display, &path.member("display"), words)).transpose()?;
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
    let path = top.member_path("output_config");
    let mut form = None;
    if let Some(config) = top.get("output_config") {
        let [effort, format] = read::read_named_members(config, &path, ["effort", "format"])?;
        effort.map(|effort| validate_effort(effort, &path)).transpose()?;
        form = format;
    }
    if let Some(format) = form {
        return self::validate_format(format, &path.member("format"), found);
    }
    // The member `output_format` is the older name of `output_config.format`.
    match top.get("output_format") {
        Some(format) => self::validate_format(format, &top.member_path("output_format"), found),
        None => Ok(()),
    }
}

/// Validates `effort` of the configuration at `config`.
fn validate_effort(effort: JsonValue<'_>, config: &FieldPath<'_>) -> Result<(), ApiError> {
    let levels = &["low", "medium", "high", "xhigh", "max"];
    read::read_keyword(effort, &config.member("effort"), levels).map(drop)
}

/// Validates `output_config` of a message of the role `system`; returns true if it sets the effort.
pub(super) fn validate_message_config(config: JsonValue<'_>, path: &FieldPath<'_>) -> Result<bool, ApiError> {
    let [effort] = read::read_named_members(config, path, ["effort"])?;
    effort.map(|effort| validate_effort(effort, path)).transpose().map(|effort| effort.is_some())
}

/// Validates the requested format of the answer.
fn validate_format(
    format: JsonValue<'_>,
    path: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    let [kind, schema] = read::read_named_members(format, path, ["type", "schema"])?;
    let kind_path = path.member("type");
    read::read_keyword(
        read::require_member(kind, &kind_path, "\"json_schema\"")?,
        &kind_path,
        &["json_schema"],
    )?;
    let schema_path = path.member("schema");
    read::check_object(read::require_member(schema, &schema_path, "a JSON schema")?, &schema_path)?;
    found.needs.json_schema = true;
    Ok(())
}
