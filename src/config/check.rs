//! Validation of a document against the schema. It reports every mistake at once: unknown and missing keys, wrong
//! types, values out of range. Invalid values are removed, so that the rest can still be checked.

use super::diagnostic::Diagnostic;
use super::scalar_check::{
    choice_list, decimal_as_text, invalid_value_reason, placeholder_for_invalid_value, scalar_remedy,
    suggested_line,
};
use super::spanned_toml::{SpannedValue, Value};
use super::suggest;
use serde_json::Value as Json;

/// Document that matches the schema, after invalid values were removed or replaced.
pub struct SanitizedDocument {
    /// Document without its invalid values.
    pub root: SpannedValue,
    /// Paths of invalid or missing values that were replaced by a valid placeholder, so that the rest of their block
    /// can be checked too.
    pub guessed: Vec<String>,
    /// Paths of invalid values that were removed.
    pub removed: Vec<String>,
}

/// Validates a document and removes its invalid values.
pub fn check_schema(root: SpannedValue, schema: &Json, mistakes: &mut Vec<Diagnostic>) -> SanitizedDocument {
    let location = root.location.clone();
    let mut checker = SchemaChecker { mistakes, guessed: Vec::new(), removed: Vec::new() };
    let root = checker
        .check_value(root, schema, "")
        .unwrap_or(SpannedValue { location, value: Value::Table(Vec::new()) });
    SanitizedDocument { root, guessed: checker.guessed, removed: checker.removed }
}

struct SchemaChecker<'a> {
    mistakes: &'a mut Vec<Diagnostic>,
    guessed: Vec<String>,
    removed: Vec<String>,
}

impl SchemaChecker<'_> {
    /// Checks a value and everything in it; returns `None` if the value is invalid and must be removed.
    fn check_value(&mut self, node: SpannedValue, schema: &Json, path: &str) -> Option<SpannedValue> {
        let schema = matching_branch(&node, schema);
        let format = schema.get("format").and_then(Json::as_str).unwrap_or_default();
        if !accepts_type(&node, schema) {
            let secret = format == "secret" || path.split('.').any(|name| name == "headers");
            self.report_type_mismatch(&node, schema, path, secret);
            return None;
        }
        match node.value {
            Value::Table(members) => {
                let members = self.check_table(members, &node.location, schema, path)?;
                Some(SpannedValue { value: Value::Table(members), ..node })
            }
            Value::List(elements) => {
                let before = self.mistakes.len();
                let elements = self.check_list(elements, schema, path);
                if elements.is_empty() && schema.get("minItems").is_some() && before == self.mistakes.len() {
                    let of = schema.get("items").and_then(choice_list);
                    let fix = of.map_or_else(
                        || suggested_line(path, schema),
                        |of| format!("Write one or more of {of}, or leave it out."),
                    );
                    let node = SpannedValue { value: Value::List(Vec::new()), ..node };
                    self.report_invalid(&node, path, "It must not be empty.", &fix);
                    return None;
                }
                Some(SpannedValue { value: Value::List(elements), ..node })
            }
            _ => match invalid_value_reason(&node, schema, format) {
                Some(why) => {
                    self.report_invalid(&node, path, &why, &scalar_remedy(&node, schema, path));
                    None
                }
                None => Some(decimal_as_text(node, format)),
            },
        }
    }

    fn check_table(
        &mut self,
        members: Vec<(String, SpannedValue)>,
        location: &super::spanned_toml::FileLocation,
        schema: &Json,
        path: &str,
    ) -> Option<Vec<(String, SpannedValue)>> {
        let known = schema.get("properties").and_then(Json::as_object);
        let free = schema.get("additionalProperties");
        let mut checked = Vec::with_capacity(members.len());
        let mut seen = Vec::with_capacity(members.len());
        for (name, node) in members {
            let path = join_path(path, &name);
            seen.push(name.clone());
            if let Some(inner) = known.and_then(|known| known.get(&name)) {
                match self.check_value(node, inner, &path) {
                    Some(node) => checked.push((name, node)),
                    None => self.removed.push(path),
                }
            } else if free == Some(&Json::Bool(false)) {
                let names: Vec<&str> = known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
                self.report_unknown_key(&node, &path, &name, &names);
            } else if let Some(inner) = free.filter(|free| free.is_object()) {
                if let Some(node) = self.check_value(node, inner, &path) {
                    checked.push((name, node));
                }
            } else {
                checked.push((name, node));
            }
        }
        let required = schema.get("required").and_then(Json::as_array);
        let mut whole = true;
        for name in required.into_iter().flatten().filter_map(Json::as_str) {
            if !seen.iter().any(|seen| seen == name) {
                let inner = known.and_then(|known| known.get(name)).unwrap_or(&Json::Null);
                let about = inner.get("description").and_then(Json::as_str).unwrap_or_default();
                self.mistakes.push(Diagnostic {
                    file: location.file.to_string(),
                    line: Some(location.line),
                    key: join_path(path, name),
                    value: None,
                    reason: format!("It is missing. {about}"),
                    remedy: suggested_line(&join_path(path, name), inner),
                });
            }
            if checked.iter().any(|(checked, _)| checked == name) {
                continue;
            }
            let path = join_path(path, name);
            let inner = known.and_then(|known| known.get(name)).unwrap_or(&Json::Null);
            match placeholder_for_invalid_value(name, inner, &path) {
                Some(value) => {
                    checked.push((name.to_owned(), SpannedValue { location: location.clone(), value }));
                    self.guessed.push(path);
                }
                None => whole = false,
            }
        }
        whole.then_some(checked)
    }

    fn check_list(&mut self, elements: Vec<SpannedValue>, schema: &Json, path: &str) -> Vec<SpannedValue> {
        let inner = schema.get("items").unwrap_or(&Json::Null);
        let mut checked = Vec::with_capacity(elements.len());
        for (index, element) in elements.into_iter().enumerate() {
            let path = format!("{path}{}", path_segment(&element, index));
            checked.extend(self.check_value(element, inner, &path));
        }
        checked
    }

    fn report_unknown_key(&mut self, node: &SpannedValue, path: &str, name: &str, known_keys: &[&str]) {
        let fix = match suggest::most_similar(name, known_keys.iter().copied()) {
            Some(meant) => format!("Did you mean `{meant}`?"),
            None => format!("The keys here are: {}.", known_keys.join(", ")),
        };
        // The message does not show the value: the value of a mistyped key may be a secret.
        self.mistakes.push(Diagnostic {
            file: node.location.file.to_string(),
            line: Some(node.location.line),
            key: path.to_owned(),
            value: None,
            reason: "There is no such key.".to_owned(),
            remedy: fix,
        });
    }

    fn report_type_mismatch(&mut self, node: &SpannedValue, schema: &Json, path: &str, secret: bool) {
        let value = if secret { Some("***".to_owned()) } else { Some(node.preview()) };
        let (why, fix) = if schema.get("format").and_then(Json::as_str) == Some("secret") {
            let key = path.rsplit('.').next().unwrap_or(path);
            let name = key.to_ascii_uppercase().replace('-', "_");
            (
                "A secret must not be in the configuration itself, which gets copied, mailed and committed."
                    .to_owned(),
                format!(
                    "Write its source: `{key} = {{ env = \"{name}\" }}` or `{key} = {{ file = \"/run/secrets/{}\" }}`.",
                    key.to_ascii_lowercase()
                ),
            )
        } else {
            (
                format!("It is {}, and must be {}.", node.type_name(), expected_type(schema)),
                suggested_line(path, schema),
            )
        };
        self.mistakes.push(Diagnostic {
            file: node.location.file.to_string(),
            line: Some(node.location.line),
            key: path.to_owned(),
            value,
            reason: why,
            remedy: fix,
        });
    }

    fn report_invalid(&mut self, node: &SpannedValue, path: &str, why: &str, fix: &str) {
        self.mistakes.push(Diagnostic {
            file: node.location.file.to_string(),
            line: Some(node.location.line),
            key: path.to_owned(),
            value: Some(node.preview()),
            reason: why.to_owned(),
            remedy: fix.to_owned(),
        });
    }
}

/// Returns the path segment of a list element: its name if it has one, otherwise its index.
pub fn path_segment(element: &SpannedValue, index: usize) -> String {
    let named = element.get("id").or_else(|| element.get("name").filter(|_| element.get("model").is_none()));
    match named
        .and_then(SpannedValue::text)
        .filter(|name| !name.is_empty() && name.len() <= 80 && !name.contains('['))
    {
        Some(name) => format!(".{name}"),
        None => format!("[{index}]"),
    }
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the branch of an `anyOf` whose type matches the value.
fn matching_branch<'a>(node: &SpannedValue, schema: &'a Json) -> &'a Json {
    let branches = schema.get("anyOf").and_then(Json::as_array);
    branches.into_iter().flatten().find(|branch| accepts_type(node, branch)).unwrap_or(schema)
}

fn schema_types(schema: &Json) -> Vec<&str> {
    match schema.get("type") {
        Some(Json::String(one)) => vec![one],
        Some(Json::Array(several)) => several.iter().filter_map(Json::as_str).collect(),
        _ => {
            let branches = ["anyOf", "oneOf"].map(|key| schema.get(key).and_then(Json::as_array));
            branches.into_iter().flatten().flatten().flat_map(schema_types).collect()
        }
    }
}

fn accepts_type(node: &SpannedValue, schema: &Json) -> bool {
    let types = schema_types(schema);
    let has = |name: &str| types.contains(&name);
    types.is_empty()
        || match &node.value {
            Value::Text(_) => has("string"),
            Value::Integer(_) => has("integer") || has("number"),
            Value::Float(_) => has("number"),
            Value::Bool(_) => has("boolean"),
            Value::Date(_) => false,
            Value::List(_) => has("array"),
            Value::Table(_) => has("object"),
        }
}

fn expected_type(schema: &Json) -> String {
    if let Some(choices) = choice_list(schema) {
        return format!("one of {choices}");
    }
    match schema.get("format").and_then(Json::as_str).unwrap_or_default() {
        "duration" | "pause" => return "a duration in quotes".to_owned(),
        "size" => return "a size".to_owned(),
        "decimal" => return "a number".to_owned(),
        _ => {}
    }
    let names: Vec<&str> = schema_types(schema)
        .into_iter()
        .map(|name| match name {
            "string" => "a string",
            "integer" => "an integer",
            "number" => "a number",
            "boolean" => "`true` or `false`",
            "array" => "an array",
            _ => "a table",
        })
        .collect();
    names.join(" or ")
}
