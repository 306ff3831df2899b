//! Check of the values of a refused member: a value that does not request the feature is accepted.

use super::RefusedValues;
use super::RefusedValues::{
    BackgroundWindow, BigEndian, ContextEdits, ForcedTool, FormatNotText, GuidedMembers, ModeNotOff,
    NestedFormat, NonEmpty, NonTextModalities, NotFloat, NotFloat32, NotTrue, OutsideEu, Present, Prewarm,
    ProviderConstraints, RunnerOptions, SeveralChoices, ThirdPartyPayment,
};
use crate::field_path::{FieldPath, quotable_name};
use penstock_core::ApiError;
use penstock_json_scan::tape::{JsonValue, ValueKind};

/// Prefix of context edits that can be ignored: they only remove the thinking of earlier turns, and a model that
/// needs this thinking reads it anyway.
const HARMLESS_EDIT_PREFIX: &str = "clear_thinking_";

/// End of the error message for a request that requires zero data retention. The gateway cannot check the retention,
/// because the configuration of a provider does not state the retention.
const RETENTION_ADVICE: &str = "providers are in the EU and never train on requests, but the retention of each is known to the operator alone";

impl RefusedValues {
    /// Returns the error if the value requests the refused feature.
    pub(super) fn refusal(self, value: JsonValue<'_>, path: &FieldPath<'_>, about: &str) -> Option<ApiError> {
        let asks = match self {
            Present => true,
            NonEmpty => is_non_empty(value),
            OutsideEu => !value.is_string() || !is_eu_region(&value.text()),
            ThirdPartyPayment => !is_absent_or_keyword(member(value, "bill_to"), &["self"]),
            ModeNotOff => {
                is_non_empty(value) && !member(value, "mode").is_some_and(|mode| mode.equals_text("off"))
            }
            ForcedTool => is_non_empty(value) && !is_absent_or_keyword(Some(value), &["auto", "none"]),
            SeveralChoices => value.raw() != "1",
            ContextEdits => return first_changing_edit(value, path, about),
            ProviderConstraints => {
                return first_member(value, path, about, is_provider_constraint)
                    .or_else(|| first_member(value, path, RETENTION_ADVICE, is_retention_constraint));
            }
            GuidedMembers => return first_member(value, path, about, is_guided_member),
            Prewarm => {
                return first_member(value, path, about, |name, value| {
                    name == "prewarm" && is_non_empty(value)
                });
            }
            BackgroundWindow if !value.is_object() => is_non_empty(value),
            BackgroundWindow => return first_member(value, path, about, is_other_window),
            NotFloat => is_non_empty(value) && !is_float(value),
            NotFloat32 => is_non_empty(value) && !is_absent_or_keyword(Some(value), &["float32", "float"]),
            BigEndian => is_non_empty(value) && !is_absent_or_keyword(Some(value), &["native", "little"]),
            NotTrue => !matches!(value.kind(), ValueKind::True | ValueKind::Null),
            FormatNotText => is_format(value),
            NestedFormat => {
                return first_member(value, path, about, |name, value| name == "format" && is_format(value));
            }
            NonTextModalities => {
                !value.is_array() || value.items().any(|modality| !modality.equals_text("text"))
            }
            RunnerOptions => return first_member(value, path, about, is_runner_constraint),
        };
        asks.then(|| path.unsupported_error(about))
    }
}

/// Returns true if the value is not `null`, `false` or empty.
fn is_non_empty(value: JsonValue<'_>) -> bool {
    match value.kind() {
        ValueKind::Null | ValueKind::False => false,
        ValueKind::Object | ValueKind::Array => !value.has_no_entries(),
        // A blank is a value: a stop sequence, for example.
        ValueKind::String | ValueKind::EscapedString => !value.raw_inner_text().is_empty(),
        ValueKind::True | ValueKind::Number => true,
    }
}

/// Returns true for names of regions in the European Union, and of larger regions that include the Union. All providers
/// are in the Union.
fn is_eu_region(region: &str) -> bool {
    let region = region.trim().to_ascii_lowercase();
    let whole = ["", "eu", "europe", "global", "auto", "any", "default", "not_available"];
    whole.contains(&&*region) || region.starts_with("eu-") || region.starts_with("eu_")
}

/// Returns true if the member is absent, or its value is one of the given words.
fn is_absent_or_keyword(value: Option<JsonValue<'_>>, words: &[&str]) -> bool {
    value.is_none_or(|value| words.iter().any(|word| value.equals_text(word)))
}

fn member<'d>(object: JsonValue<'d>, name: &str) -> Option<JsonValue<'d>> {
    let found = object.members().find(|(key, _)| key.equals_text(name)).map(|(_, value)| value);
    found.filter(|value| !value.is_null())
}

/// Returns the error for the first context edit that changes what the model reads; `None` if there is no such edit.
fn first_changing_edit(value: JsonValue<'_>, path: &FieldPath<'_>, about: &str) -> Option<ApiError> {
    let list = path.member("edits");
    let edits = member(value, "edits");
    for (index, edit) in edits.iter().flat_map(JsonValue::items).enumerate() {
        let kind = member(edit, "type");
        if !kind.is_some_and(|kind| kind.text().starts_with(HARMLESS_EDIT_PREFIX)) {
            return Some(list.item(index).member("type").unsupported_error(about));
        }
    }
    let odd = !value.is_object() || edits.is_some_and(|edits| !edits.is_array());
    odd.then(|| path.unsupported_error(about))
}

/// Returns the error for the first member of an object for which `asks` returns true; `None` if there is no such
/// member.
fn first_member(
    object: JsonValue<'_>,
    path: &FieldPath<'_>,
    about: &str,
    asks: fn(&str, JsonValue<'_>) -> bool,
) -> Option<ApiError> {
    let found = object.members().find(|(key, value)| asks(&key.text(), *value));
    found.map(|(key, _)| match quotable_name(&key) {
        Some(name) => path.member(&name).unsupported_error(about),
        None => path.unsupported_error(about),
    })
}

/// Returns true for a member of `provider` that excludes providers of the model, or that orders them. `data_collection`
/// is not such a member, because no provider trains models on requests.
fn is_provider_constraint(name: &str, value: JsonValue<'_>) -> bool {
    let constrains = matches!(name, "only" | "order" | "ignore" | "quantizations" | "max_price");
    constrains && is_non_empty(value)
}

/// Returns true for the member of `provider` that excludes providers which retain requests.
fn is_retention_constraint(name: &str, value: JsonValue<'_>) -> bool {
    name == "zdr" && is_non_empty(value)
}

/// Returns true for a member of `background_options` other than `completion_window: "soonest"`, with which every
/// background response runs.
fn is_other_window(name: &str, value: JsonValue<'_>) -> bool {
    is_non_empty(value) && !(name == "completion_window" && value.equals_text("soonest"))
}

/// Returns true for a member of `nvext` that constrains the answer.
fn is_guided_member(name: &str, value: JsonValue<'_>) -> bool {
    let constrains = matches!(
        name,
        "guided_json"
            | "guided_regex"
            | "guided_choice"
            | "guided_grammar"
            | "ignore_eos"
            | "max_thinking_tokens"
    );
    constrains && is_non_empty(value)
}

/// Returns true for a format of the answer other than text.
fn is_format(value: JsonValue<'_>) -> bool {
    is_non_empty(value) && !member(value, "type").is_some_and(|kind| kind.equals_text("text"))
}

/// Returns true for an option of a model runner such as Ollama that constrains the answer. A negative `num_predict`
/// means no cap.
fn is_runner_constraint(name: &str, value: JsonValue<'_>) -> bool {
    match name {
        "num_predict" => is_non_empty(value) && !value.raw().starts_with('-'),
        "stop" | "format" => is_non_empty(value),
        _ => false,
    }
}

/// Returns true for `float`, alone or as the only element of a list.
fn is_float(value: JsonValue<'_>) -> bool {
    value.equals_text("float") || (value.is_array() && value.items().all(|kind| kind.equals_text("float")))
}
