//! Validation of the body: size, encoding, JSON syntax and top-level members.

use crate::field_path::{FieldPath, PathStyle, quotable_name};
use crate::limits::RequestLimits;
use crate::read;
use penstock_core::{ApiError, BodyMember, BodyMembers, ErrorCode};
use penstock_json_scan::tape::{
    JsonError, JsonErrorKind, JsonTape, JsonValue, StructureLimits, TapeNode, ValueKind, scan,
};
use std::borrow::Cow;

/// Validates that the body is JSON in UTF-8 within the limits; returns the text of the body and the nodes of its
/// values.
pub(crate) fn validate_body<'b>(
    body: &'b [u8],
    limits: &RequestLimits,
    style: PathStyle,
) -> Result<(&'b str, Vec<TapeNode>), ApiError> {
    scan_body(body, limits, style, is_opaque_member)
}

/// Validates a body that is read as an object without a schema, such as one that creates a batch: a JSON object within
/// the limits whose keys are unique, as are those of the objects in its members.
///
/// # Errors
/// Returns an error that names the byte or the member.
pub fn validate_object_body(body: &[u8], limits: &RequestLimits) -> Result<(), ApiError> {
    let style = PathStyle::Dots;
    let (text, nodes) = scan_body(body, limits, style, |_, _| false)?;
    let tape = JsonTape { text, nodes: &nodes };
    let root = RootObject::new(&tape, limits, style)?;
    for (name, value) in root.present_members().filter(|(_, value)| value.is_object()) {
        read::check_no_duplicate_keys(value, &root.member_path(name))?;
    }
    Ok(())
}

fn scan_body<'b>(
    body: &'b [u8],
    limits: &RequestLimits,
    style: PathStyle,
    is_opaque: impl Fn(&[u8], usize) -> bool,
) -> Result<(&'b str, Vec<TapeNode>), ApiError> {
    let max_body = limits.max_body.min(u32::MAX as usize);
    if body.len() > max_body {
        let sentence = format!("The request body is larger than {max_body} bytes.");
        return Err(
            ApiError::with_message(ErrorCode::TooLarge, sentence).with_details_member("max_bytes", max_body)
        );
    }
    let Ok(text) = simdutf8::basic::from_utf8(body) else { return Err(not_utf8(body)) };
    if body.trim_ascii().is_empty() {
        let sentence = "The request body is empty: expected a JSON object.";
        return Err(ApiError::with_message(ErrorCode::InvalidRequest, sentence));
    }
    let bounds = StructureLimits { depth: limits.max_depth, nodes: limits.max_values };
    match scan(body, bounds, is_opaque) {
        Ok(nodes) => Ok((text, nodes)),
        Err((broken, nodes)) => Err(scan_error(broken, bounds, JsonTape { text, nodes: &nodes }, style)),
    }
}

/// Returns true for members whose value is validated but recorded as one node, without nodes for its content: JSON
/// schemas, tool arguments, metadata. So a reader cannot look up members inside such a value. The content of a
/// top-level `input` gets nodes, because it is a conversation or the texts to embed; a nested `input` holds the
/// arguments of a tool.
#[inline]
pub(crate) fn is_opaque_member(name: &[u8], depth: usize) -> bool {
    // The length is compared first for speed, because this function runs for each key.
    match name.len() {
        5 => name == b"input" && depth > 1,
        6 => name == b"schema",
        8 => name == b"metadata",
        10 => name == b"parameters",
        12 => name == b"input_schema",
        _ => false,
    }
}

fn not_utf8(body: &[u8]) -> ApiError {
    let valid = std::str::from_utf8(body).map_or_else(|error| error.valid_up_to(), str::len);
    ApiError::with_message(
        ErrorCode::InvalidRequest,
        format!("The request body is not UTF-8: byte {valid} is invalid."),
    )
}

/// Returns the error for a body that is not JSON or exceeds a limit. The error names the path of the innermost value
/// that the scan reached.
fn scan_error(broken: JsonError, bounds: StructureLimits, tape: JsonTape<'_>, style: PathStyle) -> ApiError {
    let at = broken.offset;
    let mut refusal = ApiError::with_message(ErrorCode::InvalidRequest, String::new());
    let mut inside = String::new();
    if let Some(path) = tape.root().map(|root| broken_path(root, style)).filter(|path| !path.is_empty()) {
        inside = format!(" inside {path}");
        refusal = refusal.with_param(path);
    }
    let fault = describe_scan_error(broken, bounds);
    refusal.message = format!("The request body {fault}, at byte {at}{inside}.").into();
    refusal.with_details_member("byte", at)
}

/// Returns the end of an error message whose subject is the document that could not be scanned.
pub(crate) fn describe_scan_error(broken: JsonError, bounds: StructureLimits) -> String {
    match broken.kind {
        JsonErrorKind::Syntax => format!("is not valid JSON: {}", broken.reason),
        JsonErrorKind::Unrepresentable => format!("has {}", broken.reason),
        JsonErrorKind::TooDeep => {
            format!("has objects and arrays nested deeper than {} levels", bounds.depth)
        }
        JsonErrorKind::TooManyValues => format!("has more than {} keys and values", bounds.nodes),
    }
}

/// Returns the path to the value at which parsing failed. The path ends before a key that may contain private text of
/// the client, or after [`MAX_STEPS`] steps.
fn broken_path(root: JsonValue<'_>, style: PathStyle) -> String {
    let mut path = String::new();
    let mut open = root.is_unfinished().then_some(root);
    for _ in 0..MAX_STEPS {
        let Some(container) = open else { break };
        // The parse error is in the first member or element that has no value or an incomplete one.
        let unfinished = |value: Option<JsonValue<'_>>| value.is_none_or(|value| value.is_unfinished());
        let mut parts = container.partial_entries().enumerate();
        let Some((count, (key, value))) = parts.find(|(_, (_, value))| unfinished(*value)) else { break };
        match (key, style) {
            (None, PathStyle::Brackets) => path.push_str(&format!("[{count}]")),
            (None, PathStyle::Dots) => path.push_str(&format!(".{count}")),
            (Some(key), _) => {
                let Some(name) = quotable_name(&key) else { break };
                path.push_str(if path.is_empty() { "" } else { "." });
                path.push_str(&name);
            }
        }
        open = value;
    }
    path
}

/// Maximum number of steps (keys and indices) of a path into an invalid document.
const MAX_STEPS: usize = 8;

/// Minimum length in bytes of a string whose byte range is stored for later readers of the body.
const MIN_LONG_STRING: usize = 4096;

/// Top-level member of the body.
#[derive(Debug)]
struct RootMember<'d> {
    name: Cow<'d, str>,
    key: JsonValue<'d>,
    value: JsonValue<'d>,
}

/// Top-level members of the body.
#[derive(Debug)]
pub(crate) struct RootObject<'d> {
    members: Vec<RootMember<'d>>,
    style: PathStyle,
}

impl<'d> RootObject<'d> {
    /// Validates that the document is an object with unique keys.
    pub(crate) fn new(
        tape: &'d JsonTape<'d>,
        limits: &RequestLimits,
        style: PathStyle,
    ) -> Result<Self, ApiError> {
        let got = tape.root().map_or(ValueKind::Null, |root| root.kind());
        let Some(root) = tape.root().filter(JsonValue::is_object) else {
            let sentence = format!("The request body: expected an object, got {}.", got.name());
            return Err(ApiError::with_message(ErrorCode::InvalidRequest, sentence));
        };
        let mut members: Vec<RootMember<'d>> = Vec::with_capacity(16);
        for (key, value) in root.members() {
            if members.len() >= limits.max_fields {
                let sentence = format!("The request body has more than {} fields.", limits.max_fields);
                return Err(ApiError::with_message(ErrorCode::InvalidRequest, sentence));
            }
            let name = key.text();
            if members.iter().any(|earlier| earlier.name == name) {
                return Err(match quotable_name(&key) {
                    Some(name) => {
                        FieldPath::root_member(style, &name).invalid_error("the key occurs more than once")
                    }
                    None => ApiError::with_message(
                        ErrorCode::InvalidRequest,
                        "A key of the request body occurs more than once.",
                    ),
                });
            }
            members.push(RootMember { name, key, value });
        }
        Ok(Self { members, style })
    }

    /// Returns the path of a top-level member.
    pub(crate) const fn member_path<'p>(&self, name: &'p str) -> FieldPath<'p> {
        FieldPath::root_member(self.style, name)
    }

    fn member(&self, name: &str) -> Option<&RootMember<'d>> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Returns the value of a member; `null` counts as absent.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<JsonValue<'d>> {
        self.member(name).map(|member| member.value).filter(|value| !value.is_null())
    }

    /// Returns the names and values of the members that are not `null`.
    pub(crate) fn present_members(&self) -> impl Iterator<Item = (&str, JsonValue<'d>)> {
        let members = self.members.iter().filter(|member| !member.value.is_null());
        members.map(|member| (&*member.name, member.value))
    }

    /// Returns the key of a member, whose value may be `null`; `None` if there is no such member.
    pub(crate) fn member_key(&self, name: &str) -> Option<JsonValue<'d>> {
        self.member(name).map(|member| member.key)
    }

    /// Returns the total bytes of JSON in the values of the named members.
    pub(crate) fn total_value_bytes(&self, names: &[&str]) -> usize {
        names.iter().filter_map(|name| self.get(name)).map(|value| value.range().len()).sum()
    }

    /// Returns the members with their byte ranges, in the type of the core crate.
    pub(crate) fn to_body_members(&self) -> BodyMembers {
        let field = |member: &RootMember<'d>| BodyMember {
            name: member.name.as_ref().into(),
            member_range: member.key.range().start..member.value.range().end,
            value_range: member.value.range(),
            long_strings: match member.value.range().len() {
                MIN_LONG_STRING.. => member.value.long_string_ranges(MIN_LONG_STRING).collect(),
                _ => Vec::new(),
            },
        };
        BodyMembers(self.members.iter().map(field).collect())
    }
}
