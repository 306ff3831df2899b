//! Writer of a JSON object, member by member.

use serde_json::Value;

/// JSON object under construction.
pub(crate) struct JsonObjectBuilder(String);

impl JsonObjectBuilder {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds a member whose value is `json`, written unchanged.
    pub(crate) fn add_json(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
    }

    /// Adds a member whose value is a string.
    pub(crate) fn add_text(&mut self, name: &str, text: &str) {
        self.add_json(name, &Value::from(text).to_string());
    }

    /// Adds a member whose value is a list of strings.
    pub(crate) fn add_strings(&mut self, name: &str, texts: &[String]) {
        self.add_json(name, &Value::from(texts).to_string());
    }

    /// Adds a member whose value is a boolean.
    pub(crate) fn add_bool(&mut self, name: &str, value: bool) {
        self.add_json(name, if value { "true" } else { "false" });
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
