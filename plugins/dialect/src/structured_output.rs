//! Constraints on the output that an engine enforces: a schema, a pattern, a choice or a grammar.
//!
//! Older versions of vLLM name these members `guided_…`; newer ones accept them inside `structured_outputs`. A JSON
//! schema is equivalent to `response_format` of type `json_schema`. An offer that lists one of these names gets the
//! constraint under that name, whichever name the client used.

use crate::body_builder::BodyBuilder;
use crate::output_constraint::{
    GivenConstraint, OUTPUT_CONSTRAINTS, SelectedConstraint, constraint_path, has_no_effect, requested_value,
};
use crate::{json_cursor, parameters};
use penstock_core::{ApiError, AttemptTarget, Dialect, InferenceRequest, OfferCapabilities};
use penstock_json_scan::json;
use std::borrow::Cow;

/// Constraint of structured output: its name inside `structured_outputs`, and its older name.
struct ConstraintName {
    key: &'static str,
    legacy_name: &'static str,
}

const CONSTRAINTS: [ConstraintName; 4] = [
    ConstraintName { key: "json", legacy_name: "guided_json" },
    ConstraintName { key: "regex", legacy_name: "guided_regex" },
    ConstraintName { key: "choice", legacy_name: "guided_choice" },
    ConstraintName { key: "grammar", legacy_name: "guided_grammar" },
];
/// Members of `structured_outputs` that are options, not constraints.
pub(crate) const STRUCTURED_OUTPUTS_OPTIONS: [&str; 5] = [
    "disable_fallback",
    "disable_any_whitespace",
    "disable_additional_properties",
    "whitespace_pattern",
    "backend",
];
/// Request member of newer vLLM versions that contains the constraints on the output.
pub(crate) const STRUCTURED_OUTPUTS_MEMBER: &str = "structured_outputs";

/// Returns true if an offer accepts a JSON schema for its output, under any name.
#[must_use]
pub fn accepts_json_schema(abilities: &OfferCapabilities) -> bool {
    ["response_format", "structured_outputs", "guided_json", "json_schema"]
        .iter()
        .any(|name| abilities.accepts_parameter(name))
}

/// Name under which an offer accepts a JSON schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemaName {
    ResponseFormat,
    StructuredOutputs,
    /// Member whose value is the schema.
    Schema(&'static str),
}

impl SchemaName {
    /// Returns the name for an offer: `response_format` unless the offer lists only other names. A responses provider
    /// always gets `response_format`, which is later converted to the member of that dialect.
    fn for_target(target: &AttemptTarget<'_>) -> Self {
        let lists = |name| target.capabilities.accepts_parameter(name);
        match () {
            () if target.dialect == Dialect::Responses => Self::ResponseFormat,
            () if lists("response_format") => Self::ResponseFormat,
            () if lists(STRUCTURED_OUTPUTS_MEMBER) => Self::StructuredOutputs,
            () if lists("guided_json") => Self::Schema("guided_json"),
            () if lists("json_schema") => Self::Schema("json_schema"),
            () => Self::ResponseFormat,
        }
    }
}

/// Returns true if an offer gets the response format in another member than `response_format`.
pub(crate) fn replaces_response_format(target: &AttemptTarget<'_>) -> bool {
    SchemaName::for_target(target) != SchemaName::ResponseFormat
}

/// Returns true if a member must not be written, because the offer gets the response format in another member than
/// `response_format`. The members are all constraints on the output: [`SelectedConstraint`] refuses those that differ
/// from the response format.
pub(crate) fn is_replaced_by_format(target: &AttemptTarget<'_>, name: &str) -> bool {
    OUTPUT_CONSTRAINTS.contains(&name) && replaces_response_format(target)
}

/// Returns true if an offer accepts a constraint of a chat request, under the name that the client used or another one.
pub(crate) fn accepts_constraint(abilities: &OfferCapabilities, constraint: &GivenConstraint<'_>) -> bool {
    let lists = |name: &str| abilities.accepts_parameter(name);
    let word = CONSTRAINTS.iter().find(|word| match &constraint.key {
        Some(key) => word.key == *key,
        None => word.legacy_name == constraint.member,
    });
    match word {
        _ if constraint.is_format() => true,
        Some(word) => {
            let as_format = word.is_schema() && lists("response_format");
            lists(word.legacy_name) || lists(STRUCTURED_OUTPUTS_MEMBER) || as_format
        }
        None if constraint.key.as_deref() == Some("json_object") && lists("response_format") => true,
        None => lists(constraint.member),
    }
}

/// Returns true if a messages provider accepts a constraint of a chat request: as the format of the answer, or under
/// the name that the client used.
pub(crate) fn messages_provider_accepts_constraint(
    abilities: &OfferCapabilities,
    constraint: &GivenConstraint<'_>,
) -> bool {
    match is_translated_constraint(constraint.member) {
        true => accepts_constraint(&format_capabilities(abilities), constraint),
        false => constraint.is_format() || abilities.accepts_parameter(constraint.member),
    }
}

/// Writes a JSON schema in the member that the offer lists instead of `response_format`, after a comma. Without a
/// schema, requests any object. Returns false, and writes nothing, if the caller must write `response_format`.
pub(crate) fn write_schema(
    schema: Option<&[u8]>,
    target: &AttemptTarget<'_>,
    out: &mut BodyBuilder<'_>,
) -> bool {
    match (SchemaName::for_target(target), schema) {
        (SchemaName::ResponseFormat, _) => return false,
        (SchemaName::StructuredOutputs, None) => {
            out.push_str(r#","structured_outputs":{"json_object":true}"#);
        }
        (SchemaName::StructuredOutputs, Some(schema)) => {
            out.push_str(r#","structured_outputs":{"json":"#);
            out.push_source(schema);
            out.push_byte(b'}');
        }
        (SchemaName::Schema(name), schema) => {
            out.push_str(",\"");
            out.push_str(name);
            out.push_str("\":");
            match schema {
                Some(schema) => out.push_source(schema),
                None => out.push_str(r#"{"type":"object"}"#),
            }
        }
    }
    true
}

/// Returns true if a member is a constraint that [`write_constraints`] translates.
pub(crate) fn is_translated_constraint(name: &str) -> bool {
    name == STRUCTURED_OUTPUTS_MEMBER || CONSTRAINTS.iter().any(|word| word.legacy_name == name)
}

/// Constraints of a request under the names that an offer accepts.
#[derive(Default)]
struct ConstraintMembers<'a> {
    /// Members at the top level of the request body, with unchanged values.
    members: Vec<(&'static str, &'a [u8])>,
    /// Members to write inside the object `structured_outputs`.
    structured_outputs: Vec<(&'static str, &'a [u8])>,
    /// JSON schema to request with `response_format`.
    response_schema: Option<Cow<'a, [u8]>>,
    /// True if `response_format` must request any JSON object.
    json_object: bool,
}

/// Writes the constraints of a chat request for a chat provider, each after a comma.
///
/// # Errors
/// Returns `Unsupported` for a constraint that the offer does not accept, and `InvalidRequest` for an invalid schema.
pub(crate) fn write_constraints(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    selected: &SelectedConstraint,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    if has_response_format(ask) && replaces_response_format(target) {
        let format = ask.member_value("response_format").unwrap_or_default();
        write_schema(schema_of_format(format), target, out);
        return Ok(());
    }
    let constraints = translate_constraints(ask, target.capabilities, selected)?;
    for (name, value) in &constraints.members {
        out.push_str(",\"");
        out.push_str(name);
        out.push_str("\":");
        out.push_source(value);
    }
    for (at, (key, value)) in constraints.structured_outputs.iter().enumerate() {
        out.push_str(if at == 0 { r#","structured_outputs":{""# } else { ",\"" });
        out.push_str(key);
        out.push_str("\":");
        out.push_source(value);
    }
    if !constraints.structured_outputs.is_empty() {
        out.push_byte(b'}');
    }
    if let Some(schema) = &constraints.response_schema {
        out.push_str(r#","response_format":{"type":"json_schema","json_schema":{"name":"output","schema":"#);
        out.push_source(schema);
        out.push_str("}}");
    } else if constraints.json_object {
        out.push_str(r#","response_format":{"type":"json_object"}"#);
    }
    Ok(())
}

/// Returns the JSON schema that the engine parameters of a chat request contain, for a provider that accepts no other
/// constraint; `None` without such a parameter. The offer must list one of the names for a schema, and
/// `response_format` if any object is requested.
///
/// # Errors
/// Returns `Unsupported` for any other constraint, and for a schema that the offer does not accept.
pub(crate) fn engine_parameter_schema<'a>(
    ask: &'a InferenceRequest,
    abilities: &OfferCapabilities,
    selected: &SelectedConstraint,
) -> Result<Option<Cow<'a, [u8]>>, ApiError> {
    let translated = translate_constraints(ask, &format_capabilities(abilities), selected)?;
    if translated.json_object && !abilities.accepts_parameter("response_format") {
        return Err(parameters::unsupported_error(&format!("{STRUCTURED_OUTPUTS_MEMBER}.json_object")));
    }
    Ok(translated
        .response_schema
        .or_else(|| translated.json_object.then_some(Cow::Borrowed(ANY_OBJECT_SCHEMA))))
}

/// JSON schema that every object matches.
pub(crate) const ANY_OBJECT_SCHEMA: &[u8] = br#"{"type":"object"}"#;

/// Returns the capabilities of an offer that gets each constraint as the format of the answer.
fn format_capabilities(abilities: &OfferCapabilities) -> OfferCapabilities {
    let only = accepts_json_schema(abilities).then(|| "response_format".into());
    OfferCapabilities { parameters: only.into_iter().collect(), ..OfferCapabilities::default() }
}

/// Translates the constraints that the offer does not get from another member. All of them are equal.
fn translate_constraints<'a>(
    ask: &'a InferenceRequest,
    abilities: &OfferCapabilities,
    selected: &SelectedConstraint,
) -> Result<ConstraintMembers<'a>, ApiError> {
    let mut translated = ConstraintMembers::default();
    let requested = |name| requested_value(ask, name).filter(|_| !selected.is_redundant(name));
    for word in &CONSTRAINTS {
        let Some(value) = requested(word.legacy_name) else { continue };
        translated.add(abilities, word, value, word.legacy_name)?;
    }
    let Some(newer) = requested(STRUCTURED_OUTPUTS_MEMBER) else { return Ok(translated) };
    if abilities.accepts_parameter(STRUCTURED_OUTPUTS_MEMBER) && translated.structured_outputs.is_empty() {
        translated.members.push((STRUCTURED_OUTPUTS_MEMBER, newer));
    } else {
        translated.add_structured_outputs(abilities, newer)?;
    }
    Ok(translated)
}

impl ConstraintName {
    /// Returns true if the constraint is a JSON schema.
    fn is_schema(&self) -> bool {
        self.key == "json"
    }
}

impl<'a> ConstraintMembers<'a> {
    /// Adds a constraint, given at `path`, under the name that the offer accepts.
    ///
    /// # Errors
    /// Returns `Unsupported` if the offer does not accept the constraint, and `InvalidRequest` for an invalid schema.
    fn add(
        &mut self,
        abilities: &OfferCapabilities,
        word: &ConstraintName,
        value: &'a [u8],
        path: &str,
    ) -> Result<(), ApiError> {
        if abilities.accepts_parameter(word.legacy_name) {
            set_member(&mut self.members, word.legacy_name, value);
        } else if abilities.accepts_parameter(STRUCTURED_OUTPUTS_MEMBER) {
            set_member(&mut self.structured_outputs, word.key, value);
        } else if word.is_schema() && abilities.accepts_parameter("response_format") {
            self.response_schema = Some(parse_schema(value, path)?);
        } else {
            return Err(parameters::unsupported_error(path));
        }
        Ok(())
    }

    /// Adds each constraint of `structured_outputs`. Called if the offer does not accept `structured_outputs`, or gets
    /// an equal constraint in it.
    fn add_structured_outputs(
        &mut self,
        abilities: &OfferCapabilities,
        newer: &'a [u8],
    ) -> Result<(), ApiError> {
        for (key, value) in json_cursor::members(newer).filter(|(key, value)| !has_no_effect(key, value)) {
            let path = || constraint_path(STRUCTURED_OUTPUTS_MEMBER, &key);
            match CONSTRAINTS.iter().find(|word| word.key == key) {
                Some(word) => self.add(abilities, word, value, &path())?,
                None if key == "json_object" && abilities.accepts_parameter("response_format") => {
                    self.json_object = true;
                }
                None => return Err(parameters::unsupported_error(&path())),
            }
        }
        Ok(())
    }
}

/// Sets a member of a list. The values of one name are equal, so that the last one is written.
fn set_member<'a>(list: &mut Vec<(&'static str, &'a [u8])>, name: &'static str, value: &'a [u8]) {
    match list.iter_mut().find(|(known, _)| *known == name) {
        Some((_, earlier)) => *earlier = value,
        None => list.push((name, value)),
    }
}

/// Returns true if the request has a `response_format` of a type other than `text`.
pub(crate) fn has_response_format(ask: &InferenceRequest) -> bool {
    let kind =
        ask.member_value("response_format").and_then(|format| json_cursor::member_value(format, "type"));
    kind.is_some_and(|kind| !json::json_string_equals(kind, "text"))
}

/// Returns the schema inside a `response_format`, from its member `json_schema`, or from its member `schema` or `value`,
/// which some engines accept with the type `json_object`. `None` if any object is allowed.
pub(crate) fn schema_of_format(format: &[u8]) -> Option<&[u8]> {
    let named = json_cursor::member_value(format, "json_schema");
    let schema = named.and_then(|named| json_cursor::member_value(named, "schema"));
    let has_value = || {
        let kind = json_cursor::member_value(format, "type").unwrap_or_default();
        json::json_string_equals(kind, "json_object")
    };
    let schema = schema
        .or_else(|| {
            json_cursor::member_value(format, "schema").filter(|schema| !json_cursor::is_null(schema))
        })
        .or_else(|| json_cursor::member_value(format, "value").filter(|_| has_value()));
    schema.filter(|schema| json_cursor::is_object(schema))
}

/// Returns a JSON schema that is an object, or a string that contains one, as engines also accept it.
fn parse_schema<'a>(value: &'a [u8], path: &str) -> Result<Cow<'a, [u8]>, ApiError> {
    let none =
        || ApiError::invalid(path, format!("`{path}` must be a JSON schema: an object, or a string of one."));
    if json_cursor::is_object(value) {
        return Ok(Cow::Borrowed(value));
    }
    let text = json_cursor::parse_string(value).ok_or_else(none)?.into_owned();
    let mut members = json::members(text.as_bytes());
    members.by_ref().for_each(drop);
    if !members.is_complete() {
        return Err(none());
    }
    Ok(Cow::Owned(text.into_bytes()))
}
