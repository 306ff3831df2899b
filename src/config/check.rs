//! Validation of a document against the schema. It reports every mistake at once: unknown and missing keys, wrong
//! types, values out of range. Invalid values are removed, so that the rest can still be checked.

use super::diagnostic::Mistake;
use super::scalar_check::{choices, fault, fix, guess, kept};
use super::spanned_toml::{Node, Value};
use super::suggest;
use serde_json::Value as Json;

/// A document that matches the schema.
pub struct Checked {
    /// Document without its invalid values.
    pub root: Node,
    /// Paths where a harmless value replaces an invalid or missing one, so that the rest of its block can be checked
    /// too.
    pub guessed: Vec<String>,
}

/// Validates a document and removes its invalid values.
pub fn check(root: Node, schema: &Json, mistakes: &mut Vec<Mistake>) -> Checked {
    let place = root.place.clone();
    let mut checker = Checker { mistakes, guessed: Vec::new() };
    let root = checker.node(root, schema, "").unwrap_or(Node { place, value: Value::Table(Vec::new()) });
    Checked { root, guessed: checker.guessed }
}

struct Checker<'a> {
    mistakes: &'a mut Vec<Mistake>,
    guessed: Vec<String>,
}

impl Checker<'_> {
    /// Returns `None` if the value must be removed.
    fn node(&mut self, node: Node, schema: &Json, path: &str) -> Option<Node> {
        let schema = branch(&node, schema);
        let format = schema.get("format").and_then(Json::as_str).unwrap_or_default();
        if !admits(&node, schema) {
            let secret = format == "secret" || path.contains(".headers.");
            self.wrong_type(&node, schema, path, secret);
            return None;
        }
        match node.value {
            Value::Table(members) => {
                let members = self.table(members, &node.place, schema, path)?;
                Some(Node { value: Value::Table(members), ..node })
            }
            Value::List(elements) => {
                let before = self.mistakes.len();
                let elements = self.list(elements, schema, path);
                if elements.is_empty() && schema.get("minItems").is_some() && before == self.mistakes.len() {
                    let of = schema.get("items").and_then(choices);
                    let fix = of.map_or_else(
                        || fix(path, schema),
                        |of| format!("Write one or more of {of}, or leave it out."),
                    );
                    let node = Node { value: Value::List(Vec::new()), ..node };
                    self.tell(&node, path, "It must not be empty.", &fix);
                    return None;
                }
                Some(Node { value: Value::List(elements), ..node })
            }
            _ => match fault(&node, schema, format) {
                Some(why) => {
                    self.tell(&node, path, &why, &fix(path, schema));
                    None
                }
                None => Some(kept(node, format)),
            },
        }
    }

    fn table(
        &mut self,
        members: Vec<(String, Node)>,
        place: &super::spanned_toml::Place,
        schema: &Json,
        path: &str,
    ) -> Option<Vec<(String, Node)>> {
        let known = schema.get("properties").and_then(Json::as_object);
        let free = schema.get("additionalProperties");
        let mut kept = Vec::with_capacity(members.len());
        let mut seen = Vec::with_capacity(members.len());
        for (name, node) in members {
            let path = join(path, &name);
            seen.push(name.clone());
            if let Some(inner) = known.and_then(|known| known.get(&name)) {
                if let Some(node) = self.node(node, inner, &path) {
                    kept.push((name, node));
                }
            } else if free == Some(&Json::Bool(false)) {
                let names: Vec<&str> = known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
                self.unknown(&node, &path, &name, &names);
            } else if let Some(inner) = free.filter(|free| free.is_object()) {
                if let Some(node) = self.node(node, inner, &path) {
                    kept.push((name, node));
                }
            } else {
                kept.push((name, node));
            }
        }
        let required = schema.get("required").and_then(Json::as_array);
        let mut whole = true;
        for name in required.into_iter().flatten().filter_map(Json::as_str) {
            if !seen.iter().any(|seen| seen == name) {
                let inner = known.and_then(|known| known.get(name)).unwrap_or(&Json::Null);
                let about = inner.get("description").and_then(Json::as_str).unwrap_or_default();
                self.mistakes.push(Mistake {
                    file: place.file.to_string(),
                    line: Some(place.line),
                    key: join(path, name),
                    value: None,
                    why: format!("It is missing. {about}"),
                    fix: fix(&join(path, name), inner),
                });
            }
            if kept.iter().any(|(kept, _)| kept == name) {
                continue;
            }
            let path = join(path, name);
            let inner = known.and_then(|known| known.get(name)).unwrap_or(&Json::Null);
            match guess(name, inner, &path) {
                Some(value) => {
                    kept.push((name.to_owned(), Node { place: place.clone(), value }));
                    self.guessed.push(path);
                }
                None => whole = false,
            }
        }
        whole.then_some(kept)
    }

    fn list(&mut self, elements: Vec<Node>, schema: &Json, path: &str) -> Vec<Node> {
        let inner = schema.get("items").unwrap_or(&Json::Null);
        let mut kept = Vec::with_capacity(elements.len());
        for (index, element) in elements.into_iter().enumerate() {
            let path = format!("{path}{}", segment(&element, index));
            kept.extend(self.node(element, inner, &path));
        }
        kept
    }

    fn unknown(&mut self, node: &Node, path: &str, name: &str, known: &[&str]) {
        let fix = match suggest::nearest(name, known.iter().copied()) {
            Some(meant) => format!("Did you mean `{meant}`?"),
            None => format!("The keys here are: {}.", known.join(", ")),
        };
        // The message leaves out the value: a mistyped key may hold a secret.
        self.mistakes.push(Mistake {
            file: node.place.file.to_string(),
            line: Some(node.place.line),
            key: path.to_owned(),
            value: None,
            why: "There is no such key.".to_owned(),
            fix,
        });
    }

    fn wrong_type(&mut self, node: &Node, schema: &Json, path: &str, secret: bool) {
        let value = if secret { Some("***".to_owned()) } else { Some(node.written()) };
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
            (format!("It is {}, and must be {}.", node.what(), expected(schema)), fix(path, schema))
        };
        self.mistakes.push(Mistake {
            file: node.place.file.to_string(),
            line: Some(node.place.line),
            key: path.to_owned(),
            value,
            why,
            fix,
        });
    }

    fn tell(&mut self, node: &Node, path: &str, why: &str, fix: &str) {
        self.mistakes.push(Mistake {
            file: node.place.file.to_string(),
            line: Some(node.place.line),
            key: path.to_owned(),
            value: Some(node.written()),
            why: why.to_owned(),
            fix: fix.to_owned(),
        });
    }
}

/// Path segment of a list element: its name if it has one, otherwise its index.
pub fn segment(element: &Node, index: usize) -> String {
    let named = element.get("id").or_else(|| element.get("name").filter(|_| element.get("model").is_none()));
    match named
        .and_then(Node::text)
        .filter(|name| !name.is_empty() && name.len() <= 80 && !name.contains('['))
    {
        Some(name) => format!(".{name}"),
        None => format!("[{index}]"),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the branch of an `anyOf` whose type matches the value.
fn branch<'a>(node: &Node, schema: &'a Json) -> &'a Json {
    let branches = schema.get("anyOf").and_then(Json::as_array);
    branches.into_iter().flatten().find(|branch| admits(node, branch)).unwrap_or(schema)
}

fn types(schema: &Json) -> Vec<&str> {
    match schema.get("type") {
        Some(Json::String(one)) => vec![one],
        Some(Json::Array(several)) => several.iter().filter_map(Json::as_str).collect(),
        _ => {
            let branches = schema.get("anyOf").and_then(Json::as_array);
            branches.into_iter().flatten().flat_map(types).collect()
        }
    }
}

fn admits(node: &Node, schema: &Json) -> bool {
    let types = types(schema);
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

fn expected(schema: &Json) -> String {
    if let Some(choices) = choices(schema) {
        return format!("one of {choices}");
    }
    match schema.get("format").and_then(Json::as_str).unwrap_or_default() {
        "duration" | "pause" => return "a duration in quotes".to_owned(),
        "size" => return "a size".to_owned(),
        "decimal" => return "a number".to_owned(),
        _ => {}
    }
    let names: Vec<&str> = types(schema)
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
