//! Constraints on the output that a request states: a response format, or a schema, pattern, choice or grammar of an
//! engine. A request may state one constraint under several names; the provider gets it once.

use crate::constraint_conflicts::{self, conflict_error};
use crate::structured_output::{
    self, ANY_OBJECT_SCHEMA, STRUCTURED_OUTPUTS_MEMBER, STRUCTURED_OUTPUTS_OPTIONS,
};
use crate::{json_cursor, parameters};
use penstock_core::{ApiError, AttemptTarget, InferenceRequest, RequestBodyFormat};
use penstock_json_scan::json;
use std::borrow::Cow;

/// Engine parameters that constrain the whole output: a schema, a pattern, a choice or a grammar.
pub(crate) const OUTPUT_CONSTRAINTS: [&str; 12] = [
    "ebnf",
    "grammar",
    "guided_choice",
    "guided_decoding_params",
    "guided_grammar",
    "guided_json",
    "guided_json_object",
    "guided_regex",
    "json_schema",
    "regex",
    "structural_tag",
    STRUCTURED_OUTPUTS_MEMBER,
];

/// Kind of a constraint. Constraints of different kinds are never equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConstraintKind {
    Schema,
    Regex,
    Choice,
    Grammar,
    StructuralTag,
    /// Constraint that can be equal only to another value of the same member.
    Other,
}

impl ConstraintKind {
    /// Returns the kind of an engine parameter, or of a member of `structured_outputs`.
    fn of_member(name: &str) -> Self {
        match name {
            "guided_json" | "json_schema" | "guided_json_object" | "json" | "json_object" => Self::Schema,
            "guided_regex" | "regex" => Self::Regex,
            "guided_choice" | "choice" => Self::Choice,
            "guided_grammar" | "grammar" | "ebnf" => Self::Grammar,
            "structural_tag" => Self::StructuralTag,
            _ => Self::Other,
        }
    }
}

/// Constraint on the output, as the request states it.
#[derive(Clone, Debug)]
pub(crate) struct GivenConstraint<'a> {
    /// Top-level member of the request.
    pub(crate) member: &'static str,
    /// Member inside the top-level member.
    pub(crate) key: Option<Cow<'a, str>>,
    kind: ConstraintKind,
    /// Value to compare; for a request of any JSON object, the schema that every object matches.
    value: &'a [u8],
}

impl<'a> GivenConstraint<'a> {
    /// Returns a constraint by an engine parameter.
    fn of_parameter(member: &'static str, key: Option<Cow<'a, str>>, value: &'a [u8]) -> Self {
        let name = key.as_deref().unwrap_or(member);
        let kind = ConstraintKind::of_member(name);
        match name {
            "guided_json_object" | "json_object" if value == b"true" => {
                Self { member, key, kind, value: ANY_OBJECT_SCHEMA }
            }
            "guided_json_object" | "json_object" => Self { member, key, kind: ConstraintKind::Other, value },
            _ => Self { member, key, kind, value },
        }
    }

    /// Returns a constraint by a response format. `schema` is the schema inside `format`; `None` for a format of an
    /// unknown type.
    fn of_format(
        member: &'static str,
        key: Option<&'static str>,
        format: &'a [u8],
        schema: Option<&'a [u8]>,
    ) -> Self {
        let kind = if schema.is_some() { ConstraintKind::Schema } else { ConstraintKind::Other };
        Self { member, key: key.map(Cow::Borrowed), kind, value: schema.unwrap_or(format) }
    }

    /// Returns true for a response format.
    pub(crate) fn is_format(&self) -> bool {
        matches!(self.member, "response_format" | "output_config" | "output_format")
    }

    /// Returns true for a member of `structured_outputs` that the gateway does not know.
    fn is_unknown(&self) -> bool {
        let is_known =
            |key: &str| ConstraintKind::of_member(key) != ConstraintKind::Other || key == "json_object";
        self.member == STRUCTURED_OUTPUTS_MEMBER && self.key.as_deref().is_some_and(|key| !is_known(key))
    }

    /// Returns the error of an unknown constraint beside another one.
    fn unknown_error(&self) -> ApiError {
        let path = self.path();
        let sentence = match path == self.member {
            true => format!("`{path}` has an unknown member."),
            false => format!("`{path}` is unknown."),
        };
        ApiError::unsupported(path, sentence)
    }

    /// Returns the path of the constraint in the request.
    fn path(&self) -> String {
        self.key.as_deref().map_or_else(|| self.member.to_owned(), |key| constraint_path(self.member, key))
    }

    fn equals(&self, other: &Self) -> bool {
        let is_same_member = self.member == other.member && self.key == other.key;
        match self.kind {
            _ if self.kind != other.kind => false,
            ConstraintKind::Schema => constraint_conflicts::is_same_schema(self.value, other.value),
            ConstraintKind::Other if !is_same_member => false,
            _ => constraint_conflicts::is_same_value(self.value, other.value),
        }
    }
}

/// Member of a request in which the provider gets the constraint on the output.
#[derive(Debug, Default)]
pub(crate) struct SelectedConstraint {
    /// Top-level members that state the constraint, each with true if the offer takes the constraint from it.
    members: Vec<(&'static str, bool)>,
}

impl SelectedConstraint {
    /// Selects the first member that the offer takes according to `takes`. A member with several constraints is taken
    /// if each of them is.
    ///
    /// # Errors
    /// Returns `Unsupported` with the path of the response format, or else of the later constraint, if two constraints
    /// differ. The message has both paths.
    pub(crate) fn new(
        ask: &InferenceRequest,
        takes: impl Fn(&GivenConstraint<'_>) -> bool,
    ) -> Result<Self, ApiError> {
        let mut selected = Self::default();
        let mut first: Option<GivenConstraint<'_>> = None;
        let mut previous: Option<GivenConstraint<'_>> = None;
        visit_constraints(ask, &mut |given| {
            let is_taken = takes(&given);
            match selected.members.last_mut().filter(|(member, _)| *member == given.member) {
                Some((_, is_member_taken)) => *is_member_taken &= is_taken,
                None => selected.members.push((given.member, is_taken)),
            }
            // Each constraint is compared with the previous one, so that a long value is parsed at most twice. All of
            // them are equal to the first one.
            if let (Some(first), Some(previous)) = (&first, &previous)
                && !previous.equals(&given)
            {
                if let Some(unknown) = [first, &given].into_iter().find(|one| one.is_unknown()) {
                    return Err(unknown.unknown_error());
                }
                let param = if first.is_format() { first.path() } else { given.path() };
                return Err(conflict_error(param, &first.path(), &given.path()));
            }
            first.get_or_insert_with(|| given.clone());
            previous = Some(given);
            Ok(())
        })?;
        Ok(selected)
    }

    /// Selects the member of a messages request, whose format every provider gets.
    ///
    /// # Errors
    /// Returns the errors of [`SelectedConstraint::new`].
    pub(crate) fn of_messages_request(
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Self, ApiError> {
        Self::new(ask, |given| given.is_format() || target.capabilities.accepts_parameter(given.member))
    }

    /// Returns true if the provider gets the constraint of this member from another member, which is equal.
    pub(crate) fn is_redundant(&self, name: &str) -> bool {
        let taken = self.members.iter().find(|(_, is_taken)| *is_taken);
        taken.is_some_and(|(taken, _)| *taken != name)
            && self.members.iter().any(|(member, _)| *member == name)
    }
}

/// Returns the path of a member inside another one. A name that is long or unusual is left out.
pub(crate) fn constraint_path(member: &str, key: &str) -> String {
    let is_plain = key.len() <= 40 && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain { format!("{member}.{key}") } else { member.to_owned() }
}

/// Calls `visit` with each constraint: first the response format, and `structured_outputs` last.
fn visit_constraints<'a>(
    ask: &'a InferenceRequest,
    visit: &mut dyn FnMut(GivenConstraint<'a>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    match ask.dialect.request_body_format() {
        RequestBodyFormat::Chat => {
            if structured_output::has_response_format(ask) {
                let format = ask.member_value("response_format").unwrap_or_default();
                visit(GivenConstraint::of_format("response_format", None, format, chat_schema(format)))?;
            }
        }
        RequestBodyFormat::Messages => {
            let config = ask.member_value("output_config");
            if let Some(format) = config.and_then(|config| json_cursor::member_value(config, "format")) {
                visit(GivenConstraint::of_format(
                    "output_config",
                    Some("format"),
                    format,
                    messages_schema(format),
                ))?;
            }
            if let Some(format) = ask.member_value("output_format") {
                visit(GivenConstraint::of_format("output_format", None, format, messages_schema(format)))?;
            }
        }
    }
    for member in OUTPUT_CONSTRAINTS {
        let Some(value) = requested_value(ask, member) else { continue };
        if member != STRUCTURED_OUTPUTS_MEMBER || !json_cursor::is_object(value) {
            visit(GivenConstraint::of_parameter(member, None, value))?;
            continue;
        }
        json_cursor::members(value)
            .filter(|(key, value)| !has_no_effect(key, value))
            .try_for_each(|(key, value)| visit(GivenConstraint::of_parameter(member, Some(key), value)))?;
    }
    Ok(())
}

/// Returns the schema that a format of a chat request demands; `None` for a format of an unknown type.
fn chat_schema(format: &[u8]) -> Option<&[u8]> {
    let kind = json_cursor::member_value(format, "type")?;
    let is_known = ["json_object", "json_schema"].iter().any(|known| json::json_string_equals(kind, known));
    is_known.then(|| structured_output::schema_of_format(format).unwrap_or(ANY_OBJECT_SCHEMA))
}

/// Returns the schema that a format of a messages request demands; `None` for an invalid format.
fn messages_schema(format: &[u8]) -> Option<&[u8]> {
    let kind = json_cursor::member_value(format, "type")?;
    let schema = json_cursor::member_value(format, "schema").filter(|schema| json_cursor::is_object(schema));
    schema.filter(|_| json::json_string_equals(kind, "json_schema"))
}

/// Returns the value of a member if it has an effect, and `None` otherwise.
pub(crate) fn requested_value<'a>(ask: &'a InferenceRequest, name: &str) -> Option<&'a [u8]> {
    let value = ask.member_value(name)?;
    parameters::find_engine_parameter(name)?.has_effect(value).then_some(value)
}

/// Returns true if a member of `structured_outputs` constrains nothing.
pub(crate) fn has_no_effect(key: &str, value: &[u8]) -> bool {
    matches!(value, b"null" | b"false") || STRUCTURED_OUTPUTS_OPTIONS.contains(&key)
}
