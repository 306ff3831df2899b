//! Writer of a JSON object, member by member.

use serde_json::Value;

/// JSON object under construction.
pub(crate) struct JsonObject(String);

impl JsonObject {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds a member whose value is `json`, written unchanged.
    pub(crate) fn raw_member(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
    }

    pub(crate) fn text_member(&mut self, name: &str, text: &str) {
        self.raw_member(name, &Value::from(text).to_string());
    }

    pub(crate) fn list_member(&mut self, name: &str, texts: &[String]) {
        self.raw_member(name, &Value::from(texts).to_string());
    }

    pub(crate) fn bool_member(&mut self, name: &str, value: bool) {
        self.raw_member(name, if value { "true" } else { "false" });
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
