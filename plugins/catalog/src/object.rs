//! Writer of a JSON object, member by member.

use serde_json::Value;

/// JSON object under construction.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds a member whose value is `json`, written unchanged.
    pub(crate) fn raw(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.raw(name, &Value::from(text).to_string());
    }

    pub(crate) fn list(&mut self, name: &str, texts: &[String]) {
        self.raw(name, &Value::from(texts).to_string());
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        self.raw(name, if value { "true" } else { "false" });
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
