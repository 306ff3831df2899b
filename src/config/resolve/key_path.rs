//! Path in a document, with its value if there is one.

use super::super::check::path_segment;
use super::super::diagnostic::Diagnostic;
use super::super::spanned_toml::{SpannedValue, Value};
use std::path::{Path, PathBuf};

/// Path of a key, its value if there is one, and the closest node above it that exists.
#[derive(Clone)]
pub struct KeyPath<'a> {
    path: String,
    nearest_node: &'a SpannedValue,
    node: Option<&'a SpannedValue>,
}

impl<'a> KeyPath<'a> {
    /// Creates the path of the document's root.
    pub const fn from_root(root: &'a SpannedValue) -> Self {
        Self { path: String::new(), nearest_node: root, node: Some(root) }
    }

    /// Returns the path of a table member.
    pub fn child(&self, key: &str) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        let node = self.node.and_then(|node| node.get(key));
        Self { path, nearest_node: node.unwrap_or(self.nearest_node), node }
    }

    /// Returns the path of a list element.
    pub fn list_element(&self, index: usize) -> Self {
        let node = self.node.and_then(|node| node.elements().get(index));
        let path = match node {
            // Invalid elements before this one were removed, so its index is not the written one.
            Some(element) => {
                let index = element.location.element.unwrap_or(index);
                format!("{}{}", self.path, path_segment(element, index))
            }
            None => format!("{}[{index}]", self.path),
        };
        Self { path, nearest_node: node.unwrap_or(self.nearest_node), node }
    }

    /// Returns the path as text.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the location of the key, or of its nearest existing parent, as `file:line`.
    pub fn file_and_line(&self) -> String {
        format!("{}:{}", self.nearest_node.location.file, self.nearest_node.location.line)
    }

    /// Resolves a file path relative to the configuration file that contains it.
    pub fn resolve_file_path(&self, written: &str) -> PathBuf {
        let from = self.nearest_node.location.file.to_string();
        Path::new(&from).parent().unwrap_or(Path::new("")).join(written)
    }

    /// Formats the value as written; `None` for a table.
    pub fn value_preview(&self) -> Option<String> {
        self.node.filter(|node| !matches!(node.value, Value::Table(_))).map(SpannedValue::preview)
    }

    /// Creates the description of a mistake at this path.
    pub fn diagnostic(&self, value: Option<String>, why: String, fix: String) -> Diagnostic {
        let location = &self.nearest_node.location;
        Diagnostic {
            file: location.file.to_string(),
            line: Some(location.line),
            key: self.path.clone(),
            value,
            reason: why,
            remedy: fix,
        }
    }
}
